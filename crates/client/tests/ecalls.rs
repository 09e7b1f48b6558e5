//! ECalls under a real daemon and the real kernel.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{PATIENCE, connected, eventually, quiet};
use qfabric_client::ecalls::{
    Ecalls, Event, Layout, MemoryUp, Notice, OwnService, State, Step, Subscription, SubscriptionBuilder, event_json,
};
use qfabric_client::{Client, ClientError, Nanos};
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::clock;
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::api::ecalls::ServiceRequest;
use serde_json::json;

const SAMPLE: &str = "struct sample { long value; int pid; int kind; };";

fn daemon_in(directory: &Path, change: impl FnOnce(&mut Config)) -> Embedded {
    let mut config = quiet().in_directory(directory);
    config.control.budget = Nanos::ZERO;
    change(&mut config);
    Embedded::start(config).unwrap()
}

fn with(change: impl FnOnce(&mut Config), test: impl FnOnce(&Client, &Ecalls)) {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon_in(directory.path(), change);
    let client = connected(daemon.socket());
    let ecalls = Ecalls::connect(&client).unwrap();
    test(&client, &ecalls);
}

fn with_daemon(test: impl FnOnce(&Client, &Ecalls)) {
    with(|_| (), test);
}

fn service(ecalls: &Ecalls) -> OwnService {
    ecalls.register_service("test.sample", "numbers", SAMPLE, false).unwrap()
}

fn sample(value: i64) -> Vec<u8> {
    [&value.to_le_bytes()[..], &7i32.to_le_bytes(), &0i32.to_le_bytes()].concat()
}

fn raise(service: &OwnService, value: i64) {
    service.raise_event(-1, &sample(value), Nanos::ZERO, false).unwrap();
}

fn value(event: Event<'_>) -> i64 {
    i64::from_le_bytes(event.data[..8].try_into().unwrap())
}

fn next(subscription: &mut Subscription) -> i64 {
    value(subscription.next(PATIENCE).unwrap().expect("an event in time"))
}

#[test]
fn an_event_raised_by_a_process_is_read_from_memory_by_its_subscribers() {
    with_daemon(|client, ecalls| {
        let own = service(ecalls);
        let mut all = ecalls.subscribe(&SubscriptionBuilder::to("test.sample").memory_up(MemoryUp::default())).unwrap();
        let filter =
            SubscriptionBuilder::to("test.sample").code("return input.value > 1;").memory_up(MemoryUp::default());
        let mut large = ecalls.subscribe(&filter).unwrap();
        (1..=3).for_each(|value| raise(&own, value));
        assert_eq!([next(&mut all), next(&mut all), next(&mut all)], [1, 2, 3]);
        assert_eq!([next(&mut large), next(&mut large)], [2, 3]);
        assert_eq!((all.flag(), large.flag()), (3, 2));
        let counters = large.now().unwrap().counters;
        assert_eq!((counters.events, counters.passed, counters.blocked, counters.memory), (3, 2, 1, 2));
        let listed = client.services().unwrap();
        let listed = listed.iter().find(|s| s.name == "test.sample").unwrap();
        assert_eq!((listed.raised, listed.subscribers, listed.pid), (3, 2, Some(std::process::id() as i32)));
    });
}

#[test]
fn later_steps_receive_changed_and_emitted_events_and_variables_persist() {
    with_daemon(|_, ecalls| {
        let own = service(ecalls);
        let code = "struct output { long mean; int count; };
            { static long sum; static int n;
              sum += input.value; n++;
              if (n < 4) return 0;
              output.mean = sum / n; output.count = n; sum = 0; n = 0; return 1; }";
        let mut means = ecalls
            .subscribe(&SubscriptionBuilder::to("test.sample").code(code).memory_up(MemoryUp::default()))
            .unwrap();
        assert_eq!(means.info().format.fields[0].name, "mean");
        (1..=8).for_each(|value| raise(&own, 10 * value));
        assert_eq!([next(&mut means), next(&mut means)], [25, 65]);
    });
}

#[test]
fn attributes_are_shared_by_handlers_and_application_without_system_calls() {
    with_daemon(|client, ecalls| {
        let own = service(ecalls);
        let code = "attr.seen += 1; return input.value > attr.limit;";
        let wanted =
            SubscriptionBuilder::to("test.sample").code(code).memory_up(MemoryUp::default()).attribute("limit", 5);
        let mut events = ecalls.subscribe(&wanted).unwrap();
        let (limit, seen) = (ecalls.attribute("limit").unwrap(), ecalls.attribute("seen").unwrap());
        assert_eq!(limit.get(), 5);
        raise(&own, 5);
        raise(&own, 6);
        assert_eq!(next(&mut events), 6);
        limit.set(1);
        raise(&own, 2);
        assert_eq!((next(&mut events), seen.get()), (2, 3));
        let changed = client.set_attributes(events.id(), [("limit".to_owned(), 9)].into()).unwrap();
        assert_eq!((limit.get(), changed.attributes.len()), (9, 2));
        let ClientError::Value(problem) = ecalls.attribute("nothing").unwrap_err() else { panic!() };
        let used = &problem.next_step;
        assert!(used.contains("limit, seen") || used.contains("seen, limit"), "{problem:?}");
    });
}

