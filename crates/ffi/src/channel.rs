//! Q-channels (000 §2.2 and §4, 001 §3): register, create, open, subscribe, submit, poll, filters.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::Duration;

use qfabric_client::channel::{
    Channel, Channels, Decision, Direction, Event, Filter, FilterScope, Registration, Sink, SinkOptions, Source,
    SourceOptions, Spec, Submission,
};
use qfabric_client::{Client, Instant};

use crate::ecalls::{bytes, give, optional, take_back};
use crate::status::{Failure, borrow, put, qf_bool, qf_status, settle, text};

/// A connection for channels. What was opened with it ends with it.
pub struct qf_channels(Channels);

/// A channel that is open.
pub struct qf_channel(Channel);

/// A source of events.
pub struct qf_source(Source);

/// A sink of events.
pub struct qf_sink(Sink);

/// An application's membership of a group.
pub struct qf_registration(Registration);

/// What an application wants of one metric: an entry of the paper's `struct qos_node`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_qos {
    /// Such as "frame_rate".
    pub metric: *const c_char,
    /// Least that is of use.
    pub min: i64,
    /// Most that is of use.
    pub max: i64,
}

/// An event at a sink. Valid until the handler returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_event {
    /// Its number among the source's, from 1.
    pub number: u64,
    /// When it was submitted, CLOCK_MONOTONIC of this host.
    pub sent_ns: u64,
    /// When it is of no use any more; 0: never.
    pub deadline_ns: u64,
    /// Its bytes.
    pub data: *const c_void,
    /// How many.
    pub size: usize,
    /// The source's number on its host.
    pub source: u32,
    /// Number of its type.
    pub event_type: u16,
    /// 0 to 7.
    pub priority: u8,
}

/// What became of a submitted event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_sent {
    /// Its number among the source's, from 1.
    pub number: u64,
    /// Sinks on other hosts that it was sent to.
    pub remote: u32,
    /// Sinks on this host that it was given to.
    pub local: u32,
    /// Sinks that filters passed over.
    pub filtered: u32,
    /// Sinks that are too slow, where the channel's policy is to drop, or at hosts that it would not reach in time.
    pub dropped: u32,
}

/// Called for each event, by qf_channels_poll and in its thread; `host` is where the source is. Polling in it calls the
/// handlers of other sinks only.
pub type qf_event_handler = Option<extern "C" fn(data: *mut c_void, host: *const c_char, event: *const qf_event)>;

/// What a resource manager decided about a channel that the application has a source or a sink of. Valid until the
/// handler returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_decided {
    /// The channel.
    pub channel: *const c_char,
    /// Of what: "app.rate_milli" is thousandths of an event per second.
    pub attribute: *const c_char,
    /// For the sinks of which host, or for which application.
    pub subject: *const c_char,
    /// How much; 0: stopped.
    pub amount: i64,
    /// False: nobody decides it any more, and the amount means nothing.
    pub holds: bool,
}

/// Called for each decision, by qf_channels_poll and in its thread.
pub type qf_decided_handler = Option<extern "C" fn(data: *mut c_void, decided: *const qf_decided)>;

struct Data(*mut c_void);

// SAFETY: the pointer is only handed back to the C function it came with, by whichever thread polls, one at a time.
unsafe impl Send for Data {}

/// Connects for channels: $QFABRIC_SOCKET, or the usual places. `*channels` is to be given to qf_channels_free.
///
/// # Safety
/// `channels` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_connect(channels: *mut *mut qf_channels) -> qf_status {
    let connected = Client::connect().and_then(|client| Channels::connect(&client)).map_err(Failure::from);
    if let Ok(connected) = &connected {
        // Decisions that nobody asked for would make the descriptor readable for good.
        connected.on_decided(|_| {});
    }
    // SAFETY: passed on.
    settle(connected.and_then(|connected| unsafe { give(channels, qf_channels(connected)) }))
}

/// Ends the connection, once everything made with it is freed, too. Null is fine.
///
/// # Safety
/// `channels` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_free(channels: *mut qf_channels) {
    // SAFETY: passed on.
    drop(unsafe { take_back(channels) });
}

