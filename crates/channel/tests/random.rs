//! Random sequences of operations on several hosts over a network that loses, delays and reorders frames. At the end
//! all hosts have the same directory, no event was delivered twice or out of order, and every sent event has an
//! outcome.

use proptest::prelude::*;
use qfabric_channel::testing::operations::{CHANNELS, HOSTS, Op, Run};
use qfabric_channel::testing::{Settings, World};
use qfabric_channel::{Pressure, SourceCounts};
use qfabric_types::Nanos;

fn members() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..HOSTS, 0..CHANNELS).prop_map(|(host, channel)| Op::Open(host, channel)),
        1 => (0..HOSTS, 0..CHANNELS).prop_map(|(host, channel)| Op::Close(host, channel)),
        3 => (0..HOSTS, 0..CHANNELS).prop_map(|(host, channel)| Op::Source(host, channel)),
        4 => (0..HOSTS, 0..CHANNELS, 0..5_u32).prop_map(|(host, channel, room)| Op::Sink(host, channel, room)),
        1 => any::<usize>().prop_map(Op::LeaveSource),
        1 => any::<usize>().prop_map(Op::LeaveSink),
        1 => (any::<usize>(), -5..5_i64).prop_map(|(sink, value)| Op::Attribute(sink, value)),
    ]
}

/// Members of open channels.
fn joins() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0..HOSTS, 0..CHANNELS).prop_map(|(host, channel)| Op::Source(host, channel)),
        (0..HOSTS, 0..CHANNELS, 0..5_u32).prop_map(|(host, channel, room)| Op::Sink(host, channel, room)),
    ]
}

fn traffic() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<usize>(), 0..8_u8).prop_map(|(source, priority)| Op::Submit(source, priority, 0)),
        1 => (any::<usize>(), 1..200_usize).prop_map(|(source, kib)| Op::Large(source, kib)),
        2 => any::<usize>().prop_map(Op::Take),
        3 => (0..400_u64).prop_map(Op::Run),
    ]
}

fn faults() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..HOSTS, 0..HOSTS).prop_map(|(one, other)| Op::Cut(one, other)),
        2 => (0..HOSTS, 0..HOSTS).prop_map(|(one, other)| Op::Heal(one, other)),
        1 => (0..HOSTS).prop_map(Op::Kill),
        2 => (0..HOSTS).prop_map(Op::Start),
        2 => (500..4_000_u64).prop_map(Op::Run),
    ]
}

/// At most `most_loss` of a thousand data frames are lost.
fn settings(most_loss: u32) -> impl Strategy<Value = Settings> {
    (any::<u64>(), 1..50_u64, 0..most_loss, 0..100_u32, any::<bool>(), 0..500_u64).prop_map(
        |(seed, delay, data_loss, control_loss, disorder, skew)| Settings {
            seed,
            hosts: HOSTS,
            delay: (Nanos::from_micros(50), Nanos::from_millis(delay)),
            data_loss,
            control_loss,
            disorder,
            skew: Nanos::from_millis(skew),
            ..Settings::default()
        },
    )
}

fn pressure() -> impl Strategy<Value = Pressure> {
    let patience = Nanos::from_millis(200);
    prop_oneof![Just(Pressure::DropOldest), Just(Pressure::DropNewest), Just(Pressure::Block { patience }),]
}

/// The number of events with a known outcome.
fn known(counts: &SourceCounts) -> u64 {
    counts.delivered + counts.filtered + counts.dropped + counts.late + counts.lost
}

/// The accounts of all sources.
fn source_counts(run: &Run) -> impl Iterator<Item = SourceCounts> + '_ {
    let counts = run.sources.iter().map(|(host, source)| run.world.node(host).source_counts(*source));
    counts.map(|counts| counts.expect("the source is there"))
}

/// Number of events without an outcome.
fn unknown(run: &Run) -> u64 {
    let unknown = |counts: SourceCounts| counts.sent.checked_sub(known(&counts)).expect("no outcome without an event");
    source_counts(run).map(unknown).sum()
}

/// Number of events that the sources know to be lost.
fn lost_at_sources(run: &Run) -> u64 {
    source_counts(run).map(|counts| counts.lost).sum()
}

/// The conditions hold after each operation and at the end.
fn act_on(run: &mut Run, ops: &[Op]) {
    for op in ops {
        run.act(op);
        run.assert_sound();
    }
    run.end();
}

/// All hosts hold all channels; the first one has created them, and `patience` has passed.
fn open_all(run: &mut Run, patience: Nanos) {
    (0..CHANNELS).for_each(|number| run.open(0, number));
    run.world.run_for(patience);
    for (host, number) in (1..HOSTS).flat_map(|host| (0..CHANNELS).map(move |number| (host, number))) {
        run.open(host, number);
    }
}

