//! Trial execution: derives the parameters of a contract from the jobs of one run of a program. Times in
//! nanoseconds. Approach: runs the closed loop on the trace with every candidate predictor, and takes the one that
//! keeps the target interval most often for its bandwidth; computes maximum and guaranteed bandwidth by Theorems 2
//! and 3. Source: AQuoSA 2009, §6.1 («a trial execution of 1000 samples showed…»); QualMan's probing.

use qfabric_types::{Class, Contract, Instant, Invariance, Nanos, PredictorSpec, Profile, Share};

use crate::Target;
use crate::guarantee::{Bounds, NoGuarantee};
use crate::reach::Reach;
use crate::replay::{Score, Setup};
use crate::rhythm::period_at;

/// Least number of jobs for a suggestion.
pub const LEAST_JOBS: usize = 24;
/// The price of bandwidth: predictors are ranked by `p − PRICE·(bandwidth/demand)`.
const PRICE: f64 = 0.5;
/// Numbers of lanes to try: the usual lengths of groups of pictures.
const LANES: [usize; 4] = [3, 12, 15, 30];
/// Jobs up to this quantile can end in time (Theorem 2's `Q̄ > H/L`); longer ones are recovered from.
const LONG: f64 = 0.99;
/// Factor of the suggested maximum over the need of the trial, because two runs never have the same costs.
const HEADROOM: f64 = 1.2;
/// Largest relative distance between the rate of a trial's jobs and the common rate that it is set to.
const SNAP: f64 = 0.005;

/// The suggestions from a trial execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// The best predictor.
    pub predictor: PredictorSpec,
    /// Its result on the trial's jobs under the suggested maximum.
    pub score: Score,
    /// Q̄/P: sufficient for all but the longest hundredth of the jobs, and to recover from the contract's deviation
    /// within its recovery jobs, with headroom.
    pub max_bandwidth: Share,
    /// The guarantee that class A needs, or the reason why no budget suffices; see [`Suggestion::invariance`] for
    /// its target.
    pub class_a: Result<Share, NoGuarantee>,
    /// The guarantee that class B needs, or the reason why no budget suffices.
    pub class_b: Result<Share, NoGuarantee>,
    /// Theorem 2 under the suggested predictor: whether class A is possible.
    pub invariance: Invariance,
    /// The least `e/T` with which class A is possible; `None` if there is none.
    pub early: Option<f64>,
    /// All candidates with their results, best first.
    pub tried: Vec<(PredictorSpec, Score)>,
}

/// The trial was too short for a suggestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trial recorded {jobs} jobs; run it for at least {LEAST_JOBS} jobs")]
pub struct TooShort {
    pub jobs: usize,
}

impl Suggestion {
    /// A copy of `contract` with the suggestions filled in, and with `profile` for its warm start.
    pub fn applied_to(&self, contract: &Contract, profile: &Profile) -> Contract {
        Contract {
            predictor: self.predictor,
            max_bandwidth: self.max_bandwidth,
            profile: Some(profile.clone()),
            ..contract.clone()
        }
    }
}

/// Suggestions from the jobs of `profile` for `contract`; its period, target interval, ρ and choice are kept.
pub fn suggest(profile: &Profile, contract: &Contract) -> Result<Suggestion, TooShort> {
    if profile.costs.len() < LEAST_JOBS {
        return Err(TooShort { jobs: profile.costs.len() });
    }
    let max_bandwidth = maximum(profile, contract);
    let bounded = Contract { max_bandwidth, profile: Some(profile.clone()), guaranteed: None, ..contract.clone() };
    let tried = ranked(profile, &bounded);
    let (predictor, score) = tried[0];
    let chosen = Contract { predictor, ..bounded };
    let bounds = Bounds::of(profile, &chosen).ok_or(TooShort { jobs: profile.costs.len() })?;
    let [class_a, class_b] = [Class::A, Class::B].map(|class| bounds.minimum(class, &chosen));
    let early = Target::of(&chosen).on_lattice().least_early(bounds.alpha);
    let invariance = bounds.invariance(&chosen);
    Ok(Suggestion { predictor, score, max_bandwidth, class_a, class_b, invariance, early, tried })
}