/// Registers the application with a group, as the paper's qfabric_config(); `count` ranges of quality at `qos`.
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
    // SAFETY: null or live, by the caller's promise; passed on.
    let register = || unsafe {
        let entries = match (qos.is_null(), count) {
            (_, 0) => &[],
            (true, _) => return Err(Failure::invalid("the ranges are a null pointer")),
            (false, _) => std::slice::from_raw_parts(qos, count),
        };
        let range = |range: &qf_qos| Ok((text("a metric", range.metric)?, range.min, range.max));
        let ranges = entries.iter().map(range).collect::<Result<Vec<_>, Failure>>()?;
        let (application, group) = (text("application_id", application_id)?, text("group_id", group_id)?);
        give(registration, qf_registration(borrow(channels)?.0.register(application, group, &ranges)?))
    };
    settle(register())
}

/// Tells policies how the application is doing, here and at the hosts that feed the channel of the group's name:
/// "app.show_need", "app.position", or any other `attribute` that begins with "app.".
///
/// # Safety
/// `registration` is a live handle, `attribute` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_registration_report(
    registration: *mut qf_registration,
    attribute: *const c_char,
    value: i64,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let report = || unsafe {
        borrow(registration)?.0.report(text("attribute", attribute)?, value)?;
        Ok(())
    };
    settle(report())
}

/// Leaves the group. Null is fine.
///
/// # Safety
/// `registration` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_registration_free(registration: *mut qf_registration) {
    // SAFETY: passed on.
    drop(unsafe { take_back(registration) });
}

/// Creates a channel; `formats`: C structure declarations of its events, may be null.
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
    // SAFETY: null or live, by the caller's promise; passed on.
    let create = || unsafe {
        let formats = optional("the formats", formats)?.unwrap_or_default();
        let made = borrow(channels)?.0.create(text("the name", name)?, &Spec::of(&formats))?;
        give(channel, qf_channel(made))
    };
    settle(create())
}

/// Opens a channel that some host holds: "NAME", or "quality:NAME" for its hidden Q-channel.
///
/// # Safety
/// `channels` is a live handle, `name` a zero-terminated string, `channel` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_open(
    channels: *mut qf_channels,
    name: *const c_char,
    channel: *mut *mut qf_channel,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let open = || unsafe { give(channel, qf_channel(borrow(channels)?.0.open(text("the name", name)?)?)) };
    settle(open())
}

/// Closes a channel. Null is fine.
///
/// # Safety
/// `channel` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_free(channel: *mut qf_channel) {
    // SAFETY: passed on.
    drop(unsafe { take_back(channel) });
}

/// Joins as a source.
///
/// # Safety
/// `channel` is a live handle, `source` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channel_source_subscribe(
    channel: *mut qf_channel,
    source: *mut *mut qf_source,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let join = || unsafe { give(source, qf_source(borrow(channel)?.0.source_subscribe(&SourceOptions::default())?)) };
    settle(join())
}

/// Leaves the channel. Null is fine.
///
/// # Safety
/// `source` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_source_free(source: *mut qf_source) {
    // SAFETY: passed on.
    drop(unsafe { take_back(source) });
}

/// Joins as a sink; qf_channels_poll calls `handler` with `data` for each event.
///
/// # Safety
/// `channel` is a live handle, `data` what the handler expects until qf_sink_free, from whichever thread polls; `sink`
/// points to writable memory for a pointer.
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
        // All of it, not the pointer in it, belongs to the handler.
        let data = &data;
        let host = std::ffi::CString::new(event.host).unwrap_or_default();
        handler(data.0, host.as_ptr(), &shown(event));
    };
    // SAFETY: null or live, by the caller's promise; passed on.
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

/// Leaves the channel. Null is fine. Once this returns, the sink's handler is not called any more: it waits for a call in
/// another thread to end. Within the handler it does not wait; that call is the last one.
///
/// # Safety
/// `sink` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sink_free(sink: *mut qf_sink) {
    // SAFETY: passed on.
    drop(unsafe { take_back(sink) });
}

