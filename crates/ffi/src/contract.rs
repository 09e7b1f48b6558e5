//! Setters of the contract: they work between qf_init and qf_start.

use std::ffi::c_char;
use std::str::FromStr;

use qfabric_client::{Class, Contract, LatePolicy, Nanos, Share, Utility, UtilityMetric, Window};

use crate::session::{Task, qf_session, with};
use crate::status::{Failure, Outcome, QF_INVALID, QF_STATE, qf_bool, qf_status, settle, text};

const STARTED: &str = "the task has been started; call qf_end first";

/// Runs `change` on a task that is not started; QF_STATE if it is started.
///
/// # Safety
/// `handle` is null or a live handle.
pub(crate) unsafe fn set(handle: *mut qf_session, change: impl FnOnce(&mut Task) -> Outcome) -> qf_status {
    let change = |task: &mut Task| match task.is_running() {
        false => change(task),
        true => Err(Failure::new(QF_STATE, STARTED)),
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { with(handle, change) })
}

fn named<T: FromStr<Err: ToString>>(name: &str) -> Result<T, Failure> {
    name.parse().map_err(|e: T::Err| Failure::invalid(e.to_string()))
}

/// Name of the task for people: 1 to 64 characters.
///
/// # Safety
/// `task` is a live handle, `name` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_name(task: *mut qf_session, name: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.contract.name = text("the name", name)?.to_owned();
            Ok(())
        })
    }
}

/// T, the period: a job is released every `period_ns`, and its deadline is the next release. Also sets the server
/// period.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_task_period(task: *mut qf_session, period_ns: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            let fresh = Contract::new(&task.contract.name, Nanos::new(period_ns));
            (task.contract.period, task.contract.server_period) = (fresh.period, fresh.server_period);
            Ok(())
        })
    }
}

/// P, the period of the reservation. The task period must be a multiple of P.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_server_period(task: *mut qf_session, period_ns: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.contract.server_period = Nanos::new(period_ns);
            Ok(())
        })
    }
}

/// Largest bandwidth that the task may request, a fraction of one CPU.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_max_bandwidth(task: *mut qf_session, bandwidth: f64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.contract.max_bandwidth = share("the maximum bandwidth", bandwidth)?;
            Ok(())
        })
    }
}

pub(crate) fn share(what: &str, cpus: f64) -> Result<Share, Failure> {
    match (0.0..=4096.0).contains(&cpus) {
        true => Ok(Share::from_f64(cpus)),
        false => Err(Failure::invalid(format!("{what} is {cpus}; use a fraction of one CPU, such as 0.4"))),
    }
}

/// Class "A", "B" or "C". `guaranteed` is the guaranteed share for classes A and B, in CPUs; if it is negative, the
/// daemon derives the share.
///
/// # Safety
/// `task` is a live handle, `name` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_class(task: *mut qf_session, name: *const c_char, guaranteed: f64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            let class: Class = named(text("the class", name)?)?;
            let guaranteed = if guaranteed < 0.0 { None } else { Some(share("the guaranteed part", guaranteed)?) };
            (task.contract.class, task.contract.guaranteed) = (class, guaranteed);
            Ok(())
        })
    }
}

/// Recovery of class A (Theorem 3): after a deviation of up to `deviation` task periods (Γ), the task is back in the
/// target interval within `jobs` jobs (h).
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_recovery(task: *mut qf_session, jobs: u32, deviation: f64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            (task.contract.recovery_jobs, task.contract.deviation) = (jobs, deviation);
            Ok(())
        })
    }
}

/// Predictor: "ma:12", "mma:3,12", "ol:36,60", "pct:64,95" or "hint:24".
///
/// # Safety
/// `task` is a live handle, `spec` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_predictor(task: *mut qf_session, spec: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.contract.predictor = named(text("the predictor", spec)?)?;
            Ok(())
        })
    }
}

/// Point of the admissible interval that the control law chooses: "left", "middle", "right", "zero" or "cost".
///
/// # Safety
/// `task` is a live handle, `choice` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_controller(task: *mut qf_session, choice: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.contract.choice = named(text("the controller's choice", choice)?)?;
            Ok(())
        })
    }
}

/// Target interval: how much a job may end early and late, as fractions of the task period.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_target(task: *mut qf_session, early: f64, late: f64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            (task.contract.early, task.contract.late) = (early, late);
            Ok(())
        })
    }
}

