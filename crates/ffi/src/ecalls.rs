//! ECalls in the paper's shape (003 §3): subscribe with a `struct ecalls`, read the shared memory, set attributes.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use qfabric_client::Client;
use qfabric_client::ecalls::{
    Attribute, Ecalls, Layout, MemoryUp, OnFault, Step, Subscribe, Subscription, SubscriptionRequest,
};

use crate::status::{Exclusive, Failure, Outcome, borrow, put, qf_bool, qf_status, settle, text};

/// A connection for ECalls. What was asked for under it ends with it. Usable from any thread.
pub struct qf_ecalls {
    pub(crate) session: Ecalls,
    /// By number; only grows. Nobody's function runs while it is locked.
    attributes: RwLock<Vec<Attribute>>,
}

/// A subscription and its memory. For one thread at a time.
pub struct qf_subscription(Exclusive<Subscription>);

/// How one wants to be told: the paper's `struct ecalls`. All zero is nothing; steps are taken in `order`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ecalls {
    /// A real-time signal, SIGRTMIN to 64; 0: none.
    pub signal: c_int,
    /// Who gets it; 0: the caller.
    pub process_id: c_int,
    /// The name of a handler; null: none.
    pub k_handler: *const c_char,
    /// A handler as E-code; null: none.
    pub k_code: *const c_char,
    /// Handlers run in a thread of the daemon.
    pub k_thread: qf_bool,
    /// Such as "k_code,memory_up,signal"; null: thread, named handler, code, memory, signal.
    pub order: *const c_char,
    /// Events are late so many microseconds after they happened; 0: never.
    pub deadline_us: u64,
    /// Of the subscriptions of a group one is told, in turn; null: none.
    pub group: *const c_char,
    /// Only events that concern this process; 0: all.
    pub only_pid: c_int,
    /// Options of the service, such as "interface=lo,port=80"; null: none.
    pub options: *const c_char,
    /// An event at which a handler faults passes, instead of being blocked.
    pub pass_faults: qf_bool,
    /// Every event favours the server of who is told, under the mechanism `ext`; elsewhere it is counted only.
    pub favour: qf_bool,
}

/// The memory that events are written into: the paper's `struct sh_memory`, whose words the library reads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sh_memory {
    /// Events it holds; a power of two.
    pub slots: u32,
    /// A flag and a bit for each slot, instead of a flag and a ring.
    pub bit_pattern: qf_bool,
    /// With a bit pattern: the field that says which slot; null: the next free one.
    pub position: *const c_char,
}

/// What goes with an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_stamp {
    /// When it happened: nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Until when it is of use; 0: always.
    pub deadline_ns: u64,
}

/// Hands a value out behind a pointer.
///
/// # Safety
/// `to` is null or points to writable memory for a pointer.
pub(crate) unsafe fn give<T>(to: *mut *mut T, value: T) -> Outcome {
    let raw = Box::into_raw(Box::new(value));
    // SAFETY: by the caller's promise.
    let put = unsafe { put("the handle's place", to, raw) };
    put.inspect_err(|_| {
        // SAFETY: made above, and handed to nobody.
        drop(unsafe { Box::from_raw(raw) });
    })
}

/// Takes a value back.
///
/// # Safety
/// `handle` is null or came from [`give`], and is not used afterwards.
pub(crate) unsafe fn take_back<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: by the caller's promise.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Text that may be left out.
///
/// # Safety
/// `from` is null or a zero-terminated string.
pub(crate) unsafe fn optional(what: &str, from: *const c_char) -> Result<Option<String>, Failure> {
    // SAFETY: by the caller's promise.
    (!from.is_null()).then(|| unsafe { text(what, from) }.map(str::to_owned)).transpose()
}

/// Bytes from C.
///
/// # Safety
/// `data` points to `size` readable bytes, or `size` is 0.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid("the data is a null pointer")),
        // SAFETY: not null, readable by the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) }),
    }
}

