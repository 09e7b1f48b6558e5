//! Runs the decisions of the queue without packets and without an interface: the machine of `bpf/packet/machine.h`,
//! call by call, on every kernel with BPF. Used to compare it with the theory, and to measure the cost of a decision.

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

// SAFETY: only integers and no holes (checked by the header's size assertions).
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

/// Next action of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sends a packet: its stream (`None`: best effort) and its size in bytes.
    Send(Option<u32>, u32),
    /// Drops a late packet: its stream and its size in bytes.
    Drop(Option<u32>, u32),
    /// Does nothing before this time.
    Wait(Instant),
    /// The queue is empty.
    Idle,
}

impl Trial {
    /// A queue for a link of `rate_bps` bits per second; `paced` limits the queue to that rate.
    pub fn new(rate_bps: u64, paced: bool, best_effort: Share, hold: Option<Nanos>) -> Result<Trial, NetError> {
        let link = Link { rate_bps, paced, best_effort, hold };
        let open = OpenObject::open("the packet machine", objects::PACKET_TRIAL)?;
        let object = open.constant(LINK, &qf_net_link { tick_ns: 1, ..link.constants() })?.load()?;
        let config = Config::of(&object)?;
        let (stats, entry) = (Stats::of(&object)?, object.entry("qf_trial")?);
        Ok(Trial { config, stats, entry, _object: object })
    }

    pub fn begin(&mut self, stream: u32, spec: &StreamSpec) {
        self.config.begin(stream, spec);
    }

    pub fn change(&self, stream: u32, spec: &StreamSpec) {
        self.config.change(stream, spec);
    }

    fn run(&self, mut trial: qf_net_trial) -> io::Result<qf_net_trial> {
        self.entry.call(&mut trial)?;
        Ok(trial)
    }

    /// A packet arrives. Returns `false` if there is no room for it.
    pub fn put(&self, stream: Option<u32>, len: u32, now: Instant) -> io::Result<bool> {
        let stream = stream.unwrap_or(QF_NET_STREAMS);
        let trial = qf_net_trial { act: QF_NET_TRIAL_PUT, stream, len, now: now.get(), ..Default::default() };
        Ok(self.run(trial)?.place >= 0)
    }

    /// The link requests a packet.
    pub fn next(&self, now: Instant) -> io::Result<Next> {
        let request = qf_net_trial { act: QF_NET_TRIAL_NEXT, now: now.get(), ..Default::default() };
        let result = self.run(request)?;
        let stream = Some(result.stream).filter(|stream| *stream < QF_NET_STREAMS);
        Ok(match result.verdict {
            QF_NET_VERDICT_SEND => Next::Send(stream, result.len),
            QF_NET_VERDICT_DROP => Next::Drop(stream, result.len),
            QF_NET_VERDICT_WAIT => Next::Wait(Instant::new(result.until)),
            _ => Next::Idle,
        })
    }

    pub fn counters(&self, stream: u32) -> StreamCounters {
        self.stats.stream(stream)
    }

    /// Counters of the packets that belong to no stream.
    pub fn best_effort(&self) -> BestEffortCounters {
        self.stats.best_effort()
    }
}
