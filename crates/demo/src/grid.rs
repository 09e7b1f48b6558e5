//! The grid: many small scenarios instead of two, so that no policy wins by luck.
//!
//! Dimensions: 1 to 12 players; 40 to 110 % of the room; clips with a closed, a mixed and no pattern; with and
//! without a load shift; with and without hogs; players released together or with random phases. Playing all
//! combinations would take hours. So cells are drawn at random (`--seed`) until the time is used up, with every
//! number of players and every load equally often. Words choose cells by name; chosen cells are played again until
//! the time is used up. In each cell static GRUB and Q-Fabric play, both also with players that skip frames, and
//! one of the other rivals in turn. The order is random, and all policies of a cell use the same calibration.

mod outcome;

use anyhow::{Result, ensure};
use qfabric_types::MechanismName;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

pub use self::outcome::{Comparison, Outcome, outcomes, tally, verdicts};
use crate::calibrate::Calibration;
use crate::disturbance::MOST_APART;
use crate::policy::{self, Policy, Skip};
use crate::record::RunRecord;
use crate::rows;
use crate::verdict::ENOUGH_JOBS;

/// Numbers of players.
pub const PLAYERS: [usize; 6] = [1, 2, 4, 6, 8, 12];
/// Demand of a cell divided by the room.
pub const LOADS: [f64; 7] = [0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1];
/// Fewest jobs of one player in one round, without the warm-up.
const LEAST_JOBS: usize = 50;
/// Jobs of one player in the pilot round of a cell.
pub const PILOT_JOBS: usize = 24;
/// A cell has its load if its players reach at least this part of it.
const LEAST_REACHED: f64 = 0.95;
/// A cell whose players reach a load in this range counts as loaded.
const LOADED: std::ops::RangeInclusive<f64> = 0.7..=1.0;
/// Fewest players of a loaded cell: with fewer, single jobs exceed the period.
const LOADED_PLAYERS: usize = 4;
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

/// The release times of the players' jobs within the frame period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phases {
    /// The same for all players.
    #[default]
    Together,
    /// Random for each player.
    Random,
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
    #[serde(default)]
    pub phases: Phases,
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
        let phases = if self.phases == Phases::Random { ", random phases" } else { "" };
        format!("grid: {} players, {:.0} %, {pattern}{shift}{hogs}{phases}", self.players, self.load * 100.0)
    }

    /// The release of each player's jobs after the common start, divided by the frame period. The same for all
    /// policies of a cell.
    pub fn releases(&self, seed: u64) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let release = |_| if self.phases == Phases::Random { random.random_range(0.0..1.0) } else { 0.0 };
        (0..self.players).map(release).collect()
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

    /// The load that its players have with this calibration; lower than [`Cell::load`] if the most expensive frame
    /// limits their rate.
    fn reached_load(&self, calibration: &Calibration) -> f64 {
        self.load * calibration.demand / calibration.designed
    }

    /// The name, with the reached load if it is clearly lower.
    fn title(&self, reached: f64) -> String {
        let name = self.name();
        if self.is_reached(reached) { name } else { format!("{name}, {:.0} % reached", reached * 100.0) }
    }

    /// Whether this reached load is the load of the cell.
    pub fn is_reached(&self, reached: f64) -> bool {
        reached >= LEAST_REACHED * self.load
    }

    fn is_loaded(&self, reached: f64) -> bool {
        let percent = (reached * 100.0).round() / 100.0;
        LOADED.contains(&percent) && self.players >= LOADED_PLAYERS
    }
}

/// The cells for about `seconds`, at least one, in random order. With `words`: the cells whose names contain all of
/// them, in turn; without: every pair of players and load at most once.
pub fn cells(seconds: f64, all: bool, seed: u64, words: &[String]) -> Result<Vec<Cell>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let cells = if words.is_empty() { drawn(&mut random) } else { chosen(words, &mut random) };
    ensure!(!cells.is_empty(), "no cell of the grid has all of {words:?} in its name; a name: {}", EXAMPLE.name());
    let turns = if words.is_empty() { cells.len() } else { usize::MAX };
    let rounds = policies(MechanismName::Deadline, all, 0).len(); // as many as under `ext`
    let mut left = seconds;
    let fits = |(i, cell): &(usize, Cell)| {
        left -= cell.seconds(rounds);
        *i == 0 || left >= 0.0
    };
    Ok(cells.into_iter().cycle().take(turns).enumerate().take_while(fits).map(|(_, cell)| cell).collect())
}

/// Every pair of players and load once; the other dimensions in turn.
fn drawn(random: &mut ChaCha8Rng) -> Vec<Cell> {
    let mut places = places();
    places.shuffle(random);
    let mut kinds = kinds();
    kinds.shuffle(random);
    places.into_iter().zip(kinds.iter().cycle()).map(|(place, kind)| kind.at(place)).collect()
}

/// The cells, of all combinations, whose names contain all `words`.
fn chosen(words: &[String], random: &mut ChaCha8Rng) -> Vec<Cell> {
    let all = places().into_iter().flat_map(|place| kinds().into_iter().map(move |kind| kind.at(place)));
    let mut cells: Vec<Cell> = all.filter(|cell| words.iter().all(|word| cell.name().contains(word))).collect();
    cells.shuffle(random);
    cells
}

fn places() -> Vec<(usize, f64)> {
    PLAYERS.into_iter().flat_map(|players| LOADS.map(|load| (players, load))).collect()
}

/// A cell without its players and its load.
#[derive(Clone, Copy)]
struct Kind {
    pattern: Pattern,
    shifts: bool,
    hogs: bool,
    phases: Phases,
}

