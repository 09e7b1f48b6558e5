//! Isolation of the users of one host, on a real node without other hosts.

mod arrivals;
mod connections;
mod filters;
mod openings;
mod policy_calls;
mod policy_contracts;
mod policy_paces;
mod policy_steady;
mod renewal;
mod reports;
mod waking;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use qfabric_channel::{FilterId, RegistrationId, SinkId, SourceId, Submission, Taken};
use qfabric_host::manager::Input;
use qfabric_host::manager::policies::{RATE, told};
use qfabric_linux::clock;
use qfabric_shm::Duplex;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{
    BindingRequest, ChannelRequest, Direction, FilterRequest, FilterScope, GroupRequest, LeaseId, ParameterRequest,
    Policy, SinkRequest, SourceRequest,
};
use qfabric_types::channel_wire::{FromClient, FromDaemon, LateReport, MAX_MESSAGE, SubmitRequest};
use qfabric_types::monitor::{AttributeId, QualityKind};
use qfabric_types::{Nanos, Owner};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::mailbox::Noted;
use super::policies::{ControlListener, number_of};
use super::serve::ReadTurn;
use super::{ChannelsConfig, EngineName, Fabric, Right, Rule};
use crate::auth::Peer;
use crate::closer::Foreign;
use crate::control::{self, Command};
use crate::ending::Ending;

const FRAME: &str = "struct frame { int number; };";
/// Users other than root and the user that runs the tests.
const ALICE: u32 = 54_321;
const BOB: u32 = 54_322;
const CAROL: u32 = 54_323;

struct Host {
    fabric: Fabric,
    /// No control thread answers, and no test asks it.
    _commands: Receiver<Command>,
}

/// A connection of a user.
#[derive(Clone, Copy)]
struct User<'a> {
    fabric: &'a Fabric,
    peer: Peer,
    lease: LeaseId,
}

impl Host {
    fn start(rules: Vec<Rule>) -> Host {
        Host::with(ChannelsConfig { rules, ..Default::default() })
    }

    fn with(config: ChannelsConfig) -> Host {
        let host = Some("alpha".parse().unwrap());
        let config = ChannelsConfig { enabled: true, engine: EngineName::None, host, ..config };
        let ending = Ending::new().unwrap();
        let (requests, commands) = control::requests(ending.control_wake().clone());
        Host {
            fabric: Fabric::start(&config, requests, Arc::default(), Arc::default(), &ending).unwrap(),
            _commands: commands,
        }
    }

    fn user(&self, uid: u32) -> User<'_> {
        self.connected(uid, eventfd(0, EventfdFlags::CLOEXEC).unwrap())
    }

    /// A connection with its other end.
    fn reader(&self, uid: u32) -> (User<'_>, End) {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let (here, there) = socketpair(family, SocketType::SEQPACKET, flags, None).unwrap();
        let user = self.connected(uid, here);
        let (duplex, file) = Duplex::create().unwrap();
        self.fabric.registry().lease(user.peer, user.lease).unwrap().duplex = Some(duplex);
        (user, End(Duplex::map(&file).unwrap(), there))
    }

    /// Handles one wake-up, as the socket's thread does.
    fn turn(&self) {
        let mut noted = Noted::default();
        self.fabric.mailbox.take(&mut noted);
        self.fabric.carry_out(&mut noted);
    }

    /// Calls policies, as their thread does, until none waits.
    fn call_policies(&self) {
        while self.fabric.call_next_policy(&clock::now) {}
    }

    fn connected(&self, uid: u32, socket: OwnedFd) -> User<'_> {
        let peer = Peer { pid: 1, owner: Owner { uid, gid: uid } };
        let socket = Arc::new(Foreign::new(socket, uid, &self.fabric.closer));
        let lease = self.fabric.registry().add(peer, socket);
        User { fabric: &self.fabric, peer, lease }
    }
}

/// The application's end of a connection.
struct End(Duplex, OwnedFd);

