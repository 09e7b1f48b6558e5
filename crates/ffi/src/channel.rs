//! Q-channels (000 §2.2 and §4, 001 §3): register, create, open, subscribe, submit, poll, install filters.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

use qfabric_client::channel::{
    Channel, Channels, Decision, Direction, Event, Filter, FilterScope, Registration, Sink, SinkOptions, Source,
    SourceOptions, Spec, Submission,
};
use qfabric_client::{Client, Instant};

use crate::ecalls::{bytes, give, optional, take_back};
use crate::status::{Failure, borrow, put, put_unless_null, qf_bool, qf_status, settle, text};
use crate::transcoders::Shown;

/// A connection for channels. Everything opened with it ends when it ends.
pub struct qf_channels(Channels);

/// An open channel.
pub struct qf_channel(Channel);

/// A source of events of a channel.
pub struct qf_source(pub(crate) Source);

/// A sink of events of a channel.
pub struct qf_sink(Sink);

/// An application's membership of a group.
pub struct qf_registration(Registration);

/// Range of one metric that an application can use: an entry of the paper's `struct qos_node`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_qos {
    /// Name of the metric, such as "frame_rate".
    pub metric: *const c_char,
    /// Smallest useful value.
    pub min: i64,
    /// Largest useful value.
    pub max: i64,
}

/// An event at a sink. Valid until the handler returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_event {
    /// Number of the event at its source, from 1.
    pub number: u64,
    /// Time of submission, in CLOCK_MONOTONIC of this host.
    pub sent_ns: u64,
    /// Time until which the event is useful, in CLOCK_MONOTONIC of this host; 0: no deadline.
    pub deadline_ns: u64,
    /// Bytes of the event.
    pub data: *const c_void,
    /// Size of the event in bytes.
    pub size: usize,
    /// Number of the source on its host.
    pub source: u32,
    /// Number of the event type.
    pub event_type: u16,
    /// Priority, 0 to 7.
    pub priority: u8,
}

/// Counts for a submitted event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_sent {
    /// Number of the event at its source, from 1.
    pub number: u64,
    /// Sinks on other hosts to which the event was sent.
    pub remote: u32,
    /// Sinks on this host that received the event.
    pub local: u32,
    /// Sinks for which a filter blocked the event.
    pub filtered: u32,
    /// Sinks that were too slow, on a channel that drops events, and sinks on hosts that the event could not reach
    /// before its deadline.
    pub dropped: u32,
}

/// Called by qf_channels_poll, in its thread, for each event. `host` is the name of the source's host. A call of
/// qf_channels_poll inside the handler runs only the handlers of other sinks.
pub type qf_event_handler = Option<extern "C" fn(data: *mut c_void, host: *const c_char, event: *const qf_event)>;

/// Decision of a resource manager about a channel in which the application has a source or a sink. Valid until the
/// handler returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_decided {
    /// Name of the channel.
    pub channel: *const c_char,
    /// Attribute that was decided: "app.rate_milli" is thousandths of an event per second.
    pub attribute: *const c_char,
    /// Host whose sinks the decision is for, or the application.
    pub subject: *const c_char,
    /// Decided value; 0: stopped.
    pub amount: i64,
    /// False: the resource manager no longer decides the attribute, and `amount` has no meaning.
    pub holds: qf_bool,
}

/// Called by qf_channels_poll, in its thread, for each decision.
pub type qf_decided_handler = Option<extern "C" fn(data: *mut c_void, decided: *const qf_decided)>;

pub(crate) struct Data(pub(crate) *mut c_void);

// SAFETY: the pointer is only passed to the C function it came with, by one polling or submitting thread at a time.
unsafe impl Send for Data {}

/// Connects for channels: at $QFABRIC_SOCKET, or at the default sockets. Free `*channels` with qf_channels_free.
///
/// # Safety
/// `channels` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_connect(channels: *mut *mut qf_channels) -> qf_status {
    let connected = Client::connect().and_then(|client| Channels::connect(&client)).map_err(Failure::from);
    if let Ok(connected) = &connected {
        // Without a handler, unread decisions would keep the descriptor readable forever.
        connected.on_decided(|_| {});
    }
    // SAFETY: the caller guarantees it.
    settle(connected.and_then(|connected| unsafe { give(channels, qf_channels(connected)) }))
}

/// Closes the connection after the application frees everything that it made with the connection. Null is allowed.
///
/// # Safety
/// `channels` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_free(channels: *mut qf_channels) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(channels) });
}

