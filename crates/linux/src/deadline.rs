//! The mechanism `deadline`: one SCHED_DEADLINE reservation per thread.
//!
//! What the kernel does with it: a changed budget takes effect at the *next* replenishment, so a decision for
//! a job must be carried out before that job's release. A refused increase leaves the old value. A decrease
//! makes room at once, a leaving thread at its 0-lag time at the latest ([`crate::leaving`] says why leaving takes
//! several steps at times). Children of a reserved thread start under SCHED_OTHER with nice 0 (RESET_ON_FORK; without it such a thread could not fork at all).
//!
//! ```text
//!            first Some              equal Some: nothing        None
//!  unknown ------------> recorded ------------> reserved ──> leaving ─────> put back, unknown
//!             journal,     |  ^ refused           |   ^ Some   |
//!             then kernel  +--+ stays recorded    |   +--------+ until its state allows it (`advance`)
//!                                                 +-- number now another thread's: Gone ──> unknown
//! ```
//!
//! A thread is recognised by what it has: while the kernel answers the very parameters given last, it is the
//! thread they were given to (one cheap call, no file). Where it answers something else, the start time in
//! `/proc` decides whether the number belongs to another thread by now, which is never touched.
//!
//! Threads that their program itself put under a real-time policy are left alone, unless
//! [`Deadline::take_over`] is asked for: a program with an audio thread under SCHED_FIFO knows what it does, and
//! a reservation would take that thread's precedence away. A reservation that a library copied from a thread reserved
//! here to one that it made (GLib does) is no such choice: the new thread is taken over.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use qfabric_types::{Abilities, Instant, MechanismName, Nanos, Reclaiming, Reservation, Setting, ThreadId};

use crate::journal::{self, Journal, Touched};
use crate::leaving::{self, Account, Watch};
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use crate::{clock, rest, sched_attr, threads};

mod parting;
mod refusal;

use parting::Leaving;
pub(crate) use refusal::refusal;
use refusal::{denied, not_recorded};

/// So many threads are kept track of; the next one is refused. Bounds memory and the time of putting back.
pub const MAX_THREADS: usize = 4_096;
/// The end of a service does not wait longer than this for threads that rest; who reserves them too early is refused.
const LONGEST_END: Nanos = Nanos::from_millis(1_000);

/// SCHED_DEADLINE on threads of this host. Dropping it puts every thread back.
#[derive(Debug)]
pub struct Deadline {
    journal: Option<Journal>,
    take_over: bool,
    /// What a fair thread's slice is when nobody chose one; `None` where the kernel does not say.
    default_slice_ns: Option<u64>,
    threads: HashMap<ThreadId, Held>,
    /// The kernel tells deadlines of servers (since Linux 7.1); assumed until it refuses one.
    tells_deadlines: bool,
    /// Threads put back a moment ago, by start time, and when they may be reserved again.
    resting: HashMap<ThreadId, (u64, Instant)>,
    /// When the next step of a departure, or the next look at a suspicious thread, is due.
    next_step: Option<Instant>,
    given_to_the_gone: u64,
}

#[derive(Debug)]
struct Held {
    before: Touched,
    /// What the kernel accepted last; `None`: nothing yet.
    given: Option<SchedAttr>,
    /// Its server right after it entered the class.
    entered: Option<Account>,
    /// It was last seen runnable without budget.
    watch: Option<Watch>,
    /// It is to be put back, as soon as its state allows that.
    leaving: Option<Leaving>,
}

impl Default for Deadline {
    fn default() -> Self {
        Deadline::new()
    }
}

impl Deadline {
    /// Without a journal: what a crash leaves stays.
    pub fn new() -> Self {
        Deadline {
            journal: None,
            take_over: false,
            default_slice_ns: default_slice(),
            tells_deadlines: true,
            threads: HashMap::with_capacity(MAX_THREADS),
            resting: HashMap::new(),
            next_step: None,
            given_to_the_gone: 0,
        }
    }

    /// Every thread is written into the journal before it is first touched.
    pub fn with_journal(journal: Journal) -> Self {
        let mut deadline = Deadline::new();
        deadline.journal = Some(journal);
        deadline
    }

    /// Also reserve for threads that their program put under a real-time policy itself (put back exactly, like
    /// all others). Default: refuse them as [`ApplyError::Foreign`].
    pub fn take_over(mut self, yes: bool) -> Self {
        self.take_over = yes;
        self
    }

