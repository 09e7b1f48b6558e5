//! The guarantee of an application, and whether its target interval can be kept at all.
//!
//! Approach: replays the contract's predictor over the profile of a trial execution. The predicted intervals `[h_k,
//! H_k]` give `α = inf h_k/H_k` and the `H_k` of Theorems 2 and 3; the observed costs enter only through them.
//! Source: AQuoSA 2009, §4.3.1, §4.4, §5.3.2. docs/design/0025 gives the choices that the paper leaves open.

use qfabric_types::{Class, Contract, Invariance, MIN_BUDGET, Nanos, Profile, Share};

use crate::reach::Reach;
use crate::{Target, predictor};

/// The guarantee of a contract of class A, B or C.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guarantee {
    /// The share of the processor that the application keeps under overload.
    pub share: Share,
    /// Theorem 2 for the profile; `None` without a profile that determines it.
    pub invariance: Option<Invariance>,
}

/// The class's guarantee does not exist. A refusal changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // the messages explain the fields
pub enum NoGuarantee {
    #[error(
        "class {class} guarantees a share of the processor, but the contract has no profile, guarantee or maximum bandwidth to derive it from"
    )]
    Unknown { class: Class },
    #[error("the profile has {jobs} jobs; the predictor uses all of them for its warm-up and predicts none")]
    ShortProfile { jobs: usize },
    #[error(
        "class A keeps the target interval only with a prediction of α = inf h/H above {least:.3}; the profile gives α = \
         {alpha:.3}"
    )]
    Blunt { alpha: f64, least: f64, early: Option<f64> },
    #[error("class {class} needs {least} by Theorems 2 and 3, but the maximum bandwidth is {most}")]
    OverMaximum { class: Class, least: Share, most: Share },
    #[error("{jobs} jobs are too few to return from a deviation of {deviation} T; Theorem 3 needs at least {least}")]
    TooFewJobs { jobs: u32, deviation: f64, least: u64 },
    #[error("the server period equals the period: with L = 1 no budget makes the target interval reachable")]
    OneServerPeriod,
}

impl NoGuarantee {
    /// Stable name of the reason, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            NoGuarantee::Unknown { .. } | NoGuarantee::ShortProfile { .. } => "no_profile",
            _ => "not_attainable",
        }
    }

    pub fn next_step(&self) -> String {
        match *self {
            NoGuarantee::Unknown { .. } => {
                "run `qfabric probe` first and pass its profile (--profile NAME), or set the \
                guaranteed part (--guaranteed CPUS) or a maximum bandwidth of your own (--max-bandwidth CPUS)"
                    .to_owned()
            }
            NoGuarantee::ShortProfile { .. } => {
                "run `qfabric probe` for longer, or choose a predictor of fewer samples (--predictor)".to_owned()
            }
            NoGuarantee::Blunt { early, .. } => {
                let wider = early.map(|early| format!("widen the target (--early {early}), ")).unwrap_or_default();
                format!(
                    "{wider}narrow the prediction (--predictor, a smaller --rho), or ask for class B, which only \
                         promises to return to the target"
                )
            }
            NoGuarantee::OverMaximum { least, .. } => {
                format!(
                    "raise the maximum bandwidth to at least {} (--max-bandwidth), or ask for class C",
                    least.as_f64()
                )
            }
            NoGuarantee::TooFewJobs { least, .. } => {
                format!("allow at least {least} jobs (--recovery-jobs {least}), or a smaller --deviation")
            }
            NoGuarantee::OneServerPeriod => {
                "choose a server period of a half of the period or less (--server-period), or class C".to_owned()
            }
        }
    }
}

/// The predictions of the contract's predictor for the jobs of its profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// `H_k` of every predicted job, in ns.
    pub highs: Vec<f64>,
    /// `α = inf h_k/H_k`.
    pub alpha: f64,
}