/// Registers the application with a group: the paper's qfabric_config(). `qos` points to `count` ranges of quality.
///
/// # Safety
/// `channels` is a live handle, the names zero-terminated strings, `qos` points to `count` entries, `registration` to
/// writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_register(
    channels: *mut qf_channels,
    application_id: *const c_char,
    group_id: *const c_char,
    qos: *const qf_qos,
    count: usize,
    registration: *mut *mut qf_registration,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let register = || unsafe {
        let entries = match (qos.is_null(), count) {
            (_, 0) => &[],
            (true, _) => {
                return Err(Failure::invalid("the array of ranges is a null pointer; pass `count` entries, or 0"));
            }
            (false, _) => std::slice::from_raw_parts(qos, count),
        };
        let range = |range: &qf_qos| Ok((text("a metric", range.metric)?, range.min, range.max));
        let ranges = entries.iter().map(range).collect::<Result<Vec<_>, Failure>>()?;
        let (application, group) = (text("application_id", application_id)?, text("group_id", group_id)?);
        give(registration, qf_registration(borrow(channels)?.0.register(application, group, &ranges)?))
    };
    settle(register())
}

/// Reports a number to the policies on this host, and on the hosts that feed the channel with the group's name.
/// `attribute` is "app.show_need", "app.position", or another name that begins with "app.".
///
/// # Safety
/// `registration` is a live handle, `attribute` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_registration_report(
    registration: *mut qf_registration,
    attribute: *const c_char,
    value: i64,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let report = || unsafe {
        borrow(registration)?.0.report(text("attribute", attribute)?, value)?;
        Ok(())
    };
    settle(report())
}

/// Leaves the group and frees the handle. Null is allowed.
///
/// # Safety
/// `registration` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_registration_free(registration: *mut qf_registration) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(registration) });
}

/// Creates a channel. `formats` has C structure declarations of its events, or is null.
///
/// # Safety
/// `channels` is a live handle, `name` a zero-terminated string, `formats` null or one, `channel` points to writable
/// memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_create(
    channels: *mut qf_channels,
    name: *const c_char,
    formats: *const c_char,
    channel: *mut *mut qf_channel,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let create = || unsafe {
        let formats = optional("the formats", formats)?.unwrap_or_default();
        let made = borrow(channels)?.0.create(text("the name", name)?, &Spec::of(&formats))?;
        give(channel, qf_channel(made))
    };
    settle(create())
}

/// Opens a channel that a host holds: "NAME", or "quality:NAME" for its hidden Q-channel.
///
/// # Safety
/// `channels` is a live handle, `name` a zero-terminated string, `channel` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_open(
    channels: *mut qf_channels,
    name: *const c_char,
    channel: *mut *mut qf_channel,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let open = || unsafe { give(channel, qf_channel(borrow(channels)?.0.open(text("the name", name)?)?)) };
    settle(open())
}

/// Closes a channel and frees the handle. Null is allowed.
///
/// # Safety
/// `channel` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_free(channel: *mut qf_channel) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(channel) });
}

/// Joins the channel as a source.
///
/// # Safety
/// `channel` is a live handle, `source` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_source_subscribe(
    channel: *mut qf_channel,
    source: *mut *mut qf_source,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let join = || unsafe { give(source, qf_source(borrow(channel)?.0.source_subscribe(&SourceOptions::default())?)) };
    settle(join())
}

/// Leaves the channel and frees the handle. Null is allowed.
///
/// # Safety
/// `source` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_source_free(source: *mut qf_source) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(source) });
}

/// Joins the channel as a sink; qf_channels_poll calls `handler` with `data` for each event.
///
/// # Safety
/// `channel` is a live handle; `data` has the type that the handler expects, stays valid until qf_sink_free, and may
/// be used from any polling thread; `sink` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_sink_subscribe(
    channel: *mut qf_channel,
    handler: qf_event_handler,
    data: *mut c_void,
    sink: *mut *mut qf_sink,
) -> qf_status {
    let Some(handler) = handler else {
        return settle(Err(Failure::invalid("the handler is a null pointer")));
    };
    let data = Data(data);
    let handle = move |event: &Event<'_>| {
        // Captures the whole `Data`, which is Send, instead of the pointer inside it.
        let data = &data;
        let host = std::ffi::CString::new(event.host).unwrap_or_default();
        let shown = Shown::new(shown(event), &event.attributes);
        handler(data.0, host.as_ptr(), shown.event());
    };
    // SAFETY: the caller guarantees that the pointers are null or live.
    let join = || unsafe { give(sink, qf_sink(borrow(channel)?.0.sink_subscribe(&SinkOptions::default(), handle)?)) };
    settle(join())
}