    /// The journal, for recording changes of host settings.
    pub fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }

    /// How many threads are kept track of.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether no thread is kept track of.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Reservations that the kernel took for threads which were gone right after. Those that died before the kernel booked
    /// them, in the very call, stay booked for nobody; no call reaches them any more.
    pub fn given_to_the_gone(&self) -> u64 {
        self.given_to_the_gone
    }

    fn reserve(&mut self, thread: ThreadId, reservation: Reservation, kind: Reclaiming) -> Result<(), ApplyError> {
        let wanted = SchedAttr::deadline(reservation, kind == Reclaiming::Grub);
        let now = SchedAttr::of(thread).map_err(|e| self.read_failed(thread, &e))?;
        self.stay(thread, now);
        match self.threads.get(&thread).and_then(|h| h.given) {
            Some(given) if given == now && now == wanted => return Ok(()),
            Some(given) if given == now => self.check_alive(thread, false)?,
            Some(_) => self.still_the_same(thread, now)?,
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
        self.look_again(thread);
        self.check_alive(thread, true)
    }

    /// A dead thread that its parent has not reaped takes a reservation, and what is booked then stays booked for
    /// ever: its timer, which would have subtracted, is cancelled by the change. Weightless, it has nothing to lose. Reaped
    /// in between, it is out of reach: so it is looked at before a change, too, not only when it was just given something.
    fn check_alive(&mut self, thread: ThreadId, just_given: bool) -> Result<(), ApplyError> {
        if threads::start_time(thread).is_some() {
            return Ok(());
        }
        let is_out_of_reach = SchedAttr::weightless().give(thread).is_err();
        self.given_to_the_gone += u64::from(just_given && is_out_of_reach);
        self.forget(thread);
        Err(ApplyError::Gone { thread })
    }

    /// Its attributes are not those given last: another thread, or the program's own doing?
    fn still_the_same(&mut self, thread: ThreadId, now: SchedAttr) -> Result<(), ApplyError> {
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

    /// Whether a library gave the thread what another thread of its process has from here: GLib's thread pools copy
    /// the scheduling of the thread that made the pool (`sched_getattr`, then `sched_setattr`). Nobody chose that, and
    /// left alone it would hold bandwidth that is in no books.
    fn is_copy(&self, thread: ThreadId, now: SchedAttr) -> bool {
        let alike = |given: SchedAttr| (given.flags, given.period_ns) == (now.flags, now.period_ns);
        let mut alike = self.threads.iter().filter(|(_, held)| held.given.is_some_and(alike));
        let process = || threads::process_of(thread);
        now.policy == Policy::DEADLINE && alike.any(|(other, _)| threads::process_of(*other) == process())
    }

    /// Records what it is before it is touched for the first time.
    fn first_touch(&mut self, thread: ThreadId, now: SchedAttr, asked: Reservation) -> Result<(), ApplyError> {
        let copied = self.is_copy(thread, now);
        if !copied {
            self.check_policy(thread, now)?;
        }
        let was = if copied { SchedAttr::fair(0) } else { self.as_chosen(now) };
        let gone = ApplyError::Gone { thread };
        let start = threads::start_time(thread).ok_or(gone)?;
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

    /// The kernel answers a fair thread's slice also where nobody chose it; setting that number would make it
    /// a chosen one.
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
        self.threads.get(&thread).filter(|held| self.tells_deadlines && held.given.is_some())?;
        match sched_attr::remaining(thread) {
            Ok((_, deadline)) => Some(deadline),
            // EINVAL means an older kernel only where the thread really is under SCHED_DEADLINE.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.tells_deadlines = SchedAttr::of(thread).is_ok_and(|now| now.policy != Policy::DEADLINE);
                None
            }
            Err(_) => None,
        }
    }

    fn abilities(&self) -> Abilities {
        Abilities { gives_back: rest::can_tell(), ..Abilities::default() }
    }

    fn is_at_rest(&self, thread: ThreadId) -> bool {
        self.threads.contains_key(&thread) && rest::is_at_rest(thread)
    }

    fn forget(&mut self, thread: ThreadId) {
        if self.threads.remove(&thread).is_some()
            && let Some(journal) = &mut self.journal
        {
            // A line too few here costs one look at a gone thread when restoring.
            let _ = journal.released(thread);
        }
    }

    fn born(&mut self, child: ThreadId, parent: ThreadId) {
        let was = self.threads.get(&parent).filter(|h| h.given.is_some()).map(|h| h.before.was);
        let Some(was) = was.filter(|w| !w.policy.is_real_time() && w.flags & RESET_ON_FORK == 0) else { return };
        if was != SchedAttr::fair(0) && SchedAttr::of(child).is_ok_and(|c| !c.policy.is_real_time()) {
            let _ = was.give(child); // gone again, or not allowed: then it keeps nice 0
        }
    }

    /// Costs a look into `/proc` for each thread, and two more for those that are runnable.
    fn tend(&mut self) -> Vec<ThreadId> {
        let threads: Vec<_> = self.threads.keys().copied().collect();
        threads.into_iter().filter(|t| self.wash_if_stuck(*t)).collect()
    }

    fn next_step(&self) -> Option<Instant> {
        self.next_step
    }

    fn is_leaving(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|held| held.leaving.is_some())
    }

    fn advance(&mut self, now: Instant) -> Vec<ApplyError> {
        self.advance_all(now)
    }

    /// Waits for threads that sleep in an overrun: a period as a rule, 2 s or two periods at most.
    fn restore_all(&mut self) -> Vec<ApplyError> {
        let threads: Vec<_> = self.threads.keys().copied().collect();
        let mut failed: Vec<_> = threads.into_iter().filter_map(|t| self.release(t).err()).collect();
        failed.extend(self.settle());
        failed.retain(|e| !matches!(e, ApplyError::Gone { .. }));
        failed
    }
}

impl Drop for Deadline {
    /// Returns when the threads that go on may be reserved again, at most `LONGEST_END` later.
    fn drop(&mut self) {
        for error in self.restore_all() {
            tracing::error!(%error, "a thread was not put back; `qfabric restore` tries again");
        }
        std::thread::sleep(Duration::from_nanos(self.rest_at_the_end().get()));
    }
}

/// What the kernel answers for a thread whose slice nobody chose.
fn default_slice() -> Option<u64> {
    let ask = || {
        let me = ThreadId(0);
        SchedAttr::fair(0).give(me).ok()?;
        Some(SchedAttr::of(me).ok()?.runtime_ns).filter(|&ns| ns > 0)
    };
    std::thread::Builder::new().spawn(ask).ok()?.join().ok()?
}
