//! Suggests contract parameters from the costs of a trial execution, like `qfabric probe`.

use std::ffi::c_char;
use std::slice;

use qfabric_client::{Nanos, Profile, Share};
use qfabric_control::guarantee::NoGuarantee;
use qfabric_control::trial::{Suggestion, suggest};

use crate::contract::set;
use crate::offer::chars;
use crate::session::{qf_session, with};
use crate::status::{Failure, QF_INVALID, put, qf_status, settle};

/// Size of a predictor's name in bytes, including the zero byte.
pub const QF_PREDICTOR_SIZE: usize = 32;

/// Parameters that a trial execution suggests for a task.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_suggestion {
    /// Argument for qf_set_predictor.
    pub predictor: [c_char; QF_PREDICTOR_SIZE],
    /// Argument for qf_set_max_bandwidth, a fraction of one CPU.
    pub max_bandwidth: f64,
    /// Guaranteed bandwidth under class A; -1 if no budget can keep the promise of class A.
    pub class_a: f64,
    /// Guaranteed bandwidth under class B; -1 if no budget can keep the promise of class B.
    pub class_b: f64,
    /// Smallest early end of the target interval with which class A is possible, as a fraction of the period; -1 if
    /// there is none.
    pub early: f64,
    /// Fraction of the trial's jobs whose scheduling error is in the target interval, under this predictor and
    /// maximum.
    pub in_target: f64,
    /// Mean bandwidth under this predictor and maximum.
    pub mean_bandwidth: f64,
}

impl From<&Suggestion> for qf_suggestion {
    fn from(suggestion: &Suggestion) -> qf_suggestion {
        let share = |class: &Result<Share, NoGuarantee>| class.as_ref().map_or(-1.0, |share| share.as_f64());
        qf_suggestion {
            predictor: chars(&suggestion.predictor.to_string()),
            max_bandwidth: suggestion.max_bandwidth.as_f64(),
            class_a: share(&suggestion.class_a),
            class_b: share(&suggestion.class_b),
            early: suggestion.early.unwrap_or(-1.0),
            in_target: suggestion.score.in_target,
            mean_bandwidth: suggestion.score.mean_bandwidth,
        }
    }
}

/// # Safety
/// `costs_ns` and `hints` are null or point to `jobs` values.
pub(crate) unsafe fn profile(costs_ns: *const u64, hints: *const f64, jobs: usize) -> Result<Profile, Failure> {
    if costs_ns.is_null() {
        return Err(Failure::invalid("the costs are a null pointer"));
    }
    if jobs > Profile::MAX_JOBS {
        return Err(Failure::invalid(format!("there are {jobs} jobs; give at most {}", Profile::MAX_JOBS)));
    }
    // SAFETY: not null, as long as the caller promises.
    let costs = unsafe { slice::from_raw_parts(costs_ns, jobs) };
    let hints = match hints.is_null() {
        true => &[][..],
        // SAFETY: as above.
        false => unsafe { slice::from_raw_parts(hints, jobs) },
    };
    Ok(Profile { costs: costs.iter().copied().map(Nanos::new).collect(), hints: hints.to_vec() })
}

/// Suggests parameters from the computation times of `jobs` jobs (at least 24). Uses the task's period, server
/// period, target interval and controller. `hints` has one hint for each job, or is null. A pure calculation: it
/// sends no request to the daemon and changes nothing.
///
/// # Safety
/// `task` is a live handle, `costs_ns` and `hints` point to `jobs` values, `suggestion` to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_suggest(
    task: *mut qf_session,
    costs_ns: *const u64,
    hints: *const f64,
    jobs: usize,
    suggestion: *mut qf_suggestion,
) -> qf_status {
    let made = || {
        // SAFETY: the caller guarantees it.
        let (contract, profile) =
            unsafe { (with(task, |task| Ok(task.contract.clone()))?, profile(costs_ns, hints, jobs)?) };
        contract.check().map_err(|error| Failure::problem(QF_INVALID, &error.problem()))?;
        let made = suggest(&profile, &contract).map_err(Failure::invalid)?;
        // SAFETY: the caller guarantees it.
        unsafe { put("the suggestion", suggestion, qf_suggestion::from(&made)) }
    };
    settle(made())
}

/// Adds the jobs of a trial execution to the contract: the daemon predicts already the first job, and derives the
/// guaranteed bandwidth of classes A and B from them. `hints` may be null.
///
/// # Safety
/// `task` is a live handle, `costs_ns` and `hints` point to `jobs` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_profile(
    task: *mut qf_session,
    costs_ns: *const u64,
    hints: *const f64,
    jobs: usize,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    match unsafe { profile(costs_ns, hints, jobs) } {
        // SAFETY: the caller guarantees it.
        Ok(profile) => unsafe {
            set(task, |task| {
                task.contract.profile = Some(profile);
                Ok(())
            })
        },
        Err(failure) => settle(Err(failure)),
    }
}
