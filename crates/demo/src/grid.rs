//! The grid: many small scenarios instead of two, so that no policy wins by luck.
//!
//! Dimensions: 1 to 12 players; 40 to 110 % of the room; clips with a closed, a mixed and no pattern; with and
//! without a load shift; with and without hogs. Playing all combinations would take hours. So cells are drawn at
//! random (`--seed`) until the time is used up, with every number of players and every load equally often. In each
//! cell static GRUB and Q-Fabric play, both also with players that skip frames, and one of the other rivals in
//! turn. The order is random, and all policies of a cell use the same calibration.
//! players that skip, and one of the other rivals in turn; in random order, each from the same calibration.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use crate::policy::{self, Policy, Skip};
use crate::record::RunRecord;
use crate::rows;
use crate::stats::{self, Count};
use crate::verdict::{self, Claim, ENOUGH_JOBS, Measured, State, Verdict};

/// Numbers of players.
pub const PLAYERS: [usize; 6] = [1, 2, 4, 6, 8, 12];
/// Demand of a cell divided by the room.
pub const LOADS: [f64; 7] = [0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1];
/// Fewest jobs of one player in one round, without the warm-up.
const LEAST_JOBS: usize = 50;
/// Jobs of one player in the pilot round of a cell.
pub const PILOT_JOBS: usize = 24;
/// A cell with a load in this range counts as loaded.
const LOADED: std::ops::RangeInclusive<f64> = 0.7..=1.0;
/// Two rounds are compared only if the same frames cost at most this times as much in one as in the other. The
/// speed of a machine changes from second to second, and at 100 % load a difference of a tenth decides which
/// policy misses more.
const MOST_APART: f64 = 1.05;
/// A loaded cell counts only if static GRUB misses more than this fraction of its jobs; below, no policy can
/// improve much.
const LEAST_MISSES: f64 = 0.005;

const ALL_CELLS: Claim =
    Claim::ratio("misses no more jobs than static GRUB in the same room, in the geometric mean of all cells", 1.0);
const IN_LOADED: Claim =
    Claim::ratio("misses at most 0.4x as many jobs in the geometric mean of the loaded cells (70 to 100 %)", 0.4);
const SKIPPING: Claim = Claim::ratio(
    "misses at most 0.5x as many jobs in the loaded cells if its players skip frames, which count as missed",
    0.5,
);
const BOTH_SKIP: Claim = Claim::ratio(
    "misses at most 0.6x as many jobs as static GRUB in the loaded cells if the players of both skip frames",
    0.6,
);
const ONE_CELL: Claim = Claim::ratio("misses no more jobs than static GRUB in the same room", 1.0);

/// The pattern in the costs of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Equal, closed groups of pictures.
    Closed,
    /// Groups of pictures of different lengths.
    Mixed,
    None,
}

/// One scenario of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Number of players that run at the same time.
    pub players: usize,
    /// Demand divided by the room.
    pub load: f64,
    pub pattern: Pattern,
    /// Half-way, the costs of half of the players rise and those of the other half fall.
    pub shifts: bool,
    /// Hogs run beside the players.
    pub hogs: bool,
}

impl Cell {
    /// The scenario's name in rows.
    pub fn name(&self) -> String {
        let pattern = match self.pattern {
            Pattern::Closed => "closed",
            Pattern::Mixed => "mixed",
            Pattern::None => "no pattern",
        };
        let shift = if self.shifts { ", shift" } else { "" };
        let hogs = if self.hogs { ", hogs" } else { "" };
        format!("grid: {} players, {:.0} %, {pattern}{shift}{hogs}", self.players, self.load * 100.0)
    }

    /// Jobs of one player in one round, the warm-up included: enough for a separate verdict about this cell.
    pub fn jobs(&self) -> usize {
        LEAST_JOBS.max((ENOUGH_JOBS as usize).div_ceil(self.players)) + crate::live::WARM_UP
    }

    /// Approximate seconds for `rounds` rounds and the pilot round.
    fn seconds(&self, rounds: usize) -> f64 {
        let playing = |jobs: usize| jobs as f64 * crate::trial::PERIOD_NS * 1e-9 + crate::plan::OVERHEAD_SECONDS;
        rounds as f64 * playing(self.jobs()) + playing(PILOT_JOBS) + crate::plan::TRIAL_SECONDS
    }

    fn is_loaded(&self) -> bool {
        LOADED.contains(&self.load)
    }
}

