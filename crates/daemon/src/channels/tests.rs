//! Isolation of the users of one host, on a real node without other hosts.

mod arrivals;
mod filters;
mod policy_calls;
mod policy_contracts;
mod policy_paces;
mod policy_steady;

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

const DOUBLE: &str = "struct input { int number; }; struct output { int number; };
                      output.number = 2 * input.number; return 1;";

#[test]
fn what_a_user_does_to_events_for_an_own_sink_no_other_sink_sees() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    [bob, root].iter().for_each(|user| user.open("video").unwrap());
    let source = alice.source("video").unwrap();
    let sinks = [alice, bob, root].map(|user| user.sink("video").unwrap());
    bob.filter(Direction::In, "in", DOUBLE, Some(sinks[1])).unwrap();
    bob.filter(Direction::Out, "out", "return input.number != 3;", Some(sinks[1])).unwrap();
    assert_eq!(alice.submit(source, 2), 3);
    assert_eq!(alice.submit(source, 3), 2);
    assert_eq!(sinks.map(|sink| root.take(sink)), [vec![2, 3], vec![4], vec![2, 3]]);
    assert_eq!(code(bob.filter(Direction::In, "other", DOUBLE, Some(sinks[0]))), Some("no_such_member".to_owned()));
}

#[test]
fn a_filter_for_all_is_for_the_channels_creator_and_root() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    [bob, root].iter().for_each(|user| user.open("video").unwrap());
    let (sources, sink) = ([alice, bob].map(|user| user.source("video").unwrap()), root.sink("video").unwrap());
    let refused = bob.filter(Direction::In, "stop", "return 0;", None).unwrap_err();
    assert_eq!(refused.code, "channel_forbidden");
    assert!(refused.message.contains(&BOB.to_string()) && refused.next_step.contains("creator"), "{refused:?}");
    bob.filter(Direction::Out, "own", "return 0;", None).unwrap();
    assert_eq!(
        [(alice, 0), (bob, 1)].map(|(user, of)| user.submit(sources[of], 1)),
        [1, 0],
        "it stops bob's events alone"
    );
    alice.filter(Direction::In, "double", DOUBLE, None).unwrap();
    alice.submit(sources[0], 5);
    assert_eq!(root.take(sink), [1, 10]);
    root.filter(Direction::Out, "stop", "return 0;", None).unwrap();
    assert_eq!(alice.submit(sources[0], 1), 0);
}

#[test]
fn whoever_created_a_channel_that_has_ended_does_not_decide_for_the_next_one() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    alice.fabric.close(alice.peer, &"video".parse().unwrap(), alice.lease).unwrap();
    bob.create("video").unwrap();
    alice.open("video").unwrap();
    assert_eq!(code(alice.filter(Direction::In, "stop", "return 0;", None)), forbidden());
    assert_eq!(code(bob.filter(Direction::In, "stop", "return 1;", None)), None);
}

#[test]
fn filters_of_one_user_leave_room_for_those_of_others() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let install = |user: User<'_>, number: usize| {
        user.filter(Direction::Out, &format!("{}.{number}", user.lease), "return 1;", None)
    };
    let most = (0..).find(|number| install(bob, *number).is_err()).unwrap();
    assert_eq!((most, code(install(bob, most))), (8, Some("channel_limit".to_owned())));
    assert_eq!(code(install(bob, 0)), None, "a filter is replaced");
    assert_eq!(code(install(alice, 0)), None);
}

/// `turns` of a loop of about ten instructions.
fn long(turns: u32) -> String {
    format!("long i; long s; for (i = 0; i < {turns}; i++) s += i; return s >= 0;")
}