impl Kind {
    const fn at(self, (players, load): (usize, f64)) -> Cell {
        let Kind { pattern, shifts, hogs, phases } = self;
        Cell { players, load, pattern, shifts, hogs, phases }
    }
}

/// Shows the form of a name in errors.
const EXAMPLE: Cell = Kind { pattern: Pattern::Mixed, shifts: false, hogs: true, phases: Phases::Random }.at((6, 0.8));

/// All combinations of pattern, shift, hogs and phases. A shift switches between the closed and the mixed clip, so it
/// has no separate pattern.
fn kinds() -> Vec<Kind> {
    let calm = [(Pattern::Closed, false), (Pattern::Mixed, false), (Pattern::None, false), (Pattern::Closed, true)];
    let around = [true, false].map(|hogs| [Phases::Together, Phases::Random].map(|phases| (hogs, phases)));
    let kind = |(hogs, phases)| calm.map(|(pattern, shifts)| Kind { pattern, shifts, hogs, phases });
    around.into_iter().flatten().flat_map(kind).collect()
}

/// The policies of cell number `i`, with Q-Fabric's players under this mechanism.
pub fn policies(mechanism: MechanismName, all: bool, i: usize) -> Vec<Policy> {
    let rivals = [Policy::Plain, Policy::Nice, Policy::Fifo, policy::equal_shares(false)];
    let mut policies = vec![policy::equal_shares(true), policy::ours(mechanism)];
    policies.extend(policies.clone().into_iter().map(|policy| policy::skipping(policy, Skip::Predicted)));
    policies.extend(rivals.into_iter().enumerate().filter(|(j, _)| all || i % 4 == *j).map(|(_, policy)| policy));
    policies
}

/// Whether a verdict compares the rounds of this policy with those of other policies.
pub fn is_compared(policy: &Policy) -> bool {
    [MechanismName::Deadline, MechanismName::Ext].iter().any(|name| policies(*name, false, 0)[..4].contains(policy))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_players_and_load_is_drawn_once_before_any_is_drawn_again() {
        let all = cells(1e6, false, 3, &[]).unwrap();
        let mut places: Vec<(usize, u32)> = all.iter().map(|c| (c.players, (c.load * 100.0).round() as u32)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!((all.len(), places.len()), (42, 42));
        assert!(all.iter().any(|c| c.shifts) && all.iter().any(|c| !c.hogs));
        assert!([Phases::Together, Phases::Random].iter().all(|p| all.iter().any(|c| c.phases == *p)));
        assert_eq!(cells(1e6, false, 3, &[]).unwrap(), all, "the same seed gives the same order");
        assert_eq!(cells(1.0, false, 3, &[]).unwrap().len(), 1);
    }

    #[test]
    fn words_choose_cells_which_are_played_again_until_the_time_is_used_up() {
        let words = ["6 players, 80 %".to_owned(), "mixed, hogs".to_owned()];
        let two = cells(600.0, false, 3, &words).unwrap();
        assert!(two.len() > 4 && two.iter().all(|cell| cell.name().contains("6 players, 80 %, mixed, hogs")));
        assert!(two[0].phases != two[1].phases && two[0] == two[2], "both phases in turn");
        let refusal = cells(600.0, false, 3, &["7 players".to_owned()]).unwrap_err().to_string();
        assert!(refusal.contains("7 players") && refusal.contains("grid: 6 players, 80 %, mixed, hogs, random phases"));
    }

    #[test]
    fn random_phases_lie_within_one_period_and_depend_on_the_seed_alone() {
        let releases = EXAMPLE.releases(5);
        assert!(releases.len() == 6 && releases.iter().all(|release| (0.0..1.0).contains(release)));
        assert!(releases != EXAMPLE.releases(6) && releases == EXAMPLE.releases(5));
        assert_eq!(Cell { phases: Phases::Together, ..EXAMPLE }.releases(5), [0.0; 6]);
    }

    #[test]
    fn every_cell_plays_static_grub_both_skipping_variants_and_one_rival_in_turn() {
        let under = |i| policies(MechanismName::Deadline, false, i);
        let rivals: Vec<String> = (0..4).map(|i| under(i)[4].label()).collect();
        assert_eq!(rivals, ["plain", "nice -20", "SCHED_FIFO", "static equal shares, hard"]);
        assert_eq!((under(0).len(), policies(MechanismName::Deadline, true, 0).len()), (5, 8));
    }

    #[test]
    fn under_ext_soft_servers_play_instead_of_feedback() {
        let policies = policies(MechanismName::Ext, false, 0);
        let ours = [policy::soft(), policy::skipping(policy::soft(), Skip::Predicted)];
        assert!(policies.len() == 5 && policies[1] == ours[0] && policies[3] == ours[1], "{policies:?}");
        assert!(policies[..4].iter().all(is_compared) && !is_compared(&Policy::Plain));
    }

    #[test]
    fn a_cell_plays_enough_jobs_for_its_verdict() {
        for cell in cells(1e6, false, 3, &[]).unwrap() {
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
            let compared = policies(MechanismName::Deadline, false, 0).into_iter().take(4);
            compared.zip(speeds).map(|(policy, speed)| round(&policy, speed)).collect()
        };
        assert_eq!(speed_outlier(rounds([1.0, 1.02, 0.99, 1.03]).iter()), None);
        let (odd, reason) = speed_outlier(rounds([0.90, 1.0, 0.91, 0.91]).iter()).unwrap();
        assert_eq!(odd, policy::headline().label());
        assert_eq!(reason, "frames cost +10 % compared with the other rounds of the cell");
    }
}
