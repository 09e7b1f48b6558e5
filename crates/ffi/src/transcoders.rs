//! Transcoders in C: functions of the application that make the data of an event smaller before it is submitted
//! (000 §6.2).

use std::ffi::{CString, c_char, c_void};

use qfabric_client::channel::{Attributes, Transcoder, Transcoders, transcoded};
use qfabric_types::channel_wire::MAX_PAYLOAD;

use crate::channel::{Data, qf_event, qf_source};
use crate::ecalls::{bytes, take_back};
use crate::status::{Exclusive, Failure, borrow, qf_bool, qf_status, settle, text};

/// A chain of transcoders. One call at a time may use it.
pub struct qf_transcoders(Exclusive<Transcoders>);

/// The data after a transcoder.
pub struct qf_transcoded(Exclusive<Vec<u8>>);

/// Transcodes `size` bytes at `bytes`, and writes the result with qf_transcoded_write. Return false on failure: the
/// data then stays as it was. Called in the thread that submits, which holds the chain: do not use the source inside.
pub type qf_transcode = Option<
    extern "C" fn(data: *mut c_void, bytes: *const c_void, size: usize, transcoded: *mut qf_transcoded) -> qf_bool,
>;

struct Function {
    name: String,
    transcode: extern "C" fn(*mut c_void, *const c_void, usize, *mut qf_transcoded) -> qf_bool,
    data: Data,
}

impl Transcoder for Function {
    fn name(&self) -> &str {
        &self.name
    }

    fn apply(&mut self, data: &[u8]) -> Result<Vec<u8>, String> {
        let transcoded = qf_transcoded(Exclusive::new(Vec::new()));
        // C passes the pointer on to `borrow`, which makes a shared reference of it.
        let to = (&raw const transcoded).cast_mut();
        let is_done = (self.transcode)(self.data.0, data.as_ptr().cast(), data.len(), to).is_true();
        is_done.then(|| transcoded.0.into_inner()).ok_or_else(|| "its function returned false".to_owned())
    }
}

/// Returns a chain without transcoders. The first `head` bytes of an event, the structure of its type, do not pass
/// through it. Never null. Free it with qf_transcoders_free, or give it to qf_source_set_transcoders.
#[unsafe(no_mangle)]
pub extern "C" fn qf_transcoders_new(head: usize) -> *mut qf_transcoders {
    Box::into_raw(Box::new(qf_transcoders(Exclusive::new(Transcoders::behind(head)))))
}

/// Adds a transcoder to the end of the chain. `name`, which receivers read, has 1 to 21 of a-z, A-Z, 0-9 and '_', and
/// is in the chain once. If a mandatory transcoder fails, the event is not submitted, and the call that submits returns
/// QF_REFUSED; if an optional one fails, the event is submitted without it.
///
/// # Safety
/// `chain` is a live handle, `name` a zero-terminated string. `data` has the type that the function expects, stays
/// valid until the chain is freed, replaced or ends with its source, and may be used from any submitting thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_transcoders_add(
    chain: *mut qf_transcoders,
    name: *const c_char,
    mandatory: qf_bool,
    transcode: qf_transcode,
    data: *mut c_void,
) -> qf_status {
    let Some(transcode) = transcode else {
        return settle(Err(Failure::invalid("the function of the transcoder is a null pointer")));
    };
    let data = Data(data);
    // SAFETY: the caller guarantees that the pointers are null or live.
    let add = || unsafe {
        let function = Function { name: text("the name", name)?.to_owned(), transcode, data };
        borrow(chain)?.0.with(|chain| Ok(chain.add(mandatory.is_true(), function)?))
    };
    settle(add())
}

/// Frees a chain that no source has. Null is allowed.
///
/// # Safety
/// `chain` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_transcoders_free(chain: *mut qf_transcoders) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(chain) });
}

/// From now on the chain runs on each event of the source before it is submitted, in the submitting thread. It belongs
/// to the source, also if the call fails: do not use or free it any more. A null `chain` ends transcoding. After this
/// call returns, the functions of the previous chain are not called again.
///
/// # Safety
/// `source` is a live handle, `chain` null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_source_set_transcoders(source: *mut qf_source, chain: *mut qf_transcoders) -> qf_status {
    // SAFETY: the caller guarantees it.
    let chain = unsafe { take_back(chain) };
    // SAFETY: the caller guarantees it.
    let source = unsafe { borrow(source) };
    settle(source.map(|source| source.0.set_transcoders(chain.map(|chain| chain.0.into_inner()))))
}

/// Appends `size` bytes to the data after the transcoder. QF_INVALID: the data would be longer than 1 MiB.
///
/// # Safety
/// `transcoded` is the pointer that the running function of the transcoder got, `data` points to `size` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_transcoded_write(
    transcoded: *mut qf_transcoded,
    data: *const c_void,
    size: usize,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let write = || unsafe {
        let data = bytes(data, size)?;
        borrow(transcoded)?.0.with(|written| {
            if data.len() > MAX_PAYLOAD - written.len() {
                return Err(Failure::invalid(format!("data of more than {MAX_PAYLOAD} bytes; send it in parts")));
            }
            written.extend_from_slice(data);
            Ok(())
        })
    };
    settle(write())
}

/// What a handler gets a pointer to: the event, and what only functions read.
#[repr(C)]
pub(crate) struct Shown {
    event: qf_event,
    transcoded: Vec<CString>,
}

impl Shown {
    pub(crate) fn new(event: qf_event, attributes: &Attributes<'_>) -> Shown {
        let transcoded = transcoded(attributes).into_iter().filter_map(|name| CString::new(name).ok()).collect();
        Shown { event, transcoded }
    }

    /// The event, with a pointer from which [`qf_event_transcoded`] reaches the rest.
    pub(crate) fn event(&self) -> *const qf_event {
        (&raw const *self).cast()
    }
}

/// Name of the transcoder that the source applied to the event in this place, from 0, in the order of application;
/// null: no more. `event` is the pointer that the handler got, not a copy of the event. The name is valid until the
/// handler returns. It comes from another process, which may name what it did not apply.
///
/// # Safety
/// `event` is null or the pointer that the running handler got.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_event_transcoded(event: *const qf_event, place: usize) -> *const c_char {
    // SAFETY: null, or a pointer of `Shown::event`, as the caller guarantees.
    let shown = unsafe { event.cast::<Shown>().as_ref() };
    shown.and_then(|shown| shown.transcoded.get(place)).map_or(std::ptr::null(), |name| name.as_ptr())
}
