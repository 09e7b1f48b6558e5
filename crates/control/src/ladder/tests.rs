use proptest::prelude::*;
use qfabric_types::RandomNumbers;

use super::*;

const SECOND: Nanos = Nanos::from_millis(1_000);

fn at(second: u64) -> Instant {
    Instant::new(second * 1_000_000_000)
}

fn ladder() -> Ladder {
    let dimensions = [
        Dimension::new("quality", &[80, 60, 40, 20]),
        Dimension::new("size", &[640, 320, 176]),
        Dimension::new("codec", &[1, 0]),
    ];
    Ladder::new(dimensions.to_vec(), Terms::new(20.0)).unwrap()
}

/// The utilities of a dimension's levels, each loss at least as large as the one before it.
fn concave() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(0u64..30, 1..5).prop_map(|mut losses| {
        losses.sort_unstable();
        let all: u64 = losses.iter().sum();
        let after = losses.iter().scan(all, |left, loss| {
            *left -= loss;
            Some(*left)
        });
        std::iter::once(all).chain(after).collect()
    })
}

/// The best utility of `steps` steps down from the best levels, by trying all of them.
fn best_of_all(worth: &[Vec<u64>], steps: usize) -> Option<u64> {
    let Some((first, rest)) = worth.split_first() else { return (steps == 0).then_some(0) };
    let down = 0..first.len().min(steps + 1);
    down.filter_map(|down| Some(first[down] + best_of_all(rest, steps - down)?)).max()
}

proptest! {
    #[test]
    fn no_other_levels_of_as_many_steps_are_worth_more(worth in proptest::collection::vec(concave(), 1..4)) {
        // The level is the index of its utility.
        let indices = |one: &Vec<u64>| (0..one.len() as i64).collect::<Vec<_>>();
        let dimension = |(at, one): (usize, &Vec<u64>)| Dimension::new(&format!("d{at}"), &indices(one));
        let dimensions = worth.iter().enumerate().map(dimension).collect();
        let ladder = Ladder::new(dimensions, Terms::new(20.0)).unwrap().by_worth(&worth);
        for rung in 0..=ladder.lowest() {
            let found: u64 = ladder.levels_at(rung).zip(&worth).map(|((_, at), one)| one[at as usize]).sum();
            prop_assert_eq!(Some(found), best_of_all(&worth, rung));
        }
    }
}

#[test]
fn the_level_whose_loss_costs_least_is_given_up_first() {
    let levels = |ladder: &Ladder, rung| ladder.levels_at(rung).map(|(_, level)| level).collect::<Vec<_>>();
    let by_worth = ladder().by_worth(&[vec![90, 85, 60, 10], vec![50, 48, 20], vec![9, 1]]);
    let all: Vec<Vec<i64>> = (0..=by_worth.lowest()).map(|rung| levels(&by_worth, rung)).collect();
    assert_eq!(all[..4], [[80, 640, 1], [80, 320, 1], [60, 320, 1], [60, 320, 0]]);
    assert_eq!(all[4..], [[40, 320, 0], [40, 176, 0], [20, 176, 0]]);
    let unstated = ladder().by_worth(&[vec![90, 85, 60, 10], vec![], vec![9, 1]]);
    assert_eq!(levels(&unstated, 1), [60, 640, 1], "one dimension after the other");
}

/// An application on a processor that is fast enough for 20 events/s from rung `enough` on; each rung above costs
/// an eighth of the rate. `noise`: largest deviation of a report, as a fraction.
struct Load {
    enough: usize,
    noise: f64,
    numbers: RandomNumbers,
}

impl Load {
    fn rate(&mut self, rung: usize) -> f64 {
        let slow = self.enough.saturating_sub(rung) as f64;
        let noise = 1.0 + self.noise * (2.0 * self.numbers.uniform() - 1.0);
        20.0 * (1.0 - slow / 8.0).max(0.05) * noise
    }

    /// The changes from second `from` to second `to`, a report per second, with the second of each.
    fn run(&mut self, ladder: &mut Ladder, from: u64, to: u64) -> Vec<(u64, Move)> {
        let report = |second: u64| Some((second, ladder.on_rate(self.rate(ladder.rung()), at(second))?));
        (from..to).filter_map(report).collect()
    }
}