impl User<'_> {
    fn create(&self, name: &str) -> Result<(), Problem> {
        let request = serde_json::json!({ "lease": self.lease, "name": name, "formats": FRAME });
        let request: ChannelRequest = serde_json::from_value(request).unwrap();
        self.fabric.create(self.peer, &request).map(drop)
    }

    fn open(&self, name: &str) -> Result<(), Problem> {
        self.fabric.open(self.peer, &name.parse().unwrap(), self.lease).map(drop)
    }

    fn source(&self, name: &str) -> Result<SourceId, Problem> {
        let request = SourceRequest { lease: self.lease, ..SourceRequest::default() };
        self.fabric.source(self.peer, &name.parse().unwrap(), request).map(|joined| SourceId(joined.number))
    }

    fn sink(&self, name: &str) -> Result<SinkId, Problem> {
        let request = SinkRequest { lease: self.lease, capacity: 16, ..SinkRequest::default() };
        self.fabric.sink(self.peer, &name.parse().unwrap(), request).map(|joined| SinkId(joined.number))
    }

    fn filter(&self, direction: Direction, name: &str, code: &str, sink: Option<SinkId>) -> Result<(), Problem> {
        let sink = sink.map(|sink| sink.0.to_string());
        let request = FilterRequest { lease: Some(self.lease), code: code.into(), sink, ..FilterRequest::default() };
        let id = FilterId { channel: "video".parse().unwrap(), direction, name: name.parse().unwrap() };
        self.fabric.install(self.peer, id, &request).map(drop)
    }

    fn try_register(&self, group: &str) -> Result<RegistrationId, Problem> {
        let request = serde_json::json!({ "lease": self.lease, "application": "app", "group": group });
        let request: GroupRequest = serde_json::from_value(request).unwrap();
        self.fabric.register(self.peer, request).map(|registered| RegistrationId(registered.number))
    }

    fn register(&self, application: &str, group: &str, rates: [i64; 2]) -> RegistrationId {
        let [min, max] = rates;
        let qos = serde_json::json!([{ "metric": "frame_rate", "min": min, "max": max }]);
        let request =
            serde_json::json!({ "lease": self.lease, "application": application, "group": group, "qos": qos });
        let request: GroupRequest = serde_json::from_value(request).unwrap();
        RegistrationId(self.fabric.register(self.peer, request).unwrap().number)
    }

    fn unregister(&self, registration: RegistrationId) {
        self.fabric.unregister(self.peer, registration).unwrap();
    }

    /// The reader of a sink has room for this number of events.
    fn reads(&self, sink: SinkId, events: u32) {
        let mut registry = self.fabric.registry();
        registry.leases.get_mut(&self.lease).unwrap().sinks.get_mut(&sink).unwrap().events = events;
        self.fabric.pump(&mut registry, sink);
    }

    /// How many sinks of this host an event was sent to.
    fn submit(&self, source: SourceId, number: i32) -> u32 {
        self.submit_long(source, number, 4)
    }

    /// The same, for an event of this number of bytes.
    fn submit_long(&self, source: SourceId, number: i32, bytes: usize) -> u32 {
        let mut payload = number.to_le_bytes().to_vec();
        payload.resize(bytes, 7);
        let event = Submission { payload: &payload, ..Submission::default() };
        self.fabric.network.with(|node, now| node.submit(source, &event, now)).unwrap().local
    }

    /// The numbers in the events of a sink.
    fn take(&self, sink: SinkId) -> Vec<i32> {
        let (mut taken, mut numbers) = (Taken::default(), Vec::new());
        while self.fabric.network.with(|node, now| node.take(sink, &mut taken, now)).unwrap() {
            numbers.extend(taken.event().map(|event| i32::from_le_bytes(event.payload.try_into().unwrap())));
        }
        numbers
    }
}

fn code(result: Result<(), Problem>) -> Option<String> {
    result.err().map(|problem| problem.code)
}

fn forbidden() -> Option<String> {
    Some("channel_forbidden".to_owned())
}

/// `turns` of a loop of about ten instructions.
fn long(turns: u32) -> String {
    format!("long i; long s; for (i = 0; i < {turns}; i++) s += i; return s >= 0;")
}

/// The keys that a reload applies hold for the next request; what exists stays, and the other keys stay as they were.
#[test]
fn rules_and_limits_change_while_the_host_runs() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    assert!(bob.sink("video").is_ok() && alice.filter(Direction::Out, "f", &long(5_000), None).is_ok());
    let rule = format!("channels = ['*']\nusers = [{ALICE}]\nrights = ['create', 'open', 'join', 'send', 'install']");
    let new = ChannelsConfig {
        rules: vec![toml::from_str(&rule).unwrap()],
        max_filter_instructions: 1_000,
        max_leases_per_user: 2,
        policy_budget: Nanos::from_millis(3),
        realm: "other".parse().unwrap(),
        ..ChannelsConfig::default()
    };
    let in_force = host.fabric.configure(&new);
    let realm = ChannelsConfig::default().realm;
    let config = host.fabric.config();
    assert_eq!((&in_force, &in_force.realm), (&*config, &realm), "the realm needs a restart");
    assert_eq!((in_force.max_leases_per_user, in_force.policy_budget), (2, new.policy_budget));
    assert_eq!(code(bob.sink("video").map(drop)), forbidden(), "the rules name Alice alone");
    assert!(alice.sink("video").is_ok());
    let problem = alice.filter(Direction::In, "g", &long(5_000), Some(alice.sink("video").unwrap())).unwrap_err();
    assert!(problem.message.contains("the limit is 1000"), "{problem:?}");
    assert_eq!(host.fabric.show(&"video".parse().unwrap()).unwrap().filters.len(), 1, "an installed filter stays");
}

