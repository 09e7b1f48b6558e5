//! The queue's decisions without packets and without an interface: the machine of `bpf/packet/machine.h` run call by
//! call, on any kernel with BPF. For holding it against the theory, and for counting what a decision costs.

use std::io;

use qfabric_types::api::net::{BestEffortCounters, StreamCounters, StreamSpec};
use qfabric_types::{Instant, Nanos, Share};

use super::config::{Config, LINK, Link};
use super::error::NetError;
use super::stats::Stats;
use crate::abi::{
    QF_NET_STREAMS, QF_NET_TRIAL_NEXT, QF_NET_TRIAL_PUT, QF_NET_VERDICT_DROP, QF_NET_VERDICT_SEND, QF_NET_VERDICT_WAIT,
    qf_net_link, qf_net_trial,
};
use crate::bpf::object::Entry;
use crate::bpf::{Object, OpenObject, Plain, objects};

// SAFETY: integers only, no holes (the header's size assertions).
#[allow(unsafe_code, reason = "a record of the kernel's side")]
unsafe impl Plain for qf_net_trial {}

/// A queue without packets.
#[derive(Debug)]
pub struct Trial {
    config: Config,
    stats: Stats,
    entry: Entry,
    _object: Object,
}

/// What the queue does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sends a packet of a stream (none: best effort) with so many bytes.
    Send(Option<u32>, u32),
    /// Drops one that is late.
    Drop(Option<u32>, u32),
    /// Has nothing to do before.
    Wait(Instant),
    /// Has nothing.
    Idle,
}

impl Trial {
    /// A queue for a link of so many bits per second, paced if told so.
    pub fn new(rate_bps: u64, paced: bool, best_effort: Share, hold: Option<Nanos>) -> Result<Trial, NetError> {
        let link = Link { rate_bps, paced, best_effort, hold };
        let open = OpenObject::open("the packet machine", objects::PACKET_TRIAL)?;
        let object = open.constant(LINK, &qf_net_link { tick_ns: 1, ..link.constants() })?.load()?;
        let config = Config::of(&object)?;
        let (stats, entry) = (Stats::of(&object)?, object.entry("qf_trial")?);
        Ok(Trial { config, stats, entry, _object: object })
    }

    /// Begins a stream.
    pub fn begin(&mut self, stream: u32, spec: &StreamSpec) {
        self.config.begin(stream, spec);
    }

    /// Changes one.
    pub fn change(&self, stream: u32, spec: &StreamSpec) {
        self.config.change(stream, spec);
    }

    fn run(&self, mut trial: qf_net_trial) -> io::Result<qf_net_trial> {
        self.entry.call(&mut trial)?;
        Ok(trial)
    }

    /// A packet arrives. Whether there was room.
    pub fn put(&self, stream: Option<u32>, len: u32, now: Instant) -> io::Result<bool> {
        let stream = stream.unwrap_or(QF_NET_STREAMS);
        let trial = qf_net_trial { act: QF_NET_TRIAL_PUT, stream, len, now: now.get(), ..Default::default() };
        Ok(self.run(trial)?.place >= 0)
    }

    /// The link asks for a packet.
    pub fn next(&self, now: Instant) -> io::Result<Next> {
        let asked = qf_net_trial { act: QF_NET_TRIAL_NEXT, now: now.get(), ..Default::default() };
        let told = self.run(asked)?;
        let stream = Some(told.stream).filter(|stream| *stream < QF_NET_STREAMS);
        Ok(match told.verdict {
            QF_NET_VERDICT_SEND => Next::Send(stream, told.len),
            QF_NET_VERDICT_DROP => Next::Drop(stream, told.len),
            QF_NET_VERDICT_WAIT => Next::Wait(Instant::new(told.until)),
            _ => Next::Idle,
        })
    }

    /// What became of a stream's packets.
    pub fn counters(&self, stream: u32) -> StreamCounters {
        self.stats.stream(stream)
    }

    /// What became of packets of no stream.
    pub fn best_effort(&self) -> BestEffortCounters {
        self.stats.best_effort()
    }
}