#[test]
fn a_group_receives_events_in_turn_and_a_named_process_receives_them_alone() {
    with_daemon(|_, ecalls| {
        let own = service(ecalls);
        let one = || SubscriptionBuilder::to("test.sample").group("workers").memory_up(MemoryUp::default());
        let (mut a, mut b) = (ecalls.subscribe(&one()).unwrap(), ecalls.subscribe(&one()).unwrap());
        (1..=4).for_each(|value| raise(&own, value));
        assert_eq!([next(&mut a), next(&mut b), next(&mut a), next(&mut b)], [1, 2, 3, 4]);
        own.raise_event(1, &sample(5), Nanos::ZERO, false).unwrap();
        own.raise_event(std::process::id() as i32, &sample(6), Nanos::ZERO, false).unwrap();
        assert_eq!(next(&mut a), 6);
    });
}

#[test]
fn a_handler_thread_carries_on_behind_a_filter() {
    with_daemon(|_, ecalls| {
        let own = service(ecalls);
        ecalls.name_handler("test.odd", "return input.value & 1;").unwrap();
        let slow = "long i; long s; for (i = 0; i < 1000; i++) s += i; output.value = s + input.value; return 1;";
        let wanted = SubscriptionBuilder::to("test.sample")
            .handler("test.odd")
            .thread()
            .code(slow)
            .memory_up(MemoryUp::default());
        let mut events = ecalls.subscribe(&wanted).unwrap();
        assert_eq!(events.info().in_daemon, [Step::KHandler, Step::KThread, Step::KCode, Step::MemoryUp]);
        (1..=4).for_each(|value| raise(&own, value));
        assert_eq!([next(&mut events), next(&mut events)], [499_501, 499_503]);
    });
}

#[test]
fn late_events_are_dropped_and_counted() {
    with_daemon(|_, ecalls| {
        let own = service(ecalls);
        let busy = "long i; for (i = 0; i < 10000; i++) ; return 0;";
        let _slow = ecalls.subscribe(&SubscriptionBuilder::to("test.sample").code(busy)).unwrap();
        let wanted =
            SubscriptionBuilder::to("test.sample").deadline(Nanos::from_micros(1)).memory_up(MemoryUp::default());
        let events = ecalls.subscribe(&wanted).unwrap();
        for _ in 0..50 {
            raise(&own, 1);
        }
        eventually("every event is delivered or late", || {
            let counters = events.now().unwrap().counters;
            counters.late + counters.passed == 50 && counters.late > 0
        });
    });
}

/// Computes the display time of a frame from the words of a player (000 §3.5.2).
const DISPLAY: &str = "struct output { long value; long display; };
    { output.value = input.value;
      output.display = attr.shown + (input.value - attr.frame) * 1000000000000 / attr.rate; return 1; }";

/// A subscription to frames at their display times; `rate` is in frames per 1000 s.
fn displays(ecalls: &Ecalls, rate: i64, shown: i64) -> Subscription {
    let wanted = SubscriptionBuilder::to("test.sample").code(DISPLAY).hold_until("display");
    let wanted = wanted.memory_up(MemoryUp::default()).attribute("rate", rate).attribute("shown", shown);
    ecalls.subscribe(&wanted).unwrap()
}

#[test]
fn frames_are_announced_in_order_at_the_display_times_that_the_handler_computes() {
    const MS: i64 = 1_000_000;
    with_daemon(|_, ecalls| {
        let own = service(ecalls);
        // Far enough away that all frames are raised before the first display time.
        let soon = || clock::now().get() as i64 + 2_000 * MS;
        let mut frames = displays(ecalls, 100_000, 0);
        let [rate, frame, shown] = ["rate", "frame", "shown"].map(|name| ecalls.attribute(name).unwrap());
        let begin = soon();
        shown.set(begin);
        let mut announced = || {
            let event = frames.next(PATIENCE).unwrap().expect("an event in time");
            let (display, number) = (event.time_ns as i64, value(event));
            assert!(clock::now().get() as i64 >= display, "frame {number} was announced before its display time");
            (number, display)
        };
        [3, 1, 4, 2].into_iter().for_each(|number| raise(&own, number));
        let expected = [1, 2, 3, 4].map(|number| (number, begin + number * 10 * MS));
        assert_eq!([announced(), announced(), announced(), announced()], expected, "10 ms apart, from the begin on");
        let last = soon();
        frame.set(4);
        shown.set(last);
        rate.set(200_000);
        [6, 5].into_iter().for_each(|number| raise(&own, number));
        assert_eq!([announced(), announced()], [(5, last + 5 * MS), (6, last + 10 * MS)], "at the new rate");
        assert_eq!((frames.info().in_daemon.as_slice(), frames.now().unwrap().counters.passed), (HELD, 6));
    });
}