/// Priority level under overload, 0 (last) to 9 (first), and weight within the level, 1 to 10000.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_priority(task: *mut qf_session, priority: u8, weight: u32) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            (task.contract.priority, task.contract.weight) = (priority, weight);
            Ok(())
        })
    }
}

/// Adds a metric with its utility function: `min` to `max` in steps of `step`, at most 64 levels; at most 4 metrics.
/// `utility` and `cpu` are E-code: a function from a level to its utility (0 to 1000000000), and one to the CPU time
/// that it takes, in millionths of one CPU. Neither may decrease. Under overload, tasks of one user, group and priority
/// that have metrics divide their part of the CPU by utility times weight. Compiled by qf_start, which returns
/// QF_REFUSED if that fails.
///
/// # Safety
/// `task` is a live handle; `name`, `utility` and `cpu` are zero-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_add_metric(
    task: *mut qf_session,
    name: *const c_char,
    min: i64,
    max: i64,
    step: i64,
    utility: *const c_char,
    cpu: *const c_char,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            let owned = |what, from| Ok::<_, Failure>(text(what, from)?.to_owned());
            let (name, utility) = (owned("the metric's name", name)?, owned("the utility function", utility)?);
            let metric = UtilityMetric { name, min, max, step, utility, cpu: owned("the function of CPU time", cpu)? };
            let mut all = task.contract.utility.clone().unwrap_or_else(|| Utility { metrics: Vec::new() });
            all.metrics.push(metric);
            all.check().map_err(|why| Failure::problem(QF_INVALID, &why.problem()))?;
            task.contract.utility = Some(all);
            Ok(())
        })
    }
}

/// Fixed service C: `service_ns` of CPU time in every period, without feedback. 0, the default, means a budget found
/// by feedback. At most `x` of every `y` periods may pass without the service (0 and 1: none). Needs the mechanism
/// ext. Call it after qf_set_task_period.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_service(task: *mut qf_session, service_ns: u64, x: u32, y: u32) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            let window = Window::new(x.into(), y.into()).map_err(|why| Failure::problem(QF_INVALID, &why.problem()))?;
            task.contract.window = (window != Window::NONE).then_some(window);
            task.contract.service = (service_ns > 0).then(|| Nanos::new(service_ns));
            task.contract = task.contract.clone().settled();
            Ok(())
        })
    }
}

/// Static reservation: `cpus` of one CPU in every server period, without feedback, on every mechanism. 0, the
/// default, means a budget found by feedback. Cannot be combined with qf_set_service.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_fixed(task: *mut qf_session, cpus: f64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            let fixed = share("the fixed share", cpus)?;
            task.contract.fixed = (fixed > Share::ZERO).then_some(fixed);
            Ok(())
        })
    }
}

/// `events`: pending events and wake-ups of the task favour it. `work_conserving`: the task also receives CPU time
/// beyond its service, before best effort. Both need the mechanism ext.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_favour(task: *mut qf_session, events: qf_bool, work_conserving: qf_bool) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            (task.contract.favour_events, task.contract.work_conserving) =
                (events.is_true(), work_conserving.is_true());
            Ok(())
        })
    }
}

/// Reclaiming, the rule at the end of the budget: "hard" (wait for the next server period), "soft" (continue with a
/// deadline one server period later), "grub" (the default: the budget lasts longer while other servers sleep) or
/// "iris" (idle time brings the next budget forward). "soft" and "iris" need the mechanism ext; "soft" also sets the
/// server period to the task period.
///
/// # Safety
/// `task` is a live handle, `kind` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_reclaiming(task: *mut qf_session, kind: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            let kind = named(text("the kind of reclaiming", kind)?)?;
            task.contract = task.contract.clone().reclaimed_as(kind);
            Ok(())
        })
    }
}

/// Place where budgets are decided: "user" (the daemon) or "kernel". "kernel" needs the mechanism ext.
///
/// # Safety
/// `task` is a live handle, `place` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_control_place(task: *mut qf_session, place: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.contract.controller = named(text("where budgets are decided", place)?)?;
            Ok(())
        })
    }
}

/// Treatment of jobs whose deadline passed while an earlier job ran late: skip them (true), or run them back to back
/// (false, the default).
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_skip_late(task: *mut qf_session, skip: qf_bool) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        set(task, |task| {
            task.late = if skip.is_true() { LatePolicy::Skip } else { LatePolicy::CatchUp };
            Ok(())
        })
    }
}
