//! The compared policies: the default schedulers, static reservations, and Q-Fabric with each predictor. Under the
//! mechanism `ext`, also Q-Fabric with one soft server per job.

use anyhow::Result;
use qfabric_linux::ext::ExtConfig;
use qfabric_types::{MechanismName, Nanos, PredictorSpec, Reclaiming, Reservation, Setting, Share, ThreadId};
use serde::{Deserialize, Serialize};

use crate::plan::Scenario;

/// One way to schedule the players.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The default scheduler, nice 0.
    Plain,
    /// The default scheduler, nice −20.
    Nice,
    /// SCHED_FIFO, one priority for all players.
    Fifo,
    /// SCHED_DEADLINE with a fixed budget.
    Static {
        budget: Budget,
        /// GRUB instead of hard reservations.
        reclaim: bool,
        /// The frames that players skip.
        skip: Skip,
    },
    Qfabric {
        /// The source of the next computation time.
        knowledge: Knowledge,
        /// GRUB instead of hard reservations.
        reclaim: bool,
        /// The frames that players skip.
        skip: Skip,
    },
    /// Q-Fabric under the mechanism `ext`: one soft server per player with P = T, so that its deadline is the job's
    /// deadline. All shares are equal and fixed.
    Soft {
        /// The frames that players skip.
        skip: Skip,
    },
}

/// The source of Q-Fabric's knowledge about the next job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knowledge {
    /// A predictor of the daemon.
    Predictor(PredictorSpec),
    /// The cost of each frame, measured in the calibration and passed by the player as foresight: the limit for
    /// any predictor.
    Oracle,
}

/// The frames that a player does not decode. Only frames that no other frame needs can be skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    #[default]
    None,
    /// Frames whose deadline has passed.
    Late,
    /// Frames that are predicted to end after their deadline.
    Predicted,
}

impl Skip {
    fn name(self) -> &'static str {
        match self {
            Skip::None => "none",
            Skip::Late => "late",
            Skip::Predicted => "predicted",
        }
    }
    fn suffix(self) -> String {
        if self == Skip::None { String::new() } else { format!(", skips {}", self.name()) }
    }
    fn arguments(self) -> Vec<String> {
        if self == Skip::None { Vec::new() } else { ["--skip", self.name()].map(String::from).into() }
    }
}

/// The choice of a static budget.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// This multiple of the mean of the trial execution.
    TimesMean(f64),
    /// The whole capacity in equal shares.
    EqualShares,
}

/// ρ of Q-Fabric's contracts: half-width of the predicted interval in standard deviations. Under GRUB a small margin
/// suffices, because jobs also run on time that others leave over.
pub const RHO: f64 = 0.5;
/// A thread runs on one CPU at a time. As in Q-Fabric's contracts, the rest of the CPU is left to best effort.
const MOST_OF_ONE_CPU: Share = Share::from_ppm(950_000);
/// Part of each CPU that soft servers leave free under `ext`, so that rounding causes no refusals.
const ROUNDING: Share = Share::from_ppm(1_000);

impl Policy {
    /// Name in the report.
    pub fn label(&self) -> String {
        match self {
            Policy::Plain => "plain".into(),
            Policy::Nice => "nice -20".into(),
            Policy::Fifo => "SCHED_FIFO".into(),
            Policy::Static { budget, reclaim, skip } => {
                format!("static {}, {}{}", budget.label(), kind(*reclaim), skip.suffix())
            }
            Policy::Qfabric { knowledge, reclaim, skip } => {
                format!("Q-Fabric {}, {}{}", knowledge.label(), kind(*reclaim), skip.suffix())
            }
            Policy::Soft { skip } => format!("Q-Fabric equal shares, soft{}", skip.suffix()),
        }
    }

    /// Whether the players hold reservations.
    pub fn reserves(&self) -> bool {
        matches!(self, Policy::Static { .. } | Policy::Qfabric { .. } | Policy::Soft { .. })
    }

    /// Whether the policy needs the daemon.
    pub fn is_qfabric(&self) -> bool {
        matches!(self, Policy::Qfabric { .. } | Policy::Soft { .. })
    }

    /// Whether the cost of a frame is predicted, in the daemon or in the player.
    pub fn predicts(&self) -> bool {
        match self {
            Policy::Static { skip, .. } | Policy::Soft { skip } => *skip == Skip::Predicted,
            policy => policy.is_qfabric(),
        }
    }

    /// Whether a claim needs the policy: Q-Fabric with its defaults; near capacity also the rival, and soft servers
    /// whose players skip.
    pub fn is_claim(&self, scenario: Scenario) -> bool {
        let compared = [equal_shares(true), skipping(soft(), Skip::Predicted)];
        *self == headline() || (scenario == Scenario::Shift && compared.contains(self))
    }

