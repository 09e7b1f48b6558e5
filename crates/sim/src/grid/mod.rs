//! `qfabric sim grid`: runs players near capacity under every policy, over loads, numbers of players, patterns of
//! cost, phases and steal. The kernel is a model ([`qfabric_sched::Machine`]). Under the policies of Q-Fabric, the
//! real [`qfabric_host::Host`] decides, and the time and the reservation of its control thread are part of the room.
//!
//! A [`Cell`] is one set of conditions, a [`Row`] one way to schedule under these conditions. Every row of a cell
//! has the same costs, phases and steal. A miss is a job that has not ended by its deadline: late, skipped, or
//! never ended. Source of the costs: recorded traces ([`qfabric_control::traces`]), scaled so that the mean demand
//! is the cell's load times [`ROOM`]. Half of the players cost twice as much as the others, and the halves change
//! roles half-way, unless the cell has equal players, as most cells of the live grid.

mod cells;
mod costs;
mod goal;
mod picture;
mod report;

use qfabric_host::{CONTROL_BUDGET, CONTROL_PERIOD, Limits};
use qfabric_sched::{MachineConfig, Steal, WEIGHT};
use qfabric_types::{Contract, Instant, JobSource, Nanos, PredictorSpec, Reclaiming, Reservation, Share};
use serde::{Deserialize, Serialize};

pub use self::cells::{all, few};
pub use self::goal::{State, Verdict, verdicts};
pub use self::picture::svg;
pub use self::report::Report;
use crate::world::{ControlThread, Player, Policy as Scheduled, Scenario, Skip, World};

/// C: bandwidth of the two CPUs that may be reserved.
pub const ROOM: Share = Share::from_ppm(1_800_000);
/// T, unless the extent has another one.
pub const PERIOD: Nanos = Nanos::from_millis(40);
/// The server for fair tasks that Linux keeps on each CPU since 6.12: 50 ms in 1 s.
const FAIR_SERVER: Share = Share::from_ppm(50_000);
const CPUS: usize = 2;
/// The tick at which a kernel with 250 Hz and without HRTICK_DL enforces budgets.
const TICK: Nanos = Nanos::from_millis(4);
/// CPU time of one wake-up of the control thread, without its settings. The live thread needs 150 µs per job if most
/// jobs give back, and the model then wakes 2.6 times and sets twice per job (docs/design/0021).
const WAKE_UP: Nanos = Nanos::from_micros(30);
/// CPU time of one setting: two files of `/proc` and two calls.
const SETTING: Nanos = Nanos::from_micros(40);
/// Weight of nice −20 divided by the weight of nice 0 (the kernel's `sched_prio_to_weight`).
const NICE: f64 = 88_761.0;

/// The pattern in the costs of successive jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// H.264 in closed groups of 12 frames.
    Closed,
    /// MPEG-2 in groups of 12 frames, with the highest peaks.
    Mpeg2,
    /// H.264 in groups of different lengths.
    Mixed,
    /// Independent costs.
    None,
}

/// The release times of the players' jobs within the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phases {
    /// Random for each player.
    Random,
    /// The same for all players.
    Together,
}

/// One set of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub players: usize,
    /// Mean demand divided by [`ROOM`].
    pub load: f64,
    pub pattern: Pattern,
    pub phases: Phases,
    /// Steal of each CPU, in percent.
    pub steal: u32,
    /// Best-effort tasks that always want to run.
    pub hogs: usize,
    /// The jobs of all players cost the same in the mean.
    #[serde(default)]
    pub equal: bool,
}

impl Cell {
    /// Whether the cell has no steal.
    pub fn is_calm(&self) -> bool {
        self.steal == 0
    }

    /// Description for people.
    pub fn label(&self) -> String {
        let Cell { players, pattern, phases, steal, hogs, equal, .. } = *self;
        let calm = if self.is_calm() { "calm".to_owned() } else { format!("{steal} % stolen") };
        let hogs = if hogs == 0 { ", no hogs" } else { "" };
        let equal = if equal { ", equal players" } else { "" };
        let (pattern, phases) = (format!("{pattern:?}").to_lowercase(), format!("{phases:?}").to_lowercase());
        format!("{players} players, {pattern}, {phases}, {calm}{hogs}{equal}")
    }
}

/// The scheduling of the players.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Fair scheduling with the hogs.
    Plain,
    /// Fair scheduling, nice −20.
    Nice,
    /// SCHED_FIFO, all players with the same priority.
    Fifo,
    /// Fixed equal shares of the room, hard.
    StaticHard,
    /// Fixed equal shares of the room, with GRUB.
    StaticGrub,
    /// Q-Fabric without giving back between jobs.
    Feedback,
    /// Q-Fabric.
    GiveBack,
    /// Q-Fabric that knows every cost beforehand.
    Oracle,
    /// Fixed equal shares with one soft server period per job, as under the mechanism `ext`.
    Soft,
}

