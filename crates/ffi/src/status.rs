//! Statuses, and the text behind the last one.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::sync::{Mutex, PoisonError, TryLockError};

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
    /// Wrong order of calls: not started yet, started already, the handle in use by a call that has not returned, or made
    /// before a fork by the parent.
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
            ClientError::Forked { .. } => QF_STATE,
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

/// A handle from C. Shared: calls may meet in one handle, from other threads and from functions that a call has called.
/// What a call changes lies in an [`Exclusive`] or in a lock.
///
/// # Safety
/// `handle` is null or came from this library, and is not freed before the answer is used for the last time.
pub(crate) unsafe fn borrow<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: null or a live handle, by the caller's promise; nobody has it exclusively.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid("the handle is a null pointer"))
}

/// What one call at a time uses. A second one is refused, not kept waiting: it may have been made by a function that the
/// first one called, and would wait for itself.
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Exclusive(Mutex::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with<A>(&self, act: impl FnOnce(&mut T) -> Result<A, Failure>) -> Result<A, Failure> {
        match self.0.try_lock() {
            Ok(mut value) => act(&mut value),
            Err(TryLockError::Poisoned(poisoned)) => act(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Failure::new(QF_STATE, IN_USE)),
        }
    }
}

const IN_USE: &str = "the handle is in use by a call that has not returned, of this thread or another one; call later";

/// A truth value from foreign memory. C promises 0 or 1 in a `bool`, and nobody keeps it who calls without the header or
/// leaves memory as it was; in Rust any other `bool` is undefined behaviour. Everything but 0 is true.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct qf_bool(u8);

impl qf_bool {
    pub(crate) fn is_true(self) -> bool {
        self.0 != 0
    }
}
