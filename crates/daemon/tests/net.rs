//! Tests of packet scheduling through the API: admission, refusals, streams that E-code changes, and the restored
//! queue. They use HTB classes, which every kernel has, on the loopback of a separate network namespace.

mod common;

use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use common::{
    NOBODY, PATIENCE, Process, call, connected, covered_worker, eventually, given, quiet, role, role_command, service,
};
use qfabric_client::ecalls::{Ecalls, MemoryUp, Offers, SubscriptionBuilder};
use qfabric_client::{Client, ClientError, Nanos, Problem};
use qfabric_daemon::Config;
use qfabric_linux::journal::own;
use qfabric_linux::namespace::Namespace;
use qfabric_linux::net::testing::{self, own_network};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::api::net::{
    AttachRequest, Bandwidth, LinkRequest, NetMechanism, Selector, StreamChange, StreamId, StreamInfo, StreamSpec,
    StreamTerms,
};
use qfabric_types::{BitRate, Direction};

const SAMPLE: &str = "struct sample { long value; };";
const RATE: u64 = 10_000_000;

fn attach(client: &Client) {
    let request =
        AttachRequest { mechanism: Some(NetMechanism::Htb), rate_bps: Some(RATE), ..AttachRequest::default() };
    let info = client.attach("lo", &request).unwrap();
    assert_eq!((info.mechanism, info.rate_bps), (NetMechanism::Htb, RATE));
}

fn stream(mark: u32, bytes: u32) -> StreamSpec {
    let mut spec = StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(40));
    spec.size = bytes;
    spec
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Problem {
    match answer {
        Err(ClientError::Refused(problem)) => problem,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn streams_are_admitted_up_to_the_link_and_refused_beyond_it_with_numbers() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    assert_eq!(refusal(client.interface("lo")).code, "net_not_found");
    attach(&client);
    let first = client.begin_stream("lo", &stream(7, 30_000)).unwrap();
    assert!((first.utilization - 0.6).abs() < 1e-6, "{first:?}");
    let over = refusal(client.begin_stream("lo", &stream(8, 30_000)));
    assert_eq!(over.code, "over_link");
    assert!(over.message.contains("= 120 %") && over.message.contains("10000000 bit/s"), "{over:?}");
    assert!(refusal(client.begin_stream("lo", &stream(7, 1_000))).message.contains("stream 0 of lo already has"));
    let changed = StreamChange { size: Some(60_000), ..StreamChange::default() };
    assert_eq!(refusal(client.change_stream("lo", first.id, &changed)).code, "over_link");
    assert_eq!(client.interface("lo").unwrap().streams[0].spec, stream(7, 30_000));
    client.end_stream("lo", first.id).unwrap();
    client.begin_stream("lo", &stream(8, 30_000)).unwrap();
    let (_, metrics) = call(client.socket(), "GET", "/metrics", "");
    assert!(
        metrics.contains("qfabric_net_stream_sent_total{interface=\"lo\",mechanism=\"htb\",stream=\"0\""),
        "{metrics}"
    );
    client.detach("lo").unwrap();
    assert!(client.interfaces().unwrap().is_empty());
}

/// The number of a network namespace, as refusals show it.
fn number_of_namespace(process: &str) -> String {
    std::fs::metadata(format!("/proc/{process}/ns/net")).unwrap().ino().to_string()
}

#[test]
fn a_refusal_names_the_network_namespaces_of_the_daemon_and_of_the_caller() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (service, _client) = service(quiet());
    let daemons = number_of_namespace("thread-self");
    let variables = [("SOCKET", service.socket().to_str().unwrap()), ("DAEMONS", &daemons)];
    assert!(role("a_caller_in_a_namespace", None, &variables).wait(), "a caller in the daemon's namespace");
    let mut elsewhere = role_command("a_caller_in_a_namespace", &variables);
    Namespace::new().unwrap().enter_at_exec(&mut elsewhere).unwrap();
    assert!(Process(elsewhere.spawn().unwrap()).wait(), "a caller in another namespace");
}

