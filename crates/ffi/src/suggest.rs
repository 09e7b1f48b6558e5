//! Parameters from a trial execution: what `qfabric probe` suggests, as a call.

use std::ffi::c_char;
use std::slice;

use qfabric_client::{Nanos, Profile, Share};
use qfabric_control::guarantee::NoGuarantee;
use qfabric_control::trial::{Suggestion, suggest};

use crate::contract::set;
use crate::offer::chars;
use crate::session::{qf_session, with};
use crate::status::{Failure, put, qf_status, settle};

/// Bytes of a predictor's name, with its zero byte.
pub const QF_PREDICTOR_SIZE: usize = 32;

/// What a trial execution suggests for a task.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_suggestion {
    /// For qf_set_predictor.
    pub predictor: [c_char; QF_PREDICTOR_SIZE],
    /// For qf_set_max_bandwidth.
    pub max_bandwidth: f64,
    /// What class A would guarantee; -1: no budget keeps what it promises.
    pub class_a: f64,
    /// What class B would guarantee; -1: no budget does.
    pub class_b: f64,
    /// The least early end of the target interval, as a fraction of the period, with which class A can be asked for; -1:
    /// none.
    pub early: f64,
    /// Jobs of the trial with the scheduling error in the target interval, under this predictor and maximum; a fraction.
    pub in_target: f64,
    /// Mean bandwidth that took.
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
/// `costs_ns` is null or points to `jobs` values; so is and does `hints`.
unsafe fn profile(costs_ns: *const u64, hints: *const f64, jobs: usize) -> Result<Profile, Failure> {
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

/// What the computation times of `jobs` jobs, at least 24, suggest for the task; its period, server period, target interval
/// and controller are as they were set, and stay. `hints` go with the costs, one each, or are null. A calculation: no daemon
/// is asked, nothing is changed.
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
        // SAFETY: passed on.
        let (contract, profile) =
            unsafe { (with(task, |task| Ok(task.contract.clone()))?, profile(costs_ns, hints, jobs)?) };
        contract.check().map_err(Failure::invalid)?;
        let made = suggest(&profile, &contract).map_err(Failure::invalid)?;
        // SAFETY: passed on.
        unsafe { put("the suggestion", suggestion, qf_suggestion::from(&made)) }
    };
    settle(made())
}

/// The jobs of a trial execution go with the contract: the first job is predicted already, and classes A and B take from
/// them what they guarantee. `hints` may be null.
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
    // SAFETY: passed on.
    match unsafe { profile(costs_ns, hints, jobs) } {
        // SAFETY: passed on.
        Ok(profile) => unsafe {
            set(task, |task| {
                task.contract.profile = Some(profile);
                Ok(())
            })
        },
        Err(failure) => settle(Err(failure)),
    }
}
