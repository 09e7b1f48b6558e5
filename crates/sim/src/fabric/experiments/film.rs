//! A source that streams frames to its sinks, each at a rate of its own, and sinks that say at what rate they arrive.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use qfabric_channel::{
    EventType, Notice, QosRange, Registration, SinkSpec, SourceId, SourceSpec, Spec, Submission, Target,
};
use qfabric_host::manager::policies::{DELAY, RATE, Relay, connection_of, stream_of};
use qfabric_host::manager::{Controller, Recipient};
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::monitor::{AttributeId, Cause, HOST, QualityKind, Reading, Unit};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{App, Arrived, Here};
use super::{name, quality};

/// `struct frame { unsigned long number; };` and the picture behind it.
pub(super) fn spec() -> Spec {
    let number = Field { name: "number".into(), offset: 0, kind: Kind::Scalar(Scalar::U64), dims: Vec::new() };
    let format = Format { name: "frame".into(), size: 8, align: 8, fields: vec![number] };
    Spec { types: vec![EventType { format }], ..Spec::default() }
}

/// What a source is.
pub struct Source {
    channel: ChannelId,
    bytes: usize,
    controllers: Vec<Box<dyn Controller>>,
    source: Option<SourceId>,
    streams: BTreeMap<u64, Stream>,
    /// Frames per second before anybody says anything.
    rate: f64,
    begun: Instant,
    asked: Asked,
    /// The number of a sink's stream.
    number: fn(&Name, &Name) -> AppId,
}

/// What controllers asked of the streams: seconds from the source's start, stream, frames per second.
pub type Asked = Rc<RefCell<Vec<(f64, u64, f64)>>>;

struct Stream {
    host: Name,
    rate: f64,
    next: Instant,
    sent: u64,
    /// A timer is on its way.
    armed: bool,
}

impl Source {
    /// Creates the channel; frames of so many bytes, at `rate` per second until a controller says otherwise.
    pub fn new(channel: &ChannelId, bytes: usize, rate: f64, controllers: Vec<Box<dyn Controller>>) -> Self {
        let (channel, streams) = (channel.clone(), BTreeMap::new());
        let (begun, asked) = (Instant::ZERO, Asked::default());
        let number = |_: &Name, host: &Name| stream_of(host);
        Source { channel, bytes, controllers, source: None, streams, rate, begun, asked, number }
    }

    /// One of several channels of this host: streams are numbered by channel and sink.
    pub fn one_of_several(mut self) -> Self {
        self.number = connection_of;
        self
    }

    /// What controllers will ask of it.
    pub fn asked(&self) -> Asked {
        self.asked.clone()
    }

    fn arm(&mut self, stream: u64, here: &mut Here<'_>) {
        let Some(state) = self.streams.get_mut(&stream).filter(|state| state.rate > 0.0 && !state.armed) else {
            return;
        };
        state.next = state.next.max(here.now);
        state.armed = true;
        here.at(state.next, stream);
    }
}

impl App for Source {
    fn start(&mut self, here: &mut Here<'_>) {
        self.begun = here.now;
        let channel = &self.channel;
        let source = here.with(|node, now| {
            node.create(channel, spec(), now)?;
            node.source_subscribe(channel, SourceSpec::default(), now)
        });
        self.source = Some(source.expect("a channel of its own"));
        for controller in self.controllers.drain(..) {
            here.manager(|manager, _| manager.add(controller));
        }
    }

    fn noticed(&mut self, notice: &Notice, here: &mut Here<'_>) {
        match notice {
            Notice::SinkJoined(channel, member, _) if *channel == self.channel => {
                let AppId(stream) = (self.number)(&self.channel.name, &member.host);
                let (host, rate, next) = (member.host.clone(), self.rate, here.now);
                self.streams.entry(stream).or_insert(Stream { host, rate, next, sent: 0, armed: false });
                self.arm(stream, here);
            }
            Notice::SinkLeft(channel, member) if *channel == self.channel => {
                let AppId(stream) = (self.number)(&self.channel.name, &member.host);
                self.streams.remove(&stream);
            }
            _ => {}
        }
    }

