//! ECalls on the kernel's services, under a real daemon.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{PATIENCE, connected, eventually, quiet};
use qfabric_client::ecalls::{
    CallOutcome, Ecalls, Event, MemoryUp, Notice, OnFault, Signals, State, Step, Subscription, SubscriptionBuilder,
    event_json,
};
use qfabric_client::{Client, ClientError, Contract, Foresight, Nanos, Session};
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::testing::{live_lock, may_reserve};
use serde_json::{Map, Value};

/// Runs `test` with a daemon and a connection. Skips it on a kernel without the needed features.
fn with_daemon(test: impl FnOnce(&Client, &Ecalls)) {
    with(|_| (), test);
}

/// As [`with_daemon`], with another configuration.
fn with(change: impl FnOnce(&mut Config), test: impl FnOnce(&Client, &Ecalls)) {
    if !may_reserve() || qfabric_linux::ecalls::Kernel::open().is_err() {
        return;
    }
    let _alone = live_lock();
    let mut config = quiet();
    change(&mut config);
    let daemon = Embedded::start(config).unwrap();
    let client = connected(daemon.socket());
    let ecalls = Ecalls::connect(&client).unwrap();
    test(&client, &ecalls);
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

/// Subscribes, with shared memory as the last step.
fn subscribe(ecalls: &Ecalls, wanted: SubscriptionBuilder) -> Subscription {
    ecalls.subscribe(&wanted.memory_up(MemoryUp::default())).unwrap()
}

fn timer(period: &str) -> SubscriptionBuilder {
    SubscriptionBuilder::to("timer").option("period", period)
}

fn fields(subscription: &mut Subscription) -> Map<String, Value> {
    let format = subscription.info().format.clone();
    let Event { data, .. } = subscription.next(PATIENCE).unwrap().expect("an event in time");
    event_json::decode(&format, data)
}

#[test]
fn a_handler_in_the_kernel_averages_and_its_memory_has_the_means_only() {
    with_daemon(|client, ecalls| {
        let code = "struct output { long mean; long count; };
            { static long sum; static long n;
              sum += input.count; n++;
              if (n < 4) return 0;
              output.mean = sum / n; output.count = n; sum = 0; n = 0; return 1; }";
        let mut means = subscribe(ecalls, timer("1ms").code(code));
        assert_eq!(means.info().in_kernel, [Step::KCode, Step::MemoryUp]);
        let (first, second) = (fields(&mut means), fields(&mut means));
        assert_eq!(first["count"], 4);
        assert_eq!(second["mean"].as_i64().unwrap() - first["mean"].as_i64().unwrap(), 4);
        let counters = client.subscription(means.id()).unwrap().counters;
        assert!(counters.blocked > 2 * counters.passed && counters.memory >= 2, "{counters:?}");
    });
}

#[test]
fn a_filter_in_the_kernel_sees_attributes_as_they_are_stored() {
    with_daemon(|_, ecalls| {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = port.local_addr().unwrap();
        let code =
            format!("attr.seen += 1; return input.destination_port == {} && input.data_len > attr.limit;", to.port());
        let wanted = SubscriptionBuilder::to("net.rx").option("interface", "lo").code(&code).attribute("limit", 60);
        let mut packets = subscribe(ecalls, wanted);
        let (limit, seen) = (ecalls.attribute("limit").unwrap(), ecalls.attribute("seen").unwrap());
        port.send_to(&[1; 10], to).unwrap();
        port.send_to(&[2; 100], to).unwrap();
        assert_eq!(fields(&mut packets)["data"][0], 2);
        limit.set(0);
        port.send_to(&[3; 10], to).unwrap();
        assert_eq!(fields(&mut packets)["data"][0], 3);
        assert!(seen.get() >= 3);
    });
}

#[test]
fn a_filter_in_front_of_a_tcp_server_drops_what_the_server_would_read() {
    with_daemon(|_, ecalls| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let wanted = SubscriptionBuilder::to("sock.stream").option("listen", address).option("drop", "yes");
        let code = "attr.seen += 1; if (input.data[0] == attr.unwanted) { emit(); return 0; } return 1;";
        let mut bytes = subscribe(ecalls, wanted.code(code).attribute("unwanted", i64::from(b'x')));
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"x away").unwrap();
        let dropped = fields(&mut bytes);
        assert_eq!((&dropped["len"], &dropped["family"]), (&Value::from(6), &Value::from(2)));
        client.write_all(b"stays").unwrap();
        let mut read = [0; 5];
        server.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"stays");
        assert!(ecalls.attribute("seen").unwrap().get() >= 2);
        assert_eq!(fields(&mut bytes)["data"][0], Value::from(b's'));
    });
}

