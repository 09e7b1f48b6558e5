//! Tests of the resource monitor with simulated readers and a simulated clock.

#[path = "../common/mod.rs"]
mod common;
mod plugged;
mod schedule;

use std::collections::BTreeMap;

use qfabric_host::monitor::{Adaptive, Counters, Jobs, MAX_WATCHES, Monitor, MonitorError, Publisher, Summary, Watch};
use qfabric_types::monitor::{
    AdaptivePeriod, Attribute, AttributeId, Cause, HOST, Readers, Reading, Shape, Threshold, Unit,
};
use qfabric_types::{AppId, Instant, Nanos};

const A: AppId = AppId(1);
const B: AppId = AppId(2);
const QUEUE: AttributeId = AttributeId::of("cpu.run_queue");
const BYTES: AttributeId = AttributeId::of("net.eth0.rx_bytes");

/// Readers whose raw numbers the test sets.
struct Made {
    attributes: Vec<Attribute>,
    raw: BTreeMap<(AttributeId, AppId), i64>,
    reads: u64,
}

impl Made {
    fn new() -> Made {
        let of = |name, unit, shape| Attribute::new(name, unit, shape).unwrap();
        let attributes = vec![
            of("cpu.run_queue", Unit::Count, Shape::Level),
            of("cpu.pressure", Unit::Millionths, Shape::Part),
            of("net.eth0.rx_bytes", Unit::Bytes, Shape::Sum),
            of("app.misses", Unit::Count, Shape::Sum),
        ];
        let raw = [(QUEUE, 1), (BYTES, 1_000), (AttributeId::of("cpu.pressure"), 0)];
        Made { attributes, raw: raw.map(|(id, value)| ((id, HOST), value)).into(), reads: 0 }
    }

    fn set(&mut self, id: AttributeId, value: i64) {
        self.raw.insert((id, HOST), value);
    }
}

impl Readers for Made {
    fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    fn read(&mut self, attribute: AttributeId, application: AppId, _: Instant) -> Option<i64> {
        self.reads += 1;
        self.raw.get(&(attribute, application)).copied()
    }
}

fn at(ms: u64) -> Instant {
    Instant::new(ms * 1_000_000)
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn poll(monitor: &mut Monitor, made: &mut Made, now: Instant) -> Vec<Reading> {
    let mut told = Vec::new();
    monitor.poll(now, made, &mut |reading| told.push(reading));
    told
}

/// Polls whenever it is due, until `end`.
fn run(monitor: &mut Monitor, made: &mut Made, end: Instant) -> Vec<Reading> {
    let mut told = Vec::new();
    while let Some(due) = monitor.next_wakeup().filter(|due| *due <= end) {
        told.extend(poll(monitor, made, due));
    }
    told
}

fn watching(period_ms: u64) -> (Monitor, Made) {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    monitor.watch(A, "cpu.run_queue", Watch::every(ms(period_ms)), &mut made, at(0)).unwrap();
    (monitor, made)
}

#[test]
fn looks_follow_the_shortest_period_and_readings_each_watchers_own() {
    let (mut monitor, mut made) = watching(100);
    monitor.watch(B, "cpu.run_queue", Watch::every(ms(20)), &mut made, at(0)).unwrap();
    made.reads = 0;
    let told = run(&mut monitor, &mut made, at(1_000));
    assert_eq!(made.reads, 50, "one look every 20 ms, for both");
    assert_eq!(told.iter().filter(|reading| reading.application == A).count(), 10);
    assert_eq!(told.iter().filter(|reading| reading.application == B).count(), 50);
}

#[test]
fn readings_of_levels_are_absolute_and_of_totals_relative() {
    let (mut monitor, mut made) = watching(50);
    monitor.watch(A, "net.eth0.rx_bytes", Watch::every(ms(50)), &mut made, at(0)).unwrap();
    made.set(QUEUE, 5);
    made.set(BYTES, 1_700);
    let told = run(&mut monitor, &mut made, at(50));
    let of = |id| told.iter().find(|reading| reading.attribute == id).unwrap();
    assert_eq!((of(QUEUE).value, of(QUEUE).over, of(QUEUE).cause), (5, Nanos::ZERO, Cause::Poll));
    assert_eq!((of(BYTES).value, of(BYTES).over, of(BYTES).unit), (700, ms(50), Unit::Bytes));
}

#[test]
fn each_watcher_counts_a_total_separately() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    monitor.watch(A, "net.eth0.rx_bytes", Watch::every(ms(30)), &mut made, at(0)).unwrap();
    monitor.watch(B, "net.eth0.rx_bytes", Watch::every(ms(100)), &mut made, at(0)).unwrap();
    let mut sums = BTreeMap::new();
    for step in 1..=30 {
        made.set(BYTES, 1_000 + step * 10);
        for reading in run(&mut monitor, &mut made, at(step as u64 * 10)) {
            *sums.entry(reading.application).or_insert(0) += reading.value;
        }
    }
    assert_eq!(sums, BTreeMap::from([(A, 300), (B, 300)]));
}

