//! ECalls as in the paper (003 §3): subscribe with a `struct ecalls`, read the shared memory, set attributes.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use qfabric_client::Client;
use qfabric_client::ecalls::{
    Attribute, CALL_VALUES, Ecalls, Layout, MemoryUp, Moment, OnFault, Step, Subscription, SubscriptionBuilder,
    SubscriptionRequest,
};

use crate::status::{Exclusive, Failure, Outcome, borrow, not_null, put, qf_bool, qf_status, settle, text};

/// A connection for ECalls. Everything requested through it ends when it ends. Any thread may use it.
pub struct qf_ecalls {
    pub(crate) session: Ecalls,
    /// Indexed by number; only grows. No application callback runs while it is locked.
    attributes: RwLock<Vec<Attribute>>,
}

/// A subscription and its memory. For one thread at a time.
pub struct qf_subscription(Exclusive<Subscription>);

/// How a subscriber receives events: the paper's `struct ecalls`. All zero means no delivery. The steps run in
/// `order`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ecalls {
    /// Real-time signal, SIGRTMIN to 64; 0: none.
    pub signal: c_int,
    /// Process that receives the signal; 0: the caller.
    pub process_id: c_int,
    /// Name of a handler; null: none.
    pub k_handler: *const c_char,
    /// Handler as E-code; null: none.
    pub k_code: *const c_char,
    /// Run the handlers in a thread of the daemon.
    pub k_thread: qf_bool,
    /// Order of the steps, such as "k_code,memory_up,signal"; null: thread, named handler, code, memory, signal.
    pub order: *const c_char,
    /// Microseconds after which an event is late; 0: never.
    pub deadline_us: u64,
    /// Name of the group: each event goes to one of the group's subscriptions, in turn; null: none.
    pub group: *const c_char,
    /// Deliver only events that concern this process; 0: all.
    pub only_pid: c_int,
    /// Options of the service, such as "interface=lo,port=80"; null: none.
    pub options: *const c_char,
    /// If a handler faults, the event passes instead of being blocked.
    pub pass_faults: qf_bool,
    /// Each event favours the subscriber's server under the mechanism `ext`; other mechanisms only count the request.
    pub favour: qf_bool,
}

/// Shared memory for events: the paper's `struct sh_memory`. The library reads its words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sh_memory {
    /// Number of events that it holds; a power of two.
    pub slots: u32,
    /// Use a flag and one bit per slot, instead of a flag and a ring.
    pub bit_pattern: qf_bool,
    /// With a bit pattern: the event's field that selects the slot; null: the next free slot.
    pub position: *const c_char,
}

/// Times of an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_stamp {
    /// When the event happened, in CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// When the event is late; 0: never.
    pub deadline_ns: u64,
}

/// Moves a value to the heap and writes its pointer to `to`.
///
/// # Safety
/// `to` is null or points to writable memory for a pointer.
pub(crate) unsafe fn give<T>(to: *mut *mut T, value: T) -> Outcome {
    let raw = Box::into_raw(Box::new(value));
    // SAFETY: as the caller guarantees.
    let put = unsafe { put("the pointer for the handle", to, raw) };
    put.inspect_err(|_| {
        // SAFETY: made above, and not given to the caller.
        drop(unsafe { Box::from_raw(raw) });
    })
}

/// Takes a value from [`give`] back.
///
/// # Safety
/// `handle` is null or came from [`give`], and is not used afterwards.
pub(crate) unsafe fn take_back<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: as the caller guarantees.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Reads a string that may be null.
///
/// # Safety
/// `from` is null or a zero-terminated string.
pub(crate) unsafe fn optional(what: &str, from: *const c_char) -> Result<Option<String>, Failure> {
    // SAFETY: as the caller guarantees.
    (!from.is_null()).then(|| unsafe { text(what, from) }.map(str::to_owned)).transpose()
}

/// Reads bytes from C.
///
/// # Safety
/// `data` points to `size` readable bytes, or `size` is 0.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid("the data is a null pointer")),
        // SAFETY: not null, readable as the caller guarantees.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) }),
    }
}