fn shown(event: &Event<'_>) -> qf_event {
    qf_event {
        number: event.number,
        sent_ns: event.sent_ns,
        deadline_ns: event.deadline_ns,
        data: event.payload.as_ptr().cast(),
        size: event.payload.len(),
        source: event.source,
        event_type: event.event_type,
        priority: event.priority,
    }
}

/// Leaves the channel and frees the handle. Null is allowed. If another thread runs the sink's handler, this call
/// waits until the handler returns; afterwards the handler is not called again. Inside the handler itself it does not
/// wait; the running call is the last one.
///
/// # Safety
/// `sink` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sink_free(sink: *mut qf_sink) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(sink) });
}

/// The event that the arguments of a submitting function describe.
///
/// # Safety
/// `data` points to `size` bytes that are readable as long as the event is in use.
unsafe fn submission<'a>(
    event_type: u16,
    data: *const c_void,
    size: usize,
    deadline_ns: u64,
) -> Result<Submission<'a>, Failure> {
    let deadline = (deadline_ns != 0).then(|| Instant::new(deadline_ns));
    // SAFETY: the caller guarantees it.
    let payload = unsafe { bytes(data, size)? };
    Ok(Submission { event_type, deadline, payload, ..Submission::default() })
}

/// Submits an event of `size` bytes; `deadline_ns` is in CLOCK_MONOTONIC, 0 for none. If `sent` is null, the call
/// does not wait for the daemon; otherwise it waits for the counts of this event.
///
/// # Safety
/// `source` is a live handle, `data` points to `size` readable bytes, `sent` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_submit(
    source: *mut qf_source,
    event_type: u16,
    data: *const c_void,
    size: usize,
    deadline_ns: u64,
    sent: *mut qf_sent,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let submit = || unsafe {
        let event = submission(event_type, data, size, deadline_ns)?;
        let source = &borrow(source)?.0;
        match sent.is_null() {
            true => Ok(source.submit(&event)?),
            false => {
                let answer = source.submit_and_wait(&event)?;
                let (remote, local) = (answer.remote, answer.local);
                let (filtered, dropped) = (answer.filtered, answer.dropped);
                put(
                    "the pointer to the counts",
                    sent,
                    qf_sent { number: answer.number, remote, local, filtered, dropped },
                )
            }
        }
    };
    settle(submit())
}

/// Submits an event of `size` bytes without waiting for its answer. While a slow sink holds the channel up, the daemon
/// keeps the event, and later events of the source wait behind it. At most 256 events, or 192 KiB, of the connection are
/// without an answer; the call waits at most `patience_ns` for room and then returns QF_REFUSED. `deadline_ns` is in
/// CLOCK_MONOTONIC, 0 for none. Call qf_source_drain before qf_source_free: events that still wait are lost with the
/// source.
///
/// # Safety
/// `source` is a live handle, `data` points to `size` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_submit_queued(
    source: *mut qf_source,
    event_type: u16,
    data: *const c_void,
    size: usize,
    deadline_ns: u64,
    patience_ns: u64,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let submit = || unsafe {
        let event = submission(event_type, data, size, deadline_ns)?;
        Ok(borrow(source)?.0.submit_queued(&event, Duration::from_nanos(patience_ns))?)
    };
    settle(submit())
}

/// Waits until all events of qf_channel_submit_queued have gone to the channel or were refused, at most `patience_ns`.
/// `*drained` is false if some still wait then.
///
/// # Safety
/// `source` is a live handle, `drained` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_source_drain(source: *mut qf_source, patience_ns: u64, drained: *mut bool) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let drain = || unsafe { put("drained", drained, borrow(source)?.0.drain(Duration::from_nanos(patience_ns))?) };
    settle(drain())
}

/// Waits at most `timeout_ns` for events, and calls the handlers. `*handled` is the number of events handled;
/// `handled` may be null. QF_REFUSED, once for each sink: it has ended because its channel was closed or the access list
/// changed; qf_last_error says why. The other sinks go on.
///
/// # Safety
/// `channels` is a live handle, `handled` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_poll(
    channels: *mut qf_channels,
    timeout_ns: u64,
    handled: *mut usize,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let poll = || unsafe {
        // A clone, because a handler may free the handle.
        let connection = borrow(channels)?.0.clone();
        let polled = connection.poll(Duration::from_nanos(timeout_ns));
        // No function returns the other notices, which would keep the descriptor readable forever.
        connection.forget_notices()?;
        let count = polled?;
        put_unless_null(handled, count);
        Ok(())
    };
    settle(poll())
}

