//! Properties of a resource manager that receives events of other hosts.

use qfabric_channel::{QosRange, Registration};
use qfabric_host::manager::policies::{
    BEGUN, Balance, CapacityTerms, FORWARD, HoldRate, MediaSync, MediaTerms, NEED, POSITION, RATE, REQUEST, RateTerms,
    Relay, Roles, SinkSync, Spread, SpreadRule, Stream, StreamLink, SyncTerms, TreeShare,
};
use qfabric_host::manager::{Ask, Controller, Effect, GroupController, Input, Manager, Output, ResourceRequest, Rule};
use qfabric_types::api::LoanRate;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{AttributeId, Cause, HOST, QualityEvent, QualityKind, Reading, ReadingEvent, Unit};
use qfabric_types::{AppId, BitRate, Bytes, Instant, Nanos};

use crate::Script;

const CAPACITY: i64 = 1_000_000;
/// The attribute that the manager divides and lends.
const SHARE: AttributeId = AttributeId::of("cpu.share");
/// The attribute that the broker provides.
const BROKERED: AttributeId = AttributeId::of("cpu.guaranteed");
const NAMES: [&str; 12] = [
    RATE,
    NEED,
    POSITION,
    REQUEST,
    BEGUN,
    FORWARD,
    "cpu.share",
    "cpu.guaranteed",
    "net.rate",
    "app.copy",
    "app.drop",
    "x",
];

/// The outputs of a manager.
#[derive(Default)]
struct Outputs {
    sent: u64,
    keeps: Vec<(Name, u64)>,
}

impl Outputs {
    fn take_from(&mut self, manager: &mut Manager) {
        while let Some(output) = manager.poll() {
            match output {
                Output::Tell(_, _, event) => {
                    self.sent += 1;
                    assert_eq!(QualityEvent::decode(&event.encode()), Ok(event), "a control event can be decoded");
                }
                Output::Effect(Effect::Apply(_, _, amount)) => _ = Unit::Millionths.show(amount),
                Output::Effect(Effect::Keep { asker, request, .. }) => self.keeps.push((asker, request)),
                _ => {}
            }
        }
    }
}

