//! Compares the kernel's packet machine with that of the theory (`qfabric_sched::dwcs::Packets`) over random sequences,
//! where both define the same behaviour: without best effort's credit, bursts and pacing. Runs on any kernel with BPF,
//! without an interface.

use qfabric_linux::net::trial::{Next, Trial};
use qfabric_sched::dwcs::{self as theory, Packets, Rate};
use qfabric_types::api::net::{Selector, StreamSpec};
use qfabric_types::{Instant, Nanos, Share, Window};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Sequences per kind, unless `QFABRIC_SETS` sets another number.
const SETS: u64 = 60;
const CALLS: usize = 600;
const STEP: u64 = 100_000;
const RATE: Rate = Rate { bytes: 1, time: 100 };

fn stream(random: &mut ChaCha8Rng, grid: bool) -> StreamSpec {
    let y = random.random_range(1..=6u64);
    StreamSpec {
        phase: Nanos::new(STEP * random.random_range(0..4u64)),
        window: Window::new(random.random_range(0..y), y).unwrap(),
        size: random.random_range(1..=3u32) * 1_000,
        work_conserving: random.random_bool(0.3),
        limit: random.random_range(2..=20),
        start: grid.then(|| Instant::new(STEP * random.random_range(1..50u64))),
        ..StreamSpec::new(Selector::Mark(1), Nanos::new(STEP * random.random_range(1..=8u64)))
    }
}

fn in_theory(spec: &StreamSpec) -> theory::Stream {
    theory::Stream {
        period: spec.period.get(),
        phase: spec.phase.get(),
        bytes: spec.size.into(),
        window: spec.window,
        work_conserving: spec.work_conserving,
        start: spec.start.map(Instant::get),
        limit: spec.limit as usize,
    }
}

/// The next decision after all late packets have been dropped.
fn next(kernel: &Trial, now: Instant) -> Next {
    loop {
        match kernel.next(now).unwrap() {
            Next::Drop(..) => {}
            decision => return decision,
        }
    }
}

fn sequence(seed: u64, streams: usize, grid: bool) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut kernel = Trial::new(80_000_000, false, Share::ZERO, None).unwrap();
    let specs: Vec<_> = (0..streams).map(|_| stream(&mut random, grid)).collect();
    specs.iter().enumerate().for_each(|(at, spec)| kernel.begin(at as u32, spec));
    let mut model = Packets::new(&specs.iter().map(in_theory).collect::<Vec<_>>(), RATE).unwrap();
    let mut now = Instant::new(1_000 * STEP);
    for call in 0..CALLS {
        let context = || format!("seed {seed}, call {call}, {now:?}, grid {grid}\n{specs:#?}");
        if random.random_bool(0.5) {
            let to = Some(random.random_range(0..=streams)).filter(|to| *to < streams);
            let len = random.random_range(1..=10u32) * 300;
            let accepted = kernel.put(to.map(|to| to as u32), len, now).unwrap();
            assert_eq!(accepted, model.arrive(to, len.into(), now.get()), "{}", context());
        } else {
            compare(next(&kernel, now), model.next(now.get()), &context);
            (0..streams).for_each(|at| compare_counts(&kernel, &model, at, &context));
        }
        now = now + Nanos::new(STEP / 4 * random.random_range(0..=3u64) * u64::from(random.random_bool(0.6)));
    }
}

fn compare(actual: Next, expected: theory::Next, context: &impl Fn() -> String) {
    match (actual, expected) {
        (Next::Send(stream, _), theory::Next::Send(sending)) => {
            assert_eq!(stream.map(|stream| stream as usize), sending.stream, "{}", context());
        }
        (Next::Wait(until), theory::Next::Wait(expected)) => assert_eq!(until.get(), expected, "{}", context()),
        (Next::Idle, theory::Next::Idle) => {}
        _ => panic!("{actual:?} instead of {expected:?}: {}", context()),
    }
}

fn compare_counts(kernel: &Trial, model: &Packets, at: usize, context: &impl Fn() -> String) {
    let (actual, expected) = (kernel.counters(at as u32), model.statistics(at));
    let actual = (actual.served, actual.missed, actual.violations, actual.sent, actual.late, actual.overflow);
    let expected =
        (expected.served, expected.missed, expected.violations, expected.sent, expected.late, expected.overflow);
    assert_eq!(actual, expected, "stream {at}: {}", context());
}

fn sets(streams: usize, grid: bool) {
    if !rustix::process::geteuid().is_root() {
        qfabric_linux::testing::skip("loading programs needs root");
        return;
    }
    let sets = std::env::var("QFABRIC_SETS").ok().and_then(|sets| sets.parse().ok()).unwrap_or(SETS);
    (0..sets).for_each(|seed| sequence(seed, streams, grid));
}

#[test]
fn the_kernel_and_the_theory_send_and_drop_the_same_when_periods_begin_with_packets() {
    sets(5, false);
}

#[test]
fn the_kernel_and_the_theory_send_and_drop_the_same_when_periods_form_a_grid() {
    sets(5, true);
}

#[test]
fn the_kernel_and_the_theory_agree_on_one_stream_beside_best_effort() {
    sets(1, false);
}
