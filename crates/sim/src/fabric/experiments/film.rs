//! A source that streams frames to its sinks, each at its own rate, and sinks that report the rate at which frames
//! arrive.

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

use super::super::{App, HostContext, ReceivedEvent};
use super::{name, quality};

/// The channel's format: `struct frame { unsigned long number; };`, followed by the picture.
pub(super) fn spec() -> Spec {
    let number = Field { name: "number".into(), offset: 0, kind: Kind::Scalar(Scalar::U64), dims: Vec::new() };
    let format = Format { name: "frame".into(), size: 8, align: 8, fields: vec![number] };
    Spec { types: vec![EventType { format }], ..Spec::default() }
}

/// A source that sends frames to all its sinks.
pub struct Source {
    channel: ChannelId,
    bytes: usize,
    controllers: Vec<Box<dyn Controller>>,
    source: Option<SourceId>,
    streams: BTreeMap<u64, Stream>,
    /// Frames per second before a controller decides.
    rate: f64,
    /// Frames per second that no decision exceeds.
    most: f64,
    begun: Instant,
    asked: Asked,
    /// Computes the number of a sink's stream from the names of channel and host.
    number: fn(&Name, &Name) -> AppId,
}

/// Decisions of the controllers: seconds from the source's start, stream, frames per second.
pub type Asked = Rc<RefCell<Vec<(f64, u64, f64)>>>;

struct Stream {
    host: Name,
    rate: f64,
    next: Instant,
    sent: u64,
    /// A timer for the next frame is set.
    armed: bool,
}

impl Source {
    /// Creates the channel. Sends frames of `bytes` bytes, at `rate` per second until a controller decides
    /// otherwise.
    pub fn new(channel: &ChannelId, bytes: usize, rate: f64, controllers: Vec<Box<dyn Controller>>) -> Self {
        let (channel, streams) = (channel.clone(), BTreeMap::new());
        let (begun, asked) = (Instant::ZERO, Asked::default());
        let number = |_: &Name, host: &Name| stream_of(host);
        Source { channel, bytes, controllers, source: None, streams, rate, most: f64::INFINITY, begun, asked, number }
    }

    /// Sends at most this number of frames per second, whatever a controller decides.
    pub fn at_most(mut self, rate: f64) -> Self {
        self.most = rate;
        self
    }

    /// Use this if the host has several channels: streams are then numbered by channel and sink.
    pub fn one_of_several(mut self) -> Self {
        self.number = connection_of;
        self
    }

    /// The list of the controllers' decisions.
    pub fn asked(&self) -> Asked {
        self.asked.clone()
    }

    fn arm(&mut self, stream: u64, here: &mut HostContext<'_>) {
        let Some(state) = self.streams.get_mut(&stream).filter(|state| state.rate > 0.0 && !state.armed) else {
            return;
        };
        state.next = state.next.max(here.now);
        state.armed = true;
        here.at(state.next, stream);
    }
}

impl App for Source {
    fn start(&mut self, here: &mut HostContext<'_>) {
        self.begun = here.now;
        let channel = &self.channel;
        let source = here.with(|node, now| {
            node.create(channel, spec(), now)?;
            node.source_subscribe(channel, SourceSpec::default(), now)
        });
        self.source = Some(source.expect("the channel is new"));
        for controller in self.controllers.drain(..) {
            here.manager(|manager, _| manager.add(controller));
        }
    }

    fn noticed(&mut self, notice: &Notice, here: &mut HostContext<'_>) {
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

    fn applied(&mut self, application: AppId, attribute: AttributeId, amount: i64, here: &mut HostContext<'_>) {
        if attribute != AttributeId::of(RATE) {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&application.0) {
            stream.rate = (amount as f64 / 1e3).min(self.most);
            let at = here.now.since(self.begun).as_secs_f64();
            self.asked.borrow_mut().push((at, application.0, stream.rate));
            self.arm(application.0, here);
        }
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
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
        // Sending fails if the sink has left meanwhile, which is harmless.
        let _ = here.with(|node, now| node.submit(source, &event, now));
        self.arm(tag, here);
    }
}

/// The measurements of a sink.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Seconds of the sink's clock since its start, and the reported frames per second.
    pub rates: Vec<(f64, f64)>,
    pub frames: u64,
    pub reports: u64,
    /// Number of delay requests that the sink obeyed.
    pub delayed: u64,
}

