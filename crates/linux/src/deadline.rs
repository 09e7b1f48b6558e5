//! The mechanism `deadline`: one SCHED_DEADLINE reservation per thread.
//!
//! Behaviour of the kernel:
//! - A changed budget takes effect at the *next* replenishment, so a decision for a job must be applied before its
//!   release.
//! - A refused increase leaves the old value.
//! - A decrease frees bandwidth at once; a thread that leaves frees its bandwidth at its 0-lag time at the latest.
//!   [`crate::leaving`] explains why a departure can take several steps.
//! - Children of a reserved thread start under SCHED_OTHER with nice 0 (RESET_ON_FORK). Without this flag the kernel
//!   refuses a fork of the thread.
//!
//! ```text
//!            first Some              equal Some: nothing        None
//!  unknown ------------> recorded ------------> reserved ──> leaving ─────> put back, unknown
//!             journal,     |  ^ refused           |   ^ Some   |
//!             then kernel  +--+ stays recorded    |   +--------+ until its state allows it (`advance`)
//!                                                 +-- id now belongs to another thread: Gone ──> unknown
//! ```
//!
//! A thread is identified by its attributes: if the kernel returns exactly the parameters that were set last, it is the
//! same thread (one cheap call, no file). If the kernel returns anything else, the start time in `/proc` decides
//! whether the id now belongs to another thread. Another thread is never changed.
//!
//! Threads that their own program put under a real-time policy are left alone, unless [`Deadline::take_over`] is set: a
//! program with an audio thread under SCHED_FIFO chose that policy, and a reservation would take away the thread's
//! precedence. A reservation that a library copied from a reserved thread to a thread it created (GLib does this) is
//! not such a choice: the new thread is taken over.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use qfabric_types::{Instant, MechanismFeatures, MechanismName, Nanos, Reclaiming, Reservation, Setting, ThreadId};

use crate::journal::{self, Journal, Touched};
use crate::leaving::{self, Account, Watch};
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use crate::{clock, rest, sched_attr, threads};

mod departures;
mod refusal;

use departures::Leaving;
pub(crate) use refusal::{denied, not_recorded, refusal};

/// Largest number of tracked threads; the next one is refused. Bounds memory and the time to put all threads back.
pub const MAX_THREADS: usize = 4_096;
/// Longest time that the end of a service waits for resting threads. A reservation of such a thread before its rest is
/// over is refused.
const LONGEST_END: Nanos = Nanos::from_millis(1_000);

/// Reserves threads of this host under SCHED_DEADLINE. Dropping it puts every thread back.
#[derive(Debug)]
pub struct Deadline {
    journal: Option<Journal>,
    take_over: bool,
    /// The slice of a fair thread whose program chose none; `None` if the kernel does not report it.
    default_slice_ns: Option<u64>,
    threads: HashMap<ThreadId, Held>,
    /// True until the kernel refuses to report the deadline of a server (kernels report it since Linux 7.1).
    reports_deadlines: bool,
    /// Threads that were put back recently: start time, and the time from which they may be reserved again.
    resting: HashMap<ThreadId, (u64, Instant)>,
    /// Time of the next due step of a departure, or of the next check of a suspicious thread.
    next_step: Option<Instant>,
    given_to_the_gone: u64,
}

#[derive(Debug)]
struct Held {
    before: Touched,
    /// Parameters that the kernel accepted last; `None` before the first reservation.
    given: Option<SchedAttr>,
    /// State of its server immediately after it entered the class.
    entered: Option<Account>,
    /// Set if the thread was runnable without budget when it was last checked.
    watch: Option<Watch>,
    /// Set while the thread waits for a state in which it can be put back.
    leaving: Option<Leaving>,
}

impl Default for Deadline {
    fn default() -> Self {
        Deadline::new()
    }
}

impl Deadline {
    /// Works without a journal: after a crash, `qfabric restore` cannot put the threads back.
    pub fn new() -> Self {
        Deadline {
            journal: None,
            take_over: false,
            default_slice_ns: default_slice(),
            reports_deadlines: true,
            threads: HashMap::with_capacity(MAX_THREADS),
            resting: HashMap::new(),
            next_step: None,
            given_to_the_gone: 0,
        }
    }

    /// Records every thread in the journal before the first change to it.
    pub fn with_journal(journal: Journal) -> Self {
        let mut deadline = Deadline::new();
        deadline.journal = Some(journal);
        deadline
    }

    /// Also reserves threads that their own program put under a real-time policy; they are put back exactly, as all
    /// others. By default such threads are refused with [`ApplyError::Foreign`].
    pub fn take_over(mut self, yes: bool) -> Self {
        self.take_over = yes;
        self
    }