fn maximum(profile: &Profile, contract: &Contract) -> Share {
    let costs: Vec<f64> = profile.costs.iter().map(|cost| cost.as_f64().max(1.0)).collect();
    let target = Target::of(contract).on_lattice();
    let reach = Reach::new(&costs, target);
    let deviation = contract.deviation * target.periods_per_job();
    let least_ns = reach.least_reachable_in_ns(contract.recovery_jobs as usize, deviation).unwrap_or(f64::INFINITY);
    let long_ns = quantile(costs.clone(), LONG).unwrap_or(0.0) / target.periods_per_job();
    let cpus = (least_ns.max(long_ns) * HEADROOM / target.server_period_ns()).min(1.0);
    Share::from_f64(cpus).min(contract.max_bandwidth)
}

/// Every candidate that had jobs left after its warm-up, best first.
fn ranked(profile: &Profile, contract: &Contract) -> Vec<(PredictorSpec, Score)> {
    let mut tried: Vec<(PredictorSpec, Score)> = candidates(profile)
        .into_iter()
        .map(|predictor| (predictor, Score::of(&setup(contract, predictor), trace(profile))))
        .filter(|(_, score)| score.jobs > 0)
        .collect();
    tried.sort_by(|a, b| worth(&b.1).total_cmp(&worth(&a.1)));
    tried
}

fn worth(score: &Score) -> f64 {
    score.in_target - PRICE * score.mean_bandwidth / score.mean_demand.max(f64::MIN_POSITIVE)
}

/// The candidates that leave at least half of the profile for their judgement; MA[3] always does.
fn candidates(profile: &Profile) -> Vec<PredictorSpec> {
    let jobs = profile.costs.len();
    let mut specs = vec![PredictorSpec::MovingAverage { n: 3 }, PredictorSpec::MovingAverage { n: 12 }];
    specs.push(PredictorSpec::Percentile { n: 12, percent: 90 });
    specs.extend(LANES.map(|lanes| PredictorSpec::Interleaved { n: 3, lanes }));
    specs.extend([(15, 180), (45, 120)].map(|(taps, training)| PredictorSpec::LeastSquares { taps, training }));
    if profile.hints.len() == jobs {
        specs.extend([12, 24].map(|n| PredictorSpec::Hint { n }));
    }
    specs.retain(|spec| spec.warm_up() * 2 <= jobs);
    specs
}

fn setup(contract: &Contract, predictor: PredictorSpec) -> Setup {
    Setup {
        period: contract.period,
        server_period: contract.server_period,
        predictor,
        rho: contract.rho,
        choice: contract.choice,
        early: contract.early,
        late: contract.late,
        max_bandwidth: contract.max_bandwidth.as_f64().min(1.0),
    }
}

fn trace(profile: &Profile) -> impl Iterator<Item = (f64, Option<f64>)> {
    profile.costs.iter().enumerate().map(|(k, cost)| (cost.as_f64().max(1.0), profile.hints.get(k).copied()))
}

fn quantile(mut values: Vec<f64>, q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = (q * values.len().saturating_sub(1) as f64).round() as usize;
    values.get(at).copied()
}