fn load(enough: usize, noise: f64, seed: u64) -> Load {
    Load { enough, noise, numbers: RandomNumbers::new(seed) }
}

proptest! {
    #[test]
    fn a_steady_load_causes_at_most_two_changes_per_minute(
        enough in 0usize..7, noise in 0.0f64..0.07, seed: u64,
    ) {
        let mut ladder = ladder();
        let moves = load(enough, noise, seed).run(&mut ladder, 0, 3_600);
        // The first two minutes are not steady: the ladder finds its rung.
        let settled: Vec<_> = moves.iter().filter(|(second, _)| *second >= 120).collect();
        for (second, _) in &settled {
            let near = settled.iter().filter(|(other, _)| (*second..second + 60).contains(other)).count();
            prop_assert!(near <= 2, "seed {seed}: {near} changes in the minute from second {second}");
        }
    }

    #[test]
    fn the_rate_is_back_within_three_seconds_of_a_disturbance(enough in 1usize..7, seed: u64) {
        let mut ladder = ladder();
        let mut load = load(0, 0.02, seed);
        load.run(&mut ladder, 0, 100);
        load.enough = enough;
        load.run(&mut ladder, 100, 104);
        let missing = enough.saturating_sub(ladder.rung());
        prop_assert!(missing <= 1, "seed {seed}: {missing} rungs above the rate after 3 s, of {enough}");
    }

    #[test]
    fn the_minimum_is_never_left_for_any_reports(reports in prop::collection::vec((any::<f64>(), 0u64..5), 0..200)) {
        let (mut ladder, mut now) = (ladder(), 0);
        for (rate, after) in reports {
            now += after;
            if let Some(step) = ladder.on_rate(rate, at(now)) {
                prop_assert_eq!(step.to, ladder.rung());
                prop_assert!(step.from != step.to && step.to <= ladder.lowest());
            }
            prop_assert!(ladder.levels().all(|(_, level)| level >= 0));
        }
    }
}

#[test]
fn quality_is_given_up_first_then_size_then_codec_and_all_come_back_in_reverse_order() {
    let mut ladder = ladder();
    let levels = |ladder: &Ladder| ladder.levels().map(|(_, level)| level).collect::<Vec<_>>();
    let mut down = vec![levels(&ladder)];
    load(6, 0.0, 0).run(&mut ladder, 0, 60);
    (60..120).for_each(|second| {
        if ladder.on_rate(16.0, at(second)).is_some() {
            down.push(levels(&ladder));
        }
    });
    assert_eq!(levels(&ladder), [20, 176, 0], "the minimum of all");
    let mut up = vec![ladder.rung()];
    (120..1_000).for_each(|second| {
        if let Some(step) = ladder.on_rate(20.0, at(second)) {
            assert!(!step.is_lower());
            up.push(step.to);
        }
    });
    assert_eq!(up, (0..=ladder.lowest()).rev().collect::<Vec<_>>(), "one rung at a time");
    assert_eq!(ladder.levels_at(4).collect::<Vec<_>>(), [("quality", 20), ("size", 320), ("codec", 1)]);
    assert!(down.windows(2).all(|pair| pair[0] > pair[1]));
}

#[test]
fn a_single_low_report_and_a_rate_between_the_thresholds_change_nothing() {
    let mut ladder = ladder();
    assert_eq!(ladder.on_rate(16.0, at(1)), None, "one low report may be noise");
    assert_eq!(ladder.on_rate(17.9, at(2)), None);
    assert!((3..100).all(|second| ladder.on_rate(18.0, at(second)).is_none()));
    let step = ladder.on_rate(8.0, at(100)).unwrap();
    assert_eq!((step.from, step.to), (0, 4), "far too low: at once, and several rungs");
    assert_eq!(step.reason.to_string(), "8.0/s of 20.0/s");
}

#[test]
fn changes_keep_the_dwell_time_and_each_failed_raise_doubles_the_wait() {
    let mut ladder = ladder();
    assert!(ladder.on_rate(8.0, at(1)).is_some());
    let half = at(1) + Nanos::from_millis(500);
    assert_eq!(ladder.on_rate(8.0, half), None, "within the dwell time");
    let mut raises = Vec::new();
    for second in 2..1_000 {
        let rate = if ladder.rung() < 4 { 14.0 } else { 20.0 };
        if let Some(step) = ladder.on_rate(rate, at(second)).filter(|step| !step.is_lower()) {
            assert!(step.reason.to_string().contains("kept for"));
            raises.push(second);
        }
    }
    let gaps: Vec<u64> = raises.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.windows(2).all(|pair| pair[1] >= pair[0]) && gaps.last() > gaps.first(), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= 60 && *gap <= 250), "{gaps:?}");
}