#[test]
fn the_filters_of_a_user_on_a_channel_share_a_limit_of_instructions_and_roots_do_not() {
    let host = Host::start(Vec::new());
    let (alice, bob, root) = (host.user(ALICE), host.user(BOB), host.user(0));
    alice.create("video").unwrap();
    [bob, root].iter().for_each(|user| user.open("video").unwrap());
    let sink = bob.sink("video").unwrap();
    let problem = bob.filter(Direction::In, "a", &long(1_000_000), Some(sink)).unwrap_err();
    assert!(problem.message.contains("instructions, the limit is 200000"), "{problem:?}");
    let install = |user: User<'_>, name: &str| user.filter(Direction::Out, name, &long(5_000), None);
    let taken = (0..).find(|number| install(bob, &format!("b{number}")).is_err()).unwrap();
    assert!((2..5).contains(&taken), "{taken}");
    let problem = install(bob, "more").unwrap_err();
    assert_eq!(problem.code, "channel_limit");
    let limit = "200000 is the limit for a user's filters";
    assert!(problem.message.contains("your other filters") && problem.message.contains(limit), "{problem:?}");
    assert!(problem.next_step.contains("channels.max_filter_instructions"), "{problem:?}");
    assert_eq!(code(install(bob, "b0")), None, "a filter is replaced");
    let other = bob.filter(Direction::In, "in", &long(5_000), Some(sink));
    assert_eq!(code(other), None, "the other direction has other events");
    assert!(install(alice, "alice").is_ok() && (0..8).all(|number| install(root, &format!("r{number}")).is_ok()));
    let id = FilterId { channel: "video".parse().unwrap(), direction: Direction::Out, name: "b0".parse().unwrap() };
    bob.fabric.remove_filter(bob.peer, &id, &FilterScope::Here).unwrap();
    assert_eq!(code(install(bob, "more")), None, "a filter that has ended gives its instructions back");
}

/// Alice's filter executes more instructions than her limit allows, because of an event of Bob's. It drops Bob's next
/// events, is called for Carol's, and no event passes it without a call. The limit is so small that the suspension lasts
/// for minutes.
#[test]
fn a_suspended_filter_still_protects_and_drops_the_events_of_the_sender_that_caused_it_alone() {
    let protects = "struct input { int number; }; long i; long s; \
                    for (i = 0; i < 5000 && i < input.number; i++) s += i; return input.number != 3;";
    for direction in [Direction::Out, Direction::In] {
        let host = Host::with(ChannelsConfig { max_filter_instructions_per_second: 1_000, ..Default::default() });
        let (alice, bob, carol) = (host.user(ALICE), host.user(BOB), host.user(CAROL));
        alice.create("video").unwrap();
        [bob, carol].iter().for_each(|user| user.open("video").unwrap());
        let sink = alice.sink("video").unwrap();
        let (of_bob, of_carol) = (bob.source("video").unwrap(), carol.source("video").unwrap());
        alice.filter(direction, "protects", protects, None).unwrap();
        [5_000, 1, 3].iter().for_each(|number| _ = bob.submit(of_bob, *number));
        [3, 2].iter().for_each(|number| _ = carol.submit(of_carol, *number));
        assert_eq!(alice.take(sink), [5_000, 2], "{direction:?}");
        let shown = &host.fabric.show(&"video".parse().unwrap()).unwrap().filters[0];
        assert_eq!((shown.suspended, shown.calls, shown.skipped), (true, 3, 2));
        assert_eq!(host.fabric.report().filters.skipped, 2);
    }
}

