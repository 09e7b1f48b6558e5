//! The claims about the cells, and their verdicts. A ratio is the misses divided by those of the rival, static
//! GRUB with the same room. Means of ratios are geometric.
//!
//! A claim about a mean follows the rule of the live demo (`docs/design/0022-demo.md`): it is held if the whole
//! 95 % interval over the cells lies at or below the bound, missed if the whole interval lies above, and otherwise
//! undecided. A claim about every cell is decided by the worst one: within a cell all rows have the same costs.

use serde::Serialize;

use super::{Cell, Outcome, Policy, RIVAL, Row};
use crate::world::Skip;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The claim holds.
    Held,
    /// The claim does not hold.
    Missed,
    /// The interval contains the bound.
    Undecided,
}

/// A claim and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub claim: String,
    pub state: State,
    /// The value that the claim bounds.
    pub found: f64,
    /// Lower end of the 95 % interval over the cells; for a worst case, the smallest ratio.
    pub low: f64,
    /// Upper end of the interval; for a worst case, the largest ratio.
    pub high: f64,
    /// Number of cells.
    pub samples: usize,
}

/// Whether the load is 70 to 100 % and the rival misses jobs. With fewer than four players, single jobs exceed the
/// period.
fn is_loaded(cell: &Cell, rival: &Outcome) -> bool {
    (0.7..=1.0).contains(&cell.load) && cell.players >= 4 && rival.misses > 0.005
}

/// For each cell, the outcomes of `row` and of `rival`.
fn pairs(outcomes: &[Outcome], row: Row, rival: Row) -> Vec<(&Outcome, &Outcome)> {
    let is = |outcome: &Outcome, row: Row| (outcome.policy, outcome.skip) == (row.policy, row.skip);
    let of = |cell: &Cell, row: Row| outcomes.iter().find(|outcome| outcome.cell == *cell && is(outcome, row));
    outcomes.iter().filter(|o| is(o, row)).filter_map(|ours| Some((ours, of(&ours.cell, rival)?))).collect()
}

/// Misses divided by the rival's misses. No miss counts as half a job, so that the logarithm exists.
fn ratio((ours, rival): &(&Outcome, &Outcome)) -> f64 {
    let least = 0.5 / ours.jobs as f64;
    ours.misses.max(least) / rival.misses.max(least)
}

