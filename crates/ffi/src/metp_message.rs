//! Media over METP: messages that are sent, and messages that arrived.

use std::ffi::c_void;
use std::time::Duration;

use qfabric_carrier::{Error, FrameKind, Message};

use crate::ecalls::{bytes, give, take_back};
use crate::metp::qf_metp;
use crate::status::{Failure, borrow, put, put_unless_null, qf_status, settle};

/// A message that arrived.
pub struct qf_metp_message(Message);

/// Kind of a frame. When frames would be late, B frames are dropped first, then P frames; the others only if they would
/// be late themselves, I frames never.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum qf_frame {
    /// A picture that is coded alone.
    QF_FRAME_I = 0,
    /// A picture that is predicted from an earlier one.
    QF_FRAME_P = 1,
    /// A picture on which no other one depends.
    QF_FRAME_B = 2,
    /// A block of sound.
    QF_FRAME_AUDIO = 3,
    /// Anything else.
    QF_FRAME_OTHER = 4,
}

/// Sends a message; `kind` is a qf_frame. In partially reliable mode, `deadline_ns` is the time until its last byte has
/// arrived (0: the default of the options). Waits up to `within_ns` while the queue is full, then returns QF_REFUSED;
/// after qf_metp_finish it returns QF_STATE. The library copies the data. `number` may be null.
///
/// # Safety
/// `metp` is a live handle, `data` points to `size` readable bytes, `number` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_send(
    metp: *const qf_metp,
    kind: u32,
    data: *const c_void,
    size: usize,
    deadline_ns: u64,
    within_ns: u64,
    number: *mut u64,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let send = || unsafe {
        let unknown = || Failure::invalid(format!("no kind of frame {kind}; use QF_FRAME_I to QF_FRAME_OTHER"));
        let kind = *FrameKind::ALL.get(kind as usize).ok_or_else(unknown)?;
        let deadline = (deadline_ns > 0).then(|| Duration::from_nanos(deadline_ns));
        let data = bytes(data, size)?.to_vec();
        let sent = borrow(metp)?.connection().send(kind, data, deadline, Duration::from_nanos(within_ns));
        let full = |error: Error| match error {
            Error::TimeOut { .. } => Failure::problem(qf_status::QF_REFUSED, &error.problem()),
            error => error.into(),
        };
        put_unless_null(number, sent.map_err(full)?);
        Ok(())
    };
    settle(send())
}

/// Waits for the next message; `*message` is null if none came. Returns QF_STATE after the last one. Free it with
/// qf_metp_message_free.
///
/// # Safety
/// `metp` is a live handle, `message` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_receive(
    metp: *const qf_metp,
    within_ns: u64,
    message: *mut *mut qf_metp_message,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let receive = || unsafe {
        match borrow(metp)?.connection().receive(Duration::from_nanos(within_ns)) {
            Ok(received) => give(message, qf_metp_message(received)),
            Err(Error::TimeOut { .. }) => put("the pointer for the handle", message, std::ptr::null_mut()),
            Err(error) => Err(error.into()),
        }
    };
    settle(receive())
}

/// The bytes of a message; missing parts are zero. Valid until the message is freed. A null pointer has no bytes: the
/// result is null and the size 0. `size` may be null.
///
/// # Safety
/// `message` is null or a live handle, `size` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_message_data(message: *const qf_metp_message, size: *mut usize) -> *const c_void {
    // SAFETY: the caller guarantees it.
    let data = unsafe { borrow(message) }.ok().map(|message| message.0.data.as_slice());
    // SAFETY: null or writable, as the caller guarantees.
    unsafe { put_unless_null(size, data.map_or(0, <[u8]>::len)) };
    data.map_or(std::ptr::null(), |data| data.as_ptr().cast())
}

/// The number of a message in its direction, from 0.
///
/// # Safety
/// `message` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_message_number(message: *const qf_metp_message) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(message) }.map_or(0, |message| message.0.number)
}

/// The kind of a message; QF_FRAME_OTHER for a null pointer.
///
/// # Safety
/// `message` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_message_kind(message: *const qf_metp_message) -> qf_frame {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(message) }.map_or(qf_frame::QF_FRAME_OTHER, |message| match message.0.kind {
        FrameKind::I => qf_frame::QF_FRAME_I,
        FrameKind::P => qf_frame::QF_FRAME_P,
        FrameKind::B => qf_frame::QF_FRAME_B,
        FrameKind::Audio => qf_frame::QF_FRAME_AUDIO,
        FrameKind::Other => qf_frame::QF_FRAME_OTHER,
    })
}

/// How much later than its deadline a message was delivered, in nanoseconds; 0: in time.
///
/// # Safety
/// `message` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_message_late_by(message: *const qf_metp_message) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(message) }.map_or(0, |message| message.0.late_by.get())
}

/// The missing part of a message with this index: the bytes from `*begin` to before `*end`. Returns false if there are
/// fewer missing parts; a complete message has none.
///
/// # Safety
/// `message` is null or a live handle, `begin` and `end` point to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_message_hole(
    message: *const qf_metp_message,
    index: usize,
    begin: *mut usize,
    end: *mut usize,
) -> bool {
    // SAFETY: the caller guarantees that the pointers are null or live.
    unsafe {
        let hole = borrow(message).ok().and_then(|message| message.0.holes.get(index));
        hole.is_some_and(|hole| put("begin", begin, hole.start).and_then(|()| put("end", end, hole.end)).is_ok())
    }
}

/// Frees a message. Null is allowed.
///
/// # Safety
/// `message` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_message_free(message: *mut qf_metp_message) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(message) });
}