/// A policy together with the way to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub policy: Policy,
    /// The jobs that players skip.
    pub skip: Skip,
}

/// The rival in every claim.
pub const RIVAL: Row = Row { policy: Policy::StaticGrub, skip: Skip::None };

impl Row {
    /// Every policy with every way to skip.
    pub fn all() -> impl Iterator<Item = Row> {
        use Policy::*;
        let policies = [Plain, Nice, Fifo, StaticHard, StaticGrub, Feedback, GiveBack, Oracle, Soft];
        let skips = [Skip::None, Skip::Late, Skip::Predicted];
        skips.into_iter().flat_map(move |skip| policies.map(|policy| Row { policy, skip }))
    }

    /// Description for people.
    pub fn label(self) -> String {
        let policy = match self.policy {
            Policy::Plain => "plain",
            Policy::Nice => "nice -20",
            Policy::Fifo => "SCHED_FIFO",
            Policy::StaticHard => "static DEADLINE",
            Policy::StaticGrub => "static GRUB",
            Policy::Feedback => "feedback, no giving back",
            Policy::GiveBack => "Q-Fabric",
            Policy::Oracle => "Q-Fabric, costs known",
            Policy::Soft => "static soft CBS, P = T",
        };
        match self.skip {
            Skip::None => policy.to_owned(),
            Skip::Late => format!("{policy}, skip late"),
            Skip::Predicted => format!("{policy}, skip predicted"),
        }
    }
}

/// The amount of simulation per cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of runs, each with other costs, phases and steal.
    pub seeds: u64,
    /// Seed of the first run.
    pub first_seed: u64,
    /// Jobs of each player.
    pub jobs: usize,
    /// T. The live grid makes it longer, until the dearest frame fits.
    pub period: Nanos,
}

impl Default for Extent {
    fn default() -> Self {
        Extent { seeds: 6, first_seed: 0, jobs: 360, period: PERIOD }
    }
}

/// The result of one row in one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub cell: Cell,
    /// The text of [`Row::label`].
    pub row: String,
    pub policy: Policy,
    pub skip: Skip,
    /// Fraction of the jobs that were missed, mean over the seeds.
    pub misses: f64,
    /// Lower end of the 95 % interval of that mean.
    pub misses_low: f64,
    /// Upper end of the 95 % interval of that mean.
    pub misses_high: f64,
    /// Mean over time of the reserved bandwidth, in CPUs.
    pub reserved: f64,
    /// Applied settings per job.
    pub settings: f64,
    /// Applied settings of threads that were awake, per job.
    pub settings_awake: f64,
    /// Jobs of all seeds.
    pub jobs: usize,
    /// `misses` of each seed. All rows of a cell have the same costs, so they are compared seed by seed.
    #[serde(skip)]
    pub by_seed: Vec<f64>,
}

/// Runs one row in one cell.
pub fn run(cell: Cell, row: Row, extent: Extent) -> Outcome {
    let (mut misses, mut reserved, mut settings, mut settings_awake) = (Vec::new(), 0.0, 0.0, 0.0);
    let all_jobs = extent.jobs * cell.players * extent.seeds as usize;
    for seed in extent.first_seed..extent.first_seed + extent.seeds {
        let (scenario, jobs) = scenario(cell, row, extent, seed);
        let outcomes = World::new(scenario).run();
        let on_time: u64 = outcomes.rows.iter().map(|row| row.jobs - row.misses).sum();
        misses.push(1.0 - on_time as f64 / jobs as f64);
        reserved += outcomes.reserved / extent.seeds as f64;
        settings += outcomes.settings as f64 / all_jobs as f64;
        settings_awake += outcomes.settings_awake as f64 / all_jobs as f64;
    }
    let (mean, half) = interval(&misses);
    Outcome {
        cell,
        row: row.label(),
        policy: row.policy,
        skip: row.skip,
        misses: mean,
        misses_low: (mean - half).max(0.0),
        misses_high: (mean + half).min(1.0),
        reserved,
        settings,
        settings_awake,
        jobs: all_jobs,
        by_seed: misses,
    }
}

/// The mean, and half of its 95 % interval by Student's t.
fn interval(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, students_t(values.len() - 1) * (variance / n).sqrt())
}

