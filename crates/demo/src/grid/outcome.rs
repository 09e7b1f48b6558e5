//! The results of the cells, and the verdicts on the goals of the grid.
//!
//! Each goal is judged twice: on the geometric mean of its cells, and on every cell. The second verdict uses the
//! largest ratio, and as its interval the largest lower and the largest upper end of all cells. So it is held only
//! if the whole interval of each cell lies at or below the bound, and missed if the whole interval of one cell
//! lies above it.
//!
//! Two rounds are compared although the same frames cost up to 5 % more in one of them. Near capacity this alone can
//! change a ratio of misses by four fifths, so the interval of a cell is wider by what the costs may explain.

use serde::{Deserialize, Serialize};

use super::Cell;
use crate::calibrate::Calibration;
use crate::policy::{self, Policy, Skip};
use crate::record::RunRecord;
use crate::rows;
use crate::stats::{self, Count, Interval};
use crate::verdict::{self, Claim, Conditions, Measured, Pair, State, Verdict};

/// A cell counts only if one side misses more than this fraction of its jobs, and as a loaded cell only if static
/// GRUB does; below, no policy can improve much.
const LEAST_MISSES: f64 = 0.005;
/// Near capacity, misses grow with at most about this power of the costs (docs/design/0022-demo.md).
const STEEPEST: i32 = 12;

const ALL_CELLS: Claim = Claim::ratio(
    Conditions::Plain,
    "misses no more jobs than static GRUB in the same room, in the geometric mean of all cells",
    1.0,
);
const EVERY_CELL: Claim =
    Claim::ratio(Conditions::Plain, "misses in no cell more jobs than static GRUB in the same room", 1.0);
const IN_LOADED: Claim = Claim::ratio(
    Conditions::Plain,
    "misses at most 0.4x as many jobs as static GRUB in the geometric mean of the loaded cells",
    0.4,
);
const SKIPPING: Claim = Claim::ratio(
    Conditions::OursSkip,
    "misses at most 0.5x as many jobs as static GRUB in the geometric mean of the loaded cells",
    0.5,
);
const EVERY_SKIPPING: Claim =
    Claim::ratio(Conditions::OursSkip, "misses at most 0.5x as many jobs as static GRUB in every loaded cell", 0.5);
const BOTH_SKIP: Claim = Claim::ratio(
    Conditions::BothSkip,
    "misses at most 0.6x as many jobs as static GRUB in the geometric mean of the loaded cells",
    0.6,
);
const ONE_CELL: Claim = Claim::ratio(Conditions::Plain, "misses no more jobs than static GRUB in the same room", 1.0);
const ONE_SKIPPING: Claim = Claim::ratio(Conditions::OursSkip, "misses at most 0.5x as many jobs as static GRUB", 0.5);

/// Misses of Q-Fabric against those of static GRUB in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Misses of Q-Fabric divided by misses of static GRUB. 0.5 is added to both counts, so that the ratio always
    /// exists.
    pub ratio: f64,
    /// Lower end of the 95 % interval of the ratio.
    pub low: f64,
    /// Upper end; `None` if it is unbounded.
    pub high: Option<f64>,
    /// Number of jobs of the side with fewer jobs.
    pub samples: u64,
    /// The reason for which the comparison counts in no verdict.
    pub disturbance: Option<String>,
}

