//! Bursts: packets wait for the latest moment at which all of them still begin in time (000 §6.3.1, Figure 53).
//!
//! ```text
//!            first packet: t_w                       t_w comes, or an urgent packet
//!   empty ─────────────────────▶ waiting (t_w) ──────────────────────────────────▶ burst
//!     ▲                             ▲    └── new packet: t_w again                  │ ready packets by DWCS,
//!     │                             └──────────── packets remain ───────────────────┤ then best effort
//!     └──────────────────────────────────────────── no packet remains ──────────────┘
//! ```
//!
//! t_w is the latest start at which every packet that waits begins by its deadline t_d and none before its ready time
//! t_r: `t_w = min_i (t_d,i − S_i) − t_o`, where S_i is the predicted time of the packets before packet i. The order of
//! the packets depends on the start, because only ready packets are sent: [`latest_start`]. The printed pseudo-code mixes
//! durations and instants; `docs/design/0046-traffic-shaping.md` derives the formula.

use std::collections::VecDeque;

use qfabric_sched::dwcs::Progress;
use qfabric_types::Window;

use crate::offset::AdaptiveOffset;

/// A packet that waits for the network card. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub id: u64,
    /// Index of its stream in the list given to [`Shaper::new`]; `None` is best effort.
    pub stream: Option<usize>,
    pub bytes: u64,
    /// t_r: earliest begin of its transmission.
    pub ready: u64,
    /// t_d: latest begin of its transmission; ignored for best effort.
    pub deadline: u64,
    /// t_x: predicted time of its transmission.
    pub transmission: u64,
    /// Sent at once, with all ready packets: TCP, or marked so by the application.
    pub urgent: bool,
}

/// The queue of the card is full; the packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue holds {limit} packets, its limit; send fewer packets per period, or raise the limit")]
pub struct QueueFull {
    pub limit: usize,
}

/// The last complete burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    pub begun: u64,
    pub packets: u32,
}

#[derive(Clone, Debug)]
struct Stream {
    window: Window,
    progress: Progress,
}

/// The packet scheduler of one card.
#[derive(Clone, Debug)]
pub struct Shaper {
    streams: Vec<Stream>,
    /// In order of arrival.
    queue: Vec<Packet>,
    best_effort: VecDeque<Packet>,
    /// Most packets that wait, of each kind.
    limit: usize,
    /// Packets are delayed; `false` sends each at its ready time.
    delays: bool,
    /// Longest time that best effort waits for a burst.
    patience: u64,
    offset: AdaptiveOffset,
    /// t_w: the begin of the next burst.
    watchdog: Option<u64>,
    burst: Option<Burst>,
    late: u64,
}

/// Best effort without real-time packets waits at most one beacon period (000 §6.3: 100 ms).
const PATIENCE_NS: u64 = 100_000_000;
/// Keeps the quadratic search for t_w below some ten microseconds.
const MAX_LIMIT: usize = 256;

impl Shaper {
    /// A shaper for streams with these windows. At most `limit` (1 to 256) real-time packets, and as many of best effort,
    /// wait; the next one is refused.
    pub fn new(windows: &[Window], limit: usize) -> Self {
        let stream = |&window: &Window| Stream { window, progress: Progress::of(window) };
        Shaper {
            streams: windows.iter().map(stream).collect(),
            queue: Vec::new(),
            best_effort: VecDeque::new(),
            limit: limit.clamp(1, MAX_LIMIT),
            delays: true,
            patience: PATIENCE_NS,
            offset: AdaptiveOffset::default(),
            watchdog: None,
            burst: None,
            late: 0,
        }
    }

    /// Sends packets at their ready times, as a card without shaping does.
    pub fn without_delay(mut self) -> Self {
        self.delays = false;
        self
    }

    /// A packet arrives at `now`.
    ///
    /// # Errors
    /// [`QueueFull`].
    ///
    /// # Panics
    /// If its stream was not given to [`Shaper::new`].
    pub fn arrive(&mut self, packet: Packet, now: u64) -> Result<(), QueueFull> {
        let full = QueueFull { limit: self.limit };
        match packet.stream {
            None if self.best_effort.len() >= self.limit => return Err(full),
            None => self.best_effort.push_back(Packet { ready: packet.ready.max(now), ..packet }),
            Some(stream) => {
                assert!(stream < self.streams.len(), "stream {stream} of {}", self.streams.len());
                if self.queue.len() >= self.limit {
                    return Err(full);
                }
                self.queue.push(packet);
            }
        }
        self.set_watchdog(now);
        Ok(())
    }

    /// The time of the next burst; during a burst, the time of its begin. `None` if no packet waits.
    pub fn next_wakeup(&self) -> Option<u64> {
        self.burst.map(|burst| burst.begun).or(self.watchdog)
    }

    /// The next packet to send at `now`, when the card is free. `None` ends the burst: the card may doze until
    /// [`Shaper::next_wakeup`].
    pub fn next(&mut self, now: u64) -> Option<Packet> {
        let due = self.watchdog.is_some_and(|watchdog| watchdog <= now);
        if self.burst.is_none() && !due {
            return None;
        }
        self.burst.get_or_insert(Burst { begun: now, packets: 0 });
        let packet = self.take(now);
        match (&packet, &mut self.burst) {
            (Some(_), Some(burst)) => burst.packets += 1,
            _ => self.burst = None,
        }
        self.set_watchdog(now);
        packet
    }

