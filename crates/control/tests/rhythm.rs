//! Tests of the period found in the activations of a program: jitter, missing events, harmonics, two rhythms, none.

use proptest::prelude::*;
use qfabric_control::{Rhythm, RhythmAnalyser};
use qfabric_types::{Instant, Nanos};

const MS: f64 = 1e6;

/// The rhythm of the stretches `(time in ms, CPU time in ms)`.
fn find(mut stretches: Vec<(f64, f64)>) -> Option<Rhythm> {
    stretches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut analyser = RhythmAnalyser::default();
    for (at, used) in stretches {
        analyser.ran(Instant::new(((1_000.0 + at) * MS) as u64), Nanos::from_f64(used * MS), true);
    }
    analyser.find()
}

fn period_ms(stretches: Vec<(f64, f64)>) -> Option<f64> {
    find(stretches).map(|rhythm| rhythm.period.as_f64() / MS)
}

/// A fixed sequence of numbers from 0 to 1 without repetition.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn every(period_ms: f64, jobs: usize, cost_ms: f64) -> Vec<(f64, f64)> {
    (0..jobs).map(|k| (k as f64 * period_ms, cost_ms)).collect()
}

#[track_caller]
fn assert_near(found: Option<f64>, period_ms: f64) {
    let found = found.unwrap_or(0.0);
    assert!((found / period_ms - 1.0).abs() < 0.005, "{found} ms instead of {period_ms} ms");
}

#[test]
fn frame_rates_are_found_exactly() {
    for hz in [23.976, 24.0, 25.0, 29.97, 30.0, 50.0, 59.94, 60.0, 100.0] {
        let period = find(every(1_000.0 / hz, 100, 3.0)).map(|rhythm| rhythm.period);
        assert_eq!(period, Some(Nanos::new((1e9 / hz / 16.0).round() as u64 * 16)), "{hz} Hz");
    }
    assert_near(period_ms(every(37.3, 100, 3.0)), 37.3);
}

#[test]
fn two_seconds_of_a_film_are_enough() {
    assert_near(period_ms(every(40.0, 50, 5.0)), 40.0);
    assert_eq!(find(every(40.0, 20, 5.0)), None, "20 jobs could be chance");
}

#[test]
fn the_period_of_a_group_of_pictures_is_not_the_result() {
    let cost = |k: usize| [12.0, 3.0, 3.0, 6.0, 3.0, 3.0, 6.0, 3.0, 3.0, 6.0, 3.0, 3.0][k % 12];
    assert_near(period_ms((0..240).map(|k| (k as f64 * 40.0, cost(k))).collect()), 40.0);
}

#[test]
fn small_wake_ups_between_the_frames_do_not_hide_them() {
    let mut stretches = every(40.0, 60, 8.0);
    stretches.extend((0..240).map(|k| (3.0 + k as f64 * 10.0, 0.02)));
    assert_near(period_ms(stretches), 40.0);
}

#[test]
fn several_activations_of_one_frame_are_one_rhythm() {
    let parts = |k: usize| [(0.0, 6.0), (9.0, 2.0), (17.0, 1.0)].map(|(at, used)| (k as f64 * 40.0 + at, used));
    assert_near(period_ms((0..80).flat_map(parts).collect()), 40.0);
}

#[test]
fn a_program_that_sleeps_a_fixed_time_after_its_work_is_followed() {
    let (mut random, mut at) = (noise(3), 0.0);
    let job = |_| {
        let cost = 2.0 + random();
        at += cost + 20.0;
        (at, cost)
    };
    assert_near(period_ms((0..200).map(job).collect()), 22.5);
}

#[test]
fn two_rhythms_of_equal_weight_give_no_result() {
    let mut both = every(40.0, 100, 3.0);
    both.extend(every(25.0, 160, 3.0));
    assert_eq!(find(both), None);
    let mut unequal = every(40.0, 100, 8.0);
    unequal.extend(every(27.0, 148, 0.02));
    assert_near(period_ms(unequal), 40.0);
}

#[test]
fn preempted_stretches_belong_to_their_activation() {
    let mut analyser = RhythmAnalyser::default();
    for k in 0..80_u64 {
        let at = |ms: u64| Instant::new((k * 40 + ms) * 1_000_000);
        let used = Nanos::from_millis(2);
        analyser.ran(at(0), used, false);
        analyser.ran(at(5 + k % 7), used, false);
        analyser.ran(at(13 + k % 5), used, true);
    }
    assert_eq!(analyser.fresh(), 80);
    assert_eq!(analyser.find().map(|rhythm| rhythm.period), Some(Nanos::from_millis(40)));
    assert_eq!(analyser.fresh(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn jitter_and_missing_jobs_do_not_hide_a_period(
        seed in 1_u64.., period in 5.0..200.0_f64, jitter in 0.0..0.1_f64, missing in 0.0..0.4_f64,
    ) {
        let mut random = noise(seed);
        let mut stretches = Vec::new();
        for k in 0..240 {
            let normal: f64 = (0..12).map(|_| random()).sum::<f64>() - 6.0;
            let cost = period * (0.1 + 0.2 * random());
            if random() >= missing {
                stretches.push((period * (k as f64 + 1.0 + jitter * normal), cost));
            }
        }
        let found = period_ms(stretches).unwrap_or(0.0);
        prop_assert!((found / period - 1.0).abs() < 0.005, "{found} ms instead of {period} ms");
    }

    #[test]
    fn no_rhythm_is_found_in_random_events(seed in 1_u64.., mean in 2.0..100.0_f64, jobs in 24_usize..300) {
        let (mut random, mut at) = (noise(seed), 0.0);
        let stretches = (0..jobs).map(|_| {
            at += 1.0 - mean * random().max(1e-9).ln();
            (at, 0.1 + random())
        }).collect();
        // Intervals of at least 1 ms give weak lines; none of them is a rhythm.
        prop_assert_eq!(find(stretches), None);
    }

    #[test]
    fn any_input_gives_a_valid_result(
        reports in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..400),
    ) {
        let mut analyser = RhythmAnalyser::default();
        for (at, used, slept) in reports {
            analyser.ran(Instant::new(at / 2), Nanos::new(used / 2), slept);
        }
        if let Some(rhythm) = analyser.find() {
            prop_assert!((4_000_000..=1_000_000_000).contains(&rhythm.period.get()), "{:?}", rhythm);
        }
    }
}
