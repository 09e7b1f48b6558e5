//! Who competes: schedulers as they come, static reservations, and Q-Fabric with each predictor.

use anyhow::Result;
use qfabric_types::{Nanos, PredictorSpec, Reclaiming, Reservation, Setting, Share, ThreadId};
use serde::{Deserialize, Serialize};

/// One way to schedule the players.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The default scheduler, nice 0.
    Plain,
    /// The default scheduler, nice −20.
    Nice,
    /// SCHED_DEADLINE with one budget for ever.
    Static {
        /// How the budget is chosen.
        budget: Budget,
        /// GRUB.
        reclaim: bool,
    },
    /// Q-Fabric.
    Qfabric {
        /// What says the next computation time.
        predictor: PredictorSpec,
        /// GRUB.
        reclaim: bool,
    },
}

/// How a static budget is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// This many times the mean of the trial execution.
    TimesMean(f64),
    /// All there is, in equal shares.
    EqualShares,
}

impl Policy {
    /// What the report calls it.
    pub fn label(&self) -> String {
        match self {
            Policy::Plain => "plain".into(),
            Policy::Nice => "nice -20".into(),
            Policy::Static { budget, reclaim } => format!("static {}, {}", budget.label(), kind(*reclaim)),
            Policy::Qfabric { predictor, reclaim } => format!("Q-Fabric {}, {}", name(*predictor), kind(*reclaim)),
        }
    }

    /// Whether a reservation is held under it.
    pub fn reserves(&self) -> bool {
        !matches!(self, Policy::Plain | Policy::Nice)
    }

    /// The setting of a static policy for one player.
    pub fn static_setting(&self, player: u32, ground: &Ground) -> Result<Option<Setting>> {
        let Policy::Static { budget, reclaim } = self else { return Ok(None) };
        let share = match budget {
            Budget::TimesMean(factor) => Share::from_f64(ground.mean_share * factor),
            Budget::EqualShares => Share::from_ppm(ground.capacity.ppm() / ground.players.max(1)),
        };
        let reservation = Reservation::new(share.budget_in(ground.server_period), ground.server_period)?;
        Ok(Some(Setting {
            thread: ThreadId(player as i32),
            reservation: Some(reservation),
            reclaiming: if *reclaim { Reclaiming::Grub } else { Reclaiming::Hard },
            terms: Default::default(),
        }))
    }

    /// What the player is told on its command line.
    pub fn arguments(&self, ground: &Ground) -> Vec<String> {
        match self {
            Policy::Plain | Policy::Static { .. } => Vec::new(),
            Policy::Nice => ["--policy", "nice"].map(String::from).into(),
            Policy::Qfabric { predictor, reclaim } => {
                let mut arguments = vec!["--qfabric".into(), "--predictor".into(), predictor.to_string()];
                arguments.extend(["--server-period".into(), format!("{}ns", ground.server_period.get())]);
                arguments.extend(["--early".into(), ground.early.to_string(), "--rho".into(), ground.rho.to_string()]);
                // Last, so that a caller's options hold.
                arguments.extend(ground.contract.iter().cloned());
                arguments.extend((!reclaim).then(|| "--hard".into()));
                arguments
            }
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

/// What the policies of one scenario have in common.
#[derive(Clone, Debug)]
pub struct Ground {
    /// P, for reservations, and for rounding the errors of all policies alike.
    pub server_period: Nanos,
    /// What may be reserved on this host.
    pub capacity: Share,
    /// How many players share it.
    pub players: u32,
    /// How early a job may be inside the target interval, as a fraction of T.
    pub early: f64,
    /// ρ of Q-Fabric's contracts: half-width of the predicted interval in standard deviations.
    pub rho: f64,
    /// Mean of the trial execution, as a share of one CPU.
    pub mean_share: f64,
    /// Contract options that all Q-Fabric policies have in common.
    pub contract: Vec<String>,
}

/// The predictors of the comparison: the paper's three, and the one it points at.
pub fn predictors() -> [PredictorSpec; 4] {
    [
        PredictorSpec::MovingAverage { n: 12 },
        PredictorSpec::Interleaved { n: 3, lanes: 12 },
        PredictorSpec::LeastSquares { taps: 36, training: 60 },
        PredictorSpec::Hint { n: 24 },
    ]
}

/// The policies for one player under hogs. Hard reservations show what each predictor is worth: with GRUB a
/// lone player may use what is left over, and hardly needs a budget.
pub fn under_hogs() -> Vec<Policy> {
    let fixed = |factor, reclaim| Policy::Static { budget: Budget::TimesMean(factor), reclaim };
    let mut policies = vec![Policy::Plain, Policy::Nice];
    policies.extend([fixed(1.0, false), fixed(1.2, false), fixed(1.0, true), fixed(1.2, true)]);
    policies.extend(predictors().map(|predictor| Policy::Qfabric { predictor, reclaim: false }));
    policies.push(Policy::Qfabric { predictor: predictors()[3], reclaim: true });
    policies
}

/// The policies for six players near capacity.
pub fn near_capacity() -> Vec<Policy> {
    let equal = |reclaim| Policy::Static { budget: Budget::EqualShares, reclaim };
    let mut policies = vec![Policy::Nice, equal(false), equal(true)];
    policies.extend(predictors().map(|predictor| Policy::Qfabric { predictor, reclaim: true }));
    policies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> Ground {
        Ground {
            server_period: Nanos::from_millis(10),
            capacity: Share::from_ppm(1_800_000),
            players: 6,
            early: 0.2,
            rho: 0.8,
            mean_share: 0.2,
            contract: vec!["--rho".into(), "2".into()],
        }
    }

    #[test]
    fn equal_shares_never_exceed_the_capacity() {
        let policy = Policy::Static { budget: Budget::EqualShares, reclaim: true };
        let setting = policy.static_setting(7, &ground()).unwrap().unwrap();
        assert_eq!(setting.reservation.unwrap().budget(), Nanos::from_millis(3));
        assert!(setting.reclaiming == Reclaiming::Grub && setting.thread == ThreadId(7));
    }

    #[test]
    fn a_static_budget_is_a_multiple_of_the_mean() {
        let policy = Policy::Static { budget: Budget::TimesMean(1.2), reclaim: false };
        let setting = policy.static_setting(7, &ground()).unwrap().unwrap();
        assert_eq!(setting.reservation.unwrap().budget(), Nanos::from_micros(2_400));
        assert_eq!(Policy::Plain.static_setting(7, &ground()).unwrap(), None);
    }

    #[test]
    fn every_policy_of_a_scenario_has_a_name_of_its_own() {
        for policies in [under_hogs(), near_capacity()] {
            let names: std::collections::BTreeSet<_> = policies.iter().map(Policy::label).collect();
            assert_eq!(names.len(), policies.len());
        }
    }

    #[test]
    fn the_players_contract_is_on_its_command_line() {
        let arguments = Policy::Qfabric { predictor: predictors()[1], reclaim: false }.arguments(&ground());
        assert_eq!(
            arguments.join(" "),
            "--qfabric --predictor mma:3,12 --server-period 10000000ns --early 0.2 --rho 0.8 --rho 2 --hard"
        );
        assert!(Policy::Plain.arguments(&ground()).is_empty());
    }
}
