//! What a task is told while its jobs are short of budget, and of jobs that would be late.

use std::ffi::c_void;

use qfabric_client::OverloadChange;

use crate::session::{Told, outside, qf_session, run, with};
use crate::status::{QF_OK, put, qf_status, settle};

/// The requests of a task exceed what it is granted. Shares are fractions of one CPU, of the last job that was short; both
/// are 0 where there is no overload.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_overload {
    /// What its controller asked for.
    pub wanted: f64,
    /// What it was granted. granted / wanted is what its jobs should cost, relative to what they cost now.
    pub granted: f64,
}

impl From<qfabric_client::Overload> for qf_overload {
    fn from(overload: qfabric_client::Overload) -> qf_overload {
        qf_overload { wanted: overload.wanted.as_f64(), granted: overload.granted.as_f64() }
    }
}

/// Is called when an overload begins; with a null pointer when it ends.
pub type qf_overload_changed = Option<extern "C" fn(data: *mut c_void, overload: *const qf_overload)>;

/// `changed` is called when the task's requests begin to exceed what it is granted, so that it lowers its quality, and when
/// that ends: by qf_wait_for_next_job and qf_start_periodic, after the job's release. It begins when 8 of the last 16 jobs
/// asked for more than they were granted, and ends when no more than 2 did. Null: nobody is told.
///
/// # Safety
/// `task` is a live handle; `data` is whatever `changed` expects, as long as the task is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_on_overload(
    task: *mut qf_session,
    changed: qf_overload_changed,
    data: *mut c_void,
) -> qf_status {
    let install = |task: &mut crate::session::Task| {
        task.told = changed.map(|call| Told { call, data });
        Ok(())
    };
    // SAFETY: passed on.
    settle(unsafe { with(task, install) })
}

/// Calls it, if there is something new. Nothing of the task is borrowed meanwhile: it may be used in the call.
///
/// # Safety
/// `task` is null or a live handle.
pub(crate) unsafe fn tell_overload(task: *mut qf_session, waited: qf_status) {
    if waited != QF_OK {
        return;
    }
    // SAFETY: passed on.
    let Ok(Some(told)) = (unsafe { with(task, |task| Ok(task.told)) }) else { return };
    let mut change = None;
    let look = |session: &mut qfabric_client::Session| {
        change = session.overload_changed();
        Ok(())
    };
    // SAFETY: passed on.
    unsafe { run(task, look) };
    let Some(change) = change else { return };
    let begins = match change {
        OverloadChange::Begins(overload) => Some(qf_overload::from(overload)),
        OverloadChange::Ends => None,
    };
    let shown = begins.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the calls before this one have succeeded, so the handle is live.
    unsafe { outside(task, || (told.call)(told.data, shown)) };
}

/// The overload now; no system call.
///
/// # Safety
/// `task` is a live handle, `overload` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_get_overload(task: *mut qf_session, overload: *mut qf_overload) -> qf_status {
    let read = |session: &mut qfabric_client::Session| {
        let now = session.overload().map(qf_overload::from).unwrap_or_default();
        // SAFETY: passed on.
        unsafe { put("the overload", overload, now) }
    };
    // SAFETY: passed on.
    unsafe { run(task, read) }
}

/// By how much the current job would end late if it began now and had a CPU to itself, by what the daemon predicts of its
/// cost; 0: it can be in time; -1: nothing is predicted.
///
/// # Safety
/// `task` is a live handle, `late_ns` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_get_predicted_lateness(task: *mut qf_session, late_ns: *mut i64) -> qf_status {
    let read = |session: &mut qfabric_client::Session| {
        let late = session.predicted_lateness();
        let late = late.map_or(-1, |late| i64::try_from(late.get()).unwrap_or(i64::MAX));
        // SAFETY: passed on.
        unsafe { put("the lateness", late_ns, late) }
    };
    // SAFETY: passed on.
    unsafe { run(task, read) }
}

/// Leaves the current job out, in place of qf_end_cycle.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_skip_job(task: *mut qf_session) -> qf_status {
    let skip = |session: &mut qfabric_client::Session| {
        session.skip();
        Ok(())
    };
    // SAFETY: passed on.
    unsafe { run(task, skip) }
}