#[test]
fn channels_and_registrations_of_one_user_leave_room_for_those_of_others() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    let again = host.user(BOB);
    let refused = (0..).find_map(|taken| Some((taken, bob.create(&format!("b{taken}")).err()?)));
    let (taken, problem) = refused.unwrap();
    assert_eq!((taken, problem.code.as_str()), (128, "channel_limit"), "a quarter of 512");
    let told = format!("user {BOB} has 128 channels and groups open here, 128 is the limit");
    assert!(problem.message.contains(&told), "{problem:?}");
    alice.create("video").unwrap();
    assert_eq!(code(again.open("video")), Some("channel_limit".to_owned()), "all connections of a user count");
    assert_eq!(
        code(again.try_register("group").map(drop)),
        Some("channel_limit".to_owned()),
        "a group has a Q-channel"
    );
    assert_eq!(code(again.open("b0")), None, "the user holds it already");
    for channel in ["b0", "b1"] {
        bob.fabric.close(bob.peer, &channel.parse().unwrap(), bob.lease).unwrap();
    }
    again.open("video").unwrap();
    again.fabric.close(again.peer, &"b0".parse().unwrap(), again.lease).unwrap();
    let refused = (0..).find_map(|taken| Some((taken, again.try_register("group").err()?)));
    let (taken, problem) = refused.unwrap();
    assert_eq!((taken, problem.code.as_str()), (256, "channel_limit"), "a quarter of 1,024");
    assert!(problem.message.contains(&format!("user {BOB} has 256 registrations here")), "{problem:?}");
    assert!(alice.try_register("group").is_ok() && root.try_register("group").is_ok());
}

#[test]
fn all_users_together_leave_an_eighth_of_the_channels_to_root() {
    let host = Host::start(Vec::new());
    let users: Vec<_> = (0..4).map(|number| host.user(ALICE + number)).collect();
    for (number, user) in users.iter().enumerate() {
        let taken = (0..).find(|taken| user.create(&format!("c{number}.{taken}")).is_err()).unwrap();
        assert_eq!(taken, if number == 3 { 64 } else { 128 });
    }
    let problem = users[3].create("more").unwrap_err();
    assert!(problem.message.contains("896 channels and Q-channels, 896 is the limit for users"), "{problem:?}");
    assert!(problem.next_step.contains("root"), "{problem:?}");
    users[3].open("c0.0").unwrap();
    let root = host.user(0);
    root.create("root").unwrap();
}

#[test]
fn one_connection_opens_a_channel_a_bounded_number_of_times() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    let refused = (1..).find_map(|taken| Some((taken, alice.open("video").err()?)));
    let (taken, problem) = refused.unwrap();
    assert_eq!((taken, problem.code.as_str()), (1024, "channel_limit"));
    assert!(problem.message.contains("1024 times, 1024 is the limit"), "{problem:?}");
}

#[test]
fn members_of_one_user_leave_room_for_those_of_others() {
    let host = Host::with(ChannelsConfig { max_members_per_user: 3, ..Default::default() });
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    let again = host.user(BOB);
    alice.create("video").unwrap();
    [bob, again, root].iter().for_each(|user| user.open("video").unwrap());
    let source = bob.source("video").unwrap();
    assert!(bob.sink("video").is_ok() && again.sink("video").is_ok(), "all connections of a user count");
    for refused in [bob.source("video").map(drop), again.sink("video").map(drop)] {
        let problem = refused.unwrap_err();
        assert_eq!(problem.code, "channel_limit");
        assert!(
            problem.message.contains(&format!("user {BOB} has 3 sources and sinks here, 3 is the limit")),
            "{problem:?}"
        );
        assert!(problem.next_step.contains("channels.max_members_per_user"), "{problem:?}");
    }
    let (channel, name) = ("video".parse().unwrap(), "watch".parse().unwrap());
    let watched = FilterId { channel, direction: Direction::Out, name };
    bob.filter(Direction::Out, "watch", "return get_attribute(seen) >= 0;", None).unwrap();
    let binding = serde_json::json!({ "lease": bob.lease, "parameter": "seen", "channel": "video", "event_type": "frame", "field": "number" });
    let binding: BindingRequest = serde_json::from_value(binding).unwrap();
    let bound = bob.fabric.bind(bob.peer, watched, &binding).map(drop);
    assert_eq!(code(bound), Some("channel_limit".to_owned()), "a binding has a sink");
    assert!(alice.source("video").is_ok() && (0..4).all(|_| root.sink("video").is_ok()));
    bob.fabric.leave_source(bob.peer, source).unwrap();
    assert!(again.sink("video").is_ok(), "what has ended gives its place back");
}