#[test]
fn a_crossed_threshold_is_reported_once_at_the_look_that_sees_it() {
    let (mut monitor, mut made) = watching(20);
    let watch = Watch { quiet: true, ..Watch::every(ms(1_000)).with("> 4 until 2".parse().unwrap()) };
    monitor.watch(B, "cpu.run_queue", watch, &mut made, at(0)).unwrap();
    let mut causes = Vec::new();
    for (step, queue) in [4, 5, 9, 4, 3, 5, 2, 3, 4, 5].into_iter().enumerate() {
        made.set(QUEUE, queue);
        let told = run(&mut monitor, &mut made, at(20 * (step as u64 + 1)));
        causes.extend(told.iter().filter(|r| r.application == B).map(|r| (r.at.get() / 1_000_000, r.cause, r.value)));
    }
    assert_eq!(causes, [(40, Cause::Crossed, 5), (140, Cause::Cleared, 2), (200, Cause::Crossed, 5)]);
}

#[test]
fn a_threshold_may_be_checked_more_often_than_readings_are_sent() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    let watch = Watch { check: Some(ms(10)), ..Watch::every(ms(500)).with(Threshold::above(4)) };
    monitor.watch(A, "cpu.run_queue", watch, &mut made, at(0)).unwrap();
    assert!(run(&mut monitor, &mut made, at(295)).is_empty());
    made.set(QUEUE, 7);
    let told = run(&mut monitor, &mut made, at(499));
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].cause, told[0].at), (Cause::Crossed, at(300)));
    assert_eq!(run(&mut monitor, &mut made, at(500))[0].cause, Cause::Poll);
}

#[test]
fn a_crossing_reported_by_the_kernel_is_passed_on_at_once_and_only_once() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    let watch = Watch::every(ms(1_000)).with("> 100000 until 50000".parse().unwrap());
    monitor.watch(A, "cpu.pressure", watch, &mut made, at(0)).unwrap();
    let pressure = AttributeId::of("cpu.pressure");
    assert_eq!(monitor.thresholds(pressure).collect::<Vec<_>>(), [watch.threshold.unwrap()]);
    made.set(pressure, 40_000_000);
    let mut told = Vec::new();
    monitor.alert(pressure, 100_000, at(500), &mut made, &mut |reading| told.push(reading));
    monitor.alert(pressure, 100_000, at(510), &mut made, &mut |reading| told.push(reading));
    assert_eq!(told.iter().map(|r| (r.cause, r.value)).collect::<Vec<_>>(), [(Cause::Crossed, 80_000)]);
    let told = run(&mut monitor, &mut made, at(1_000));
    assert_eq!(
        told.iter().map(|r| (r.cause, r.value)).collect::<Vec<_>>(),
        [(Cause::Cleared, 0), (Cause::Poll, 40_000)]
    );
}