/// The cells for about `seconds`, at least one, in random order.
pub fn cells(seconds: f64, all: bool, seed: u64) -> Vec<Cell> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut places: Vec<(usize, f64)> =
        PLAYERS.into_iter().flat_map(|players| LOADS.map(|load| (players, load))).collect();
    places.shuffle(&mut random);
    let mut kinds = kinds();
    kinds.shuffle(&mut random);
    let cell = |(i, (players, load)): (usize, (usize, f64))| {
        let (pattern, shifts, hogs) = kinds[i % kinds.len()];
        Cell { players, load, pattern, shifts, hogs }
    };
    let rounds = policies(all, 0).len();
    let mut left = seconds;
    let cells = places.into_iter().enumerate().map(cell);
    let fits = |(i, cell): &(usize, Cell)| {
        left -= cell.seconds(rounds);
        *i == 0 || left >= 0.0
    };
    cells.enumerate().take_while(fits).map(|(_, cell)| cell).collect()
}

/// All combinations of pattern, shift and hogs. A shift switches between the closed and the mixed clip, so it has
/// no separate pattern.
fn kinds() -> Vec<(Pattern, bool, bool)> {
    let calm = [(Pattern::Closed, false), (Pattern::Mixed, false), (Pattern::None, false), (Pattern::Closed, true)];
    [true, false].into_iter().flat_map(|hogs| calm.map(|(pattern, shifts)| (pattern, shifts, hogs))).collect()
}

/// The policies of cell number `i`.
pub fn policies(all: bool, i: usize) -> Vec<Policy> {
    let rivals = [Policy::Plain, Policy::Nice, Policy::Fifo, policy::equal_shares(false)];
    let mut policies = vec![policy::equal_shares(true), policy::headline()];
    policies.extend(policies.clone().into_iter().map(|policy| policy::skipping(policy, Skip::Predicted)));
    policies.extend(rivals.into_iter().enumerate().filter(|(j, _)| all || i % 4 == *j).map(|(_, policy)| policy));
    policies
}

/// Whether a verdict compares the rounds of this policy with those of other policies.
pub fn is_compared(policy: &Policy) -> bool {
    policies(false, 0)[..4].contains(policy)
}

/// Of the compared rounds of a cell, the round whose costs differ most from the others, if the difference is too
/// large: its policy, and the reason for playing it again.
pub fn speed_outlier<'a>(rounds: impl Iterator<Item = &'a RunRecord>) -> Option<(String, String)> {
    let known: Vec<(&RunRecord, f64)> = rounds.filter_map(|round| Some((round, round.around.speed?))).collect();
    let speeds: Vec<f64> = known.iter().map(|(_, speed)| *speed).collect();
    let (least, most) = speeds.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), speed| (a.min(*speed), b.max(*speed)));
    let middle = rows::median(speeds);
    let off = |speed: f64| (speed / middle).ln().abs();
    let (odd, speed) = known.into_iter().max_by(|a, b| off(a.1).total_cmp(&off(b.1)))?;
    let reason =
        || format!("frames cost {:+.0} % compared with the other rounds of the cell", (speed / middle - 1.0) * 100.0);
    (most > MOST_APART * least).then(|| (odd.policy.clone(), reason()))
}

/// The result of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub cell: Cell,
    /// Misses of static GRUB, as a fraction of its jobs.
    pub rival: f64,
    /// Misses of Q-Fabric divided by misses of static GRUB. 0.5 is added to both counts, so that the ratio always
    /// exists.
    pub ratio: f64,
    /// The verdict on this cell alone, with the 95 % interval of the ratio.
    pub verdict: Verdict,
    /// The ratio for Q-Fabric with players that skip frames, against static GRUB without skipping.
    pub skipping: Option<f64>,
    /// The ratio if the players of both skip frames.
    pub both_skip: Option<f64>,
    /// The reason for which the cell counts in no verdict.
    pub disturbance: Option<String>,
}

/// The results of the cells in which both Q-Fabric and static GRUB were played.
pub fn outcomes(cells: &[Cell], rounds: &[RunRecord]) -> Vec<Outcome> {
    cells.iter().filter_map(|cell| outcome(cell, rounds)).collect()
}

