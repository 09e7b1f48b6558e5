//! What is promised over the cells, and whether it holds. Ratios are of misses to the rival's, static GRUB with the same
//! room; means of ratios are geometric.

use serde::Serialize;

use super::{Cell, Outcome, Policy, RIVAL, Row};
use crate::world::Skip;

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It does.
    Held,
    /// It does not.
    Missed,
}

/// A claim and what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What is claimed.
    pub claim: String,
    /// Whether it holds.
    pub state: State,
    /// The number that the claim bounds.
    pub found: f64,
    /// Ends of its 95 % interval over the cells; of a worst case, the least and the largest ratio.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Cells.
    pub samples: usize,
}

/// Loads from 70 to 100 % where the rival misses something; with fewer players single jobs exceed the period.
fn is_loaded(cell: &Cell, rival: &Outcome) -> bool {
    (0.7..=1.0).contains(&cell.load) && cell.players >= 4 && rival.misses > 0.005
}

/// The outcomes of `row` and of `rival`, cell by cell.
fn pairs(outcomes: &[Outcome], row: Row, rival: Row) -> Vec<(&Outcome, &Outcome)> {
    let is = |outcome: &Outcome, row: Row| (outcome.policy, outcome.skip) == (row.policy, row.skip);
    let of = |cell: &Cell, row: Row| outcomes.iter().find(|outcome| outcome.cell == *cell && is(outcome, row));
    outcomes.iter().filter(|o| is(o, row)).filter_map(|ours| Some((ours, of(&ours.cell, rival)?))).collect()
}

/// Misses over the rival's. Of nothing at all: half a job, so that the logarithm exists.
fn ratio((ours, rival): &(&Outcome, &Outcome)) -> f64 {
    let least = 0.5 / ours.jobs as f64;
    ours.misses.max(least) / rival.misses.max(least)
}

/// All claims that can be judged by these outcomes.
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
            "loaded calm cells, skipping what is predicted late: at most half of static GRUB's",
            &loaded(&skipping, true),
        ),
        worst(
            "all loaded cells, skipping what is predicted late: at most half of static GRUB's",
            &loaded(&skipping, false),
        ),
        mean("loaded cells, both skip: at most 0.6x the misses of static GRUB, mean", &loaded(&both_skip, false), 0.6),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Cells with more misses, by their means and by more than their seeds differ.
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
        verdict("no cell has more misses than static GRUB (cells that have)", worse(|(mean, _)| *mean > 0.0)),
        verdict(
            "no cell has more misses than static GRUB beyond the 95 % interval over its seeds (cells that have)",
            worse(|(mean, half)| mean - half > 0.0),
        ),
    ]
}

/// By how much more of the jobs were missed than by the rival, seed by seed: the mean, and half of its 95 % interval.
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
