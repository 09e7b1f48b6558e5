//! Plans the rounds and their order.
//!
//! Policies share the processors, so they play one after another. If the speed of the machine changes, it favours
//! the policy that plays at the right time. Approach: short rounds. A cycle contains at most one round of each
//! policy, in random order, so that the rounds of one cycle can be compared. A policy with a claim gets
//! [`crate::verdict::ENOUGH_ROUNDS`] rounds, with at least [`crate::verdict::ENOUGH_JOBS`] jobs together. Other
//! policies get one round, and more if time is left.

use qfabric_types::MechanismName;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::policy::{self, Policy};

/// One of the two scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// One player under CPU hogs.
    Hogs,
    /// Players near capacity, whose load shifts half-way.
    Shift,
}

impl Scenario {
    pub const ALL: [Scenario; 2] = [Scenario::Hogs, Scenario::Shift];

    /// Short name.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Hogs => "hogs",
            Scenario::Shift => "shift",
        }
    }
    /// Number of players that run at the same time.
    pub fn players(self, cpus: usize) -> usize {
        match self {
            Scenario::Hogs => 1,
            Scenario::Shift => crate::trial::PLAYERS_PER_CPU * cpus,
        }
    }
    /// Jobs of one player in one round, the warm-up included. A claim about one player is based on 5 x 120 jobs, a
    /// claim about six players on 5 x 528.
    pub fn jobs(self) -> usize {
        match self {
            Scenario::Hogs => 120 + crate::live::WARM_UP,
            Scenario::Shift => 88 + crate::live::WARM_UP,
        }
    }
    /// Rounds of a policy with a claim.
    fn claim_rounds(self) -> usize {
        match self {
            Scenario::Hogs => 5,
            Scenario::Shift => 5,
        }
    }
    fn policies(self, mechanism: MechanismName, all: bool) -> Vec<Policy> {
        match (mechanism, self) {
            (MechanismName::Ext, scenario) => policy::under_ext(scenario, all),
            (_, Scenario::Hogs) => policy::under_hogs(all),
            (_, Scenario::Shift) => policy::near_capacity(all),
        }
    }
}

/// One policy in one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub scenario: Scenario,
    pub policy: Policy,
    /// Number of rounds to play.
    pub rounds: usize,
}

impl Entry {
    fn is_claim(&self) -> bool {
        self.policy.is_claim(self.scenario)
    }

    fn is_claim_of(&self, scenario: Scenario) -> bool {
        self.scenario == scenario && self.is_claim()
    }
}

/// One round of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Index of the entry.
    pub entry: usize,
    /// Rounds with the same cycle number are compared with each other.
    pub cycle: usize,
}

/// Seconds of a round besides playing: starting players, decoding up to the first frame, late frames.
pub const OVERHEAD_SECONDS: f64 = 1.6;
/// Seconds of a trial execution of all clips.
pub const TRIAL_SECONDS: f64 = 7.0;
/// Seconds of trial execution and pilot rounds.
const CALIBRATION_SECONDS: f64 = TRIAL_SECONDS + 8.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The policies, each with at least one round.
    pub entries: Vec<Entry>,
    /// The rounds in the order of playing.
    pub rounds: Vec<Round>,
    /// Names of the entries for which no time is left.
    pub left_out: Vec<String>,
}

/// Plans about `seconds`. Every claim gets at least one round of each side, even if the time is too short. `only`
/// keeps entries whose `scenario: label` contains one of its words, ignoring case; an empty list keeps all.
/// `mechanism`: that of Q-Fabric's players.
pub fn plan(mechanism: MechanismName, seconds: f64, only: &[String], all: bool, seed: u64) -> Plan {
    let mut entries: Vec<Entry> = Scenario::ALL
        .into_iter()
        .flat_map(|scenario| scenario.policies(mechanism, all).into_iter().map(move |policy| (scenario, policy)))
        .filter(|(scenario, policy)| wanted(*scenario, policy, only))
        .map(|(scenario, policy)| Entry { scenario, policy, rounds: 0 })
        .collect();
    allot(&mut entries, seconds - CALIBRATION_SECONDS);
    let left_out = entries.iter().filter(|e| e.rounds == 0).map(name).collect();
    entries.retain(|entry| entry.rounds > 0);
    Plan { rounds: order(&entries, seed), entries, left_out }
}