#[test]
#[ignore = "run in two namespaces by a_refusal_names_the_network_namespaces_of_the_daemon_and_of_the_caller"]
fn a_caller_in_a_namespace() {
    let client = connected(given("SOCKET"));
    let (daemons, own) = (given("DAEMONS"), number_of_namespace("self"));
    let missing = client.attach("qf9", &AttachRequest { rate_bps: Some(RATE), ..AttachRequest::default() });
    for told in [refusal(client.interface("qf9")), refusal(missing), refusal(client.detach("qf9"))] {
        assert_eq!(told.code, "net_not_found", "{told:?}");
        assert!(told.message.contains(&daemons) && told.message.contains(&own), "{told:?}");
        assert_eq!(told.next_step.contains("nsenter"), daemons != own, "{told:?}");
    }
}

#[test]
fn a_stream_follows_the_attributes_that_a_handler_sets() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    attach(&client);
    let id = client.begin_stream("lo", &stream(7, 5_000)).unwrap().id;
    let ecalls = Ecalls::connect(&client).unwrap();
    let own = ecalls.register_service("test.sample", "", SAMPLE, false).unwrap();
    let code = "attr.period_ns = input.value * 1000000; return 1;";
    let events =
        ecalls.subscribe(&SubscriptionBuilder::to("test.sample").code(code).memory_up(MemoryUp::default())).unwrap();
    let follow = StreamChange { follow: Some(events.id()), ..StreamChange::default() };
    client.change_stream("lo", id, &follow).unwrap();
    own.raise_event(-1, &20i64.to_le_bytes(), Nanos::ZERO, false).unwrap();
    let period = || client.interface("lo").unwrap().streams[0].spec.period;
    eventually("the stream follows", || period() == Nanos::from_millis(20));
    // 5,000 bytes each millisecond are four times the link.
    own.raise_event(-1, &1i64.to_le_bytes(), Nanos::ZERO, false).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(period(), Nanos::from_millis(20), "a change that the link does not carry is refused");
    drop(events);
    eventually("the stream follows no subscription any more", || {
        client.interface("lo").unwrap().streams[0].follows.is_none()
    });
}

/// The address of the test's interface.
const ADDRESS: &str = "10.77.0.1";

fn mbit(rate: u64) -> BitRate {
    BitRate::new(rate * 1_000_000)
}

/// An interface with an address, on which every user may have streams of 2 Mbit/s together.
fn open_link(client: &Client) -> testing::Interface {
    let link = testing::Interface::veth("qf0", "qf0-far").unwrap();
    link.address(ADDRESS.parse().unwrap()).unwrap();
    let request = LinkRequest {
        user_cap_bps: Some(mbit(2)),
        mechanism: Some(NetMechanism::Htb),
        ..LinkRequest::of_rate(BitRate::new(RATE))
    };
    let info = client.open_link("qf0", &request).unwrap();
    assert_eq!((info.rate_bps, info.link.unwrap().capacity_bps.get()), (RATE, 9_500_000));
    link
}

/// 5,000 bytes in each 40 ms for each Mbit/s.
fn of_rate(selector: Selector, rate: BitRate) -> StreamSpec {
    let mut spec = StreamSpec::new(selector, Nanos::from_millis(40));
    spec.size = spec.size_at(rate);
    spec
}

fn flow_of(socket: &UdpSocket) -> Selector {
    Selector::Flow(format!("udp,{},10.77.0.9:9", socket.local_addr().unwrap()).parse().unwrap())
}

fn streams(client: &Client) -> Vec<StreamInfo> {
    client.interface("qf0").unwrap().streams
}

