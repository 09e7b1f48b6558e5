//! Media over METP: the communication service of QualMan (§6.4), `ServerConnection` and `ClientConnection`.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::time::Duration;

use qfabric_carrier::{
    ClientConnection, Connection, End, Engine, Error, Event, FrameKind, Message, Mode, Options, Outcome, Revocation,
    ServerConnection, Target, Tls, resolve,
};
use qfabric_client::Client;
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes, Nanos};

use crate::ecalls::{bytes, give, optional, take_back};
use crate::status::{Failure, borrow, put, qf_bool, qf_status, settle, text};

/// A connection, and the client that opened it. Any thread may use it, several at the same time.
pub struct qf_metp(Role);

enum Role {
    Client(ClientConnection),
    Server(Connection),
}

/// A service that waits for clients. Any thread may use it.
pub struct qf_metp_server(ServerConnection);

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

/// Options of one end of a connection. Zero means the default, except for `tls`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_metp_options {
    /// Folder with ca.pem, HOST.pem, HOST.key and access.toml, as `qfabric channel issue` writes it.
    pub tls: *const c_char,
    /// Name of this host in its certificate; null: the host name of the machine.
    pub host: *const c_char,
    /// Name of the service; null: "metp".
    pub service: *const c_char,
    /// Rate at which this side wants to send, in bits per second with all headers; 0: 10 Mbit/s.
    pub rate_bps: u64,
    /// Size of the largest message in either direction; 0: 1 MiB.
    pub largest_message: u64,
    /// Deadline of messages that state none, in partially reliable mode; 0: none.
    pub send_time_ns: u64,
    /// Longest time from the first part of a message to its delivery, in partially reliable mode; 0: no limit.
    pub receive_time_ns: u64,
    /// Whether deadlines come first (partially reliable mode); otherwise every byte arrives.
    pub partially_reliable: bool,
    /// Whether each message has a QUIC stream of its own, instead of METP. For clients; a server follows its client.
    pub streams: bool,
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

/// What happened on a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum qf_metp_event_kind {
    /// Nothing within the time.
    #[default]
    QF_METP_EVENT_NONE = 0,
    /// The result of message `number` that this side sent; each accepted message has exactly one.
    QF_METP_EVENT_OUTCOME = 1,
    /// `count` messages from `number` on will not arrive.
    QF_METP_EVENT_SKIPPED = 2,
    /// From message `number` on, the other side sends in the other mode; `count` is 1 for deadlines first.
    QF_METP_EVENT_MODE_CHANGED = 3,
    /// The other side sends no more messages.
    QF_METP_EVENT_PEER_FINISHED = 4,
    /// Carrier `number` was attached.
    QF_METP_EVENT_CARRIER_ATTACHED = 5,
    /// Carrier `number` was lost.
    QF_METP_EVENT_CARRIER_LOST = 6,
    /// Sending at the granted rate stopped, for `reason`; congestion control decides from now on.
    QF_METP_EVENT_REVOKED = 7,
}

/// The result of a message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum qf_metp_outcome {
    /// All bytes arrived.
    #[default]
    QF_METP_OUTCOME_DELIVERED = 0,
    /// No byte was sent, because the message would have been late or made room.
    QF_METP_OUTCOME_DROPPED = 1,
    /// The deadline passed, and no byte is known to have arrived.
    QF_METP_OUTCOME_EXPIRED = 2,
    /// The deadline passed, and `count` bytes arrived.
    QF_METP_OUTCOME_PARTLY = 3,
    /// The connection ended first.
    QF_METP_OUTCOME_UNKNOWN = 4,
}

/// Why a granted rate was revoked.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum qf_metp_reason {
    /// The reservation ended.
    #[default]
    QF_METP_REASON_RESERVATION = 0,
    /// The delay grew, or stayed long, by `count` milliseconds.
    QF_METP_REASON_DELAY = 1,
    /// `count` percent of the bytes were lost.
    QF_METP_REASON_LOSS = 2,
}

/// An event of a connection. `kind` says which of the other members are used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct qf_metp_event {
    pub kind: qf_metp_event_kind,
    pub outcome: qf_metp_outcome,
    pub reason: qf_metp_reason,
    pub number: u64,
    pub count: u64,
}

