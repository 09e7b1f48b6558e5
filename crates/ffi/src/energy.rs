//! Energy of a task.

use qfabric_client::Session;

use crate::session::{qf_session, run};
use crate::status::{Failure, QF_STATE, put_unless_null, qf_status};

/// What saves energy for a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_energy_saving {
    /// The clock that the reservations of this host need, as a part of the highest one.
    pub clock_part: f64,
    /// Number of the task's threads that may ask for no higher clock.
    pub clamped: u32,
    /// 1 if the clocks of the CPUs are limited to this part, else 0.
    pub limited: u32,
    /// Number of things that this host lacks for it; `qfabric energy status` and `qfabric doctor` name them.
    pub missing: u32,
}

/// Holds the deadlines at the lowest clock that suffices, from now until qf_end. Needs a daemon; the task runs on in any
/// case. `saving` may be null.
///
/// # Safety
/// `task` is a live, started handle; `saving` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_save_energy(task: *mut qf_session, saving: *mut qf_energy_saving) -> qf_status {
    let save = |session: &mut Session| {
        let Some(now) = session.save_energy()? else {
            return Err(Failure::new(QF_STATE, "the task has no daemon, which sets clocks; start it with qf_init"));
        };
        let answer = qf_energy_saving {
            clock_part: now.clock_part,
            clamped: u32::try_from(now.clamped).unwrap_or(u32::MAX),
            limited: now.limited.into(),
            missing: u32::try_from(now.missing.len()).unwrap_or(u32::MAX),
        };
        // SAFETY: the caller guarantees it.
        unsafe { put_unless_null(saving, answer) };
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { run(task, save) }
}

/// A checkpoint in the code of the current job, of whose work the part `done` (0 to 1) is done. If the task saves
/// energy (qf_save_energy) and the rest of the job no longer fits into the time until its deadline, the clock rises
/// until the job ends, at most until the deadline. `levels` (0 to 10; more count as 10) asks for so many levels of the
/// clock more, for a job that is harder than the ones before. Never blocks. QF_INVALID: `done` is no number from 0 to 1.
///
/// # Safety
/// `task` is a live, started handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_checkpoint(task: *mut qf_session, done: f64, levels: u8) -> qf_status {
    let check = |session: &mut Session| {
        if !(0.0..=1.0).contains(&done) {
            return Err(Failure::invalid(format!("done is {done}; use a part of the job from 0 to 1")));
        }
        session.checkpoint(done, levels);
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { run(task, check) }
}