fn outcome(cell: &Cell, rounds: &[RunRecord]) -> Option<Outcome> {
    let name = cell.name();
    let find = |policy: &Policy| {
        let label = policy.label();
        rounds.iter().find(|round| round.scenario == name && round.policy == label)
    };
    let skipping = |policy: Policy| find(&policy::skipping(policy, Skip::Predicted));
    let (ours, rival) = (find(&policy::headline())?, find(&policy::equal_shares(true))?);
    let count = |round: &RunRecord| rows::count(round);
    let over = |a: Option<&RunRecord>, b: Option<&RunRecord>| {
        let (a, b) = (a?, b?);
        speed_difference(a, b).is_none().then(|| smoothed_ratio(count(a), count(b)))
    };
    let unequal = speed_difference(ours, rival);
    let alone = verdict::misses_of_rival(&[(ours, rival)])
        .map(|measured| Measured { disturbed: measured.disturbed.or_else(|| unequal.clone()), ..measured });
    Some(Outcome {
        cell: *cell,
        rival: count(rival).misses as f64 / count(rival).jobs.max(1) as f64,
        ratio: smoothed_ratio(count(ours), count(rival)),
        verdict: ONE_CELL.judge(&name, alone),
        skipping: over(skipping(policy::headline()), Some(rival)),
        both_skip: over(skipping(policy::headline()), skipping(policy::equal_shares(true))),
        disturbance: ours.around.disturbance().or_else(|| rival.around.disturbance()).or(unequal),
    })
}

/// The reason for which two rounds cannot be compared; `None` if the same frames cost about the same in both.
fn speed_difference(ours: &RunRecord, rival: &RunRecord) -> Option<String> {
    let ratio = ours.around.speed? / rival.around.speed?;
    let apart = !(1.0 / MOST_APART..=MOST_APART).contains(&ratio);
    apart.then(|| format!("its frames cost {:+.0} % compared with the rival's", (ratio - 1.0) * 100.0))
}

fn smoothed_ratio(ours: Count, rival: Count) -> f64 {
    let rate = |count: Count| (count.misses as f64 + 0.5) / count.jobs.max(1) as f64;
    rate(ours) / rate(rival)
}

/// The verdicts on the goals, each over the geometric mean of its cells, followed by one verdict per cell.
pub fn verdicts(outcomes: &[Outcome]) -> Vec<Verdict> {
    let calm: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.disturbance.is_none()).collect();
    let disturbed = outcomes.iter().filter(|_| calm.is_empty()).find_map(|outcome| outcome.disturbance.clone());
    let counted = if calm.is_empty() { outcomes.iter().collect() } else { calm };
    let loaded: Vec<&Outcome> =
        counted.iter().copied().filter(|o| o.cell.is_loaded() && o.rival > LEAST_MISSES).collect();
    let judge = |claim: Claim, cells: &[&Outcome], ratio: fn(&Outcome) -> Option<f64>| {
        claim.judge(&format!("grid, {} cells", cells.len()), mean(cells, ratio, &disturbed))
    };
    let goals = [
        judge(ALL_CELLS, &counted, |outcome| Some(outcome.ratio)),
        judge(IN_LOADED, &loaded, |outcome| Some(outcome.ratio)),
        judge(SKIPPING, &loaded, |outcome| outcome.skipping),
        judge(BOTH_SKIP, &loaded, |outcome| outcome.both_skip),
    ];
    goals.into_iter().chain(outcomes.iter().map(|outcome| outcome.verdict.clone())).collect()
}

