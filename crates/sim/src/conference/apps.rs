//! The programs of the conference: the server encodes and sends, a client decodes and shows.

use std::cell::RefCell;
use std::rc::Rc;

use qfabric_channel::{EventType, Registration, SinkSpec, SourceId, SourceSpec, Spec, Submission};
use qfabric_control::ladder::Ladder;
use qfabric_host::manager::Recipient;
use qfabric_host::manager::policies::{
    ARRIVED, CPU_GUARANTEED, CPU_USED, DECODED, GENERATED, LEAST_DELAY, RATE, SENT, SHOWN, member_of,
};
use qfabric_types::channel::{Name, Plane};
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::monitor::{AttributeId, Cause, HOST, Reading, Unit};
use qfabric_types::{AppId, Nanos};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::parts::{Cpu, Load, Meter, Scheduling};
use super::priority::PRIORITY;
use super::{Adaptation, Options, Scenario, WANTED, channel, ladder};
use crate::fabric::{App, HostContext, ReceivedEvent};

/// Tags of timers. Ends of jobs have [`ENDS`] and the number of their plan.
const CAPTURE: u64 = 0;
const REPORT: u64 = 1;
const OPEN: u64 = 2;
/// Load or contract changed.
pub(super) const RESUME: u64 = 3;
const ENDS: u64 = 1 << 32;

/// Time between reports.
const PERIOD: Nanos = Nanos::from_millis(500);
/// Pictures that wait for a decoder; a further one replaces the oldest.
const WAITING: usize = 8;
/// Attribute of the pressure on a host's CPU.
const PRESSURE: &str = "cpu.pressure";

/// The costs of a picture of the best rung: CPU seconds, CPU seconds and bytes.
const ENCODE: f64 = 0.030;
const DECODE: f64 = 0.014;
const BYTES: f64 = 4_000.0;
/// JPEG costs more than H.261.
const JPEG: f64 = 2.3;

/// What a picture at a rung costs, as a part of the best rung's cost: quality changes a part of the work, the size all.
fn part_of_cost(quality: i64, size: i64, fixed: f64) -> f64 {
    let area = (size as f64 / 352.0).powi(2);
    (fixed + (1.0 - fixed) * quality as f64 / 30.0) * area
}

/// The number of the conference's program in its group.
pub(super) fn member(is_server: bool) -> AppId {
    member_of(&channel(Plane::Data).name, &program(is_server))
}

fn program(is_server: bool) -> Name {
    if is_server { "server" } else { "client" }.parse().expect("a name")
}

fn register(is_server: bool, here: &mut HostContext<'_>) {
    let (application, group) = (program(is_server), channel(Plane::Data).name);
    let registration = Registration { application, group, parent: None, level: 2, qos: Vec::new() };
    here.with(|node, now| node.register(registration, now)).expect("the group accepts the program");
}

/// Reports amounts of the program, and the pressure of its host.
fn report(amounts: &[(&str, f64)], is_server: bool, cpu: &mut Cpu, here: &mut HostContext<'_>) {
    let (used, pressure) = cpu.report(here.now);
    let own = amounts.iter().map(|(name, rate)| (*name, rate * 1e3, member(is_server)));
    for (name, value, application) in
        own.chain([(CPU_USED, used * 1e6, member(is_server)), (PRESSURE, pressure * 1e6, HOST)])
    {
        let reading = Reading {
            attribute: AttributeId::of(name),
            application,
            value: value.round() as i64,
            at: here.now,
            over: PERIOD,
            cause: Cause::Poll,
            unit: Unit::Count,
        };
        here.report(&reading, name, Some(&channel(Plane::Quality)), &Recipient::Sources);
    }
}

/// The amounts that controllers apply to the program.
fn scheduling(attribute: AttributeId, amount: i64) -> Option<Scheduling> {
    match () {
        () if attribute == AttributeId::of(CPU_GUARANTEED) => Some(Scheduling::Contract(amount as f64 / 1e6)),
        () if attribute == AttributeId::of(PRIORITY) => Some(Scheduling::Priority(amount)),
        () => None,
    }
}

fn first_scheduling(options: &Options) -> Scheduling {
    match options.adaptation {
        Adaptation::Priority => Scheduling::Priority(Scheduling::HOGS),
        _ => Scheduling::Contract(0.0),
    }
}

/// Time in seconds, and the rung from then on.
pub(super) type Changes = Rc<RefCell<Vec<(f64, usize)>>>;

/// The program at the source.
pub(super) struct Server {
    options: Options,
    load: Rc<RefCell<Load>>,
    cpu: Cpu,
    ladder: Ladder,
    /// The levels in force: quality and size.
    levels: (i64, i64),
    encoding: (i64, i64),
    source: Option<SourceId>,
    generated: Meter,
    sent: Meter,
    changes: Changes,
    random: ChaCha8Rng,
}