/// All claims that these outcomes can decide.
pub fn verdicts(outcomes: &[Outcome]) -> Vec<Verdict> {
    let ours = |skip| Row { policy: Policy::GiveBack, skip };
    let all = pairs(outcomes, ours(Skip::None), RIVAL);
    let loaded = |pairs: &[(&Outcome, &Outcome)], calm_only: bool| -> Vec<f64> {
        let chosen = pairs.iter().filter(|(ours, _)| !calm_only || ours.cell.is_calm());
        let plain =
            |cell: &Cell| self::pairs(outcomes, RIVAL, RIVAL).into_iter().find(|(rival, _)| rival.cell == *cell);
        let in_range = |cell: &Cell| plain(cell).is_some_and(|(rival, _)| is_loaded(cell, rival));
        chosen.filter(|(ours, _)| in_range(&ours.cell)).map(ratio).collect()
    };
    let against = |row, rival| loaded(&pairs(outcomes, row, rival), false);
    let skipping = pairs(outcomes, ours(Skip::Predicted), RIVAL);
    let soft = Row { policy: Policy::Soft, skip: Skip::Predicted };
    let skips = |skip| Row { skip, ..RIVAL };
    let [in_the_mean, beyond_chance] = no_worse(&all);
    [
        in_the_mean,
        beyond_chance,
        mean("calm loaded cells, without skipping: at most 0.4x the misses of static GRUB, mean", &loaded(&all, true), 0.4),
        worst(
            "calm loaded cells, skipping jobs predicted late: at most 0.5x the misses of static GRUB",
            &loaded(&skipping, true),
        ),
        worst(
            "loaded cells, calm or disturbed, skipping jobs predicted late: at most 0.5x the misses of static GRUB",
            &loaded(&skipping, false),
        ),
        mean(
            "loaded cells, calm or disturbed, both skip jobs predicted late: at most 0.6x the misses of static GRUB, mean",
            &against(ours(Skip::Predicted), skips(Skip::Predicted)),
            0.6,
        ),
        mean(
            "loaded cells, calm or disturbed, static GRUB skips late jobs: at most 0.6x its misses, mean",
            &against(ours(Skip::Predicted), skips(Skip::Late)),
            0.6,
        ),
        worst(
            "loaded cells, calm or disturbed, soft CBS with P = T that skips jobs predicted late: at most 0.5x the misses of static GRUB",
            &against(soft, RIVAL),
        ),
        mean(
            "loaded cells, calm or disturbed, soft CBS with P = T, both skip jobs predicted late: at most 0.6x the misses of static GRUB, \
             mean",
            &against(soft, skips(Skip::Predicted)),
            0.6,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Number of cells with more misses than the rival, by their means, and beyond the variation of their seeds.
fn no_worse(pairs: &[(&Outcome, &Outcome)]) -> [Option<Verdict>; 2] {
    let excess: Vec<(f64, f64)> = pairs.iter().map(excess).collect();
    let ends = |fold: fn(f64, f64) -> f64, from: f64| excess.iter().map(|(mean, _)| *mean).fold(from, fold);
    let verdict = |claim: &str, worse: usize| {
        (!pairs.is_empty()).then(|| Verdict {
            claim: claim.into(),
            state: if worse == 0 { State::Held } else { State::Missed },
            found: worse as f64,
            low: ends(f64::min, f64::INFINITY),
            high: ends(f64::max, f64::NEG_INFINITY),
            samples: pairs.len(),
        })
    };
    let worse = |above: fn(&(f64, f64)) -> bool| excess.iter().filter(|cell| above(cell)).count();
    [
        verdict(
            "all cells, calm or disturbed, without skipping: no cell has more misses than static GRUB (cells with more)",
            worse(|(mean, _)| *mean > 0.0),
        ),
        verdict(
            "all cells, calm or disturbed, without skipping: no cell has more misses than static GRUB beyond the 95 % interval over its seeds (cells with more)",
            worse(|(mean, half)| mean - half > 0.0),
        ),
    ]
}

/// Difference of the missed fractions, ours minus the rival's, seed by seed: the mean, and half of its 95 %
/// interval.
fn excess((ours, rival): &(&Outcome, &Outcome)) -> (f64, f64) {
    let by_seed: Vec<f64> = ours.by_seed.iter().zip(&rival.by_seed).map(|(ours, rival)| ours - rival).collect();
    super::interval(&by_seed)
}

fn mean(claim: &str, ratios: &[f64], most: f64) -> Option<Verdict> {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let (mean, half) = super::interval(&logs);
    let (low, high) = ((mean - half).exp(), (mean + half).exp());
    (!logs.is_empty()).then(|| Verdict {
        claim: claim.into(),
        state: by_interval(low, high, most),
        found: mean.exp(),
        low,
        high,
        samples: ratios.len(),
    })
}

fn by_interval(low: f64, high: f64, most: f64) -> State {
    match (high <= most, low > most) {
        (true, _) => State::Held,
        (_, true) => State::Missed,
        _ => State::Undecided,
    }
}

fn worst(claim: &str, ratios: &[f64]) -> Option<Verdict> {
    let high = ratios.iter().copied().fold(0.0, f64::max);
    (!ratios.is_empty()).then(|| Verdict {
        claim: claim.into(),
        state: if high <= 0.5 { State::Held } else { State::Missed },
        found: high,
        low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        high,
        samples: ratios.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Pattern, Phases};
    use super::*;

    /// The outcomes of `row` in one cell per missed fraction.
    fn outcomes(row: Row, misses: &[f64]) -> Vec<Outcome> {
        let of = |(i, &misses): (usize, &f64)| {
            let (pattern, phases) = (Pattern::Closed, Phases::Random);
            let cell = Cell { players: 4 + i, load: 0.8, pattern, phases, steal: 0, hogs: 12, equal: false };
            let Row { policy, skip } = row;
            Outcome {
                cell,
                row: row.label(),
                policy,
                skip,
                misses,
                misses_low: misses,
                misses_high: misses,
                reserved: 1.0,
                settings: 0.0,
                settings_awake: 0.0,
                jobs: 1_000,
                by_seed: vec![misses],
            }
        };
        misses.iter().enumerate().map(of).collect()
    }

    /// The state of the claim that contains these words.
    fn state(outcomes: &[Outcome], words: &str) -> State {
        let verdicts = verdicts(outcomes);
        let found = verdicts.iter().find(|verdict| verdict.claim.contains(words));
        found.unwrap_or_else(|| panic!("no claim about {words:?}: {verdicts:?}")).state
    }

    #[test]
    fn a_mean_is_decided_by_its_interval_and_not_by_its_value() {
        let words = "without skipping: at most 0.4x";
        let state = |ours: &[f64]| {
            let ours = outcomes(Row { policy: Policy::GiveBack, skip: Skip::None }, ours);
            self::state(&[outcomes(RIVAL, &[0.1; 4]), ours].concat(), words)
        };
        assert_eq!(state(&[0.02, 0.021, 0.02, 0.019]), State::Held);
        assert_eq!(state(&[0.02, 0.06, 0.03, 0.05]), State::Undecided, "0.37 (0.17 to 0.78)");
        assert_eq!(state(&[0.08, 0.081, 0.08, 0.079]), State::Missed);
    }

    #[test]
    fn if_both_skip_they_skip_the_same_jobs() {
        let row = |policy, skip| Row { policy, skip };
        let with = |rivals_skip| {
            let ours = outcomes(row(Policy::GiveBack, Skip::Predicted), &[0.01; 3]);
            [outcomes(RIVAL, &[0.1; 3]), ours, outcomes(Row { skip: rivals_skip, ..RIVAL }, &[0.05; 3])].concat()
        };
        assert_eq!(state(&with(Skip::Predicted), "both skip jobs predicted late"), State::Held);
        let against_late = verdicts(&with(Skip::Late));
        assert!(against_late.iter().all(|verdict| !verdict.claim.contains("both skip")), "{against_late:?}");
        assert!(against_late.iter().any(|verdict| verdict.claim.contains("static GRUB skips late jobs")));
    }

    #[test]
    fn soft_servers_with_skipping_have_their_own_verdict() {
        let soft = outcomes(Row { policy: Policy::Soft, skip: Skip::Predicted }, &[0.01, 0.01, 0.06]);
        let all = [outcomes(RIVAL, &[0.1; 3]), soft].concat();
        assert_eq!(state(&all, "soft CBS with P = T that skips"), State::Missed, "0.6x in the worst cell");
    }
}
