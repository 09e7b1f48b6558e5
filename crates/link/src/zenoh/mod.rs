//! The engine between machines: the part of Zenoh that `channel` needs.
//!
//! Frames are publications to the keys of [`keys`]; presence uses liveliness tokens. A callback of Zenoh runs in the receive
//! thread, which with a single thread ([`crate::one_receive_thread`]) is also the thread that writes. Therefore no
//! publication is `express`: an express publication takes a whole batch of the sixteen that a peer has. A burst of them from
//! a callback, with no other thread to write, would close the connection. Batches that fill up hold 1 MiB, and a batch on an
//! idle connection is sent as quickly.

mod attend;
pub(crate) mod keys;
mod look;
mod numbers;
mod publishers;
mod rules;
mod session;
mod settings;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;

use bytes::Bytes;
use qfabric_channel::{DestinationRef, Incarnation, Lane};
use qfabric_sync::{Lock, rank};
use qfabric_types::channel::{ChannelId, Name};
use zenoh::bytes::ZBytes;
use zenoh::handlers::Callback;
use zenoh::key_expr::KeyExpr;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::qos::Priority;
use zenoh::sample::{Locality, Sample, SampleKind};
use zenoh::{Session, Wait};

use crate::engine::{Counters, Engine, EngineEvent, Handler};
use crate::presence::{Change, Presence};
use crate::{Config, Error, MAX_FRAME, threads};
pub use attend::{Attending, attend};
use keys::Keys;
use numbers::Numbers;
use publishers::Publishers;
use session::{OwnSession, in_a_plain_thread};
pub(crate) use settings::is_same;
pub use tls_listener::refused as refused_handshakes;

/// Largest number of received keys that are declared.
const MAX_WAYS: usize = 4096;

pub(crate) struct Zenoh {
    /// Callbacks hold only this weak reference, so that the engine is dropped with its last user.
    me: Weak<Zenoh>,
    keys: Keys,
    host: Name,
    handler: Arc<dyn Handler>,
    session: OwnSession,
    numbers: Numbers,
    publishers: Publishers,
    presence: Lock<Presence, { rank::PEERS }>,
    wanted: Lock<HashMap<ChannelId, Subscriber<()>>, { rank::WANTED }>,
    /// Keys of received frames, declared here so that Zenoh keeps the route to the subscriber instead of searching for
    /// it each time: subscriptions end in `*`.
    ways: Lock<HashMap<String, Declared>, { rank::DECLARED }>,
    standing: OnceLock<Standing>,
    counters: Counters,
}

/// A key of received frames.
struct Declared {
    _key: KeyExpr<'static>,
    /// The key ends in this name, which is read once and not for each frame.
    sender: Arc<Name>,
}

/// The memory of a frame, which Zenoh reads instead of a copy.
struct Long(Arc<Vec<u8>>);