    /// The burst in progress.
    pub fn burst(&self) -> Option<Burst> {
        self.burst
    }

    /// Number of packets that wait, without best effort.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Number of packets whose transmission began after their deadline.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// t_o, ns.
    pub fn offset(&self) -> u64 {
        self.offset.ns()
    }

    /// The begin of the next burst is predicted again with `transmission` as the time of a packet: the clock changed.
    pub fn predict(&mut self, now: u64, transmission: impl Fn(&Packet) -> u64) {
        self.queue.iter_mut().for_each(|packet| packet.transmission = transmission(packet));
        self.set_watchdog(now);
    }

    fn take(&mut self, now: u64) -> Option<Packet> {
        let first = self.order().into_iter().find(|&at| self.queue[at].ready <= now);
        let Some(first) = first else {
            let ready = self.best_effort.front().is_some_and(|packet| packet.ready <= now);
            return if ready { self.best_effort.pop_front() } else { None };
        };
        let packet = self.queue.remove(first);
        self.account(&packet, now);
        Some(packet)
    }

    fn account(&mut self, packet: &Packet, now: u64) {
        let Some(stream) = packet.stream.map(|stream| &mut self.streams[stream]) else { return };
        if now <= packet.deadline {
            stream.progress.on_served(stream.window);
            self.offset.on_time();
            return;
        }
        self.late += 1;
        if stream.progress.on_lost(stream.window) {
            self.offset.on_violation();
        }
    }

    /// Positions in the queue in the order of DWCS: urgent, deadline, window, arrival.
    fn order(&self) -> Vec<usize> {
        let key = |&at: &usize| {
            let packet = &self.queue[at];
            let urgency = packet.stream.map_or(u64::MAX, |stream| self.streams[stream].progress.urgency());
            (!packet.urgent, packet.deadline, urgency, at)
        };
        let mut order: Vec<usize> = (0..self.queue.len()).collect();
        order.sort_by_key(key);
        order
    }

    fn set_watchdog(&mut self, now: u64) {
        let packets: Vec<Packet> = self.order().into_iter().map(|at| self.queue[at]).collect();
        let urgent = packets.iter().chain(&self.best_effort).filter(|packet| packet.urgent);
        let urgent = urgent.map(|packet| packet.ready).min();
        let earliest_ready = packets.iter().map(|packet| packet.ready).min();
        let real_time = match earliest_ready {
            Some(ready) if self.delays => latest_start(&packets, ready.max(now), self.offset.ns()),
            ready => ready,
        };
        let patience = if self.delays { self.patience } else { 0 };
        let best_effort = self.best_effort.front().map(|packet| packet.ready + patience);
        self.watchdog = [urgent, real_time, best_effort].into_iter().flatten().min().map(|start| start.max(now));
    }
}

/// Largest number of starts that are tried for each packet.
const TRIES: usize = 4;

/// t_w, at least `earliest`, for packets in the order of DWCS; every deadline is `offset` earlier. If packets are late at
/// every start that is tried, the earliest of those with the fewest late packets. `None` without packets.
///
/// From the earliest deadline on, the start moves down to the next one at which something changes: the late packets are
/// in time, or a packet that was sent is not yet ready at its turn, so that the order is another one. Between two of
/// them all late packets stay late.
fn latest_start(packets: &[Packet], earliest: u64, offset: u64) -> Option<u64> {
    // A packet whose deadline is before its ready time is in time if it begins when it is ready.
    let in_time = |packet: &Packet| packet.deadline.saturating_sub(offset).max(packet.ready);
    let packets: Vec<Packet> = packets.iter().map(|packet| Packet { deadline: in_time(packet), ..*packet }).collect();
    let mut start = packets.iter().map(|packet| packet.deadline).min()?.max(earliest);
    let mut best = (usize::MAX, start);
    for _ in 0..TRIES * (packets.len() + 1) {
        let run = Run::of(&packets, start);
        if run.late <= best.0 {
            best = (run.late, start);
        }
        if run.late == 0 || start == earliest {
            break;
        }
        start = start.saturating_sub(run.lateness.min(run.to_other_order)).max(earliest);
    }
    Some(best.1)
}

/// The transmissions from one start on: at each end the first packet in order that is ready.
#[derive(Debug)]
struct Run {
    late: usize,
    /// The burst must begin this much earlier for its packets to be in time; a start before a pause of the card changes
    /// nothing behind the pause. `u64::MAX`: none of them is late.
    lateness: u64,
    /// If the start is this much earlier, the order is another one.
    to_other_order: u64,
}

impl Run {
    fn of(packets: &[Packet], start: u64) -> Run {
        let mut run = Run { late: 0, lateness: 0, to_other_order: u64::MAX };
        let (mut left, mut now, mut is_first_burst) = (packets.to_vec(), start, true);
        while let Some(earliest) = left.iter().map(|packet| packet.ready).min() {
            is_first_burst &= earliest <= now;
            now = now.max(earliest);
            let at = left.iter().position(|packet| packet.ready <= now).expect("the earliest one is ready");
            let packet = left.remove(at);
            run.late += usize::from(now > packet.deadline);
            if is_first_burst {
                run.lateness = run.lateness.max(now.saturating_sub(packet.deadline));
                run.to_other_order = run.to_other_order.min((now - packet.ready).saturating_add(1));
            }
            now = now.saturating_add(packet.transmission);
        }
        run.lateness = if run.lateness == 0 { u64::MAX } else { run.lateness };
        run
    }
}

#[cfg(test)]
mod tests;