/// All hosts hold all channels, members join, and after `patience` events are sent: both sides know the outcome of each.
fn account_for_all(run: &mut Run, patience: Nanos, start: &[Op], ops: &[Op]) {
    open_all(run, patience);
    start.iter().for_each(|op| run.act(op));
    run.world.run_for(patience);
    ops.iter().for_each(|op| run.act(op));
    run.end();
    assert_eq!(run.books_balance(), run.sent, "what sources sent is what sinks know of");
    assert_eq!(unknown(run), run.queued(), "sources know of all but what waits in queues");
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn after_any_faults_all_know_the_same_and_the_books_balance(
        settings in settings(200),
        pressure in pressure(),
        ops in prop::collection::vec(prop_oneof![4 => members(), 5 => traffic(), 1 => faults()], 1..120),
    ) {
        let mut run = Run::new(settings, pressure);
        act_on(&mut run, &ops);
    }

    /// A quiet source sends five marks. If a fifth of all frames is lost, all five marks of some source are lost in one
    /// of forty runs of this test, and the outcomes of its last events stay unknown.
    #[test]
    fn without_churn_every_single_event_is_accounted_for(
        settings in settings(60),
        pressure in pressure(),
        start in prop::collection::vec(joins(), 2..16),
        ops in prop::collection::vec(traffic(), 1..200),
    ) {
        let mut run = Run::new(settings, pressure);
        account_for_all(&mut run, Nanos::from_millis(60_000), &start, &ops);
    }
}

proptest! {
    #![proptest_config(cases(192))]

    /// Q-channels whose events wait for each other, and go through a combiner that may fail like any host.
    #[test]
    fn combined_events_keep_their_order_and_their_accounts(
        settings in settings(100),
        ops in prop::collection::vec(prop_oneof![4 => members(), 6 => traffic(), 1 => faults()], 1..120),
    ) {
        let mut run = Run::combined(settings);
        act_on(&mut run, &ops);
    }

    #[test]
    fn without_faults_every_combined_event_is_accounted_for(
        settings in settings(1),
        start in prop::collection::vec(joins(), 2..16),
        ops in prop::collection::vec(traffic(), 1..200),
    ) {
        let mut run = Run::combined(Settings { control_loss: 0, disorder: false, ..settings });
        account_for_all(&mut run, Nanos::from_millis(5_000), &start, &ops);
        prop_assert_eq!(lost_at_sources(&run), 0, "no frame was lost");
    }
}

/// `h1` takes `h0` for gone and detects it again after `away`; `h0` notices nothing and goes on. Returns what the source and
/// the sink know to be lost.
fn lost_after_a_disappearance(away: Nanos) -> (u64, u64) {
    let delay = (Nanos::from_millis(40), Nanos::from_millis(50));
    let mut run = Run::new(Settings { hosts: HOSTS, delay, ..Settings::default() }, Pressure::DropOldest);
    open_all(&mut run, Nanos::from_millis(5_000));
    [Op::Source(0, 0), Op::Sink(1, 0, 0), Op::Run(1_000)].iter().for_each(|op| run.act(op));
    let frames = |run: &mut Run, count| {
        (0..count).for_each(|_| [Op::Submit(0, 0, 0), Op::Run(20)].iter().for_each(|op| run.act(op)));
    };
    frames(&mut run, 100);
    run.act(&Op::Lose(1, 0));
    frames(&mut run, 20);
    run.world.run_for(away);
    run.act(&Op::Find(1, 0));
    frames(&mut run, 20);
    run.end();
    (lost_at_sources(&run), run.lost_at_sinks())
}

/// A mark that the source's host sends just before it learns of the disappearance belongs to the account that has ended. The
/// steps are shorter than a frame's way, and one and a half seconds contain a mark.
#[test]
fn a_mark_of_an_earlier_meeting_begins_no_account() {
    for step in 0..50 {
        let away = Nanos::from_millis(30 * step);
        let (source, sink) = lost_after_a_disappearance(away);
        assert!(sink <= source, "away for {away}: {source} lost at the source, {sink} at the sink");
    }
}

/// One host takes another for gone or detects it again; the other notices nothing.
fn glimpses() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => (0..HOSTS, 0..HOSTS).prop_map(|(one, other)| Op::Lose(one, other)),
        2 => (0..HOSTS, 0..HOSTS).prop_map(|(one, other)| Op::Find(one, other)),
        1 => (0..3_000_u64).prop_map(Op::Run),
    ]
}

proptest! {
    #![proptest_config(cases(256))]

    /// Disappearances that one of two hosts notices, in any order, while frames are lost.
    #[test]
    fn after_one_sided_disappearances_every_source_knows_what_became_of_its_events(
        settings in settings(60),
        start in prop::collection::vec((0..HOSTS, 0..CHANNELS, prop::option::of(0..5_u32)), 2..12),
        ops in prop::collection::vec(prop_oneof![4 => traffic(), 1 => glimpses()], 1..200),
    ) {
        let mut run = Run::new(settings, Pressure::DropOldest);
        open_all(&mut run, Nanos::from_millis(60_000));
        for (host, number, room) in start {
            run.act(&room.map_or(Op::Source(host, number), |room| Op::Sink(host, number, room)));
        }
        ops.iter().for_each(|op| run.act(op));
        run.end();
        // A quiet source sends five marks; more events make it ask again.
        for _ in 0..4 {
            (0..run.sources.len()).for_each(|source| run.act(&Op::Submit(source, 0, 0)));
            run.world.run_for(Nanos::from_millis(1_000));
            run.drain();
            run.world.run_for(Nanos::from_millis(60_000));
        }
        prop_assert_eq!(unknown(&run), 0, "every event has an outcome");
        prop_assert!(run.lost_at_sinks() <= lost_at_sources(&run), "an event is lost in the meeting that it was sent in");
    }
}