#[test]
fn events_that_pass_in_the_kernel_continue_in_a_handler_thread() {
    with_daemon(|_, ecalls| {
        ecalls.name_handler("test.even", "return input.count % 2 == 0;").unwrap();
        let slow = "long i; for (i = 0; i < 1000; i++) ; output.count = input.count * 10; return 1;";
        let mut events = subscribe(ecalls, timer("1ms").handler("test.even").thread().code(slow));
        assert_eq!(events.info().in_kernel, [Step::KHandler]);
        assert_eq!(events.info().in_daemon, [Step::KThread, Step::KCode, Step::MemoryUp]);
        let counts = [fields(&mut events)["count"].clone(), fields(&mut events)["count"].clone()];
        assert_eq!(counts, [Value::from(20), Value::from(40)]);
    });
}

/// Each event is emitted once, and every fourth call ends with a fault afterwards.
const EMITS_AND_FAULTS: &str = "output = input; output.count = input.count * 2; emit(); return 7 / (input.count % 4);";

/// Chains whose events depend on the number of the event only: a named handler, then code, and the policy for faults.
/// `@` is replaced, so that the two places of a chain have separate attributes.
const CHAINS: [(Option<&str>, &str, OnFault); 10] = [
    (Some("return input.count % 2;"), "output = input; output.count = input.count * 10; return 1;", OnFault::Block),
    (None, "output = input; output.count = 500; return 7 / (input.count % 4);", OnFault::Pass),
    (None, "output = input; output.count = 500; return 7 / (input.count % 4);", OnFault::Block),
    (
        Some("output = input; output.count = 500; return 9 / (input.count % 4);"),
        "output = input; output.count = input.count + 100; return 1;",
        OnFault::Pass,
    ),
    (
        None,
        "output = input; output.count = input.count * 2; emit(); output.count = 7; emit(); return 0;",
        OnFault::Block,
    ),
    (None, EMITS_AND_FAULTS, OnFault::Block),
    (None, EMITS_AND_FAULTS, OnFault::Pass),
    (
        Some("attr.level@ = 5; attr.level@ += input.count; return 1;"),
        "output = input; output.count = attr.level@; return 1;",
        OnFault::Block,
    ),
    (
        Some("attr.last@ = input.count; return 1 / (input.count % 4);"),
        "attr.sum@ += attr.last@; output = input; output.count = attr.sum@; return 1;",
        OnFault::Pass,
    ),
    (
        Some("static long n = 3; n += input.count; output = input; output.count = n; return 1;"),
        "static int k; if (k++ % 3 == 2) return 0; output = input; output.count = input.count - k; return 1;",
        OnFault::Block,
    ),
];

#[test]
fn a_chain_delivers_the_same_events_from_the_kernel_and_from_the_daemon() {
    // On a starving machine the daemon handles the events of a second at once, and all their faults.
    let many_faults = |config: &mut Config| config.ecalls.faults_per_second = 1_000;
    with(many_faults, |_, ecalls| {
        let chain = |number: usize, place: &str| {
            let (named, code, on_fault) = CHAINS[number];
            let mut wanted = timer("20ms").on_fault(on_fault);
            if place == "daemon" {
                wanted = wanted.thread();
            }
            if let Some(text) = named {
                let name = format!("test.{place}{number}");
                ecalls.name_handler(&name, &text.replace('@', place)).unwrap();
                wanted = wanted.handler(&name);
            }
            subscribe(ecalls, wanted.code(&code.replace('@', place)))
        };
        let mut all: Vec<_> =
            (0..CHAINS.len()).map(|number| ["kernel", "daemon"].map(|at| chain(number, at))).collect();
        for (number, pair) in all.iter_mut().enumerate() {
            assert!(pair[0].info().in_daemon.is_empty() && pair[1].info().in_kernel.is_empty());
            let [kernel, daemon] = pair
                .each_mut()
                .map(|events| -> Vec<i64> { (0..10).map(|_| fields(events)["count"].as_i64().unwrap()).collect() });
            assert_eq!(kernel, daemon, "chain {number}: {:?}", CHAINS[number]);
        }
    });
}

#[test]
fn a_group_at_a_kernel_service_receives_events_in_turn() {
    with_daemon(|_, ecalls| {
        let one = || timer("2ms").group("workers");
        let (mut a, mut b) = (subscribe(ecalls, one()), subscribe(ecalls, one()));
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(fields(&mut a)["count"].as_i64().unwrap());
            seen.push(fields(&mut b)["count"].as_i64().unwrap());
        }
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all, "no event is delivered twice: {seen:?}");
        let other = timer("3ms").group("workers").memory_up(MemoryUp::default());
        let ClientError::Refused(problem) = ecalls.subscribe(&other).unwrap_err() else { panic!() };
        assert!(problem.message.contains("other options"), "{problem:?}");
    });
}

