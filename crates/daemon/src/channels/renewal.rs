//! Joins the network again when its session has used up most of its numbers ([`Link::is_worn`]), or when the network
//! could not be joined before. Members stay.
//!
//! ```text
//!            ┌──────── 5 s, or a request has used up numbers ────────┐
//!            v                                                       │
//!   is it due? ── no, or joined ──────────────────────────────────> sleep
//!            └── failed ──> not due for 5 s, then 10 s, 20 s … 5 min ┘
//! ```
//! Also hosts that come and go use up numbers, without any request of this host. Therefore a thread looks, which may
//! block; requests do not wait for it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use qfabric_link::Link;
use qfabric_linux::clock;
use qfabric_types::{Instant, Nanos};

use super::network::{ManagedNode, Way};
use super::{Fabric, lock};
use crate::ending::{Ending, Running};

/// Time between two looks. Requests wake the thread earlier.
const LOOK: Duration = Duration::from_secs(5);
/// The pause after the first attempt that failed; each further one is twice as long.
const FIRST_PAUSE: Nanos = Nanos::from_millis(5_000);
/// The longest pause.
const LONGEST_PAUSE: Nanos = Nanos::from_millis(300_000);

/// The way to the thread. Without the thread, nothing is renewed.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    wake: OnceLock<SyncSender<()>>,
    stops: AtomicBool,
}

impl Renewal {
    /// Wakes the thread. Never waits.
    fn nudge(&self) {
        // Full: it is woken already.
        self.wake.get().into_iter().for_each(|wake| _ = wake.try_send(()));
    }

    fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.nudge();
    }
}

/// Starts the thread. `None`: there are no other hosts.
pub(crate) fn start_renewal(fabric: &Arc<Fabric>, ending: &Ending) -> io::Result<Option<Running>> {
    if matches!(fabric.network.way, Way::Alone { .. }) {
        return Ok(None);
    }
    let (wake, woken) = sync_channel(1);
    // There is one thread for each fabric.
    let _ = fabric.renewal.wake.set(wake);
    let (own, asked) = (fabric.clone(), fabric.clone());
    ending.run("qf-renewal", move || own.renew_until_the_end(&woken), move || asked.renewal.stop()).map(Some)
}

/// When the network may be joined again.
#[derive(Debug, Default)]
struct Attempts {
    /// The pause after the last attempt; zero if it succeeded.
    pause: Nanos,
    /// The end of the pause.
    next: Instant,
}

impl Attempts {
    fn are_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    fn ended(&mut self, success: bool, now: Instant) {
        let doubled = Nanos::new(2 * self.pause.get()).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.pause = if success { Nanos::ZERO } else { doubled };
        self.next = now + self.pause;
    }
}

fn is_due(link: &Link<ManagedNode>) -> bool {
    !link.is_open() || link.is_worn()
}

impl Fabric {
    /// Wakes the thread if the session has used up most of its numbers. The caller holds no lock.
    pub(super) fn ask_for_renewal(&self) {
        if let Way::Linked { link, .. } = &self.network.way
            && link.is_worn()
        {
            self.renewal.nudge();
        }
    }

    fn renew_until_the_end(&self, woken: &Receiver<()>) {
        let mut attempts = Attempts::default();
        while !self.renewal.stops.load(Ordering::Acquire) {
            if attempts.are_due(clock::now()) {
                let success = self.renew();
                attempts.ended(success, clock::now());
            }
            // Whatever ends the sleep, the next turn looks.
            let _ = woken.recv_timeout(LOOK);
        }
    }

    /// Joins the network again if that is due. The caller holds no lock, and may block. `false`: it failed, and this
    /// host is alone until the next attempt.
    pub(super) fn renew(&self) -> bool {
        let Way::Linked { link, config, .. } = &self.network.way else { return true };
        if !is_due(link) {
            return true;
        }
        let config = lock(config);
        // A reload may have done it meanwhile.
        if !is_due(link) {
            return true;
        }
        tracing::info!(
            is_open = link.is_open(),
            "the network is joined again: its session is used up, or was not opened"
        );
        // The ports of the session before may still be busy at the first attempt.
        let joined = self.reopen(link, &config).or_else(|_| self.reopen(link, &config));
        if let Err(error) = &joined {
            tracing::error!(
                %error,
                "the network could not be joined again, so no other host receives events; this host tries again"
            );
        }
        joined.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_failed_attempts_grow_to_five_minutes_and_a_success_ends_them() {
        let (mut attempts, mut now, mut pauses) = (Attempts::default(), Instant::ZERO, Vec::new());
        assert!(attempts.are_due(now));
        for _ in 0..9 {
            attempts.ended(false, now);
            assert!(!attempts.are_due(now));
            pauses.push(attempts.next.since(now).get() / 1_000_000_000);
            now = attempts.next;
            assert!(attempts.are_due(now));
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        attempts.ended(true, now);
        assert!(attempts.are_due(now));
        attempts.ended(false, now);
        assert_eq!(attempts.next.since(now), FIRST_PAUSE);
    }
}