/// Connects for ECalls: $QFABRIC_SOCKET, or the usual places. `*session` is to be given to qf_ecalls_free.
///
/// # Safety
/// `session` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_connect(session: *mut *mut qf_ecalls) -> qf_status {
    let connected = Client::connect().and_then(|client| Ecalls::connect(&client)).map_err(Failure::from);
    // SAFETY: passed on.
    settle(
        connected.and_then(|made| unsafe { give(session, qf_ecalls { session: made, attributes: RwLock::default() }) }),
    )
}

/// Ends the connection, and what was asked for under it. Null is fine.
///
/// # Safety
/// `session` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_free(session: *mut qf_ecalls) {
    // SAFETY: passed on.
    drop(unsafe { take_back(session) });
}

/// What C says of a subscription, as the daemon takes it.
///
/// # Safety
/// The texts are null or zero-terminated strings.
unsafe fn request(service: &str, how: &ecalls, memory: Option<&sh_memory>) -> Result<SubscriptionRequest, Failure> {
    // SAFETY: by the caller's promise, as are all texts below.
    let read = |what, from| unsafe { optional(what, from) };
    let order = read("the order", how.order)?.unwrap_or_default();
    let options = read("the options", how.options)?.unwrap_or_default();
    let words = |list: String| list.split(',').map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned).collect();
    let (order, options): (Vec<String>, Vec<String>) = (words(order), words(options));
    let memory_up = memory.map(|memory| -> Result<MemoryUp, Failure> {
        let layout = if memory.bit_pattern.is_true() { Layout::Bits } else { Layout::Ring };
        Ok(MemoryUp { layout, slots: memory.slots, position: read("the position", memory.position)? })
    });
    Ok(SubscriptionRequest {
        service: service.to_owned(),
        process_id: how.process_id,
        signal: (how.signal != 0).then_some(how.signal),
        k_handler: read("k_handler", how.k_handler)?,
        k_code: read("k_code", how.k_code)?,
        k_thread: how.k_thread.is_true(),
        memory_up: memory_up.transpose()?,
        order: order.iter().map(|step| step.parse::<Step>()).collect::<Result<_, _>>().map_err(Failure::invalid)?,
        deadline_us: how.deadline_us,
        group: read("the group", how.group)?,
        only_pid: (how.only_pid != 0).then_some(how.only_pid),
        options: options.iter().map(|pair| option(pair)).collect::<Result<_, _>>()?,
        favour: how.favour.is_true(),
        on_fault: if how.pass_faults.is_true() { OnFault::Pass } else { OnFault::Block },
        ..SubscriptionRequest::default()
    })
}

fn option(pair: &str) -> Result<(String, String), Failure> {
    let split = pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    split.ok_or_else(|| Failure::invalid(format!("option {pair:?} has no '='; write name=value")))
}

/// Subscribes to a service: the paper's ECalls_subscribe. `memory_up` may be null. `*subscription` is to be given to
/// qf_ecalls_unsubscribe.
///
/// # Safety
/// The handles are live, texts are null or zero-terminated, `subscription` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_subscribe(
    session: *mut qf_ecalls,
    service: *const c_char,
    how: *const ecalls,
    memory_up: *const sh_memory,
    subscription: *mut *mut qf_subscription,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let subscribe = || unsafe {
        let session = borrow(session)?;
        let how = how.as_ref().ok_or_else(|| Failure::invalid("the struct ecalls is a null pointer"))?;
        let request = request(text("the service's name", service)?, how, memory_up.as_ref())?;
        let made = session.session.subscribe(&Subscribe::from(request))?;
        give(subscription, qf_subscription(Exclusive::new(made)))
    };
    settle(subscribe())
}

/// Ends a subscription: the paper's ECalls_unsubscribe. Null is fine.
///
/// # Safety
/// `subscription` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_unsubscribe(subscription: *mut qf_subscription) -> qf_status {
    // SAFETY: passed on.
    let ended = unsafe { take_back(subscription) }.map(|subscription| subscription.0.into_inner().unsubscribe());
    settle(ended.unwrap_or(Ok(())).map_err(Failure::from))
}

