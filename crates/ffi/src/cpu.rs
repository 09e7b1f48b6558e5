//! The CPU interface of QualMan (§6.4): probe, reserve, start, yield, free.

use std::ffi::c_char;

use qfabric_client::{Client, Cpu, Nanos};

use crate::contract::share;
use crate::ecalls::take_back;
use crate::joint::identity;
use crate::profiles::keyed;
use crate::status::{Exclusive, Failure, borrow, put, qf_status, settle};

/// The CPU interface of QualMan. Belongs to one thread.
pub struct qf_cpu(Exclusive<Cpu>);

/// Returns a handle without measurement and reservation. Never null. Free it with qf_cpu_free.
#[unsafe(no_mangle)]
pub extern "C" fn qf_cpu_new() -> *mut qf_cpu {
    Box::into_raw(Box::new(qf_cpu(Exclusive::new(Cpu::new()))))
}

/// Runs `act` on the handle's value.
///
/// # Safety
/// `cpu` is null or a live handle.
unsafe fn with<A>(cpu: *mut qf_cpu, act: impl FnOnce(&mut Cpu) -> Result<A, Failure>) -> Result<A, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(cpu) }?.0.with(act)
}

/// Like [`with`], for an `act` that cannot fail.
///
/// # Safety
/// `cpu` is null or a live handle.
unsafe fn run(cpu: *mut qf_cpu, act: impl FnOnce(&mut Cpu)) -> qf_status {
    let act = |cpu: &mut Cpu| {
        act(cpu);
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { with(cpu, act) })
}

/// Starts to measure iterations with a period of `period_ns`, without a reservation.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_probe_on(cpu: *mut qf_cpu, period_ns: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { run(cpu, |cpu| cpu.probe_on(Nanos::new(period_ns))) }
}

/// Ends the measurement; `*utilisation` is the mean computation time divided by the period.
///
/// # Safety
/// `cpu` is a live handle, `utilisation` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_probe_off(cpu: *mut qf_cpu, utilisation: *mut f64) -> qf_status {
    // SAFETY: the caller guarantees it.
    let probed = unsafe { with(cpu, |cpu| Ok(cpu.probe_off().utilisation.as_f64())) };
    // SAFETY: the caller guarantees it.
    settle(probed.and_then(|share| unsafe { put("the utilisation", utilisation, share) }))
}

/// Like qf_cpu_probe_off. Also stores the computation times under `name`, as qf_profile_store does.
///
/// # Safety
/// `cpu` is a live handle, `name` a zero-terminated string, `utilisation` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_probe_store(cpu: *mut qf_cpu, name: *const c_char, utilisation: *mut f64) -> qf_status {
    let probe = |cpu: &mut Cpu| {
        // SAFETY: the caller guarantees it.
        let (profiles, name) = unsafe { keyed(name) }?;
        let probe = cpu.probe_off();
        profiles.store(&name, &probe.profile)?;
        Ok(probe.utilisation.as_f64())
    };
    // SAFETY: the caller guarantees it.
    let probed = unsafe { with(cpu, probe) };
    // SAFETY: the caller guarantees it.
    settle(probed.and_then(|share| unsafe { put("the utilisation", utilisation, share) }))
}

/// Reserves `utilisation` of one CPU in every `period_ns`: for the calling thread if `pid` is the caller's process,
/// otherwise for the whole program `pid`.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_reserve(cpu: *mut qf_cpu, pid: i32, utilisation: f64, period_ns: u64) -> qf_status {
    let reserve = |cpu: &mut Cpu| {
        let utilisation = share("the utilisation", utilisation)?;
        Ok(cpu.reserve(&Client::connect()?, pid, utilisation, Nanos::new(period_ns))?)
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { with(cpu, reserve) })
}

/// Like qf_cpu_reserve, from the share of a joint contract: `contract` is its identity, on any of its hosts. The part
/// beyond the contract comes from the free capacity.
///
/// # Safety
/// `cpu` is a live handle, `contract` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_reserve_from(
    cpu: *mut qf_cpu,
    contract: *const c_char,
    pid: i32,
    utilisation: f64,
    period_ns: u64,
) -> qf_status {
    let reserve = |cpu: &mut Cpu| {
        // SAFETY: the caller guarantees it.
        let contract = unsafe { identity(contract) }?;
        let utilisation = share("the utilisation", utilisation)?;
        Ok(cpu.reserve_from(&Client::connect()?, &contract, pid, utilisation, Nanos::new(period_ns))?)
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { with(cpu, reserve) })
}

/// Begins the first iteration now.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_start(cpu: *mut qf_cpu) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { run(cpu, Cpu::start) }
}

/// Marks the end of an iteration and sleeps until the release of the next one.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_yield(cpu: *mut qf_cpu) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { run(cpu, Cpu::yield_now) }
}

/// Ends the reservation.
///
/// # Safety
/// `cpu` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_free_reserve(cpu: *mut qf_cpu) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { with(cpu, |cpu| Ok(cpu.free_reserve()?)) })
}

/// Ends the reservation, if there is one, and frees the handle. Null is allowed.
///
/// # Safety
/// `cpu` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_cpu_free(cpu: *mut qf_cpu) {
    // SAFETY: null or made by `qf_cpu_new` from a Box, and not used again as the caller guarantees.
    drop(unsafe { take_back(cpu) });
}