/// The role of a sink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Role {
    /// Frames per second.
    pub min: i64,
    /// Frames per second.
    pub max: i64,
    /// A sink with a higher importance keeps its quality longer.
    pub importance: i64,
}

/// A sink that reports its rate.
pub struct Sink {
    channel: ChannelId,
    role: Role,
    period: Nanos,
    /// Delay of the first report after the channel was found.
    phase: Nanos,
    seen: Rc<RefCell<Seen>>,
    begun: Instant,
    open: bool,
    /// Frames of the current reporting period: their number, the first and the last.
    frames: u32,
    first: Instant,
    last: Instant,
    /// The last frame of the previous reporting period.
    before: Instant,
    next: Instant,
    reported: Instant,
    /// First tag of the sink's timers.
    tags: u64,
}

/// Timer tags.
const OPEN: u64 = 0;
const REPORT: u64 = 1;

/// Interval between attempts to open a channel that does not exist yet.
const RETRY: Nanos = Nanos::from_millis(100);

impl Sink {
    /// Opens the channel when it exists, and reports once per `period`.
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

    /// Use this for the sink with this `number` if a host has several sinks.
    pub fn one_of_several(mut self, number: u64) -> Self {
        self.tags = 2 * number;
        self
    }

    fn open(&mut self, here: &mut HostContext<'_>) {
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
        registered.expect("registering in the group of the channel succeeds");
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

    /// The rate from the last frame of the previous period to the last frame of this period, so that no partial
    /// interval is counted. After a pause, the rate from the first frame on.
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

    fn report(&mut self, here: &mut HostContext<'_>) {
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
    fn start(&mut self, here: &mut HostContext<'_>) {
        self.begun = here.now;
        let relay = Relay::new(&quality(&self.channel), &[QualityKind::Delay]);
        here.manager(|manager, _| manager.add(Box::new(relay)));
        here.after(RETRY, self.tags + OPEN);
    }

    fn event(&mut self, event: &ReceivedEvent, here: &mut HostContext<'_>) {
        if event.channel == self.channel {
            self.first = if self.frames == 0 { here.now } else { self.first };
            self.last = here.now;
            self.frames += 1;
            self.seen.borrow_mut().frames += 1;
        }
    }

    fn applied(&mut self, _application: AppId, attribute: AttributeId, amount: i64, _here: &mut HostContext<'_>) {
        if attribute == AttributeId::of(DELAY) {
            self.next = self.next + Nanos::new(amount.max(0) as u64);
            self.seen.borrow_mut().delayed += 1;
        }
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
        match tag.checked_sub(self.tags) {
            Some(OPEN) if !self.open => return self.open(here),
            Some(REPORT) => {}
            _ => return,
        }
        // A delay request has postponed the report.
        if here.now < self.next {
            return here.at(self.next, self.tags + REPORT);
        }
        self.next = self.next + self.period;
        here.at(self.next, self.tags + REPORT);
        self.report(here);
    }
}

/// Several applications on one host.
pub struct Several(pub Vec<Box<dyn App>>);

impl App for Several {
    fn start(&mut self, here: &mut HostContext<'_>) {
        self.0.iter_mut().for_each(|app| app.start(here));
    }

    fn event(&mut self, event: &ReceivedEvent, here: &mut HostContext<'_>) {
        self.0.iter_mut().for_each(|app| app.event(event, here));
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
        self.0.iter_mut().for_each(|app| app.timer(tag, here));
    }

    fn applied(&mut self, application: AppId, attribute: AttributeId, amount: i64, here: &mut HostContext<'_>) {
        self.0.iter_mut().for_each(|app| app.applied(application, attribute, amount, here));
    }

    fn noticed(&mut self, notice: &Notice, here: &mut HostContext<'_>) {
        self.0.iter_mut().for_each(|app| app.noticed(notice, here));
    }
}
