//! Ends the service: how an end begins, and what happens if a thread does not end in time.
//!
//! ```text
//! SIGTERM ─────────┐                     ┌─> control thread: restores every thread, ends
//! dropped ─────────┼─> Ending: a flag ───┤
//! panic ───────────┘   beside all queues └─> API thread: no new callers, stops the other threads, ends
//!                                 not over in time ──> restored from the journal, process ended
//! ```
//! The flag needs no place in a queue and no lock, so it reaches the control thread however many requests wait. The
//! first reason stays. A thread that panics ends the service in the same order, because a service without one of its
//! threads must not go on.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use qfabric_linux::journal;
use tokio::sync::Notify;
use tokio::task;

use crate::control::{wake, wake_descriptor};

/// Time that the control thread has to restore everything: threads leave their reservations in parallel within 2 s.
/// Restoring from the journal instead takes as long; both together take less than 5 s.
pub(crate) const PUT_BACK: Duration = Duration::from_millis(2_500);
/// Time that the other threads have after that, if everything is restored.
pub(crate) const OTHER_THREADS: Duration = Duration::from_millis(2_000);
/// Time that the process has to log and exit after that.
const FINAL_LOG: Duration = Duration::from_millis(300);
/// A panic in a debug build ends the process at once, so that no test continues after it. Unit tests of the
/// behaviour after a panic need the panic contained.
const PANICS_ABORT: bool = cfg!(all(debug_assertions, not(test)));

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// SIGTERM, SIGINT, or the owner dropped the service.
    Asked,
    /// A thread of the service panicked.
    Panicked { thread: &'static str, message: String },
}

/// A thread of the service. Dropping this value asks the thread to end, and waits for it.
pub(crate) struct Running {
    thread: Option<JoinHandle<()>>,
    /// Makes the thread end soon. The thread may have ended before.
    ask: Box<dyn FnMut() + Send>,
}

impl Drop for Running {
    fn drop(&mut self) {
        (self.ask)();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was logged by the thread itself.
            let _ = thread.join();
        }
    }
}

/// The end of one service: a flag with a reason. Cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Ending(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    reason: OnceLock<Reason>,
    /// Wakes the control thread.
    control: Arc<OwnedFd>,
    /// Wakes tasks that wait for the end.
    begun: Notify,
    /// The folder of the journal; set when the journal exists.
    journal: OnceLock<PathBuf>,
    /// The control thread has restored everything, or has changed nothing yet.
    put_back: AtomicBool,
}
impl Ending {
    /// For a service that is about to start.
    pub(crate) fn new() -> io::Result<Ending> {
        Ok(Ending(Arc::new(Shared {
            reason: OnceLock::new(),
            control: Arc::new(wake_descriptor()?),
            begun: Notify::new(),
            journal: OnceLock::new(),
            put_back: AtomicBool::new(true),
        })))
    }

    /// The descriptor that wakes the control thread at the end.
    pub(crate) fn control_wake(&self) -> &Arc<OwnedFd> {
        &self.0.control
    }

    /// From now on the control thread changes threads and records the changes in the journal in `folder`.
    pub(crate) fn journal_in(&self, folder: PathBuf) {
        // There is one journal per service.
        let _ = self.0.journal.set(folder);
        self.0.put_back.store(false, Ordering::Release);
    }

    /// The control thread reports that everything is restored.
    pub(crate) fn all_is_back(&self) {
        self.0.put_back.store(true, Ordering::Release);
    }

    /// Whether everything is restored.
    pub(crate) fn is_all_back(&self) -> bool {
        self.0.put_back.load(Ordering::Acquire)
    }

    /// Ends the service on request.
    pub(crate) fn ask(&self) {
        self.begin(Reason::Asked);
    }