    /// Whether the cost of each frame is known beforehand.
    pub fn is_oracle(&self) -> bool {
        matches!(self, Policy::Qfabric { knowledge: Knowledge::Oracle, .. })
    }

    /// The setting of a static policy for one player.
    pub fn static_setting(&self, player: u32, settings: &RoundSettings) -> Result<Option<Setting>> {
        let Policy::Static { budget, reclaim, .. } = self else { return Ok(None) };
        let share = match budget {
            Budget::TimesMean(factor) => Share::from_f64(settings.mean_share * factor),
            Budget::EqualShares => {
                Share::from_ppm(settings.capacity.ppm() / settings.players.max(1)).min(MOST_OF_ONE_CPU)
            }
        };
        let reservation = Reservation::new(share.budget_in(settings.server_period), settings.server_period)?;
        Ok(Some(Setting {
            thread: ThreadId(player as i32),
            reservation: Some(reservation),
            reclaiming: if *reclaim { Reclaiming::Grub } else { Reclaiming::Hard },
            terms: Default::default(),
        }))
    }

    /// Arguments for the command line of the player.
    pub fn arguments(&self, settings: &RoundSettings) -> Vec<String> {
        match self {
            Policy::Plain | Policy::Fifo => Vec::new(),
            Policy::Static { skip, .. } => skip.arguments(),
            Policy::Nice => ["--policy", "nice"].map(String::from).into(),
            Policy::Qfabric { knowledge, reclaim, skip } => {
                let mut arguments = vec!["--qfabric".into(), "--predictor".into(), knowledge.predictor().to_string()];
                arguments.extend(["--server-period".into(), format!("{}ns", settings.server_period.get())]);
                arguments.extend(["--early".into(), settings.early.to_string(), "--rho".into(), RHO.to_string()]);
                arguments.extend(skip.arguments());
                // The options of the caller come last, so that they take precedence.
                arguments.extend(settings.contract.iter().cloned());
                arguments.extend((!reclaim).then(|| "--hard".into()));
                arguments
            }
            // Without a server period: that of a soft server is T.
            Policy::Soft { skip } => {
                let mut arguments = ["--qfabric", "--reclaiming", "soft"].map(String::from).to_vec();
                arguments.extend(["--fixed".into(), settings.soft_share.as_f64().to_string()]);
                arguments.extend(["--early".into(), settings.early.to_string()]);
                arguments.extend(skip.arguments());
                arguments.extend(settings.contract.iter().cloned());
                arguments
            }
        }
    }
}

impl Knowledge {
    fn label(self) -> String {
        match self {
            Knowledge::Predictor(predictor) => name(predictor),
            Knowledge::Oracle => "oracle".into(),
        }
    }
    /// The contract's predictor. It is unused if the player passes the cost itself.
    fn predictor(self) -> PredictorSpec {
        match self {
            Knowledge::Predictor(predictor) => predictor,
            Knowledge::Oracle => HINT,
        }
    }
}

impl Budget {
    fn label(self) -> String {
        match self {
            Budget::TimesMean(factor) => format!("{factor:.1}x mean"),
            Budget::EqualShares => "equal shares".into(),
        }
    }
}

fn kind(reclaim: bool) -> &'static str {
    if reclaim { "GRUB" } else { "hard" }
}

fn name(predictor: PredictorSpec) -> String {
    match predictor {
        PredictorSpec::MovingAverage { n } => format!("MA[{n}]"),
        PredictorSpec::Interleaved { n, lanes } => format!("MMA[{n},{lanes}]"),
        PredictorSpec::LeastSquares { taps, training } => format!("OL[{taps},{training}]"),
        PredictorSpec::Percentile { n, percent } => format!("percentile[{n},{percent}]"),
        PredictorSpec::Hint { n } => format!("hint[{n}]"),
    }
}

/// The parameters that all policies of one scenario share.
#[derive(Clone, Debug)]
pub struct RoundSettings {
    /// T.
    pub period: Nanos,
    /// P, for reservations, and for rounding the errors of all policies in the same way.
    pub server_period: Nanos,
    /// Bandwidth that may be reserved on this host.
    pub capacity: Share,
    /// Number of players that share the capacity.
    pub players: u32,
    /// Fixed share of each player with a soft server, as [`soft_share`] computes it.
    pub soft_share: Share,
    /// Largest earliness of a job inside the target interval, as a fraction of T.
    pub early: f64,
    /// Mean of the trial execution, as a share of one CPU.
    pub mean_share: f64,
    /// Contract options of all Q-Fabric policies.
    pub contract: Vec<String>,
}