#[test]
fn the_filters_of_a_user_above_the_limit_per_second_are_suspended_and_those_of_others_are_not() {
    let config = ChannelsConfig { max_filter_instructions_per_second: 1_000, ..Default::default() };
    let host = Host::with(config);
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let sink = alice.sink("video").unwrap();
    let (of_alice, of_bob) = (alice.source("video").unwrap(), bob.source("video").unwrap());
    let all = "struct input { int number; }; long i; long s; for (i = 0; i < 10000; i++) s += i; \
               return input.number != 3;";
    alice.filter(Direction::Out, "all", all, None).unwrap();
    bob.filter(Direction::Out, "own", "struct input { int number; }; return input.number != 3;", None).unwrap();
    assert_eq!([alice.submit(of_alice, 1), alice.submit(of_alice, 1)], [1, 0], "called once, then suspended");
    assert_eq!([bob.submit(of_bob, 1), bob.submit(of_bob, 1)], [1, 0], "called until he has caused as much");
    alice.filter(Direction::Out, "all", all, None).unwrap();
    assert_eq!(alice.submit(of_alice, 1), 0, "it does not help to install the filter again");
    assert_eq!(alice.take(sink), [1, 1]);
    let shown = host.fabric.show(&"video".parse().unwrap()).unwrap().filters;
    let states: Vec<_> = shown.iter().map(|filter| (filter.suspended, filter.skipped)).collect();
    assert_eq!(states, [(true, 1), (false, 0)]);
    let counts = host.fabric.report().filters;
    assert_eq!((counts.suspensions, counts.skipped), (1, 3));
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
fn filters_of_root_have_no_limit_per_second() {
    let config = ChannelsConfig { max_filter_instructions_per_second: 1_000, ..Default::default() };
    let host = Host::with(config);
    let root = host.user(0);
    root.create("video").unwrap();
    root.sink("video").unwrap();
    let source = root.source("video").unwrap();
    root.filter(Direction::Out, "all", &format!("{} && 0;", long(10_000).trim_end_matches(';')), None).unwrap();
    assert_eq!([root.submit(source, 1), root.submit(source, 2)], [0, 0]);
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

/// The other host would believe that this host asks: the filter may be root's, or of a user there.
#[test]
fn a_user_changes_no_filter_of_another_host_that_no_connection_here_installed() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("video").unwrap();
    bob.open("video").unwrap();
    let id = FilterId { channel: "video".parse().unwrap(), direction: Direction::Out, name: "guard".parse().unwrap() };
    let beta = FilterScope::Hosts(vec!["beta".parse().unwrap()]);
    bob.source("video").unwrap();
    bob.filter(Direction::Out, "guard", "return 1;", None).unwrap(); // of this name, but here
    assert_eq!(code(bob.fabric.remove_filter(bob.peer, &id, &beta).map(drop)), forbidden());
    let set = ParameterRequest { parameters: [("limit".to_owned(), 1)].into(), to: beta };
    assert_eq!(code(bob.fabric.parametrize(bob.peer, &id, &set).map(drop)), forbidden());
}

/// A binding reads a channel's events, so it needs the right to have a sink there.
#[test]
fn a_binding_needs_what_a_sink_needs() {
    let host = Host::start(Vec::new());
    let (alice, bob) = (host.user(ALICE), host.user(BOB));
    alice.create("secret").unwrap();
    bob.create("video").unwrap();
    let (channel, name) = ("video".parse().unwrap(), "watch".parse().unwrap());
    let watched = FilterId { channel, direction: Direction::Out, name };
    bob.filter(Direction::Out, "watch", "return get_attribute(seen) >= 0;", None).unwrap();
    let request = BindingRequest {
        lease: bob.lease,
        parameter: "seen".to_owned(),
        channel: "secret".to_owned(),
        event_type: "frame".to_owned(),
        field: "number".to_owned(),
    };
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

#[test]
fn what_waits_in_a_sinks_queue_or_was_dropped_there_was_not_achieved() {
    let host = Host::start(Vec::new());
    let (alice, _end) = host.reader(ALICE);
    alice.create("video").unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    host.turn();
    let minute = Nanos::from_millis(60_000);
    let rate = |minutes| host.fabric.reports.take(clock::now() + minute.saturating_mul(minutes), minute)[0].rate_milli;
    (0..100).for_each(|number| assert_eq!(alice.submit(source, number), 1));
    host.turn();
    assert_eq!(rate(1), 0, "no event has been read");
    alice.reads(sink, 4);
    assert!(rate(3) > 0);
    assert_eq!(rate(5), 0);
}

#[test]
fn what_the_application_read_too_late_was_not_achieved() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket)) = host.reader(ALICE);
    alice.create("video").unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    host.turn();
    (0..10).for_each(|number| assert_eq!(alice.submit(source, number), 1));
    host.turn();
    alice.reads(sink, 10);
    let mut message = Vec::new();
    let late = LateReport { sink: sink.0, host: "alpha", source: source.0, events: 10 };
    FromClient::Late(late).encode(&mut message);
    assert!(duplex.send(&socket, &message).unwrap());
    host.fabric.read_messages(alice.lease, &mut vec![0; MAX_MESSAGE], None);
    let minute = Nanos::from_millis(60_000);
    assert_eq!(host.fabric.reports.take(clock::now() + minute, minute)[0].rate_milli, 0);
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
fn what_finds_no_room_waits_and_goes_out_in_order_when_there_is() {
    let host = Host::start(Vec::new());
    let (alice, mut end) = host.reader(ALICE);
    alice.create("video").unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    host.turn();
    let mut buffer = vec![0; MAX_MESSAGE];
    let (mut all, mut submitted) = (Vec::new(), 0);
    while submitted < 60 {
        // Fills the queue; the ring holds fewer.
        (0..15).for_each(|number| assert_eq!(alice.submit_long(source, submitted + number, 16_000), 1));
        submitted += 15;
        host.turn();
        alice.reads(sink, 15);
    }
    assert_eq!(host.fabric.registry().leases[&alice.lease].outbox.len(), 1);
    assert_eq!(host.fabric.network.look(|node| node.sink_counts(sink)).unwrap().queued, 16);
    for _ in 0..10 {
        all.extend(came(&mut end));
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
        host.turn();
    }
    // The events in the ring, the waiting event, and the events for which there was credit.
    assert!(all.is_sorted() && all.first() == Some(&0) && all.len() == 16 + 1 + 15, "{all:?}");
}

