//! The kernel path of filter parameters: another host's kernel applies a change, and no thread of its daemon is woken.
//!
//! ```text
//!  sending host                                     receiving host
//!  1st change of a parameter ── Shipped, Answer ──> as always
//!  Bind ── private message ───────────────────────> a word for the parameter; the filter follows it
//!       <── Key (new or first), Bound ──────────────
//!  next changes ── datagram ──────────────────────> kernel: checks it, stores the word <── filter, at its next event
//!       <── Applied, at most every 0.5 s ───────────
//!  no Applied after 2 s: the change goes as the first one
//! ```
//! `receiving` grants words and renews keys, `sending` uses them, `message` is what the hosts tell each other. The
//! datagrams are in `qfabric_types::kernel_path`. Design pages 0060 and 0065.

mod message;
mod receiving;
mod sending;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qfabric_channel::{FilterCommand, FilterId, Key};
use qfabric_linux::clock;
use qfabric_linux::kernel_path::{KernelPath, PathCounts};
use qfabric_sync::{Lock, contain, lock, rank};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};
use serde::Deserialize;

use super::config::OutOfRange;
use super::{Fabric, Network, count};
use crate::ecalls::Inbox;
use crate::ending::{Ending, Running};
use message::{Message, Parameter};
use receiving::Receiving;
use sending::Sending;

/// Interval at which the thread confirms changes and looks for those that were not confirmed.
const LOOK: Duration = Duration::from_millis(500);

/// The table `[channels.kernel_path]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelPathConfig {
    /// Interface at which changes of other hosts arrive.
    pub interface: String,
    /// Address of this host at the interface, with a UDP port that no program uses.
    pub address: SocketAddr,
    /// A key is replaced after this time.
    #[serde(default = "one_hour", deserialize_with = "crate::config::time")]
    pub renew: Nanos,
    /// A key is replaced after this number of changes.
    #[serde(default = "one_million")]
    pub renew_changes: u64,
}

fn one_hour() -> Nanos {
    Nanos::from_millis(3_600_000)
}

fn one_million() -> u64 {
    1_000_000
}

impl KernelPathConfig {
    pub(super) fn out_of_range(&self) -> Option<OutOfRange> {
        let address = self.address;
        if address.ip().is_unspecified() || address.port() == 0 {
            let expected = "one address of this host and a UDP port, such as 10.0.0.1:7790";
            return Some(("channels.kernel_path.address", address.to_string(), expected));
        }
        if self.renew < Nanos::from_millis(1_000) || self.renew > Nanos::from_millis(86_400_000) {
            return Some(("channels.kernel_path.renew", self.renew.to_string(), "1s to 86400s"));
        }
        if self.renew_changes == 0 {
            return Some(("channels.kernel_path.renew_changes", "0".to_owned(), "1 or more"));
        }
        None
    }
}

/// Both ends of this host.
#[derive(Debug)]
pub(super) struct Path {
    receiving: Lock<Receiving, { rank::PATH_RECEIVING }>,
    sending: Lock<Sending, { rank::PATH_SENDING }>,
    /// Messages of other hosts.
    inbox: Arc<Inbox>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    sent: AtomicU64,
    fallbacks: AtomicU64,
    repeated: AtomicU64,
}

/// Values for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PathReport {
    /// What became of the changes that arrived.
    pub arrived: PathCounts,
    /// Parameters of this host that other hosts can change.
    pub followed: u64,
    pub sent: u64,
    /// Changes for other hosts that went through their daemons.
    pub fallbacks: u64,
    /// Changes that were sent and not confirmed, and went through the other daemon then.
    pub repeated: u64,
    pub renewed: u64,
}

impl Path {
    /// Attaches the program. `None`, and a line in the log: this host has no kernel path, and all changes take the way
    /// through the daemons.
    pub(super) fn open(config: Option<&KernelPathConfig>) -> Option<Path> {
        let config = config?;
        match KernelPath::attach(&config.interface, config.address) {
            Ok(kernel) => {
                tracing::info!(interface = config.interface, address = %config.address, "this host has a kernel path");
                let receiving = Lock::new(Receiving::new(kernel, config));
                let (sending, inbox, totals) = Default::default();
                Some(Path { receiving, sending, inbox, totals })
            }
            Err(error) => {
                tracing::warn!(%error, "no kernel path: parameters of filters are changed through the daemons");
                None
            }
        }
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    pub(super) fn report(&self) -> PathReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Totals { sent, fallbacks, repeated } = &self.totals;
        let (sent, fallbacks, repeated) = (of(sent), of(fallbacks), of(repeated));
        let receiving = lock(&self.receiving);
        let (arrived, followed, renewed) = (receiving.counts(), receiving.followed(), receiving.renewed());
        PathReport { arrived, followed, sent, fallbacks, repeated, renewed }
    }
}