#[test]
fn a_kernel_handler_that_faults_too_often_is_removed_and_its_owner_notified() {
    with_daemon(|client, ecalls| {
        let wanted = timer("1ms").code("return 1 / (input.count - input.count);");
        let events = ecalls.subscribe(&wanted).unwrap();
        let Some(Notice::TakenOut { subscription, why }) = ecalls.next_notice(PATIENCE).unwrap() else { panic!() };
        assert!(subscription == events.id() && why.contains("division by zero in line 1"), "{why}");
        let info = client.subscription(events.id()).unwrap();
        assert!(matches!(info.state, State::TakenOut { .. }) && info.counters.faults > 16, "{info:?}");
    });
}

#[test]
fn deferred_values_are_handled_as_a_batch_at_the_next_system_call() {
    with_daemon(|_, ecalls| {
        let code = "int i; for (i = 0; i < input.count; i++) attr.sum += input.value[i]; attr.batches += 1; return 0;";
        let wanted = SubscriptionBuilder::to("app.deferred").option("when", "syscall").only(own_pid()).code(code);
        let _handler = ecalls.subscribe(&wanted).unwrap();
        let (sum, batches) = (ecalls.attribute("sum").unwrap(), ecalls.attribute("batches").unwrap());
        for value in [5, 6, 7] {
            ecalls.defer(value).unwrap();
        }
        eventually("the batch is handled", || sum.get() == 18);
        assert!(batches.get() <= 3);
    });
}

/// A subscription to fast calls of this process.
fn calls(ecalls: &Ecalls, options: &[(&str, &str)], code: &str) -> Subscription {
    let wanted = SubscriptionBuilder::to("app.call").only(own_pid()).code(code);
    let wanted = options.iter().fold(wanted, |wanted, (name, value)| wanted.option(name, value));
    ecalls.subscribe(&wanted).unwrap()
}

/// Values of a call, with the given first one.
fn first(value: i64) -> [i64; 8] {
    [value, 0, 0, 0, 0, 0, 0, 0]
}

/// The owner of the blocking call is this process, too.
#[test]
fn a_fast_call_is_done_at_once_or_becomes_the_blocking_call() {
    with_daemon(|client, ecalls| {
        let format = "struct call { long value[8]; };";
        let _owner = ecalls.register_service("test.slow", "slow calls", format, false).unwrap();
        let calls = calls(ecalls, &[], "if (input.value[0] < 0) return 8; return 16 * input.value[0] + 3;");
        let call = |value| calls.call_or_wait(first(value), "test.slow", PATIENCE / 2).unwrap();
        let fast = call(7);
        assert!(matches!(fast, CallOutcome::Fast(verdict) if verdict.answer() == 7 && verdict.schedules()), "{fast:?}");
        let server = ecalls.clone();
        let answering = std::thread::spawn(move || {
            let Some(Notice::Call { call, data, .. }) = server.next_notice(PATIENCE).unwrap() else { panic!() };
            server.reply(call, &data[..8]).unwrap();
        });
        assert_eq!(call(-5), CallOutcome::Blocking((-5_i64).to_ne_bytes().to_vec()));
        answering.join().unwrap();
        assert_eq!(client.subscription(calls.id()).unwrap().counters.calls, 2);
    });
}

#[test]
fn the_signal_of_a_fast_call_is_there_when_the_call_returns() {
    with_daemon(|_, ecalls| {
        // The kernel sends it to the thread that calls, the only one that blocks it.
        let signals = Signals::keep(50).unwrap();
        let calls = calls(ecalls, &[("signal", "50")], "return input.value[0];");
        let pending = || signals.next(Duration::ZERO).unwrap();
        assert!(!calls.call(first(1)).unwrap().signals() && pending().is_none());
        assert!(calls.call(first(4)).unwrap().signals() && pending().is_some());
        assert_eq!(pending(), None);
    });
}

#[test]
fn a_fast_call_of_a_removed_handler_falls_back() {
    with_daemon(|_, ecalls| {
        let calls = calls(ecalls, &[], "return 1 / (input.value[0] - 1);");
        assert!(!calls.call(first(2)).unwrap().blocks());
        (0..64).for_each(|_| assert!(calls.call(first(1)).unwrap().blocks(), "a fault"));
        let Some(Notice::TakenOut { subscription, .. }) = ecalls.next_notice(PATIENCE).unwrap() else { panic!() };
        assert_eq!(subscription, calls.id());
        eventually("no handler runs", || calls.call(first(2)).unwrap().blocks());
    });
}

