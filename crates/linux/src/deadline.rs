//! The mechanism `deadline`: one SCHED_DEADLINE reservation per thread.
//!
//! What the kernel does with it: a changed budget takes effect at the *next* replenishment, so a decision for
//! a job must be carried out before that job's release. A refused increase leaves the old value. A decrease
//! and a leaving thread make room at once ([`SchedAttr::give_leaving`] says why the latter is not simple). Children of a reserved thread
//! start under SCHED_OTHER with nice 0 (RESET_ON_FORK; without it such a thread could not fork at all).
//!
//! ```text
//!            first Some              equal Some: nothing        None
//!  unknown ------------> recorded ------------> reserved -----------------> put back, unknown
//!             journal,     |  ^ refused           |  number now another
//!             then kernel  +--+ stays recorded    +--thread's: Gone-------> unknown
//! ```
//!
//! A thread is recognised by what it has: while the kernel answers the very parameters given last, it is the
//! thread they were given to (one cheap call, no file). Where it answers something else, the start time in
//! `/proc` decides whether the number belongs to another thread by now, which is never touched.
//!
//! Threads that their program itself put under a real-time policy are left alone, unless
//! [`Deadline::take_over`] is asked for: a program with an audio thread under SCHED_FIFO knows what it does, and
//! a reservation would take that thread's precedence away.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Setting, ThreadId};
use rustix::thread::CapabilitySet;

use crate::cgroup;
use crate::cpus::CpuList;
use crate::journal::{self, Journal, JournalError, Touched};
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use crate::{capability, clock, threads};

/// So many threads are kept track of; the next one is refused. Bounds memory and the time of putting back.
pub const MAX_THREADS: usize = 4_096;

/// SCHED_DEADLINE on threads of this host. Dropping it puts every thread back.
#[derive(Debug)]
pub struct Deadline {
    journal: Option<Journal>,
    take_over: bool,
    /// What a fair thread's slice is when nobody chose one; `None` where the kernel does not say.
    default_slice_ns: Option<u64>,
    threads: HashMap<ThreadId, Held>,
    /// Threads put back a moment ago, by start time, and when they may be reserved again.
    resting: HashMap<ThreadId, (u64, Instant)>,
}

#[derive(Debug)]
struct Held {
    before: Touched,
    /// What the kernel accepted last; `None`: nothing yet.
    given: Option<SchedAttr>,
    /// Its CPU time when it was last tended and found waiting for a CPU.
    waiting_at: Option<u64>,
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
            threads: HashMap::with_capacity(MAX_THREADS),
            resting: HashMap::new(),
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

    fn reserve(&mut self, thread: ThreadId, reservation: Reservation, kind: Reclaiming) -> Result<(), ApplyError> {
        let wanted = SchedAttr::deadline(reservation, kind == Reclaiming::Grub);
        let now = SchedAttr::of(thread).map_err(|e| self.read_failed(thread, &e))?;
        match self.threads.get(&thread).and_then(|h| h.given) {
            Some(given) if given == now && now == wanted => return Ok(()),
            Some(given) if given == now => {}
            Some(_) => self.still_the_same(thread, now)?,
            None => self.first_touch(thread, now, reservation)?,
        }
        wanted.give(thread).map_err(|e| refusal(thread, reservation, &e))?;
        let held = self.threads.get_mut(&thread).expect("known since the match above");
        match held.given.replace(wanted) {
            Some(_) => Ok(()),
            None => self.check_alive(thread),
        }
    }

