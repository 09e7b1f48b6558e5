//! Policies of several applications: the reports of applications and the decisions for them.

mod integrated;

use qfabric_channel::{Config, Incarnation, QosRange, Registration, SourceSpec};
use qfabric_host::manager::policies::{
    Adapt, BEGUN, Balance, COPY, CapacityTerms, DROP, Dimension, FORWARD, Ladder, LadderTerms, MediaSync, MediaTerms,
    NEED, POSITION, RATE, REQUEST, Roles, SHOW, SKIP, SPEED, SinkSync, Spread, SpreadRule, Stream, StreamLink,
    SyncTerms, TreeShare, connection_of, stream_of,
};
use qfabric_host::manager::{
    Controller, Effect, Input, Manager, Member, MemberOutput, Output, Recipient, quality_spec,
};
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{AttributeId, Cause, HOST, QualityEvent, QualityKind, Reading, Unit};
use qfabric_types::{AppId, Instant, Nanos};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const SERVER: AppId = AppId(7);
const VOICE: AppId = AppId(1);
const PICTURE: AppId = AppId(2);

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn film() -> ChannelId {
    ChannelId { plane: Plane::Quality, name: name("film") }
}

/// The outputs of a manager.
#[derive(Default)]
struct Done {
    applied: Vec<(AppId, AttributeId, i64)>,
    told: Vec<(Recipient, QualityEvent)>,
}

/// The host `here` with one policy.
struct Host {
    manager: Manager,
    done: Done,
    now: Instant,
}

impl Host {
    fn with(policy: impl Controller + 'static) -> Host {
        let mut manager = Manager::new(name("here"));
        manager.add(Box::new(policy));
        Host { manager, done: Done::default(), now: Instant::ZERO }
    }

    fn handle(&mut self, input: Input) {
        self.manager.handle(input, self.now);
        while let Some(output) = self.manager.poll() {
            match output {
                Output::Tell(_, to, event) => self.done.told.push((to, event)),
                Output::Effect(Effect::Apply(of, attribute, amount)) => self.done.applied.push((of, attribute, amount)),
                _ => {}
            }
        }
    }

    /// An application of this host reports.
    fn reports(&mut self, application: AppId, attribute: &str, value: i64) {
        self.handle(Input::Reading(None, name("here"), reading(application, attribute, value, self.now)));
    }

    /// Another host reports.
    fn hears(&mut self, host: &str, attribute: &str, value: i64) {
        self.handle(Input::Reading(Some(film()), name(host), reading(HOST, attribute, value, self.now)));
    }

    fn wait(&mut self, time: Nanos) {
        self.now = self.now + time;
        self.handle(Input::Wake);
    }

    fn applied(&mut self) -> Vec<(AppId, AttributeId, i64)> {
        std::mem::take(&mut self.done.applied)
    }
}

fn reading(application: AppId, attribute: &str, value: i64, at: Instant) -> Reading {
    let attribute = AttributeId::of(attribute);
    Reading { attribute, application, value, at, over: Nanos::ZERO, cause: Cause::Poll, unit: Unit::Count }
}

fn told(application: AppId, attribute: &str, amount: i64) -> (AppId, AttributeId, i64) {
    (application, AttributeId::of(attribute), amount)
}

/// The levels that a member with a ladder applies until it has no more outputs.
fn applied_by(member: &mut Member) -> Vec<i64> {
    let mut applied = Vec::new();
    while let Some(output) = member.poll() {
        if let MemberOutput::Effect(Effect::Apply(_, _, amount)) = output {
            applied.push(amount);
        }
    }
    applied
}

#[test]
fn every_source_of_this_host_that_joins_gets_the_levels() {
    let now = Instant::new(1_000_000_000);
    let mut member = Member::new(Config::new(name("here"), Incarnation::new(1, 1)), now);
    let ladder = Ladder::new(vec![Dimension::new("quality", &[80, 60])], LadderTerms::new(20.0)).unwrap();
    member.add(Box::new(Adapt::new(&film(), ladder)), now);
    let (film, other) = (ChannelId::data(name("film")), ChannelId::data(name("other")));
    for channel in [&film, &other] {
        member.with(now, |node| node.create(channel, quality_spec(), now)).unwrap();
    }
    let mut join = |channel: &ChannelId| {
        member.with(now, |node| node.source_subscribe(channel, SourceSpec::default(), now)).unwrap();
        applied_by(&mut member)
    };
    assert_eq!([join(&film), join(&film), join(&other)], [vec![80], vec![80], vec![]]);
}

fn balanced(cancelling: bool) -> Host {
    let balance = Balance::new(&film(), MS(2_500), 100);
    Host::with(if cancelling { balance.cancelling() } else { balance })
}