/// Connects for ECalls: at $QFABRIC_SOCKET, or at the default sockets. Free `*session` with qf_ecalls_free.
///
/// # Safety
/// `session` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_connect(session: *mut *mut qf_ecalls) -> qf_status {
    let connected = Client::connect().and_then(|client| Ecalls::connect(&client)).map_err(Failure::from);
    // SAFETY: the caller guarantees it.
    settle(
        connected.and_then(|made| unsafe { give(session, qf_ecalls { session: made, attributes: RwLock::default() }) }),
    )
}

/// Frees the handle. The connection closes, and everything requested through it ends, after its last subscription,
/// service and I/O module are freed, too. Null is allowed.
///
/// # Safety
/// `session` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_free(session: *mut qf_ecalls) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(session) });
}

/// Converts the C structures to the request for the daemon.
///
/// # Safety
/// The texts are null or zero-terminated strings.
unsafe fn request(service: &str, how: &ecalls, memory: Option<&sh_memory>) -> Result<SubscriptionRequest, Failure> {
    // SAFETY: as the caller guarantees, as are all texts below.
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

/// Subscribes to a service: the paper's ECalls_subscribe. `memory_up` may be null. Free `*subscription` with
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
    // SAFETY: the caller guarantees that the pointers are null or live.
    let subscribe = || unsafe {
        let session = borrow(session)?;
        let how = how.as_ref().ok_or_else(|| Failure::invalid("the struct ecalls is a null pointer"))?;
        let request = request(text("the service's name", service)?, how, memory_up.as_ref())?;
        let made = session.session.subscribe(&SubscriptionBuilder::from(request))?;
        give(subscription, qf_subscription(Exclusive::new(made)))
    };
    settle(subscribe())
}

/// Ends a subscription and frees the handle: the paper's ECalls_unsubscribe. Null is allowed.
///
/// # Safety
/// `subscription` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_unsubscribe(subscription: *mut qf_subscription) -> qf_status {
    // SAFETY: the caller guarantees it.
    let ended = unsafe { take_back(subscription) }.map(|subscription| subscription.0.into_inner().unsubscribe());
    settle(ended.unwrap_or(Ok(())).map_err(Failure::from))
}

/// Flag of the shared memory: it grows by one with every event. 0 without shared memory, or if `subscription` is
/// null.
///
/// # Safety
/// `subscription` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_flag(subscription: *const qf_subscription) -> u32 {
    // SAFETY: the caller guarantees that the handle is null or live.
    let flag = unsafe { borrow(subscription) }.and_then(|subscription| subscription.0.with(|held| Ok(held.flag())));
    flag.unwrap_or(0)
}

/// Copies the next event into `data`, at most `size` bytes. `*length` is the event's full length, or 0 if no event
/// came within `timeout_ns`. A timeout of 0 makes no system call. `stamp` may be null.
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
    // SAFETY: null or live, as the caller guarantees; `data` has room for the `size` bytes that are copied at most.
    let next = |subscription: &mut Subscription| unsafe {
        // Before the call, because an event is taken once.
        not_null("the pointer to the length", length)?;
        if data.is_null() && size > 0 {
            return Err(Failure::invalid("the data is a null pointer"));
        }
        let event = match timeout_ns {
            0 => subscription.try_next(),
            ns => subscription.next(Duration::from_nanos(ns))?,
        };
        let Some(event) = event else { return put("the pointer to the length", length, 0) };
        put("the pointer to the length", length, event.data.len())?;
        if !stamp.is_null() {
            stamp.write(qf_stamp { time_ns: event.time_ns, deadline_ns: event.deadline_ns });
        }
        if size > 0 {
            let copied = size.min(event.data.len());
            std::ptr::copy_nonoverlapping(event.data.as_ptr(), data.cast::<u8>(), copied);
        }
        Ok(())
    };
    // SAFETY: the caller guarantees that the handle is null or live.
    settle(unsafe { borrow(subscription) }.and_then(|subscription| subscription.0.with(next)))
}