impl Server {
    pub(super) fn new(options: &Options, load: Rc<RefCell<Load>>) -> Server {
        let ladder = ladder();
        let levels = (ladder.level("quality").unwrap_or(30), ladder.level("size").unwrap_or(352));
        Server {
            options: *options,
            load,
            cpu: Cpu::new(first_scheduling(options)),
            ladder,
            levels,
            encoding: levels,
            source: None,
            generated: Meter::default(),
            sent: Meter::default(),
            changes: Changes::default(),
            random: ChaCha8Rng::seed_from_u64(options.seed ^ 0xc0de),
        }
    }

    pub(super) fn changes(&self) -> Changes {
        self.changes.clone()
    }

    fn rung(&self, levels: (i64, i64)) -> usize {
        let is_it = |rung: &usize| self.ladder.levels_at(*rung).map(|(_, level)| level).eq([levels.0, levels.1]);
        (0..=self.ladder.lowest()).find(is_it).unwrap_or(0)
    }

    fn capture(&mut self, here: &mut HostContext<'_>) {
        here.after(Nanos::from_f64(1e9 / WANTED), CAPTURE);
        if self.cpu.is_busy() {
            return;
        }
        self.encoding = self.levels;
        let (quality, size) = self.levels;
        let codec = if self.options.scenario == Scenario::F { JPEG } else { 1.0 };
        let noise = self.random.random_range(0.95..1.05);
        let cost = ENCODE * codec * noise * part_of_cost(quality, size, 0.4);
        let (at, plan) = self.cpu.begin(cost, here.now);
        here.at(at, ENDS + plan);
    }

    fn send(&mut self, here: &mut HostContext<'_>) {
        self.generated.count(here.now);
        let (quality, size) = self.encoding;
        let bytes = BYTES * self.random.random_range(0.9..1.1) * part_of_cost(quality, size, 0.15);
        let mut payload = vec![0; (bytes as usize).max(8)];
        payload[..8].copy_from_slice(&(self.rung(self.encoding) as u64).to_le_bytes());
        let event = Submission { payload: &payload, ..Submission::default() };
        let source = self.source.expect("started");
        if here.with(|node, now| node.submit(source, &event, now)).is_ok() {
            self.sent.count(here.now);
        }
    }
}

/// The channel's format: `struct picture { unsigned long rung; };`, followed by the picture.
fn spec() -> Spec {
    let rung = Field { name: "rung".into(), offset: 0, kind: Kind::Scalar(Scalar::U64), dims: Vec::new() };
    let format = Format { name: "picture".into(), size: 8, align: 8, fields: vec![rung] };
    Spec { types: vec![EventType { format }], ..Spec::default() }
}

impl App for Server {
    fn start(&mut self, here: &mut HostContext<'_>) {
        let data = channel(Plane::Data);
        let source = here.with(|node, now| {
            node.create(&data, spec(), now)?;
            node.source_subscribe(&data, SourceSpec::default(), now)
        });
        self.source = Some(source.expect("the channel is new"));
        register(true, here);
        for controller in self.options.adaptation.controllers(true) {
            let now = here.now;
            here.call(|member| member.add(controller, now));
        }
        here.after(Nanos::new(1), CAPTURE);
        here.after(PERIOD, REPORT);
    }

    fn applied(&mut self, application: AppId, attribute: AttributeId, amount: i64, here: &mut HostContext<'_>) {
        if application == HOST {
            let before = self.levels;
            match () {
                () if attribute == AttributeId::of("quality") => self.levels.0 = amount,
                () if attribute == AttributeId::of("size") => self.levels.1 = amount,
                () => {}
            }
            let rung = self.rung(self.levels);
            let at = here.virtual_now.get() as f64 / 1e9;
            let mut changes = self.changes.borrow_mut();
            // Two dimensions that change at the same time are one change.
            changes.retain(|(other, _)| *other != at);
            if before != self.levels {
                changes.push((at, rung));
            }
        } else if let Some(scheduling) = scheduling(attribute, amount)
            && let Some((at, plan)) = self.cpu.change(self.load.borrow().hogs, Some(scheduling), here.now)
        {
            here.at(at, ENDS + plan);
        }
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
        match tag {
            CAPTURE => self.capture(here),
            REPORT => {
                here.after(PERIOD, REPORT);
                let (generated, sent) = (self.generated.report(here.now), self.sent.report(here.now));
                report(&[(GENERATED, generated), (SENT, sent)], true, &mut self.cpu, here);
            }
            RESUME => {
                if let Some((at, plan)) = self.cpu.change(self.load.borrow().hogs, None, here.now) {
                    here.at(at, ENDS + plan);
                }
            }
            ends if ends > ENDS && self.cpu.end(ends - ENDS, here.now) => self.send(here),
            _ => {}
        }
    }
}

/// What a client showed.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Virtual time in seconds, and the rung of the picture.
    pub shown: Vec<(f64, usize)>,
}

/// The program at a sink.
pub(super) struct Client {
    options: Options,
    load: Rc<RefCell<Load>>,
    cpu: Cpu,
    /// Costs of the rungs, in CPU seconds.
    costs: Vec<f64>,
    waiting: std::collections::VecDeque<usize>,
    decoding: usize,
    /// The least delay of a picture since the last report, in nanoseconds.
    delay: Option<i64>,
    arrived: Meter,
    shown: Meter,
    seen: Rc<RefCell<Seen>>,
    random: ChaCha8Rng,
}

