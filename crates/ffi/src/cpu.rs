//! QualMan's shape (§6.4): probe, reserve, start, yield, free.

use qfabric_client::{Client, Cpu, Nanos};

use crate::contract::share;
use crate::ecalls::take_back;
use crate::status::{Exclusive, Failure, borrow, put, qf_status, settle};

/// The processor as QualMan's applications see it. Belongs to one thread.
pub struct qf_cpu(Exclusive<Cpu>);

/// A handle with nothing probed and nothing reserved, to be given to qf_cpu_free. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn qf_cpu_new() -> *mut qf_cpu {
    Box::into_raw(Box::new(qf_cpu(Exclusive::new(Cpu::new()))))
}

/// Runs `act` on the processor.
///
/// # Safety
/// `cpu` is null or a live handle.
unsafe fn with<A>(cpu: *mut qf_cpu, act: impl FnOnce(&mut Cpu) -> Result<A, Failure>) -> Result<A, Failure> {
    // SAFETY: passed on.
    unsafe { borrow(cpu) }?.0.with(act)
}

/// Runs what cannot fail.
///
/// # Safety
/// `cpu` is null or a live handle.
unsafe fn run(cpu: *mut qf_cpu, act: impl FnOnce(&mut Cpu)) -> qf_status {
    let act = |cpu: &mut Cpu| {
        act(cpu);
        Ok(())
    };
    // SAFETY: passed on.
    settle(unsafe { with(cpu, act) })
}

/// Starts measuring iterations that are `period_ns` apart, without a reservation.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_probe_on(cpu: *mut qf_cpu, period_ns: u64) -> qf_status {
    // SAFETY: passed on.
    unsafe { run(cpu, |cpu| cpu.probe_on(Nanos::new(period_ns))) }
}

/// Ends measuring; the mean computation time over the period goes into `*utilisation`.
///
/// # Safety
/// `cpu` is a live handle, `utilisation` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_probe_off(cpu: *mut qf_cpu, utilisation: *mut f64) -> qf_status {
    // SAFETY: passed on.
    let probed = unsafe { with(cpu, |cpu| Ok(cpu.probe_off().utilisation.as_f64())) };
    // SAFETY: passed on.
    settle(probed.and_then(|share| unsafe { put("the utilisation", utilisation, share) }))
}

/// Reserves `utilisation` of one CPU in every `period_ns`: for the calling thread if `pid` is the caller's
/// own, otherwise for the whole program `pid`.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_reserve(cpu: *mut qf_cpu, pid: i32, utilisation: f64, period_ns: u64) -> qf_status {
    let reserve = |cpu: &mut Cpu| {
        let utilisation = share("the utilisation", utilisation)?;
        Ok(cpu.reserve(&Client::connect()?, pid, utilisation, Nanos::new(period_ns))?)
    };
    // SAFETY: passed on.
    settle(unsafe { with(cpu, reserve) })
}

/// The first iteration begins now.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_start(cpu: *mut qf_cpu) -> qf_status {
    // SAFETY: passed on.
    unsafe { run(cpu, Cpu::start) }
}

/// Marks the end of an iteration and sleeps until the next one is due.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_yield(cpu: *mut qf_cpu) -> qf_status {
    // SAFETY: passed on.
    unsafe { run(cpu, Cpu::yield_now) }
}

/// Gives the reservation back.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_free_reserve(cpu: *mut qf_cpu) -> qf_status {
    // SAFETY: passed on.
    settle(unsafe { with(cpu, |cpu| Ok(cpu.free_reserve()?)) })
}

/// Gives the reservation back, if there is one, and frees the handle. Null is fine.
///
/// # Safety
/// `cpu` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_free(cpu: *mut qf_cpu) {
    // SAFETY: null or made by `qf_cpu_new` from a Box, and not used again by the caller's promise.
    drop(unsafe { take_back(cpu) });
}