/// The 97.5 % quantile of Student's t with this many degrees of freedom, at least 1. Beyond the table, an expansion
/// around the normal quantile, which is exact to a thousandth.
fn students_t(degrees: usize) -> f64 {
    const TABLE: [f64; 9] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];
    let inverse = 1.0 / degrees as f64;
    let expanded = 1.959_96 + inverse * (2.372 + inverse * (2.823 + inverse * 2.556));
    TABLE.get(degrees - 1).copied().unwrap_or(expanded)
}

/// The whole scenario, and the number of jobs whose deadline lies in it.
fn scenario(cell: Cell, row: Row, extent: Extent, seed: u64) -> (Scenario, usize) {
    let Extent { jobs, period, .. } = extent;
    let costs = costs::Costs::new(cell, seed, period);
    let players: Vec<Player> = (0..cell.players)
        .map(|i| Player {
            period,
            server_period: Nanos::new(period.get() / 4),
            start: costs.start(i),
            jobs: costs.jobs(i, jobs),
            policy: scheduled(row.policy, cell.players, period),
            skip: row.skip,
            oracle: row.policy == Policy::Oracle,
        })
        .collect();
    let last = players.iter().map(|player| player.start).max().unwrap_or(Instant::ZERO);
    let steal = Steal { fraction: Share::from_ppm(cell.steal * 10_000), seed };
    let half = Share::from_ppm(ROOM.ppm() / CPUS as u32);
    let control = control_thread(row.policy);
    let machine = MachineConfig {
        cpus: CPUS,
        hogs: cell.hogs,
        bound: half,
        fair_server: FAIR_SERVER,
        tick: TICK,
        steal,
        ..Default::default()
    };
    let until = last + period.saturating_mul(jobs as u64) + Nanos::new(1);
    let own = control.map_or(Share::ZERO, |control| control.reservation.share());
    let limits = Limits::of_capacity(ROOM.saturating_sub(own));
    (Scenario { machine, control, limits, players, until, faults: None, death: None }, jobs * cell.players)
}

/// The daemon's control thread with its default reservation, which is part of the room as in the live demo.
fn control_thread(policy: Policy) -> Option<ControlThread> {
    let reservation = Reservation::new(CONTROL_BUDGET, CONTROL_PERIOD).expect("a budget below its period");
    let control = ControlThread { reservation, cost: WAKE_UP, setting: SETTING };
    matches!(policy, Policy::Feedback | Policy::GiveBack | Policy::Oracle).then_some(control)
}

fn scheduled(policy: Policy, players: usize, job_period: Nanos) -> Scheduled {
    let fixed = |period: Nanos, mode| {
        let share = Share::from_ppm((ROOM.ppm() / players as u32).min(950_000));
        let reservation = Reservation::new(share.budget_in(period), period);
        Scheduled::Static(reservation.expect("this share of a CPU in T or T/4 is a valid reservation"), mode)
    };
    let quarter = Nanos::new(job_period.get() / 4);
    match policy {
        Policy::Plain => Scheduled::BestEffort,
        Policy::Nice => Scheduled::Weighted(NICE / 1_024.0 * WEIGHT),
        Policy::Fifo => Scheduled::FixedPriority,
        Policy::StaticHard => fixed(quarter, Reclaiming::Hard),
        Policy::StaticGrub => fixed(quarter, Reclaiming::Grub),
        Policy::Soft => fixed(job_period, Reclaiming::Soft),
        Policy::Feedback => Scheduled::Fabric(Box::new(contract(false, job_period))),
        Policy::GiveBack | Policy::Oracle => Scheduled::Fabric(Box::new(contract(true, job_period))),
    }
}

fn contract(give_back: bool, period: Nanos) -> Contract {
    let predictor = PredictorSpec::Hint { n: 24 };
    Contract { jobs: JobSource::Marked, predictor, give_back, ..Contract::new("player", period) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_follows_students_t() {
        let (mean, half) = interval(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (half - 4.30 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(interval(&[5.0]), (5.0, 0.0));
    }

    #[test]
    fn beyond_ten_values_the_interval_is_still_students_t() {
        for (degrees, quantile) in [(1, 12.71), (9, 2.26), (10, 2.228), (15, 2.131), (30, 2.042), (10_000, 1.960)] {
            assert!((students_t(degrees) - quantile).abs() < 1e-3, "{degrees}: {}", students_t(degrees));
        }
        let values: Vec<f64> = (0..12).map(f64::from).collect();
        // The variance of 0 to 11 is 13.
        assert!((interval(&values).1 - 2.201 * (13.0f64 / 12.0).sqrt()).abs() < 2e-3);
    }
}