impl Comparison {
    /// Compares the rounds of a cell. Of several pairs, only the undisturbed ones count, if there are any. `base`: the
    /// rounds of static GRUB without skipping, which decide whether the cell is loaded.
    fn of(ours: &[&RunRecord], rival: &[&RunRecord], base: &[&RunRecord]) -> Option<Comparison> {
        let of_cycle = |rounds: &[&'_ RunRecord], cycle| rounds.iter().position(|round| round.cycle == cycle);
        let all: Vec<(Pair, Option<String>)> = ours
            .iter()
            .filter_map(|ours| {
                let (rival, base) = (rival[of_cycle(rival, ours.cycle)?], base[of_cycle(base, ours.cycle)?]);
                let disturbed = verdict::disturbance_of_pair((ours, rival)).or_else(|| base.around.disturbance());
                Some(((*ours, rival), disturbed))
            })
            .collect();
        let calm: Vec<Pair> = all.iter().filter(|(_, disturbed)| disturbed.is_none()).map(|(pair, _)| *pair).collect();
        let disturbed = all.first().filter(|_| calm.is_empty()).and_then(|(_, disturbed)| disturbed.clone());
        let pairs = if calm.is_empty() { all.into_iter().map(|(pair, _)| pair).collect() } else { calm };
        let Measured { interval, samples, .. } = verdict::misses_of_rival(&pairs)?;
        let Interval { low, high } = widened(interval?, relative_costs(&pairs));
        let ratio = smoothed_ratio(total(pairs.iter().map(|pair| pair.0)), total(pairs.iter().map(|pair| pair.1)));
        Some(Comparison {
            ratio,
            low,
            high: Some(high).filter(|high| high.is_finite()),
            samples,
            disturbance: disturbed,
        })
    }

    fn interval(&self) -> Interval {
        Interval { low: self.low, high: self.high.unwrap_or(f64::INFINITY) }
    }

    fn judge(&self, claim: Claim, place: &str) -> Verdict {
        let (interval, disturbed) = (Some(self.interval()), self.disturbance.clone());
        claim.judge(place, Some(Measured { value: self.ratio, interval, samples: self.samples, disturbed }))
    }
}

/// The result of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub cell: Cell,
    /// Demand of the players divided by the room. Lower than the load of the cell if the most expensive frame, which
    /// must fit into a period, limits the rate.
    pub reached_load: f64,
    /// Misses of static GRUB, as a fraction of its jobs.
    pub rival: f64,
    /// Misses of Q-Fabric, as a fraction of its jobs.
    pub ours: f64,
    /// Without skipping.
    #[serde(flatten)]
    pub plain: Comparison,
    /// The verdict on this cell alone, without skipping.
    pub verdict: Verdict,
    /// Q-Fabric with players that skip frames, against static GRUB without skipping.
    pub skipping: Option<Comparison>,
    /// Both with players that skip frames.
    pub both_skip: Option<Comparison>,
}

impl Outcome {
    fn is_loaded(&self) -> bool {
        self.cell.is_loaded(self.reached_load) && self.rival > LEAST_MISSES
    }

    fn has_misses(&self) -> bool {
        self.rival.max(self.ours) > LEAST_MISSES
    }
}

/// The results of the cells in which both Q-Fabric and static GRUB were played; a cell that was played several times
/// has one. `loads`: the calibration of each cell, by its name.
pub fn outcomes(cells: &[Cell], rounds: &[RunRecord], loads: &[(String, Calibration)]) -> Vec<Outcome> {
    let reached = |cell: &Cell| {
        let name = cell.name();
        let of_cell = loads.iter().filter(|(of, _)| *of == name);
        let reached: Vec<f64> = of_cell.map(|(_, calibration)| cell.reached_load(calibration)).collect();
        if reached.is_empty() { cell.load } else { rows::mean(&reached) }
    };
    let is_first = |&(i, cell): &(usize, &Cell)| !cells[..i].contains(cell);
    cells.iter().enumerate().filter(is_first).filter_map(|(_, cell)| outcome(cell, reached(cell), rounds)).collect()
}

fn outcome(cell: &Cell, reached_load: f64, rounds: &[RunRecord]) -> Option<Outcome> {
    let name = cell.name();
    let of = |policy: Policy| -> Vec<&RunRecord> {
        let label = policy.label();
        rounds.iter().filter(|round| round.scenario == name && round.policy == label).collect()
    };
    let played = if of(policy::soft()).is_empty() { policy::headline() } else { policy::soft() };
    let skipping = |policy| of(policy::skipping(policy, Skip::Predicted));
    let (ours_skip, rival_skip) = (skipping(played.clone()), skipping(policy::equal_shares(true)));
    let (ours, rival) = (of(played), of(policy::equal_shares(true)));
    let plain = Comparison::of(&ours, &rival, &rival)?;
    let missed = |rounds: &[&RunRecord]| rate(total(rounds.iter().copied()), 0.0);
    Some(Outcome {
        cell: *cell,
        reached_load,
        rival: missed(&rival),
        ours: missed(&ours),
        verdict: plain.judge(ONE_CELL, &cell.title(reached_load)),
        plain,
        skipping: Comparison::of(&ours_skip, &rival, &rival),
        both_skip: Comparison::of(&ours_skip, &rival_skip, &rival),
    })
}

/// The costs of our frames divided by the costs of the same frames under the rival; 1 if they are unknown.
fn relative_costs(pairs: &[Pair]) -> f64 {
    let of_pair = |(ours, rival): &Pair| Some((ours.around.speed? / rival.around.speed?).ln());
    rows::mean(&pairs.iter().filter_map(of_pair).collect::<Vec<_>>()).exp()
}

/// The interval, extended by the misses that a difference of the costs may explain: the side whose frames cost more
/// misses more jobs for this reason alone.
fn widened(interval: Interval, costs: f64) -> Interval {
    let explained = costs.powi(STEEPEST);
    Interval { low: interval.low / explained.max(1.0), high: interval.high / explained.min(1.0) }
}