/// Finds an attribute by name. `*number` is the argument for qf_ecalls_set and qf_ecalls_get.
///
/// # Safety
/// `session` is a live handle, `name` a zero-terminated string, `number` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_attribute(
    session: *mut qf_ecalls,
    name: *const c_char,
    number: *mut usize,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let find = || unsafe {
        let session = borrow(session)?;
        let found = session.session.attribute(text("the name", name)?)?;
        let mut attributes = session.attributes.write().unwrap_or_else(PoisonError::into_inner);
        // A program that asks for a name again gets the same number: the list does not grow.
        let known = attributes.iter().position(|known| known.number() == found.number());
        let at = known.unwrap_or_else(|| {
            attributes.push(found);
            attributes.len() - 1
        });
        put("the pointer to the number", number, at)
    };
    settle(find())
}

/// A fast user-ECall: sets an attribute for the next handler calls. Makes no system call. An unknown number has no
/// effect.
///
/// # Safety
/// `session` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_set(session: *const qf_ecalls, number: usize, value: i64) {
    // SAFETY: the caller guarantees it.
    unsafe { with_attribute(session, number, |attribute| attribute.set(value)) };
}

/// Reads an attribute; 0 for an unknown number.
///
/// # Safety
/// `session` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_get(session: *const qf_ecalls, number: usize) -> i64 {
    // SAFETY: the caller guarantees it.
    unsafe { with_attribute(session, number, Attribute::get) }.unwrap_or(0)
}

/// Runs `act` on the attribute with this number, if there is one.
///
/// # Safety
/// `session` is null or a live handle.
unsafe fn with_attribute<A>(session: *const qf_ecalls, number: usize, act: impl FnOnce(&Attribute) -> A) -> Option<A> {
    // SAFETY: the caller guarantees that the handle is null or live.
    let session = unsafe { session.as_ref() }?;
    let attributes = session.attributes.read().unwrap_or_else(PoisonError::into_inner);
    attributes.get(number).map(act)
}

/// A deferred user-ECall: queues the value until the subscription to app.deferred processes its batch.
///
/// # Safety
/// `session` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_defer(session: *mut qf_ecalls, value: i64) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { borrow(session) }.and_then(|session| Ok(session.session.defer(value)?)))
}

/// A deferred user-ECall for one moment. `when` is "syscall", "schedule", "delay" or "before_schedule", as in the
/// option of app.deferred. Subscriptions with another moment pass over the value.
///
/// # Safety
/// `session` is a live handle, `when` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_defer_at(session: *mut qf_ecalls, value: i64, when: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let defer = || unsafe {
        let moment = text("the moment", when)?.parse::<Moment>().map_err(Failure::invalid)?;
        borrow(session)?.session.defer_at(value, moment).map_err(Failure::from)
    };
    settle(defer())
}

/// A fast user-ECall: the handlers of a subscription to app.call run in the kernel with eight values, before the
/// function returns. `*verdict` is their result. Its bit 8 says that no handler has answered, so that the blocking call
/// is needed (qf_ecalls_call); `*verdict >> 4` is the handler's answer.
///
/// # Safety
/// `subscription` is a live handle, `values` points to eight readable numbers, `verdict` to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ecalls_fast_call(
    subscription: *mut qf_subscription,
    values: *const i64,
    verdict: *mut i64,
) -> qf_status {
    // SAFETY: null or live, as the caller guarantees.
    let call = |held: &mut Subscription| unsafe {
        not_null("the pointer to the values", values)?;
        not_null("the pointer to the verdict", verdict)?;
        let made = held.call(values.cast::<[i64; CALL_VALUES]>().read())?;
        put("the pointer to the verdict", verdict, made.0)
    };
    // SAFETY: the caller guarantees that the handle is null or live.
    settle(unsafe { borrow(subscription) }.and_then(|subscription| subscription.0.with(call)))
}