    fn applied(&mut self, application: AppId, attribute: AttributeId, amount: i64, here: &mut Here<'_>) {
        if attribute != AttributeId::of(RATE) {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&application.0) {
            stream.rate = amount as f64 / 1e3;
            let at = here.now.since(self.begun).as_secs_f64();
            self.asked.borrow_mut().push((at, application.0, stream.rate));
            self.arm(application.0, here);
        }
    }

    fn timer(&mut self, tag: u64, here: &mut Here<'_>) {
        let Some(stream) = self.streams.get_mut(&tag) else { return };
        stream.armed = false;
        if stream.rate <= 0.0 {
            return;
        }
        stream.sent += 1;
        stream.next = here.now + Nanos::from_f64(1e9 / stream.rate);
        let mut payload = vec![0; self.bytes.max(8)];
        payload[..8].copy_from_slice(&stream.sent.to_le_bytes());
        let (source, target) = (self.source.expect("started"), Target::Host(&stream.host));
        let event = Submission { target, payload: &payload, ..Submission::default() };
        // A sink that left meanwhile gets nothing.
        let _ = here.with(|node, now| node.submit(source, &event, now));
        self.arm(tag, here);
    }
}

/// What was seen at a sink.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Seconds of virtual time (by the sink's clock, from its start), frames per second reported.
    pub rates: Vec<(f64, f64)>,
    /// Frames.
    pub frames: u64,
    /// Reports sent.
    pub reports: u64,
    /// Delay requests obeyed.
    pub delayed: u64,
}

/// Who a sink is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Role {
    /// Frames per second.
    pub min: i64,
    /// Frames per second.
    pub max: i64,
    /// The greatest keeps its quality longest.
    pub importance: i64,
}

/// A sink with its monitor.
pub struct Sink {
    channel: ChannelId,
    role: Role,
    period: Nanos,
    /// First report so long after the channel was found.
    phase: Nanos,
    seen: Rc<RefCell<Seen>>,
    begun: Instant,
    open: bool,
    /// Frames of the running report: how many, the first, the last.
    frames: u32,
    first: Instant,
    last: Instant,
    /// The last frame of the report before.
    before: Instant,
    next: Instant,
    reported: Instant,
    /// The first of its timers' tags.
    tags: u64,
}

/// Tags of timers.
const OPEN: u64 = 0;
const REPORT: u64 = 1;

/// How often a channel that is not there yet is looked for.
const RETRY: Nanos = Nanos::from_millis(100);

impl Sink {
    /// Opens the channel when it is there, and reports once per period.
    pub fn new(channel: &ChannelId, role: Role, period: Nanos, phase: Nanos, seen: Rc<RefCell<Seen>>) -> Self {
        let (channel, zero) = (channel.clone(), Instant::ZERO);
        let (frames, first, last, before, next, reported) = (0, zero, zero, zero, zero, zero);
        Sink {
            channel,
            role,
            period,
            phase,
            seen,
            begun: zero,
            open: false,
            frames,
            first,
            last,
            before,
            next,
            reported,
            tags: 0,
        }
    }

    /// The `number`th of several on this host.
    pub fn one_of_several(mut self, number: u64) -> Self {
        self.tags = 2 * number;
        self
    }

    fn open(&mut self, here: &mut Here<'_>) {
        let channel = &self.channel;
        let sink = SinkSpec::default();
        let opened = here.with(|node, now| {
            node.open(channel, now)?;
            node.sink_subscribe(channel, sink, now)
        });
        if opened.is_err() {
            return here.after(RETRY, self.tags + OPEN);
        }
        self.open = true;
        let registration = self.registration();
        let registered = here.with(|node, now| node.register(registration, now));
        registered.expect("a group of the channel's name");
        self.reported = here.now;
        self.next = here.now + self.phase;
        here.at(self.next, self.tags + REPORT);
    }

