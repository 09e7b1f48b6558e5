//! Periodic tasks as in AQuoSA (Figure 6): init, set, start, end of cycle, end.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use qfabric_client::{
    BitRate, Claim, Client, ClientError, Contract, Foresight, Instant, LatePolicy, Nanos, Process, Session,
};

use crate::contract::set;
use crate::ecalls::{give, take_back};
use crate::overload::{qf_overload, report_overload};
use crate::own::{OwnController, OwnPredictor};
use crate::status::{Exclusive, Failure, Outcome, QF_STATE, QF_WRONG_THREAD, borrow, put, qf_status, settle, text};

/// A periodic task: a contract that can be changed, and after qf_start a running session.
pub struct qf_session {
    task: Exclusive<Task>,
    /// Number of application callbacks that received the handle and have not returned.
    inside: AtomicU32,
}

/// State of a task.
pub(crate) struct Task {
    /// None: the task is paced and measured, without a reservation.
    pub(crate) client: Option<Client>,
    pub(crate) contract: Contract,
    pub(crate) late: LatePolicy,
    pub(crate) predictor: Option<OwnPredictor>,
    pub(crate) controller: Option<OwnController>,
    pub(crate) on_overload: Option<OverloadCallback>,
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

    /// The running session, for the thread that started it; QF_WRONG_THREAD for another thread.
    fn running(&mut self) -> Result<&mut Session, Failure> {
        let running = self.running.as_mut().ok_or_else(|| Failure::new(QF_STATE, NOT_STARTED))?;
        running.owner.check()?;
        Ok(&mut running.session)
    }

    /// Takes the running session to end it. Any thread may do so if the starting thread has ended.
    fn ending(&mut self) -> Result<Option<Session>, Failure> {
        match &self.running {
            Some(running) if !running.owner.has_ended() => running.owner.check()?,
            _ => {}
        }
        Ok(self.running.take().map(|running| running.session))
    }
}

/// The thread that started a session; the session measures the jobs of this thread.
struct Owner {
    /// Weak reference to the thread's token. It keeps the token's address in use, so no later thread gets the same
    /// address.
    thread: Weak<()>,
    process: Process,
}

impl Owner {
    fn this_thread() -> Result<Owner, Failure> {
        let process = Process::current().map_err(|error| Failure::new(QF_STATE, error))?;
        let ending = |_| Failure::new(QF_STATE, "the calling thread ends; start the task in another thread");
        Ok(Owner { thread: HERE.try_with(Arc::downgrade).map_err(ending)?, process })
    }

    fn check(&self) -> Outcome {
        match HERE.try_with(|here| self.thread.as_ptr() == Arc::as_ptr(here)) {
            Ok(true) => Ok(()),
            _ => Err(Failure::new(QF_WRONG_THREAD, "the task was started by another thread; use it there")),
        }
    }

    /// True if the starting thread no longer exists. A child of a fork has only the thread that called fork, so it
    /// may end the session of any thread.
    fn has_ended(&self) -> bool {
        self.thread.strong_count() == 0 || !self.process.is_current()
    }
}

thread_local! {
    /// Token of the calling thread; dropped when the thread ends.
    static HERE: Arc<()> = Arc::new(());
}

/// The reservation in force, as the daemon last published it. All zero without a reservation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_grant {
    /// Q: CPU time per server period.
    pub budget_ns: u64,
    /// P: the server period.
    pub period_ns: u64,
    /// Scheduling error of the last job that the daemon processed, in nanoseconds; negative if the job was early.
    pub error_ns: i64,
    /// Number of jobs that the daemon has processed.
    pub jobs: u64,
}

/// Results of the task so far, measured by the library. Errors are fractions of the task period.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct qf_quality {
    /// Jobs that have ended.
    pub jobs: u64,
    /// Jobs that ended after their deadline.
    pub misses: u64,
    /// Fraction of jobs with the scheduling error in the target interval.
    pub in_target: f64,
    /// Mean scheduling error.
    pub mean_error: f64,
    /// Standard deviation of the scheduling error.
    pub sd_error: f64,
    /// Mean granted bandwidth, a fraction of one CPU.
    pub mean_bandwidth: f64,
    /// 99th percentile of the jitter: the difference between the period and the time between two successive job ends.
    pub jitter_p99_ns: u64,
}

/// Runs job number `k` (from 0) of a task started with qf_start_periodic. Return 0 to continue.
pub type qf_job = Option<extern "C" fn(data: *mut c_void, k: u64) -> c_int>;

/// Callback for the begin and the end of an overload.
#[derive(Clone, Copy)]
pub(crate) struct OverloadCallback {
    pub(crate) call: extern "C" fn(data: *mut c_void, overload: *const qf_overload),
    pub(crate) data: *mut c_void,
}

pub(crate) const WITHOUT_DAEMON: &str = "the task has no daemon: it was made with qf_init_alone";
const NOT_STARTED: &str = "the task has not been started; call qf_start first";
const INSIDE: &str =
    "the task is in use by the call that has called this function; call qf_free after that call returns";

