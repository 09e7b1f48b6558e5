//! A thread of periodic jobs under contract (AQuoSA §5.4).
//!
//! A job ends where [`Session::end_cycle`] says so. Everything the thread has used since the previous end
//! counts as the job's computation time, as in the paper: also what lies between two jobs. Times are
//! `CLOCK_MONOTONIC`, costs the thread's own CPU clock.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use qfabric_shm::SharedRing;
use qfabric_types::api::{Application, ApplicationRequest, Claim, Covers};
use qfabric_types::ring::{Grant, JobEvent};
use qfabric_types::{
    AppId, Contract, Foresight, Instant, InvalidContract, JobRecord, JobSource, Nanos, Overload, Quality, QualityMeter,
    Reservation, ThreadId, Usage, quantized_error,
};

use crate::client::Client;
use crate::clock;
use crate::error::ClientError;
use crate::grid::{Grid, Job, Late};
use crate::jobs::Jobs;
use crate::lease::{Lease, leased};
use crate::link::{Connection, Counters, Link};
use crate::overload::{OverloadChange, Overloads};
use crate::plugin::{Controller, Predictor, sensible};

/// One thread's jobs. Belongs to the thread that made it, since it measures that thread's CPU clock. Dropping
/// it ends the contract.
///
/// **When the daemon goes away** the session keeps its pace without a reservation; the kernel keeps the last
/// one until the daemon's next start puts it back. A helper thread then asks once per second for the same
/// contract again; [`Session::reconnect`] asks at once. [`Session::connection`] tells.
///
/// **In a child made by `fork`** the session is its parent's: there it goes on undisturbed, here it is alone for good
/// (paced and measured), and dropping it closes the child's copies of the descriptors. The child may start a session
/// of its own.
pub struct Session {
    link: Link,
    grid: Grid,
    late: Late,
    contract: Contract,
    meter: QualityMeter,
    /// The thread's CPU clock at the end of the previous job.
    cpu: Nanos,
    /// What was said of the current job before it ran.
    hint: Option<f64>,
    /// Whether the grid's origin is settled: from the first job's beginning on.
    begun: bool,
    last_error: i64,
    predictor: Option<Box<dyn Predictor>>,
    controller: Option<Box<dyn Controller>>,
    overload: Overloads,
    this_thread_only: PhantomData<*const ()>,
}

impl Session {
    /// Puts the calling thread under `contract`, whose jobs are then taken as marked. May block for twice
    /// [`Client::PATIENCE`].
    pub fn start(client: &Client, contract: Contract) -> Result<Session, ClientError> {
        Session::admitted(client, contract, |request| client.admit(request))
    }

    /// As [`Session::start`], with what this host keeps for it since another one refused it: [`Client::claim`].
    pub fn claim(client: &Client, contract: Contract, claim: &Claim) -> Result<Session, ClientError> {
        Session::admitted(client, contract, |request| client.claim(claim, request))
    }

    fn admitted(
        client: &Client,
        contract: Contract,
        admit: impl FnOnce(&ApplicationRequest) -> Result<Application, ClientError>,
    ) -> Result<Session, ClientError> {
        let contract = Contract { jobs: JobSource::Marked, ..contract };
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let request = ApplicationRequest {
            pid: std::process::id() as i32,
            covers: Covers::Thread(ThreadId(thread)),
            contract: contract.clone(),
        };
        let (lease, _) = leased(client, admit(&request)?)?;
        Ok(Session::with(contract, Link::new(Some(lease), Some((client.clone(), request)))))
    }

    /// A session that asks nobody: paced and measured, without a reservation. For a program that must run
    /// where there is no daemon, too.
    pub fn alone(contract: Contract) -> Result<Session, InvalidContract> {
        contract.check()?;
        Ok(Session::with(contract, Link::new(None, None)))
    }

    /// A session on a ring made by the caller, who plays the daemon: for benchmarks and tests.
    pub fn on_ring(contract: Contract, ring: SharedRing, wake: OwnedFd) -> std::io::Result<Session> {
        let lease = Lease::new(AppId(0), ring, wake, None)?;
        Ok(Session::with(contract, Link::new(Some(lease), None)))
    }

    fn with(contract: Contract, link: Link) -> Session {
        Session {
            link,
            grid: Grid::new(clock::now(), contract.period),
            late: Late::default(),
            meter: QualityMeter::new(contract.period, contract.early, contract.late),
            contract,
            cpu: clock::thread_cpu(),
            hint: None,
            begun: false,
            last_error: 0,
            predictor: None,
            controller: None,
            overload: Overloads::default(),
            this_thread_only: PhantomData,
        }
    }

    /// What becomes of jobs whose time has gone by; [`Late::CatchUp`] unless told otherwise.
    pub fn on_late(&mut self, late: Late) {
        self.late = late;
    }