#[test]
fn one_user_takes_a_quarter_of_the_members_of_a_channel() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    alice.create("news").unwrap();
    bob.open("video").unwrap();
    bob.open("news").unwrap();
    bob.sink("news").unwrap();
    let refused = (0..).find_map(|taken| Some((taken, bob.sink("video").err()?)));
    let (taken, problem) = refused.unwrap();
    assert_eq!((taken, problem.code.as_str()), (1024, "channel_limit"));
    assert!(problem.message.contains("1024 sources and sinks on video here, 1024 is the limit"), "{problem:?}");
    assert!(problem.next_step.contains("several channels"), "{problem:?}");
    assert!(bob.source("news").is_ok() && alice.sink("video").is_ok());
    let refused = bob.source("video").map(drop);
    assert_eq!(code(refused), Some("channel_limit".to_owned()), "sources and sinks are counted together");
}

#[test]
fn two_policies_that_decide_the_same_do_not_run_together() {
    let host = Host::start(Vec::new());
    let start = |policy: serde_json::Value| host.fabric.start_policy(None, serde_json::from_value(policy).unwrap());
    let refusal = |policy: serde_json::Value| start(policy).unwrap_err().message;
    let code = |member: &str| {
        let text = format!("struct output {{ long {member}; }}; output.{member} = 5; return 1;");
        serde_json::json!({ "kind": "code", "channel": "video", "code": text })
    };
    let roles = serde_json::json!({ "kind": "roles", "channel": "video" });
    let rates = "the policy `hold.video` already decides at what rates `video` goes to its sinks";
    start(serde_json::json!({ "kind": "hold", "channel": "video", "rate": 25.0 })).unwrap();
    assert_eq!([refusal(roles.clone()), refusal(code("rate_milli"))], [rates, rates]);
    start(code("level")).unwrap();
    start(serde_json::json!({ "kind": "sync", "channel": "video" })).unwrap();
    let shown = refusal(serde_json::json!({ "kind": "sync", "channel": "video", "name": "again" }));
    assert_eq!(shown, "the policy `sync.video` already decides when events of `video` are shown");
    host.fabric.stop_policy(host.user(0).peer, &"hold.video".parse().unwrap()).unwrap();
    start(roles).unwrap();
}

#[test]
fn rules_say_which_users_open_read_and_feed_a_channel() {
    let rule = |channel: &str, users: &[u32], rights: &[Right]| Rule {
        channels: vec![channel.to_owned()],
        users: users.iter().copied().collect(),
        groups: Default::default(),
        rights: rights.iter().copied().collect(),
    };
    let host = Host::start(vec![
        rule("video", &[ALICE], &[Right::Create, Right::Send]),
        rule("video", &[BOB], &[Right::Join]),
        rule("news", &[BOB], &[Right::Open]),
    ]);
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    assert!(alice.source("video").is_ok() && bob.sink("video").is_ok());
    assert_eq!([alice.sink("video").map(drop), bob.source("video").map(drop)].map(code), [forbidden(), forbidden()]);
    assert_eq!([alice.create("news"), bob.create("news")].map(code), [forbidden(), forbidden()]);
    root.create("news").unwrap();
    assert_eq!([alice.open("news"), bob.open("news")].map(code), [forbidden(), None]);
    assert_eq!(code(bob.sink("news").map(drop)), forbidden());
    assert!(root.source("news").is_ok() && root.sink("video").is_ok());
}

/// Installs a filter of the user at «video», and returns it with the binding of its parameter to events of `channel`.
fn watch_of(user: User<'_>, channel: &str) -> (FilterId, BindingRequest) {
    user.filter(Direction::Out, "watch", "return get_attribute(seen) >= 0;", None).unwrap();
    let (video, name) = ("video".parse().unwrap(), "watch".parse().unwrap());
    let request = BindingRequest {
        lease: user.lease,
        parameter: "seen".to_owned(),
        channel: channel.to_owned(),
        event_type: "frame".to_owned(),
        field: "number".to_owned(),
    };
    (FilterId { channel: video, direction: Direction::Out, name }, request)
}

