//! Predictors and controllers written in C. They run inside qf_end_cycle, on the application's CPU time. They cannot
//! use the handle of their task: it is in use, and calls with it return QF_STATE.

use std::ffi::c_void;

use qfabric_client::{Controller, Interval, Nanos, Predictor, Usage};

use crate::contract::set;
use crate::session::qf_session;
use crate::status::{Failure, qf_bool, qf_status, settle};

/// Cost of a job, and the reservation that it ran under.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_usage {
    /// Number of the job, from 0.
    pub k: u64,
    /// Release, in CLOCK_MONOTONIC.
    pub release_ns: u64,
    /// End, in CLOCK_MONOTONIC.
    pub finish_ns: u64,
    /// CPU time of the job.
    pub cost_ns: u64,
    /// Q, the budget; 0 without a reservation.
    pub budget_ns: u64,
    /// P, the server period; 0 without a reservation.
    pub server_period_ns: u64,
}

/// A predicted computation time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_interval {
    /// Smallest computation time.
    pub low_ns: u64,
    /// Largest computation time; not below `low_ns`.
    pub high_ns: u64,
}

/// Receives the cost of the job that just ended, and the hint that was given for it (NaN: none). Called inside
/// qf_end_cycle, like the two functions below: the task's handle is in use, and calls with it return QF_STATE.
pub type qf_observe = Option<extern "C" fn(data: *mut c_void, cost_ns: u64, hint: f64)>;
/// Predicts the next job's cost in `*predicted`; `hint` is the hint for that job (NaN: none). Return false while
/// there is too little data.
pub type qf_predict = Option<extern "C" fn(data: *mut c_void, hint: f64, predicted: *mut qf_interval) -> qf_bool>;
/// Writes the next job's budget per server period into `*budget_ns`; `predicted` is null without a prediction. Return
/// false to leave the decision to the daemon.
pub type qf_decide = Option<
    extern "C" fn(
        data: *mut c_void,
        usage: *const qf_usage,
        predicted: *const qf_interval,
        budget_ns: *mut u64,
    ) -> qf_bool,
>;

#[derive(Clone, Copy)]
pub(crate) struct OwnPredictor {
    observe: extern "C" fn(*mut c_void, u64, f64),
    predict: extern "C" fn(*mut c_void, f64, *mut qf_interval) -> qf_bool,
    data: *mut c_void,
}

impl Predictor for OwnPredictor {
    fn observe(&mut self, cost: Nanos, hint: Option<f64>) {
        (self.observe)(self.data, cost.get(), hint.unwrap_or(f64::NAN));
    }
    fn predict(&mut self, hint: Option<f64>) -> Option<Interval> {
        let mut predicted = qf_interval::default();
        (self.predict)(self.data, hint.unwrap_or(f64::NAN), &mut predicted)
            .is_true()
            .then(|| Interval { low: Nanos::new(predicted.low_ns), high: Nanos::new(predicted.high_ns) })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct OwnController {
    decide: extern "C" fn(*mut c_void, *const qf_usage, *const qf_interval, *mut u64) -> qf_bool,
    data: *mut c_void,
}

impl Controller for OwnController {
    fn on_usage(&mut self, usage: &Usage, predicted: Option<Interval>) -> Option<Nanos> {
        let (job, granted) = (usage.job, usage.granted);
        let usage = qf_usage {
            k: job.k,
            release_ns: job.release.get(),
            finish_ns: job.finish.get(),
            cost_ns: job.cost.get(),
            budget_ns: granted.map_or(0, |r| r.budget().get()),
            server_period_ns: granted.map_or(0, |r| r.period().get()),
        };
        let predicted = predicted.map(|p| qf_interval { low_ns: p.low.get(), high_ns: p.high.get() });
        let predicted = predicted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut budget_ns = 0;
        (self.decide)(self.data, &usage, predicted, &mut budget_ns).is_true().then(|| Nanos::new(budget_ns))
    }
}

/// Uses the application's predictor instead of the daemon's, from the next qf_start.
///
/// # Safety
/// `task` is a live handle; `data` has the type that both functions expect, and stays valid until qf_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_own_predictor(
    task: *mut qf_session,
    observe: qf_observe,
    predict: qf_predict,
    data: *mut c_void,
) -> qf_status {
    let (Some(observe), Some(predict)) = (observe, predict) else {
        return settle(Err(Failure::invalid("a function of the predictor is a null pointer")));
    };
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.predictor = Some(OwnPredictor { observe, predict, data });
            Ok(())
        })
    }
}

/// Uses the application's controller instead of the daemon's, from the next qf_start.
///
/// # Safety
/// `task` is a live handle; `data` has the type that `decide` expects, and stays valid until qf_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_own_controller(
    task: *mut qf_session,
    decide: qf_decide,
    data: *mut c_void,
) -> qf_status {
    let Some(decide) = decide else {
        return settle(Err(Failure::invalid("the controller is a null pointer")));
    };
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.controller = Some(OwnController { decide, data });
            Ok(())
        })
    }
}