impl From<Event> for qf_metp_event {
    fn from(event: Event) -> qf_metp_event {
        use qf_metp_event_kind::*;
        let of = |kind, number, count| qf_metp_event { kind, number, count, ..qf_metp_event::default() };
        match event {
            Event::Outcome { number, outcome, .. } => {
                let (outcome, count) = result(outcome);
                qf_metp_event { outcome, ..of(QF_METP_EVENT_OUTCOME, number, count) }
            }
            Event::Skipped { first, count } => of(QF_METP_EVENT_SKIPPED, first, count),
            Event::ModeChanged { mode, from } => {
                of(QF_METP_EVENT_MODE_CHANGED, from, u64::from(mode == Mode::PartiallyReliable))
            }
            Event::PeerFinished => of(QF_METP_EVENT_PEER_FINISHED, 0, 0),
            Event::CarrierAttached { carrier } => of(QF_METP_EVENT_CARRIER_ATTACHED, carrier.into(), 0),
            Event::CarrierLost { carrier, .. } => of(QF_METP_EVENT_CARRIER_LOST, carrier.into(), 0),
            Event::Revoked(why) => {
                let (reason, count) = match why {
                    Revocation::ReservationEnded => (qf_metp_reason::QF_METP_REASON_RESERVATION, 0),
                    Revocation::DelayGrows { by_ms } | Revocation::DelayStays { by_ms } => {
                        (qf_metp_reason::QF_METP_REASON_DELAY, by_ms)
                    }
                    Revocation::LossPersists { percent } => (qf_metp_reason::QF_METP_REASON_LOSS, percent),
                };
                qf_metp_event { reason, ..of(QF_METP_EVENT_REVOKED, 0, count) }
            }
        }
    }
}

/// A result, and the bytes that arrived of a message that arrived in part.
fn result(outcome: Outcome) -> (qf_metp_outcome, u64) {
    use qf_metp_outcome::*;
    match outcome {
        Outcome::Delivered => (QF_METP_OUTCOME_DELIVERED, 0),
        Outcome::Dropped(_) => (QF_METP_OUTCOME_DROPPED, 0),
        Outcome::Expired => (QF_METP_OUTCOME_EXPIRED, 0),
        Outcome::Partly { acknowledged } => (QF_METP_OUTCOME_PARTLY, acknowledged.get()),
        Outcome::Unknown => (QF_METP_OUTCOME_UNKNOWN, 0),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        if let Error::Daemon(error) = error {
            return Failure::from(*error);
        }
        let status = match &error {
            Error::Ended(_) => qf_status::QF_STATE,
            Error::Option { .. } | Error::Address { .. } | Error::Realm(_) => qf_status::QF_INVALID,
            Error::Refused(_) | Error::Stranger { .. } => qf_status::QF_REFUSED,
            _ => qf_status::QF_BROKEN,
        };
        Failure::new(status, error.problem())
    }
}

impl qf_metp {
    fn connection(&self) -> &Connection {
        match &self.0 {
            Role::Client(client) => client,
            Role::Server(connection) => connection,
        }
    }
}

/// The identity, the service and the options.
///
/// # Safety
/// `options` is null or live, with strings that are null or zero-terminated.
unsafe fn read(options: *const qf_metp_options) -> Result<(Tls, Name, Options), Failure> {
    // SAFETY: the caller guarantees it.
    let (options, folder, host, service) = unsafe {
        let options = borrow(options)?;
        let host = optional("host", options.host)?;
        (options, text("tls", options.tls)?, host, optional("service", options.service)?)
    };
    let name = |text: &str| text.parse::<Name>().map_err(|error| Failure::invalid(format!("{text:?}: {error}")));
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = name(&host.unwrap_or_else(own))?;
    let service = service.map_or_else(|| Ok(qfabric_carrier::default_service()), |service| name(&service))?;
    let folder = Path::new(folder);
    let tls = Tls::from_folder(folder, &host, &folder.join("access.toml")).map_err(Error::from)?;
    let base = Options::default();
    let time = |ns: u64| (ns > 0).then(|| Duration::from_nanos(ns));
    let options = Options {
        engine: if options.streams { Engine::Streams } else { Engine::Metp },
        mode: mode(options.partially_reliable),
        rate: if options.rate_bps == 0 { base.rate } else { BitRate::new(options.rate_bps) },
        largest_message: match options.largest_message {
            0 => base.largest_message,
            bytes => Bytes::new(bytes),
        },
        send_time: time(options.send_time_ns),
        receive_time: time(options.receive_time_ns),
        ..base
    };
    Ok((tls, service, options))
}

fn mode(is_partially_reliable: bool) -> Mode {
    if is_partially_reliable { Mode::PartiallyReliable } else { Mode::TotallyReliable }
}

/// Opens a connection to a service at "HOST:PORT". Both hosts prove their identity. Free `*metp` with qf_metp_free.
///
/// # Safety
/// `address` is a zero-terminated string, `options` points to options, `metp` to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_open(
    address: *const c_char,
    options: *const qf_metp_options,
    metp: *mut *mut qf_metp,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let open = || unsafe {
        let (tls, service, options) = read(options)?;
        let target = Target::new(text("address", address)?, service)?;
        give(metp, qf_metp(Role::Client(ClientConnection::open(target, tls, options)?)))
    };
    settle(open())
}

