//! Services of an application: register, raise events, call.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use qfabric_client::Nanos;
use qfabric_client::ecalls::OwnService;

use crate::ecalls::{bytes, give, optional, qf_ecalls, take_back};
use crate::status::{Failure, borrow, put, qf_bool, qf_status, settle, text};

/// A service that this application registered.
pub struct qf_service(OwnService);

/// Announces a service: the paper's register_service. `format` has the C declarations of the event's structure. Free
/// `*service` with qf_unregister_service.
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
    // SAFETY: the caller guarantees that the pointers are null or live.
    let register = || unsafe {
        let session = borrow(session)?;
        let about = optional("the description", about)?.unwrap_or_default();
        let (name, format) = (text("the name", name)?, text("the format", format)?);
        give(service, qf_service(session.session.register_service(name, &about, format, false)?))
    };
    settle(register())
}

/// Raises an event for the subscriber `pid`, or for all subscribers (-1). The event is dropped if it cannot be
/// delivered within `deadline_us` microseconds (0: no deadline). One system call that does not block. `cpu` asks the
/// CPU scheduler to favour the subscriber's server.
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
    // SAFETY: the caller guarantees that the pointers are null or live.
    let raise = || unsafe {
        let (service, data) = (borrow(service)?, bytes(data, size)?);
        Ok(service.0.raise_event(pid, data, Nanos::from_micros(deadline_us), cpu.is_true())?)
    };
    settle(raise())
}

/// Ends a service and frees the handle. Null is allowed.
///
/// # Safety
/// `service` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_unregister_service(service: *mut qf_service) -> qf_status {
    // SAFETY: the caller guarantees it.
    let ended = unsafe { take_back(service) }.map(|service| service.0.unregister());
    settle(ended.unwrap_or(Ok(())).map_err(Failure::from))
}

/// The generic call: sends a request to the owner of a service and waits at most `timeout_ns` for the answer. Copies
/// at most `room` bytes of the answer into `answer`; `*length` is the full length in bytes.
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
    // SAFETY: null or live, as the caller guarantees; `answer` has room for the `room` bytes that are copied at most.
    let call = || unsafe {
        let session = borrow(session)?;
        let (service, data) = (text("the service's name", service)?, bytes(data, size)?);
        let reply = session.session.call(service, data, Duration::from_nanos(timeout_ns))?;
        put("the pointer to the length", length, reply.len())?;
        match answer.is_null() && room > 0 {
            true => Err(Failure::invalid("the answer buffer is a null pointer; pass a buffer, or `room` 0")),
            false => {
                std::ptr::copy_nonoverlapping(reply.as_ptr(), answer.cast::<u8>(), room.min(reply.len()));
                Ok(())
            }
        }
    };
    settle(call())
}