impl AsRef<[u8]> for Long {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The declarations that last as long as the engine is open.
struct Standing {
    _subscribers: Vec<Subscriber<()>>,
    token: Lock<Option<LivelinessToken>, { rank::DECLARED }>,
}

pub(crate) fn open(
    config: &Config,
    incarnation: Incarnation,
    handler: Arc<dyn Handler>,
    enter: impl FnOnce() + Send + 'static,
) -> Result<Arc<dyn Engine>, Error> {
    if let crate::Security::Tls(tls) = &config.security {
        qfabric_realm::check_certificate(tls, &config.host)?;
    }
    if option_env!("TLS_LINGER_TIMEOUT") != Some("0") {
        tracing::warn!("built without the repository's .cargo/config.toml: a cut cable may block this host for 10 s");
    }
    if option_env!("TLS_ACCEPT_THROTTLE_TIME") != Some("1000") {
        tracing::warn!(
            "built without the repository's .cargo/config.toml: while no descriptor is free, each new connection delays \
             other hosts by 100 ms"
        );
    }
    let settings = settings::settings(config)?;
    let opening = move || {
        enter();
        zenoh::open(settings).wait()
    };
    let opener = thread::Builder::new().name("qf-open".into()).spawn(opening).map_err(Error::io("start a thread"))?;
    let session = opener.join().map_err(|_| Error::Zenoh("opening a session panicked".into()))?;
    let session = session.map_err(|error| explain(config, &*error))?;
    let zenoh = Arc::new_cyclic(|me| Zenoh::new(config, handler, session, me.clone()));
    zenoh.stand(incarnation).map_err(|error| Error::Zenoh(error.to_string()))?;
    look::start(config, Arc::downgrade(&zenoh))?;
    Ok(zenoh)
}

fn explain(config: &Config, error: &(dyn std::error::Error + Send + Sync)) -> Error {
    let listens: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    Error::Zenoh(format!("{error} (listening on {}, and on the next port for data)", listens.join(", ")))
}

impl Zenoh {
    fn new(config: &Config, handler: Arc<dyn Handler>, session: Session, me: Weak<Zenoh>) -> Zenoh {
        Zenoh {
            me,
            keys: Keys { realm: config.realm.clone() },
            host: config.host.clone(),
            handler,
            session: OwnSession::new(session),
            numbers: Numbers::default(),
            publishers: Publishers::default(),
            presence: Lock::default(),
            wanted: Lock::default(),
            ways: Lock::default(),
            standing: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// Declare the subscriptions first, then the token: a host that sees the token can send at once.
    fn stand(&self, incarnation: Incarnation) -> zenoh::Result<()> {
        let frames = [self.keys.everyone("*"), self.keys.host(self.host.as_str(), "*")];
        let mut subscribers = Vec::new();
        for key in frames {
            subscribers.push(self.subscribe(key)?);
        }
        let lives = self.session.liveliness().declare_subscriber(self.keys.life("*", "*")).history(true);
        subscribers.push(lives.with(self.callback(Zenoh::life_changed)).wait()?);
        let life = self.keys.life(self.host.as_str(), &incarnation.to_string());
        let token = Lock::new(Some(self.session.liveliness().declare_token(life).wait()?));
        let _ = self.standing.set(Standing { _subscribers: subscribers, token });
        Ok(())
    }

    fn subscribe(&self, key: String) -> zenoh::Result<Subscriber<()>> {
        if !self.numbers.take() {
            return Err("the session has no number left for another key; it is replaced soon".into());
        }
        let wanted = self.session.declare_subscriber(key).allowed_origin(Locality::Remote);
        wanted.with(self.callback(Zenoh::arrived)).wait()
    }

    fn callback(&self, each: fn(&Zenoh, &Sample)) -> Callback<Sample> {
        let me = self.me.clone();
        Callback::from(move |sample: Sample| {
            if let Some(zenoh) = me.upgrade() {
                let failed = |thread, message| zenoh.handler.failed(thread, message);
                threads::contain("of zenoh", failed, || each(&zenoh, &sample));
            }
        })
    }

    fn arrived(&self, sample: &Sample) {
        let lane = match sample.priority() {
            priority if priority as u8 <= Priority::InteractiveLow as u8 => Lane::Control,
            priority if priority as u8 >= Priority::DataLow as u8 => Lane::Bulk,
            _ => Lane::Data,
        };
        let (frame, key) = (sample.payload().to_bytes(), sample.key_expr().as_str());
        let known = self.ways.lock().get(key).map(|way| way.sender.clone());
        let is_known = known.is_some();
        match known.or_else(|| keys::sender(key).map(Arc::new)) {
            Some(from) if frame.len() <= MAX_FRAME && *from != self.host => {
                self.counters.count_received(lane);
                if !is_known {
                    self.keep_way(key, &from);
                }
                self.handler.handle(self, EngineEvent::Arrived { from: &from, lane, frame: &frame });
            }
            _ => self.counters.count_refused(),
        }
    }

    fn put(&self, to: DestinationRef<'_>, lane: Lane, length: usize, frame: impl FnOnce() -> ZBytes) {
        let key = || self.keys.to(to, self.host.as_str());
        let session: (&Session, &Numbers) = (&self.session, &self.numbers);
        if length > MAX_FRAME || !self.publishers.put(session, to, lane, key, frame()) {
            return self.counters.count_dropped();
        }
        self.counters.count_sent(lane);
    }

    fn keep_way(&self, key: &str, sender: &Arc<Name>) {
        let mut ways = self.ways.lock();
        if ways.contains_key(key) || ways.len() >= MAX_WAYS || !self.numbers.take() {
            return;
        }
        if let Ok(declared) = self.session.declare_keyexpr(key.to_owned()).wait() {
            ways.insert(key.to_owned(), Declared { _key: declared, sender: sender.clone() });
        }
    }

    /// Discards the declared keys of a host that is gone.
    fn forget_ways(&self, host: &Name) {
        self.ways.lock().retain(|_, way| *way.sender != *host);
    }

    fn life_changed(&self, sample: &Sample) {
        let Some((host, incarnation)) = keys::life(sample.key_expr().as_str()) else {
            return self.counters.count_refused();
        };
        if host == self.host {
            return;
        }
        let mut presence = self.presence.lock();
        let change = match sample.kind() {
            SampleKind::Put => presence.begins(&host, incarnation),
            SampleKind::Delete => presence.ends(&host, incarnation),
        };
        drop(presence);
        self.tell(&host, change);
    }

    fn tell(&self, host: &Name, change: Change) {
        if let Some(incarnation) = change.vanished {
            self.publishers.forget(host);
            self.forget_ways(host);
            self.handler.handle(self, EngineEvent::Vanished { host, incarnation });
        }
        if let Some(incarnation) = change.appeared {
            self.handler.handle(self, EngineEvent::Appeared { host, incarnation });
        }
    }
}

impl Engine for Zenoh {
    fn send(&self, to: DestinationRef<'_>, lane: Lane, frame: &[u8]) {
        self.put(to, lane, frame.len(), || frame.into());
    }

    fn send_long(&self, to: DestinationRef<'_>, lane: Lane, frame: &Arc<Vec<u8>>) {
        self.put(to, lane, frame.len(), || Bytes::from_owner(Long(Arc::clone(frame))).into());
    }

    fn listen(&self, channel: &ChannelId) {
        let mut wanted = self.wanted.lock();
        if wanted.contains_key(channel) {
            return;
        }
        match self.subscribe(self.keys.wanted(channel)) {
            Ok(subscriber) => _ = wanted.insert(channel.clone(), subscriber),
            Err(error) => tracing::warn!("zenoh does not listen to {channel:?}: {error}"),
        }
    }

    fn ignore(&self, channel: &ChannelId) {
        let subscriber = self.wanted.lock().remove(channel);
        self.publishers.forget_channel(channel);
        drop(subscriber);
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn is_worn(&self) -> bool {
        self.numbers.are_worn()
    }

    fn threads(&self) -> Vec<i32> {
        threads::named(&["rx-", "tx-", "net-", "acc-", "app-"])
    }

    fn close(&self) {
        in_a_plain_thread(|| {
            if let Some(token) = self.standing.get().and_then(|standing| standing.token.lock().take()) {
                let _ = token.undeclare().wait();
            }
            let _ = self.session.close().wait();
        });
    }
}
