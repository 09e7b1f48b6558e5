//! Consent of the applications of this host to joint contracts (QualMan, Figure 8).

use std::ffi::c_char;
use std::time::Duration;

use qfabric_client::{Client, ConsentHandle, ConsentPolicy, ConsentQuestion, ConsentRequest, JointResource};

use crate::ecalls::{give, take_back};
use crate::joint::{put_resources, qf_joint_resource, refuse_null};
use crate::offer::{QF_CLAIM_SIZE, chars};
use crate::status::{borrow, put, qf_bool, qf_status, settle, text};

/// The calling process answers for an application until the handle is freed or the process ends. Any thread may use it.
pub struct qf_consent(ConsentHandle);

/// A joint contract needs the consent of an application of this host.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_consent_question {
    /// Its number, for qf_consent_answer.
    pub number: u64,
    /// The identity of the contract, with which the program draws from it; empty if there was no question.
    pub contract: [c_char; QF_CLAIM_SIZE],
    /// Time that is left for an answer.
    pub left_ns: u64,
    /// Number of the resources that this host holds for the contract.
    pub count: usize,
}

const NO_QUESTION: qf_consent_question =
    qf_consent_question { number: 0, contract: [0; QF_CLAIM_SIZE], left_ns: 0, count: 0 };

impl From<&ConsentQuestion> for qf_consent_question {
    fn from(question: &ConsentQuestion) -> qf_consent_question {
        qf_consent_question {
            number: question.number,
            contract: chars(&question.contract.to_string()),
            left_ns: question.left_ns.get(),
            count: question.resources.iter().count(),
        }
    }
}

/// Lets the calling process answer for an application of this host. QF_REFUSED if another user answers for it. Free
/// `*answers` with qf_consent_free.
///
/// # Safety
/// `application` is a zero-terminated string, `answers` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_consent_begin(application: *const c_char, answers: *mut *mut qf_consent) -> qf_status {
    let begin = || {
        // SAFETY: the caller guarantees it.
        let application = unsafe { text("the application", application) }?;
        let begun = ConsentHandle::begin(&Client::connect()?, application)?;
        // SAFETY: the caller guarantees it.
        unsafe { give(answers, qf_consent(begun)) }
    };
    settle(begin())
}

/// Waits for the next question, for at most `timeout_ns` and 30 s. `question->contract` is empty if there was none. At
/// most `most` resources that this host holds for the contract are written to `resources`, which may be null if `most`
/// is 0; their `asked` and `granted` are equal.
///
/// # Safety
/// `answers` is a live handle, `question` points to writable memory, `resources` to writable memory for `most` resources.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_consent_next(
    answers: *const qf_consent,
    timeout_ns: u64,
    question: *mut qf_consent_question,
    resources: *mut qf_joint_resource,
    most: usize,
) -> qf_status {
    let next = || {
        // SAFETY: the caller guarantees it. Before the call, as all that can fail, because a question is told once.
        unsafe { put("the question", question, NO_QUESTION) }?;
        refuse_null(resources, most)?;
        // SAFETY: the caller guarantees it.
        let answers = unsafe { borrow(answers) }?;
        let host = Client::connect()?.host_name()?;
        let came = answers.0.next(Duration::from_nanos(timeout_ns))?;
        // What this host holds for the contract.
        let held = |question: &ConsentQuestion| -> Vec<JointResource> {
            JointResource::of(&host, &question.resources, &question.resources).collect()
        };
        let all = came.as_ref().map(held).unwrap_or_default();
        // SAFETY: the caller guarantees `most` places.
        unsafe { put_resources(resources, most, &all) }?;
        // SAFETY: the caller guarantees it.
        unsafe { put("the question", question, came.as_ref().map_or(NO_QUESTION, qf_consent_question::from)) }
    };
    settle(next())
}

/// Answers a question. QF_REFUSED if its time is over: then the contract was refused.
///
/// # Safety
/// `answers` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_consent_answer(answers: *const qf_consent, number: u64, accept: qf_bool) -> qf_status {
    // SAFETY: the caller guarantees it.
    let answer =
        unsafe { borrow(answers) }.and_then(|answers| Ok(answers.0.answer_number(number, accept.is_true())?));
    settle(answer)
}

/// Answers for the application no more, and frees the handle. Null is allowed.
///
/// # Safety
/// `answers` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_consent_free(answers: *mut qf_consent) {
    // SAFETY: null or made by this library from a Box, and not used again as the caller guarantees.
    drop(unsafe { take_back(answers) });
}

/// Accepts or declines every contract that needs the consent of an application of this host, until qf_consent_forget, or
/// until the process `pid` of the same user ends if it is not 0. QF_REFUSED if another user answers for the application.
///
/// # Safety
/// `application` is a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_consent_always(application: *const c_char, accept: qf_bool, pid: i32) -> qf_status {
    let set = || {
        // SAFETY: the caller guarantees it.
        let application = unsafe { text("the application", application) }?;
        let policy = if accept.is_true() { ConsentPolicy::Accept } else { ConsentPolicy::Decline };
        Client::connect()?.consent(application, ConsentRequest { policy, pid: (pid != 0).then_some(pid) })?;
        Ok(())
    };
    settle(set())
}

/// Lets nobody answer for an application any more. QF_REFUSED if nobody does, or another user.
///
/// # Safety
/// `application` is a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_consent_forget(application: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    let forget = || Ok(Client::connect()?.end_consent(unsafe { text("the application", application) }?)?);
    settle(forget())
}