/// Sets the handler for decisions of resource managers; qf_channels_poll calls it with `data`. An encoder that sends
/// less loses no events, whereas pacing would hold events back. After this call returns, the previous handler is not
/// called again.
///
/// # Safety
/// `channels` is a live handle; `data` has the type that the handler expects, stays valid until qf_channels_free or
/// the next handler, and may be used from any polling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_on_decided(
    channels: *mut qf_channels,
    handler: qf_decided_handler,
    data: *mut c_void,
) -> qf_status {
    let Some(handler) = handler else {
        return settle(Err(Failure::invalid("the handler is a null pointer")));
    };
    let data = Data(data);
    let handle = move |decided: &Decision<'_>| {
        // Captures the whole `Data`, which is Send, instead of the pointer inside it.
        let data = &data;
        let texts = [decided.channel, decided.attribute, decided.subject];
        let [channel, attribute, subject] = texts.map(|text| std::ffi::CString::new(text).unwrap_or_default());
        let shown = qf_decided {
            channel: channel.as_ptr(),
            attribute: attribute.as_ptr(),
            subject: subject.as_ptr(),
            amount: decided.amount.unwrap_or(0),
            holds: decided.amount.is_some().into(),
        };
        handler(data.0, &shown);
    };
    // SAFETY: the caller guarantees that the pointers are null or live.
    let listen = || unsafe {
        borrow(channels)?.0.on_decided(handle);
        Ok(())
    };
    settle(listen())
}

/// File descriptor that is readable while events wait for qf_channels_poll; -1 if `channels` is null. Do not close
/// it: it belongs to the library.
///
/// # Safety
/// `channels` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_fd(channels: *const qf_channels) -> c_int {
    // SAFETY: the caller guarantees that the handle is null or live.
    unsafe { channels.as_ref() }.map_or(-1, |channels| channels.0.fd().as_raw_fd())
}

/// Sets a Q-attribute of a sink; OUT-filters at all sources can read it.
///
/// # Safety
/// `sink` is a live handle, `name` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sink_set_attribute(sink: *mut qf_sink, name: *const c_char, value: i64) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let set = || unsafe { Ok(borrow(sink)?.0.set_attribute(text("the name", name)?, Some(value))?) };
    settle(set())
}

/// Installs a filter in E-code, or replaces the filter of that name between two events. `out` false: an IN-filter,
/// for arriving events; `out` true: an OUT-filter, for submitted events. The filter is installed on this host, or, if
/// `everywhere` is true, on all hosts that hold the channel and allow it.
///
/// # Safety
/// `channel` is a live handle, `name` and `code` are zero-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_install_filter(
    channel: *mut qf_channel,
    out: qf_bool,
    name: *const c_char,
    code: *const c_char,
    everywhere: qf_bool,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let install = || unsafe {
        let code = text("the code", code)?.to_owned();
        let filter = Filter { code, to: place(everywhere), ..Filter::default() };
        all_agree(borrow(channel)?.0.install(direction(out), text("the name", name)?, &filter)?)
    };
    settle(install())
}

/// Changes a parameter of a filter, which the filter reads with get_attribute. The next event sees the new value.
///
/// # Safety
/// `channel` is a live handle, `name` and `parameter` are zero-terminated strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_set_parameter(
    channel: *mut qf_channel,
    out: qf_bool,
    name: *const c_char,
    parameter: *const c_char,
    value: i64,
    everywhere: qf_bool,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let set = || unsafe {
        let (name, parameter) = (text("the name", name)?, text("the parameter", parameter)?);
        all_agree(borrow(channel)?.0.set_parameter(direction(out), name, parameter, value, place(everywhere))?)
    };
    settle(set())
}

fn direction(out: qf_bool) -> Direction {
    if out.is_true() { Direction::Out } else { Direction::In }
}

fn place(everywhere: qf_bool) -> FilterScope {
    if everywhere.is_true() { FilterScope::All } else { FilterScope::Here }
}

fn all_agree(installed: qfabric_client::channel::Installed) -> Result<(), Failure> {
    let refused = installed.hosts.into_iter().find_map(|answer| Some((answer.host, answer.refused?)));
    match refused {
        Some((host, why)) => Err(Failure::new(crate::status::QF_REFUSED, format!("{host}: {why}"))),
        None => Ok(()),
    }
}
