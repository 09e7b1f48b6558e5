//! Services of one's own: register, raise, call.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use qfabric_client::Nanos;
use qfabric_client::ecalls::OwnService;

use crate::ecalls::{bytes, give, optional, qf_ecalls, take_back};
use crate::status::{Failure, borrow, put, qf_bool, qf_status, settle, text};

/// A service of one's own.
pub struct qf_service(OwnService);

/// Announces a service: the paper's register_service. `format`: C declarations of the event's structure. `*service`
/// is to be given to qf_unregister_service.
///
/// # Safety
/// `session` is a live handle, texts are zero-terminated, `service` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_register_service(
    session: *mut qf_ecalls,
    name: *const c_char,
    about: *const c_char,
    format: *const c_char,
    service: *mut *mut qf_service,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let register = || unsafe {
        let session = borrow(session)?;
        let about = optional("what it tells", about)?.unwrap_or_default();
        let (name, format) = (text("the name", name)?, text("the format", format)?);
        give(service, qf_service(session.session.register_service(name, &about, format, false)?))
    };
    settle(register())
}

/// Raises an event: for the subscriber `pid`, or all (-1); dropped if it cannot be delivered within `deadline_us`
/// (0: never late). One system call that does not wait. `cpu` asks for the CPU scheduler's cooperation.
///
/// # Safety
/// `service` is a live handle, `data` points to `size` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_raise_event(
    service: *mut qf_service,
    pid: c_int,
    data: *const c_void,
    size: usize,
    deadline_us: u64,
    cpu: qf_bool,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let raise = || unsafe {
        let (service, data) = (borrow(service)?, bytes(data, size)?);
        Ok(service.0.raise_event(pid, data, Nanos::from_micros(deadline_us), cpu.is_true())?)
    };
    settle(raise())
}

/// Ends a service. Null is fine.
///
/// # Safety
/// `service` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_unregister_service(service: *mut qf_service) -> qf_status {
    // SAFETY: passed on.
    let ended = unsafe { take_back(service) }.map(|service| service.0.unregister());
    settle(ended.unwrap_or(Ok(())).map_err(Failure::from))
}

/// The generic call: asks the owner of a service, and waits for its answer, `timeout_ns` at most. What it answers is
/// copied into `answer` (`room` bytes at most); `*length` is what it has.
///
/// # Safety
/// `session` is a live handle, `service` a zero-terminated string, `data` has `size` readable and `answer` `room`
/// writable bytes, `length` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_call(
    session: *mut qf_ecalls,
    service: *const c_char,
    data: *const c_void,
    size: usize,
    timeout_ns: u64,
    answer: *mut c_void,
    room: usize,
    length: *mut usize,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; `answer` has room for the `room` bytes copied at most.
    let call = || unsafe {
        let session = borrow(session)?;
        let (service, data) = (text("the service's name", service)?, bytes(data, size)?);
        let told = session.session.call(service, data, Duration::from_nanos(timeout_ns))?;
        put("the length's place", length, told.len())?;
        match answer.is_null() && room > 0 {
            true => Err(Failure::invalid("the answer's place is a null pointer")),
            false => {
                std::ptr::copy_nonoverlapping(told.as_ptr(), answer.cast::<u8>(), room.min(told.len()));
                Ok(())
            }
        }
    };
    settle(call())
}