fn total<'a>(rounds: impl Iterator<Item = &'a RunRecord>) -> Count {
    Count::sum(&rounds.map(rows::count).collect::<Vec<_>>())
}

fn rate(count: Count, added: f64) -> f64 {
    (count.misses as f64 + added) / count.jobs.max(1) as f64
}

fn smoothed_ratio(ours: Count, rival: Count) -> f64 {
    rate(ours, 0.5) / rate(rival, 0.5)
}

/// The verdicts on the goals, followed by one verdict per cell, and by one per loaded cell with skipping.
pub fn verdicts(outcomes: &[Outcome]) -> Vec<Verdict> {
    let loaded = || outcomes.iter().filter(|outcome| outcome.is_loaded());
    let skipping = || loaded().filter_map(|outcome| outcome.skipping.as_ref());
    let goals = [
        goal(ALL_CELLS, mean, outcomes.iter().map(|outcome| &outcome.plain)),
        goal(EVERY_CELL, worst, outcomes.iter().filter(|o| o.has_misses()).map(|outcome| &outcome.plain)),
        goal(IN_LOADED, mean, loaded().map(|outcome| &outcome.plain)),
        goal(SKIPPING, mean, skipping()),
        goal(EVERY_SKIPPING, worst, skipping()),
        goal(BOTH_SKIP, mean, loaded().filter_map(|outcome| outcome.both_skip.as_ref())),
    ];
    let cells = outcomes.iter().map(|outcome| outcome.verdict.clone());
    let of_skipping = |o: &Outcome| Some(o.skipping.as_ref()?.judge(ONE_SKIPPING, &o.cell.title(o.reached_load)));
    goals.into_iter().chain(cells).chain(loaded().filter_map(of_skipping)).collect()
}

/// The verdict over the undisturbed comparisons. If there are none, the verdict names a disturbance.
fn goal<'a>(
    claim: Claim,
    summary: fn(&[&Comparison]) -> Option<Measured>,
    cells: impl Iterator<Item = &'a Comparison>,
) -> Verdict {
    let all: Vec<&Comparison> = cells.collect();
    let calm: Vec<&Comparison> = all.iter().copied().filter(|cell| cell.disturbance.is_none()).collect();
    let counted = if calm.is_empty() { all } else { calm };
    claim.judge(&format!("grid, {} cells", counted.len()), summary(&counted))
}

/// The geometric mean of the cells, with a bootstrap over cells.
fn mean(cells: &[&Comparison]) -> Option<Measured> {
    let logs: Vec<f64> = cells.iter().map(|cell| cell.ratio.ln()).collect();
    let interval = stats::mean(&logs).map(|i| Interval { low: i.low.exp(), high: i.high.exp() });
    let samples = cells.iter().map(|cell| cell.samples).sum();
    let disturbed = cells.first()?.disturbance.clone();
    Some(Measured { value: rows::mean(&logs).exp(), interval, samples, disturbed })
}

/// The worst cell: each value is the largest of all cells, and the cell with the fewest jobs decides whether they
/// suffice.
fn worst(cells: &[&Comparison]) -> Option<Measured> {
    let largest = |value: fn(&Comparison) -> f64| cells.iter().map(|cell| value(cell)).fold(0.0, f64::max);
    let interval = Interval { low: largest(|cell| cell.low), high: largest(|cell| cell.interval().high) };
    let samples = cells.iter().map(|cell| cell.samples).min()?;
    let disturbed = cells.first()?.disturbance.clone();
    Some(Measured { value: largest(|cell| cell.ratio), interval: Some(interval), samples, disturbed })
}

/// The number of cells that are held, missed, and without a verdict.
pub fn tally(outcomes: &[Outcome]) -> String {
    let count = |state| outcomes.iter().filter(|outcome| outcome.verdict.state == state).count();
    let (held, missed, none) = (count(State::Held), count(State::Missed), count(State::Disturbed));
    format!(
        "{} cells judged separately against static GRUB: {held} held, {missed} missed, {none} without a verdict",
        outcomes.len()
    )
}

#[cfg(test)]
mod tests {
    use qfabric_types::MechanismName;

    use super::*;
    use crate::grid::{Pattern, Phases};

    fn comparison(ratio: f64, disturbance: Option<&str>) -> Comparison {
        let disturbance = disturbance.map(str::to_owned);
        Comparison { ratio, low: ratio / 2.0, high: Some(ratio * 2.0), samples: 600, disturbance }
    }