    /// Takes the application's own predictor instead of the daemon's.
    pub fn use_predictor(&mut self, predictor: Box<dyn Predictor>) {
        self.predictor = Some(predictor);
    }

    /// Takes the application's own controller instead of the daemon's.
    pub fn use_controller(&mut self, controller: Box<dyn Controller>) {
        self.controller = Some(controller);
    }

    /// Calls `tell` when the application's requests begin to exceed what it is granted, so that it lowers its quality, and
    /// when that ends: from within the calls that wait for a job, after its release. Which jobs count is said at
    /// [`Session::overload`]; an application that waits by itself asks [`Session::overload_changed`] instead.
    pub fn on_overload(&mut self, tell: impl FnMut(OverloadChange) + 'static) {
        self.overload.tell = Some(Box::new(tell));
    }

    /// The overload that the daemon sees: it begins when 8 of the last 16 jobs had asked for more than the supervisor
    /// granted, and ends when no more than 2 had. Jobs before the predictor's first word do not count. A load from shared
    /// memory, no system call; none while alone.
    pub fn overload(&self) -> Option<Overload> {
        self.link.grant().overload
    }

    /// Whether an overload began or ended since this was last asked (or told by [`Session::on_overload`]).
    pub fn overload_changed(&mut self) -> Option<OverloadChange> {
        self.overload.changed(self.link.grant().overload)
    }

    /// By how much the current job would end late if it began now and had a CPU to itself until its end, by what the daemon
    /// predicts of its cost: «this frame would be late by 12 ms». Zero: it can be in time. None where nothing is predicted:
    /// while alone, and before the predictor's first word. A load from shared memory and one clock reading.
    pub fn predicted_lateness(&self) -> Option<Nanos> {
        let cost = self.link.grant().predicted;
        (cost > Nanos::ZERO).then(|| (clock::now() + cost).since(self.grid.job().deadline))
    }

    /// Leaves the current job out: the next one is the current one from now on. Counted in [`Counters::skipped`]; the
    /// daemon sees that its number is missing.
    pub fn skip(&mut self) {
        self.link.counters.skipped += 1;
        self.grid.advance();
    }

    /// The current job begins, and this is `known` of it. Only needed for the first job (whose beginning is
    /// `r_0`, the origin of the grid of releases; otherwise the session's start is) and where something became
    /// known after the previous job had ended: said in time, at that end, it can still change the budget.
    pub fn begin(&mut self, known: Foresight) {
        let now = clock::now();
        self.begin_job(now, now, known);
    }

    /// As [`Session::begin`], with `release` as the origin of the grid where this is the first job: for releases that follow
    /// a clock of the application's own, such as a start that several players have in common. A first job that had to wait
    /// for a CPU would else move the releases of all later ones.
    pub fn begin_at(&mut self, release: Instant, known: Foresight) {
        self.begin_job(clock::now(), release, known);
    }

    fn begin_job(&mut self, now: Instant, release: Instant, known: Foresight) {
        self.settle(release);
        let known = self.checked(known);
        if !known.is_nothing() {
            self.hint = known.hint();
            self.link.tell(JobEvent::Begin { k: self.grid.job().k, known }, now);
        }
    }

    /// Makes the first job's release the origin of the grid.
    fn settle(&mut self, release: Instant) {
        if !self.begun {
            self.begun = true;
            self.grid.rebase(release);
            self.cpu = clock::thread_cpu();
        }
    }

    /// The current job has ended, and this is known of the `next` one. Never fails, blocks or allocates: two
    /// clock readings, one record in shared memory, and at most one wake-up call (plus once per second a
    /// check of the connection, if the daemon has missed a look). The one exception is the job at whose end
    /// the daemon is found gone: it starts the helper thread. Says what was reported.
    pub fn end_cycle(&mut self, next: Foresight) -> JobRecord {
        let finish = clock::now();
        let cpu = clock::thread_cpu();
        let Job { k, release, deadline } = self.grid.job();
        self.begun = true;
        let mut job = JobRecord { k, release, finish, cost: cpu - self.cpu, next: self.checked(next) };
        let grant = self.link.grant();
        self.foresee(&mut job, grant);
        self.link.tell(JobEvent::End(job), finish);
        self.count(finish, deadline, grant);
        (self.cpu, self.hint) = (cpu, next.hint());
        self.grid.advance();
        job
    }

    fn checked(&mut self, known: Foresight) -> Foresight {
        let said = sensible(known);
        self.link.counters.nonsense += u64::from(said.is_nothing() && !known.is_nothing());
        said
    }