const HINT: PredictorSpec = PredictorSpec::Hint { n: 24 };

/// The predictors of the paper, which use only past costs.
fn paper_predictors() -> [PredictorSpec; 3] {
    [
        PredictorSpec::MovingAverage { n: 12 },
        PredictorSpec::Interleaved { n: 3, lanes: 12 },
        PredictorSpec::LeastSquares { taps: 36, training: 60 },
    ]
}

/// Q-Fabric with its defaults: the hint, under GRUB.
pub fn headline() -> Policy {
    qfabric(Knowledge::Predictor(HINT), true)
}

/// Q-Fabric without skipping.
pub fn qfabric(knowledge: Knowledge, reclaim: bool) -> Policy {
    Policy::Qfabric { knowledge, reclaim, skip: Skip::None }
}

/// Q-Fabric under `ext` with one soft server per job, without skipping.
pub fn soft() -> Policy {
    Policy::Soft { skip: Skip::None }
}

/// Q-Fabric's policy in the grid. Under `ext`, that is the soft server: in simulation it misses the fewest jobs.
pub fn ours(mechanism: MechanismName) -> Policy {
    if mechanism == MechanismName::Ext { soft() } else { headline() }
}

/// The share of each of `players` equal players under `ext`. A server is on one CPU, so the CPU with the most players
/// limits all shares. `room`: the bandwidth of all players and of the service together. `own`: the server of the
/// service.
pub fn soft_share(room: Share, own: Share, cpus: u32, players: u32) -> Share {
    let players = players.max(1);
    let of_room = room.saturating_sub(own).ppm() / players;
    let of_cpu = ExtConfig::default().capacity().saturating_sub(own).saturating_sub(ROUNDING);
    Share::from_ppm(of_room.min(of_cpu.ppm() / players.div_ceil(cpus.max(1))))
}

/// The whole room in equal shares. With GRUB it is the rival near capacity.
pub fn equal_shares(reclaim: bool) -> Policy {
    Policy::Static { budget: Budget::EqualShares, reclaim, skip: Skip::None }
}

/// The same policy with players that skip frames.
pub fn skipping(policy: Policy, skip: Skip) -> Policy {
    match policy {
        Policy::Static { budget, reclaim, .. } => Policy::Static { budget, reclaim, skip },
        Policy::Qfabric { knowledge, reclaim, .. } => Policy::Qfabric { knowledge, reclaim, skip },
        Policy::Soft { .. } => Policy::Soft { skip },
        other => other,
    }
}

/// The policies for one player under hogs, the important ones first. Hard reservations show the value of each
/// predictor, because under GRUB a single player may use all free time and hardly needs a budget.
pub fn under_hogs(all: bool) -> Vec<Policy> {
    let fixed = |factor, reclaim| Policy::Static { budget: Budget::TimesMean(factor), reclaim, skip: Skip::None };
    let mut policies = vec![Policy::Plain, Policy::Nice, Policy::Fifo, fixed(1.2, false), fixed(1.2, true)];
    policies.extend([headline(), qfabric(Knowledge::Predictor(HINT), false), qfabric(Knowledge::Oracle, true)]);
    if all {
        policies.extend([fixed(1.0, false), fixed(1.0, true)]);
        policies.extend(paper_predictors().map(|predictor| qfabric(Knowledge::Predictor(predictor), false)));
    }
    policies
}

/// The policies for players near capacity, the important ones first.
pub fn near_capacity(all: bool) -> Vec<Policy> {
    let mut policies = vec![Policy::Nice, Policy::Fifo, equal_shares(false), equal_shares(true)];
    policies.extend([headline(), qfabric(Knowledge::Oracle, true)]);
    if all {
        policies.extend(paper_predictors().map(|predictor| qfabric(Knowledge::Predictor(predictor), true)));
        policies.extend([equal_shares(true), headline()].map(|policy| skipping(policy, Skip::Predicted)));
    }
    policies
}

