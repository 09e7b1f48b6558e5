//! Claims, and the verdicts of the rounds on them.
//!
//! The rule: a claim «at most b» is **held** if the whole 95 % interval lies at or below b, and **missed** if the
//! whole interval lies above b. In every other case there is no verdict, and the reason is given: fewer than
//! [`ENOUGH_JOBS`] jobs in undisturbed rounds, fewer than [`ENOUGH_ROUNDS`] undisturbed rounds for a median, disturbed
//! rounds, or an interval that contains b. So «0 of 43 jobs» never holds «at most 1 %», because its interval ends at
//! 8.2 %.

use serde::{Deserialize, Serialize};

use crate::plan::Scenario;
use crate::policy;
use crate::record::RunRecord;
use crate::rows::{self, Row};
use crate::stats::{self, Count, Interval};

/// Fewest jobs of each side for a verdict about misses.
pub const ENOUGH_JOBS: u64 = 600;
/// Fewest rounds for a verdict about a median. The whole range of `n` rounds encloses the true median with a probability
/// of 1 − 2^(1−n): 50 % for two rounds, 94 % for five.
pub const ENOUGH_ROUNDS: usize = 5;
// One player under hogs.
const MISSES: Claim = Claim::percent("misses at most 1 % of its jobs", 0.01);
const OVERHEAD: Claim = Claim::ratio(Conditions::Plain, "reserves at most 1.15x its mean demand", 1.15);
// Near capacity.
const MISSES_OF_RIVAL: Claim =
    Claim::ratio(Conditions::Plain, "misses at most 0.5x as many jobs as static GRUB in the same room", 0.5);
const BANDWIDTH_OF_RIVAL: Claim =
    Claim::ratio(Conditions::Plain, "reserves at most 0.85x as much as static GRUB", 0.85);
// The same, only under `ext`.
const MISSES_OF_SOFT: Claim = Claim::ratio(
    Conditions::OursSkip,
    "with one soft server per job misses at most 0.5x as many jobs as static GRUB in the same room",
    0.5,
);

/// The conditions of a claim. Every claim is about a calm machine, because only undisturbed rounds count.
#[derive(Clone, Copy, Debug)]
pub enum Conditions {
    /// No player skips frames.
    Plain,
    /// Under Q-Fabric, players skip frames that are predicted to be late. A skipped frame counts as missed.
    OursSkip,
    /// The players of both sides skip.
    BothSkip,
}

impl Conditions {
    fn words(self) -> &'static str {
        match self {
            Conditions::Plain => "calm, without skipping",
            Conditions::OursSkip => "calm, Q-Fabric's players skip",
            Conditions::BothSkip => "calm, the players of both skip",
        }
    }
}

/// A promise of Q-Fabric to keep a value at or below a bound.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The action of Q-Fabric, including the bound.
    text: &'static str,
    bound: f64,
    /// True if value and bound are fractions shown in percent, false if they are ratios.
    percent: bool,
    conditions: Conditions,
}

impl Claim {
    /// A claim about a ratio.
    pub const fn ratio(conditions: Conditions, text: &'static str, bound: f64) -> Claim {
        Claim { text, bound, percent: false, conditions }
    }

    /// A claim about a fraction, without skipping.
    const fn percent(text: &'static str, bound: f64) -> Claim {
        Claim { text, bound, percent: true, conditions: Conditions::Plain }
    }