#[test]
fn looks_between_two_readings_are_summarised_as_requested() {
    for (summary, expected) in [(Summary::Last, 2), (Summary::Mean, 3), (Summary::Min, 1), (Summary::Max, 6)] {
        let (mut monitor, mut made) = watching(10);
        monitor.watch(B, "cpu.run_queue", Watch { summary, ..Watch::every(ms(30)) }, &mut made, at(0)).unwrap();
        let mut told = Vec::new();
        for (step, queue) in [1, 6, 2].into_iter().enumerate() {
            made.set(QUEUE, queue);
            told.extend(run(&mut monitor, &mut made, at(10 * (step as u64 + 1))));
        }
        let of_b: Vec<_> = told.iter().filter(|r| r.application == B).map(|r| r.value).collect();
        assert_eq!(of_b, [expected], "{summary:?}");
    }
}

// No other watcher looks in between.
#[test]
fn a_single_watch_with_a_summary_has_additional_looks() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    let watch = Watch { summary: Summary::Max, check: Some(ms(10)), ..Watch::every(ms(30)) };
    monitor.watch(A, "cpu.run_queue", watch, &mut made, at(0)).unwrap();
    let mut told = Vec::new();
    for (step, queue) in [1, 6, 2].into_iter().enumerate() {
        made.set(QUEUE, queue);
        told.extend(run(&mut monitor, &mut made, at(10 * (step as u64 + 1))));
    }
    assert_eq!(told.iter().map(|r| (r.value, r.at)).collect::<Vec<_>>(), [(6, at(30))]);
}

/// Polls without a reading set the period, too; a crossing at the time of a poll does not change that.
#[test]
fn a_quiet_watch_needs_a_threshold_and_follows_feedback() {
    let (mut monitor, mut made) = watching(80);
    let quiet = Watch { quiet: true, ..Watch::every(ms(80)) };
    let refused = monitor.watch(A, "cpu.run_queue", quiet, &mut made, at(0)).unwrap_err();
    assert!(refused.to_string().contains("has no threshold"), "{refused}");
    let watch = quiet.with("> 4 until 3".parse().unwrap());
    monitor.watch(A, "cpu.run_queue", watch, &mut made, at(0)).unwrap();
    let terms = AdaptivePeriod { least_ns: ms(10), most_ns: ms(640), tolerance: 2 };
    monitor.set_pace(A, QUEUE, Some(Box::new(Adaptive::new(terms)))).unwrap();
    assert!(run(&mut monitor, &mut made, at(10_000)).is_empty());
    let period = |monitor: &Monitor| monitor.watches().next().unwrap().watch.period;
    assert_eq!(period(&monitor), ms(640));
    made.set(QUEUE, 10);
    let due = monitor.next_wakeup().unwrap();
    let told = poll(&mut monitor, &mut made, due);
    assert_eq!(told.iter().map(|r| r.cause).collect::<Vec<_>>(), [Cause::Crossed]);
    assert_eq!(period(&monitor), ms(320));
}

#[test]
fn leaving_frees_an_applications_polls_and_no_others() {
    let (mut monitor, mut made) = watching(10);
    monitor.watch(B, "cpu.run_queue", Watch::every(ms(100)), &mut made, at(0)).unwrap();
    monitor.watch(B, "net.eth0.rx_bytes", Watch::every(ms(30)), &mut made, at(0)).unwrap();
    monitor.leave(A);
    assert_eq!(monitor.next_wakeup(), Some(at(30)));
    assert!(monitor.unwatch(B, BYTES) && !monitor.unwatch(B, BYTES));
    assert_eq!(monitor.next_wakeup(), Some(at(100)));
    monitor.leave(B);
    assert_eq!((monitor.next_wakeup(), monitor.watches().count()), (None, 0));
    made.reads = 0;
    assert!(poll(&mut monitor, &mut made, at(1_000)).is_empty() && made.reads == 0);
}