    fn registration(&self) -> Registration {
        let range = |metric: &str, min, max| QosRange { metric: metric.parse().expect("a key"), min, max };
        let Role { min, max, importance } = self.role;
        let qos = vec![range("frame_rate", min, max), range("importance", importance, importance)];
        Registration { application: name("player"), group: self.channel.name.clone(), parent: None, level: 2, qos }
    }

    /// From the last frame of the period before to the last of this one: no part of an interval is counted wrong. After
    /// a pause from the first frame on.
    fn rate(&self, now: Instant) -> f64 {
        let since = now.since(self.reported).as_secs_f64();
        let paused = self.before == Instant::ZERO || self.first.since(self.before).as_secs_f64() > since;
        let (intervals, from) =
            if paused { (self.frames.saturating_sub(1), self.first) } else { (self.frames, self.before) };
        let between = self.last.since(from).as_secs_f64();
        if intervals == 0 || between <= 0.0 {
            f64::from(self.frames) / since.max(1e-3)
        } else {
            f64::from(intervals) / between
        }
    }

    fn report(&mut self, here: &mut Here<'_>) {
        let rate = self.rate(here.now);
        let reading = Reading {
            attribute: AttributeId::of(RATE),
            application: HOST,
            value: (rate * 1e3).round() as i64,
            at: here.now,
            over: here.now.since(self.reported),
            cause: Cause::Poll,
            unit: Unit::PerSecond,
        };
        let channel = quality(&self.channel);
        here.report(&reading, RATE, Some(&channel), &Recipient::Sources);
        self.before = if self.frames > 0 { self.last } else { self.before };
        (self.frames, self.reported) = (0, here.now);
        let mut seen = self.seen.borrow_mut();
        seen.reports += 1;
        seen.rates.push((here.now.since(self.begun).as_secs_f64(), rate));
    }
}

impl App for Sink {
    fn start(&mut self, here: &mut Here<'_>) {
        self.begun = here.now;
        let relay = Relay::new(&quality(&self.channel), &[QualityKind::Delay]);
        here.manager(|manager, _| manager.add(Box::new(relay)));
        here.after(RETRY, self.tags + OPEN);
    }

    fn event(&mut self, event: &Arrived, here: &mut Here<'_>) {
        if event.channel == self.channel {
            self.first = if self.frames == 0 { here.now } else { self.first };
            self.last = here.now;
            self.frames += 1;
            self.seen.borrow_mut().frames += 1;
        }
    }

    fn applied(&mut self, _application: AppId, attribute: AttributeId, amount: i64, _here: &mut Here<'_>) {
        if attribute == AttributeId::of(DELAY) {
            self.next = self.next + Nanos::new(amount.max(0) as u64);
            self.seen.borrow_mut().delayed += 1;
        }
    }

    fn timer(&mut self, tag: u64, here: &mut Here<'_>) {
        match tag.checked_sub(self.tags) {
            Some(OPEN) if !self.open => return self.open(here),
            Some(REPORT) => {}
            _ => return,
        }
        // A delay request moved it.
        if here.now < self.next {
            return here.at(self.next, self.tags + REPORT);
        }
        self.next = self.next + self.period;
        here.at(self.next, self.tags + REPORT);
        self.report(here);
    }
}

/// Several applications of one host.
pub struct Several(pub Vec<Box<dyn App>>);

impl App for Several {
    fn start(&mut self, here: &mut Here<'_>) {
        self.0.iter_mut().for_each(|app| app.start(here));
    }

    fn event(&mut self, event: &Arrived, here: &mut Here<'_>) {
        self.0.iter_mut().for_each(|app| app.event(event, here));
    }

    fn timer(&mut self, tag: u64, here: &mut Here<'_>) {
        self.0.iter_mut().for_each(|app| app.timer(tag, here));
    }

    fn applied(&mut self, application: AppId, attribute: AttributeId, amount: i64, here: &mut Here<'_>) {
        self.0.iter_mut().for_each(|app| app.applied(application, attribute, amount, here));
    }

    fn noticed(&mut self, notice: &Notice, here: &mut Here<'_>) {
        self.0.iter_mut().for_each(|app| app.noticed(notice, here));
    }
}