    pub fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }

    /// Number of tracked threads.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    fn reserve(&mut self, thread: ThreadId, reservation: Reservation, kind: Reclaiming) -> Result<(), ApplyError> {
        let wanted = SchedAttr::deadline(reservation, kind == Reclaiming::Grub);
        let now = SchedAttr::of(thread).map_err(|e| self.read_failed(thread, &e))?;
        self.cancel_departure(thread, now);
        match self.threads.get(&thread).and_then(|h| h.given) {
            Some(given) if given == now && now == wanted => return Ok(()),
            Some(given) if given == now => self.check_alive(thread, false)?,
            Some(_) => self.check_same_thread(thread, now)?,
            None => self.first_touch(thread, now, reservation)?,
        }
        let held = self.threads.get_mut(&thread).expect("known since the match above");
        if held.given.is_some() && now.policy == Policy::DEADLINE {
            wanted.give(thread).map_err(|e| refusal(thread, reservation, &e))?;
            held.given = Some(wanted);
            return self.check_alive(thread, true);
        }
        let (account, watch) =
            leaving::enter(thread, wanted, held.before.was).map_err(|e| refusal(thread, reservation, &e))?;
        (held.given, held.entered, held.watch) = (Some(wanted), account, watch);
        self.schedule_check(thread);
        self.check_alive(thread, true)
    }

    /// Fails if `thread` is dead. A dead thread that its parent has not reaped still accepts a reservation, and that
    /// bandwidth stays booked for ever: the change cancels the timer that would have subtracted it. The thread is
    /// therefore made weightless. A thread that is reaped before this call is out of reach, so threads are checked
    /// before a change, too.
    fn check_alive(&mut self, thread: ThreadId, just_given: bool) -> Result<(), ApplyError> {
        if threads::start_time(thread).is_some() {
            return Ok(());
        }
        let is_out_of_reach = SchedAttr::weightless().give(thread).is_err();
        self.given_to_the_gone += u64::from(just_given && is_out_of_reach);
        self.forget(thread);
        Err(ApplyError::Gone { thread })
    }

    /// The attributes of `thread` differ from those that were set last. Finds out if the id belongs to another thread
    /// or if the program changed them itself.
    fn check_same_thread(&mut self, thread: ThreadId, now: SchedAttr) -> Result<(), ApplyError> {
        if threads::start_time(thread) != self.threads.get(&thread).map(|h| h.before.start) {
            self.forget(thread);
            return Err(ApplyError::Gone { thread });
        }
        self.check_policy(thread, now)
    }

    fn check_policy(&self, thread: ThreadId, now: SchedAttr) -> Result<(), ApplyError> {
        match now.policy.is_real_time() && !self.take_over {
            true => Err(ApplyError::Foreign { thread, policy: now.policy.name() }),
            false => Ok(()),
        }
    }

    /// True if a library copied the reservation of another thread of the same process: GLib's thread pools copy the
    /// scheduling of the thread that created the pool (`sched_getattr`, then `sched_setattr`). No program chose this
    /// reservation, and its bandwidth would be missing from the broker's accounts.
    fn is_copy(&self, thread: ThreadId, now: SchedAttr) -> bool {
        let alike = |given: SchedAttr| (given.flags, given.period_ns) == (now.flags, now.period_ns);
        let mut alike = self.threads.iter().filter(|(_, held)| held.given.is_some_and(alike));
        let process = || threads::process_of(thread);
        now.policy == Policy::DEADLINE && alike.any(|(other, _)| threads::process_of(*other) == process())
    }

    /// Records the attributes of `thread` before the first change to it.
    fn first_touch(&mut self, thread: ThreadId, now: SchedAttr, asked: Reservation) -> Result<(), ApplyError> {
        // First, because a dead thread keeps its policy until it is reaped: no program chose that policy.
        let start = threads::start_time(thread).ok_or(ApplyError::Gone { thread })?;
        let copied = self.is_copy(thread, now);
        if !copied {
            self.check_policy(thread, now)?;
        }
        let was = if copied { SchedAttr::fair(0) } else { self.as_chosen(now) };
        if self.resting.get(&thread).is_some_and(|&(who, until)| who == start && clock::now() < until) {
            return Err(ApplyError::Busy { thread, asked: asked.share() });
        }
        let before = Touched { tid: thread, start, was, slack_ns: journal::timer_slack(thread) };
        if self.threads.get(&thread).is_some_and(|h| h.before == before) {
            return Ok(());
        }
        if self.threads.len() >= MAX_THREADS {
            return Err(ApplyError::Full { thread, limit: MAX_THREADS });
        }
        if let Some(journal) = &mut self.journal {
            journal.touching(before).map_err(|e| not_recorded(thread, &e))?;
        }
        self.threads.insert(thread, Held { before, given: None, entered: None, watch: None, leaving: None });
        Ok(())
    }

    /// The kernel reports a slice for every fair thread, even if no program chose one. Setting the reported number
    /// would make it a chosen slice.
    fn as_chosen(&self, now: SchedAttr) -> SchedAttr {
        match Some(now.runtime_ns) == self.default_slice_ns && now.policy != Policy::DEADLINE {
            true => SchedAttr { runtime_ns: 0, ..now },
            false => now,
        }
    }

    fn read_failed(&mut self, thread: ThreadId, error: &io::Error) -> ApplyError {
        if error.raw_os_error() == Some(libc::ESRCH) {
            self.forget(thread);
        }
        denied(thread, error)
    }
}