    fn closed(players: usize, load: f64) -> Cell {
        Cell { players, load, pattern: Pattern::Closed, shifts: false, hogs: true, phases: Phases::Together }
    }

    fn outcome(load: f64, ratio: f64, disturbance: Option<&str>) -> Outcome {
        let cell = closed(6, load);
        let plain = comparison(ratio, disturbance);
        let verdict = plain.judge(ONE_CELL, &cell.name());
        let (skipping, both_skip) = (Some(comparison(ratio / 2.0, disturbance)), Some(comparison(ratio, disturbance)));
        Outcome { cell, reached_load: load, rival: 0.2, ours: 0.2 * ratio, plain, verdict, skipping, both_skip }
    }

    fn states(verdicts: &[Verdict]) -> Vec<State> {
        verdicts.iter().map(|verdict| verdict.state).collect()
    }

    #[test]
    fn the_geometric_mean_of_the_loaded_cells_is_judged() {
        let outcomes = [outcome(0.8, 0.2, None), outcome(0.9, 0.25, None), outcome(0.4, 0.9, None)];
        let verdicts = verdicts(&outcomes);
        assert!([0, 2, 3, 5].iter().all(|&i| verdicts[i].state == State::Held), "{verdicts:?}");
        assert!((verdicts[2].value.unwrap() - 0.05_f64.sqrt()).abs() < 1e-9 && verdicts[2].samples == 1200);
    }

    #[test]
    fn every_cell_decides_and_not_their_mean() {
        let calm = |ratios: [f64; 3]| ratios.map(|ratio| outcome(0.8, ratio, None));
        let every = |ratios| {
            let verdicts = verdicts(&calm(ratios));
            [verdicts[1].state, verdicts[4].state]
        };
        assert_eq!(every([0.1, 0.2, 0.3]), [State::Held; 2]);
        assert_eq!(every([0.1, 0.1, 0.6]), [State::Disturbed; 2], "0.6 [0.3, 1.2] and 0.3 [0.15, 0.6]");
        assert_eq!(every([0.01, 0.01, 3.0]), [State::Missed; 2]);
        let mean = verdicts(&calm([0.01, 0.01, 3.0]))[0].value.unwrap();
        assert!(mean < 0.1, "{mean}");
    }

    #[test]
    fn a_cell_without_misses_decides_nothing() {
        let unknown = Comparison { low: 0.0, high: None, ..comparison(1.0, None) };
        let idle = Outcome { rival: 0.0, ours: 0.0, plain: unknown, ..outcome(0.4, 1.0, None) };
        let verdict = &verdicts(&[outcome(0.8, 0.1, None), idle])[1];
        assert_eq!((verdict.state, verdict.value), (State::Held, Some(0.1)));
        let one_sided = Outcome { rival: 0.0, ..outcome(0.4, 9.0, None) };
        assert_eq!(verdicts(&[outcome(0.8, 0.1, None), one_sided])[1].state, State::Missed);
    }

    #[test]
    fn a_cell_with_fewer_than_four_players_is_not_loaded() {
        let few = |mut outcome: Outcome| {
            outcome.cell.players = 2;
            outcome
        };
        let verdicts = verdicts(&[outcome(0.8, 0.1, None), few(outcome(0.8, 9.0, None))]);
        assert_eq!((verdicts[2].samples, verdicts[4].value), (600, Some(0.05)), "of one cell");
        assert_eq!(verdicts[1].state, State::Missed, "but it counts among all cells");
    }

    #[test]
    fn a_cell_that_does_not_reach_its_load_says_so_and_is_not_loaded() {
        let cell = closed(4, 0.8);
        let calibrated = |demand| {
            let calibration = Calibration {
                players: cell.players,
                clips: Vec::new(),
                period: qfabric_types::Nanos::ZERO,
                traces: Vec::new(),
                trace_files: Vec::new(),
                demand,
                designed: 1.4,
            };
            let outcome = outcomes(&[cell], &rounds(&cell), &[(cell.name(), calibration)]).remove(0);
            (outcome.cell.is_loaded(outcome.reached_load), outcome.verdict.claim)
        };
        let (is_loaded, claim) = calibrated(0.98);
        assert!(!is_loaded && claim.contains("80 %, closed, hogs, 56 % reached, calm"), "{claim}");
        let (is_loaded, claim) = calibrated(1.399);
        assert!(is_loaded && claim.contains("80 %, closed, hogs, calm"), "{claim}");
    }

