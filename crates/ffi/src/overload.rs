//! Overload of a task: callback, query, predicted lateness, skipped jobs.

use std::ffi::c_void;

use qfabric_client::OverloadChange;

use crate::session::{OverloadCallback, outside, qf_session, run, with};
use crate::status::{QF_OK, put, qf_status, settle};

/// Overload: the task requests more than it is granted. Shares are fractions of one CPU, from the last short job.
/// Both are 0 if there is no overload.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_overload {
    /// Bandwidth that the controller requested.
    pub wanted: f64,
    /// Bandwidth that was granted. granted / wanted is the target cost of a job, relative to its present cost.
    pub granted: f64,
}

impl From<qfabric_client::Overload> for qf_overload {
    fn from(overload: qfabric_client::Overload) -> qf_overload {
        qf_overload { wanted: overload.wanted.as_f64(), granted: overload.granted.as_f64() }
    }
}

/// Called when an overload begins, and with a null pointer when it ends.
pub type qf_overload_changed = Option<extern "C" fn(data: *mut c_void, overload: *const qf_overload)>;

/// Sets the callback `changed`, so that the task can lower its quality in an overload. An overload begins when at
/// least 8 of the last 16 jobs were short (requested more than was granted), and ends when at most 2 were.
/// qf_wait_for_next_job and qf_start_periodic call `changed` after the job's release. Null removes the callback.
///
/// # Safety
/// `task` is a live handle; `data` has the type that `changed` expects, and stays valid while the task is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_on_overload(
    task: *mut qf_session,
    changed: qf_overload_changed,
    data: *mut c_void,
) -> qf_status {
    let install = |task: &mut crate::session::Task| {
        task.on_overload = changed.map(|call| OverloadCallback { call, data });
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { with(task, install) })
}

/// Calls the callback if the overload began or ended. The task is not borrowed meanwhile: the callback may use it.
///
/// # Safety
/// `task` is null or a live handle.
pub(crate) unsafe fn report_overload(task: *mut qf_session, waited: qf_status) {
    if waited != QF_OK {
        return;
    }
    // SAFETY: the caller guarantees it.
    let Ok(Some(callback)) = (unsafe { with(task, |task| Ok(task.on_overload)) }) else { return };
    let mut change = None;
    let read = |session: &mut qfabric_client::Session| {
        change = session.overload_changed();
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { run(task, read) };
    let Some(change) = change else { return };
    let begins = match change {
        OverloadChange::Begins(overload) => Some(qf_overload::from(overload)),
        OverloadChange::Ends => None,
    };
    let shown = begins.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the calls before this one have succeeded, so the handle is live.
    unsafe { outside(task, || (callback.call)(callback.data, shown)) };
}

/// Reads the present overload. Makes no system call.
///
/// # Safety
/// `task` is a live handle, `overload` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_get_overload(task: *mut qf_session, overload: *mut qf_overload) -> qf_status {
    let read = |session: &mut qfabric_client::Session| {
        let now = session.overload().map(qf_overload::from).unwrap_or_default();
        // SAFETY: the caller guarantees it.
        unsafe { put("the overload", overload, now) }
    };
    // SAFETY: the caller guarantees it.
    unsafe { run(task, read) }
}

/// Predicted lateness in nanoseconds: how late the current job would end if it began now, with the cost that the daemon
/// predicts, and slowed down as its late jobs were. 0: in time; -1: there is no prediction.
///
/// # Safety
/// `task` is a live handle, `late_ns` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_get_predicted_lateness(task: *mut qf_session, late_ns: *mut i64) -> qf_status {
    let read = |session: &mut qfabric_client::Session| {
        let late = session.predicted_lateness();
        let late = late.map_or(-1, |late| i64::try_from(late.get()).unwrap_or(i64::MAX));
        // SAFETY: the caller guarantees it.
        unsafe { put("the lateness", late_ns, late) }
    };
    // SAFETY: the caller guarantees it.
    unsafe { run(task, read) }
}

/// Skips the current job; call it in place of qf_end_cycle.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_skip_job(task: *mut qf_session) -> qf_status {
    let skip = |session: &mut qfabric_client::Session| {
        session.skip();
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { run(task, skip) }
}