#[test]
fn a_request_that_waits_too_long_is_forwarded_and_one_that_is_served_is_not() {
    let mut host = balanced(false);
    host.reports(SERVER, REQUEST, 1);
    host.wait(MS(1_000));
    host.reports(SERVER, REQUEST, 2);
    host.reports(SERVER, REQUEST, 3);
    host.reports(SERVER, BEGUN, 2);
    assert_eq!(host.manager.next_wakeup(), Some(Instant::ZERO + MS(2_500)), "there is one timer");
    host.wait(MS(1_499));
    assert!(host.applied().is_empty());
    host.wait(MS(1));
    assert_eq!(host.applied(), [told(SERVER, FORWARD, 1)]);
    host.wait(MS(1_000));
    assert_eq!(host.applied(), [told(SERVER, FORWARD, 3)]);
    host.reports(SERVER, BEGUN, 3);
    assert_eq!((host.manager.next_wakeup(), host.done.told.len()), (None, 0));
}

#[test]
fn a_server_that_begins_a_copy_cancels_the_other_copies() {
    let [mut one, mut two] = [balanced(true), balanced(true)];
    one.reports(SERVER, COPY, 9);
    two.reports(SERVER, COPY, 9);
    one.reports(SERVER, BEGUN, 9);
    let (to, event) = one.done.told.pop().expect("a control event is sent");
    assert_eq!((to, event.value), (Recipient::All, 9));
    one.handle(Input::Control(film(), name("here"), event));
    two.handle(Input::Control(film(), name("one"), event));
    assert_eq!((one.applied(), two.applied()), (vec![], vec![told(SERVER, DROP, 9)]));
    two.handle(Input::Control(film(), name("one"), event));
    two.reports(SERVER, BEGUN, 9);
    assert!(two.applied().is_empty() && two.done.told.is_empty(), "the copy is forgotten");
}

#[test]
fn a_sink_that_has_left_is_not_waited_for() {
    let mut host = Host::with(SinkSync::new(&film(), SyncTerms::default(), Instant::ZERO));
    host.hears("quick", NEED, 20_000_000);
    host.hears("slow", NEED, 400_000_000);
    let last = |host: &Host| host.done.told.last().map(|(_, event)| (event.attribute, event.value));
    assert_eq!(last(&host), Some((AttributeId::of(SHOW), 410_000_000)));
    let (application, group) = (name("player"), name("film"));
    let registration = Registration { application, group, parent: None, level: 1, qos: Vec::new() };
    host.handle(Input::Left(name("slow"), registration));
    for _ in 0..40 {
        host.wait(MS(1_000));
        host.hears("quick", NEED, 20_000_000);
    }
    assert_eq!(last(&host), Some((AttributeId::of(SHOW), 30_000_000)), "slowly, but completely");
}

fn positions(host: &mut Host, voice: u64, picture: u64) {
    host.reports(VOICE, POSITION, MS(voice).get() as i64);
    host.reports(PICTURE, POSITION, MS(picture).get() as i64);
}

#[test]
fn a_jump_is_ordered_once_however_often_the_follower_reports_before_it() {
    let mut host = Host::with(MediaSync::new(VOICE, PICTURE, MediaTerms::default()));
    positions(&mut host, 2_000, 1_000);
    assert_eq!(host.applied(), [told(PICTURE, SKIP, 1_000_000_000)]);
    positions(&mut host, 2_100, 1_100);
    host.handle(Input::Reading(Some(film()), name("here"), reading(PICTURE, POSITION, 0, host.now)));
    assert!(host.applied().is_empty());
    host.wait(MS(300));
    positions(&mut host, 2_300, 2_200);
    assert_eq!(host.applied(), [told(PICTURE, SPEED, 20_000)]);
}

#[test]
fn a_follower_that_stands_still_is_not_told_to_wait_again() {
    let mut host = Host::with(MediaSync::new(VOICE, PICTURE, MediaTerms::default()));
    positions(&mut host, 1_000, 2_000);
    assert_eq!(host.applied(), [told(PICTURE, SKIP, -1_000_000_000)]);
    for tenth in 1..=11 {
        host.wait(MS(100));
        positions(&mut host, 1_000 + tenth * 100, 2_000);
    }
    assert!(host.applied().is_empty(), "the follower waits as instructed");
    host.wait(MS(100));
    positions(&mut host, 2_200, 2_200);
    assert!(host.applied().is_empty(), "the follower is synchronous");
}

fn wants(channel: &str, min: i64, max: i64) -> Registration {
    let qos = vec![QosRange { metric: "frame_rate".parse().unwrap(), min, max }];
    Registration { application: name("player"), group: name(channel), parent: None, level: 1, qos }
}

