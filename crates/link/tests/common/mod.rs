//! Hosts on loopback addresses, and a log of their engines' events.
#![allow(dead_code, reason = "each test uses some of it")]

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use qfabric_channel::{Incarnation, Lane};
use qfabric_link::{Address, Config, Engine, EngineEvent, EngineKind};

/// The longest time that anything on loopback takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Arrived { from: String, lane: Lane, frame: Vec<u8> },
    Appeared(String, u64),
    Vanished(String, u64),
}

/// The events that a host's engine reported, in order.
#[derive(Default)]
pub(crate) struct Log {
    seen: Mutex<Vec<Seen>>,
    more: Condvar,
}

impl Log {
    pub(crate) fn note(&self, event: EngineEvent<'_>) {
        let seen = match event {
            EngineEvent::Arrived { from, lane, frame } => {
                Seen::Arrived { from: from.to_string(), lane, frame: frame.to_vec() }
            }
            EngineEvent::Appeared { host, incarnation } => Seen::Appeared(host.to_string(), incarnation.0),
            EngineEvent::Vanished { host, incarnation } => Seen::Vanished(host.to_string(), incarnation.0),
        };
        self.seen.lock().unwrap().push(seen);
        self.more.notify_all();
    }

    /// Waits until `enough` accepts the events; returns the time it took.
    pub(crate) fn until(&self, what: &str, enough: impl Fn(&[Seen]) -> bool) -> Duration {
        let begin = Instant::now();
        let mut seen = self.seen.lock().unwrap();
        while !enough(&seen) {
            let left = PATIENCE.checked_sub(begin.elapsed());
            let left = left.unwrap_or_else(|| {
                let (all, last) = (seen.len(), &seen[seen.len().saturating_sub(3)..]);
                panic!("{what} did not happen within {PATIENCE:?}: {all} seen, {:.400} … {last:?}", format!("{seen:?}"))
            });
            seen = self.more.wait_timeout(seen, left).unwrap().0;
        }
        begin.elapsed()
    }

    pub(crate) fn until_seen(&self, what: &Seen) -> Duration {
        self.until(&format!("{what:?}"), |seen| seen.contains(what))
    }

    pub(crate) fn all(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn frames(&self) -> usize {
        self.all().iter().filter(|seen| matches!(seen, Seen::Arrived { .. })).count()
    }
}

/// A host of a test: an engine and its log.
pub(crate) struct Host {
    pub name: String,
    pub engine: Arc<dyn Engine>,
    pub log: Arc<Log>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.engine.close();
    }
}

/// Addresses of one test: 127.x.y.z, different for each test.
pub(crate) struct Site {
    pub kind: EngineKind,
    net: (u8, u8),
}

impl Site {
    pub(crate) fn new(kind: EngineKind) -> Site {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        Site { kind, net: (1 + (number / 256 % 250) as u8, (number % 256) as u8) }
    }

    pub(crate) fn address(&self, host: u8) -> Address {
        format!("127.{}.{}.{host}:7700", self.net.0, self.net.1).parse().unwrap()
    }

    pub(crate) fn config(&self, host: u8, peers: &[u8]) -> Config {
        let mut config = Config::new(name(host).parse().unwrap());
        config.engine = self.kind;
        config.listen = vec![self.address(host)];
        config.peers = peers.iter().map(|peer| self.address(*peer)).collect();
        config
    }

    pub(crate) fn host(&self, host: u8, peers: &[u8]) -> Host {
        self.life(host, peers, 1)
    }

    pub(crate) fn life(&self, host: u8, peers: &[u8], incarnation: u64) -> Host {
        open(&self.config(host, peers), incarnation)
    }
}

pub(crate) fn name(host: u8) -> String {
    format!("host-{host}")
}

pub(crate) fn open(config: &Config, incarnation: u64) -> Host {
    let log = Arc::new(Log::default());
    let noted = Arc::clone(&log);
    let handler = Arc::new(move |_: &dyn Engine, event: EngineEvent<'_>| noted.note(event));
    let engine = qfabric_link::open(config, Incarnation(incarnation), handler, || {}).unwrap();
    Host { name: config.host.to_string(), engine, log }
}