    #[test]
    fn a_grid_of_disturbed_cells_has_no_verdict() {
        let outcomes = [outcome(0.8, 3.0, Some("steal")), outcome(0.9, 0.3, Some("steal"))];
        let verdicts = verdicts(&outcomes);
        let named = |verdict: &Verdict| verdict.reason.as_ref().unwrap().contains("disturbed (steal)");
        assert!(verdicts.len() == 10 && verdicts.iter().all(named), "{verdicts:?}");
        assert!(tally(&outcomes).ends_with("0 held, 0 missed, 2 without a verdict"));
    }

    #[test]
    fn each_cell_is_judged_by_its_own_interval() {
        let outcomes = [outcome(0.8, 3.0, None), outcome(0.9, 0.3, None), outcome(0.4, 0.9, None)];
        let verdicts = verdicts(&outcomes);
        let cells = [State::Missed, State::Held, State::Disturbed];
        assert_eq!(states(&verdicts[6..9]), cells, "0.9 [0.45, 1.8] contains 1");
        assert_eq!(states(&verdicts[9..]), [State::Missed, State::Held], "with skipping, in the loaded cells");
        assert!(tally(&outcomes).ends_with("1 held, 1 missed, 1 without a verdict"));
    }

    #[test]
    fn every_claim_names_its_conditions() {
        let verdicts = verdicts(&[outcome(0.8, 0.2, None)]);
        let plain = "calm, without skipping: Q-Fabric misses";
        let skipping = ["calm, Q-Fabric's players skip: ", "calm, the players of both skip: "];
        let names = |verdict: &Verdict| {
            verdict.claim.contains(plain) || skipping.iter().any(|words| verdict.claim.contains(words))
        };
        assert!(verdicts.iter().all(names), "{verdicts:?}");
        assert!(verdicts[3].claim.contains(skipping[0]) && verdicts[5].claim.contains(skipping[1]));
    }

    /// The rounds of one cell, all with the same late jobs.
    fn rounds(cell: &Cell) -> Vec<RunRecord> {
        let of = |policy: &Policy| {
            let mut round = rows::tests::run(&[50; 600], 600, 2.5);
            (round.scenario, round.policy) = (cell.name(), policy.label());
            round
        };
        crate::grid::policies(MechanismName::Deadline, false, 0).iter().map(of).collect()
    }

    #[test]
    fn under_ext_the_rounds_with_soft_servers_are_ours() {
        let cell = closed(6, 0.8);
        let mut rounds = rounds(&cell);
        for round in &mut rounds {
            round.policy = round.policy.replace(&policy::headline().label(), &policy::soft().label());
        }
        let outcome = outcomes(&[cell], &rounds, &[]).remove(0);
        assert!(outcome.ours > 0.9 && outcome.skipping.is_some() && outcome.both_skip.is_some());
    }

    #[test]
    fn misses_that_costlier_frames_may_explain_decide_nothing() {
        let cell = closed(8, 1.0);
        let missed = |late: usize| {
            let responses: Vec<u64> = (0..600).map(|k| if k < late { 50 } else { 30 }).collect();
            rows::tests::run(&responses, 600, 2.5).players
        };
        let state = |our_cost: f64| {
            let mut rounds = rounds(&cell);
            for round in &mut rounds {
                let is_ours = round.policy == policy::headline().label();
                round.players = missed(if is_ours { 384 } else { 307 });
                round.around.speed = Some(if is_ours { our_cost } else { 1.0 });
            }
            outcomes(&[cell], &rounds, &[])[0].verdict.state
        };
        assert_eq!((state(1.0), state(1.02)), (State::Missed, State::Disturbed));
    }

    #[test]
    fn a_disturbed_round_with_skipping_counts_in_no_verdict() {
        let cell = closed(6, 0.8);
        let mut rounds = rounds(&cell);
        let calm = outcomes(&[cell], &rounds, &[]);
        assert!(calm[0].skipping.as_ref().unwrap().disturbance.is_none());
        let label = policy::skipping(policy::headline(), Skip::Predicted).label();
        rounds.iter_mut().filter(|round| round.policy == label).for_each(|round| round.around.steal = vec![0.3]);
        let stolen = outcomes(&[cell], &rounds, &[]);
        assert_eq!(stolen[0].plain.disturbance, None);
        for comparison in [&stolen[0].skipping, &stolen[0].both_skip] {
            assert!(comparison.as_ref().unwrap().disturbance.as_ref().unwrap().contains("steal 30"));
        }
        let verdicts = verdicts(&stolen);
        let named = |verdict: &Verdict| verdict.reason.as_ref().unwrap().contains("steal 30");
        assert!(verdicts[3..6].iter().all(named), "{verdicts:?}");
    }
}