    /// A thread that died while it was first touched would stay booked for ever.
    fn check_alive(&mut self, thread: ThreadId) -> Result<(), ApplyError> {
        if threads::start_time(thread).is_some() {
            return Ok(());
        }
        let _ = SchedAttr::weightless().give(thread);
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

    /// Records what it is before it is touched for the first time.
    fn first_touch(&mut self, thread: ThreadId, now: SchedAttr, asked: Reservation) -> Result<(), ApplyError> {
        self.check_policy(thread, now)?;
        let gone = ApplyError::Gone { thread };
        let start = threads::start_time(thread).ok_or(gone)?;
        if self.resting.get(&thread).is_some_and(|&(who, until)| who == start && clock::now() < until) {
            return Err(ApplyError::Busy { thread, asked: asked.share() });
        }
        let before = Touched { tid: thread, start, was: self.as_chosen(now), slack_ns: journal::timer_slack(thread) };
        if self.threads.get(&thread).is_some_and(|h| h.before == before) {
            return Ok(());
        }
        if self.threads.len() >= MAX_THREADS {
            return Err(ApplyError::Full { thread, limit: MAX_THREADS });
        }
        if let Some(journal) = &mut self.journal {
            journal.touching(before).map_err(|e| not_recorded(thread, &e))?;
        }
        self.threads.insert(thread, Held { before, given: None, waiting_at: None });
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

    fn release(&mut self, thread: ThreadId) -> Result<(), ApplyError> {
        let Some(held) = self.threads.get(&thread) else { return Ok(()) };
        if held.given.is_some() {
            let alive = threads::start_time(thread) == Some(held.before.start);
            let put_back = journal::put_back(&held.before);
            if !alive {
                self.forget(thread);
                return Err(ApplyError::Gone { thread });
            }
            let (start, until_clean) = (held.before.start, put_back.map_err(|e| denied(thread, &e))?);
            self.rest(thread, start, until_clean.unwrap_or_default());
        }
        self.forget(thread);
        Ok(())
    }

    /// See [`SchedAttr::give_leaving`] for why.
    fn rest(&mut self, thread: ThreadId, start: u64, time: Nanos) {
        let now = clock::now();
        self.resting.retain(|_, (_, until)| now < *until);
        self.resting.insert(thread, (start, now + time));
    }

    /// A thread that was waiting for a CPU both now and when it was last looked at, and has not run in between, is
    /// marked as throttled with nothing to wake it (the second trap of [`SchedAttr::give_leaving`], whoever
    /// took it out of the class). Its 0-lag time is long past, so leaving and coming back cleans it.
    fn rescue(&mut self, thread: ThreadId) -> bool {
        let Some(held) = self.threads.get_mut(&thread) else { return false };
        let Some(given) = held.given else { return false };
        let waiting = threads::cpu_time(thread).filter(|_| !threads::is_asleep(thread));
        let stuck = waiting.is_some() && std::mem::replace(&mut held.waiting_at, waiting) == waiting;
        if !stuck || SchedAttr::of(thread).ok() != Some(given) {
            return false;
        }
        held.waiting_at = None;
        SchedAttr::fair(0).give(thread).and_then(|()| given.give(thread)).is_ok()
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
        "deadline"
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

    /// Costs two looks into `/proc` for each thread. A thread that is merely starved for a second, which admission
    /// rules out, loses nothing by being taken for a forgotten one.
    fn tend(&mut self) -> Vec<ThreadId> {
        let threads: Vec<_> = self.threads.keys().copied().collect();
        threads.into_iter().filter(|t| self.rescue(*t)).collect()
    }

    fn restore_all(&mut self) -> Vec<ApplyError> {
        let threads: Vec<_> = self.threads.keys().copied().collect();
        let failed = threads.into_iter().filter_map(|t| self.release(t).err());
        failed.filter(|e| !matches!(e, ApplyError::Gone { .. })).collect()
    }
}

impl Drop for Deadline {
    /// Returns when the threads that go on may be reserved again, at most a second later.
    fn drop(&mut self) {
        for error in self.restore_all() {
            tracing::error!(%error, "a thread was not put back; `qfabric restore` tries again");
        }
        let alive = |(thread, (start, _)): &(&ThreadId, &(u64, Instant))| threads::start_time(**thread) == Some(*start);
        let until = self.resting.iter().filter(alive).map(|(_, (_, until))| *until).max();
        let rest = until.map_or(Nanos::ZERO, |until| until.since(clock::now()));
        std::thread::sleep(Duration::from_nanos(rest.get()));
    }
}

/// What the kernel's refusal means.
fn refusal(thread: ThreadId, reservation: Reservation, error: &io::Error) -> ApplyError {
    match error.raw_os_error() {
        Some(libc::EBUSY) => ApplyError::Busy { thread, asked: reservation.share() },
        Some(libc::EPERM) => no_right(thread),
        _ => denied(thread, error),
    }
}

/// EPERM has four causes; each has another way out.
fn no_right(thread: ThreadId) -> ApplyError {
    let errno = libc::EPERM;
    if !capability::held(CapabilitySet::SYS_NICE) {
        let why = "this process lacks CAP_SYS_NICE (in the host's own user namespace)".into();
        let fix = "run it as root, or setcap cap_sys_nice=ep on it, or AmbientCapabilities=CAP_SYS_NICE in its unit";
        return ApplyError::Denied { thread, errno, why, fix: fix.into() };
    }
    if cgroup::rt_runtime_us() == Some(0) {
        let why = "kernel.sched_rt_runtime_us is 0: no time for real-time threads at all".into();
        return ApplyError::Denied { thread, errno, why, fix: "sysctl kernel.sched_rt_runtime_us=950000".into() };
    }
    let needed = cgroup::root_domain(thread.0);
    match CpuList::allowed(thread.0) {
        Some(mask) if !mask.contains_all(&needed) => ApplyError::Affinity { thread, mask, needed },
        Some(mask) => {
            let why = format!("though it holds CAP_SYS_NICE and the thread may run on CPUs {mask}");
            let fix = "look for a seccomp filter, a container or a security module that forbids sched_setattr";
            ApplyError::Denied { thread, errno, why, fix: fix.into() }
        }
        None => ApplyError::Gone { thread },
    }
}

fn denied(thread: ThreadId, error: &io::Error) -> ApplyError {
    let errno = error.raw_os_error().unwrap_or(0);
    let (why, fix) = match errno {
        libc::ESRCH => return ApplyError::Gone { thread },
        libc::EPERM => return no_right(thread),
        libc::EINVAL => (
            format!("the kernel takes periods between {} only", cgroup::period_range()),
            "choose another server period, or change kernel.sched_deadline_period_{min,max}_us",
        ),
        libc::ENOSYS => ("this kernel has no sched_setattr".to_owned(), "use Linux 3.14 or later"),
        _ => (error.to_string(), "see sched_setattr(2)"),
    };
    ApplyError::Denied { thread, errno, why, fix: fix.into() }
}

fn not_recorded(thread: ThreadId, error: &JournalError) -> ApplyError {
    let why = format!("it could not be recorded, so it was not touched: {error}");
    ApplyError::Denied { thread, errno: libc::EIO, why, fix: "make room in the run folder".into() }
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
