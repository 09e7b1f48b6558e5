//! Programs whose period the host finds.

mod common;

use common::*;
use qfabric_host::{HostEvent, Input};
use qfabric_types::api::ApplicationScope;
use qfabric_types::{AppId, Contract, ControlPlace, JobSource, Nanos, Sample, Share, ThreadId};

fn auto() -> Contract {
    Contract { jobs: JobSource::Auto, ..Contract::new("player", T) }
}

/// Runs `thread` for `cost_ms` every `period_us`, `jobs` times. Returns when the next job would begin.
fn play(bench: &mut Bench, app: AppId, thread: i32, from_us: u64, period_us: u64, cost_ms: u64, jobs: u64) -> u64 {
    for k in 0..jobs {
        let from = qfabric_types::Instant::new((from_us + k * period_us) * 1_000);
        bench.wait_until(from);
        let (to, used) = (from + Nanos::from_millis(cost_ms), Nanos::from_millis(cost_ms));
        bench.wait_until(to);
        let sample = Sample { thread: ThreadId(thread), from, to, used, slept: true };
        bench.input(Input::Ran { app, sample });
    }
    from_us + jobs * period_us
}

fn found(bench: &Bench) -> Vec<Nanos> {
    let period = |event: &HostEvent| match event {
        HostEvent::RhythmFound { period, .. } => Some(*period),
        _ => None,
    };
    bench.events.iter().filter_map(period).collect()
}

#[test]
fn a_period_is_found_applied_and_followed_when_it_changes() {
    let mut bench = Bench::new(share(90));
    let app = bench.join(&auto(), ApplicationScope::Program, &[1]).unwrap();
    let next = play(&mut bench, app, 1, 1_000_000, 20_000, 4, 150);
    assert_eq!(found(&bench), [Nanos::from_millis(20)]);
    let seen = bench.host.application(app).unwrap();
    let rhythm = seen.rhythm.unwrap();
    assert_eq!((rhythm.period, seen.contract.period), (Nanos::from_millis(20), Nanos::from_millis(20)));
    assert!(rhythm.confidence > 0.95 && rhythm.after < Nanos::from_millis(3_000), "{rhythm:?}");
    assert_eq!((seen.contract.jobs, seen.contract.server_period), (JobSource::Auto, Nanos::from_millis(5)));
    assert!(seen.quality.jobs > 20 && seen.quality.misses == 0, "jobs are counted from then on: {:?}", seen.quality);
    play(&mut bench, app, 1, next, 33_333, 4, 500);
    let changed = found(&bench);
    assert_eq!(changed.len(), 2, "{changed:?}");
    assert!((changed[1].as_f64() / 33_333e3 - 1.0).abs() < 0.001, "{changed:?}");
}

#[test]
fn a_program_without_a_rhythm_is_governed_by_its_consumption() {
    let mut bench = Bench::new(share(90));
    let app = bench.join(&auto(), ApplicationScope::Program, &[1]).unwrap();
    let mut from_us = 1_000_000;
    for k in 0..200_u64 {
        from_us = play(&mut bench, app, 1, from_us, 7_000 + k * k * 7_919 % 61_000, 4, 1);
    }
    assert_eq!(found(&bench), []);
    assert_eq!(bench.host.application(app).unwrap().rhythm, None);
    let budget = bench.budget_us(1);
    assert!((1_000..=5_000).contains(&budget), "about 4 ms in every 37 ms: {budget} µs in 10 ms");
}

#[test]
fn a_lost_period_is_reported_and_given_up_but_a_pause_is_not() {
    let mut bench = Bench::new(share(90));
    let app = bench.join(&auto(), ApplicationScope::Program, &[1]).unwrap();
    let next = play(&mut bench, app, 1, 1_000_000, 20_000, 4, 150);
    bench.wait_until(at(60_000));
    assert!(bench.host.application(app).unwrap().rhythm.is_some(), "it slept, and showed no other period");
    let mut from_us = next.max(60_000_000);
    for k in 0..700_u64 {
        from_us = play(&mut bench, app, 1, from_us, 7_000 + k * k * 7_919 % 61_000, 4, 1);
    }
    let lost = HostEvent::RhythmLost { app, period: Nanos::from_millis(20) };
    assert!(bench.events.contains(&lost), "{:?}", bench.events);
    assert_eq!(bench.host.application(app).unwrap().rhythm, None);
}

#[test]
fn the_busiest_thread_determines_the_period() {
    let mut bench = Bench::new(share(90));
    let app = bench.join(&auto(), ApplicationScope::Program, &[1, 2]).unwrap();
    let mut from_us = 1_000_000;
    for _ in 0..150 {
        play(&mut bench, app, 1, from_us + 11_000, 40_000, 1, 1);
        from_us = play(&mut bench, app, 2, from_us + 13_000, 27_000, 9, 1);
    }
    assert_eq!(found(&bench), [Nanos::from_millis(40)]);
    assert!(bench.budget_us(2) > bench.budget_us(1));
}

#[test]
fn contracts_that_need_a_known_period_are_refused() {
    let mut bench = Bench::new(share(90));
    let kernel = Contract { controller: ControlPlace::Kernel, ..auto() };
    assert_eq!(bench.join(&kernel, ApplicationScope::Program, &[1]).unwrap_err().code, "invalid_contract");
    assert_eq!(bench.host.held(), Share::ZERO);
}
