//! Translates a controller into the form for the kernel: integer parameters for the controller of a server.

use qfabric_types::{Choice, KernelController, Nanos, PredictorSpec, Share};

use super::ExtError;
use crate::abi::*;

/// The kernel's form of `control`; all zeros (no controller) for `None`.
pub(super) fn config(control: Option<&KernelController>) -> Result<qf_control_config, ExtError> {
    let Some(control) = control else { return Ok(qf_control_config::default()) };
    let (samples, lanes) = predictor(control.predictor).ok_or_else(|| unknown(control.predictor))?;
    let periods = |share: Share| (share.as_f64() * control.periods_per_job as f64) as u32;
    check(control)?;
    Ok(qf_control_config {
        samples,
        lanes,
        rho_milli: control.rho_milli,
        periods_per_job: control.periods_per_job as u32,
        early: periods(control.early),
        late: periods(control.late),
        choice: choice(control.choice),
        on: 1,
        min_budget_ns: super::refusal::SERVICE_MIN.get(),
        max_budget_ns: control.max_budget.get(),
    })
}

/// Largest ρ in thousandths, and largest number of server periods (L, e, E), of `qf_control_check()` in
/// `bpf/include/aquosa.h`.
const RHO_MILLI_MAX: u32 = 10_000;
const PERIODS_MAX: f64 = 65_535.0;

/// Refuses values that the kernel would refuse only when the server exists.
fn check(control: &KernelController) -> Result<(), ExtError> {
    let refused = |what, value: String, limits: String, fix| Err(ExtError::OutOfRange { what, value, limits, fix });
    if control.rho_milli > RHO_MILLI_MAX {
        let (value, limits) = (f64::from(control.rho_milli) / 1_000.0, f64::from(RHO_MILLI_MAX) / 1_000.0);
        let fix = "choose a smaller rho, or run the controller in the daemon";
        return refused("rho of a controller in the kernel", value.to_string(), format!("0 to {limits}"), fix);
    }
    let longest = control.early.max(control.late).max(Share::ONE).as_f64() * control.periods_per_job as f64;
    if control.periods_per_job == 0 || longest > PERIODS_MAX {
        let what = "a job, or its early or late limit, in server periods of a controller in the kernel";
        return refused(what, longest.to_string(), format!("1 to {PERIODS_MAX}"), "choose a longer server period");
    }
    Ok(())
}

/// n and S; their product is at most [`QF_CONTROL_SAMPLES`].
fn predictor(spec: PredictorSpec) -> Option<(u32, u32)> {
    let (n, lanes) = match spec {
        PredictorSpec::MovingAverage { n } => (n, 1),
        PredictorSpec::Interleaved { n, lanes } => (n, lanes),
        _ => return None,
    };
    let fits = n >= 1 && lanes >= 1 && n.checked_mul(lanes).is_some_and(|all| all <= QF_CONTROL_SAMPLES as usize);
    fits.then_some((n as u32, lanes as u32))
}

fn choice(choice: Choice) -> u32 {
    match choice {
        Choice::Left => QF_CHOICE_LEFT,
        Choice::Middle => QF_CHOICE_MIDDLE,
        Choice::Right => QF_CHOICE_RIGHT,
        Choice::Zero => QF_CHOICE_ZERO,
        Choice::Cost => QF_CHOICE_COST,
    }
}

fn unknown(predictor: PredictorSpec) -> ExtError {
    ExtError::OutOfRange {
        what: "the predictor in the kernel",
        value: format!("{predictor:?}"),
        limits: format!("ma:n and mma:n,S with n times S up to {QF_CONTROL_SAMPLES}"),
        fix: "choose one of these, or run the controller in the daemon",
    }
}

/// Fails if the largest budget of the controller is longer than the period.
pub(super) fn fits(control: &qf_control_config, period: Nanos) -> Result<(), ExtError> {
    let most = Nanos::new(control.max_budget_ns);
    match control.on == 1 && most > period {
        true => Err(ExtError::ServiceOverPeriod { service: most, period }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> KernelController {
        KernelController {
            predictor: PredictorSpec::MovingAverage { n: 8 },
            choice: Choice::Left,
            periods_per_job: 4,
            rho_milli: 10_000,
            early: Share::ONE,
            late: Share::from_ppm(100_000_000),
            max_budget: Nanos::from_millis(6),
        }
    }

    #[test]
    fn values_beyond_the_kernels_limits_are_refused_by_name() {
        let refusal = |control: KernelController| config(Some(&control)).unwrap_err().to_string();
        assert!(config(Some(&controller())).is_ok());
        let rho = refusal(KernelController { rho_milli: 10_001, ..controller() });
        assert!(rho.contains("rho") && rho.contains("0 to 10"), "{rho}");
        for periods_per_job in [0, 656, 65_536, u64::MAX] {
            let periods = refusal(KernelController { periods_per_job, ..controller() });
            assert!(periods.contains("server period"), "{periods}");
        }
    }
}