/// Registers a service that listens on "ADDRESS:PORT" (port 0: any free port). Free `*server` with qf_metp_server_free.
///
/// # Safety
/// `address` is a zero-terminated string, `options` points to options, `server` to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_register(
    address: *const c_char,
    options: *const qf_metp_options,
    server: *mut *mut qf_metp_server,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let register = || unsafe {
        let (tls, service, options) = read(options)?;
        let local = resolve(text("address", address)?)?;
        give(server, qf_metp_server(ServerConnection::register(service, local, tls, options)?))
    };
    settle(register())
}

/// The port on which a service listens; 0 for a null pointer.
///
/// # Safety
/// `server` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_server_port(server: *const qf_metp_server) -> u16 {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(server) }.map_or(0, |server| server.0.address().port())
}

/// Waits for the next client; `*metp` is null if none came. Free it with qf_metp_free.
///
/// # Safety
/// `server` is a live handle, `metp` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_accept(
    server: *const qf_metp_server,
    within_ns: u64,
    metp: *mut *mut qf_metp,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let accept = || unsafe {
        match borrow(server)?.0.accept(Duration::from_nanos(within_ns)) {
            Ok(connection) => give(metp, qf_metp(Role::Server(connection))),
            Err(Error::TimeOut { .. }) => put("the pointer for the handle", metp, std::ptr::null_mut()),
            Err(error) => Err(error.into()),
        }
    };
    settle(accept())
}

/// Ends a service. Connections that were accepted stay. Null is allowed.
///
/// # Safety
/// `server` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_server_free(server: *mut qf_metp_server) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(server) });
}

/// Sends a message; `kind` is a qf_frame. In partially reliable mode, `deadline_ns` is the time until its last byte has
/// arrived (0: the default of the options). Waits up to `within_ns` while the queue is full, then returns QF_REFUSED. The
/// library copies the data. `number` may be null.
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
            Error::TimeOut { .. } => Failure::new(qf_status::QF_REFUSED, error.problem()),
            error => error.into(),
        };
        let sent = sent.map_err(full)?;
        if number.is_null() { Ok(()) } else { put("number", number, sent) }
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

/// The bytes of a message; missing parts are zero. Valid until the message is freed. `size` may be null.
///
/// # Safety
/// `message` is null or a live handle, `size` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_message_data(message: *const qf_metp_message, size: *mut usize) -> *const c_void {
    // SAFETY: the caller guarantees it.
    let Ok(message) = (unsafe { borrow(message) }) else { return std::ptr::null() };
    if !size.is_null() {
        // SAFETY: not null, writable as the caller guarantees.
        unsafe { size.write(message.0.data.len()) };
    }
    message.0.data.as_ptr().cast()
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

/// Runs `act` on a connection.
///
/// # Safety
/// `metp` is null or a live handle.
unsafe fn act(metp: *const qf_metp, act: impl FnOnce(&Connection) -> Result<(), Failure>) -> qf_status {
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

/// Changes the own address of a connection to `local` ("ADDRESS:PORT", port 0: any free port), while messages flow; the
/// other side follows. `carrier` is 0 until qf_metp_replace_carrier makes another one, whose number an event tells.
///
/// # Safety
/// `metp` is a live handle, `local` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_rebind(metp: *const qf_metp, carrier: u32, local: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { act(metp, |connection| Ok(connection.rebind(carrier, resolve(text("local", local)?)?)?)) }
}

/// Waits for the next event of a connection. `event->kind` is QF_METP_EVENT_NONE if none came. Of events that nobody
/// takes, the connection keeps the last 1,024.
///
/// # Safety
/// `metp` is a live handle, `event` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_next_event(
    metp: *const qf_metp,
    within_ns: u64,
    event: *mut qf_metp_event,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        act(metp, |connection| {
            let found = match connection.event(Duration::from_nanos(within_ns)) {
                Ok(found) => found.into(),
                Err(Error::TimeOut { .. }) => qf_metp_event::default(),
                Err(error) => return Err(error.into()),
            };
            put("event", event, found)
        })
    }
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

/// Closes a connection and frees the handle; messages under way are lost. Null is allowed.
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
    // SAFETY: the caller guarantees that the pointers are null or live.
    let reserve = || unsafe {
        let (connection, interface) = (borrow(metp)?.connection(), text("interface", interface)?);
        let (rate, period) = (BitRate::new(rate_bps), Nanos::new(period_ns));
        let rate = connection.reserve(&Client::connect()?, interface, rate, period, None)?;
        if reserved_bps.is_null() { Ok(()) } else { put("reserved_bps", reserved_bps, rate.get()) }
    };
    settle(reserve())
}
