//! Counts the requests to the web page since the start of the process.

use std::sync::atomic::{AtomicU64, Ordering};

use super::guard::Cause;
use crate::api::failed_to_listen;

static ASKED: AtomicU64 = AtomicU64::new(0);
/// By [`Cause`].
static REFUSED: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// The counts at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WebReport {
    pub requests: u64,
    pub methods: u64,
    pub paths: u64,
    pub origins: u64,
    pub tokens: u64,
    pub limits: u64,
    /// Failed attempts to listen, for the page and for the metrics.
    pub not_listening: u64,
}

pub(super) fn asked() {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn refused(cause: Cause) {
    REFUSED[cause as usize].fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn report() -> WebReport {
    let of = |cause: Cause| REFUSED[cause as usize].load(Ordering::Relaxed);
    WebReport {
        requests: ASKED.load(Ordering::Relaxed),
        methods: of(Cause::Method),
        paths: of(Cause::Path),
        origins: of(Cause::Origin),
        tokens: of(Cause::Token),
        limits: of(Cause::Limit),
        not_listening: failed_to_listen(),
    }
}