    /// Whether the end has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.reason().is_some()
    }

    /// The reason, if the end has begun.
    pub(crate) fn reason(&self) -> Option<&Reason> {
        self.0.reason.get()
    }

    /// Waits until the end begins.
    pub(crate) async fn begun(&self) -> &Reason {
        loop {
            // Created before the check, so that an end between the check and the wait is not missed.
            let begun = self.0.begun.notified();
            if let Some(reason) = self.reason() {
                return reason;
            }
            begun.await;
        }
    }

    fn begin(&self, reason: Reason) {
        // Fails if there is a reason already: the first one stays.
        let _ = self.0.reason.set(reason);
        wake(&*self.0.control);
        self.0.begun.notify_waiters();
    }

    /// The tasks of the calling thread belong to this service from now on: a panic in one of them, or in a worker
    /// thread that works for it, ends the service.
    pub(crate) fn own_this_thread(&self) {
        OWNER.set(Some(self.clone()));
    }

    /// Starts a thread of the service. A panic in it ends the service.
    pub(crate) fn spawn(&self, name: &'static str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        let ending = self.clone();
        Builder::new().name(name.to_owned()).spawn(move || {
            // A panic ends the service, so joining this thread does not need to report it.
            let _ = ending.guard(name, body);
        })
    }

    /// Starts a thread of the service, as [`Ending::spawn`] does, that ends when the returned value is dropped: `ask`
    /// asks it to end.
    pub(crate) fn run(
        &self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
        ask: impl FnMut() + Send + 'static,
    ) -> io::Result<Running> {
        Ok(Running { thread: Some(self.spawn(name, body)?), ask: Box::new(ask) })
    }

    /// Runs `body` in the calling thread; a panic in it ends the service. Returns `None` after a panic.
    pub(crate) fn guard<T>(&self, thread: &'static str, body: impl FnOnce() -> T) -> Option<T> {
        contain(body).map_err(|message| self.failed(thread, message)).ok()
    }

    /// Ends the service because a thread panicked.
    pub(crate) fn failed(&self, thread: &'static str, message: String) {
        tracing::error!(
            thread,
            message,
            "a thread of the service panicked; the service ends and restores every thread"
        );
        self.begin(Reason::Panicked { thread, message });
    }

    /// For a service that did not end in time: restores from the journal if the control thread has not restored
    /// everything. Returns a description of the result.
    pub(crate) fn put_back_instead(&self) -> String {
        let Some(folder) = self.0.journal.get().filter(|_| !self.is_all_back()) else {
            return "every thread is restored to its former scheduler".to_owned();
        };
        match journal::restore_own(folder) {
            Ok(restored) => {
                let failed = restored.failed.iter().map(|failure| format!("; not restored: {failure}"));
                format!("{} threads were restored from the journal{}", restored.threads, failed.collect::<String>())
            }
            Err(error) => format!(
                "cannot restore from the journal, so threads keep their last reservations until the next start: {error}"
            ),
        }
    }

    /// As [`Ending::put_back_instead`], then ends the process. The last step is a SIGKILL, which no thread can
    /// delay.
    pub(crate) fn force(&self) -> ! {
        let outcome = self.put_back_instead();
        // Logging and `exit` may both wait for a lock of the hanging thread, so they run in a thread of their own.
        let log_and_exit = move || {
            tracing::error!(outcome, "a thread of the service hangs; ending the process without it");
            // Gives the log thread time to write the line.
            std::thread::sleep(FINAL_LOG / 2);
            std::process::exit(1)
        };
        if Builder::new().name("qf-last-words".to_owned()).spawn(log_and_exit).is_ok() {
            std::thread::sleep(FINAL_LOG);
        }
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort()
    }
}

thread_local! {
    /// The service whose tasks run in this thread.
    static OWNER: RefCell<Option<Ending>> = const { RefCell::new(None) };
}

/// As [`Ending::guard`], for the owner of a thread. Without an owner, a panic is only contained.
fn guard_for<T>(owner: Option<&Ending>, thread: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    match owner {
        Some(ending) => ending.guard(thread, body),
        None => contain(body).ok(),
    }
}

/// Runs `body` in a worker thread of the runtime. A panic ends the service that owns the calling thread; then there is
/// no result.
pub(crate) async fn worker<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let owner = OWNER.with_borrow(Option::clone);
    let work = move || guard_for(owner.as_ref(), name, body);
    tokio::task::spawn_blocking(work).await.ok().flatten()
}

/// Starts a task in the calling thread's runtime. A panic ends the service that owns the thread.
pub(crate) fn spawn(name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> task::JoinHandle<()> {
    let owner = OWNER.with_borrow(Option::clone);
    let mut task = Box::pin(task);
    let poll = move |context: &mut Context<'_>| {
        guard_for(owner.as_ref(), name, || task.as_mut().poll(context)).unwrap_or(Poll::Ready(()))
    };
    tokio::spawn(poll_fn(poll))
}

/// Why a task has no result. In debug builds a panic of the task ends the process.
pub(crate) fn cause_of(error: task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => contain(|| std::panic::resume_unwind(panic)).map_or_else(|message| message, |()| String::new()),
        Err(error) => error.to_string(),
    }
}

/// Runs `body`. If it panics, returns the panic message; the caller decides what ends with it.
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
    fn a_panic_ends_the_service_and_names_the_thread() {
        let ending = Ending::new().unwrap();
        let thread = ending.spawn("qf-test", || panic!("the {}th wheel", 5)).unwrap();
        thread.join().expect("contained");
        let reason = Reason::Panicked { thread: "qf-test", message: "the 5th wheel".to_owned() };
        assert_eq!(ending.reason(), Some(&reason));
        ending.ask();
        assert_eq!(ending.reason(), Some(&reason), "the first reason stays");
    }

    #[test]
    fn a_running_thread_is_asked_to_end_and_waited_for() {
        let (ask, asked) = std::sync::mpsc::channel();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        let body = move || {
            asked.recv().unwrap();
            ended.store(true, Ordering::Relaxed);
        };
        let running = Ending::new().unwrap().run("qf-test", body, move || ask.send(()).unwrap()).unwrap();
        drop(running);
        assert!(has_ended.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn earlier_and_later_waiters_learn_of_the_end() {
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