impl Mechanism for Deadline {
    fn name(&self) -> &'static str {
        MechanismName::Deadline.name()
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError> {
        let lacking = setting.terms.beyond_budgets().or(setting.reclaiming.beyond_deadline());
        if let (Some(_), Some(what)) = (setting.reservation, lacking) {
            return Err(ApplyError::Incapable { thread: setting.thread, mechanism: self.name(), what });
        }
        match setting.reservation {
            Some(reservation) => self.reserve(setting.thread, reservation, setting.reclaiming),
            None => self.release(setting.thread),
        }
    }

    fn server_deadline(&mut self, thread: ThreadId) -> Option<Instant> {
        self.threads.get(&thread).filter(|held| self.reports_deadlines && held.given.is_some())?;
        match sched_attr::remaining(thread) {
            Ok((_, deadline)) => Some(deadline),
            // EINVAL proves an older kernel only if the thread is under SCHED_DEADLINE.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.reports_deadlines = SchedAttr::of(thread).is_ok_and(|now| now.policy != Policy::DEADLINE);
                None
            }
            Err(_) => None,
        }
    }

    fn features(&self) -> MechanismFeatures {
        MechanismFeatures { gives_back: rest::can_tell(), ..MechanismFeatures::default() }
    }

    fn is_at_rest(&self, thread: ThreadId) -> bool {
        self.threads.contains_key(&thread) && rest::is_at_rest(thread)
    }

    fn forget(&mut self, thread: ThreadId) {
        if self.threads.remove(&thread).is_some()
            && let Some(journal) = &mut self.journal
        {
            // If this line is not written, a later restore reads /proc once more for a thread that is gone.
            let _ = journal.released(thread);
        }
    }

    fn born(&mut self, child: ThreadId, parent: ThreadId) {
        let was = self.threads.get(&parent).filter(|h| h.given.is_some()).map(|h| h.before.was);
        let Some(was) = was.filter(|w| !w.policy.is_real_time() && w.flags & RESET_ON_FORK == 0) else { return };
        if was != SchedAttr::fair(0) && SchedAttr::of(child).is_ok_and(|c| !c.policy.is_real_time()) {
            let _ = was.give(child); // if the child is gone or the call is not allowed, the child keeps nice 0
        }
    }

    /// Reads one `/proc` file for each thread, and two more for each runnable thread.
    fn tend(&mut self) -> Vec<ThreadId> {
        let threads: Vec<_> = self.threads.keys().copied().collect();
        threads.into_iter().filter(|t| self.clear_mark_if_stuck(*t)).collect()
    }

    fn next_step(&self) -> Option<Instant> {
        self.next_step
    }

    fn is_leaving(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|held| held.leaving.is_some())
    }

    fn given_to_the_gone(&self) -> u64 {
        self.given_to_the_gone
    }

    fn advance(&mut self, now: Instant) -> Vec<ApplyError> {
        self.advance_all(now)
    }

    /// Waits for threads that sleep in an overrun: usually one period, at most 2 s or two periods.
    fn restore_all(&mut self) -> Vec<ApplyError> {
        let threads: Vec<_> = self.threads.keys().copied().collect();
        let mut failed: Vec<_> = threads.into_iter().filter_map(|t| self.release(t).err()).collect();
        failed.extend(self.settle());
        failed.retain(|e| !matches!(e, ApplyError::Gone { .. }));
        failed
    }
}

impl Drop for Deadline {
    /// Returns when the threads that continue may be reserved again, at most `LONGEST_END` later.
    fn drop(&mut self) {
        for error in self.restore_all() {
            tracing::error!(%error, "a thread could not be put back; `qfabric restore` tries again");
        }
        std::thread::sleep(Duration::from_nanos(self.rest_at_the_end().get()));
    }
}

/// The slice that the kernel reports for a thread whose program chose none.
fn default_slice() -> Option<u64> {
    let ask = || {
        let me = ThreadId(0);
        SchedAttr::fair(0).give(me).ok()?;
        Some(SchedAttr::of(me).ok()?.runtime_ns).filter(|&ns| ns > 0)
    };
    std::thread::Builder::new().spawn(ask).ok()?.join().ok()?
}