impl Bounds {
    /// Replays the predictor of `contract` over `profile`. `None` if it predicts no job. Predictions with `H_k = 0`
    /// are left out, because the law answers them with Q̄.
    pub fn of(profile: &Profile, contract: &Contract) -> Option<Bounds> {
        let mut predictor = predictor(contract.predictor, contract.rho);
        let mut bounds = Bounds { highs: Vec::with_capacity(profile.costs.len()), alpha: 1.0 };
        for (k, cost) in profile.costs.iter().enumerate() {
            let hint = profile.hints.get(k).copied();
            if let Some(costs) = predictor.predict(hint).filter(|costs| costs.high > 0.0) {
                bounds.highs.push(costs.high);
                bounds.alpha = bounds.alpha.min(costs.low / costs.high);
            }
            predictor.observe(cost.as_f64(), hint);
        }
        (!bounds.highs.is_empty()).then_some(bounds)
    }

    /// `H = sup H_k`, in ns.
    pub fn highest_ns(&self) -> f64 {
        self.highs.iter().copied().fold(0.0, f64::max)
    }

    /// Theorem 2 for the target and the maximum bandwidth of `contract`.
    pub fn invariance(&self, contract: &Contract) -> Invariance {
        let target = Target::of(contract).on_lattice();
        let max_budget_ns = contract.max_bandwidth.as_f64().min(1.0) * target.server_period_ns();
        Invariance {
            alpha: self.alpha,
            least_alpha: target.least_alpha(),
            highest: Nanos::from_f64(self.highest_ns().ceil()),
            holds: target.is_invariant(self.alpha, self.highest_ns(), max_budget_ns),
        }
    }

    /// The minimum of §4.4 for a class, independent of the contract's maximum bandwidth. For class B it is the
    /// bound of Theorem 3 (1); for class A the larger of the bounds of Theorems 2 and 3, with the contract's h and
    /// Γ; for class C zero.
    ///
    /// # Errors
    /// [`NoGuarantee`] if no budget satisfies the class.
    pub fn minimum(&self, class: Class, contract: &Contract) -> Result<Share, NoGuarantee> {
        let target = Target::of(contract).on_lattice();
        let reach = Reach::new(&self.highs, target);
        let deviation = contract.deviation * target.periods_per_job();
        let least_steps = reach.least_steps(deviation).ok_or(NoGuarantee::OneServerPeriod);
        let budget_ns = match class {
            Class::C => return Ok(Share::ZERO),
            Class::B => least_steps.map(|_| reach.least_reachable_ns())?,
            Class::A => {
                let (jobs, least) = (contract.recovery_jobs, least_steps?);
                let too_few = NoGuarantee::TooFewJobs { jobs, deviation: contract.deviation, least };
                let recovery_ns = reach.least_reachable_in_ns(jobs as usize, deviation).ok_or(too_few)?;
                // Q̄ has to exceed the bound of Theorem 2.
                recovery_ns.max(reach.least_invariant_ns() * (1.0 + f64::EPSILON))
            }
        };
        Ok(counted(budget_ns.max(MIN_BUDGET.as_f64()) / target.server_period_ns()))
    }
}

/// Rounds a bound up to the next millionth above it, because the budget must exceed the bound.
fn counted(cpus: f64) -> Share {
    Share::from_f64(((cpus * 1e6).floor() + 1.0) / 1e6)
}

/// The guarantee of `contract` (§4.4, §5.3.2). It is the guarantee that the contract names; else the minimum of its
/// class on its profile; else, without a profile, the maximum bandwidth that the contract sets, because no
/// controller requests more than that.
///
/// # Errors
/// [`NoGuarantee`] if the contract gives no basis for an amount, if class A cannot keep its target interval
/// (Theorem 2), or if no budget up to the maximum bandwidth satisfies the class.
pub fn guarantee(contract: &Contract) -> Result<Guarantee, NoGuarantee> {
    let class = contract.class;
    let profile = contract.profile.as_ref().filter(|profile| !profile.costs.is_empty());
    let bounds = profile.and_then(|profile| Bounds::of(profile, contract));
    let invariance = bounds.as_ref().map(|bounds| bounds.invariance(contract));
    if class == Class::A
        && let Some(bounds) = &bounds
    {
        check_sharpness(bounds, contract)?;
    }
    let share = match (contract.guaranteed, &bounds) {
        _ if class == Class::C => Share::ZERO,
        (Some(named), _) => named,
        (None, Some(bounds)) => within_maximum(bounds.minimum(class, contract)?, contract)?,
        (None, None) => match profile {
            Some(profile) => return Err(NoGuarantee::ShortProfile { jobs: profile.costs.len() }),
            None if contract.max_bandwidth != Contract::MAX_BANDWIDTH => contract.max_bandwidth,
            None => return Err(NoGuarantee::Unknown { class }),
        },
    };
    Ok(Guarantee { share, invariance })
}

