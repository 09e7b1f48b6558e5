//! Translates a controller into the form for the kernel: integer parameters for the controller of a server.

use qfabric_types::{Choice, KernelController, Nanos, PredictorSpec, Share};

use super::ExtError;
use crate::abi::*;

/// The kernel's form of `control`; all zeros (no controller) for `None`.
pub(super) fn config(control: Option<&KernelController>) -> Result<qf_control_config, ExtError> {
    let Some(control) = control else { return Ok(qf_control_config::default()) };
    let (samples, lanes) = predictor(control.predictor).ok_or_else(|| unknown(control.predictor))?;
    let periods = |share: Share| (share.as_f64() * control.periods_per_job as f64) as u32;
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