    /// Applies the rule to the measurement. `None` means that no round of both sides was played. `place` begins
    /// the sentence, and the conditions follow.
    pub fn judge(&self, place: &str, measured: Option<Measured>) -> Verdict {
        let nothing = Verdict {
            claim: format!("{place}, {}: Q-Fabric {}", self.conditions.words(), self.text),
            state: State::Disturbed,
            samples: 0,
            value: None,
            low: None,
            high: None,
            bound: self.bound,
            percent: self.percent,
            reason: Some("there are no rounds of both sides to compare".into()),
        };
        let Some(measured) = measured else { return nothing };
        let (state, reason) = rule(&measured, self.bound);
        Verdict {
            state,
            reason,
            samples: measured.samples,
            value: Some(measured.value).filter(|v| v.is_finite()),
            low: measured.interval.map(|i| i.low),
            high: measured.interval.map(|i| i.high).filter(|high| high.is_finite()),
            ..nothing
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The interval lies inside the claim.
    Held,
    /// The interval lies outside the claim.
    Missed,
    /// No verdict; [`Verdict::reason`] gives the reason.
    Disturbed,
}

impl Verdict {
    /// Replaces the verdict by this reason for having none.
    pub fn withdraw(&mut self, reason: &str) {
        (self.state, self.reason) = (State::Disturbed, Some(reason.into()));
    }

    /// Says in the claim that Q-Fabric's players ran under `ext`.
    pub(crate) fn name_ext(&mut self) {
        self.claim.insert_str(0, "under ext, ");
    }
}

/// One claim and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// One sentence with its bound.
    pub claim: String,
    pub state: State,
    /// Number of jobs of the side with fewer jobs.
    pub samples: u64,
    pub value: Option<f64>,
    /// Lower end of the 95 % interval.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval; `None` if it is unbounded.
    pub high: Option<f64>,
    /// The claim is «at most this value».
    pub bound: f64,
    /// True if value and bound are fractions shown in percent, false if they are ratios.
    pub percent: bool,
    /// The reason if there is no verdict.
    pub reason: Option<String>,
}

impl Verdict {
    /// The mark in text.
    pub fn mark(&self) -> &'static str {
        match self.state {
            State::Held => "✔",
            State::Missed => "✘",
            State::Disturbed => "–",
        }
    }

    /// Claim, value, interval and samples in one line.
    pub fn sentence(&self) -> String {
        let show = |x: f64| if self.percent { percent(x) } else { format!("{x:.2}x") };
        let high = self.high.map_or("unbounded".into(), show);
        let measured = match (self.value, self.low) {
            (Some(value), Some(low)) => format!("{} [{}, {high}], {} jobs", show(value), show(low), self.samples),
            (Some(value), None) => format!("{} (too few rounds for an interval)", show(value)),
            _ => "not measured".into(),
        };
        let verdict = self.reason.as_ref().map_or(String::new(), |reason| format!("; no verdict: {reason}"));
        format!("{}: {measured}{verdict}", self.claim)
    }
}

/// The measurement for a claim.
pub struct Measured {
    pub value: f64,
    /// The 95 % interval; `None` for too few rounds.
    pub interval: Option<Interval>,
    /// Number of jobs of the side with fewer jobs.
    pub samples: u64,
    /// The reason for which there can be no verdict.
    pub disturbed: Option<String>,
}

/// The four claims, and under `ext` the one about soft servers, as far as their policies were played.
pub fn verdicts(rounds: &[RunRecord]) -> Vec<Verdict> {
    let ours = |scenario| rounds_of(rounds, scenario, &policy::headline().label());
    let (hogs, shift) = (ours(Scenario::Hogs), ours(Scenario::Shift));
    let rival = rounds_of(rounds, Scenario::Shift, &policy::equal_shares(true).label());
    let mut verdicts = Vec::new();
    if let Some(first) = hogs.first() {
        let place = format!("one player under {} hogs", first.hogs);
        verdicts.push(MISSES.judge(&place, misses(&hogs)));
        verdicts.push(OVERHEAD.judge(&place, over_rounds(&hogs, rows::bandwidth_per_demand)));
    }
    if let (Some(first), false) = (shift.first(), rival.is_empty()) {
        let place = format!("{} players near capacity", first.players.len());
        let pairs = pairs(&shift, &rival);
        verdicts.push(MISSES_OF_RIVAL.judge(&place, misses_of_rival(&pairs)));
        verdicts.push(BANDWIDTH_OF_RIVAL.judge(&place, bandwidth_of_rival(&pairs)));
    }
    let soft = policy::skipping(policy::soft(), policy::Skip::Predicted);
    let soft = rounds_of(rounds, Scenario::Shift, &soft.label());
    if let (Some(first), false) = (soft.first(), rival.is_empty()) {
        let place = format!("{} players near capacity", first.players.len());
        verdicts.push(MISSES_OF_SOFT.judge(&place, misses_of_rival(&pairs(&soft, &rival))));
    }
    verdicts
}

fn rounds_of<'a>(rounds: &'a [RunRecord], scenario: Scenario, policy: &str) -> Vec<&'a RunRecord> {
    rounds.iter().filter(|round| round.scenario == scenario.name() && round.policy == policy).collect()
}