fn check_sharpness(bounds: &Bounds, contract: &Contract) -> Result<(), NoGuarantee> {
    let target = Target::of(contract).on_lattice();
    match target.is_invariant(bounds.alpha, 0.0, f64::INFINITY) {
        true => Ok(()),
        false => Err(NoGuarantee::Blunt {
            alpha: bounds.alpha,
            least: target.least_alpha(),
            early: target.least_early(bounds.alpha),
        }),
    }
}

fn within_maximum(least: Share, contract: &Contract) -> Result<Share, NoGuarantee> {
    match least <= contract.max_bandwidth {
        true => Ok(least),
        false => Err(NoGuarantee::OverMaximum { class: contract.class, least, most: contract.max_bandwidth }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::PredictorSpec;

    /// T = 40 ms, P = 2.5 ms: L = 16, e = 3 P, E = 0.
    fn contract(class: Class, costs_us: impl IntoIterator<Item = u64>) -> Contract {
        let costs = costs_us.into_iter().map(Nanos::from_micros).collect();
        Contract {
            class,
            server_period: Nanos::from_micros(2_500),
            predictor: PredictorSpec::MovingAverage { n: 3 },
            profile: Some(Profile { costs, hints: vec![] }),
            ..Contract::new("test", Nanos::from_millis(40))
        }
    }

    /// Two alternating costs: MA[3] sees (a, b, a) or (b, a, b), so α and H have closed forms.
    fn two(class: Class, a_us: u64, b_us: u64) -> Contract {
        contract(class, (0..200).map(|k| if k % 2 == 0 { a_us } else { b_us }))
    }

    fn share(contract: &Contract) -> f64 {
        guarantee(contract).unwrap().share.as_f64()
    }

    #[test]
    fn the_minima_use_the_predicted_costs_not_the_observed_ones() {
        // μ = 31/3 or 32/3 ms, σ = √2/3 ms: H is 10.805 or 11.138 ms, though no job is longer than 11 ms.
        let c = two(Class::B, 10_000, 11_000);
        let bounds = Bounds::of(c.profile.as_ref().unwrap(), &c).unwrap();
        assert_eq!(bounds.highs.len(), 197, "the first three jobs are the warm-up");
        assert!((bounds.highest_ns() - (32.0 + 2f64.sqrt()) / 3.0 * 1e6).abs() < 1.0);
        // ⌈10.805/Q⌉ + ⌈11.138/Q⌉ < 32: 15 periods for the first and 16 for the second, Q ≥ 10.805/15 ms.
        let least = bounds.highs.iter().copied().fold(f64::MAX, f64::min) / 15.0 / 2.5e6;
        assert!((share(&c) - least).abs() < 3e-6, "share {}, expected {least}", share(&c));
        let wide = Contract { rho: 3.0, ..c.clone() };
        assert!(share(&wide) > share(&c) * 1.05, "a wider prediction needs a larger guarantee");
    }

    #[test]
    fn class_a_needs_the_larger_bound_of_both_theorems_and_class_c_none() {
        let of = |class| share(&two(class, 10_000, 11_000));
        let (a, b) = (of(Class::A), of(Class::B));
        assert!(a >= b && a > (32.0 + 2f64.sqrt()) / 3.0 / 40.0, "{a}: Q̄ > sup H/L");
        assert_eq!(of(Class::C), 0.0);
    }

    #[test]
    fn fewer_recovery_jobs_and_a_larger_deviation_need_a_larger_guarantee() {
        let base = two(Class::A, 10_000, 11_000);
        let hasty = Contract { recovery_jobs: 3, ..base.clone() };
        let far = Contract { deviation: 4.0, ..base.clone() };
        assert!(share(&hasty) > share(&base) && share(&far) > share(&base));
        let b = two(Class::B, 10_000, 11_000);
        assert_eq!(share(&Contract { recovery_jobs: 3, ..b.clone() }), share(&b), "class B does not use h");
    }

    #[test]
    fn too_few_recovery_jobs_are_refused_with_the_least_number() {
        let refused = guarantee(&Contract { recovery_jobs: 1, ..two(Class::A, 10_000, 11_000) }).unwrap_err();
        assert_eq!(refused, NoGuarantee::TooFewJobs { jobs: 1, deviation: 1.0, least: 2 });
        assert!(refused.next_step().contains("--recovery-jobs 2"));
    }

    #[test]
    fn a_wide_prediction_refuses_class_a_and_is_reported_to_b_and_c() {
        let blunt = |class| guarantee(&two(class, 8_000, 12_000));
        let refused = blunt(Class::A).unwrap_err();
        let NoGuarantee::Blunt { alpha, least, early: Some(early) } = refused else { panic!("{refused:?}") };
        // μ = 28/3, σ = 1.886: α = 7.448/11.219.
        assert!((alpha - 0.6639).abs() < 1e-3 && (least - 0.75).abs() < 1e-9, "{refused}");
        assert!(refused.to_string().contains("0.750") && refused.to_string().contains("0.664"));
        for class in [Class::B, Class::C] {
            let stated = blunt(class).unwrap().invariance.unwrap();
            assert!(!stated.holds && (stated.alpha - alpha).abs() < 1e-12 && stated.least_alpha == least);
        }
        let remedied = Contract { early, ..two(Class::A, 8_000, 12_000) };
        assert!(guarantee(&remedied).unwrap().invariance.unwrap().holds, "the suggested --early {early} suffices");
        let less = Contract { early: early - 1.0 / 16.0, ..remedied };
        assert!(guarantee(&less).is_err(), "and no smaller one suffices");
    }

    #[test]
    fn without_a_profile_class_a_and_b_need_an_amount_in_the_contract() {
        for class in [Class::A, Class::B] {
            let bare = Contract { profile: None, ..two(class, 1, 1) };
            let refused = guarantee(&bare).unwrap_err();
            assert_eq!((refused, refused.code()), (NoGuarantee::Unknown { class }, "no_profile"));
            assert!(refused.next_step().contains("qfabric probe"));
            let named = Contract { guaranteed: Some(Share::from_ppm(1)), ..bare.clone() };
            assert_eq!(guarantee(&named).unwrap(), Guarantee { share: Share::from_ppm(1), invariance: None });
            let bounded = Contract { max_bandwidth: Share::from_ppm(400_000), ..bare };
            assert_eq!(guarantee(&bounded).unwrap().share, Share::from_ppm(400_000));
        }
        assert_eq!(guarantee(&Contract { profile: None, ..two(Class::C, 1, 1) }).unwrap().share, Share::ZERO);
    }

    #[test]
    fn a_profile_shorter_than_the_warm_up_gives_no_guarantee() {
        let refused = guarantee(&contract(Class::B, [9_000; 3])).unwrap_err();
        assert_eq!((refused, refused.code()), (NoGuarantee::ShortProfile { jobs: 3 }, "no_profile"));
    }

    #[test]
    fn a_maximum_bandwidth_below_the_minimum_is_refused_with_both_numbers() {
        for class in [Class::A, Class::B] {
            let tight = Contract { max_bandwidth: Share::from_ppm(200_000), ..two(class, 10_000, 11_000) };
            let refused = guarantee(&tight).unwrap_err();
            let NoGuarantee::OverMaximum { least, most, .. } = refused else { panic!("{refused:?}") };
            assert!(least > most && refused.to_string().contains("0.2 CPU"), "{refused}");
            assert!(guarantee(&Contract { max_bandwidth: least, ..tight }).is_ok(), "{least} is enough");
        }
    }

    #[test]
    fn one_server_period_per_job_cannot_be_guaranteed() {
        for class in [Class::A, Class::B] {
            let whole = Contract { server_period: Nanos::from_millis(40), early: 0.0, ..contract(class, [9_000; 50]) };
            assert_eq!(guarantee(&whole).unwrap_err(), NoGuarantee::OneServerPeriod);
        }
    }
}
