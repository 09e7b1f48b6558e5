//! Translates the kernel's refusals into errors: the cause, and the next step of the user.

use std::io;
use std::path::Path;

use qfabric_types::api::Problem;
use qfabric_types::{Reservation, ThreadId};
use rustix::thread::CapabilitySet;

use crate::books::Limit;
use crate::cpus::CpuList;
use crate::hrtick::DEBUGFS;
use crate::journal::JournalError;
use crate::mechanism::ApplyError;
use crate::{capability, cgroup};

pub(crate) fn refusal(thread: ThreadId, reservation: Reservation, error: &io::Error) -> ApplyError {
    match error.raw_os_error() {
        Some(libc::EBUSY) => ApplyError::Busy { thread, asked: reservation.share() },
        Some(libc::EPERM) => no_right(thread),
        _ => denied(thread, error),
    }
}

/// EPERM has four causes, each with its own next step.
fn no_right(thread: ThreadId) -> ApplyError {
    let errno = libc::EPERM;
    if !capability::held(CapabilitySet::SYS_NICE) {
        let why = "this process lacks CAP_SYS_NICE in the initial user namespace".into();
        let fix =
            "run it as root, run setcap cap_sys_nice=ep on it, or set AmbientCapabilities=CAP_SYS_NICE in its unit";
        return ApplyError::Denied { thread, errno, why, fix: fix.into() };
    }
    if Limit::of_host(Path::new(DEBUGFS)) == Some(Limit::Units(0)) {
        let why = "kernel.sched_rt_runtime_us is 0, so the kernel grants no time to real-time threads".into();
        return ApplyError::Denied { thread, errno, why, fix: "run sysctl kernel.sched_rt_runtime_us=950000".into() };
    }
    let needed = cgroup::root_domain(thread.0);
    match CpuList::allowed(thread.0) {
        Some(mask) if !mask.contains_all(&needed) => ApplyError::Affinity { thread, mask, needed },
        Some(mask) => {
            let why = format!("although this process holds CAP_SYS_NICE and the thread may run on CPUs {mask}");
            let fix = "look for a seccomp filter, a container or a security module that forbids sched_setattr";
            ApplyError::Denied { thread, errno, why, fix: fix.into() }
        }
        None => ApplyError::Gone { thread },
    }
}

pub(crate) fn denied(thread: ThreadId, error: &io::Error) -> ApplyError {
    let errno = error.raw_os_error().unwrap_or(0);
    let (why, fix) = match errno {
        libc::ESRCH => return ApplyError::Gone { thread },
        libc::EPERM => return no_right(thread),
        libc::EINVAL => (
            format!("the kernel accepts only periods between {}", cgroup::period_range()),
            "choose another server period, or change kernel.sched_deadline_period_{min,max}_us",
        ),
        libc::ENOSYS => ("this kernel has no sched_setattr".to_owned(), "use Linux 3.14 or later"),
        _ => (error.to_string(), "see sched_setattr(2)"),
    };
    ApplyError::Denied { thread, errno, why, fix: fix.into() }
}

pub(crate) fn not_recorded(thread: ThreadId, error: &JournalError) -> ApplyError {
    let Problem { message, next_step: fix, .. } = error.problem();
    let why = format!("its state could not be recorded in the journal, so it was not changed: {message}");
    ApplyError::Denied { thread, errno: libc::EIO, why, fix }
}
