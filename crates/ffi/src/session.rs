//! AQuoSA's shape (Figure 6): init, set, start, end of cycle, end.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use qfabric_client::{Claim, Client, Contract, Foresight, Instant, Late, Nanos, Process, Session};

use crate::contract::set;
use crate::ecalls::{give, take_back};
use crate::overload::{qf_overload, tell_overload};
use crate::own::{OwnController, OwnPredictor};
use crate::status::{Exclusive, Failure, Outcome, QF_STATE, QF_WRONG_THREAD, borrow, put, qf_status, settle, text};

/// A periodic task: first its contract in the making, then its running session.
pub struct qf_session {
    task: Exclusive<Task>,
    /// Calls of the application's functions that were given the handle and have not returned.
    inside: AtomicU32,
}

/// What there is of a task.
pub(crate) struct Task {
    /// None: paced and measured only.
    pub(crate) client: Option<Client>,
    pub(crate) contract: Contract,
    pub(crate) late: Late,
    pub(crate) predictor: Option<OwnPredictor>,
    pub(crate) controller: Option<OwnController>,
    pub(crate) told: Option<Told>,
    running: Option<Running>,
}

struct Running {
    session: Session,
    owner: Owner,
}

impl Task {
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The running session, for the thread that started it.
    fn running(&mut self) -> Result<&mut Session, Failure> {
        let running = self.running.as_mut().ok_or_else(|| Failure::new(QF_STATE, NOT_STARTED))?;
        running.owner.check()?;
        Ok(&mut running.session)
    }

    /// Takes the running session, for its end: by the thread that started it, or by any if that one has ended.
    fn ending(&mut self) -> Result<Option<Session>, Failure> {
        match &self.running {
            Some(running) if !running.owner.has_ended() => running.owner.check()?,
            _ => {}
        }
        Ok(self.running.take().map(|running| running.session))
    }
}

/// The thread that started a session, and measures its jobs.
struct Owner {
    /// Of the thread's own token. Its place in memory stays taken as long as this is there: no later thread has it.
    thread: Weak<()>,
    process: Process,
}

impl Owner {
    fn this_thread() -> Result<Owner, Failure> {
        let process = Process::current().map_err(|error| Failure::new(QF_STATE, error))?;
        Ok(Owner { thread: HERE.with(Arc::downgrade), process })
    }

    fn check(&self) -> Outcome {
        match HERE.try_with(|here| self.thread.as_ptr() == Arc::as_ptr(here)) {
            Ok(true) => Ok(()),
            _ => Err(Failure::new(QF_WRONG_THREAD, "the task was started by another thread; use it there")),
        }
    }

    /// Nobody can use the session any more. In a child of a fork, there is one thread, and not this one if it is another.
    fn has_ended(&self) -> bool {
        self.thread.strong_count() == 0 || !self.process.is_current()
    }
}

thread_local! {
    /// The calling thread's token, which ends with it.
    static HERE: Arc<()> = Arc::new(());
}

/// What is in force, as the daemon last published it. All zero without a reservation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_grant {
    /// Q: CPU time per server period.
    pub budget_ns: u64,
    /// P: the server period.
    pub period_ns: u64,
    /// Scheduling error of the last job the daemon took; negative is early.
    pub error_ns: i64,
    /// Jobs the daemon took so far.
    pub jobs: u64,
}

/// What was achieved so far, as the application sees it. Errors are fractions of the task period.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_quality {
    /// Jobs ended.
    pub jobs: u64,
    /// Of those, after their deadline.
    pub misses: u64,
    /// Fraction of jobs with the scheduling error in the target interval.
    pub in_target: f64,
    /// Mean scheduling error.
    pub mean_error: f64,
    /// Its standard deviation.
    pub sd_error: f64,
    /// Mean of the granted bandwidth.
    pub mean_bandwidth: f64,
    /// 99th percentile of the distance between job ends from the period.
    pub jitter_p99_ns: u64,
}

/// One job of a task started with qf_start_periodic: its number from 0. Returns 0 to go on.
pub type qf_job = Option<extern "C" fn(data: *mut c_void, k: u64) -> c_int>;

/// What is called when an overload begins and when it ends.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) call: extern "C" fn(data: *mut c_void, overload: *const qf_overload),
    pub(crate) data: *mut c_void,
}

pub(crate) const WITHOUT_DAEMON: &str = "the task has no daemon: it was made with qf_init_alone";
const NOT_STARTED: &str = "the task has not been started; call qf_start first";
const INSIDE: &str = "the task is in use by the call that has called this function; free it when that one has returned";

/// Runs `act` on a task.
///
/// # Safety
/// `handle` is null or a live handle.
pub(crate) unsafe fn with<A>(
    handle: *const qf_session,
    act: impl FnOnce(&mut Task) -> Result<A, Failure>,
) -> Result<A, Failure> {
    // SAFETY: passed on.
    unsafe { borrow(handle) }?.task.with(act)
}

