//! Status codes, and the error text of the last failed call.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::sync::{Mutex, PoisonError, TryLockError};

use qfabric_client::{ClientError, JointRefusal, Offer, Problem};

/// Result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum qf_status {
    /// Success.
    QF_OK = 0,
    /// An argument is invalid: null, not UTF-8, out of range, or an unknown name.
    QF_INVALID = 1,
    /// No daemon answers; qf_last_error() names the sockets tried.
    QF_NO_DAEMON = 2,
    /// The daemon refused the request and changed nothing.
    QF_REFUSED = 3,
    /// The daemon did not answer in time, sent an invalid answer, or has another version.
    QF_BROKEN = 4,
    /// Wrong order of calls: the task is not started, or is already started; a call with this handle has not
    /// returned; or the handle was made by the parent process before a fork.
    QF_STATE = 5,
    /// The handle was started by another thread.
    QF_WRONG_THREAD = 6,
}

pub(crate) use qf_status::*;

impl qf_status {
    /// The code of an error that this library finds itself.
    fn code(self) -> &'static str {
        match self {
            QF_OK => "",
            QF_INVALID => "invalid_argument",
            QF_NO_DAEMON => "no_daemon",
            QF_REFUSED => "refused",
            QF_BROKEN => "broken",
            QF_STATE => "wrong_state",
            QF_WRONG_THREAD => "wrong_thread",
        }
    }
}

/// Status and text of a failed call.
pub(crate) struct Failure {
    pub(crate) status: qf_status,
    pub(crate) text: String,
    /// Stable name of the error.
    code: String,
    /// The loan that another host offers instead.
    offer: Option<Box<Offer>>,
    /// The refusal of a joint contract.
    joint: Option<Box<JointRefusal>>,
}

pub(crate) type Outcome = Result<(), Failure>;

impl Failure {
    pub(crate) fn new(status: qf_status, text: impl Display) -> Failure {
        let code = status.code().to_owned();
        Failure { status, text: text.to_string(), code, offer: None, joint: None }
    }
    /// A failure with the code of its problem.
    pub(crate) fn problem(status: qf_status, problem: &Problem) -> Failure {
        Failure { code: problem.code.clone(), ..Failure::new(status, problem) }
    }
    pub(crate) fn invalid(text: impl Display) -> Failure {
        Failure::new(QF_INVALID, text)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let status = match &error {
            ClientError::NoDaemon { .. } => QF_NO_DAEMON,
            ClientError::Refused(_)
            | ClientError::JointRefused(_)
            | ClientError::NotSubmitted { .. }
            | ClientError::SinkEnded { .. } => QF_REFUSED,
            ClientError::Contract(_) | ClientError::Value(_) => QF_INVALID,
            ClientError::Forked { .. } => QF_STATE,
            _ => QF_BROKEN,
        };
        let failure = Failure::problem(status, &error.problem());
        match error {
            ClientError::Refused(problem) => Failure { offer: problem.offer, ..failure },
            ClientError::JointRefused(refusal) => Failure { joint: Some(refusal), ..failure },
            _ => failure,
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static CODE: RefCell<CString> = RefCell::default();
    static OFFER: RefCell<Option<Box<Offer>>> = RefCell::default();
    static JOINT: RefCell<Option<Box<JointRefusal>>> = RefCell::default();
}

/// The offer in the last failure of the calling thread.
pub(crate) fn offered() -> Option<Box<Offer>> {
    OFFER.try_with(|offer| offer.borrow().clone()).ok().flatten()
}

/// The refusal of a joint contract in the last failure of the calling thread.
pub(crate) fn joint_refusal() -> Option<Box<JointRefusal>> {
    JOINT.try_with(|joint| joint.borrow().clone()).ok().flatten()
}

/// Stores the failure's text for [`qf_last_error`], its code for [`qf_last_code`], its offer, and the
/// refusal of a joint contract. A thread that ends has destroyed the places for them before the functions run that C
/// has registered for its end, such as those of `atexit`: these get the status alone.
pub(crate) fn settle(outcome: Outcome) -> qf_status {
    let Err(failure) = outcome else { return QF_OK };
    let c_text = |text: &str| CString::new(text.replace('\0', " ")).expect("no zero byte is left");
    let _ = LAST.try_with(|last| last.replace(c_text(&failure.text)));
    let _ = CODE.try_with(|last| last.replace(c_text(&failure.code)));
    let _ = OFFER.try_with(|last| last.replace(failure.offer));
    let _ = JOINT.try_with(|last| last.replace(failure.joint));
    failure.status
}

/// Error text of the last failed call of the calling thread: what happened, and the next step. Never null; empty if
/// no call failed. Valid until the next failed call of the thread. While the thread ends, as in a function of atexit(),
/// the text only says so.
#[unsafe(no_mangle)]
pub extern "C" fn qf_last_error() -> *const c_char {
    const ENDING: &CStr = c"the calling thread ends, and keeps no text of its errors";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(ENDING.as_ptr())
}

/// Stable name of the error of the last failed call of the calling thread, such as "over_committed" or "no_daemon", for
/// programs that decide by it. Never null; empty if no call failed, and while the thread ends. Valid until the next
/// failed call of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn qf_last_code() -> *const c_char {
    CODE.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
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

/// Reads a string from C.
///
/// # Safety
/// `text` is null or points to a zero-terminated string.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{what} is a null pointer")));
    }
    // SAFETY: not null, zero-terminated as the caller guarantees.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// Refuses a null pointer to a result. A call that changes something asks before it does so.
pub(crate) fn not_null<T>(what: &str, to: *const T) -> Outcome {
    match to.is_null() {
        true => Err(Failure::invalid(format!("{what} is a null pointer"))),
        false => Ok(()),
    }
}

/// Writes `value` to the caller's memory.
///
/// # Safety
/// `to` is null or points to writable memory for a `T`.
pub(crate) unsafe fn put<T>(what: &str, to: *mut T, value: T) -> Outcome {
    not_null(what, to)?;
    // SAFETY: not null, writable as the caller guarantees.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes `value` to the caller's memory, unless the caller does not want it.
///
/// # Safety
/// `to` is null or points to writable memory for a `T`.
pub(crate) unsafe fn put_unless_null<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, writable as the caller guarantees.
        unsafe { to.write(value) };
    }
}

/// Borrows a handle from C. The borrow is shared, because calls on one handle can overlap: from other threads, and
/// from callbacks of a running call. State that a call changes is in an [`Exclusive`] or a lock.
///
/// # Safety
/// `handle` is null or came from this library, and stays allocated while the reference is used.
pub(crate) unsafe fn borrow<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: null or a live handle, as the caller guarantees; no exclusive reference exists.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid("the handle is a null pointer"))
}

/// State for one call at a time. A second call fails with QF_STATE instead of waiting: if a callback of the first
/// call made it, waiting would be a deadlock.
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

const IN_USE: &str =
    "the handle is in use by a call of this or another thread that has not returned; try again after it returns";

/// A `bool` from C memory. A valid C `bool` is 0 or 1, but a caller without the header, or with uninitialised memory,
/// can pass another byte; in Rust that would be undefined behaviour. Every value except 0 is true.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct qf_bool(u8);

impl qf_bool {
    pub(crate) fn is_true(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for qf_bool {
    fn from(value: bool) -> qf_bool {
        qf_bool(value.into())
    }
}
