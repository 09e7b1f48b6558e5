//! Statuses, and the text behind the last one.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;

use qfabric_client::{ClientError, Offer};

/// What became of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum qf_status {
    /// Done.
    QF_OK = 0,
    /// An argument cannot be meant: null, not UTF-8, out of range, or an unknown name.
    QF_INVALID = 1,
    /// No daemon answers; qf_last_error() names the sockets tried.
    QF_NO_DAEMON = 2,
    /// The daemon said no; nothing was changed.
    QF_REFUSED = 3,
    /// The daemon answered late, brokenly, or in another version.
    QF_BROKEN = 4,
    /// Wrong order of calls: not started yet, or started already.
    QF_STATE = 5,
    /// The handle was started by another thread.
    QF_WRONG_THREAD = 6,
}

pub(crate) use qf_status::*;

/// Status and text of a call that did not succeed.
pub(crate) struct Failure {
    pub(crate) status: qf_status,
    pub(crate) text: String,
    /// What another host keeps instead.
    offer: Option<Box<Offer>>,
}

pub(crate) type Outcome = Result<(), Failure>;

impl Failure {
    pub(crate) fn new(status: qf_status, text: impl Display) -> Failure {
        Failure { status, text: text.to_string(), offer: None }
    }
    pub(crate) fn invalid(text: impl Display) -> Failure {
        Failure::new(QF_INVALID, text)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let status = match &error {
            ClientError::NoDaemon { .. } => QF_NO_DAEMON,
            ClientError::Refused(_) | ClientError::NotSubmitted { .. } => QF_REFUSED,
            ClientError::Contract(_) | ClientError::Value(_) => QF_INVALID,
            _ => QF_BROKEN,
        };
        let text = error.to_string();
        let offer = if let ClientError::Refused(problem) = error { problem.offer } else { None };
        Failure { status, text, offer }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static OFFER: RefCell<Option<Box<Offer>>> = RefCell::default();
}

/// Of the last failure of this thread.
pub(crate) fn offered() -> Option<Box<Offer>> {
    OFFER.with_borrow(Clone::clone)
}

/// Keeps a failure's text for [`qf_last_error`], and its offer.
pub(crate) fn settle(outcome: Outcome) -> qf_status {
    let Err(failure) = outcome else { return QF_OK };
    let text = CString::new(failure.text.replace('\0', " ")).expect("no zero byte is left");
    LAST.with_borrow_mut(|last| *last = text);
    OFFER.with_borrow_mut(|last| *last = failure.offer);
    failure.status
}

/// What the last call of this thread that did not succeed has to say; never null, empty if none failed.
/// Valid until the next such call of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn qf_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn qf_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };
    VERSION.as_ptr()
}

/// Text from C.
///
/// # Safety
/// `text` is null or points to a zero-terminated string.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{what} is a null pointer")));
    }
    // SAFETY: not null, zero-terminated by the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// Writes an answer where the caller wants it.
///
/// # Safety
/// `to` is null or points to writable memory for a `T`.
pub(crate) unsafe fn put<T>(what: &str, to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Failure::invalid(format!("{what} is a null pointer")));
    }
    // SAFETY: not null, writable by the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// A handle from C, used by one call at a time.
///
/// # Safety
/// `handle` is null or came from this library and was not freed.
pub(crate) unsafe fn borrow<'a, T>(handle: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: null or a live handle, by the caller's promise; C callers use it from one thread at a time.
    unsafe { handle.as_mut() }.ok_or_else(|| Failure::invalid("the handle is a null pointer"))
}