/// Runs `act` on a task.
///
/// # Safety
/// `handle` is null or a live handle.
pub(crate) unsafe fn with<A>(
    handle: *const qf_session,
    act: impl FnOnce(&mut Task) -> Result<A, Failure>,
) -> Result<A, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(handle) }?.task.with(act)
}

/// Runs `act` on a running session.
///
/// # Safety
/// `handle` is null or a live handle.
pub(crate) unsafe fn run(handle: *mut qf_session, act: impl FnOnce(&mut Session) -> Outcome) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { with(handle, |task| act(task.running()?)) })
}

/// Calls a function of the application. Nothing is borrowed meanwhile: the function may use the handle, but not free
/// it.
///
/// # Safety
/// `handle` is a live handle.
pub(crate) unsafe fn outside<A>(handle: *const qf_session, call: impl FnOnce() -> A) -> A {
    // SAFETY: live as the caller guarantees; while the count is not 0, `qf_free` frees nothing.
    let inside = unsafe { &(*handle).inside };
    inside.fetch_add(1, Ordering::Relaxed);
    let answer = call();
    inside.fetch_sub(1, Ordering::Relaxed);
    answer
}

/// Finds the daemon of this host: at $QFABRIC_SOCKET, or at the default sockets. Free `*task` with qf_free.
///
/// # Safety
/// `task` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_init(task: *mut *mut qf_session) -> qf_status {
    let made = Client::connect().map_err(Failure::from);
    // SAFETY: the caller guarantees it.
    settle(made.and_then(|client| unsafe { hand_out(task, Some(client)) }))
}

/// Like qf_init, for the daemon that listens at `socket`.
///
/// # Safety
/// `socket` is a zero-terminated string, `task` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_init_at(socket: *const c_char, task: *mut *mut qf_session) -> qf_status {
    // SAFETY: the caller guarantees it.
    let path = unsafe { text("the socket's path", socket) };
    let made = path.and_then(|path| Ok(Client::connect_to(path)?));
    // SAFETY: the caller guarantees it.
    settle(made.and_then(|client| unsafe { hand_out(task, Some(client)) }))
}

/// Makes a task without a daemon: it is paced and measured, without a reservation.
///
/// # Safety
/// `task` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_init_alone(task: *mut *mut qf_session) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { hand_out(task, None) })
}

/// # Safety
/// `task` is null or points to writable memory for a pointer.
unsafe fn hand_out(task: *mut *mut qf_session, client: Option<Client>) -> Outcome {
    let made = Task {
        client,
        contract: Contract::default(),
        late: LatePolicy::default(),
        predictor: None,
        controller: None,
        on_overload: None,
        running: None,
    };
    // SAFETY: the caller guarantees it.
    unsafe { give(task, qf_session { task: Exclusive::new(made), inside: AtomicU32::new(0) }) }
}

/// Admission: puts the calling thread under the contract. A refusal names the free capacity and its holders. If hosts
/// lend to each other, the refusal can have an offer of another host: see qf_last_offer.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_start(task: *mut qf_session) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { set(task, |task| start_by(task, None, None)) }
}

/// Like qf_start. If this host refuses the task and another one lends, the loan also has `rate_bps` (bits per second)
/// out of a link of that host: see qf_last_offer_rate. On this host, a stream reserves the rate.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_start_with_rate(task: *mut qf_session, rate_bps: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { set(task, |task| start_by(task, None, Some(BitRate::new(rate_bps)))) }
}

/// Starts the session, with a loan if there is a claim. `rate`: of the loan that another host may offer.
pub(crate) fn start_by(task: &mut Task, claim: Option<&Claim>, rate: Option<BitRate>) -> Outcome {
    let owner = Owner::this_thread()?;
    let contract = task.contract.clone();
    let mut session = match (&task.client, claim, rate) {
        (Some(client), Some(claim), _) => Session::claim(client, contract, claim)?,
        (Some(client), None, Some(rate)) => Session::start_with_rate(client, contract, rate)?,
        (Some(client), None, None) => Session::start(client, contract)?,
        (None, None, _) => Session::alone(contract).map_err(ClientError::from)?,
        (None, Some(_), _) => return Err(Failure::new(QF_STATE, WITHOUT_DAEMON)),
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

/// Begins the first job now. This time is the first release, from which all releases are counted. Optional: without
/// this call the time of qf_start is the first release.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_begin(task: *mut qf_session) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        run(task, |session| {
            session.begin(Foresight::Nothing);
            Ok(())
        })
    }
}

/// Like qf_begin, with the first release at `release_ns` of CLOCK_MONOTONIC. Use it if releases follow a clock of the
/// application, such as a common start of several players.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_begin_at(task: *mut qf_session, release_ns: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        run(task, |session| {
            session.begin_at(Instant::new(release_ns), Foresight::Nothing);
            Ok(())
        })
    }
}

/// Ends the current job. Never blocks; takes about a microsecond.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end_cycle(task: *mut qf_session) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { run(task, |session| done(session.end_cycle(Foresight::Nothing))) }
}

