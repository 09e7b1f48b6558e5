//! The claims about the cells, and their verdicts. A ratio is the misses divided by those of the rival, static
//! GRUB with the same room. Means of ratios are geometric.

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
    let skipping = pairs(outcomes, ours(Skip::Predicted), RIVAL);
    let against = Row { skip: Skip::Late, ..RIVAL };
    let both_skip = pairs(outcomes, ours(Skip::Predicted), against);
    let [in_the_mean, beyond_chance] = no_worse(&all);
    [
        in_the_mean,
        beyond_chance,
        mean("loaded calm cells: at most 0.4x the misses of static GRUB, mean", &loaded(&all, true), 0.4),
        worst(
            "loaded calm cells, skipping jobs predicted late: at most 0.5x the misses of static GRUB",
            &loaded(&skipping, true),
        ),
        worst(
            "all loaded cells, skipping jobs predicted late: at most 0.5x the misses of static GRUB",
            &loaded(&skipping, false),
        ),
        mean("loaded cells, both skip: at most 0.6x the misses of static GRUB, mean", &loaded(&both_skip, false), 0.6),
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
        verdict("no cell has more misses than static GRUB (cells with more)", worse(|(mean, _)| *mean > 0.0)),
        verdict(
            "no cell has more misses than static GRUB beyond the 95 % interval over its seeds (cells with more)",
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
    (!logs.is_empty()).then(|| Verdict {
        claim: claim.into(),
        state: if mean.exp() <= most { State::Held } else { State::Missed },
        found: mean.exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        samples: ratios.len(),
    })
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
