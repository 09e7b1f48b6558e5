//! One direction of the emulated link, as a state machine with virtual time.
//!
//! ```text
//!              full: dropped                        lost
//!                  │                                 │
//! arrive ──> queue (drop-tail) ──> bottleneck ──> medium ──> delay, jitter ──> deliver
//! ```
//! A packet whose last byte leaves the bottleneck at time t is delivered at t + delay + jitter, but never before an
//! earlier packet of its path. Loss is on the medium: a lost packet takes its time at the bottleneck. The order of
//! arrival alone decides which packets are lost ([`crate::loss`]); a packet that the full queue drops takes its random
//! number too.
//!
//! Times are exact: the state at a time does not depend on how often the link was asked. Packets that a rate change
//! finds in the queue are sent at the new rate; of the packet in the bottleneck, the remaining part.
//!
//! Jitter: RFC 8868 names packets of «random bounded delay variation without reordering» with a truncated normal
//! distribution. Here the standard deviation is half of the largest jitter, and negative values are drawn again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use qfabric_types::{Bytes, Instant, Nanos, RandomNumbers};

use crate::loss::LossSource;
use crate::report::DirectionCounters;
use crate::settings::{LinkRate, LinkSettings, PATHS_MAX};
use crate::trace::TraceServer;

/// Most memory that the packets of one direction may take, each with `PACKET_OVERHEAD` bytes more than its length.
/// Packets beyond it are dropped as *overflow*, which makes a run invalid.
pub const HELD_MAX: u64 = 512 << 20;
/// Bytes of a packet's administration.
const PACKET_OVERHEAD: u64 = 128;
/// Bits are counted in parts of 10⁻⁹, so that rate · time in ns is exact.
const PARTS: u128 = 1_000_000_000;

/// One direction of the link. `P` is the content of a packet.
#[derive(Debug)]
pub struct EmulatedLink<P> {
    settings: LinkSettings,
    bottleneck: Bottleneck,
    queue: VecDeque<Waiting<P>>,
    queued_bytes: u64,
    flight: BinaryHeap<Reverse<Flying<P>>>,
    held_bytes: u64,
    /// Additional delay of each path, and the time of its last delivery.
    paths: Vec<(Nanos, Instant)>,
    loss: LossSource,
    jitter: RandomNumbers,
    /// The time up to which the state is known.
    now: Instant,
    sequence: u64,
    counters: DirectionCounters,
}

#[derive(Debug)]
struct Waiting<P> {
    packet: P,
    bytes: u32,
    path: usize,
    is_lost: bool,
}

#[derive(Debug)]
struct Flying<P> {
    due: Instant,
    sequence: u64,
    bytes: u32,
    packet: P,
}

impl<P> PartialEq for Flying<P> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}
impl<P> Eq for Flying<P> {}
impl<P> PartialOrd for Flying<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<P> Ord for Flying<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

/// A packet that leaves the link, and the time at which it was to leave.
#[derive(Debug)]
pub struct Delivery<P> {
    pub packet: P,
    pub due: Instant,
}

/// The packet that is being sent, at the head of the queue.
#[derive(Debug)]
enum Bottleneck {
    Unlimited,
    Constant { rate_bps: u64, left: u128, since: Instant, finish: Instant },
    Trace { server: TraceServer, finish: Instant },
}

impl Bottleneck {
    fn new(rate: &LinkRate, now: Instant) -> Bottleneck {
        match rate {
            LinkRate::Unlimited => Bottleneck::Unlimited,
            LinkRate::Constant(rate) => Bottleneck::Constant { rate_bps: rate.get(), left: 0, since: now, finish: now },
            LinkRate::Trace(trace) => Bottleneck::Trace { server: TraceServer::new(trace.clone(), now), finish: now },
        }
    }

    /// Begins with a packet that waits since `now`.
    fn begin(&mut self, now: Instant, parts: u128) {
        match self {
            Bottleneck::Unlimited => {}
            Bottleneck::Constant { rate_bps, left, since, finish } => {
                (*left, *since) = (parts, now);
                *finish = now + duration(parts, *rate_bps);
            }
            Bottleneck::Trace { server, finish } => *finish = server.send(now, (parts / PARTS).div_ceil(8) as u32),
        }
    }

    /// The time at which the packet is sent; `now` without a rate.
    fn finish(&self, now: Instant) -> Instant {
        match self {
            Bottleneck::Unlimited => now,
            Bottleneck::Constant { finish, .. } | Bottleneck::Trace { finish, .. } => *finish,
        }
    }

    /// The part of the packet that is not yet sent. A trace sends packets whole.
    fn left(&self, now: Instant, whole: u128) -> u128 {
        match self {
            Bottleneck::Constant { rate_bps, left, since, .. } => {
                left.saturating_sub(u128::from(*rate_bps) * u128::from(now.since(*since).get()))
            }
            Bottleneck::Unlimited | Bottleneck::Trace { .. } => whole,
        }
    }
}

fn parts(bytes: u32) -> u128 {
    u128::from(bytes) * 8 * PARTS
}

fn duration(parts: u128, rate_bps: u64) -> Nanos {
    Nanos::new(parts.div_ceil(u128::from(rate_bps.max(1))).min(u128::from(u64::MAX)) as u64)
}