/// A binding reads a channel's events, so it needs the right to have a sink there.
#[test]
fn a_binding_needs_what_a_sink_needs() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("secret").unwrap();
    bob.create("video").unwrap();
    let (watched, request) = watch_of(bob, "secret");
    assert_eq!(code(bob.fabric.bind(bob.peer, watched.clone(), &request).map(drop)), forbidden());
    bob.open("secret").unwrap();
    assert_eq!(code(bob.fabric.bind(bob.peer, watched.clone(), &request).map(drop)), None);
    let parameters = [("seen".to_owned(), 1)].into();
    let set = ParameterRequest { parameters, to: FilterScope::Here };
    assert_eq!(code(alice.fabric.parametrize(alice.peer, &watched, &set).map(drop)), forbidden());
}

/// Notifications of decisions that an application has received: attribute, subject, amount.
fn decided(End(duplex, socket): &mut End) -> Vec<(String, String, Option<i64>)> {
    let (mut buffer, mut all) = ([0; 4096], Vec::new());
    while let Some(length) = duplex.next(&*socket, &mut buffer).unwrap() {
        if let Some(FromDaemon::Decided(one)) = FromDaemon::decode(&buffer[..length]) {
            all.push((one.attribute.to_owned(), one.subject.to_owned(), one.amount));
        }
    }
    all
}

/// The numbers in the events that an application has received.
fn came(End(duplex, socket): &mut End) -> Vec<i32> {
    let (mut buffer, mut all) = (vec![0; MAX_MESSAGE], Vec::new());
    while let Some(length) = duplex.next(&*socket, &mut buffer).unwrap() {
        if let Some(FromDaemon::Event(event)) = FromDaemon::decode(&buffer[..length]) {
            all.push(i32::from_le_bytes(event.payload[..4].try_into().unwrap()));
        }
    }
    all
}

#[test]
fn a_hosts_events_are_paced_as_long_as_one_of_its_viewers_is_there() {
    let host = Host::start(Vec::new());
    let alice = host.user(ALICE);
    alice.create("video").unwrap();
    let policy: Policy = serde_json::from_value(serde_json::json!({ "kind": "roles", "channel": "video" })).unwrap();
    host.fabric.start_policy(None, policy).unwrap();
    let rates = || {
        host.call_policies();
        let paced = host.fabric.policies.paced(&"video".parse().unwrap());
        paced.iter().map(|pace| pace.rate_milli).collect::<Vec<_>>()
    };
    let [left, right] = ["left", "right"].map(|name| alice.register(name, "video", [10, 15]));
    let plain = alice.register("plain", "news", [1, 2]);
    assert_eq!(rates(), [15_000]);
    alice.unregister(right);
    alice.unregister(plain);
    assert_eq!(rates(), [15_000], "left is still there");
    alice.unregister(left);
    assert!(rates().is_empty());
    assert!(host.fabric.policies()[0].decided.is_empty(), "no decision is left");
}

#[test]
fn a_delay_puts_off_the_report_that_it_names_and_no_other() {
    let host = Host::start(Vec::new());
    host.fabric.network.add_policy(Box::new(ControlListener(host.fabric.mailbox.clone())));
    let (alice, mut end) = host.reader(ALICE);
    alice.create("video").unwrap();
    alice.sink("video").unwrap();
    host.turn();
    let mut asks = |attribute: &str| {
        let event = told("spread", QualityKind::Delay, attribute, 5_000_000, clock::now());
        let input = Input::Control("quality:video".parse().unwrap(), "camera".parse().unwrap(), event);
        host.fabric.network.manager(|manager, now| manager.handle(input, now));
        host.turn();
        (host.fabric.reports.next().unwrap(), decided(&mut end))
    };
    let due = host.fabric.reports.next().unwrap();
    let said = ("app.report_delay".to_owned(), "app.position".to_owned(), Some(5_000_000));
    assert_eq!(asks("app.position"), (due, vec![said]), "the application reports that");
    assert_eq!(asks("cpu.run_queue"), (due, vec![]), "the monitor reports that");
    assert_eq!(asks(RATE), (due + Nanos::from_millis(5), vec![]));
}

#[test]
fn an_application_is_told_what_is_decided_for_its_number_in_a_group() {
    let host = Host::start(Vec::new());
    let (alice, mut end) = host.reader(ALICE);
    alice.register("player", "crew", [10, 15]);
    let number = number_of(&"crew".parse().unwrap(), &"player".parse().unwrap());
    host.fabric.mailbox.apply(number, AttributeId::of("app.level"), 3);
    host.turn();
    assert_eq!(decided(&mut end), [("app.level".to_owned(), "player".to_owned(), Some(3))]);
}