#[test]
fn a_user_has_streams_of_own_sockets_within_the_maximum_and_they_end_with_their_holder() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (service, client) = service(quiet());
    let _link = open_link(&client);
    let roots = UdpSocket::bind((ADDRESS, 0)).unwrap();
    let held = client.begin_stream("qf0", &of_rate(flow_of(&roots), mbit(5))).unwrap();
    assert_eq!(held.promise.owner.unwrap().uid, 0);
    let (socket, port) = (service.socket().to_str().unwrap(), roots.local_addr().unwrap().port().to_string());
    let variables = [("SOCKET", socket), ("ROOTS_PORT", &port), ("ROOTS_STREAM", &held.id.to_string())];
    let mut user = role("a_user_on_an_open_link", Some(NOBODY), &variables);
    assert!(user.wait(), "the user's assertions");
    eventually("the streams of the ended process are over", || streams(&client).len() == 1);
    assert_eq!(client.interface("qf0").unwrap().link.unwrap().promised_bps, mbit(5));
    client.close_link("qf0").unwrap();
    assert!(client.interfaces().unwrap().is_empty(), "the interface was attached for the link");
}

#[test]
#[ignore = "run as another user by a_user_has_streams_of_own_sockets_within_the_maximum_and_they_end_with_their_holder"]
fn a_user_on_an_open_link() {
    let client = connected(given("SOCKET"));
    let own = UdpSocket::bind((ADDRESS, 0)).unwrap();
    let mine = |rate| {
        let terms = StreamTerms { holder: Some(std::process::id() as i32), ..StreamTerms::default() };
        StreamSpec { terms, ..of_rate(flow_of(&own), rate) }
    };
    let over = refusal(client.begin_stream("qf0", &mine(mbit(3))));
    assert_eq!((over.code.as_str(), over.shortage.map(|short| short.largest)), ("user_cap", Some(2_000_000.0)));
    let stream = client.begin_stream("qf0", &mine(mbit(1))).unwrap();
    assert_eq!((stream.promise.owner.unwrap().uid, stream.promise.rate_bps), (NOBODY, mbit(1)));
    let closed = UdpSocket::bind((ADDRESS, 0)).unwrap();
    client.begin_stream("qf0", &of_rate(flow_of(&closed), mbit(1))).unwrap();
    drop(closed);
    eventually("the stream of the closed socket is over", || streams(&client).len() == 2);
    let larger = StreamChange { size: Some(mine(mbit(2)).size), ..StreamChange::default() };
    assert_eq!(client.change_stream("qf0", stream.id, &larger).unwrap().promise.rate_bps, mbit(2));
    check_refusals_of_others(&client, given("ROOTS_STREAM").parse().unwrap(), &given("ROOTS_PORT"));
    let greedy = StreamChange { work_conserving: Some(true), ..StreamChange::default() };
    assert_eq!(refusal(client.change_stream("qf0", stream.id, &greedy)).code, "net_not_permitted");
    let follow = StreamChange { follow: Some(4_711), ..StreamChange::default() };
    assert_eq!(refusal(client.change_stream("qf0", stream.id, &follow)).code, "no_such_subscription");
    assert_eq!(streams(&client)[1].promise.rate_bps, mbit(2));
}

/// Streams, packets and links of others are refused.
fn check_refusals_of_others(client: &Client, stream: StreamId, port: &str) {
    assert_eq!(refusal(client.end_stream("qf0", stream)).code, "not_yours");
    assert_eq!(refusal(client.change_stream("qf0", stream, &StreamChange::default())).code, "not_yours");
    let theirs = Selector::Flow(format!("udp,{ADDRESS}:{port},10.77.0.9:10").parse().unwrap());
    let captured = refusal(client.begin_stream("qf0", &of_rate(theirs, mbit(1))));
    assert!(captured.code == "net_not_permitted" && captured.message.contains("user 0"), "{captured:?}");
    let marked = refusal(client.begin_stream("qf0", &of_rate(Selector::Mark(7), mbit(1))));
    assert_eq!(marked.code, "net_not_permitted");
    let mut held_by_root = of_rate(Selector::Mark(7), mbit(1));
    held_by_root.terms.holder = Some(1);
    assert_eq!(refusal(client.begin_stream("qf0", &held_by_root)).code, "not_yours");
    for problem in [
        refusal(client.open_link("qf0", &LinkRequest::of_rate(mbit(1)))),
        refusal(client.close_link("qf0")),
        refusal(client.detach("qf0")),
        refusal(client.begin_stream("lo", &of_rate(Selector::Mark(7), mbit(1)))),
    ] {
        assert_eq!(problem.code, "net_not_permitted", "{problem:?}");
    }
}