/// Ends the current job. `hint` is a number that goes with the cost of the next job, such as the size of its frame in
/// bytes.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end_cycle_hint(task: *mut qf_session, hint: f64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { run(task, |session| done(session.end_cycle(Foresight::Hint(hint)))) }
}

/// Ends the current job. The next job will use between `low_ns` and `high_ns` of CPU time.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end_cycle_interval(task: *mut qf_session, low_ns: u64, high_ns: u64) -> qf_status {
    let (low, high) = (Nanos::new(low_ns), Nanos::new(high_ns));
    // SAFETY: the caller guarantees it.
    unsafe { run(task, |session| done(session.end_cycle(Foresight::Interval { low, high }))) }
}

/// Ends the current job and requests `budget_ns` per server period for the next job.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end_cycle_budget(task: *mut qf_session, budget_ns: u64) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { run(task, |session| done(session.end_cycle(Foresight::Budget(Nanos::new(budget_ns))))) }
}

/// Sleeps until the next job's release; returns at once if the release has passed.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_wait_for_next_job(task: *mut qf_session) -> qf_status {
    // SAFETY: the caller guarantees it.
    let waited = unsafe { run(task, |session| done(session.wait_for_next_job())) };
    // SAFETY: the caller guarantees it.
    unsafe { report_overload(task, waited) };
    waited
}

fn done<T>(_: T) -> Outcome {
    Ok(())
}

/// Runs `job` in every period until it returns a value other than 0: wait, job, end of cycle.
///
/// # Safety
/// `task` is a live handle; `data` has the type that `job` expects. `job` may use the handle, but cannot free it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_start_periodic(task: *mut qf_session, job: qf_job, data: *mut c_void) -> qf_status {
    let Some(job) = job else { return settle(Err(Failure::invalid("the job is a null pointer"))) };
    loop {
        let mut k = 0;
        let wait = |session: &mut Session| {
            k = session.wait_for_next_job().k;
            Ok(())
        };
        // Borrowed again in each iteration, because `job` may use the handle.
        // SAFETY: the caller guarantees it.
        let waited = unsafe { run(task, wait) };
        // SAFETY: the caller guarantees it.
        unsafe { report_overload(task, waited) };
        // SAFETY: a call that succeeded shows that the handle is live.
        if waited != qf_status::QF_OK || unsafe { outside(task, || job(data, k)) } != 0 {
            return waited;
        }
        // SAFETY: the caller guarantees it.
        unsafe { qf_end_cycle(task) };
    }
}

/// Reads the reservation in force.
///
/// # Safety
/// `task` is a live handle, `grant` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_get_grant(task: *mut qf_session, grant: *mut qf_grant) -> qf_status {
    let read = |session: &mut Session| {
        let now = session.grant();
        let (budget_ns, period_ns) = (now.budget.get(), now.period.get());
        // SAFETY: the caller guarantees it.
        unsafe { put("the grant", grant, qf_grant { budget_ns, period_ns, error_ns: now.error_ns, jobs: now.jobs }) }
    };
    // SAFETY: the caller guarantees it.
    unsafe { run(task, read) }
}

/// Reads the results so far.
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
        // SAFETY: the caller guarantees it.
        unsafe { put("the quality", quality, answer) }
    };
    // SAFETY: the caller guarantees it.
    unsafe { run(task, read) }
}

/// Reconnects to the daemon at once after a lost connection. Without this call a helper thread reconnects within a
/// second or two of the daemon's return.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_reconnect(task: *mut qf_session) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { run(task, |session| Ok(session.reconnect()?)) }
}

/// Ends the contract and returns the thread to its previous scheduler. The task can be changed and started again.
/// Only the starting thread may call this; any thread may, after the starting thread has ended. In a child made by
/// fork() it closes only the child's copies: the contract belongs to the parent.
///
/// # Safety
/// `task` is a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_end(task: *mut qf_session) -> qf_status {
    // SAFETY: the caller guarantees it.
    let ending = unsafe { with(task, Task::ending) };
    settle(ending.and_then(|session| match session {
        None => Err(Failure::new(QF_STATE, NOT_STARTED)),
        Some(session) => Ok(session.end()?),
    }))
}

/// Ends the contract, if there is one, and frees the handle. Null is allowed. Frees nothing in two cases:
/// QF_WRONG_THREAD if the task was started by another thread that has not ended, and QF_STATE if a call with this
/// handle has not returned.
///
/// # Safety
/// `task` is null or a live handle, and is not used after it is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_free(task: *mut qf_session) -> qf_status {
    if task.is_null() {
        return qf_status::QF_OK;
    }
    // SAFETY: the caller guarantees it.
    let ended = unsafe { borrow(task) }.and_then(|handle| match handle.inside.load(Ordering::Relaxed) {
        0 => handle.task.with(Task::ending),
        _ => Err(Failure::new(QF_STATE, INSIDE)),
    });
    settle(ended.map(|session| {
        drop(session);
        // SAFETY: made by `hand_out`; no call is inside, and it is not used again as the caller guarantees.
        drop(unsafe { take_back(task) });
    }))
}