    /// Lets the application's own predictor and controller speak. What the application said itself, an
    /// interval or a budget, goes before them.
    fn foresee(&mut self, job: &mut JobRecord, grant: Grant) {
        if self.predictor.is_none() && self.controller.is_none() {
            return;
        }
        let predicted = self.predictor.as_mut().and_then(|predictor| {
            predictor.observe(job.cost, self.hint);
            predictor.predict(job.next.hint())
        });
        let granted = Reservation::new(grant.budget, grant.period).ok();
        let usage = Usage { job: *job, granted, served: None };
        let budget = self.controller.as_mut().and_then(|controller| controller.on_usage(&usage, predicted));
        if !matches!(job.next, Foresight::Nothing | Foresight::Hint(_)) {
            return;
        }
        let own = match (budget, predicted) {
            (Some(budget), _) => Foresight::Budget(budget),
            (None, Some(interval)) => Foresight::Interval { low: interval.low, high: interval.high },
            (None, None) => return,
        };
        job.next = self.checked(own);
    }

    fn count(&mut self, finish: Instant, deadline: Instant, grant: Grant) {
        self.last_error = quantized_error(finish, deadline, self.contract.server_period);
        let bandwidth = grant.budget.as_f64() / grant.period.get().max(1) as f64;
        self.meter.count(self.last_error as f64, bandwidth, finish > deadline, Some(finish));
    }

    /// Sleeps until the current job's release; at once where it has passed. Signals do not shorten it.
    pub fn wait_for_next_job(&mut self) -> Job {
        loop {
            if let Some(job) = self.wait_or_signal() {
                return job;
            }
        }
    }

    /// Like [`Session::wait_for_next_job`], but None when a signal handler ran meanwhile; call again to wait
    /// on.
    pub fn wait_or_signal(&mut self) -> Option<Job> {
        let job = self.next_job();
        clock::sleep_until(job.release).ok()?;
        self.overload.tell(self.link.grant().overload);
        Some(job)
    }

    /// The job to be waited for: lateness dealt with, the connection looked after. For callers that do the
    /// waiting themselves, such as event loops.
    pub fn next_job(&mut self) -> Job {
        let now = clock::now();
        self.settle(now);
        self.link.keep(now);
        if self.late == Late::Skip {
            self.link.counters.skipped += self.grid.skip_lost(now);
        }
        self.grid.job()
    }

    /// An iterator over the periods: each step ends the previous job and waits for the next one's release.
    pub fn jobs(&mut self) -> Jobs<'_> {
        Jobs::new(self)
    }

    /// Runs `job` in every period until it breaks; it continues with what is known of its successor.
    pub fn start_periodic(&mut self, mut job: impl FnMut(Job) -> ControlFlow<(), Foresight>) {
        loop {
            let released = self.wait_for_next_job();
            match job(released) {
                ControlFlow::Continue(next) => self.end_cycle(next),
                ControlFlow::Break(()) => return,
            };
        }
    }

    /// What the daemon last published of this application: the reservation in force, the error of the last
    /// job it took. All zero while alone.
    pub fn grant(&self) -> Grant {
        self.link.grant()
    }

    /// Scheduling error of the last job in ns, quantised to the server period, as seen from here; negative is
    /// early.
    pub fn last_error(&self) -> i64 {
        self.last_error
    }

    /// What was achieved so far, as seen from here.
    pub fn quality(&self) -> Quality {
        self.meter.quality(&self.contract.name)
    }

    /// What was asked for.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// Its number at the daemon; None while alone.
    pub fn id(&self) -> Option<AppId> {
        self.link.id()
    }

    /// How it stands with the daemon.
    pub fn connection(&self) -> Connection {
        self.link.connection()
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.link.counters
    }

    /// Joins the daemon again at once, if the connection is lost; waits for its answer. Not for the hot path.
    pub fn reconnect(&mut self) -> Result<(), ClientError> {
        self.link.reconnect()
    }

    /// Asks for another contract; on refusal the old one holds. Releases are a new period apart from the
    /// current job on, and the quality is counted anew. Waits for the daemon's answer.
    pub fn change(&mut self, contract: Contract) -> Result<(), ClientError> {
        let contract = Contract { jobs: JobSource::Marked, ..contract };
        contract.check()?;
        let id = self.link.id();
        if let Some((client, request)) = self.link.way_mut() {
            if let Some(id) = id {
                client.change(id, &contract)?;
            }
            request.contract = contract.clone();
        }
        self.grid.change_period(contract.period);
        self.meter = QualityMeter::new(contract.period, contract.early, contract.late);
        self.contract = contract;
        Ok(())
    }

    /// Ends the contract and waits until the thread is back under the scheduler it came from. Dropping does
    /// the same without telling what went wrong.
    pub fn end(mut self) -> Result<(), ClientError> {
        self.link.leave()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.link.leave(); // closing the lease, which follows, ends the contract too
    }
}
