//! `qfabric sim grid`: players near capacity under every policy, over loads, numbers of players, patterns of cost,
//! phases and stolen time. The kernel is modelled ([`qfabric_sched::Machine`]); where the policy is Q-Fabric's, the real
//! [`qfabric_host::Host`] drives it.
//!
//! A [`Cell`] is one set of conditions, a [`Row`] one way to schedule under them; every row of a cell meets the same
//! costs, phases and freezes. A miss is a job that has not ended by its deadline: late, skipped, or never ended.
//! Source of the costs: recorded traces ([`qfabric_control::traces`]), scaled so that the mean demand is the cell's load
//! times [`ROOM`]; half of the players cost twice as much as the others, and they change roles half-way.

mod cells;
mod costs;
mod goal;
mod picture;
mod report;

use qfabric_host::Limits;
use qfabric_sched::{MachineConfig, Steal, WEIGHT};
use qfabric_types::{Contract, Instant, JobSource, Nanos, PredictorSpec, Reclaiming, Reservation, Share};
use serde::{Deserialize, Serialize};

pub use self::cells::{all, few};
pub use self::goal::{State, Verdict, verdicts};
pub use self::picture::svg;
pub use self::report::Report;
use crate::world::{Player, Policy as Scheduled, Scenario, Skip, World};

/// C: what may be reserved of the two CPUs.
pub const ROOM: Share = Share::from_ppm(1_800_000);
/// T.
pub const PERIOD: Nanos = Nanos::from_millis(40);
const CPUS: usize = 2;
/// How a kernel with 250 Hz and without HRTICK_DL enforces budgets.
const TICK: Nanos = Nanos::from_millis(4);
/// nice −20 over nice 0 (the kernel's `sched_prio_to_weight`).
const NICE: f64 = 88_761.0;

/// How costs follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// H.264 in closed groups of 12 frames.
    Closed,
    /// MPEG-2, also in groups of 12; its peaks are the highest.
    Mpeg2,
    /// H.264 in groups of any length.
    Mixed,
    /// Costs that are independent of each other.
    None,
}

/// When the players' jobs are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phases {
    /// Anywhere in the period.
    Random,
    /// All at the same moment.
    Together,
}

/// One set of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// How many players.
    pub players: usize,
    /// Mean demand over [`ROOM`].
    pub load: f64,
    /// How costs follow each other.
    pub pattern: Pattern,
    /// When jobs are released.
    pub phases: Phases,
    /// Of each CPU, in percent.
    pub steal: u32,
    /// Best-effort tasks that always want to run.
    pub hogs: usize,
}

impl Cell {
    /// Nothing is stolen.
    pub fn is_calm(&self) -> bool {
        self.steal == 0
    }

    /// What people read.
    pub fn label(&self) -> String {
        let Cell { players, pattern, phases, steal, hogs, .. } = *self;
        let calm = if self.is_calm() { "calm".to_owned() } else { format!("{steal} % stolen") };
        let hogs = if hogs == 0 { ", no hogs" } else { "" };
        let (pattern, phases) = (format!("{pattern:?}").to_lowercase(), format!("{phases:?}").to_lowercase());
        format!("{players} players, {pattern}, {phases}, {calm}{hogs}")
    }
}

/// How players are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Fair sharing with the hogs.
    Plain,
    /// Fair sharing, nice −20.
    Nice,
    /// Equal shares of the room for ever, never more.
    StaticHard,
    /// Equal shares of the room for ever, reclaiming.
    StaticGrub,
    /// Q-Fabric without giving back.
    Feedback,
    /// Q-Fabric.
    GiveBack,
    /// Q-Fabric that is told every cost beforehand.
    Oracle,
    /// Equal shares for ever, one soft server period per job, as under the mechanism `ext`.
    Soft,
}

/// One way to schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// How players are scheduled.
    pub policy: Policy,
    /// What they do with jobs that come too late.
    pub skip: Skip,
}

/// The rival of every claim.
pub const RIVAL: Row = Row { policy: Policy::StaticGrub, skip: Skip::None };

impl Row {
    /// Every policy with every way to skip.
    pub fn all() -> impl Iterator<Item = Row> {
        use Policy::*;
        let policies = [Plain, Nice, StaticHard, StaticGrub, Feedback, GiveBack, Oracle, Soft];
        let skips = [Skip::None, Skip::Late, Skip::Predicted];
        skips.into_iter().flat_map(move |skip| policies.map(|policy| Row { policy, skip }))
    }