#[test]
fn a_freed_rate_is_offered_or_given_to_partly_granted_streams() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    let _link = open_link(&client);
    let partly = |mark, upgrade| {
        let spec = of_rate(Selector::Mark(mark), mbit(3));
        StreamSpec { terms: StreamTerms { least: Some(200), upgrade, ..StreamTerms::default() }, ..spec }
    };
    let holder = Process::shell("sleep 60");
    let mut first = of_rate(Selector::Mark(1), mbit(5));
    first.terms.holder = Some(holder.pid());
    client.begin_stream("qf0", &first).unwrap();
    let second = client.begin_stream("qf0", &of_rate(Selector::Mark(2), mbit(2))).unwrap();
    let waits = client.begin_stream("qf0", &partly(3, true)).unwrap();
    assert!(waits.promise.rate_bps < mbit(3) && waits.promise.wanted == Some(15_000), "{waits:?}");
    client.change_stream("qf0", second.id, &StreamChange { size: Some(500), ..StreamChange::default() }).unwrap();
    eventually("a freed rate is given", || streams(&client)[2].promise.rate_bps == mbit(3));
    let asks = client.begin_stream("qf0", &partly(4, false)).unwrap();
    assert!(asks.promise.rate_bps < mbit(3) && asks.promise.offer.is_none(), "{asks:?}");
    let mut offers = Offers::subscribe(&Ecalls::connect(&client).unwrap()).unwrap();
    assert_eq!(offers.next(Duration::ZERO).unwrap(), None);
    drop(holder);
    eventually("the stream of the killed process is over", || streams(&client).len() == 3);
    let told = offers.next(PATIENCE).unwrap().unwrap();
    assert_eq!((told.stream, told.granted, told.offered), (asks.id, asks.spec.size, 15_000), "{told:?}");
    let offered = streams(&client).into_iter().find(|stream| stream.id == asks.id).unwrap();
    assert_eq!(offered.promise.offer, Some(15_000), "{offered:?}");
    let accept = StreamChange { size: Some(15_000), ..StreamChange::default() };
    let accepted = client.change_stream("qf0", asks.id, &accept).unwrap().promise;
    assert_eq!((accepted.rate_bps, accepted.wanted, accepted.offer), (mbit(3), None, None));
}

#[test]
fn the_status_of_an_application_names_the_rates_of_its_streams() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    let _link = open_link(&client);
    let (worker, _) = covered_worker(&client);
    let mut own = of_rate(Selector::Mark(1), mbit(2));
    own.terms.holder = Some(worker.pid());
    let id = client.begin_stream("qf0", &own).unwrap().id;
    client.begin_stream("qf0", &of_rate(Selector::Mark(2), mbit(1))).unwrap();
    let bandwidth = || client.status().unwrap().applications[0].bandwidth.clone();
    let expected =
        Bandwidth { interface: "qf0".parse().unwrap(), direction: Direction::Out, stream: id, rate_bps: mbit(2) };
    assert_eq!(bandwidth(), [expected]);
    let (_, metrics) = call(client.socket(), "GET", "/metrics", "");
    for line in ["qfabric_app_bandwidth_bit_rate{", "qfabric_net_link_in_free_bit_rate{interface=\"qf0\""] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    client.end_stream("qf0", id).unwrap();
    assert!(bandwidth().is_empty());
}

