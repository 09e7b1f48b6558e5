//! Media over METP: the communication service of QualMan (§6.4). A connection, its control and its end.
//! `metp_open` opens it, `metp_message` sends and receives, `metp_event` tells what happened.

use std::ffi::c_char;
use std::time::Duration;

use qfabric_carrier::{ClientConnection, Connection, End, Error, Mode, resolve};
use qfabric_client::Client;
use qfabric_types::api::contracts::JointId;
use qfabric_types::{BitRate, Bytes, Nanos};

use crate::ecalls::{optional, take_back};
use crate::joint::identity;
use crate::status::{Failure, borrow, put, put_unless_null, qf_bool, qf_status, settle, text};

/// A connection, and the client that opened it. Any thread may use it, several at the same time.
pub struct qf_metp(pub(crate) Role);

pub(crate) enum Role {
    Client(ClientConnection),
    Server(Connection),
}

/// How a connection ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum qf_metp_end {
    /// Both sides finished, and each message has an outcome.
    QF_METP_FINISHED = 0,
    /// This side closed it.
    QF_METP_CLOSED = 1,
    /// The other side closed it.
    QF_METP_CLOSED_BY_PEER = 2,
    /// Nothing arrived from the other side for 10 s.
    QF_METP_PEER_SILENT = 3,
    /// This side failed.
    QF_METP_FAILED = 4,
}

/// Counts of a connection since its begin.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct qf_metp_statistics {
    /// Messages that this side accepted for sending.
    pub messages: u64,
    /// Of these, messages whose bytes all arrived.
    pub delivered: u64,
    /// Of these, messages that were dropped before their first byte, because they would have been late.
    pub dropped: u64,
    /// Of these, messages whose deadline passed while they were sent.
    pub expired: u64,
    /// Parts that were sent again.
    pub retransmissions: u64,
    /// Messages that this side received.
    pub received: u64,
    /// Of these, messages that were complete by their deadline.
    pub in_time: u64,
    /// Of these, messages with missing parts.
    pub with_holes: u64,
    /// Messages of which nothing arrived.
    pub skipped: u64,
    /// Median and 99th percentile of the delay of complete messages.
    pub delay_p50_ns: u64,
    pub delay_p99_ns: u64,
    /// Shortest round trip.
    pub min_rtt_ns: u64,
    /// Rate at which this side sends now, in bits per second.
    pub rate_bps: u64,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        if let Error::Daemon(error) = error {
            return Failure::from(*error);
        }
        let status = match &error {
            Error::Ended(_) | Error::Forked { .. } => qf_status::QF_STATE,
            // QF_REFUSED is the full queue, after which a program may try again.
            Error::Refused(problem) if problem.code == "finished" => qf_status::QF_STATE,
            Error::Option { .. } | Error::Message(_) | Error::Address { .. } | Error::Realm(_) | Error::Profile(_) => {
                qf_status::QF_INVALID
            }
            Error::Refused(_) | Error::Stranger { .. } => qf_status::QF_REFUSED,
            _ => qf_status::QF_BROKEN,
        };
        Failure::problem(status, &error.problem())
    }
}

impl qf_metp {
    pub(crate) fn connection(&self) -> &Connection {
        match &self.0 {
            Role::Client(client) => client,
            Role::Server(connection) => connection,
        }
    }
}

pub(crate) fn mode(is_partially_reliable: bool) -> Mode {
    if is_partially_reliable { Mode::PartiallyReliable } else { Mode::TotallyReliable }
}

/// Runs `act` on a connection.
///
/// # Safety
/// `metp` is null or a live handle.
pub(crate) unsafe fn act(metp: *const qf_metp, act: impl FnOnce(&Connection) -> Result<(), Failure>) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { borrow(metp) }.and_then(|metp| act(metp.connection())))
}

/// Switches the mode of the messages that are sent from now on, while messages flow.
///
/// # Safety
/// `metp` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_set_partially_reliable(metp: *const qf_metp, on: qf_bool) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { act(metp, |connection| Ok(connection.set_mode(mode(on.is_true()))?)) }
}

/// Changes the rate at which this side wants to send, in bits per second.
///
/// # Safety
/// `metp` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_set_rate(metp: *const qf_metp, rate_bps: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { act(metp, |connection| Ok(connection.set_rate(BitRate::new(rate_bps))?)) }
}

/// Moves a connection that this side opened to another address of the service, while messages flow: attaches a carrier
/// there, selects it and removes the others. `local` may be null.
///
/// # Safety
/// `metp` is a live handle, `address` a zero-terminated string, `local` null or one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_replace_carrier(
    metp: *const qf_metp,
    address: *const c_char,
    local: *const c_char,
    within_ns: u64,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let replace = || unsafe {
        let peer = resolve(text("address", address)?)?;
        let local = optional("local", local)?.map(|local| resolve(&local)).transpose()?;
        let Role::Client(client) = &borrow(metp)?.0 else {
            return Err(Failure::invalid("the other side opened this connection; it can replace the carrier"));
        };
        client.replace(local, peer, Duration::from_nanos(within_ns))?;
        Ok(())
    };
    settle(replace())
}

/// Changes the own address of a connection that this side opened to `local` ("ADDRESS:PORT", port 0: any free port),
/// while messages flow; the other side follows. `carrier` is 0 until qf_metp_replace_carrier makes another one, whose
/// number an event tells.
///
/// # Safety
/// `metp` is a live handle, `local` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_rebind(metp: *const qf_metp, carrier: u32, local: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { act(metp, |connection| Ok(connection.rebind(carrier, resolve(text("local", local)?)?)?)) }
}