/// The policies of a scenario if Q-Fabric's players run under `ext`: those of the kernel's own schedulers, Q-Fabric
/// with its defaults, and soft servers. Fewer than under SCHED_DEADLINE, so that they fit into the same time.
pub fn under_ext(scenario: Scenario, all: bool) -> Vec<Policy> {
    let fixed = Policy::Static { budget: Budget::TimesMean(1.2), reclaim: true, skip: Skip::None };
    let mut policies = match scenario {
        Scenario::Hogs => vec![Policy::Plain, Policy::Fifo, fixed, headline(), soft()],
        Scenario::Shift => {
            let skips = skipping(soft(), Skip::Predicted);
            vec![Policy::Nice, Policy::Fifo, equal_shares(true), headline(), soft(), skips]
        }
    };
    if all {
        policies.push(qfabric(Knowledge::Oracle, true));
        let rivals = [equal_shares(true), headline()].map(|policy| skipping(policy, Skip::Predicted));
        policies.extend(rivals.into_iter().filter(|_| scenario == Scenario::Shift));
    }
    policies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> RoundSettings {
        RoundSettings {
            period: Nanos::from_millis(40),
            server_period: Nanos::from_millis(10),
            capacity: Share::from_ppm(1_800_000),
            players: 6,
            soft_share: Share::from_ppm(290_000),
            early: 0.2,
            mean_share: 0.2,
            contract: vec!["--rho".into(), "2".into()],
        }
    }

    #[test]
    fn equal_shares_never_exceed_the_capacity() {
        let policy = equal_shares(true);
        let setting = policy.static_setting(7, &settings()).unwrap().unwrap();
        assert_eq!(setting.reservation.unwrap().budget(), Nanos::from_millis(3));
        assert!(setting.reclaiming == Reclaiming::Grub && setting.thread == ThreadId(7));
        let alone = RoundSettings { players: 1, ..settings() };
        let setting = policy.static_setting(7, &alone).unwrap().unwrap();
        assert_eq!(setting.reservation.unwrap().budget(), Nanos::from_micros(9_500));
    }

    #[test]
    fn a_static_budget_is_a_multiple_of_the_mean() {
        let policy = Policy::Static { budget: Budget::TimesMean(1.2), reclaim: false, skip: Skip::None };
        let setting = policy.static_setting(7, &settings()).unwrap().unwrap();
        assert_eq!(setting.reservation.unwrap().budget(), Nanos::from_micros(2_400));
        assert_eq!(Policy::Plain.static_setting(7, &settings()).unwrap(), None);
    }

    #[test]
    fn the_policies_of_a_scenario_have_different_names() {
        let under_ext = Scenario::ALL.map(|scenario| under_ext(scenario, true));
        for policies in [under_hogs(true), near_capacity(true)].into_iter().chain(under_ext) {
            let names: std::collections::BTreeSet<_> = policies.iter().map(Policy::label).collect();
            assert_eq!(names.len(), policies.len());
        }
    }

    #[test]
    fn the_contract_of_a_player_is_on_its_command_line() {
        let mma = qfabric(Knowledge::Predictor(paper_predictors()[1]), false);
        assert_eq!(
            skipping(mma, Skip::Late).arguments(&settings()).join(" "),
            "--qfabric --predictor mma:3,12 --server-period 10000000ns --early 0.2 --rho 0.5 --skip late --rho 2 --hard"
        );
        assert!(Policy::Plain.arguments(&settings()).is_empty());
        let rival = skipping(equal_shares(true), Skip::Predicted);
        assert_eq!(rival.arguments(&settings()).join(" "), "--skip predicted");
        assert_eq!(rival.label(), "static equal shares, GRUB, skips predicted");
    }

    #[test]
    fn a_soft_server_has_a_fixed_share_and_the_period_of_its_jobs() {
        let policy = skipping(soft(), Skip::Predicted);
        let words = policy.arguments(&settings()).join(" ");
        assert_eq!(words, "--qfabric --reclaiming soft --fixed 0.29 --early 0.2 --skip predicted --rho 2");
        assert_eq!(policy.label(), "Q-Fabric equal shares, soft, skips predicted");
        assert!(policy.is_qfabric() && policy.reserves() && policy.predicts() && !soft().predicts());
        assert_eq!((ours(MechanismName::Ext), ours(MechanismName::Deadline)), (soft(), headline()));
    }

    #[test]
    fn soft_servers_fit_into_the_room_and_on_each_cpu() {
        let (room, own) = (Share::from_ppm(1_790_000), Share::from_ppm(50_000));
        for (cpus, players) in [(2, 1), (2, 2), (2, 3), (2, 6), (2, 8), (2, 12), (4, 6), (1, 3)] {
            let share = soft_share(room, own, cpus, players);
            let on_one_cpu = share.ppm() * players.div_ceil(cpus) + own.ppm();
            assert!(share > Share::ZERO && on_one_cpu <= 940_000, "{players} players on {cpus} CPUs: {share}");
            assert!(share.ppm() * players + own.ppm() <= room.ppm(), "{players} players on {cpus} CPUs: {share}");
        }
        assert_eq!(soft_share(room, own, 2, 6), Share::from_ppm(290_000));
        assert_eq!(soft_share(room, own, 2, 1), Share::from_ppm(889_000), "one player uses one CPU");
    }
}
