//! The I/O event delivery module (003 §5.2), a replacement for `select()`.

use std::ffi::c_int;
use std::time::Duration;

use qfabric_client::ecalls::Sockets;

use crate::ecalls::{give, qf_ecalls, take_back};
use crate::status::{Failure, borrow, put, qf_status, settle};

/// The I/O event delivery module of a connection.
pub struct qf_sockets(Sockets);

/// Opens the I/O event delivery module of a connection: it reports active sockets without a system call. Free
/// `*sockets` with qf_sockets_free.
///
/// # Safety
/// `session` is a live handle, `sockets` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_open(session: *mut qf_ecalls, sockets: *mut *mut qf_sockets) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    settle(
        unsafe { borrow(session) }.and_then(|session| unsafe { give(sockets, qf_sockets(session.session.sockets()?)) }),
    )
}

/// Watches the socket `fd`. The module marks it active once, because it does not report events before this call.
///
/// # Safety
/// `sockets` is a live handle, `fd` an open descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_add(sockets: *mut qf_sockets, fd: c_int) -> qf_status {
    if fd < 0 {
        return settle(Err(Failure::invalid(format!("{fd} is not a file descriptor; pass an open socket"))));
    }
    // SAFETY: null or live, and open, as the caller guarantees.
    settle(unsafe {
        let fd = std::os::fd::BorrowedFd::borrow_raw(fd);
        borrow(sockets).and_then(|sockets| Ok(sockets.0.add(fd)?))
    })
}

/// Ends the watch of the socket `fd`. Call it before close().
///
/// # Safety
/// `sockets` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_remove(sockets: *const qf_sockets, fd: c_int) {
    // SAFETY: the caller guarantees that the handle is null or live.
    if let (Some(sockets), Ok(fd)) = (unsafe { sockets.as_ref() }, u32::try_from(fd)) {
        sockets.0.forget(fd);
    }
}

/// Writes the active sockets up to descriptor `highest` into `fds` and returns their number. If there are more than
/// `room`, the rest stays active for the next call.
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
    // SAFETY: the caller guarantees that the handle is null or live.
    let (Some(sockets), Ok(highest), false) = (unsafe { sockets.as_ref() }, u32::try_from(highest), fds.is_null())
    else {
        return 0;
    };
    let mut count = 0;
    sockets.0.for_each_active(highest, |fd| match count < room {
        true => {
            // SAFETY: below `room`, writable as the caller guarantees.
            unsafe { fds.add(count).write(fd as c_int) };
            count += 1;
        }
        false => sockets.0.page().keep(fd),
    });
    count
}

/// Sleeps until a socket up to descriptor `highest` is active (`*active` is true) or `timeout_ns` is over (false).
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
    // SAFETY: the caller guarantees that the pointers are null or live.
    let wait = || unsafe {
        let highest = u32::try_from(highest).map_err(|_| {
            Failure::invalid(format!("{highest} is not a file descriptor; pass the highest descriptor, 0 or more"))
        })?;
        let found = borrow(sockets)?.0.wait(highest, Duration::from_nanos(timeout_ns))?;
        put("the result pointer", active, found)
    };
    settle(wait())
}

/// Closes the module and frees the handle. Null is allowed.
///
/// # Safety
/// `sockets` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sockets_free(sockets: *mut qf_sockets) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(sockets) });
}