#[test]
fn a_stream_ends_with_its_lease_unless_the_lease_is_renewed() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    let _link = open_link(&client);
    let lease = |ms| Some(Nanos::from_millis(ms));
    let leased = |mark, ms| {
        let terms = StreamTerms { lease: lease(ms), ..StreamTerms::default() };
        StreamSpec { terms, ..of_rate(Selector::Mark(mark), mbit(1)) }
    };
    let renewed = client.begin_stream("qf0", &leased(1, 200_000)).unwrap();
    let change = StreamChange { lease: lease(600_000), ..StreamChange::default() };
    let rest = client.change_stream("qf0", renewed.id, &change).unwrap().promise.ends_in.unwrap();
    assert!(rest > Nanos::from_millis(400_000), "{rest}");
    client.begin_stream("qf0", &leased(2, 50)).unwrap();
    eventually("the other stream is over", || streams(&client).len() == 1);
    assert_eq!(streams(&client)[0].id, renewed.id);
    let delay = StreamTerms { delay: lease(10), ..StreamTerms::default() };
    let unknown = StreamSpec { terms: delay, ..of_rate(Selector::Mark(3), mbit(1)) };
    assert!(refusal(client.begin_stream("qf0", &unknown)).next_step.contains("--traffic"));
    let (_, metrics) = call(client.socket(), "GET", "/metrics", "");
    for line in
        ["qfabric_net_link_free_bit_rate{interface=\"qf0\"", "qfabric_net_user_promised_bit_rate{interface=\"qf0\""]
    {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[test]
fn streams_end_when_another_program_replaces_the_queue_that_enforces_them() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    let link = open_link(&client);
    let stream = client.begin_stream("qf0", &of_rate(Selector::Mark(1), mbit(1))).unwrap();
    link.set_root(0x70000, "pfifo", Some(&77u32.to_ne_bytes())).unwrap();
    eventually("the interface is given up", || client.interface("qf0").is_err());
    let renewal = StreamChange { lease: Some(Nanos::from_millis(10_000)), ..StreamChange::default() };
    refusal(client.change_stream("qf0", stream.id, &renewal));
    assert_eq!(link.root().unwrap().0, "pfifo", "what the other program chose stays");
}

#[test]
fn an_interface_that_comes_back_under_its_name_leaves_no_record_of_the_one_before() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let (_service, client) = service(quiet());
    // Where the next start and `qfabric restore` look for them.
    let journals = Config::default().directory().unwrap().join(own::FOLDER);
    let own = format!("{}-", std::process::id());
    let records = || {
        let folders = std::fs::read_dir(&journals).unwrap().flatten();
        let folders = folders.filter(|folder| folder.file_name().to_string_lossy().starts_with(&own));
        let texts = folders.filter_map(|folder| std::fs::read_to_string(folder.path().join("net.json")).ok());
        texts.map(|text| text.matches("ifindex").count()).sum::<usize>()
    };
    for _ in 0..3 {
        let link = testing::Interface::veth("qf0", "qf0-far").unwrap();
        let request = AttachRequest { mechanism: Some(NetMechanism::Htb), rate_bps: Some(RATE), ..Default::default() };
        client.attach("qf0", &request).unwrap();
        client.begin_stream("qf0", &stream(7, 1_000)).unwrap();
        assert_eq!(records(), 1, "of this interface");
        drop(link);
    }
    client.detach("qf0").unwrap();
    assert_eq!(records(), 0);
}

#[test]
fn a_link_of_the_configuration_opens_when_its_interface_appears() {
    if !may_reserve() || own_network().is_err() {
        return;
    }
    let _alone = live_lock();
    let mut config = quiet();
    let text = "rate = \"10M\"\nuser_cap = \"1M\"\n";
    config.net.links.insert("qf1".parse().unwrap(), toml::from_str(text).unwrap());
    let (_service, client) = service(config);
    assert_eq!(refusal(client.interface("qf1")).code, "net_not_found");
    let _late = testing::Interface::veth("qf1", "qf1-far").unwrap();
    eventually("the link is open", || client.interface("qf1").is_ok_and(|info| info.link.is_some()));
    let link = client.interface("qf1").unwrap().link.unwrap();
    assert_eq!((link.limits.user_cap_bps, link.free_bps), (Some(mbit(1)), BitRate::new(9_500_000)));
    let faster = refusal(client.open_link("qf1", &LinkRequest::of_rate(mbit(11))));
    assert!(faster.code == "net_refused" && faster.next_step.contains("at most 10 Mbit/s"), "{faster:?}");
}
