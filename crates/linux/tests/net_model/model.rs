//! A model of DWCS for packets, as simple as possible: lists that are searched from the beginning (docs/design/0014).

use std::cmp::Ordering;
use std::collections::VecDeque;

use qfabric_linux::net::trial::Next;
use qfabric_types::api::net::{StreamCounters, StreamSpec};
use qfabric_types::{Instant, Share};

#[derive(Clone, Copy)]
struct Packet {
    tag: u64,
    arrived: u64,
    order: u64,
    len: u32,
}

struct Stream {
    spec: StreamSpec,
    queue: VecDeque<Packet>,
    arrival_end: u64,
    deadline: u64,
    left: u32,
    is_begun: bool,
    x: u32,
    y: u32,
    counters: StreamCounters,
}

pub(crate) struct Model {
    streams: Vec<Stream>,
    best: VecDeque<u32>,
    byte_time: Option<u64>,
    share: u64,
    credit: u64,
    link_free: u64,
    order: u64,
    dropping: Option<usize>,
}

const CATCH_UP: u64 = 200_000;
const CREDIT_MAX: u64 = 1 << 34;

impl Stream {
    fn new(spec: &StreamSpec) -> Stream {
        let arrival_end = spec.start.map_or(0, |start| start.get() + spec.period.get());
        let (x, y) = (spec.window.x().into(), spec.window.y().into());
        Stream {
            spec: spec.clone(),
            queue: VecDeque::new(),
            arrival_end,
            deadline: 0,
            left: spec.size,
            is_begun: false,
            x,
            y,
            counters: StreamCounters::default(),
        }
    }

    fn period(&self) -> u64 {
        self.spec.period.get()
    }

    fn release(&self) -> u64 {
        self.deadline - self.period()
    }

    fn reset_window(&mut self) {
        if (self.x, self.y) == (0, 0) {
            (self.x, self.y) = (self.spec.window.x().into(), self.spec.window.y().into());
        }
    }

    fn rule_a(&mut self) {
        self.counters.served += 1;
        if self.y > self.x {
            self.y -= 1;
        } else if self.x > 0 {
            (self.x, self.y) = (self.x - 1, self.y - 1);
        }
        self.reset_window();
    }

    /// Returns whether the loss violates the window.
    fn rule_b(&mut self) -> bool {
        self.counters.missed += 1;
        if self.x == 0 {
            self.y = (self.y + 1).min(65_535);
            self.counters.violations += 1;
            return true;
        }
        (self.x, self.y) = (self.x - 1, self.y - 1);
        self.reset_window();
        false
    }

    fn begin_period(&mut self, deadline: u64) {
        (self.deadline, self.left, self.is_begun) = (deadline, self.spec.size, false);
    }

    fn new_head(&mut self) {
        let Some(head) = self.queue.front().copied() else { return };
        if head.tag > self.deadline {
            if self.is_begun {
                self.rule_a();
            }
            self.begin_period(head.tag);
        } else if head.len > self.left && self.is_begun {
            self.rule_a();
            self.begin_period(self.deadline + self.period());
        }
    }

    fn tag(&mut self, now: u64) -> u64 {
        while now >= self.arrival_end {
            match self.spec.start {
                Some(_) => self.arrival_end += self.period(),
                None => self.arrival_end = now + self.period(),
            }
        }
        self.arrival_end + self.spec.phase.get()
    }
}

/// The precedence rules of Table 1.
fn before(a: &Stream, b: &Stream) -> Ordering {
    let ratio = |s: &Stream, t: &Stream| s.x * t.y;
    let by_window = match (a.x, b.x) {
        (0, 0) => b.y.cmp(&a.y),
        _ => ratio(a, b).cmp(&ratio(b, a)).then(a.x.cmp(&b.x)),
    };
    let order = |s: &Stream| s.queue.front().map(|head| head.order);
    a.deadline.cmp(&b.deadline).then(by_window).then(order(a).cmp(&order(b)))
}

impl Model {
    pub(crate) fn new(specs: &[StreamSpec], rate_bps: Option<u64>, best_effort: Share) -> Model {
        let (ppm, whole) = (u64::from(best_effort.ppm()), u64::from(Share::ONE.ppm()));
        Model {
            streams: specs.iter().map(Stream::new).collect(),
            best: VecDeque::new(),
            byte_time: rate_bps.map(|rate| (8_000_000_000u64 << 16).div_ceil(rate)),
            share: (ppm << 16) / (whole - ppm),
            credit: 0,
            link_free: 0,
            order: 0,
            dropping: None,
        }
    }