fn mean(cells: &[&Outcome], ratio: fn(&Outcome) -> Option<f64>, disturbed: &Option<String>) -> Option<Measured> {
    let logs: Vec<f64> = cells.iter().filter_map(|cell| ratio(cell)).map(f64::ln).collect();
    let interval = stats::mean(&logs).map(|i| stats::Interval { low: i.low.exp(), high: i.high.exp() });
    (!logs.is_empty()).then(|| Measured {
        value: rows::mean(&logs).exp(),
        interval,
        samples: cells.iter().map(|cell| cell.verdict.samples).sum(),
        disturbed: disturbed.clone(),
    })
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
    use super::*;

    #[test]
    fn every_combination_of_players_and_load_is_drawn_once_before_any_is_drawn_again() {
        let all = cells(1e6, false, 3);
        let mut places: Vec<(usize, u32)> = all.iter().map(|c| (c.players, (c.load * 100.0).round() as u32)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!((all.len(), places.len()), (42, 42));
        assert!(all.iter().any(|c| c.shifts) && all.iter().any(|c| !c.hogs));
        assert_eq!(cells(1e6, false, 3), all, "the same seed gives the same order");
        assert_eq!(cells(1.0, false, 3).len(), 1);
    }

    #[test]
    fn every_cell_plays_static_grub_both_skipping_variants_and_one_rival_in_turn() {
        let rivals: Vec<String> = (0..4).map(|i| policies(false, i)[4].label()).collect();
        assert_eq!(rivals, ["plain", "nice -20", "SCHED_FIFO", "static equal shares, hard"]);
        assert_eq!((policies(false, 0).len(), policies(true, 0).len()), (5, 8));
    }

    fn outcome(load: f64, ratio: f64, disturbance: Option<String>) -> Outcome {
        let cell = Cell { players: 6, load, pattern: Pattern::Closed, shifts: false, hogs: true };
        let (skipping, both_skip) = (Some(ratio / 2.0), Some(ratio));
        let interval = Some(stats::Interval { low: ratio / 2.0, high: ratio * 2.0 });
        let measured = Measured { value: ratio, interval, samples: 600, disturbed: disturbance.clone() };
        let verdict = ONE_CELL.judge(&cell.name(), Some(measured));
        Outcome { cell, rival: 0.2, ratio, verdict, skipping, both_skip, disturbance }
    }

    #[test]
    fn the_geometric_mean_of_the_loaded_cells_is_judged() {
        let outcomes = [outcome(0.8, 0.2, None), outcome(0.9, 0.3, None), outcome(0.4, 0.9, None)];
        let verdicts = verdicts(&outcomes);
        assert!(verdicts[..4].iter().all(|verdict| verdict.state == State::Held), "{verdicts:?}");
        assert!((verdicts[1].value.unwrap() - 0.06_f64.sqrt()).abs() < 1e-9 && verdicts[1].samples == 1200);
    }

    #[test]
    fn a_grid_of_disturbed_cells_has_no_verdict() {
        let outcomes = [outcome(0.8, 3.0, Some("steal".into())), outcome(0.9, 0.3, Some("steal".into()))];
        assert!(verdicts(&outcomes).iter().all(|verdict| verdict.state == State::Disturbed));
        assert!(tally(&outcomes).ends_with("0 held, 0 missed, 2 without a verdict"));
    }

    #[test]
    fn each_cell_is_judged_by_its_own_interval() {
        let outcomes = [outcome(0.8, 3.0, None), outcome(0.9, 0.3, None), outcome(0.4, 0.9, None)];
        let states: Vec<State> = verdicts(&outcomes)[4..].iter().map(|verdict| verdict.state).collect();
        assert_eq!(states, [State::Missed, State::Held, State::Disturbed], "0.9 [0.45, 1.8] contains 1");
        assert!(tally(&outcomes).ends_with("1 held, 1 missed, 1 without a verdict"));
    }

    #[test]
    fn a_cell_plays_enough_jobs_for_its_verdict() {
        for cell in cells(1e6, false, 3) {
            let jobs = cell.players * (cell.jobs() - crate::live::WARM_UP);
            assert!(jobs as u64 >= ENOUGH_JOBS, "{}: {jobs}", cell.name());
        }
    }

    fn round(policy: &Policy, speed: f64) -> RunRecord {
        let around = crate::disturbance::Surroundings { speed: Some(speed), ..Default::default() };
        RunRecord { policy: policy.label(), around, ..rows::tests::run(&[10], 1, 10.0) }
    }

    #[test]
    fn a_round_with_much_higher_costs_is_played_again() {
        let rounds = |speeds: [f64; 4]| -> Vec<RunRecord> {
            policies(false, 0)[..4].iter().zip(speeds).map(|(policy, speed)| round(policy, speed)).collect()
        };
        assert_eq!(speed_outlier(rounds([1.0, 1.02, 0.99, 1.03]).iter()), None);
        let (odd, reason) = speed_outlier(rounds([0.90, 1.0, 0.91, 0.91]).iter()).unwrap();
        assert_eq!(odd, policy::headline().label());
        assert_eq!(reason, "frames cost +10 % compared with the other rounds of the cell");
    }

    #[test]
    fn rounds_with_different_costs_are_not_compared() {
        let [rival, ours] = [policy::equal_shares(true), policy::headline()];
        assert_eq!(speed_difference(&round(&ours, 0.97), &round(&rival, 1.0)), None);
        let why = speed_difference(&round(&ours, 1.11), &round(&rival, 1.0)).unwrap();
        assert_eq!(why, "its frames cost +11 % compared with the rival's");
    }
}