fn rule(measured: &Measured, bound: f64) -> (State, Option<String>) {
    let none = |reason: String| (State::Disturbed, Some(reason));
    if let Some(disturbed) = &measured.disturbed {
        return none(format!("disturbed ({disturbed})"));
    }
    if measured.samples < ENOUGH_JOBS {
        return none(format!("{} jobs, but {ENOUGH_JOBS} are needed; use a longer --seconds", measured.samples));
    }
    match measured.interval {
        Some(interval) if interval.high <= bound => (State::Held, None),
        Some(interval) if interval.low > bound => (State::Missed, None),
        Some(_) => none("the interval contains the bound; use a longer --seconds".into()),
        None => none("the spread cannot be computed from so few rounds; use a longer --seconds".into()),
    }
}

fn misses(rounds: &[&RunRecord]) -> Option<Measured> {
    let counted = rows::counted(rounds);
    let counts: Vec<Count> = counted.iter().map(|round| rows::count(round)).collect();
    let all = Count::sum(&counts);
    Some(Measured {
        value: all.misses as f64 / all.jobs.max(1) as f64,
        interval: Some(stats::proportion(&counts)),
        samples: all.jobs,
        disturbed: disturbance(&counted),
    })
}

/// Judges a number that each round has, such as its bandwidth divided by its demand, by the median over the
/// rounds.
fn over_rounds(rounds: &[&RunRecord], value: impl Fn(&RunRecord) -> Option<f64>) -> Option<Measured> {
    let counted = rows::counted(rounds);
    let values: Option<Vec<f64>> = counted.iter().map(|round| value(round)).collect();
    Some(Measured {
        value: rows::median(values.clone()?),
        interval: interval_of_median(&values?),
        samples: counted.iter().map(|round| rows::count(round).jobs).sum(),
        disturbed: disturbance(&counted),
    })
}

/// The 95 % interval of the median of the rounds, if there are enough.
fn interval_of_median(rounds: &[f64]) -> Option<Interval> {
    stats::median(rounds).filter(|_| rounds.len() >= ENOUGH_ROUNDS)
}

/// Our round and the rival's round of the same cycle.
pub type Pair<'a> = (&'a RunRecord, &'a RunRecord);

