//! How the service ends: who begins it, and what is left to do where a thread does not follow.
//!
//! ```text
//! SIGTERM ─────────┐                     ┌─> control thread: puts every thread back, ends
//! dropped ─────────┼─> Ending: a flag ───┤
//! panic ───────────┘   beside all queues └─> API thread: no new callers, stops the other threads, ends
//!                                 not over in time ──> whoever began it: the journal is put back, the process ends
//! ```
//! The flag needs no place in a queue and no lock, so it reaches the control thread however many requests wait. The
//! first reason stays. A thread that panics ends the service in the same order: nobody is served by a part of it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use qfabric_linux::journal;
use tokio::sync::Notify;

use crate::control::{wake, wake_descriptor};

/// How long the control thread may take to put everything back: threads leave their reservations side by side within
/// 2 s. Putting them back from the journal instead takes as long, and all of it less than 5 s.
pub(crate) const PUT_BACK: Duration = Duration::from_millis(2_500);
/// How long the other threads may take after that, where everything has been put back.
pub(crate) const OTHERS: Duration = Duration::from_millis(2_000);
/// How long the process may take to end by itself after that.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// A panic in a debug build ends the process at once, so that no test goes on beside it. Unit tests of what happens
/// after a panic need it contained.
const PANICS_ABORT: bool = cfg!(all(debug_assertions, not(test)));

/// Why the service ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It was told to.
    Asked,
    /// A thread cannot go on.
    Panicked { thread: &'static str, message: String },
}

/// The end of one service. Cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Ending(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    reason: OnceLock<Reason>,
    /// Wakes the control thread.
    control: Arc<OwnedFd>,
    /// Wakes whoever waits in a runtime.
    begun: Notify,
    /// The folder of the journal, once there is one.
    journal: OnceLock<PathBuf>,
    /// The control thread has put back everything, or never changed anything.
    put_back: AtomicBool,
}

impl Ending {
    /// Of a service that is about to start.
    pub fn new() -> io::Result<Ending> {
        Ok(Ending(Arc::new(Shared {
            reason: OnceLock::new(),
            control: Arc::new(wake_descriptor()?),
            begun: Notify::new(),
            journal: OnceLock::new(),
            put_back: AtomicBool::new(true),
        })))
    }

    /// What the control thread waits for beside its other sources.
    pub fn control_wake(&self) -> &Arc<OwnedFd> {
        &self.0.control
    }

    /// From now on the control thread changes threads, and notes them in the journal in `folder`.
    pub fn journal_in(&self, folder: PathBuf) {
        // One service, one journal.
        let _ = self.0.journal.set(folder);
        self.0.put_back.store(false, Ordering::Release);
    }

    /// Everything is as it was.
    pub fn all_is_back(&self) {
        self.0.put_back.store(true, Ordering::Release);
    }

    /// Whether something is left to put back.
    pub fn is_all_back(&self) -> bool {
        self.0.put_back.load(Ordering::Acquire)
    }

    /// The service is to end.
    pub fn ask(&self) {
        self.begin(Reason::Asked);
    }

    /// Whether it is ending.
    pub fn has_begun(&self) -> bool {
        self.reason().is_some()
    }

    /// Why, if it is.
    pub fn reason(&self) -> Option<&Reason> {
        self.0.reason.get()
    }

    /// Waits until it is.
    pub async fn begun(&self) -> &Reason {
        loop {
            // Made before the look, so that no end falls between the two.
            let begun = self.0.begun.notified();
            if let Some(reason) = self.reason() {
                return reason;
            }
            begun.await;
        }
    }

    fn begin(&self, reason: Reason) {
        // The first stays.
        let _ = self.0.reason.set(reason);
        wake(&*self.0.control);
        self.0.begun.notify_waiters();
    }

    /// Starts a thread of the service. A panic in it ends the service.
    pub fn spawn(&self, name: &'static str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        let ending = self.clone();
        Builder::new().name(name.to_owned()).spawn(move || {
            // Whoever joins learns of a panic by the end of the service.
            let _ = ending.guard(name, body);
        })
    }

    /// Runs `body` in the calling thread; a panic in it ends the service. None: it panicked.
    pub fn guard<T>(&self, thread: &'static str, body: impl FnOnce() -> T) -> Option<T> {
        contain(body).map_err(|message| self.failed(thread, message)).ok()
    }

    /// A thread cannot go on: the service ends.
    pub fn failed(&self, thread: &'static str, message: String) {
        tracing::error!(thread, message, "a thread of the service failed: the service ends");
        self.begin(Reason::Panicked { thread, message });
    }

    /// The service was not over in time. Where the control thread has not put back what it changed, that is done here,
    /// from its journal; the answer says what happened.
    pub fn put_back_instead(&self) -> String {
        let Some(folder) = self.0.journal.get().filter(|_| !self.is_all_back()) else {
            return "every thread is back under its former scheduler".to_owned();
        };
        match journal::restore_own(folder) {
            Ok(restored) => {
                let failed = restored.failed.iter().map(|failure| format!("; not put back: {failure}"));
                format!("{} threads were put back from the journal{}", restored.threads, failed.collect::<String>())
            }
            Err(error) => format!("threads keep their last reservations until the next start: {error}"),
        }
    }

    /// As [`Ending::put_back_instead`], and ends the process. The last step is a signal that no thread can hold up.
    pub fn force(&self) -> ! {
        let outcome = self.put_back_instead();
        // Both may wait for a lock of a thread that hangs.
        let last_words = move || {
            tracing::error!(outcome, "a thread hangs: the service ends without it");
            // Written by another thread.
            std::thread::sleep(LAST_WORDS / 2);
            std::process::exit(1)
        };
        if Builder::new().name("qf-last-words".to_owned()).spawn(last_words).is_ok() {
            std::thread::sleep(LAST_WORDS);
        }
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort()
    }
}

/// Runs `body`; where it panics, the answer is what the panic said, and its caller decides what ends with it.
pub(crate) fn contain<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    qfabric_sync::contain(body).inspect_err(|_| {
        if PANICS_ABORT {
            std::process::abort();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_thread_ends_the_service_by_its_name() {
        let ending = Ending::new().unwrap();
        let thread = ending.spawn("qf-test", || panic!("the {}th wheel", 5)).unwrap();
        thread.join().expect("contained");
        let reason = Reason::Panicked { thread: "qf-test", message: "the 5th wheel".to_owned() };
        assert_eq!(ending.reason(), Some(&reason));
        ending.ask();
        assert_eq!(ending.reason(), Some(&reason), "the first reason stays");
    }

    #[tokio::test]
    async fn everybody_who_waits_learns_of_the_end_also_who_comes_later() {
        let ending = Ending::new().unwrap();
        let (one, other) = (ending.clone(), ending.clone());
        let waits = [one, other].map(|ending| tokio::spawn(async move { ending.begun().await.clone() }));
        tokio::task::yield_now().await;
        assert!(!ending.has_begun());
        ending.ask();
        for waiting in waits {
            assert_eq!(waiting.await.unwrap(), Reason::Asked);
        }
        assert_eq!(ending.begun().await, &Reason::Asked);
    }

    #[test]
    fn an_end_wakes_the_control_thread_without_a_place_in_its_queue() {
        let ending = Ending::new().unwrap();
        ending.ask();
        let mut count = [0; 8];
        rustix::io::read(&**ending.control_wake(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