/// Network distance to a host; that of host `c` is unknown.
fn distance(host: &Name) -> Option<Nanos> {
    (host.as_str() != "c").then_some(Nanos::from_micros(300))
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn channel(which: usize) -> ChannelId {
    ChannelId { plane: Plane::Quality, name: name(["film", "voice", "group.g", "group.lend"][which % 4]) }
}

/// One controller of every policy, so that each processes the events.
fn policies(now: Instant) -> Vec<Box<dyn Controller>> {
    let (film, second) = (channel(0), Nanos::from_millis(1_000));
    let stream = |which| Stream { channel: channel(which), bits: 1_000.0, weight: 1.0 };
    let rate = RateTerms { target: 20.0, tolerance: 0.5, gain: 0.5, most: 0.5, min: 0.1, max: 1_000.0 };
    let links = vec![StreamLink::Streams(vec![name("film"), name("voice")])];
    let group = GroupController::new(&name("g"), None, 3, AttributeId::of("net.rate"), CAPACITY).expect("a level");
    vec![
        Box::new(Roles::new(&film, 1_000.0, CapacityTerms::default(), now)),
        Box::new(HoldRate::new(&film, 20.0, rate)),
        Box::new(Spread::new(&film, "cpu.share", second, SpreadRule::Placed, 7, now)),
        Box::new(SinkSync::new(&film, SyncTerms::default(), now)),
        Box::new(MediaSync::new(AppId(1), AppId(2), MediaTerms::default())),
        Box::new(Balance::new(&film, second, 100).cancelling()),
        Box::new(TreeShare::new(HOST, SHARE, vec![stream(0), stream(1)], links).with_grant(1e6)),
        Box::new(group.with_local(AppId(3), 1_000, 9_000, 1)),
        Box::new(Relay::new(&film, &[QualityKind::Level, QualityKind::Delay])),
    ]
}

/// For any order of events of other hosts, applications and the broker, a manager sends a bounded number of events
/// per input, never lends more than its capacity, and keeps nothing of a host that is gone.
pub fn manager(bytes: &[u8]) {
    let mut script = Script(bytes);
    let (mut now, mut outputs, mut manager) =
        (Instant::new(1_000_000_000), Outputs::default(), Manager::new(name("a")));
    manager.capacity(SHARE, CAPACITY, now);
    manager.broker(BROKERED, channel(3));
    policies(now).into_iter().for_each(|policy| _ = manager.add(policy));
    while !script.is_over() {
        let (before, kind) = (outputs.sent, script.byte());
        now = now + Nanos::from_micros(1 << (kind >> 3));
        manager.measure(distance);
        step(kind % 8, &mut script, &mut manager, now, &mut outputs.keeps);
        outputs.take_from(&mut manager);
        let sent = outputs.sent - before;
        assert!(sent <= 10_000, "one input caused {sent} control events; at most 10000 are allowed");
        assert!(manager.free(SHARE) >= 0 && (0..=CAPACITY).contains(&manager.lent(SHARE)));
    }
    ["b", "c", "d"].into_iter().for_each(|host| manager.handle(Input::HostGone(name(host)), now));
    assert_eq!(manager.lent(SHARE), 0, "the manager still lends to a host that is gone");
}

fn step(kind: u8, script: &mut Script<'_>, manager: &mut Manager, now: Instant, keeps: &mut Vec<(Name, u64)>) {
    let host = name(["a", "b", "c", "d"][script.below(4)]);
    match kind {
        0..=2 => {
            let (at, event) = (channel(script.below(4)), control(script, now));
            manager.handle(Input::Control(at, host, event), now);
        }
        3 | 4 => {
            let own = host.as_str() == "a";
            let (at, reading) = (channel(script.below(4)), reading(script, now));
            manager.handle(Input::Reading((!own).then_some(at), host, reading), now);
        }
        5 => members(host, script, manager, now),
        6 => {
            let at = manager.next_wakeup().map_or(now, |at| at.max(now));
            manager.handle(Input::Wake, at.min(now + Nanos::from_millis(60_000)));
        }
        _ => broker(script, manager, now, keeps),
    }
}

/// A control event: either from arbitrary bytes, or from valid parts.
fn control(script: &mut Script<'_>, now: Instant) -> QualityEvent {
    if script.byte().is_multiple_of(4)
        && let Ok(event) = QualityEvent::decode(script.piece())
    {
        return event;
    }
    QualityEvent {
        controller: AttributeId::of(["manager", "balance", "roles", "sink-sync", "spread", "group.g"][script.below(6)]),
        kind: QualityKind::ALL[script.below(QualityKind::ALL.len())],
        value: number(script),
        other: number(script),
        request: u64::from(script.byte() % 8),
        at: now,
        application: AppId(u64::from(script.byte() % 5)),
        attribute: AttributeId::of(NAMES[script.below(NAMES.len())]),
        subject: qfabric_types::monitor::QualityText::new(["", "film", "b"][script.below(3)]),
    }
}

/// A small number, or sometimes any number.
fn number(script: &mut Script<'_>) -> i64 {
    match script.byte() {
        255 => script.long().cast_signed(),
        254 => i64::from(script.half()) * 1_000_000,
        small => i64::from(small) * 5_000 - 50_000,
    }
}

fn reading(script: &mut Script<'_>, now: Instant) -> Reading {
    let name = NAMES[script.below(NAMES.len())];
    let reading = Reading {
        attribute: AttributeId::of(name),
        application: AppId(u64::from(script.byte() % 5)),
        value: number(script),
        at: if script.byte().is_multiple_of(4) { Instant::new(script.long()) } else { now },
        over: Nanos::from_micros(u64::from(script.half())),
        cause: Cause::ALL[script.below(Cause::ALL.len())],
        unit: Unit::ALL[script.below(Unit::ALL.len())],
    };
    // Encodes and decodes the reading, as for a reading that arrives.
    let arrived = ReadingEvent::decode(&ReadingEvent::encode(&reading, name)).expect("a reading can be decoded");
    arrived.reading
}

fn members(host: Name, script: &mut Script<'_>, manager: &mut Manager, now: Instant) {
    let what = script.byte();
    let metric = |name: &str| name.parse().expect("a key");
    let mut range = |name: &str| QosRange { metric: metric(name), min: number(script), max: number(script) };
    let qos = vec![range("frame_rate"), range("importance"), range("net_rate")];
    let group = name(["film", "voice", "g"][usize::from(what >> 2) % 3]);
    let registration = Registration { application: name("player"), group, parent: None, level: what >> 5, qos };
    match what % 4 {
        0 | 1 => manager.handle(Input::Joined(host, registration), now),
        2 => manager.handle(Input::Left(host, registration), now),
        _ => manager.handle(Input::HostGone(host), now),
    }
}

/// An event of the broker of this host.
fn broker(script: &mut Script<'_>, manager: &mut Manager, now: Instant, keeps: &mut Vec<(Name, u64)>) {
    let (what, amount) = (script.byte(), number(script));
    match what % 5 {
        0 => {
            let Some((asker, request)) = keeps.pop() else { return };
            let (interface, rate) = ("eth0".parse().expect("a name"), BitRate::new(amount.unsigned_abs()));
            let rate = LoanRate { interface, rate };
            manager.kept_rate((&asker, request), rate);
            manager.kept((&asker, request), (amount >= 0).then_some(amount), now);
        }
        1 => drop(manager.redeem(&name("b"), u64::from(what >> 4), now)),
        2 => {
            let (least, most) = (amount.clamp(0, CAPACITY), number(script));
            let request = ResourceRequest {
                application: AppId(u64::from(what >> 5)),
                attribute: SHARE,
                least,
                most,
                importance: 1,
            };
            let _admitted_or_refused = manager.admit(&request, now);
        }
        3 => manager.leave(AppId(u64::from(what >> 5)), now),
        _ => {
            let rule = [Rule::First, Rule::BestOf(usize::from(what >> 5)), Rule::Nearest][usize::from(what) % 3];
            let (request, channel, attribute) = (u64::from(what >> 5), channel(usize::from(what >> 4)), SHARE);
            let (patience, hold) = (Nanos::from_millis(500), Nanos::from_millis(3_000));
            let memory = Bytes::new(u64::from(what) << 20);
            let rate = BitRate::new(u64::from(what >> 3) * 1_000_000);
            manager.ask(Ask { request, channel, attribute, amount, memory, rate, rule, patience, hold }, now);
        }
    }
}