impl<P> EmulatedLink<P> {
    /// An empty link. `paths` has the additional delay of each path.
    pub fn new(settings: LinkSettings, paths: &[Nanos], seed: u64, now: Instant) -> EmulatedLink<P> {
        let mut seeds = RandomNumbers::new(seed);
        let (loss, jitter) = (LossSource::new(settings.loss, seeds.draw()), RandomNumbers::new(seeds.draw()));
        let paths = paths.iter().take(PATHS_MAX).map(|delay| (*delay, Instant::ZERO)).collect();
        EmulatedLink {
            bottleneck: Bottleneck::new(&settings.rate, now),
            settings,
            queue: VecDeque::new(),
            queued_bytes: 0,
            flight: BinaryHeap::new(),
            held_bytes: 0,
            paths,
            loss,
            jitter,
            now,
            sequence: 0,
            counters: DirectionCounters::default(),
        }
    }

    pub fn settings(&self) -> &LinkSettings {
        &self.settings
    }

    pub fn counters(&self) -> DirectionCounters {
        self.counters
    }

    /// Packets that wait or are under way.
    pub fn held(&self) -> usize {
        self.queue.len() + self.flight.len()
    }

    /// Bytes in the queue, with the packet that is being sent.
    pub fn queued(&self) -> Bytes {
        Bytes::new(self.queued_bytes)
    }

    /// A packet of `bytes` arrives at `now` for a path. An unknown path counts as the first one.
    pub fn arrive(&mut self, now: Instant, packet: P, bytes: u32, path: usize) {
        self.advance(now);
        self.counters.packets += 1;
        self.counters.bytes += u64::from(bytes);
        let is_lost = self.loss.next_is_lost();
        if self.held_bytes + u64::from(bytes) + PACKET_OVERHEAD > HELD_MAX {
            self.counters.overflow += 1;
            return;
        }
        let limit = self.settings.queue.bytes_at(self.settings.rate.mean());
        if self.queued_bytes > 0 && self.queued_bytes + u64::from(bytes) > limit {
            self.counters.queue_drops += 1;
            self.counters.queue_dropped_bytes += u64::from(bytes);
            return;
        }
        self.held_bytes += u64::from(bytes) + PACKET_OVERHEAD;
        self.queued_bytes += u64::from(bytes);
        self.counters.queue_peak_bytes = self.counters.queue_peak_bytes.max(self.queued_bytes);
        self.queue.push_back(Waiting { packet, bytes, path: if path < self.paths.len() { path } else { 0 }, is_lost });
        if self.queue.len() == 1 {
            self.bottleneck.begin(self.now, parts(bytes));
        }
        self.advance(now);
    }

    /// Changes the properties at `now`.
    pub fn set(&mut self, now: Instant, settings: LinkSettings) {
        self.advance(now);
        self.loss.set(settings.loss);
        if settings.rate != self.settings.rate {
            let head = self.queue.front().map(|head| self.bottleneck.left(self.now, parts(head.bytes)));
            self.bottleneck = Bottleneck::new(&settings.rate, self.now);
            if let Some(left) = head {
                self.bottleneck.begin(self.now, left);
            }
        }
        self.settings = settings;
        self.advance(now);
    }

    /// The next packet that is due.
    pub fn deliver(&mut self, now: Instant) -> Option<Delivery<P>> {
        self.advance(now);
        let is_due = self.flight.peek().is_some_and(|first| first.0.due <= now);
        let Reverse(Flying { due, bytes, packet, .. }) = is_due.then(|| self.flight.pop()).flatten()?;
        self.held_bytes -= u64::from(bytes) + PACKET_OVERHEAD;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(bytes);
        Some(Delivery { packet, due })
    }

    /// The time of the next delivery, or an earlier one; `None`: the link is empty.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let flying = self.flight.peek().map(|first| first.0.due);
        let waiting = (!self.queue.is_empty()).then(|| self.bottleneck.finish(self.now) + self.settings.delay);
        flying.into_iter().chain(waiting).min()
    }

    /// Sends the packets whose last byte has left the bottleneck by `now`.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(finish) = self.queue.front().map(|_| self.bottleneck.finish(self.now)) {
            if finish > self.now {
                return;
            }
            if let Some(sent) = self.queue.pop_front() {
                self.queued_bytes -= u64::from(sent.bytes);
                self.fly(sent, finish);
            }
            if let Some(next) = self.queue.front() {
                self.bottleneck.begin(finish, parts(next.bytes));
            }
        }
    }

    fn fly(&mut self, sent: Waiting<P>, finish: Instant) {
        let Waiting { packet, bytes, path, is_lost } = sent;
        let jitter = self.draw_jitter();
        if is_lost {
            self.held_bytes -= u64::from(bytes) + PACKET_OVERHEAD;
            self.counters.lost += 1;
            self.counters.lost_bytes += u64::from(bytes);
            return;
        }
        let (extra, last) = &mut self.paths[path];
        let due = (finish + self.settings.delay + *extra + jitter).max(*last);
        *last = due;
        self.sequence += 1;
        self.flight.push(Reverse(Flying { due, sequence: self.sequence, bytes, packet }));
    }

    fn draw_jitter(&mut self) -> Nanos {
        let most = self.settings.jitter.as_f64();
        if most == 0.0 {
            return Nanos::ZERO;
        }
        loop {
            // Box and Muller; 1 − u is never zero.
            let (u, v) = (1.0 - self.jitter.uniform(), self.jitter.uniform());
            let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let jitter = normal * most / 2.0;
            if (0.0..=most).contains(&jitter) {
                return Nanos::from_f64(jitter);
            }
        }
    }
}
