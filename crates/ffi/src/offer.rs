//! What another host keeps for a task that this one refused: read, claimed, given back.

use std::ffi::c_char;

use qfabric_client::{Claim, Offer};

use crate::contract::set;
use crate::limits::client;
use crate::session::{qf_session, start_by};
use crate::status::{Failure, QF_INVALID, QF_STATE, offered, put, qf_status, settle, text};

/// Bytes of a host's name, with its zero byte.
pub const QF_HOST_SIZE: usize = 65;
/// Bytes of a claim, with its zero byte.
pub const QF_CLAIM_SIZE: usize = 82;

/// What another host keeps for a task that this one refused.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_offer {
    /// Which host.
    pub host: [c_char; QF_HOST_SIZE],
    /// For qf_claim there; whoever shows it has the right to what is kept.
    pub claim: [c_char; QF_CLAIM_SIZE],
    /// How much, in CPUs.
    pub share: f64,
    /// For how long, from the refusal on.
    pub held_ns: u64,
}

/// Zero-terminated. Names have at most 64 bytes, claims 17 more.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    chars.iter_mut().zip(text.bytes().take(N - 1)).for_each(|(to, byte)| *to = byte as c_char);
    chars
}

impl From<&Offer> for qf_offer {
    fn from(offer: &Offer) -> qf_offer {
        let (host, claim) = (chars(offer.host.as_str()), chars(&offer.claim.to_string()));
        qf_offer { host, claim, share: offer.share.as_f64(), held_ns: offer.held_ns.get() }
    }
}

/// What another host keeps for what this thread was last refused. QF_STATE: its last failed call was none of these, or no
/// host keeps anything.
///
/// # Safety
/// `offer` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_last_offer(offer: *mut qf_offer) -> qf_status {
    match offered() {
        // SAFETY: passed on.
        Some(kept) => settle(unsafe { put("the offer", offer, qf_offer::from(&*kept)) }),
        None => settle(Err(Failure::new(QF_STATE, "no other host keeps anything for what was refused last"))),
    }
}

/// Like qf_start, with what this host keeps for the task since another one refused it: `claim` is of that refusal's
/// qf_offer.
///
/// # Safety
/// `task` is a live handle, `claim` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_claim(task: *mut qf_session, claim: *const c_char) -> qf_status {
    // SAFETY: passed on.
    match unsafe { claimed(claim) } {
        // SAFETY: passed on.
        Ok(claim) => unsafe { set(task, |task| start_by(task, Some(&claim))) },
        Err(failure) => settle(Err(failure)),
    }
}

/// What another host keeps for this one's task is not wanted. Without this call it ends when its time is over.
///
/// # Safety
/// `task` is a live handle, `claim` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_give_back(task: *mut qf_session, claim: *const c_char) -> qf_status {
    let give_back = || {
        // SAFETY: passed on.
        let (client, claim) = unsafe { (client(task)?, claimed(claim)?) };
        Ok(client.give_back(&claim)?)
    };
    settle(give_back())
}

/// # Safety
/// `claim` is null or a zero-terminated string.
unsafe fn claimed(claim: *const c_char) -> Result<Claim, Failure> {
    // SAFETY: passed on.
    let text = unsafe { text("the claim", claim) }?;
    text.parse().map_err(|error| Failure::new(QF_INVALID, format!("{error}")))
}