impl Fabric {
    /// Sends a parameter's new value to another host's kernel. False: the change has to go through that host's daemon.
    pub(super) fn send_parameter(&self, host: &Name, id: &FilterId, key: &Key, value: i64) -> bool {
        let Some(path) = &self.path else { return false };
        let sent = lock(&path.sending).send(host, &Parameter::new(id, key), value, clock::now());
        count(if sent { &path.totals.sent } else { &path.totals.fallbacks });
        sent
    }

    /// Another host has changed a parameter for this one: the next change should go to its kernel.
    pub(super) fn bind_parameter(&self, host: &Name, id: &FilterId, key: &Key) {
        let Some(path) = &self.path else { return };
        let epoch = lock(&path.sending).epoch(host);
        self.network.tell_path(host, &Message::Bind { epoch, parameter: Parameter::new(id, key) });
    }

    fn path_heard(&self, path: &Path, host: &Name, message: Message) {
        let now = clock::now();
        let answers = match message {
            Message::Bind { epoch, parameter } => {
                let bound = lock(&path.receiving).bind(&self.network, host, epoch, parameter, now);
                bound.unwrap_or_else(|error| {
                    tracing::warn!(%host, %error, "a host gets no part of the kernel path");
                    Vec::new()
                })
            }
            Message::Has { epoch } => {
                lock(&path.receiving).confirmed(host, epoch);
                Vec::new()
            }
            answer => {
                let heard = lock(&path.sending).heard(host, answer);
                heard.unwrap_or_else(|error| {
                    tracing::warn!(%host, %error, "no socket for the kernel path of another host");
                    None
                })
            }
            .into_iter()
            .collect(),
        };
        answers.iter().for_each(|answer| _ = self.network.tell_path(host, answer));
    }

    /// Confirms changes, renews keys, and repeats what other hosts have not confirmed.
    fn look_at_path(&self, path: &Path, now: Instant) {
        let messages = lock(&path.receiving).look(&self.network, now);
        for (host, message) in messages {
            self.network.tell_path(&host, &message);
        }
        // Under the lock, so that no newer change goes before them.
        let mut sending = lock(&path.sending);
        for (host, Parameter { filter, key }, value) in sending.overdue(now) {
            count(&path.totals.repeated);
            let order = FilterCommand::Parameter(filter, key, value);
            self.network.with(|node, now| node.ship(std::slice::from_ref(&host), &order, now));
        }
    }
}

impl Network {
    /// False: the host is gone, or has no kernel path.
    fn tell_path(&self, host: &Name, message: &Message) -> bool {
        let bytes = message.encode();
        self.with(|node, _| node.tell(host, &bytes))
    }
}

/// Starts the thread that speaks with other hosts about the kernel path. `None`: this host has no kernel path.
pub(crate) fn start_path(fabric: &Arc<Fabric>, ending: &Ending) -> std::io::Result<Option<Running>> {
    let Some(path) = &fabric.path else { return Ok(None) };
    let (inbox, fabric) = (path.inbox.clone(), fabric.clone());
    let body = move || fabric.path.iter().for_each(|path| run(&fabric, path));
    ending.run("qf-path", body, move || inbox.stop()).map(Some)
}

fn run(fabric: &Fabric, path: &Path) {
    let mut look_at = clock::now();
    loop {
        let work = path.inbox.next(LOOK);
        if work.stops {
            return;
        }
        for host in &work.gone {
            // The node may have met the host again while this thread granted it a word.
            fabric.network.look(|node| node.end_following(host));
            lock(&path.receiving).gone(host);
            lock(&path.sending).gone(host);
        }
        if let Some((host, bytes)) = work.message {
            match Message::decode(&bytes) {
                Some(message) => contained(&host, || fabric.path_heard(path, &host, message)),
                None => tracing::debug!(%host, bytes = bytes.len(), "a message about the kernel path cannot be read"),
            }
        }
        let now = clock::now();
        if look_at <= now {
            look_at = now + Nanos::from_millis(LOOK.as_millis() as u64);
            fabric.look_at_path(path, now);
        }
    }
}

/// A panic is a defect that a message triggers; the thread goes on.
fn contained(host: &Name, act: impl FnOnce()) {
    if let Err(message) = contain(act) {
        tracing::error!(%host, message, "the service panicked at a message about the kernel path; please report this");
    }
}