#[test]
fn feedback_changes_a_period_while_it_runs() {
    let (mut monitor, mut made) = watching(100);
    assert_eq!(run(&mut monitor, &mut made, at(200)).len(), 2);
    monitor.set_period(A, QUEUE, ms(10), at(205)).unwrap();
    assert_eq!(monitor.next_wakeup(), Some(at(210)));
    assert_eq!(run(&mut monitor, &mut made, at(300)).len(), 10);
    let refused = monitor.set_period(B, QUEUE, ms(10), at(300)).unwrap_err();
    assert_eq!(refused, MonitorError::NotWatched { application: B, attribute: QUEUE });
    assert!(monitor.set_period(A, QUEUE, Nanos::new(10), at(300)).unwrap_err().to_string().contains("10 ns"));
}

#[test]
fn an_adaptive_pace_is_fast_while_the_value_moves_and_slow_while_it_rests() {
    let (mut monitor, mut made) = watching(80);
    monitor
        .set_pace(
            A,
            QUEUE,
            Some(Box::new(Adaptive::new(AdaptivePeriod { least_ns: ms(10), most_ns: ms(640), tolerance: 2 }))),
        )
        .unwrap();
    run(&mut monitor, &mut made, at(10_000));
    let period = |monitor: &Monitor| monitor.watches().next().unwrap().watch.period;
    assert_eq!(period(&monitor), ms(640));
    for step in 0..20 {
        made.set(QUEUE, 10 * (step % 2));
        let due = monitor.next_wakeup().unwrap();
        poll(&mut monitor, &mut made, due);
    }
    assert_eq!(period(&monitor), ms(10));
}

#[test]
fn attributes_of_applications_concern_the_watching_application() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    let misses = AttributeId::of("app.misses");
    made.raw.extend([((misses, A), 10), ((misses, B), 20)]);
    for app in [A, B] {
        monitor.watch(app, "app.misses", Watch::every(ms(100)), &mut made, at(0)).unwrap();
    }
    made.raw.extend([((misses, A), 11), ((misses, B), 25)]);
    let told = run(&mut monitor, &mut made, at(100));
    assert_eq!(told.iter().map(|r| (r.application, r.value)).collect::<Vec<_>>(), [(A, 1), (B, 5)]);
    let refused = monitor.watch(HOST, "app.misses", Watch::every(ms(100)), &mut made, at(100)).unwrap_err();
    assert!(refused.to_string().contains("name the application"), "{refused}");
}

#[test]
fn a_host_publishes_jobs_and_misses_of_its_applications() {
    let mut bench = common::Bench::new(common::share(90));
    let app = bench.join_thread(&common::marked(), 7).unwrap();
    let (mut monitor, mut publisher, mut jobs) = (Monitor::new(), Publisher::default(), Jobs::default());
    publisher.publish(&bench.host, app);
    jobs.add(app, publisher.reader());
    for name in ["app.jobs", "app.misses", "app.budget"] {
        monitor.watch(app, name, Watch::every(ms(100)), &mut jobs, at(1_000)).unwrap();
    }
    (0..4).for_each(|k| bench.job(app, k, 12, if k == 2 { 5 } else { 0 }));
    publisher.publish(&bench.host, app);
    let mut told = BTreeMap::new();
    monitor.poll(at(1_100), &mut jobs, &mut |reading| {
        told.insert(reading.attribute, reading.value);
    });
    let of = |name| told[&AttributeId::of(name)];
    assert_eq!((of("app.jobs"), of("app.misses")), (4, 1));
    assert_eq!(of("app.budget") as u64, bench.host.grant(app).unwrap().budget.get());
    assert_eq!((jobs.read(QUEUE, HOST, at(0)), jobs.left().count()), (None, 0));
    drop(publisher);
    assert_eq!((jobs.read(AttributeId::of("app.jobs"), app, at(0)), jobs.left().count()), (None, 1));
}