#[test]
fn low_rates_at_the_lowest_rung_do_not_shorten_the_wait_after_a_raise_that_failed() {
    let mut ladder = ladder().starting_at(6);
    let rate = |rung: usize| if rung < 6 { 8.0 } else { 20.0 };
    let run = |ladder: &mut Ladder, from: u64, to: u64, low: bool| -> Vec<u64> {
        let of = |rung: usize| if low { 8.0 } else { rate(rung) };
        (from..to).filter(|second| ladder.on_rate(of(ladder.rung()), at(*second)).is_some()).collect()
    };
    let tried = run(&mut ladder, 0, 10, false);
    assert_eq!(tried.len(), 2, "a raise that fails: {tried:?}");
    assert!(run(&mut ladder, 10, 14, true).is_empty(), "the queue of the link still drains");
    assert!(run(&mut ladder, 14, 70, false).is_empty());
}

#[test]
fn relief_brings_the_best_rung_back_within_half_a_minute() {
    let mut ladder = ladder();
    let narrow = |rung: usize| if rung < 5 { 14.0 } else { 20.0 };
    for second in 0..400 {
        ladder.on_rate(narrow(ladder.rung()), at(second));
    }
    assert_eq!(ladder.rung(), 5);
    let mut alone = ladder.clone();
    let mut is_best = |second: &u64| alone.on_rate(20.0, at(*second)).is_some_and(|step| step.to == 0);
    let without = (400..1_000).find(&mut is_best).expect("a ladder recovers in any case");
    let back = (400..1_000).find(|second| {
        ladder.relieve(at(*second));
        ladder.on_rate(20.0, at(*second)).is_some_and(|step| step.to == 0)
    });
    assert!(back.is_some_and(|second| second <= 430), "the best rung at second {back:?}");
    assert!(without > 430, "without relief it takes longer: second {without}");
}

#[test]
fn a_raise_by_relief_that_fails_returns_to_its_rung_and_the_next_waits() {
    let mut ladder = ladder().starting_at(6);
    let mut changes = Vec::new();
    for second in 0..60 {
        assert!(ladder.relieve(at(second)) || !changes.is_empty());
        let rate = if ladder.rung() < 6 { 9.0 } else { 20.0 };
        changes.extend(ladder.on_rate(rate, at(second)).map(|step| (step.from, step.to)));
    }
    assert_eq!(changes, [(6, 3), (3, 6)], "half of the way, and back");
    assert!(!ladder.relieve(at(60)) && ladder.relieve(at(80)));
    assert!(!Ladder::new(vec![Dimension::new("quality", &[2, 1])], Terms::new(20.0)).unwrap().relieve(at(0)));
}

#[test]
fn a_ladder_of_invalid_values_is_refused_with_the_range() {
    let quality = || vec![Dimension::new("quality", &[2, 1])];
    let refusal = |dimensions: Vec<Dimension>, terms: Terms| Ladder::new(dimensions, terms).unwrap_err().to_string();
    assert!(refusal(quality(), Terms::new(0.0)).contains("the wanted rate is 0; use above 0"));
    assert!(refusal(quality(), Terms::new(f64::NAN)).contains("NaN"));
    assert!(refusal(Vec::new(), Terms::new(20.0)).contains("0 dimensions"));
    assert!(refusal(vec![Dimension::new("size", &[])], Terms::new(20.0)).contains("size has 0 levels"));
    assert!(refusal([quality(), quality()].concat(), Terms::new(20.0)).contains("the dimension quality twice"));
    assert!(refusal(quality(), Terms { kept_above: 0.5, ..Terms::new(20.0) }).contains("kept_above"));
    let late = Ladder::new(quality(), Terms { dwell: SECOND, ..Terms::new(20.0) }).unwrap().starting_at(9);
    assert!(late.is_lowest());
}