/// A connection with a source, a message that submits an event, and the number of submitted events.
fn submitting(host: &Host) -> (User<'_>, End, Vec<u8>, impl Fn() -> u64) {
    let (alice, end) = host.reader(ALICE);
    alice.create("video").unwrap();
    let source = alice.source("video").unwrap();
    let mut message = Vec::new();
    FromClient::Submit(SubmitRequest { source: source.0, payload: &[0; 4], ..SubmitRequest::default() })
        .encode(&mut message);
    (alice, end, message, || host.fabric.totals.submitted.load(Ordering::Relaxed))
}

#[test]
fn a_message_is_read_at_once_and_the_packets_that_announce_messages_never_fill_the_socket() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket), message, heard) = submitting(&host);
    let (mut buffer, mut most) = (vec![0; MAX_MESSAGE], 0);
    for number in 1..=1000 {
        assert!(duplex.send(&socket, &message).unwrap());
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
        let here = host.fabric.registry().leases[&alice.lease].socket.clone();
        // One byte each.
        most = most.max(rustix::io::ioctl_fionread(&*here).unwrap());
        assert_eq!(heard(), number);
    }
    assert!((1..40).contains(&most), "{most} unread packets");
}

#[test]
fn the_end_of_a_connection_is_seen_behind_unread_packets_and_its_last_messages_are_read() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket), message, heard) = submitting(&host);
    let (mut buffer, mut noted) = (vec![0; MAX_MESSAGE], Noted::default());
    for number in 1..=3 {
        assert!(duplex.send(&socket, &message).unwrap());
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
        assert_eq!(heard(), number);
    }
    assert!(duplex.send(&socket, &message).unwrap());
    drop(socket);
    host.fabric.serve_lease(alice.lease, EventFlags::IN | EventFlags::HUP, &mut buffer, None);
    host.fabric.mailbox.take(&mut noted);
    assert_eq!((heard(), noted.over), (4, vec![alice.lease]));
}

#[test]
fn who_says_much_is_heard_in_turns_and_nonsense_is_counted() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket), message, heard) = submitting(&host);
    (0..100).for_each(|_| assert!(duplex.send(&socket, &message).unwrap()));
    assert!(duplex.send(&socket, b"nonsense").unwrap());
    let (mut buffer, mut noted) = (vec![0; MAX_MESSAGE], Noted::default());
    // Two wake-ups cause one turn.
    (0..2).for_each(|_| host.fabric.read_messages(alice.lease, &mut buffer, None));
    assert_eq!(heard(), 100);
    (0..100).for_each(|_| assert!(duplex.send(&socket, &message).unwrap()));
    host.fabric.read_messages(alice.lease, &mut buffer, None);
    host.fabric.mailbox.unread(alice.lease);
    host.fabric.mailbox.take(&mut noted);
    assert_eq!((heard(), noted.unread), (164, vec![alice.lease]));
    assert_eq!(host.fabric.totals.nonsense.load(Ordering::Relaxed), 1);
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

/// A panic that the socket's thread contains does not leave a connection that nothing wakes any more.
#[test]
fn a_connection_is_woken_again_after_a_panic_in_its_turn() {
    let host = Host::start(Vec::new());
    let (alice, End(_duplex, socket)) = host.reader(ALICE);
    let mut registry = host.fabric.registry();
    let contained = qfabric_sync::contain(|| {
        let turn = ReadTurn::begin(&mut registry, alice.lease);
        turn.registry.leases.get_mut(&alice.lease).unwrap().owes_wake = true;
        panic!("a defect in a message's handler");
    });
    assert!(contained.is_err());
    let lease = &registry.leases[&alice.lease];
    assert!(!lease.is_read && !lease.owes_wake);
    assert_eq!(rustix::io::read(&socket, &mut [0; 8]), Ok(1), "the byte that wakes it");
}
