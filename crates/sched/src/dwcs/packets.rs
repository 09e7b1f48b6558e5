//! DWCS for the packets of a link (000 §2.4.2). `bpf/packet` implements the same for real packets.
//!
//! A stream promises C bytes in every period T. Packets that arrive in [a + jT, a + (j+1)T) belong to the packet
//! period that ends at its *tag* a + Θ + (j+1)T. A stream without a start begins such a period with the first
//! packet after the previous period. A packet must begin to be sent by its tag, and not before its period begins;
//! sending is not interrupted.
//!
//! ```text
//!           new head, tag > d: d = tag              d − T comes
//!   empty ───────────────────────────────▶ waiting ──────────────▶ ready ── d passes: missed, rule b, d += T
//!     ▲     new head does not fit: served, d += T                    │        x' > 0: its packets are dropped
//!     └──────────── last packet sent ◀───────────────────────────────┘        x' = 0: violation, they go late
//!                   left = 0: served, rule a, d += T
//! ```

use std::cmp::Reverse;
use std::collections::VecDeque;

use qfabric_types::Window;

use super::task::{BadTask, MAX_TIME};
use super::window::{Progress, Span};

/// The request of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// T.
    pub period: u64,
    /// Θ: the delay of its packet periods behind the periods in which packets arrive.
    pub phase: u64,
    /// C, in bytes.
    pub bytes: u64,
    /// x/y.
    pub window: Window,
    /// Packets are sent before their period begins if the link would be idle.
    pub work_conserving: bool,
    /// a: the start of the grid of arrival periods; `None`: each period begins with a packet.
    pub start: Option<u64>,
    /// Largest number of packets that may wait; the next packet is refused and counted.
    pub limit: usize,
}

/// The speed of a link: `bytes` bytes take `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub bytes: u64,
    /// In the caller's time unit.
    pub time: u64,
}

impl Rate {
    /// The time that `len` bytes take, rounded up.
    pub fn time_for(self, len: u64) -> u64 {
        let time = (u128::from(len) * u128::from(self.time)).div_ceil(self.bytes.max(1).into());
        time.min(MAX_TIME.into()) as u64
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Periods whose C bytes, or all their packets if there were fewer, were sent.
    pub served: u64,
    /// Periods that ended with packets waiting.
    pub missed: u64,
    /// Missed periods beyond the window.
    pub violations: u64,
    pub sent: u64,
    /// Packets dropped, within the window, because their period was over.
    pub late: u64,
    /// Packets refused because the queue was full.
    pub overflow: u64,
}

/// A packet that the link begins to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The stream of the packet; `None` for best effort.
    pub stream: Option<usize>,
    /// Arrival time of the packet.
    pub arrived: u64,
    /// Latest time at which sending must begin; `u64::MAX` for best effort.
    pub tag: u64,
    /// The time at which the link is free again.
    pub until: u64,
}

/// The next action of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Send(Sending),
    /// Send nothing before this time, unless a packet arrives.
    Wait(u64),
    /// No packet waits.
    Idle,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    tag: u64,
    arrived: u64,
    len: u64,
    order: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    stream: Stream,
    queue: VecDeque<Packet>,
    arrival_end: u64,
    /// d, and the rest of C in the period that ends at d.
    deadline: u64,
    left: u64,
    begun: bool,
    progress: Progress,
    statistics: StreamStatistics,
}

/// The streams of a link, with best effort after them.
#[derive(Clone, Debug)]
pub struct Packets {
    flows: Vec<Flow>,
    best_effort: VecDeque<Packet>,
    rate: Rate,
    taken: u64,
}

impl Packets {
    /// A link without packets.
    ///
    /// # Errors
    /// [`BadTask`] if a stream has no period or no bytes, or if a time is too large.
    pub fn new(streams: &[Stream], rate: Rate) -> Result<Self, BadTask> {
        let flows = streams.iter().map(|&stream| Flow::new(stream)).collect::<Result<_, _>>()?;
        Ok(Packets { flows, best_effort: VecDeque::new(), rate, taken: 0 })
    }

    /// A packet of `len` bytes arrives at `now`. A packet longer than the C of its stream is best effort. Returns
    /// whether the packet was accepted.
    pub fn arrive(&mut self, stream: Option<usize>, len: u64, now: u64) -> bool {
        let order = self.taken;
        self.taken += 1;
        let flow = stream.map(|stream| &mut self.flows[stream]).filter(|flow| len <= flow.stream.bytes);
        let Some(flow) = flow else {
            self.best_effort.push_back(Packet { tag: u64::MAX, arrived: now, len, order });
            return true;
        };
        if flow.queue.len() >= flow.stream.limit {
            flow.statistics.overflow += 1;
            return false;
        }
        let packet = Packet { tag: flow.tag(now), arrived: now, len, order };
        flow.queue.push_back(packet);
        if flow.queue.len() == 1 {
            flow.new_head();
        }
        true
    }