/// The memory's flag: grows by one with every event. 0 without memory, or for null.
///
/// # Safety
/// `subscription` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_flag(subscription: *const qf_subscription) -> u32 {
    // SAFETY: null or live, by the caller's promise.
    let flag = unsafe { borrow(subscription) }.and_then(|subscription| subscription.0.with(|held| Ok(held.flag())));
    flag.unwrap_or(0)
}

/// The next event, copied into `data` (`size` bytes at most); `*length` is what it has, 0 where none came within
/// `timeout_ns`. With a timeout of 0 no system call is made. `stamp` may be null.
///
/// # Safety
/// `subscription` is a live handle, `data` points to `size` writable bytes, `length` and `stamp` to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_next(
    subscription: *mut qf_subscription,
    data: *mut c_void,
    size: usize,
    timeout_ns: u64,
    length: *mut usize,
    stamp: *mut qf_stamp,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; `data` has room for the `size` bytes that are copied at most.
    let next = |subscription: &mut Subscription| unsafe {
        let event = match timeout_ns {
            0 => subscription.try_next(),
            ns => subscription.next(Duration::from_nanos(ns))?,
        };
        let Some(event) = event else { return put("the length's place", length, 0) };
        put("the length's place", length, event.data.len())?;
        if !stamp.is_null() {
            stamp.write(qf_stamp { time_ns: event.time_ns, deadline_ns: event.deadline_ns });
        }
        match data.is_null() && size > 0 {
            true => Err(Failure::invalid("the data is a null pointer")),
            false => {
                let copied = size.min(event.data.len());
                std::ptr::copy_nonoverlapping(event.data.as_ptr(), data.cast::<u8>(), copied);
                Ok(())
            }
        }
    };
    // SAFETY: null or live, by the caller's promise.
    settle(unsafe { borrow(subscription) }.and_then(|subscription| subscription.0.with(next)))
}

/// Finds an attribute by name; `*number` is for qf_ecalls_set and qf_ecalls_get.
///
/// # Safety
/// `session` is a live handle, `name` a zero-terminated string, `number` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_attribute(
    session: *mut qf_ecalls,
    name: *const c_char,
    number: *mut usize,
) -> qf_status {
    // SAFETY: null or live, by the caller's promise; passed on.
    let find = || unsafe {
        let session = borrow(session)?;
        let found = session.session.attribute(text("the name", name)?)?;
        let mut attributes = session.attributes.write().unwrap_or_else(PoisonError::into_inner);
        attributes.push(found);
        put("the number's place", number, attributes.len() - 1)
    };
    settle(find())
}

/// A fast user-ECall: handlers see the value from now on. No system call. An unknown number does nothing.
///
/// # Safety
/// `session` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_set(session: *const qf_ecalls, number: usize, value: i64) {
    // SAFETY: passed on.
    unsafe { with_attribute(session, number, |attribute| attribute.set(value)) };
}

/// An attribute's value; 0 for an unknown number.
///
/// # Safety
/// `session` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_get(session: *const qf_ecalls, number: usize) -> i64 {
    // SAFETY: passed on.
    unsafe { with_attribute(session, number, Attribute::get) }.unwrap_or(0)
}

/// Runs `act` on an attribute, if there is one of this number.
///
/// # Safety
/// `session` is null or a live handle.
unsafe fn with_attribute<A>(session: *const qf_ecalls, number: usize, act: impl FnOnce(&Attribute) -> A) -> Option<A> {
    // SAFETY: null or live, by the caller's promise.
    let session = unsafe { session.as_ref() }?;
    let attributes = session.attributes.read().unwrap_or_else(PoisonError::into_inner);
    attributes.get(number).map(act)
}

/// A deferred user-ECall: the value waits for the moment that a subscription to app.deferred has chosen.
///
/// # Safety
/// `session` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_defer(session: *mut qf_ecalls, value: i64) -> qf_status {
    // SAFETY: passed on.
    settle(unsafe { borrow(session) }.and_then(|session| Ok(session.session.defer(value)?)))
}