/// The period of a program whose jobs began at `starts`: the median distance, set to the nearest common rate if that
/// is within 0.5 %. `None` if there are fewer than [`LEAST_JOBS`] distances, or if they show no period (a quarter of
/// the distances is off by more than a fifth).
pub fn period_of(starts: &[Instant]) -> Option<Nanos> {
    let distances: Vec<f64> = starts.windows(2).map(|pair| pair[1].since(pair[0]).as_f64()).collect();
    if distances.len() < LEAST_JOBS {
        return None;
    }
    let median = quantile(distances.clone(), 0.5)?;
    let regular = distances.iter().filter(|distance| (*distance - median).abs() <= 0.2 * median).count();
    (median > 0.0 && regular * 4 >= distances.len() * 3).then(|| period_at(1e9 / median, SNAP))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract() -> Contract {
        let mut contract = Contract::new("test", Nanos::from_millis(40));
        contract.server_period = Nanos::new(2_500_000);
        contract
    }

    /// A pattern of twelve with a variation of 2 %.
    fn pictures(jobs: u64) -> Profile {
        let cost = |k: u64| match k % 12 {
            0 => 16_000_000,
            k if k % 3 == 0 => 9_000_000,
            _ => 5_000_000,
        };
        Profile { costs: (0..jobs).map(|k| Nanos::new(cost(k) + k * 7919 % 100_000)).collect(), hints: vec![] }
    }

    #[test]
    fn a_pattern_of_twelve_is_recognised() {
        let suggestion = suggest(&pictures(300), &Contract { rho: 3.0, ..contract() }).unwrap();
        assert_eq!(suggestion.predictor.to_string(), "mma:3,12");
        assert!(suggestion.score.in_target > 0.95 && suggestion.invariance.holds, "{suggestion:?}");
        let (class_a, class_b) = (suggestion.class_a.unwrap(), suggestion.class_b.unwrap());
        assert!(class_a >= class_b && suggestion.max_bandwidth >= class_b);
        assert!((0.15..0.6).contains(&suggestion.max_bandwidth.as_f64()), "{suggestion:?}");
    }

    #[test]
    fn hints_win_if_there_is_no_pattern() {
        let mut profile = pictures(300);
        // The same pictures in an order without a period.
        profile.costs = (0..300).map(|k| profile.costs[k * k * 7 % 300]).collect();
        profile.hints = profile.costs.iter().map(|cost| cost.as_f64() / 100.0).collect();
        let suggestion = suggest(&profile, &contract()).unwrap();
        assert!(matches!(suggestion.predictor, PredictorSpec::Hint { .. }), "{:?}", suggestion.tried);
    }

    #[test]
    fn the_suggestion_is_a_valid_contract() {
        let profile = pictures(100);
        let applied = suggest(&profile, &contract()).unwrap().applied_to(&contract(), &profile);
        assert_eq!(applied.check(), Ok(()));
        assert_eq!(applied.profile, Some(profile));
    }

    #[test]
    fn a_short_trial_is_refused_with_the_least_length() {
        let refusal = suggest(&pictures(5), &contract()).unwrap_err().to_string();
        assert!(refusal.contains('5') && refusal.contains("24"), "{refusal}");
    }

    #[test]
    fn jobs_beyond_the_cpu_are_not_attainable() {
        let costs = vec![Nanos::from_millis(60); 100];
        let suggestion = suggest(&Profile { costs, hints: vec![] }, &contract()).unwrap();
        assert!(!suggestion.invariance.holds);
        assert_eq!(suggestion.max_bandwidth, contract().max_bandwidth);
    }

    #[test]
    fn the_period_is_found_in_the_activations() {
        let every = |ns: u64, wobble: u64| -> Vec<Instant> {
            (0..50).map(|k| Instant::new(1_000 + k * ns + k * 7919 % (wobble + 1))).collect()
        };
        assert_eq!(period_of(&every(40_010_000, 300_000)), Some(Nanos::from_millis(40)));
        let film = period_of(&every(41_700_000, 100_000)).unwrap();
        assert_eq!(film, Nanos::new(41_708_368), "23.976 Hz is nearer than 24 Hz");
        assert_eq!(Contract::new("film", film).periods_per_job(), 4, "a quarter is a whole number of nanoseconds");
        assert_eq!(period_of(&every(7_000_000, 0)), Some(Nanos::from_millis(7)));
        assert_eq!(period_of(&every(40_000_000, 0)[..10]), None);
        let bursts: Vec<Instant> = (0..60).map(|k| Instant::new(k / 3 * 90_000_000 + k % 3 * 1_000_000)).collect();
        assert_eq!(period_of(&bursts), None);
    }
}
