//! The I/O event delivery module (003 §5.2), in place of `select()`.

use std::ffi::c_int;
use std::time::Duration;

use qfabric_client::ecalls::Sockets;

use crate::ecalls::{give, qf_ecalls, take_back};
use crate::status::{Failure, borrow, put, qf_status, settle};

/// The I/O event delivery module of a connection.
pub struct qf_sockets(Sockets);

/// The I/O module of a connection: which sockets are active, without a system call. `*sockets` is to be given to
/// qf_sockets_free.
///
/// # Safety
/// `session` is a live handle, `sockets` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_open(session: *mut qf_ecalls, sockets: *mut *mut qf_sockets) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    settle(
        unsafe { borrow(session) }.and_then(|session| unsafe { give(sockets, qf_sockets(session.session.sockets()?)) }),
    )
}

/// Events of the socket `fd` are wanted from now on; look at it once, for what came before.
///
/// # Safety
/// `sockets` is a live handle, `fd` an open descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_add(sockets: *mut qf_sockets, fd: c_int) -> qf_status {
    if fd < 0 {
        return settle(Err(Failure::invalid(format!("{fd} is no descriptor"))));
    }
    // SAFETY: null or live, and open, by the caller's promise.
    settle(unsafe {
        let fd = std::os::fd::BorrowedFd::borrow_raw(fd);
        borrow(sockets).and_then(|sockets| Ok(sockets.0.add(fd)?))
    })
}

/// Events of the socket `fd` are not wanted any more. Call it before closing it.
///
/// # Safety
/// `sockets` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_remove(sockets: *const qf_sockets, fd: c_int) {
    // SAFETY: null or live, by the caller's promise.
    if let (Some(sockets), Ok(fd)) = (unsafe { sockets.as_ref() }, u32::try_from(fd)) {
        sockets.0.forget(fd);
    }
}

/// The active sockets up to descriptor `highest` into `fds`; their number. Those beyond `room` stay active.
///
/// # Safety
/// `sockets` is null or a live handle, `fds` points to `room` writable ints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_active(
    sockets: *const qf_sockets,
    highest: c_int,
    fds: *mut c_int,
    room: usize,
) -> usize {
    // SAFETY: null or live, by the caller's promise.
    let (Some(sockets), Ok(highest), false) = (unsafe { sockets.as_ref() }, u32::try_from(highest), fds.is_null())
    else {
        return 0;
    };
    let mut count = 0;
    sockets.0.for_each_active(highest, |fd| match count < room {
        true => {
            // SAFETY: below `room`, writable by the caller's promise.
            unsafe { fds.add(count).write(fd as c_int) };
            count += 1;
        }
        false => sockets.0.page().keep(fd),
    });
    count
}

/// Sleeps until a socket up to descriptor `highest` is active, or `timeout_ns` is over; `*active` says which.
///
/// # Safety
/// `sockets` is a live handle, `active` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_wait(
    sockets: *mut qf_sockets,
    highest: c_int,
    timeout_ns: u64,
    active: *mut bool,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let wait = || unsafe {
        let highest = u32::try_from(highest).map_err(|_| Failure::invalid(format!("{highest} is no descriptor")))?;
        let found = borrow(sockets)?.0.wait(highest, Duration::from_nanos(timeout_ns))?;
        put("the answer's place", active, found)
    };
    settle(wait())
}

/// Ends the use of the module. Null is fine.
///
/// # Safety
/// `sockets` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_free(sockets: *mut qf_sockets) {
    // SAFETY: passed on.
    drop(unsafe { take_back(sockets) });
}
