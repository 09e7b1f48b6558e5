//! The plain engine: sockets, one thread that reads all of them, and senders that write at once.
//!
//! Each pair of hosts has two connections, one for control and one for data, so that bulk data never delays control. The
//! greeting on each names the host and the lane. If two hosts connect to each other, both pairs
//! stay, and frames are written to the first. Every control connection carries a sign of life twice within
//! [`LEASE`](crate::LEASE). There is no encryption: the configuration allows loopback and Unix sockets only.

mod connection;
mod dial;
mod peers;
mod serve;
mod socket;
pub(crate) mod wire;

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use qfabric_channel::{DestinationRef, Incarnation, Lane};
use qfabric_sync::{Lock, rank};
use qfabric_types::channel::{ChannelId, Name};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::retry_on_intr;

use crate::engine::{Counters, Engine, Handler};
use crate::{Config, Error, MAX_FRAME, threads};
use connection::Sent;
use dial::Dialed;
use peers::Peers;
use wire::{Hello, Kind};

/// The engine, shared by its threads and its users.
pub(crate) struct Plain {
    realm: Name,
    host: Name,
    incarnation: Incarnation,
    handler: Arc<dyn Handler>,
    peers: Lock<Peers, { rank::PEERS }>,
    listening: Lock<HashSet<ChannelId>, { rank::WANTED }>,
    epoll: OwnedFd,
    wake: OwnedFd,
    dialed: Lock<Vec<Dialed>, { rank::DECLARED }>,
    wanted: Vec<dial::Wanted>,
    counters: Counters,
    closing: AtomicBool,
    thread: OnceLock<i32>,
    receiving: Lock<Option<JoinHandle<()>>, { rank::DECLARED }>,
}

pub(crate) fn open(
    config: &Config,
    incarnation: Incarnation,
    handler: Arc<dyn Handler>,
    enter: impl FnOnce() + Send + 'static,
) -> Result<Arc<dyn Engine>, Error> {
    let listeners = config.listen.iter().map(socket::listen).collect::<Result<Vec<_>, _>>()?;
    let plain = Arc::new(
        Plain::new(config, incarnation, handler).map_err(|errno| Error::io("open the plain engine")(errno.into()))?,
    );
    let serve =
        serve::Serve::new(Arc::clone(&plain), listeners).map_err(|errno| Error::io("watch sockets")(errno.into()))?;
    let begin = move || {
        enter();
        serve.run();
    };
    let receiving = threads::spawn("qf-plain", plain.failed(), begin).map_err(Error::io("start the receive thread"))?;
    *plain.receiving.lock() = Some(receiving);
    let dialer = Arc::clone(&plain);
    let dialing = threads::spawn("qf-dial", plain.failed(), move || dial::run(&dialer));
    dialing.map_err(Error::io("start the calling thread"))?;
    Ok(plain)
}

impl Plain {
    fn new(config: &Config, incarnation: Incarnation, handler: Arc<dyn Handler>) -> rustix::io::Result<Plain> {
        Ok(Plain {
            realm: config.realm.clone(),
            host: config.host.clone(),
            incarnation,
            handler,
            peers: Lock::default(),
            listening: Lock::default(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            dialed: Lock::default(),
            wanted: config.calls().iter().map(dial::Wanted::new).collect(),
            counters: Counters::default(),
            closing: AtomicBool::new(false),
            thread: OnceLock::new(),
            receiving: Lock::default(),
        })
    }

    fn failed(&self) -> impl FnOnce(&'static str, String) + Send + 'static {
        let handler = Arc::clone(&self.handler);
        move |thread, message| handler.failed(thread, message)
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn wake(&self) {
        let _ = retry_on_intr(|| rustix::io::write(&self.wake, &1u64.to_ne_bytes()));
    }

    fn hello(&self, lane: Lane) -> Vec<u8> {
        let (realm, host) = (self.realm.clone(), self.host.clone());
        Hello { lane, incarnation: self.incarnation, realm, host }.encode()
    }

    /// Sends the channels that this host listens to, to all hosts or to a new one.
    fn tell_wants(&self, connection: &connection::Connection) {
        let listening = self.listening.lock();
        for channel in listening.iter() {
            connection.send(&self.epoll, Kind::Listen, &wire::channel_body(channel));
        }
    }

    fn change_wants(&self, channel: &ChannelId, wanted: bool) {
        let mut listening = self.listening.lock();
        let changed = if wanted { listening.insert(channel.clone()) } else { listening.remove(channel) };
        if changed {
            let kind = if wanted { Kind::Listen } else { Kind::Ignore };
            self.transmit(DestinationRef::Everyone, Lane::Control, kind, &wire::channel_body(channel));
        }
    }

    fn transmit(&self, to: DestinationRef<'_>, lane: Lane, kind: Kind, body: &[u8]) {
        let peers = self.peers.lock();
        peers.of(to, lane, |connection| match connection.send(&self.epoll, kind, body) {
            Sent::Yes => {}
            Sent::Dropped => self.counters.count_dropped(),
            Sent::Ended => self.counters.count_ended(),
        });
    }
}

impl Engine for Plain {
    fn send(&self, to: DestinationRef<'_>, lane: Lane, frame: &[u8]) {
        if frame.len() > MAX_FRAME {
            return self.counters.count_dropped();
        }
        self.counters.count_sent(lane);
        self.transmit(to, lane, Kind::Frame, frame);
    }

    fn listen(&self, channel: &ChannelId) {
        self.change_wants(channel, true);
    }

    fn ignore(&self, channel: &ChannelId) {
        self.change_wants(channel, false);
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn threads(&self) -> Vec<i32> {
        self.thread.get().copied().into_iter().collect()
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
        let receiving = self.receiving.lock().take();
        if let Some(receiving) = receiving.filter(|receiving| receiving.thread().id() != thread::current().id()) {
            let _ = receiving.join(); // after this the addresses are free
        }
    }
}
