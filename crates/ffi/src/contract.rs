//! The contract in the making: everything that is set between init and start.

use std::ffi::c_char;
use std::str::FromStr;

use qfabric_client::{Class, Contract, Late, Nanos, Share, Window};

use crate::session::{Task, qf_session, with};
use crate::status::{Failure, Outcome, QF_STATE, qf_bool, qf_status, settle, text};

const STARTED: &str = "the task has been started; call qf_end first";

/// Runs `change` on a contract in the making.
///
/// # Safety
/// `handle` is null or a live handle.
pub(crate) unsafe fn set(handle: *mut qf_session, change: impl FnOnce(&mut Task) -> Outcome) -> qf_status {
    let change = |task: &mut Task| match task.is_running() {
        false => change(task),
        true => Err(Failure::new(QF_STATE, STARTED)),
    };
    // SAFETY: passed on.
    settle(unsafe { with(handle, change) })
}

fn named<T: FromStr<Err: ToString>>(name: &str) -> Result<T, Failure> {
    name.parse().map_err(|e: T::Err| Failure::invalid(e.to_string()))
}

/// What people call the task: 1 to 64 characters.
///
/// # Safety
/// `task` is a live handle, `name` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_name(task: *mut qf_session, name: *const c_char) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            task.contract.name = text("the name", name)?.to_owned();
            Ok(())
        })
    }
}

/// T: a job is released every `period_ns`, its deadline is the next release. Also chooses the server period.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_task_period(task: *mut qf_session, period_ns: u64) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            let fresh = Contract::new(&task.contract.name, Nanos::new(period_ns));
            (task.contract.period, task.contract.server_period) = (fresh.period, fresh.server_period);
            Ok(())
        })
    }
}

/// P: the period of the reservation; the task period must be a multiple of it.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_server_period(task: *mut qf_session, period_ns: u64) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            task.contract.server_period = Nanos::new(period_ns);
            Ok(())
        })
    }
}

/// Never ask for more than this fraction of one CPU.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_max_bandwidth(task: *mut qf_session, bandwidth: f64) -> qf_status {
    // SAFETY: passed on.
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

/// The class, "A", "B" or "C", and what is guaranteed to classes A and B (negative: derived by the daemon).
///
/// # Safety
/// `task` is a live handle, `name` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_class(task: *mut qf_session, name: *const c_char, guaranteed: f64) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            let class: Class = named(text("the class", name)?)?;
            let guaranteed = if guaranteed < 0.0 { None } else { Some(share("the guaranteed part", guaranteed)?) };
            (task.contract.class, task.contract.guaranteed) = (class, guaranteed);
            Ok(())
        })
    }
}

/// What class A recovers from (Theorem 3): back in the target within `jobs` jobs (h) after a deviation of up to
/// `deviation` task periods (Γ).
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_recovery(task: *mut qf_session, jobs: u32, deviation: f64) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            (task.contract.recovery_jobs, task.contract.deviation) = (jobs, deviation);
            Ok(())
        })
    }
}

/// The predictor: "ma:12", "mma:3,12", "ol:36,60", "pct:64,95" or "hint:24".
///
/// # Safety
/// `task` is a live handle, `spec` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_predictor(task: *mut qf_session, spec: *const c_char) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            task.contract.predictor = named(text("the predictor", spec)?)?;
            Ok(())
        })
    }
}

/// The point of the admissible interval the control law takes: "left", "middle", "right", "zero" or "cost".
///
/// # Safety
/// `task` is a live handle, `choice` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_controller(task: *mut qf_session, choice: *const c_char) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            task.contract.choice = named(text("the controller's choice", choice)?)?;
            Ok(())
        })
    }
}

/// The target interval, as fractions of the task period a job may end early and late.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_target(task: *mut qf_session, early: f64, late: f64) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            (task.contract.early, task.contract.late) = (early, late);
            Ok(())
        })
    }
}

/// Priority level under overload, 0 (last) to 9 (first), and weight inside it, 1 to 10000.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_priority(task: *mut qf_session, priority: u8, weight: u32) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            (task.contract.priority, task.contract.weight) = (priority, weight);
            Ok(())
        })
    }
}

/// C: this much CPU time in every period, without feedback; 0: as feedback finds out (the default). At most `x` of
/// every `y` periods may pass without it (0 and 1: none). Needs the mechanism ext. Call it after qf_set_task_period.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_service(task: *mut qf_session, service_ns: u64, x: u32, y: u32) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            let window = Window::new(x.into(), y.into()).map_err(|why| Failure::invalid(why.to_string()))?;
            task.contract.window = (window != Window::NONE).then_some(window);
            task.contract.service = (service_ns > 0).then(|| Nanos::new(service_ns));
            task.contract = task.contract.clone().settled();
            Ok(())
        })
    }
}

/// A static reservation: `cpus` of one CPU in every server period, without feedback, on every mechanism; 0: as
/// feedback finds out (the default). Not together with qf_set_service.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_fixed(task: *mut qf_session, cpus: f64) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            let fixed = share("the fixed share", cpus)?;
            task.contract.fixed = (fixed > Share::ZERO).then_some(fixed);
            Ok(())
        })
    }
}

/// Whether pending events and the task's wake-ups favour it, and whether it gets CPU time beyond its service before
/// best effort does. Needs the mechanism ext.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_favour(task: *mut qf_session, events: qf_bool, work_conserving: qf_bool) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            (task.contract.favour_events, task.contract.work_conserving) =
                (events.is_true(), work_conserving.is_true());
            Ok(())
        })
    }
}

/// What happens at the end of the budget: "hard" (wait for the next period), "soft" (go on with a deadline one period
/// later), "grub" (the default: the budget lasts longer while other servers sleep) or "iris" (idle time begins the next
/// period early). "soft" and "iris" need the mechanism ext; "soft" also makes the server's period the task's.
///
/// # Safety
/// `task` is a live handle, `kind` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_reclaiming(task: *mut qf_session, kind: *const c_char) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            let kind = named(text("the kind of reclaiming", kind)?)?;
            task.contract = task.contract.clone().reclaimed_as(kind);
            Ok(())
        })
    }
}

/// Where budgets are decided: "user" (the daemon) or "kernel". The latter needs the mechanism ext.
///
/// # Safety
/// `task` is a live handle, `place` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_control_place(task: *mut qf_session, place: *const c_char) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            task.contract.controller = named(text("where budgets are decided", place)?)?;
            Ok(())
        })
    }
}

/// Whether jobs whose deadline has passed while an earlier one ran late are left out (true), or run back to
/// back (false, the default).
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_set_skip_late(task: *mut qf_session, skip: qf_bool) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        set(task, |task| {
            task.late = if skip.is_true() { Late::Skip } else { Late::CatchUp };
            Ok(())
        })
    }
}