/// Runs `act` on a running session.
///
/// # Safety
/// `handle` is null or a live handle.
pub(crate) unsafe fn run(handle: *mut qf_session, act: impl FnOnce(&mut Session) -> Outcome) -> qf_status {
    // SAFETY: passed on.
    settle(unsafe { with(handle, |task| act(task.running()?)) })
}

/// Calls a function of the application that may use the handle, but neither end nor free it: nothing is borrowed.
///
/// # Safety
/// `handle` is a live handle.
pub(crate) unsafe fn outside<A>(handle: *const qf_session, call: impl FnOnce() -> A) -> A {
    // SAFETY: live by the caller's promise; while the count is not 0, `qf_free` frees nothing.
    let inside = unsafe { &(*handle).inside };
    inside.fetch_add(1, Ordering::Relaxed);
    let answer = call();
    inside.fetch_sub(1, Ordering::Relaxed);
    answer
}

/// Finds the daemon of this host: $QFABRIC_SOCKET, or the usual places. `*task` is to be given to qf_free.
///
/// # Safety
/// `task` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_init(task: *mut *mut qf_session) -> qf_status {
    let made = Client::connect().map_err(Failure::from);
    // SAFETY: passed on.
    settle(made.and_then(|client| unsafe { hand_out(task, Some(client)) }))
}

/// Like qf_init, with the daemon that listens at `socket`.
///
/// # Safety
/// `socket` is a zero-terminated string, `task` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_init_at(socket: *const c_char, task: *mut *mut qf_session) -> qf_status {
    // SAFETY: passed on.
    let path = unsafe { text("the socket's path", socket) };
    let made = path.and_then(|path| Ok(Client::connect_to(path)?));
    // SAFETY: passed on.
    settle(made.and_then(|client| unsafe { hand_out(task, Some(client)) }))
}

/// A task without a daemon: paced and measured, without a reservation. Cannot fail for want of a daemon.
///
/// # Safety
/// `task` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_init_alone(task: *mut *mut qf_session) -> qf_status {
    // SAFETY: passed on.
    settle(unsafe { hand_out(task, None) })
}

/// # Safety
/// `task` is null or points to writable memory for a pointer.
unsafe fn hand_out(task: *mut *mut qf_session, client: Option<Client>) -> Outcome {
    let made = Task {
        client,
        contract: Contract::default(),
        late: Late::default(),
        predictor: None,
        controller: None,
        told: None,
        running: None,
    };
    // SAFETY: passed on.
    unsafe { give(task, qf_session { task: Exclusive::new(made), inside: AtomicU32::new(0) }) }
}

/// Admission: puts the calling thread under the contract. Refused with what is free and who holds the rest, and, where
/// hosts lend to each other, with what another one keeps instead: qf_last_offer.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_start(task: *mut qf_session) -> qf_status {
    // SAFETY: passed on.
    unsafe { set(task, |task| start_by(task, None)) }
}

/// By right of a claim, if there is one.
pub(crate) fn start_by(task: &mut Task, claim: Option<&Claim>) -> Outcome {
    let owner = Owner::this_thread()?;
    let contract = task.contract.clone();
    let mut session = match (&task.client, claim) {
        (Some(client), Some(claim)) => Session::claim(client, contract, claim)?,
        (Some(client), None) => Session::start(client, contract)?,
        (None, None) => Session::alone(contract).map_err(Failure::invalid)?,
        (None, Some(_)) => return Err(Failure::new(QF_STATE, WITHOUT_DAEMON)),
    };
    session.on_late(task.late);
    if let Some(own) = task.predictor {
        session.use_predictor(Box::new(own));
    }
    if let Some(own) = task.controller {
        session.use_controller(Box::new(own));
    }
    task.running = Some(Running { session, owner });
    Ok(())
}

/// The first job begins: the origin of the grid of releases. Optional; otherwise qf_start is.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_begin(task: *mut qf_session) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        run(task, |session| {
            session.begin(Foresight::Nothing);
            Ok(())
        })
    }
}

/// As qf_begin, with the first job's release in ns of CLOCK_MONOTONIC as the origin of the grid: for releases that follow a
/// clock of the application's own, such as a start that several players have in common.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_begin_at(task: *mut qf_session, release_ns: u64) -> qf_status {
    // SAFETY: passed on.
    unsafe {
        run(task, |session| {
            session.begin_at(Instant::new(release_ns), Foresight::Nothing);
            Ok(())
        })
    }
}

/// The current job ended. Never blocks; costs about a microsecond.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end_cycle(task: *mut qf_session) -> qf_status {
    // SAFETY: passed on.
    unsafe { run(task, |session| done(session.end_cycle(Foresight::Nothing))) }
}

/// The current job ended; `hint` goes with the next one's computation time, such as the bytes of its frame.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end_cycle_hint(task: *mut qf_session, hint: f64) -> qf_status {
    // SAFETY: passed on.
    unsafe { run(task, |session| done(session.end_cycle(Foresight::Hint(hint)))) }
}