const HELD: &[Step] = &[Step::KCode, Step::Hold, Step::MemoryUp];

#[test]
fn an_event_that_is_held_too_long_or_comes_too_late_is_dropped_and_counted() {
    with_daemon(|_, ecalls| {
        let own = service(ecalls);
        let held = || SubscriptionBuilder::to("test.sample").hold_until("value").memory_up(MemoryUp::default());
        let mut events = ecalls.subscribe(&held()).unwrap();
        let strict = ecalls.subscribe(&held().deadline(Nanos::from_millis(1))).unwrap();
        let now = clock::now().get() as i64;
        // The moment of one has passed by a second, and the other's is in a minute.
        [now - 1_000_000_000, now + 60_000_000_000].into_iter().for_each(|moment| raise(&own, moment));
        assert_eq!(next(&mut events), now - 1_000_000_000, "an event whose moment has passed follows at once");
        eventually("both are counted", || {
            let counters = strict.now().unwrap().counters;
            (counters.late, counters.dropped_queue, counters.passed) == (1, 1, 0)
        });
        let unknown = SubscriptionBuilder::to("test.sample").hold_until("nothing").memory_up(MemoryUp::default());
        let refused = ecalls.subscribe(&unknown).map(drop).unwrap_err().to_string();
        assert!(refused.contains("nothing"), "{refused}");
    });
}

#[test]
fn a_held_event_of_an_ended_subscription_is_not_delivered() {
    with_daemon(|client, ecalls| {
        let own = service(ecalls);
        let held = SubscriptionBuilder::to("test.sample").hold_until("value").memory_up(MemoryUp::default());
        let mut second = ecalls.subscribe(&held).unwrap();
        // On a starving machine the moment may come before the end: then with a later one.
        for ms in [100, 1_000, 3_000] {
            let first = ecalls.subscribe(&held).unwrap();
            let moment = clock::now().get() as i64 + ms * 1_000_000;
            raise(&own, moment);
            client.unsubscribe(first.id()).unwrap();
            let is_ended_before = (clock::now().get() as i64) < moment;
            assert_eq!(next(&mut second), moment);
            if is_ended_before {
                return assert_eq!(first.flag(), 0);
            }
        }
        panic!("the subscription never ended before the moment of the event");
    });
}

#[test]
fn a_handler_that_faults_too_often_is_removed_and_its_owner_notified() {
    with(
        |config| config.ecalls.faults_per_second = 5,
        |client, ecalls| {
            let own = service(ecalls);
            let faulty = "return 10 / (input.value - input.value);";
            let events = ecalls.subscribe(&SubscriptionBuilder::to("test.sample").code(faulty)).unwrap();
            (0..20).for_each(|value| raise(&own, value));
            let Some(Notice::TakenOut { subscription, why }) = ecalls.next_notice(PATIENCE).unwrap() else { panic!() };
            assert_eq!(subscription, events.id());
            assert!(why.contains("division by zero in line 1") && why.contains("5 are allowed"), "{why}");
            let state = client.subscription(events.id()).unwrap().state;
            assert!(matches!(state, State::TakenOut { .. }), "{state:?}");
        },
    );
}

#[test]
fn a_call_is_answered_by_the_services_owner_or_times_out() {
    with_daemon(|_, ecalls| {
        let own = service(ecalls);
        let server = ecalls.clone();
        let answering = std::thread::spawn(move || {
            let Some(Notice::Call { call, data, .. }) = server.next_notice(PATIENCE).unwrap() else { panic!() };
            server.reply(call, &[&data[..1], b"!"].concat()).unwrap();
        });
        assert_eq!(ecalls.call("test.sample", &sample(65), PATIENCE / 2).unwrap(), b"A!");
        answering.join().unwrap();
        let ClientError::Refused(problem) =
            ecalls.call("test.sample", &sample(65), Duration::from_millis(20)).unwrap_err()
        else {
            panic!()
        };
        assert_eq!(problem.code, "no_answer");
        drop(own);
    });
}

