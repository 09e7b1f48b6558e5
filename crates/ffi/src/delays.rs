//! Delays of a program's own messages renew the stored profile of delays (QualMan §5.1.2).

use std::ffi::c_char;

use qfabric_client::{BitRate, Bytes, ClientError, DelayRecorder, Nanos};

use crate::ecalls::{give, take_back};
use crate::status::{Exclusive, Failure, borrow, put_unless_null, qf_bool, qf_status, settle, text};

/// Renews a stored profile of delays by the messages of one stream. Any thread may use it, one at a time.
pub struct qf_delays(Exclusive<DelayRecorder>);

/// Reads the profile in `file`, which `qfabric net profile` makes and names. `message_bytes` is the size of
/// the stream's largest message, `rate_bps` the stream's granted rate with headers, in bits per second.
/// QF_INVALID: there is no profile. Free `*delays` with qf_delays_free.
///
/// # Safety
/// `file` is a zero-terminated string, `delays` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_delays_open(
    file: *const c_char,
    message_bytes: u64,
    rate_bps: u64,
    delays: *mut *mut qf_delays,
) -> qf_status {
    let open = || {
        // SAFETY: the caller guarantees it.
        let file = unsafe { text("the file of the profile", file) }?;
        let made = DelayRecorder::open(file, Bytes::new(message_bytes), BitRate::new(rate_bps))?;
        // SAFETY: the caller guarantees it.
        unsafe { give(delays, qf_delays(Exclusive::new(made))) }
    };
    settle(open())
}

/// Runs `act` on the recorder.
///
/// # Safety
/// `delays` is null or a live handle.
unsafe fn change<A>(
    delays: *const qf_delays,
    act: impl FnOnce(&mut DelayRecorder) -> Result<A, ClientError>,
) -> Result<A, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(delays) }.and_then(|delays| delays.0.with(|recorder| Ok(act(recorder)?)))
}

/// Records a message by `act`, and answers whether the profile was written.
///
/// # Safety
/// `delays` is null or a live handle, `written` is null or points to writable memory.
unsafe fn record(
    delays: *const qf_delays,
    written: *mut qf_bool,
    act: impl FnOnce(&mut DelayRecorder) -> Result<bool, ClientError>,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { change(delays, act).map(|answer| put_unless_null(written, answer.into())) })
}

/// States that a message was acknowledged as a whole, `round_trip_ns` after its first byte was sent.
/// `*written` says whether the profile was written, which happens after each 100 messages; `written` may be
/// null. Messages below three quarters of the largest size do not count.
///
/// # Safety
/// `delays` is a live handle, `written` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_delays_acknowledged(
    delays: *const qf_delays,
    bytes: u64,
    round_trip_ns: u64,
    written: *mut qf_bool,
) -> qf_status {
    let act = |recorder: &mut DelayRecorder| recorder.acknowledged(Bytes::new(bytes), Nanos::new(round_trip_ns));
    // SAFETY: the caller guarantees it.
    unsafe { record(delays, written, act) }
}

/// States that a message was not acknowledged in time. `written` is as in qf_delays_acknowledged.
///
/// # Safety
/// `delays` is a live handle, `written` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_delays_lost(delays: *const qf_delays, bytes: u64, written: *mut qf_bool) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { record(delays, written, |recorder| recorder.lost(Bytes::new(bytes))) }
}

/// States the shortest recent round trip of the program's own small packets: the part of the delay that the
/// network causes. It replaces the one of the profile. 0 (not measured yet) changes nothing.
///
/// # Safety
/// `delays` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_delays_shortest_round_trip(delays: *const qf_delays, round_trip_ns: u64) -> qf_status {
    let act = |recorder: &mut DelayRecorder| {
        recorder.shortest_round_trip(Nanos::new(round_trip_ns));
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { change(delays, act) })
}

/// States that the link grants the stream another rate now. Earlier delays do not count for it.
///
/// # Safety
/// `delays` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_delays_change_rate(delays: *const qf_delays, rate_bps: u64) -> qf_status {
    let act = |recorder: &mut DelayRecorder| {
        recorder.change_rate(BitRate::new(rate_bps));
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    settle(unsafe { change(delays, act) })
}

/// Frees the handle. Messages since the profile was last written are forgotten. Null is allowed.
///
/// # Safety
/// `delays` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_delays_free(delays: *mut qf_delays) {
    // SAFETY: as the caller guarantees.
    drop(unsafe { take_back(delays) });
}