    pub(crate) fn put(&mut self, to: Option<u32>, len: u32, now: Instant) -> bool {
        let now = now.get();
        let mut to = to.map(|to| to as usize);
        if let Some(at) = to
            && len > self.streams[at].spec.size
        {
            self.streams[at].counters.oversize += 1;
            to = None;
        }
        let Some(at) = to else {
            self.best.push_back(len);
            return true;
        };
        let stream = &mut self.streams[at];
        if stream.queue.len() >= stream.spec.limit as usize {
            stream.counters.overflow += 1;
            return false;
        }
        let tag = stream.tag(now);
        stream.queue.push_back(Packet { tag, arrived: now, order: self.order, len });
        self.order += 1;
        stream.counters.packets += 1;
        // A packet that arrives while late packets are being dropped is examined after the last of them.
        if stream.queue.len() == 1 && self.dropping != Some(at) {
            stream.new_head();
        }
        true
    }

    pub(crate) fn next(&mut self, now: Instant) -> Next {
        let now = now.get();
        loop {
            if let Some(at) = self.dropping {
                match self.drop_late(at) {
                    Some(next) => return next,
                    None => continue,
                }
            }
            if self.byte_time.is_some() && now < self.link_free {
                return Next::Wait(Instant::new(self.link_free));
            }
            match self.first(|stream| stream.deadline <= now) {
                Some(at) => self.miss(at),
                None => return self.choose(now),
            }
        }
    }

    fn first(&self, fits: impl Fn(&Stream) -> bool) -> Option<usize> {
        let waiting =
            (0..self.streams.len()).filter(|at| !self.streams[*at].queue.is_empty() && fits(&self.streams[*at]));
        waiting.min_by(|a, b| before(&self.streams[*a], &self.streams[*b]).then(a.cmp(b)))
    }

    fn miss(&mut self, at: usize) {
        let stream = &mut self.streams[at];
        match stream.rule_b() {
            true => {
                stream.begin_period(stream.deadline + stream.period());
                stream.new_head();
            }
            false => self.dropping = Some(at),
        }
    }

    fn drop_late(&mut self, at: usize) -> Option<Next> {
        let stream = &mut self.streams[at];
        match stream.queue.front().copied() {
            Some(head) if head.tag <= stream.deadline && head.len <= stream.left => {
                stream.left -= head.len;
                stream.queue.pop_front();
                stream.counters.late += 1;
                Some(Next::Drop(Some(at as u32), head.len))
            }
            _ => {
                self.dropping = None;
                stream.begin_period(stream.deadline + stream.period());
                stream.new_head();
                None
            }
        }
    }

    fn choose(&mut self, now: u64) -> Next {
        if let Some(at) = self.first(|stream| stream.release() <= now) {
            return match self.best.front() {
                Some(len) if self.credit >> 16 >= u64::from(*len) => self.send_best(now),
                _ => self.send(at, true, now),
            };
        }
        if let Some(at) = self.first(|stream| stream.spec.work_conserving) {
            return self.send(at, false, now);
        }
        if !self.best.is_empty() {
            return self.send_best(now);
        }
        let releases = self.streams.iter().filter(|stream| !stream.queue.is_empty()).map(Stream::release);
        releases.min().map_or(Next::Idle, |at| Next::Wait(Instant::new(at)))
    }

    fn occupy(&mut self, len: u32, now: u64) {
        if let Some(byte_time) = self.byte_time {
            self.link_free = self.link_free.max(now - CATCH_UP) + ((u64::from(len) * byte_time) >> 16);
        }
    }

    fn send_best(&mut self, now: u64) -> Next {
        let len = self.best.pop_front().expect("best effort has a packet");
        self.credit = self.credit.saturating_sub(u64::from(len) << 16);
        if self.best.is_empty() {
            self.credit = 0;
        }
        self.occupy(len, now);
        Next::Send(None, len)
    }

    fn send(&mut self, at: usize, is_regular: bool, now: u64) -> Next {
        let stream = &mut self.streams[at];
        let head = stream.queue.pop_front().expect("a chosen stream has a packet");
        let (delay, counters) = (now - head.arrived, &mut stream.counters);
        counters.sent += 1;
        counters.sent_bytes += u64::from(head.len);
        counters.sent_late += u64::from(head.tag <= now);
        counters.sent_extra += u64::from(!is_regular);
        counters.delay_sum_ns += delay;
        counters.delay_max_ns = counters.delay_max_ns.max(delay);
        if is_regular {
            stream.is_begun = true;
            stream.left = stream.left.saturating_sub(head.len);
            if stream.left == 0 {
                stream.rule_a();
                stream.begin_period(stream.deadline + stream.period());
            }
            if !self.best.is_empty() && self.credit < CREDIT_MAX {
                self.credit += u64::from(head.len) * self.share;
            }
        }
        stream.new_head();
        self.occupy(head.len, now);
        Next::Send(Some(at as u32), head.len)
    }

    pub(crate) fn counters(&self, at: u32) -> StreamCounters {
        let stream = &self.streams[at as usize];
        StreamCounters { waiting: stream.queue.len() as u64, ..stream.counters }
    }
}