/// Pairs of rounds of the same cycle. Returns only the comparable pairs if there are any.
fn pairs<'a>(ours: &[&'a RunRecord], rival: &[&'a RunRecord]) -> Vec<Pair<'a>> {
    let partner = |round: &RunRecord| rival.iter().copied().find(|other| other.cycle == round.cycle);
    let all: Vec<Pair> = ours.iter().filter_map(|round| Some((*round, partner(round)?))).collect();
    let calm: Vec<Pair> = all.iter().copied().filter(|&pair| disturbance_of_pair(pair).is_none()).collect();
    if calm.is_empty() { all } else { calm }
}

/// Our misses divided by the rival's, from rounds with the same frames.
pub fn misses_of_rival(pairs: &[Pair]) -> Option<Measured> {
    let counts: Vec<(Count, Count)> = pairs.iter().map(|(a, b)| (rows::count(a), rows::count(b))).collect();
    let (ours, rival) = (Count::sum(counts.iter().map(|c| &c.0)), Count::sum(counts.iter().map(|c| &c.1)));
    let rate = |count: Count| count.misses as f64 / count.jobs.max(1) as f64;
    (!pairs.is_empty()).then(|| Measured {
        value: rate(ours) / rate(rival),
        interval: Some(stats::ratio_of_misses(&counts)),
        samples: ours.jobs.min(rival.jobs),
        disturbed: pairs.iter().find_map(|&pair| disturbance_of_pair(pair)),
    })
}

fn bandwidth_of_rival(pairs: &[Pair]) -> Option<Measured> {
    let total = |round: &RunRecord| rows::row(&[round]).total_bandwidth;
    let ratio = |pair: &Pair| Some(total(pair.0)? / total(pair.1)?);
    // On a busy machine the daemon's answer may come too late. Such a round has no bandwidth and is omitted.
    let pairs: Vec<Pair> = pairs.iter().copied().filter(|pair| ratio(pair).is_some()).collect();
    let ratios: Vec<f64> = pairs.iter().filter_map(ratio).collect();
    if ratios.is_empty() {
        return None;
    }
    let jobs = |side: fn(&Pair) -> Count| pairs.iter().map(side).map(|count| count.jobs).sum::<u64>();
    Some(Measured {
        value: rows::median(ratios.clone()),
        interval: interval_of_median(&ratios),
        samples: jobs(|pair| rows::count(pair.0)).min(jobs(|pair| rows::count(pair.1))),
        disturbed: pairs.iter().find_map(|&pair| disturbance_of_pair(pair)),
    })
}

/// The first disturbance. The caller has already selected undisturbed rounds if there were any.
fn disturbance(rounds: &[&RunRecord]) -> Option<String> {
    rounds.iter().find_map(|round| round.around.disturbance())
}

/// The reason for which two rounds cannot be compared: one is disturbed, the same frames cost more in one of them,
/// or the load near capacity was not the designed one.
pub fn disturbance_of_pair((ours, rival): Pair) -> Option<String> {
    let off_design = || [ours, rival].iter().find_map(|round| round.around.load_difference());
    disturbance(&[ours, rival])
        .or_else(|| ours.around.speed_difference(&rival.around))
        .or_else(|| off_design().filter(|_| ours.scenario == Scenario::Shift.name()))
}

/// Comparisons without a bound: with the default scheduler, and with costs that are known beforehand.
pub fn comparisons(rows: &[Row]) -> Vec<String> {
    let find = |scenario: Scenario, policy: &str| {
        rows.iter().find(|row| row.scenario == scenario.name() && row.policy == policy)
    };
    let headline = policy::headline().label();
    let oracle = policy::qfabric(policy::Knowledge::Oracle, true).label();
    let sentence = |scenario, rival: &str, what: &str| {
        let (ours, rival) = (find(scenario, &headline)?, find(scenario, rival)?);
        let place = if scenario == Scenario::Hogs { "one player" } else { "near capacity" };
        Some(format!("{place}: {} {what} {}", misses_of(ours), misses_of(rival)))
    };
    let against_plain = sentence(Scenario::Hogs, "plain", "against the default scheduler:");
    let limits =
        Scenario::ALL.map(|scenario| sentence(scenario, &oracle, "against the limit with costs known beforehand:"));
    against_plain.into_iter().chain(limits.into_iter().flatten()).collect()
}

fn misses_of(row: &Row) -> String {
    let (low, high) = (percent(row.misses_low), percent(row.misses_high));
    format!("{} misses {} [{low}, {high}]", row.policy, percent(row.miss_ratio))
}

/// A fraction as a percentage with a useful number of digits.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent == 0.0 || percent >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::run;

    /// A round of `jobs` jobs, of which the first `misses` are late.
    fn round(scenario: &str, policy: String, cycle: usize, misses: usize, jobs: usize, budget_ms: f64) -> RunRecord {
        let ms: Vec<u64> = (0..jobs).map(|k| if k < misses { 50 } else { 36 }).collect();
        let mut round = run(&ms, jobs, budget_ms);
        (round.scenario, round.policy, round.cycle) = (scenario.into(), policy, cycle);
        round
    }

    fn hogs(misses: usize, jobs: usize, rounds: usize) -> Vec<RunRecord> {
        (0..rounds).map(|cycle| round("hogs", policy::headline().label(), cycle, misses, jobs, 2.4)).collect()
    }

    fn shift(ours: usize, rival: usize) -> Vec<RunRecord> {
        let grub = policy::equal_shares(true).label();
        let both = |cycle| {
            let ours = round("shift", policy::headline().label(), cycle, ours, 400, 2.5);
            [ours, round("shift", grub.clone(), cycle, rival, 400, 3.0)]
        };
        (0..6).flat_map(both).collect()
    }

    fn states(rounds: &[RunRecord]) -> Vec<State> {
        verdicts(rounds).iter().map(|verdict| verdict.state).collect()
    }

    #[test]
    fn no_miss_in_43_jobs_does_not_hold_at_most_one_percent() {
        let verdict = &verdicts(&hogs(0, 43, 1))[0];
        assert_eq!((verdict.state, verdict.samples), (State::Disturbed, 43));
        assert!(verdict.reason.as_ref().unwrap().contains("600 are needed"), "{verdict:?}");
    }

    #[test]
    fn the_interval_decides_and_not_the_value() {
        assert_eq!(states(&hogs(0, 150, 5))[0], State::Held);
        assert_eq!(states(&hogs(1, 150, 5))[0], State::Disturbed, "0.7 % [0.2, 1.5] contains 1 %");
        assert_eq!(states(&hogs(9, 150, 5))[0], State::Missed);
    }

    #[test]
    fn at_most_half_of_the_rivals_misses_needs_the_whole_interval() {
        assert_eq!(states(&shift(5, 40)), [State::Held, State::Held]);
        assert_eq!(states(&shift(19, 40))[0], State::Disturbed);
        assert_eq!(states(&shift(60, 40))[0], State::Missed);
        assert_eq!(states(&shift(0, 0))[0], State::Disturbed, "without misses there is no verdict");
    }

    #[test]
    fn a_verdict_uses_only_undisturbed_rounds() {
        let mut rounds = hogs(0, 150, 5);
        let stolen = |round: &mut RunRecord| round.around.steal = vec![0.3];
        rounds.iter_mut().for_each(stolen);
        let verdict = &verdicts(&rounds)[0];
        assert!(verdict.state == State::Disturbed && verdict.reason.as_ref().unwrap().contains("steal 30"));
        let mut rounds = hogs(0, 150, 6);
        stolen(&mut rounds[0]);
        let verdict = &verdicts(&rounds)[0];
        assert_eq!((verdict.state, verdict.samples), (State::Held, 750));
    }

    #[test]
    fn a_pair_whose_frames_cost_different_amounts_decides_nothing() {
        let mut rounds = shift(5, 40);
        rounds.iter_mut().for_each(|round| round.around.speed = Some(1.0));
        rounds[0].around.speed = Some(1.1);
        assert!(rounds[0].around.disturbance().is_none());
        let verdict = &verdicts(&rounds)[0];
        assert_eq!((verdict.state, verdict.samples), (State::Held, 2_000), "five of six pairs");
        let slow = |round: &&mut RunRecord| !round.policy.starts_with("static");
        rounds.iter_mut().filter(slow).for_each(|round| round.around.speed = Some(1.1));
        for verdict in verdicts(&rounds) {
            assert_eq!(verdict.state, State::Disturbed);
            assert!(verdict.reason.unwrap().contains("frames cost +10 % compared with the rival's"));
        }
        rounds.iter_mut().for_each(|round| round.around.speed = Some(1.1));
        for verdict in verdicts(&rounds) {
            assert!(verdict.reason.unwrap().contains("+10.0 % away from the designed one"));
        }
    }

    #[test]
    fn every_claim_says_calm_and_without_skipping() {
        let rounds = [hogs(0, 150, 5), shift(5, 40)].concat();
        let verdicts = verdicts(&rounds);
        let words = "calm, without skipping: Q-Fabric";
        assert!(verdicts.len() == 4 && verdicts.iter().all(|verdict| verdict.claim.contains(words)), "{verdicts:?}");
    }

    #[test]
    fn soft_servers_whose_players_skip_are_judged_against_static_grub() {
        let skips = policy::skipping(policy::soft(), policy::Skip::Predicted).label();
        let soft = |late| {
            let mut rounds = shift(late, 40);
            let ours = rounds.iter_mut().filter(|round| !round.policy.starts_with("static"));
            ours.for_each(|round| round.policy.clone_from(&skips));
            verdicts(&rounds)
        };
        assert_eq!((soft(5)[0].state, soft(60)[0].state), (State::Held, State::Missed));
        let claim = &soft(5)[0].claim;
        assert!(soft(5).len() == 1 && claim.contains("players skip: Q-Fabric with one soft server"), "{claim}");
    }

    #[test]
    fn a_rival_round_of_another_cycle_is_not_paired() {
        let mut rounds = shift(5, 40);
        rounds.iter_mut().filter(|round| round.policy.starts_with("static")).for_each(|round| round.cycle += 10);
        let verdict = &verdicts(&rounds)[0];
        assert!(verdict.state == State::Disturbed && verdict.value.is_none());
        assert!(verdict.sentence().contains("not measured"));
    }

    #[test]
    fn a_round_without_a_bandwidth_is_omitted_from_the_verdict() {
        let mut rounds = shift(5, 40);
        rounds[0].players[0].reserved = None;
        let verdict = &verdicts(&rounds)[1];
        assert_eq!((verdict.state, verdict.samples), (State::Held, 2_000), "five of six pairs");
    }

    #[test]
    fn a_median_of_few_rounds_has_no_verdict_however_many_jobs_they_have() {
        let mut rounds = shift(5, 40);
        rounds.retain(|round| round.cycle < 4);
        let verdict = &verdicts(&rounds)[1];
        assert_eq!((verdict.state, verdict.samples, verdict.low), (State::Disturbed, 1_600, None));
        assert!(verdict.sentence().contains("from so few rounds"), "{}", verdict.sentence());
    }

    #[test]
    fn policies_that_were_not_played_have_no_verdict() {
        assert!(verdicts(&[round("shift", "nice -20".into(), 0, 3, 100, 0.0)]).is_empty());
        assert!(verdicts(&[]).is_empty() && comparisons(&[]).is_empty());
    }
}