/// Submits an event of `size` bytes; `deadline_ns` as CLOCK_MONOTONIC, 0 for none. With `sent` null it does not wait for
/// an answer; otherwise it waits for word of what became of the event.
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
    // SAFETY: null or live, by the caller's promise; passed on.
    let submit = || unsafe {
        let deadline = (deadline_ns != 0).then(|| Instant::new(deadline_ns));
        let event = Submission { event_type, deadline, payload: bytes(data, size)?, ..Submission::default() };
        let source = &borrow(source)?.0;
        match sent.is_null() {
            true => Ok(source.submit(&event)?),
            false => {
                let answer = source.submit_and_wait(&event)?;
                let (remote, local) = (answer.remote, answer.local);
                let (filtered, dropped) = (answer.filtered, answer.dropped);
                put("the answer's place", sent, qf_sent { number: answer.number, remote, local, filtered, dropped })
            }
        }
    };
    settle(submit())
}

/// Calls the handlers of the events that are there, or come within `timeout_ns`; how many into `*handled`, which may be
/// null.
///
/// # Safety
/// `channels` is a live handle, `handled` is null or points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_poll(
    channels: *mut qf_channels,
    timeout_ns: u64,
    handled: *mut usize,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let poll = || unsafe {
        // A copy: a handler may free the handle.
        let connection = borrow(channels)?.0.clone();
        let count = connection.poll(Duration::from_nanos(timeout_ns))?;
        if handled.is_null() { Ok(()) } else { put("the count's place", handled, count) }
    };
    settle(poll())
}

/// From now on qf_channels_poll calls `handler` with `data` for what resource managers decide: an encoder that sends less
/// loses nothing, where pacing would hold events back. Once this returns, the handler before is not called any more.
///
/// # Safety
/// `channels` is a live handle, `data` what the handler expects until qf_channels_free or the next handler, from whichever
/// thread polls.
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
        // All of it, not the pointer in it, belongs to the handler.
        let data = &data;
        let texts = [decided.channel, decided.attribute, decided.subject];
        let [channel, attribute, subject] = texts.map(|text| std::ffi::CString::new(text).unwrap_or_default());
        let shown = qf_decided {
            channel: channel.as_ptr(),
            attribute: attribute.as_ptr(),
            subject: subject.as_ptr(),
            amount: decided.amount.unwrap_or(0),
            holds: decided.amount.is_some(),
        };
        handler(data.0, &shown);
    };
    // SAFETY: null or live, by the caller's promise; passed on.
    let listen = || unsafe {
        borrow(channels)?.0.on_decided(handle);
        Ok(())
    };
    settle(listen())
}

/// A descriptor that is readable when there is something to poll; −1 for null. It belongs to the library.
///
/// # Safety
/// `channels` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_channels_fd(channels: *const qf_channels) -> c_int {
    // SAFETY: null or live, by the caller's promise.
    unsafe { channels.as_ref() }.map_or(-1, |channels| channels.0.fd().as_raw_fd())
}

/// Sets a sink's Q-attribute, which OUT-filters at all sources see.
///
/// # Safety
/// `sink` is a live handle, `name` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_sink_set_attribute(sink: *mut qf_sink, name: *const c_char, value: i64) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let set = || unsafe { Ok(borrow(sink)?.0.set_attribute(text("the name", name)?, Some(value))?) };
    settle(set())
}

/// Installs a filter in E-code, or replaces it between two events: where events arrive (`out` false) or are submitted
/// (`out` true), on this host, or (`everywhere`) on all hosts that hold the channel and allow it.
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
    // SAFETY: null or live, by the caller's promise; passed on.
    let install = || unsafe {
        let code = text("the code", code)?.to_owned();
        let filter = Filter { code, to: place(everywhere), ..Filter::default() };
        all_agree(borrow(channel)?.0.install(direction(out), text("the name", name)?, &filter)?)
    };
    settle(install())
}

/// Changes a parameter of a filter (what it gets by get_attribute): the next event sees it.
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
    // SAFETY: null or live, by the caller's promise; passed on.
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
