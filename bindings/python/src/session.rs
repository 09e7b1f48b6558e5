//! A session, stored in a table of its thread and found by a key.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use qfabric_client::{
    BitRate, Claim, Connection, Contract, Foresight, Instant, LatePolicy, Nanos, Overload, OverloadChange, Profile,
    Reclaiming, Session, Share, Utility, UtilityMetric, clock,
};

use crate::connect;
use crate::errors::python;
use crate::held::without_interpreter;

thread_local! {
    static SESSIONS: RefCell<HashMap<u64, Session>> = RefCell::default();
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// The jobs of one thread under contract.
#[pyclass(subclass, module = "qfabric._qfabric")]
pub(crate) struct NativeSession {
    thread: std::thread::ThreadId,
    key: u64,
}

fn value_error(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn share(what: &str, cpus: f64) -> PyResult<Share> {
    match (0.0..=4096.0).contains(&cpus) {
        true => Ok(Share::from_f64(cpus)),
        false => Err(value_error(format!("{what} is {cpus}; use a fraction of one CPU, such as 0.4"))),
    }
}

fn shares(overload: Overload) -> (f64, f64) {
    (overload.wanted.as_f64(), overload.granted.as_f64())
}

pub(crate) fn profile_of(costs_ns: Vec<u64>, hints: Vec<f64>) -> Profile {
    Profile { costs: costs_ns.into_iter().map(Nanos::new).collect(), hints }
}

/// Rejects numbers that are not finite, and combinations of foresight; ends of the interval in nanoseconds.
fn foresight(hint: Option<f64>, interval: Option<(u64, u64)>, budget: Option<u64>) -> PyResult<Foresight> {
    match (hint, interval, budget) {
        (None, None, None) => Ok(Foresight::Nothing),
        (Some(hint), None, None) if hint.is_finite() => Ok(Foresight::Hint(hint)),
        (Some(hint), None, None) => Err(value_error(format!("the hint is {hint}; use a finite number"))),
        (None, Some((low, high)), None) if low <= high => {
            Ok(Foresight::Interval { low: Nanos::new(low), high: Nanos::new(high) })
        }
        (None, Some((low, high)), None) => Err(value_error(format!("the interval's low end {low} is above {high}"))),
        (None, None, Some(budget)) => Ok(Foresight::Budget(Nanos::new(budget))),
        _ => Err(value_error("hint, interval and budget were given together; use only one of them")),
    }
}

/// `reclaim` is the older keyword of Python; `reclaiming` replaces it if both are given.
fn kind_of(reclaim: bool, reclaiming: Option<&str>) -> PyResult<Reclaiming> {
    let former = if reclaim { Reclaiming::Grub } else { Reclaiming::Hard };
    reclaiming.map_or(Ok(former), str::parse).map_err(value_error)
}

/// Name, minimum, maximum, E-code of utility and of CPU time, step: the members of Python's `Metric`.
type Metric = (String, i64, i64, String, String, i64);

fn utility_of(metrics: Vec<Metric>) -> Utility {
    let metric = |(name, min, max, utility, cpu, step): Metric| UtilityMetric { name, min, max, step, utility, cpu };
    Utility { metrics: metrics.into_iter().map(metric).collect() }
}

/// A contract with the defaults of a program with this period.
fn periodic(name: &str, period_ms: f64, server_period_ms: Option<f64>, kind: Reclaiming) -> Contract {
    let fresh = Contract::new(name, Nanos::from_f64(period_ms * 1e6)).reclaimed_as(kind);
    let server_period = server_period_ms.map_or(fresh.server_period, |ms| Nanos::from_f64(ms * 1e6));
    Contract { server_period, ..fresh }
}

/// Starts a session without a daemon, with the daemon's admission, or with a loan that was granted before.
/// `rate`: of the loan that another host may offer.
fn start(
    contract: Contract,
    alone: bool,
    claim: Option<Claim>,
    rate: Option<BitRate>,
    socket: Option<String>,
) -> PyResult<Session> {
    match (alone, claim, rate) {
        (true, ..) => Session::alone(contract).map_err(|error| python(error.into())),
        (false, None, None) => Session::start(&connect(socket)?, contract).map_err(python),
        (false, None, Some(rate)) => Session::start_with_rate(&connect(socket)?, contract, rate).map_err(python),
        (false, Some(claim), _) => Session::claim(&connect(socket)?, contract, &claim).map_err(python),
    }
}

fn kept(mut session: Session, late: LatePolicy) -> u64 {
    session.on_late(late);
    let key = NEXT.replace(NEXT.get() + 1);
    SESSIONS.with_borrow_mut(|sessions| sessions.insert(key, session));
    key
}

impl NativeSession {
    /// The request to the daemon runs without the interpreter; the session stays in the table of this thread.
    fn open(
        py: Python<'_>,
        skips_late: bool,
        start: impl FnOnce() -> PyResult<Session> + Send,
    ) -> PyResult<NativeSession> {
        let late = if skips_late { LatePolicy::Skip } else { LatePolicy::CatchUp };
        let key = py.detach(|| start().map(|session| kept(session, late)))?;
        Ok(NativeSession { thread: std::thread::current().id(), key })
    }

    fn with<A>(&self, act: impl FnOnce(&mut Session) -> A) -> PyResult<A> {
        if self.thread != std::thread::current().id() {
            return Err(PyRuntimeError::new_err("the session belongs to another thread; use it where it was made"));
        }
        let acted = SESSIONS.with_borrow_mut(|sessions| sessions.get_mut(&self.key).map(act));
        acted.ok_or_else(|| PyRuntimeError::new_err("the session has ended"))
    }
}

#[pymethods]
impl NativeSession {
    #[new]
    #[pyo3(signature = (period_ms, *, name="python", server_period_ms=None, max_bandwidth=0.95, predictor="ma:12",
        controller="left", cls="C", guaranteed=None, rho=1.0, early=0.2, late=0.0, priority=5, weight=1, reclaim=true,
        skip_late=false, socket=None, alone=false, service_ms=None, window=None, work_conserving=false,
        favour_events=false, control_place="user", claim=None, reclaiming=None, recovery_jobs=10, deviation=1.0,
        fixed=None, profile=None, metrics=None, loan_rate_bps=None))]
    #[allow(clippy::too_many_arguments)] // Python's keyword arguments
    fn new(
        period_ms: f64,
        name: &str,
        server_period_ms: Option<f64>,
        max_bandwidth: f64,
        predictor: &str,
        controller: &str,
        cls: &str,
        guaranteed: Option<f64>,
        rho: f64,
        early: f64,
        late: f64,
        priority: u8,
        weight: u32,
        reclaim: bool,
        skip_late: bool,
        socket: Option<String>,
        alone: bool,
        service_ms: Option<f64>,
        window: Option<&str>,
        work_conserving: bool,
        favour_events: bool,
        control_place: &str,
        claim: Option<&str>,
        reclaiming: Option<&str>,
        recovery_jobs: u32,
        deviation: f64,
        fixed: Option<f64>,
        profile: Option<(Vec<u64>, Vec<f64>)>,
        metrics: Option<Vec<Metric>>,
        loan_rate_bps: Option<u64>,
        py: Python<'_>,
    ) -> PyResult<NativeSession> {
        let contract = Contract {
            max_bandwidth: share("max_bandwidth", max_bandwidth)?,
            predictor: predictor.parse().map_err(value_error)?,
            choice: controller.parse().map_err(value_error)?,
            class: cls.parse().map_err(value_error)?,
            recovery_jobs,
            deviation,
            guaranteed: guaranteed.map(|part| share("guaranteed", part)).transpose()?,
            rho,
            early,
            late,
            priority,
            weight,
            service: service_ms.map(|ms| Nanos::from_f64(ms * 1e6)),
            fixed: fixed.map(|part| share("fixed", part)).transpose()?,
            window: window.map(str::parse).transpose().map_err(value_error)?,
            work_conserving,
            favour_events,
            controller: control_place.parse().map_err(value_error)?,
            profile: profile.map(|(costs, hints)| profile_of(costs, hints)),
            utility: metrics.map(utility_of),
            ..periodic(name, period_ms, server_period_ms, kind_of(reclaim, reclaiming)?)
        }
        .settled();
        let claim: Option<Claim> = claim.map(str::parse).transpose().map_err(value_error)?;
        Self::open(py, skip_late, || start(contract, alone, claim, loan_rate_bps.map(BitRate::new), socket))
    }

    /// Begins the current job, with its foresight. For the first job, `release`, in ns of the monotonic clock, is the
    /// origin of the grid; without it, the time of this call is.
    #[pyo3(signature = (hint=None, *, interval=None, budget=None, release=None))]
    fn begin(
        &self,
        hint: Option<f64>,
        interval: Option<(u64, u64)>,
        budget: Option<u64>,
        release: Option<u64>,
    ) -> PyResult<()> {
        let known = foresight(hint, interval, budget)?;
        self.with(|session| match release {
            Some(release) => session.begin_at(Instant::new(release), known),
            None => session.begin(known),
        })
    }

    /// Ends the current job, with the foresight for the next job. Returns the CPU time of the job in ns.
    #[pyo3(signature = (hint=None, *, interval=None, budget=None))]
    fn end_cycle(&self, hint: Option<f64>, interval: Option<(u64, u64)>, budget: Option<u64>) -> PyResult<u64> {
        let next = foresight(hint, interval, budget)?;
        self.with(|session| session.end_cycle(next).cost.get())
    }

    /// Sleeps until the next job's release; other Python threads run meanwhile. Returns the job's number.
    fn wait(&self, py: Python<'_>) -> PyResult<u64> {
        let job = self.with(Session::next_job)?;
        while py.detach(|| clock::sleep_until(job.release)).is_err() {
            py.check_signals()?;
        }
        Ok(job.k)
    }

    /// Budget, period, error of the last job that the daemon processed (all in ns), number of jobs processed.
    fn grant_tuple(&self) -> PyResult<(u64, u64, i64, u64)> {
        let grant = self.with(|session| session.grant())?;
        Ok((grant.budget.get(), grant.period.get(), grant.error_ns, grant.jobs))
    }

    /// Requested and granted bandwidth in CPUs during an overload, otherwise None.
    fn overload_tuple(&self) -> PyResult<Option<(f64, f64)>> {
        Ok(self.with(|session| session.overload())?.map(shares))
    }

    /// Whether an overload began (its shares) or ended (None), in a list; an empty list without a change.
    fn overload_news(&self) -> PyResult<Vec<Option<(f64, f64)>>> {
        let change = self.with(Session::overload_changed)?;
        Ok(change
            .into_iter()
            .map(|change| match change {
                OverloadChange::Begins(overload) => Some(shares(overload)),
                OverloadChange::Ends => None,
            })
            .collect())
    }

    /// Lateness in ns if the current job began now; None without a prediction.
    fn predicted_lateness(&self) -> PyResult<Option<u64>> {
        self.with(|session| session.predicted_lateness().map(Nanos::get))
    }

    /// Skips the current job; call it in place of its end.
    fn skip(&self) -> PyResult<()> {
        self.with(Session::skip)
    }

    /// Results so far, as JSON.
    fn quality_json(&self) -> PyResult<String> {
        let quality = self.with(|session| session.quality())?;
        Ok(serde_json::to_string(&quality).expect("a quality is plain values"))
    }

    /// Scheduling error of the last job in ns; negative if the job was early.
    #[getter]
    fn last_error(&self) -> PyResult<i64> {
        self.with(|session| session.last_error())
    }

    /// Number of the application at the daemon; None without a daemon.
    #[getter]
    fn id(&self) -> PyResult<Option<u64>> {
        self.with(|session| session.id().map(|id| id.0))
    }

    /// Reason why the session has no daemon; None while it has one.
    #[getter]
    fn alone_because(&self) -> PyResult<Option<String>> {
        self.with(|session| match session.connection() {
            Connection::Joined(_) => None,
            Connection::Alone { why } => Some(why),
        })
    }

    /// Rejoins the daemon at once if the connection is lost.
    fn reconnect(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with(|session| session.reconnect())?.map_err(python))
    }

    /// Holds the deadlines at the lowest clock that suffices. The answer as JSON; None without a daemon.
    fn save_energy_json(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let saving = py.detach(|| self.with(|session| session.save_energy())?.map_err(python))?;
        Ok(saving.map(|saving| serde_json::to_string(&saving).expect("a saving is plain values")))
    }

    /// A checkpoint in the code of the current job, of whose work the part `done` (0 to 1) is done. If the session
    /// saves energy and the rest no longer fits into the time until the deadline, or `levels` (0 to 10) asks for more,
    /// the clock rises until the job ends, at most until the deadline. Returns whether the daemon was asked.
    #[pyo3(signature = (done, levels=0))]
    fn checkpoint(&self, done: f64, levels: u8) -> PyResult<bool> {
        if !(0.0..=1.0).contains(&done) {
            return Err(value_error(format!("done is {done}; use a part of the job from 0 to 1")));
        }
        self.with(|session| session.checkpoint(done, levels))
    }

    /// Ends the contract. A second call has no effect.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        if self.thread != std::thread::current().id() {
            return self.with(|_| ());
        }
        py.detach(|| match SESSIONS.with_borrow_mut(|sessions| sessions.remove(&self.key)) {
            Some(session) => session.end().map_err(python),
            None => Ok(()),
        })
    }
}

impl Drop for NativeSession {
    /// Ends the contract if the owning thread collects the object; otherwise the contract ends with that thread.
    fn drop(&mut self) {
        if self.thread == std::thread::current().id() {
            let key = self.key;
            without_interpreter(move || {
                let ended = |sessions: &RefCell<HashMap<u64, Session>>| sessions.try_borrow_mut().ok()?.remove(&key);
                drop(SESSIONS.try_with(ended));
            });
        }
    }
}