/// Subscribes and unsubscribes up to `turns` times, and keeps the memory and the program of each turn. Returns them,
/// and the refusal of the last turn.
fn hoard(
    client: &Client,
    ecalls: &Ecalls,
    wanted: &SubscriptionBuilder,
    turns: usize,
) -> (Vec<Subscription>, Option<ClientError>) {
    let mut kept = Vec::new();
    for _ in 0..turns {
        match ecalls.subscribe(wanted) {
            Ok(one) => {
                client.unsubscribe(one.id()).unwrap();
                kept.push(one);
            }
            Err(refused) => return (kept, Some(refused)),
        }
    }
    (kept, None)
}

#[test]
fn memory_and_programs_of_ended_subscriptions_count_until_their_process_closes_them() {
    const MOST: usize = 4;
    let calls = SubscriptionBuilder::to("app.call").only(own_pid()).code("return 1;");
    let by_kernel = timer("1s").memory_up(MemoryUp::default());
    let by_daemon = SubscriptionBuilder::to("sched.deadline_miss").memory_up(MemoryUp::default());
    for wanted in [by_kernel, by_daemon, calls] {
        let few = |config: &mut Config| config.ecalls.max_subscriptions = MOST;
        with(few, |client, ecalls| {
            let (kept, refused) = hoard(client, ecalls, &wanted, 3 * MOST);
            let Some(ClientError::Refused(problem)) = refused else { panic!("{} times", kept.len()) };
            assert_eq!((kept.len(), problem.code.as_str()), (MOST, "ecalls_limit"), "{problem:?}");
            assert!(problem.message.contains("4 of them ended but still held"), "{problem:?}");
            drop(kept);
            // The daemon can have references for a moment, too.
            eventually("all places are free", || hoard(client, ecalls, &wanted, MOST).0.len() == MOST);
        });
    }
}

#[test]
fn a_signal_reaches_another_process_by_the_kernel_and_by_the_daemon() {
    with_daemon(|_, ecalls| {
        for by_kernel in [true, false] {
            let mut process = Command::new("sleep").arg("600").spawn().unwrap();
            let wanted = SubscriptionBuilder::to("app.call").only(own_pid()).process(process.id() as i32);
            let wanted = wanted.code("return 1;").signal(40);
            let wanted = if by_kernel { wanted.signal_by_kernel() } else { wanted };
            let calls = ecalls.subscribe(&wanted).unwrap();
            assert!(!calls.call(first(1)).unwrap().blocks());
            assert_eq!(process.wait().unwrap().signal(), Some(40), "by the kernel: {by_kernel}");
        }
    });
}

#[test]
fn threads_defer_values_at_the_same_time_without_loss() {
    with_daemon(|_, ecalls| {
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    (0..16).for_each(|value| ecalls.defer(value).unwrap());
                });
            }
        });
        assert!(ecalls.defer(64).is_err(), "all 64 places are taken");
    });
}

#[test]
fn a_missed_deadline_is_an_event() {
    with_daemon(|client, ecalls| {
        let mut misses = subscribe(ecalls, SubscriptionBuilder::to("sched.deadline_miss").only(own_pid()));
        let contract =
            Contract { max_bandwidth: "0.3".parse().unwrap(), ..Contract::new("late", Nanos::from_millis(10)) };
        let mut session = Session::start(client, contract).unwrap();
        let until = Instant::now() + PATIENCE;
        while misses.flag() == 0 && Instant::now() < until {
            let job = Instant::now();
            while job.elapsed() < Duration::from_millis(25) {}
            session.end_cycle(Foresight::Nothing);
            session.wait_for_next_job();
        }
        let miss = fields(&mut misses);
        assert_eq!((miss["pid"].as_i64(), miss["app"].as_u64()), (Some(own_pid().into()), session.id().map(|id| id.0)));
        assert!(miss["error_ns"].as_i64().unwrap() > 0 && miss["period_ns"].as_u64().unwrap() > 0, "{miss:?}");
    });
}

#[test]
fn ready_sockets_are_seen_in_shared_memory() {
    with_daemon(|_, ecalls| {
        let sockets = ecalls.sockets().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        sockets.add(&served).unwrap();
        let fd = served.as_raw_fd() as u32;
        assert_eq!(sockets.for_each_active(fd, |_| ()), 1, "a new socket is marked active once");
        assert!(!sockets.wait(fd, Duration::from_millis(20)).unwrap());
        client.write_all(b"hello").unwrap();
        assert!(sockets.wait(fd, PATIENCE).unwrap());
        let mut active = Vec::new();
        sockets.for_each_active(fd, |fd| active.push(fd));
        assert_eq!(active, [fd]);
        let mut came = [0; 8];
        assert_eq!(served.read(&mut came).unwrap(), 5);
        sockets.remove(&served);
        client.write_all(b"again").unwrap();
        assert!(!sockets.wait(fd, Duration::from_millis(50)).unwrap(), "the watch has ended");
    });
}