/// Distributes rounds while time is left: first one round to each claim, then one to each other entry, then the
/// remaining rounds of each claim, and finally one more round to every entry in turn.
fn allot(entries: &mut [Entry], seconds: f64) {
    let mut left = seconds;
    for entry in entries.iter_mut().filter(|entry| entry.is_claim()) {
        left -= cost(entry);
        entry.rounds = 1;
    }
    let mut give = |entries: &mut [Entry], wants: &dyn Fn(&Entry) -> bool| {
        let mut given = false;
        for entry in entries.iter_mut().filter(|entry| wants(entry)) {
            if cost(entry) <= left {
                left -= cost(entry);
                entry.rounds += 1;
                given = true;
            }
        }
        given
    };
    give(entries, &|entry| entry.rounds == 0);
    while give(entries, &|entry| entry.is_claim() && entry.rounds < entry.scenario.claim_rounds()) {}
    while give(entries, &|_| true) {}
    if let Some(first) = entries.first_mut().filter(|_| left == seconds) {
        first.rounds = 1; // at least one round is played
    }
}

fn cost(entry: &Entry) -> f64 {
    entry.scenario.jobs() as f64 * crate::trial::PERIOD_NS * 1e-9 + OVERHEAD_SECONDS
}

/// Orders the rounds cycle by cycle, each cycle in random order. The rounds that a claim compares follow each other
/// directly, so that the speed of the machine differs little between them.
fn order(entries: &[Entry], seed: u64) -> Vec<Round> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let cycles = entries.iter().map(|entry| entry.rounds).max().unwrap_or(0);
    let one_cycle = |cycle| {
        let mut units = units(entries, cycle);
        units.iter_mut().for_each(|unit| unit.shuffle(&mut random));
        units.shuffle(&mut random);
        units.into_iter().flatten().map(move |entry| Round { entry, cycle })
    };
    (0..cycles).flat_map(one_cycle).collect()
}

/// The entries that play in a cycle: those with claims together, one unit per scenario, each other entry alone.
fn units(entries: &[Entry], cycle: usize) -> Vec<Vec<usize>> {
    let playing: Vec<usize> = (0..entries.len()).filter(|&entry| entries[entry].rounds > cycle).collect();
    let claims = |scenario| playing.iter().copied().filter(move |&i| entries[i].is_claim_of(scenario)).collect();
    let others = playing.iter().copied().filter(|&i| !entries[i].is_claim()).map(|i| vec![i]);
    Scenario::ALL.map(claims).into_iter().chain(others).filter(|unit: &Vec<usize>| !unit.is_empty()).collect()
}

fn name(entry: &Entry) -> String {
    format!("{}: {}", entry.scenario.name(), entry.policy.label())
}

