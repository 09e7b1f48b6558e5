//! Profiles of trial executions, stored and found by a key (QualMan §3.4).

use std::ffi::c_char;

use qfabric_client::{InvalidProfileName, ProfileName, Profiles};

use crate::contract::set;
use crate::session::qf_session;
use crate::status::{Failure, QF_INVALID, put, qf_status, settle, text};
use crate::suggest::profile;

/// The user's profiles, and the name in them.
///
/// # Safety
/// `name` is null or a zero-terminated string.
pub(crate) unsafe fn keyed(name: *const c_char) -> Result<(Profiles, ProfileName), Failure> {
    // SAFETY: the caller guarantees it.
    let name = unsafe { text("the name of the profile", name) }?;
    let invalid = |error: InvalidProfileName| Failure::problem(QF_INVALID, &error.problem());
    let name = name.parse().map_err(invalid)?;
    Ok((Profiles::open()?, name))
}

/// Stores the computation times of `jobs` jobs under `name`, for the processor and the kernel of this host. `name` is a
/// program with the parameters on which the times depend, such as "player,fps=25,size=640x480". `hints` may be null.
/// Replaces an earlier profile with this key. `qfabric run --profile` and `qfabric contract` find it, too.
///
/// # Safety
/// `name` is a zero-terminated string, `costs_ns` and `hints` point to `jobs` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_profile_store(
    name: *const c_char,
    costs_ns: *const u64,
    hints: *const f64,
    jobs: usize,
) -> qf_status {
    let store = || {
        // SAFETY: the caller guarantees it.
        let ((profiles, name), profile) = unsafe { (keyed(name)?, profile(costs_ns, hints, jobs)?) };
        profiles.store(&name, &profile)?;
        Ok(())
    };
    settle(store())
}

/// Finds the profile with this key, for the processor and the kernel of this host: `*mean_ns` is its mean computation
/// time, `*jobs` its number of jobs. Both are 0 if there is none: probe the program then.
///
/// # Safety
/// `name` is a zero-terminated string, `mean_ns` and `jobs` point to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_profile_find(name: *const c_char, mean_ns: *mut u64, jobs: *mut usize) -> qf_status {
    let find = || {
        // SAFETY: the caller guarantees it.
        let (profiles, name) = unsafe { keyed(name) }?;
        let found = profiles.find(&name)?.unwrap_or_default();
        // SAFETY: the caller guarantees it.
        unsafe {
            put("the mean", mean_ns, found.mean().get())?;
            put("the number of jobs", jobs, found.costs.len())
        }
    };
    settle(find())
}

/// Adds the profile with this key to the contract, like qf_set_profile. Fails with QF_INVALID if there is none for these
/// parameters on this processor and kernel; the text names the keys that there are.
///
/// # Safety
/// `task` is a live handle, `name` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_use_profile(task: *mut qf_session, name: *const c_char) -> qf_status {
    let load = || {
        // SAFETY: the caller guarantees it.
        let (profiles, name) = unsafe { keyed(name) }?;
        Ok(profiles.load(&name)?)
    };
    match load() {
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