#[test]
fn a_full_memory_drops_the_newest_and_slots_with_a_meaning_keep_it() {
    with_daemon(|_, ecalls| {
        let own = service(ecalls);
        let ring = MemoryUp { slots: 2, ..MemoryUp::default() };
        let mut few = ecalls.subscribe(&SubscriptionBuilder::to("test.sample").memory_up(ring)).unwrap();
        let bits = MemoryUp { layout: Layout::Bits, slots: 8, position: Some("value".into()) };
        let mut places = ecalls.subscribe(&SubscriptionBuilder::to("test.sample").memory_up(bits)).unwrap();
        for value in [6, 3, 6] {
            raise(&own, value);
        }
        eventually("three events", || few.flag() == 2 && few.dropped() == 1);
        assert_eq!([next(&mut few), next(&mut few)], [6, 3]);
        assert_eq!(few.now().unwrap().counters.dropped_memory, 1);
        let mut seen = Vec::new();
        eventually("two places", || {
            seen.extend(places.try_lowest().map(|(position, _)| position));
            seen == [3, 6]
        });
    });
}

#[test]
fn an_invalid_subscription_is_refused_and_leaves_nothing_installed() {
    with_daemon(|client, ecalls| {
        let own = service(ecalls);
        let refused = |wanted: SubscriptionBuilder| match ecalls.subscribe(&wanted) {
            Err(ClientError::Refused(problem)) => problem,
            other => panic!("{other:?}"),
        };
        let memory = || SubscriptionBuilder::to("test.sample").memory_up(MemoryUp::default());
        for (wanted, code, part) in [
            (SubscriptionBuilder::to("no.such").signal(40), "no_such_service", "no.such"),
            (SubscriptionBuilder::to("test.sample"), "chain", "does nothing"),
            (memory().code("return input.nothing;"), "code", "nothing"),
            (memory().code("while (1) { }"), "code", ""),
            (memory().handler("no.handler"), "no_such_handler", "no.handler"),
            (memory().attribute("x", 1), "chain", "attribute x"),
            (memory().fuel(u32::MAX), "ecalls_limit", "4294967295"),
            (memory().code("int i; for (i = 0; i < 60000; i++) ; return 0;"), "ecalls_limit", "200000 is the limit"),
            (memory().process(i32::MAX), "gone", "2147483647"),
            (SubscriptionBuilder::to("test.sample").signal(40).signal_value("none"), "chain", "none"),
            (
                SubscriptionBuilder::to("test.sample").memory_up(MemoryUp { slots: 3, ..MemoryUp::default() }),
                "chain",
                "3 slots",
            ),
        ] {
            let problem = refused(wanted);
            assert!(problem.code == code && problem.message.contains(part), "{problem:?}");
            assert!(!problem.next_step.is_empty(), "{problem:?}");
        }
        assert_eq!(client.subscriptions().unwrap(), []);
        let taken = ecalls.register_service("test.sample", "", SAMPLE, false).unwrap_err().to_string();
        assert!(taken.contains("already"), "{taken}");
        assert!(own.raise_event(-1, b"short", Nanos::ZERO, false).is_err());
    });
}

#[test]
fn everything_ends_with_its_connection_and_is_shown_as_a_file_until_then() {
    with_daemon(|client, ecalls| {
        let other = Ecalls::connect(client).unwrap();
        let [name, about, format] = ["test.sample", "", SAMPLE].map(str::to_owned);
        client.register_service(&ServiceRequest { lease: other.lease(), name, about, format, open: false }).unwrap();
        let subscription =
            ecalls.subscribe(&SubscriptionBuilder::to("test.sample").memory_up(MemoryUp::default())).unwrap();
        let file = client.socket().with_file_name("services").join("test.sample");
        let shown = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("struct sample"));
        eventually("the service is shown as a file", shown);
        drop(other);
        let Some(Notice::Ended { subscription: ended, why }) = ecalls.next_notice(PATIENCE).unwrap() else { panic!() };
        assert!(ended == subscription.id() && why.contains("service"), "{why}");
        eventually("nothing is left", || client.subscriptions().unwrap().is_empty() && !file.exists());
        assert!(client.services().unwrap().iter().all(|s| s.name != "test.sample"));
    });
}

#[test]
fn an_event_by_http_and_json_is_the_same_event() {
    with_daemon(|client, ecalls| {
        let _own = service(ecalls);
        let mut events =
            ecalls.subscribe(&SubscriptionBuilder::to("test.sample").memory_up(MemoryUp::default())).unwrap();
        let event = serde_json::from_value(json!({"data": {"value": -3, "pid": 9}, "cpu": true})).unwrap();
        assert_eq!(client.raise_event("test.sample", &event).unwrap().queued, 1);
        let format = events.info().format.clone();
        let came = events.next(PATIENCE).unwrap().unwrap();
        assert_eq!(json!(event_json::decode(&format, came.data)), json!({"value": -3, "pid": 9, "kind": 0}));
        let listed = client.services().unwrap();
        assert_eq!(listed.iter().find(|s| s.name == "test.sample").unwrap().cpu, 1);
    });
}