fn wanted(scenario: Scenario, policy: &Policy, only: &[String]) -> bool {
    let text = format!("{}: {}", scenario.name(), policy.label()).to_lowercase();
    only.is_empty() || only.iter().any(|word| text.contains(&word.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{ENOUGH_JOBS, ENOUGH_ROUNDS};
    use qfabric_types::MechanismName::{Deadline, Ext};

    fn total(plan: &Plan) -> f64 {
        plan.rounds.iter().map(|r| cost(&plan.entries[r.entry])).sum::<f64>() + CALIBRATION_SECONDS
    }

    fn default_plan() -> Plan {
        plan(Deadline, crate::Options::default().seconds, &[], false, 1)
    }

    #[test]
    fn the_rounds_fill_the_time_without_exceeding_it() {
        for seconds in [180.0, 300.0] {
            let total = total(&plan(Deadline, seconds, &[], false, 1));
            assert!(total <= seconds && total > seconds - 8.0, "{total} of {seconds}");
        }
    }

    #[test]
    fn the_default_plan_has_enough_jobs_and_rounds_for_every_claim_under_both_mechanisms() {
        for plan in [Deadline, Ext].map(|name| plan(name, crate::Options::default().seconds, &[], false, 1)) {
            assert!(plan.left_out.is_empty(), "{:?}", plan.left_out);
            for entry in plan.entries.iter().filter(|entry| entry.is_claim()) {
                let jobs = entry.rounds * (entry.scenario.jobs() - crate::live::WARM_UP) * entry.scenario.players(2);
                assert!(jobs as u64 >= ENOUGH_JOBS, "{}: {jobs}", name(entry));
                assert!(entry.rounds >= ENOUGH_ROUNDS, "{}: {} rounds", name(entry), entry.rounds);
            }
        }
    }

    #[test]
    fn only_under_ext_soft_servers_play_without_and_with_skipping() {
        let soft = |mechanism| -> Vec<String> {
            plan(mechanism, 180.0, &["soft".into()], true, 1).entries.iter().map(name).collect()
        };
        let [plain, skips] = ["Q-Fabric equal shares, soft", "Q-Fabric equal shares, soft, skips predicted"];
        let expected = [format!("hogs: {plain}"), format!("shift: {plain}"), format!("shift: {skips}")];
        assert_eq!((soft(Deadline), soft(Ext)), (Vec::new(), expected.to_vec()));
    }

    #[test]
    fn a_cycle_plays_each_policy_once_in_an_order_that_depends_on_the_seed() {
        let plan = default_plan();
        let first: Vec<usize> = plan.rounds.iter().filter(|r| r.cycle == 0).map(|r| r.entry).collect();
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..plan.entries.len()).collect::<Vec<_>>());
        assert_ne!(first, sorted, "the order must be random");
        assert_eq!(plan, default_plan());
        let cycles: Vec<usize> = plan.rounds.iter().map(|r| r.cycle).collect();
        assert!(cycles.is_sorted(), "cycles must not overlap");
    }

    #[test]
    fn the_compared_rounds_of_a_cycle_follow_each_other() {
        for seed in 0..20 {
            let plan = plan(Deadline, crate::Options::default().seconds, &[], false, seed);
            let compared = |round: &Round| plan.entries[round.entry].is_claim_of(Scenario::Shift);
            let cycles = plan.rounds.iter().map(|round| round.cycle).max().unwrap();
            for cycle in 0..=cycles {
                let rounds: Vec<&Round> = plan.rounds.iter().filter(|round| round.cycle == cycle).collect();
                let at: Vec<usize> = (0..rounds.len()).filter(|&i| compared(rounds[i])).collect();
                assert!(at.windows(2).all(|pair| pair[1] == pair[0] + 1), "seed {seed}, cycle {cycle}: {at:?}");
            }
        }
    }

    #[test]
    fn a_short_plan_keeps_the_claims_and_lists_the_omitted_policies() {
        let plan = plan(Deadline, 20.0, &[], false, 1);
        assert!(plan.entries.iter().all(|entry| entry.rounds == 1 && entry.is_claim()));
        assert!(plan.left_out.iter().any(|name| name == "shift: nice -20"), "{:?}", plan.left_out);
    }

    #[test]
    fn the_option_only_keeps_the_named_policies() {
        let labels = |only: &str, all| {
            plan(Deadline, 500.0, &[only.into()], all, 1).entries.iter().map(|e| e.policy.label()).collect::<Vec<_>>()
        };
        assert_eq!(labels("plain", false), ["plain"]);
        assert_eq!(labels("shift: nice", false), ["nice -20"]);
        assert_eq!(labels("MMA", false).len(), 0);
        assert_eq!(labels("MMA", true).len(), 2);
        assert!(labels("no such policy", true).is_empty());
        assert_eq!(plan(Deadline, 1.0, &["plain".into()], false, 1).rounds.len(), 1, "at least one round is played");
    }
}