impl Client {
    pub(super) fn new(options: &Options, number: usize, load: Rc<RefCell<Load>>) -> Client {
        let ladder = ladder();
        let codec = if options.scenario == Scenario::F { JPEG } else { 1.0 };
        let cost = |rung: usize| {
            let levels: Vec<i64> = ladder.levels_at(rung).map(|(_, level)| level).collect();
            DECODE * codec * part_of_cost(levels[0], levels[1], 0.4)
        };
        Client {
            options: *options,
            load,
            cpu: Cpu::new(first_scheduling(options)),
            costs: (0..=ladder.lowest()).map(cost).collect(),
            waiting: Default::default(),
            decoding: 0,
            delay: None,
            arrived: Meter::default(),
            shown: Meter::default(),
            seen: Rc::default(),
            random: ChaCha8Rng::seed_from_u64(options.seed ^ (number as u64) << 20),
        }
    }

    pub(super) fn seen(&self) -> Rc<RefCell<Seen>> {
        self.seen.clone()
    }

    /// A program that was started again adds to what was seen before.
    pub(super) fn continue_as(&mut self, seen: &Rc<RefCell<Seen>>) {
        self.seen = seen.clone();
    }

    fn open(&mut self, here: &mut HostContext<'_>) {
        let data = channel(Plane::Data);
        let opened = here.with(|node, now| {
            node.open(&data, now)?;
            node.sink_subscribe(&data, SinkSpec::default(), now)
        });
        if opened.is_err() {
            return here.after(Nanos::from_millis(100), OPEN);
        }
        register(false, here);
        let phase = Nanos::from_millis(self.random.random_range(1..=PERIOD.get() / 1_000_000));
        here.after(phase, REPORT);
    }

    fn decode(&mut self, here: &mut HostContext<'_>) {
        if self.cpu.is_busy() {
            return;
        }
        let Some(rung) = self.waiting.pop_front() else { return };
        self.decoding = rung;
        let cost = self.costs.get(rung).copied().unwrap_or(DECODE) * self.random.random_range(0.95..1.05);
        let (at, plan) = self.cpu.begin(cost, here.now);
        here.at(at, ENDS + plan);
    }
}

impl App for Client {
    fn start(&mut self, here: &mut HostContext<'_>) {
        for controller in self.options.adaptation.controllers(false) {
            let now = here.now;
            here.call(|member| member.add(controller, now));
        }
        self.cpu.change(self.load.borrow().hogs, None, here.now);
        here.after(Nanos::from_millis(100), OPEN);
    }

    fn event(&mut self, event: &ReceivedEvent, here: &mut HostContext<'_>) {
        if event.channel != channel(Plane::Data) {
            return;
        }
        self.arrived.count(here.now);
        let delay = here.now.get().cast_signed() - event.sent.get().cast_signed();
        self.delay = Some(self.delay.map_or(delay, |least| least.min(delay)));
        let rung = event.payload.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes) as usize);
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(rung);
        self.decode(here);
    }

    fn applied(&mut self, _application: AppId, attribute: AttributeId, amount: i64, here: &mut HostContext<'_>) {
        if let Some(scheduling) = scheduling(attribute, amount)
            && let Some((at, plan)) = self.cpu.change(self.load.borrow().hogs, Some(scheduling), here.now)
        {
            here.at(at, ENDS + plan);
        }
    }

    fn timer(&mut self, tag: u64, here: &mut HostContext<'_>) {
        match tag {
            OPEN => self.open(here),
            REPORT => {
                here.after(PERIOD, REPORT);
                let (arrived, shown) = (self.arrived.report(here.now), self.shown.report(here.now));
                let amounts = [(ARRIVED, arrived), (DECODED, shown), (SHOWN, shown)];
                report(&amounts, false, &mut self.cpu, here);
                arrivals(RATE, (arrived * 1e3).round() as i64, here);
                if let Some(delay) = self.delay.take() {
                    arrivals(LEAST_DELAY, delay, here);
                }
            }
            RESUME => {
                if let Some((at, plan)) = self.cpu.change(self.load.borrow().hogs, None, here.now) {
                    here.at(at, ENDS + plan);
                }
            }
            ends if ends > ENDS && self.cpu.end(ends - ENDS, here.now) => {
                self.shown.count(here.now);
                let at = here.virtual_now.get() as f64 / 1e9;
                self.seen.borrow_mut().shown.push((at, self.decoding));
                self.decode(here);
            }
            _ => {}
        }
    }
}

/// Reports a number about the events that arrived, as the daemon does.
fn arrivals(name: &str, value: i64, here: &mut HostContext<'_>) {
    let reading = Reading {
        attribute: AttributeId::of(name),
        application: HOST,
        value,
        at: here.now,
        over: PERIOD,
        cause: Cause::Poll,
        unit: Unit::PerSecond,
    };
    here.report(&reading, name, Some(&channel(Plane::Quality)), &Recipient::Sources);
}
