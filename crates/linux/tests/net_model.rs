//! Compares the kernel's packet machine with a simple model of it, call by call, over random sequences: the next
//! packet, the dropped packets and the counters must be the same. Runs on any kernel with BPF, without an interface.

#[path = "net_model/model.rs"]
mod model;

use model::Model;
use qfabric_linux::net::trial::{Next, Trial};
use qfabric_types::api::net::{Selector, StreamSpec};
use qfabric_types::{Instant, Nanos, Share, Window};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Sequences per kind, unless `QFABRIC_SETS` sets another number.
const SETS: u64 = 60;
const CALLS: usize = 600;
const STEP: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
struct Kind {
    paced: bool,
    best_effort: Share,
    streams: u32,
    most_periods: u64,
    work_conserving: bool,
    grid: bool,
}

fn may_load() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        qfabric_linux::testing::skip("loading programs needs root");
    }
    may
}

fn stream(random: &mut ChaCha8Rng, kind: &Kind) -> StreamSpec {
    let y = random.random_range(1..=6u64);
    let x = random.random_range(0..y);
    StreamSpec {
        phase: Nanos::new(STEP * random.random_range(0..4u64)),
        window: Window::new(x, y).unwrap(),
        size: random.random_range(1..=3u32) * 1_000,
        work_conserving: kind.work_conserving && random.random_bool(0.5),
        limit: random.random_range(2..=20),
        start: kind.grid.then(|| Instant::new(STEP * random.random_range(1..50u64))),
        ..StreamSpec::new(Selector::Mark(1), Nanos::new(STEP * random.random_range(1..=kind.most_periods)))
    }
}

fn sequence(seed: u64, kind: &Kind) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let rate = 80_000_000;
    let mut kernel = Trial::new(rate, kind.paced, kind.best_effort, None).unwrap();
    let specs: Vec<_> = (0..kind.streams).map(|_| stream(&mut random, kind)).collect();
    specs.iter().enumerate().for_each(|(at, spec)| kernel.begin(at as u32, spec));
    let mut model = Model::new(&specs, kind.paced.then_some(rate), kind.best_effort);
    let mut now = Instant::new(1_000 * STEP);
    for call in 0..CALLS {
        let context = || format!("seed {seed}, call {call}, {now:?}, {kind:?}\n{specs:#?}");
        if random.random_bool(0.5) {
            let to = Some(random.random_range(0..=kind.streams)).filter(|to| *to < kind.streams);
            let len = random.random_range(1..=10u32) * 300;
            assert_eq!(kernel.put(to, len, now).unwrap(), model.put(to, len, now), "{}", context());
        } else {
            let (actual, expected) = (kernel.next(now).unwrap(), model.next(now));
            assert_eq!(actual, expected, "{}", context());
            if matches!(actual, Next::Drop(..)) {
                // Late packets are still being dropped. The counters agree after the last of them.
                continue;
            }
            for at in 0..kind.streams {
                assert_eq!(kernel.counters(at), model.counters(at), "stream {at}, {}", context());
            }
        }
        now = now + Nanos::new(STEP / 4 * random.random_range(0..=3u64) * u64::from(random.random_bool(0.6)));
    }
}

fn sets(kind: Kind) {
    if !may_load() {
        return;
    }
    let sets = std::env::var("QFABRIC_SETS").ok().and_then(|sets| sets.parse().ok()).unwrap_or(SETS);
    (0..sets).for_each(|seed| sequence(seed, &kind));
}

const PLAIN: Kind =
    Kind { paced: false, best_effort: Share::ZERO, streams: 4, most_periods: 8, work_conserving: false, grid: false };

#[test]
fn kernel_and_model_agree_when_periods_begin_with_packets() {
    sets(PLAIN);
}

#[test]
fn kernel_and_model_agree_when_periods_form_a_grid() {
    sets(Kind { grid: true, ..PLAIN });
}

#[test]
fn kernel_and_model_agree_on_a_paced_link() {
    sets(Kind { paced: true, streams: 7, ..PLAIN });
}

#[test]
fn kernel_and_model_agree_on_work_conserving_streams() {
    sets(Kind { work_conserving: true, paced: true, ..PLAIN });
}

#[test]
fn kernel_and_model_agree_on_the_share_of_best_effort() {
    sets(Kind { best_effort: Share::from_ppm(300_000), paced: true, work_conserving: true, ..PLAIN });
}

#[test]
fn sixty_four_streams_of_equal_periods_follow_table_1() {
    sets(Kind { streams: 64, most_periods: 2, grid: true, ..PLAIN });
}
