//! Checks parameters before the kernel is called, and translates the kernel's refusals into errors.

use std::io;

use qfabric_types::{Nanos, Share, ThreadId};

use super::{ExtError, ServerSpec};
use crate::abi::{QF_PERIOD_MAX, qf_config};
use crate::cpus::CpuList;

/// Shortest and longest period.
pub(super) const PERIODS: (Nanos, Nanos) = (Nanos::from_micros(100), Nanos::new(QF_PERIOD_MAX as u64));
/// Shortest service that a timer can end.
pub(super) const SERVICE_MIN: Nanos = Nanos::from_micros(1);

pub(super) fn within(what: &'static str, value: Nanos, (low, high): (Nanos, Nanos)) -> Result<(), ExtError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let (value, limits) = (value.to_string(), format!("{low} to {high}"));
    Err(ExtError::OutOfRange { what, value, limits, fix: "choose a value in this range" })
}

pub(super) fn check(spec: &ServerSpec) -> Result<(), ExtError> {
    check_times(spec.period, spec.service)
}

pub(super) fn check_config(config: &qf_config) -> Result<(), ExtError> {
    check_times(Nanos::new(config.period_ns), Nanos::new(config.service_ns))
}

fn check_times(period: Nanos, service: Nanos) -> Result<(), ExtError> {
    within("period", period, PERIODS)?;
    if service > period {
        return Err(ExtError::ServiceOverPeriod { service, period });
    }
    within("service", service, (SERVICE_MIN, period))
}

/// Fails if `asked` does not fit beside the bandwidth that is booked on the CPU.
pub(super) fn room(asked: Share, booked: Share, cpu: u32) -> Result<(), ExtError> {
    if booked + asked <= Share::ONE {
        return Ok(());
    }
    let fix = "request less service or a longer period, allow losses by a window, or destroy other servers";
    Err(ExtError::NoRoom { asked, free: Share::ONE - booked, place: format!("CPU {cpu}"), fix })
}

pub(super) fn no_cpu(cpu: u32) -> ExtError {
    ExtError::NoCpu { cpu, online: CpuList::online().to_string() }
}

/// Translates a refusal of a BPF command.
pub(super) fn of(what: &str, error: &io::Error) -> ExtError {
    let errno = error.raw_os_error().unwrap_or(0);
    let (why, fix) = match errno {
        libc::ENOENT => ("the server no longer exists", "create it again"),
        libc::EBUSY => ("its slot is in use by another program", "load the scheduler again"),
        libc::EINVAL | libc::ERANGE | libc::EDOM => ("a value is outside the range of the scheduler", "report this"),
        libc::ENOSPC => ("too many events already wait", "raise fewer events, or give them deadlines"),
        libc::ENOMEM => ("the kernel has too little memory", "free some memory"),
        libc::EPERM => ("this process may not use BPF", "run it as root, or with CAP_BPF and CAP_PERFMON"),
        _ => ("the kernel refused without a known reason", "read the kernel log (dmesg)"),
    };
    ExtError::Refused { what: what.into(), errno, why: why.into(), fix: fix.into() }
}

pub(super) fn of_join(thread: ThreadId, cpu: u32, error: &io::Error) -> ExtError {
    match error.raw_os_error() {
        Some(libc::ESRCH) => ExtError::NoThread { thread },
        Some(libc::EXDEV) => {
            let mask = CpuList::allowed(thread.0).map(|m| m.to_string()).unwrap_or_default();
            ExtError::Affinity { thread, mask, cpu }
        }
        _ => of("move a thread", error),
    }
}