#[test]
fn a_tree_without_a_broker_divides_the_given_amount() {
    let stream = |channel: &str, bits: f64| {
        let channel = ChannelId { plane: Plane::Quality, name: name(channel) };
        Stream { channel, bits, weight: 1.0 }
    };
    let streams = vec![stream("film", 10_000.0), stream("sound", 2_000.0)];
    let links = vec![StreamLink::AtEachSink(vec![name("film"), name("sound")])];
    let mut host = Host::with(TreeShare::new(HOST, AttributeId::of("net.bandwidth"), streams, links).with_grant(2e5));
    host.handle(Input::Joined(name("wall"), wants("film", 10, 20)));
    let rate = |host: &Host, channel: &str| {
        let connection = connection_of(&name(channel), &name("wall"));
        host.done.applied.iter().rev().find(|(of, ..)| *of == connection).map(|(.., rate)| *rate)
    };
    assert_eq!(rate(&host, "film"), Some(20_000), "a lone stream has the rate that it wants");
    host.handle(Input::Joined(name("wall"), wants("sound", 25, 50)));
    let both = [rate(&host, "film").unwrap(), rate(&host, "sound").unwrap()];
    assert!((both[0] - 12_500).abs() < 3 && (both[1] - 31_250).abs() < 3, "{both:?}: a quarter of both ranges");
    host.handle(Input::Left(name("wall"), wants("sound", 25, 50)));
    assert_eq!(rate(&host, "film"), Some(20_000));
}

fn viewer(application: &str, channel: &str, min: i64, max: i64) -> Registration {
    Registration { application: name(application), ..wants(channel, min, max) }
}

#[test]
fn a_stream_lasts_as_long_as_the_host_has_a_viewer() {
    let mut host = Host::with(Roles::new(&film(), 8e3, CapacityTerms::default(), Instant::ZERO));
    let (wall, stream) = (name("wall"), stream_of(&name("wall")));
    let rate = |per_second: i64| vec![told(stream, RATE, per_second * 1_000)];
    host.handle(Input::Joined(wall.clone(), viewer("left", "film", 10, 15)));
    assert_eq!(host.applied(), rate(15));
    host.handle(Input::Joined(wall.clone(), viewer("right", "film", 20, 25)));
    assert_eq!(host.applied(), rate(25), "enough for the more demanding viewer");
    host.handle(Input::Left(wall.clone(), viewer("right", "news", 20, 25)));
    assert!(host.applied().is_empty(), "another group has no effect");
    host.handle(Input::Left(wall.clone(), viewer("right", "film", 20, 25)));
    assert_eq!(host.applied(), rate(15), "the other viewer still watches");
    assert!(host.manager.next_wakeup().is_some());
    host.handle(Input::Left(wall.clone(), viewer("left", "film", 10, 15)));
    assert_eq!((host.applied(), host.manager.next_wakeup()), (vec![], None), "there is no viewer");
}

#[test]
fn two_viewers_of_one_name_count_separately() {
    let mut host = Host::with(Roles::new(&film(), 8e3, CapacityTerms::default(), Instant::ZERO));
    (0..2).for_each(|_| host.handle(Input::Joined(name("wall"), wants("film", 10, 15))));
    host.handle(Input::Left(name("wall"), wants("film", 10, 15)));
    assert!(host.manager.next_wakeup().is_some(), "one viewer is left");
    host.handle(Input::Left(name("wall"), wants("film", 10, 15)));
    assert_eq!(host.manager.next_wakeup(), None);
}

#[test]
fn a_connection_of_a_tree_lasts_as_long_as_it_has_a_viewer() {
    let streams = vec![Stream { channel: film(), bits: 8e3, weight: 1.0 }];
    let mut host = Host::with(TreeShare::new(HOST, AttributeId::of("net"), streams, Vec::new()).with_grant(1e6));
    let connection = connection_of(&name("film"), &name("wall"));
    host.handle(Input::Joined(name("wall"), viewer("left", "film", 10, 15)));
    host.handle(Input::Joined(name("wall"), viewer("right", "film", 20, 25)));
    assert_eq!(host.applied(), [told(connection, RATE, 15_000), told(connection, RATE, 25_000)]);
    host.handle(Input::Left(name("wall"), viewer("right", "film", 20, 25)));
    assert_eq!(host.applied(), [told(connection, RATE, 15_000)]);
}

#[test]
fn a_delay_request_names_the_report() {
    let mut host = Host::with(Spread::new(&film(), "cpu.run_queue", MS(1_000), SpreadRule::Placed, 1, Instant::ZERO));
    for _ in 0..5 {
        (0..50).for_each(|client| host.hears(&format!("client{client}"), "cpu.run_queue", 1));
        host.now = host.now + MS(1_000);
    }
    let asked = &host.done.told;
    assert!(!asked.is_empty(), "all hosts report at once");
    let names_it = |event: &QualityEvent| {
        (event.kind, event.subject.as_str(), event.attribute)
            == (QualityKind::Delay, "cpu.run_queue", AttributeId::of("cpu.run_queue"))
    };
    assert!(asked.iter().all(|(_, event)| names_it(event)), "{asked:?}");
}