/// Waits until each message that was sent has arrived or was given up. Returns QF_BROKEN if the time is over.
///
/// # Safety
/// `metp` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_flush(metp: *const qf_metp, within_ns: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { act(metp, |connection| Ok(connection.flush(Duration::from_nanos(within_ns))?)) }
}

/// This side sends no more messages; what is queued still arrives.
///
/// # Safety
/// `metp` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_finish(metp: *const qf_metp) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { act(metp, |connection| Ok(connection.finish()?)) }
}

/// Waits for the end of a connection. Returns QF_BROKEN if it goes on.
///
/// # Safety
/// `metp` is a live handle, `end` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_wait_for_end(
    metp: *const qf_metp,
    within_ns: u64,
    end: *mut qf_metp_end,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        act(metp, |connection| {
            let found = match connection.wait_for_end(Duration::from_nanos(within_ns))? {
                End::Finished => qf_metp_end::QF_METP_FINISHED,
                End::Closed => qf_metp_end::QF_METP_CLOSED,
                End::ClosedByPeer => qf_metp_end::QF_METP_CLOSED_BY_PEER,
                End::PeerSilent => qf_metp_end::QF_METP_PEER_SILENT,
                End::Failed(_) => qf_metp_end::QF_METP_FAILED,
            };
            put("end", end, found)
        })
    }
}

/// Reads the counts of a connection; after its end, the last ones.
///
/// # Safety
/// `metp` is a live handle, `statistics` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_read_statistics(
    metp: *const qf_metp,
    statistics: *mut qf_metp_statistics,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        act(metp, |connection| {
            let found = connection.statistics();
            let session = found.session;
            let counts = qf_metp_statistics {
                messages: session.messages,
                delivered: session.delivered,
                dropped: session.dropped.iter().sum(),
                expired: session.expired,
                retransmissions: session.retransmissions,
                received: session.received,
                in_time: session.in_time,
                with_holes: session.with_holes,
                skipped: session.skipped,
                delay_p50_ns: session.delay.p50.get(),
                delay_p99_ns: session.delay.p99.get(),
                min_rtt_ns: session.min_rtt.get(),
                rate_bps: found.rate.get(),
            };
            put("statistics", statistics, counts)
        })
    }
}

/// Closes a connection and frees the handle; messages under way are lost. Waits until the close has left this host, at
/// most 100 ms. Null is allowed.
///
/// # Safety
/// `metp` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_free(metp: *mut qf_metp) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(metp) });
}

/// Reserves `rate_bps` on an interface of this host for the packets of a connection, and sends at that rate without
/// congestion control while it is reserved. `period_ns` is the time between two frames. `*reserved_bps` is the reserved
/// rate; it may be null. The reservation ends with the connection.
///
/// # Safety
/// `metp` is a live handle, `interface` a zero-terminated string, `reserved_bps` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_reserve(
    metp: *const qf_metp,
    interface: *const c_char,
    rate_bps: u64,
    period_ns: u64,
    reserved_bps: *mut u64,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { reserve(metp, None, interface, (rate_bps, period_ns), reserved_bps) })
}

/// Like qf_metp_reserve, from the rate of a joint contract: `contract` is its identity, on any of its hosts. The
/// reservation ends with the contract.
///
/// # Safety
/// As for qf_metp_reserve; `contract` is a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_reserve_from(
    metp: *const qf_metp,
    contract: *const c_char,
    interface: *const c_char,
    rate_bps: u64,
    period_ns: u64,
    reserved_bps: *mut u64,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    let contract = unsafe { identity(contract) };
    // SAFETY: the caller guarantees it.
    let reserved = contract
        .and_then(|contract| unsafe { reserve(metp, Some(&contract), interface, (rate_bps, period_ns), reserved_bps) });
    settle(reserved)
}

/// Reserves a rate in bits per second with a period in nanoseconds.
///
/// # Safety
/// As for [`qf_metp_reserve`].
unsafe fn reserve(
    metp: *const qf_metp,
    contract: Option<&JointId>,
    interface: *const c_char,
    (rate, period): (u64, u64),
    reserved_bps: *mut u64,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let (connection, interface) = unsafe { (borrow(metp)?.connection(), text("interface", interface)?) };
    let (rate, period) = (BitRate::new(rate), Nanos::new(period));
    let rate = connection.reserve(&Client::connect()?, interface, rate, period, contract)?;
    // SAFETY: the caller guarantees that it is null or writable.
    unsafe { put_unless_null(reserved_bps, rate.get()) };
    Ok(())
}

/// Keeps the stored profile of delays in `file`, which `qfabric net profile` made, fresh by the messages of this side, from
/// now on and while its rate is reserved. `sizes` are the `count` sizes of messages for which it is renewed, 1 to 16: a
/// message counts for the smallest size that holds it, if it has three quarters of it. QF_INVALID: there is no profile.
///
/// # Safety
/// `metp` is a live handle, `file` a zero-terminated string, `sizes` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_record_delays(
    metp: *const qf_metp,
    file: *const c_char,
    sizes: *const u64,
    count: usize,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let record = || unsafe {
        let (connection, file) = (borrow(metp)?.connection(), text("file", file)?);
        let sizes = match (sizes.is_null(), count) {
            (_, 0) => &[][..],
            (true, _) => return Err(Failure::invalid("sizes is a null pointer")),
            (false, _) => std::slice::from_raw_parts(sizes, count),
        };
        let sizes: Vec<Bytes> = sizes.iter().copied().map(Bytes::new).collect();
        Ok(connection.record_delays(file, &sizes)?)
    };
    settle(record())
}