#[test]
fn unreadable_looks_are_counted_and_the_next_reading_covers_their_time() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    monitor.watch(A, "net.eth0.rx_bytes", Watch::every(ms(10)), &mut made, at(0)).unwrap();
    made.raw.clear();
    assert!(run(&mut monitor, &mut made, at(30)).is_empty());
    assert_eq!(monitor.counters().unread, 3);
    made.set(BYTES, 1_500);
    let told = run(&mut monitor, &mut made, at(40));
    assert_eq!((told[0].value, told[0].over), (500, ms(40)));
}

#[test]
fn a_late_poll_skips_and_counts() {
    let (mut monitor, mut made) = watching(10);
    assert_eq!(poll(&mut monitor, &mut made, at(57)).len(), 1);
    assert_eq!(monitor.counters(), Counters { looks: 2, told: 1, skipped: 4, ..Counters::default() });
    assert_eq!(monitor.next_wakeup(), Some(at(60)));
}

#[test]
fn a_watcher_may_ask_for_a_reading_before_its_time() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    monitor.watch(A, "net.eth0.rx_bytes", Watch::every(ms(100)), &mut made, at(0)).unwrap();
    made.set(BYTES, 1_250);
    let reading = monitor.ask(A, BYTES, at(40), &mut made).unwrap().unwrap();
    assert_eq!((reading.value, reading.over, reading.cause), (250, ms(40), Cause::Asked));
    assert_eq!(
        run(&mut monitor, &mut made, at(100))[0].value,
        250,
        "an additional reading does not change the next one"
    );
}

#[test]
fn refusals_name_the_wrong_value_and_the_valid_ones() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    let mut refusal =
        |name: &str, period| monitor.watch(A, name, Watch::every(period), &mut made, at(0)).unwrap_err().to_string();
    assert!(refusal("cpu.run_que", ms(10)).contains("similar names: cpu.run_queue, cpu.pressure"));
    assert!(refusal("net.eth7.rx_bytes", ms(10)).contains("net.eth0.rx_bytes"));
    assert!(refusal("nonsense", ms(10)).contains("qfabric monitor ls"));
    assert!(
        refusal("cpu.run_queue", Nanos::new(1)).contains("the poll period 1 ns is out of range; use 1 ms to 3600 s")
    );
    assert_eq!(monitor.next_wakeup(), None, "a refusal changes nothing");
}

#[test]
fn an_application_watches_a_bounded_number_of_attributes() {
    let (mut monitor, mut made) = (Monitor::new(), Made::new());
    let more = (0..=MAX_WATCHES).map(|n| Attribute::new(&format!("x.{n}"), Unit::Count, Shape::Level).unwrap());
    made.attributes.extend(more);
    for n in 0..MAX_WATCHES {
        monitor.watch(A, &format!("x.{n}"), Watch::every(ms(10)), &mut made, at(0)).unwrap();
    }
    let last = format!("x.{MAX_WATCHES}");
    let refused = monitor.watch(A, &last, Watch::every(ms(10)), &mut made, at(0)).unwrap_err();
    assert!(refused.to_string().contains("the limit is 256"), "{refused}");
    monitor.watch(A, "x.0", Watch::every(ms(20)), &mut made, at(0)).unwrap();
    monitor.watch(B, &last, Watch::every(ms(10)), &mut made, at(0)).unwrap();
}

#[test]
fn a_delayed_reading_comes_later_and_so_do_those_after_it() {
    let (mut monitor, mut made) = watching(100);
    monitor.delay(QUEUE, ms(30), at(0));
    monitor.delay(BYTES, ms(30), at(0));
    let told: Vec<_> = run(&mut monitor, &mut made, at(350)).iter().map(|reading| reading.at).collect();
    assert_eq!(told, [at(130), at(230), at(330)]);
    (0..10).for_each(|_| monitor.delay(QUEUE, ms(1_000), at(350)));
    assert_eq!(monitor.next_wakeup(), Some(at(550)), "a delay does not silence a watcher");
}
