//! Offers of other hosts: reads the loan in a refusal, claims it, and gives it back.

use std::ffi::c_char;

use qfabric_client::{Claim, Offer};

use crate::contract::set;
use crate::limits::client;
use crate::session::{qf_session, start_by};
use crate::status::{Failure, QF_INVALID, QF_STATE, offered, put, qf_status, settle, text};

/// Size of a host's name in bytes, including the zero byte.
pub const QF_HOST_SIZE: usize = 65;
/// Size of an interface's name in bytes, including the zero byte.
const INTERFACE_SIZE: usize = 16;
/// Size of a claim in bytes, including the zero byte.
pub const QF_CLAIM_SIZE: usize = 82;

/// A loan that another host keeps for a task that this host refused.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct qf_offer {
    /// Name of the host that keeps the loan.
    pub host: [c_char; QF_HOST_SIZE],
    /// Argument for qf_claim on that host. Any application with this text can use the loan.
    pub claim: [c_char; QF_CLAIM_SIZE],
    /// Size of the loan in CPUs.
    pub share: f64,
    /// Time from the refusal until the loan expires.
    pub held_ns: u64,
}

/// Copies text with a zero byte at the end. Names have at most 64 bytes, claims at most 17 more.
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

/// Reads the offer in the calling thread's last refusal. QF_STATE if the thread's last failed call was not a refusal,
/// or if no other host offered a loan.
///
/// # Safety
/// `offer` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_last_offer(offer: *mut qf_offer) -> qf_status {
    match offered() {
        // SAFETY: the caller guarantees it.
        Some(kept) => settle(unsafe { put("the offer", offer, qf_offer::from(&*kept)) }),
        None => settle(Err(no_offer())),
    }
}

/// Reads the resident memory, in bytes, that the loan of the calling thread's last refusal has besides its share: zero
/// if the task asked for none, or if the other host lends CPU time alone. QF_STATE as for qf_last_offer.
///
/// # Safety
/// `bytes` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_last_offer_memory(bytes: *mut u64) -> qf_status {
    match offered() {
        // SAFETY: the caller guarantees it.
        Some(kept) => settle(unsafe { put("the number of bytes", bytes, kept.memory.get()) }),
        None => settle(Err(no_offer())),
    }
}

/// Reads the rate, in bits per second, that the loan of the calling thread's last refusal has besides its share, and
/// the interface of the other host out of which it is kept. `interface` gets 16 bytes. Zero and an empty name if
/// qf_start_with_rate did not ask for a rate, or if the other host keeps no rates. QF_STATE as for qf_last_offer.
///
/// # Safety
/// `rate_bps` points to writable memory, `interface` to 16 writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_last_offer_rate(rate_bps: *mut u64, interface: *mut c_char) -> qf_status {
    let Some(offer) = offered() else { return settle(Err(no_offer())) };
    let (rate, link) = offer.rate.as_ref().map_or((0, ""), |kept| (kept.rate.get(), kept.interface.as_str()));
    let (interface, name) = (interface.cast::<[c_char; INTERFACE_SIZE]>(), chars(link));
    // SAFETY: the caller guarantees it.
    let put_rate = unsafe { put("the rate", rate_bps, rate) };
    // SAFETY: the caller guarantees it.
    settle(put_rate.and_then(|()| unsafe { put("the interface", interface, name) }))
}

fn no_offer() -> Failure {
    Failure::new(
        QF_STATE,
        "no other host offers a loan for the last refusal of this thread; call this right after qf_start returns QF_REFUSED",
    )
}

/// Like qf_start, but uses the loan that this host keeps for the task. `claim` is from the qf_offer of the other
/// host's refusal.
///
/// # Safety
/// `task` is a live handle, `claim` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_claim(task: *mut qf_session, claim: *const c_char) -> qf_status {
    // SAFETY: the caller guarantees it.
    match unsafe { claimed(claim) } {
        // SAFETY: the caller guarantees it.
        Ok(claim) => unsafe { set(task, |task| start_by(task, Some(&claim), None)) },
        Err(failure) => settle(Err(failure)),
    }
}

/// Gives a loan of another host back. Without this call the loan expires after `held_ns`.
///
/// # Safety
/// `task` is a live handle, `claim` a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_give_back(task: *mut qf_session, claim: *const c_char) -> qf_status {
    let give_back = || {
        // SAFETY: the caller guarantees it.
        let (client, claim) = unsafe { (client(task)?, claimed(claim)?) };
        Ok(client.give_back(&claim)?)
    };
    settle(give_back())
}

/// # Safety
/// `claim` is null or a zero-terminated string.
unsafe fn claimed(claim: *const c_char) -> Result<Claim, Failure> {
    // SAFETY: the caller guarantees it.
    let text = unsafe { text("the claim", claim) }?;
    text.parse().map_err(|error| Failure::new(QF_INVALID, format!("{error}")))
}