    /// The next action of the link, which is free at `now`. A packet to send has left its queue.
    pub fn next(&mut self, now: u64) -> Next {
        self.flows.iter_mut().for_each(|flow| flow.turn_over(now));
        let ready = self.first(|flow| flow.release() <= now);
        let chosen = ready.or_else(|| self.first(|flow| flow.stream.work_conserving));
        if let Some(stream) = chosen {
            let packet = self.flows[stream].send(ready.is_some());
            return Next::Send(self.sending(Some(stream), packet, now));
        }
        if let Some(packet) = self.best_effort.pop_front() {
            return Next::Send(self.sending(None, packet, now));
        }
        let waiting = self.flows.iter().filter(|flow| !flow.queue.is_empty());
        waiting.map(Flow::release).min().map_or(Next::Idle, Next::Wait)
    }

    pub fn statistics(&self, stream: usize) -> StreamStatistics {
        self.flows[stream].statistics
    }

    /// The first stream among those with packets, by Table 1; the arrival of the first packet breaks ties.
    fn first(&self, which: impl Fn(&Flow) -> bool) -> Option<usize> {
        let able = self.flows.iter().enumerate().filter(|(_, flow)| !flow.queue.is_empty() && which(flow));
        able.max_by_key(|(_, flow)| Reverse(flow.key())).map(|(stream, _)| stream)
    }

    fn sending(&self, stream: Option<usize>, packet: Packet, now: u64) -> Sending {
        let Packet { arrived, tag, len, .. } = packet;
        Sending { stream, arrived, tag, until: now + self.rate.time_for(len) }
    }
}

impl Flow {
    fn new(stream: Stream) -> Result<Self, BadTask> {
        let Stream { period, phase, bytes, window, start, .. } = stream;
        match [period, phase, start.unwrap_or(0)].into_iter().find(|&time| time > MAX_TIME / 4) {
            Some(time) => return Err(BadTask::TooLate { time }),
            None if period == 0 => return Err(BadTask::NoPeriod),
            None if bytes == 0 => return Err(BadTask::NoService),
            None => {}
        }
        Ok(Flow {
            stream,
            queue: VecDeque::new(),
            arrival_end: start.map_or(0, |start| start + period),
            deadline: 0,
            left: bytes,
            begun: false,
            progress: Progress::start(Span::from(window)),
            statistics: StreamStatistics::default(),
        })
    }

    /// The end of the packet period of a packet that arrives now.
    fn tag(&mut self, now: u64) -> u64 {
        let period = self.stream.period;
        if now >= self.arrival_end {
            self.arrival_end = match self.stream.start {
                Some(_) => self.arrival_end + period * (1 + (now - self.arrival_end) / period),
                None => now + period,
            };
        }
        self.arrival_end + self.stream.phase
    }

    fn release(&self) -> u64 {
        self.deadline.saturating_sub(self.stream.period)
    }

    fn key(&self) -> (u64, u64, u64) {
        (self.deadline, self.progress.urgency(), self.queue.front().map_or(u64::MAX, |head| head.order))
    }

    fn begin(&mut self, deadline: u64) {
        (self.deadline, self.left, self.begun) = (deadline, self.stream.bytes, false);
    }

    fn serve(&mut self) {
        self.statistics.served += 1;
        self.progress.served(Span::from(self.stream.window));
    }

    /// If the first packet belongs to a later period, or does not fit into the rest of this one, the period is
    /// over.
    fn new_head(&mut self) {
        let Some(head) = self.queue.front().copied() else { return };
        let next = if head.tag > self.deadline { head.tag } else { self.deadline + self.stream.period };
        if head.tag > self.deadline || (head.len > self.left && self.begun) {
            if self.begun {
                self.serve();
            }
            self.begin(next);
        }
    }

    fn turn_over(&mut self, now: u64) {
        while self.deadline <= now && !self.queue.is_empty() {
            self.statistics.missed += 1;
            if self.progress.lost(Span::from(self.stream.window)) {
                self.statistics.violations += 1;
            } else {
                self.drop_period();
            }
            self.begin(self.deadline + self.stream.period);
            self.new_head();
        }
    }

    fn drop_period(&mut self) {
        while let Some(head) = self.queue.front().filter(|head| head.tag <= self.deadline && head.len <= self.left) {
            self.left -= head.len;
            self.queue.pop_front();
            self.statistics.late += 1;
        }
    }

    fn send(&mut self, regular: bool) -> Packet {
        let packet = self.queue.pop_front().expect("the chosen flow has packets");
        self.statistics.sent += 1;
        if regular {
            self.left = self.left.saturating_sub(packet.len);
            self.begun = true;
            if self.left == 0 {
                self.serve();
                self.begin(self.deadline + self.stream.period);
            }
        }
        self.new_head();
        packet
    }
}