    /// What people read.
    pub fn label(self) -> String {
        let policy = match self.policy {
            Policy::Plain => "plain",
            Policy::Nice => "nice -20",
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

/// How much is simulated of each cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Runs with other costs, phases and freezes.
    pub seeds: u64,
    /// The first of them.
    pub first_seed: u64,
    /// Jobs of each player.
    pub jobs: usize,
}

impl Default for Extent {
    fn default() -> Self {
        Extent { seeds: 6, first_seed: 0, jobs: 360 }
    }
}

/// What came of one row in one cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The conditions.
    pub cell: Cell,
    /// [`Row::label`].
    pub row: String,
    /// The policy.
    pub policy: Policy,
    /// Whether players skip, and what.
    pub skip: Skip,
    /// Fraction of the jobs, mean over the seeds.
    pub misses: f64,
    /// Ends of the 95 % interval of that mean.
    pub misses_low: f64,
    /// See `misses_low`.
    pub misses_high: f64,
    /// Mean over time of what was reserved, in CPUs.
    pub reserved: f64,
    /// Jobs of all seeds.
    pub jobs: usize,
    /// `misses` of each seed: all rows of a cell meet the same costs, so they are compared seed by seed.
    #[serde(skip)]
    pub by_seed: Vec<f64>,
}

/// Runs one row in one cell.
pub fn run(cell: Cell, row: Row, extent: Extent) -> Outcome {
    let (mut misses, mut reserved) = (Vec::new(), 0.0);
    for seed in extent.first_seed..extent.first_seed + extent.seeds {
        let (scenario, jobs) = scenario(cell, row, extent.jobs, seed);
        let outcomes = World::new(scenario).run();
        let on_time: u64 = outcomes.rows.iter().map(|row| row.jobs - row.misses).sum();
        misses.push(1.0 - on_time as f64 / jobs as f64);
        reserved += outcomes.reserved / extent.seeds as f64;
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
        jobs: extent.jobs * cell.players * extent.seeds as usize,
        by_seed: misses,
    }
}

/// Mean, and half of its 95 % interval by Student's t.
fn interval(values: &[f64]) -> (f64, f64) {
    const T: [f64; 9] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, T.get(values.len() - 2).copied().unwrap_or(1.96) * (variance / n).sqrt())
}

/// The whole scenario, and how many jobs have their deadline in it.
fn scenario(cell: Cell, row: Row, jobs: usize, seed: u64) -> (Scenario, usize) {
    let costs = costs::Costs::new(cell, seed);
    let players: Vec<Player> = (0..cell.players)
        .map(|i| Player {
            period: PERIOD,
            server_period: Nanos::new(PERIOD.get() / 4),
            start: costs.start(i),
            jobs: costs.jobs(i, jobs),
            policy: scheduled(row.policy, cell.players),
            skip: row.skip,
            oracle: row.policy == Policy::Oracle,
        })
        .collect();
    let last = players.iter().map(|player| player.start).max().unwrap_or(Instant::ZERO);
    let steal = Steal { fraction: Share::from_ppm(cell.steal * 10_000), seed };
    let half = Share::from_ppm(ROOM.ppm() / CPUS as u32);
    let machine = MachineConfig { cpus: CPUS, hogs: cell.hogs, bound: half, tick: TICK, steal, ..Default::default() };
    let until = last + PERIOD.saturating_mul(jobs as u64) + Nanos::new(1);
    let limits = Limits::of_capacity(ROOM);
    (Scenario { machine, limits, players, until, faults: None, death: None }, jobs * cell.players)
}

fn scheduled(policy: Policy, players: usize) -> Scheduled {
    let fixed = |period: Nanos, mode| {
        let share = Share::from_ppm((ROOM.ppm() / players as u32).min(950_000));
        let reservation = Reservation::new(share.budget_in(period), period);
        Scheduled::Static(reservation.expect("a part of a CPU in 10 or 40 ms is one"), mode)
    };
    let quarter = Nanos::new(PERIOD.get() / 4);
    match policy {
        Policy::Plain => Scheduled::BestEffort,
        Policy::Nice => Scheduled::Weighted(NICE / 1_024.0 * WEIGHT),
        Policy::StaticHard => fixed(quarter, Reclaiming::Hard),
        Policy::StaticGrub => fixed(quarter, Reclaiming::Grub),
        Policy::Soft => fixed(PERIOD, Reclaiming::Soft),
        Policy::Feedback => Scheduled::Fabric(contract(false)),
        Policy::GiveBack | Policy::Oracle => Scheduled::Fabric(contract(true)),
    }
}

fn contract(give_back: bool) -> Contract {
    let predictor = PredictorSpec::Hint { n: 24 };
    Contract { jobs: JobSource::Marked, predictor, give_back, ..Contract::new("player", PERIOD) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_students_t() {
        let (mean, half) = interval(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (half - 4.30 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(interval(&[5.0]), (5.0, 0.0));
    }
}