/// The current job ended; the next one will take between `low_ns` and `high_ns` of CPU time.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end_cycle_interval(task: *mut qf_session, low_ns: u64, high_ns: u64) -> qf_status {
    let (low, high) = (Nanos::new(low_ns), Nanos::new(high_ns));
    // SAFETY: passed on.
    unsafe { run(task, |session| done(session.end_cycle(Foresight::Interval { low, high }))) }
}

/// The current job ended; the next one should have `budget_ns` per server period.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end_cycle_budget(task: *mut qf_session, budget_ns: u64) -> qf_status {
    // SAFETY: passed on.
    unsafe { run(task, |session| done(session.end_cycle(Foresight::Budget(Nanos::new(budget_ns))))) }
}

/// Sleeps until the next job's release; at once where it has passed.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_wait_for_next_job(task: *mut qf_session) -> qf_status {
    // SAFETY: passed on.
    let waited = unsafe { run(task, |session| done(session.wait_for_next_job())) };
    // SAFETY: passed on.
    unsafe { tell_overload(task, waited) };
    waited
}

fn done<T>(_: T) -> Outcome {
    Ok(())
}

/// Runs `job` in every period until it returns something else than 0: wait, job, end of cycle.
///
/// # Safety
/// `task` is a live handle; `data` is whatever `job` expects. `job` may use the handle, but cannot free it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_start_periodic(task: *mut qf_session, job: qf_job, data: *mut c_void) -> qf_status {
    let Some(job) = job else { return settle(Err(Failure::invalid("the job is a null pointer"))) };
    loop {
        let mut k = 0;
        let wait = |session: &mut Session| {
            k = session.wait_for_next_job().k;
            Ok(())
        };
        // Borrowed anew each time: `job` may use the handle, too.
        // SAFETY: passed on.
        let waited = unsafe { run(task, wait) };
        // SAFETY: passed on.
        unsafe { tell_overload(task, waited) };
        // SAFETY: a call that succeeded shows that the handle is live.
        if waited != qf_status::QF_OK || unsafe { outside(task, || job(data, k)) } != 0 {
            return waited;
        }
        // SAFETY: passed on.
        unsafe { qf_end_cycle(task) };
    }
}

/// What is in force.
///
/// # Safety
/// `task` is a live handle, `grant` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_get_grant(task: *mut qf_session, grant: *mut qf_grant) -> qf_status {
    let read = |session: &mut Session| {
        let now = session.grant();
        let (budget_ns, period_ns) = (now.budget.get(), now.period.get());
        // SAFETY: passed on.
        unsafe { put("the grant", grant, qf_grant { budget_ns, period_ns, error_ns: now.error_ns, jobs: now.jobs }) }
    };
    // SAFETY: passed on.
    unsafe { run(task, read) }
}

/// What was achieved so far.
///
/// # Safety
/// `task` is a live handle, `quality` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_get_quality(task: *mut qf_session, quality: *mut qf_quality) -> qf_status {
    let read = |session: &mut Session| {
        let row = session.quality();
        let answer = qf_quality {
            jobs: row.jobs,
            misses: row.misses,
            in_target: row.in_target,
            mean_error: row.mean_error,
            sd_error: row.sd_error,
            mean_bandwidth: row.mean_bandwidth,
            jitter_p99_ns: row.jitter_p99_ns,
        };
        // SAFETY: passed on.
        unsafe { put("the quality", quality, answer) }
    };
    // SAFETY: passed on.
    unsafe { run(task, read) }
}

/// Joins the daemon again at once if the connection is lost; otherwise a helper thread does so within a
/// second or two of the daemon's return.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_reconnect(task: *mut qf_session) -> qf_status {
    // SAFETY: passed on.
    unsafe { run(task, |session| Ok(session.reconnect()?)) }
}

/// Ends the contract: the thread goes back to the scheduler it came from. The task can be changed and
/// started again. Only the thread that started it may do that; once that one has ended, any may. In a child made by
/// fork() it only closes the child's copies: the contract is the parent's.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end(task: *mut qf_session) -> qf_status {
    // SAFETY: passed on.
    let ending = unsafe { with(task, Task::ending) };
    settle(ending.and_then(|session| match session {
        None => Err(Failure::new(QF_STATE, NOT_STARTED)),
        Some(session) => Ok(session.end()?),
    }))
}

/// Ends the contract, if there is one, and frees the handle. Null is fine. Frees nothing and says so, with QF_WRONG_THREAD
/// while the task was started by another thread that has not ended, with QF_STATE while a call with this handle has not
/// returned.
///
/// # Safety
/// `task` is null or a live handle, and not used after it was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_free(task: *mut qf_session) -> qf_status {
    if task.is_null() {
        return qf_status::QF_OK;
    }
    // SAFETY: passed on.
    let ended = unsafe { borrow(task) }.and_then(|handle| match handle.inside.load(Ordering::Relaxed) {
        0 => handle.task.with(Task::ending),
        _ => Err(Failure::new(QF_STATE, INSIDE)),
    });
    settle(ended.map(|session| {
        drop(session);
        // SAFETY: made by `hand_out`; no call is inside, and it is not used again by the caller's promise.
        drop(unsafe { take_back(task) });
    }))
}
