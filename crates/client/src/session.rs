//! A thread of periodic jobs under contract (AQuoSA §5.4).
//!
//! [`Session::end_cycle`] marks the end of a job. As in the paper, the computation time of a job is all CPU time that
//! the thread has used since the previous end, including the time between two jobs. Times are `CLOCK_MONOTONIC`,
//! costs come from the thread's CPU clock.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use qfabric_control::Slowdown;
use qfabric_shm::SharedRing;
use qfabric_types::api::energy::EnergySaving;
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope, Claim};
use qfabric_types::ring::{Checkpoint, Grant, JobEvent};
use qfabric_types::{
    AppId, BitRate, Contract, Foresight, Instant, InvalidContract, JobRecord, JobSource, Nanos, Overload, Quality,
    QualityMeter, Reservation, ThreadId, Usage, quantized_error,
};

use crate::checkpoint::left_run;
use crate::client::Client;
use crate::clock;
use crate::error::ClientError;
use crate::grid::{Grid, Job, LatePolicy};
use crate::jobs::Jobs;
use crate::lease::{Lease, leased};
use crate::link::{Connection, Counters, Link};
use crate::overload::{OverloadChange, Overloads};
use crate::plugin::{Controller, Predictor, sensible};

/// The jobs of one thread. Belongs to the thread that made it, because it measures that thread's CPU clock. Dropping
/// it ends the contract.
///
/// **If the daemon stops,** the session keeps its pace without a reservation; the kernel keeps the last reservation
/// until the next start of the daemon resets it. A helper thread requests the same contract once per second;
/// [`Session::reconnect`] does so at once. [`Session::connection`] returns the state.
///
/// **In a child made by `fork`** the session belongs to the parent, where it continues. In the child it is only paced
/// and measured, and dropping it closes the child's copies of the descriptors. The child may start another session.
pub struct Session {
    link: Link,
    grid: Grid,
    late: LatePolicy,
    contract: Contract,
    meter: QualityMeter,
    /// Reading of the thread's CPU clock at the end of the previous job.
    cpu: Nanos,
    /// Hint for the current job, given before it ran.
    hint: Option<f64>,
    /// True after the first job has begun: the origin of the grid is fixed.
    begun: bool,
    last_error: i64,
    predictor: Option<Box<dyn Predictor>>,
    controller: Option<Box<dyn Controller>>,
    overload: Overloads,
    slowdown: Slowdown,
    /// The job whose last checkpoint asked for a higher clock.
    hurried: Option<u64>,
    this_thread_only: PhantomData<*const ()>,
}

impl Session {
    /// Puts the calling thread under `contract` and starts to measure its jobs. May block for twice
    /// [`Client::PATIENCE`]. On [`ClientError::Refused`] the problem names the free capacity, its holders, and, if
    /// another host lends, an offer.
    pub fn start(client: &Client, contract: Contract) -> Result<Session, ClientError> {
        Session::admitted(client, contract, |request| client.admit(request))
    }

    /// Like [`Session::start`]; a loan of another host has `rate` out of a link, too. See [`Client::admit_with_rate`].
    ///
    /// # Errors
    /// As for [`Session::start`]; a rate of zero is refused.
    pub fn start_with_rate(client: &Client, contract: Contract, rate: BitRate) -> Result<Session, ClientError> {
        Session::admitted(client, contract, |request| client.admit_with_rate(request, rate))
    }

    /// Like [`Session::start`], with a loan that this host keeps for the application; see [`Client::claim`].
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
            covers: ApplicationScope::Thread(ThreadId(thread)),
            contract: contract.clone(),
        };
        let (lease, _) = leased(client, admit(&request)?)?;
        Ok(Session::with(contract, Link::new(Some(lease), Some((client.clone(), request)))))
    }

    /// A session without a daemon: paced and measured, without a reservation. For programs that must also run on
    /// hosts without a daemon.
    pub fn alone(contract: Contract) -> Result<Session, InvalidContract> {
        contract.check()?;
        Ok(Session::with(contract, Link::new(None, None)))
    }

    /// A session on a ring of the caller, which acts as the daemon. For benchmarks and tests.
    pub fn on_ring(contract: Contract, ring: SharedRing, wake: OwnedFd) -> std::io::Result<Session> {
        let lease = Lease::new(AppId(0), ring, wake, None)?;
        Ok(Session::with(contract, Link::new(Some(lease), None)))
    }

    fn with(contract: Contract, link: Link) -> Session {
        Session {
            link,
            grid: Grid::new(clock::now(), contract.period),
            late: LatePolicy::default(),
            meter: QualityMeter::new(contract.period, contract.early, contract.late),
            contract,
            cpu: clock::thread_cpu(),
            hint: None,
            begun: false,
            last_error: 0,
            predictor: None,
            controller: None,
            overload: Overloads::default(),
            slowdown: Slowdown::default(),
            hurried: None,
            this_thread_only: PhantomData,
        }
    }

    /// Sets the treatment of late jobs; the default is [`LatePolicy::CatchUp`].
    pub fn on_late(&mut self, late: LatePolicy) {
        self.late = late;
    }

    /// Uses the application's predictor instead of the daemon's.
    pub fn use_predictor(&mut self, predictor: Box<dyn Predictor>) {
        self.predictor = Some(predictor);
    }

    /// Uses the application's controller instead of the daemon's.
    pub fn use_controller(&mut self, controller: Box<dyn Controller>) {
        self.controller = Some(controller);
    }

    /// Sets a callback for the begin and the end of an overload, so that the application can lower its quality. The
    /// calls that wait for a job run it, after the job's release. [`Session::overload`] defines an overload. An
    /// application that waits by other means calls [`Session::overload_changed`] instead.
    pub fn on_overload(&mut self, tell: impl FnMut(OverloadChange) + 'static) {
        self.overload.callback = Some(Box::new(tell));
    }

    /// The overload that the daemon sees, if there is one. It begins when at least 8 of the last 16 jobs requested
    /// more than the supervisor granted, and ends when at most 2 did. Jobs before the first prediction do not count.
    /// One load from shared memory, no system call; None without a daemon.
    pub fn overload(&self) -> Option<Overload> {
        self.link.grant().overload
    }

    /// Whether an overload began or ended since the last call, or since the last callback of
    /// [`Session::on_overload`].
    pub fn overload_changed(&mut self) -> Option<OverloadChange> {
        self.overload.changed(self.link.grant().overload)
    }

    /// Predicted lateness: how late the current job would end if it began now («this frame would be late by 12 ms»).
    /// Its cost is the one that the daemon predicts; its time is longer by the factor by which late jobs of this session
    /// took longer than their costs ([`Slowdown`]). Zero: the job can end in time. None: there is no prediction,
    /// because there is no daemon, or because the predictor is in its warm-up. One load from shared memory and one
    /// clock reading.
    pub fn predicted_lateness(&self) -> Option<Nanos> {
        let cost = self.link.grant().predicted;
        let time = Nanos::from_f64(self.slowdown.time_of(cost.as_f64()));
        (cost > Nanos::ZERO).then(|| (clock::now() + time).since(self.grid.job().deadline))
    }

    /// Skips the current job and moves on to the next one. Counted in [`Counters::skipped`]; the daemon sees a gap in
    /// the job numbers.
    pub fn skip(&mut self) {
        self.leave_out(1);
        self.calm_down(clock::now());
        self.grid.advance();
    }

    fn leave_out(&mut self, jobs: u64) {
        self.link.counters.skipped += jobs;
        self.slowdown.skip(jobs);
    }

    /// Begins the current job, with `known` as its foresight. Only needed for the first job, to make this time `r_0`,
    /// the origin of the grid of releases (otherwise the start of the session is), and for facts that became known
    /// after the previous job had ended. Foresight given at the end of the previous job can still change the budget.
    pub fn begin(&mut self, known: Foresight) {
        let now = clock::now();
        self.begin_job(now, now, known);
    }

    /// Like [`Session::begin`], with `release` as the origin of the grid if this is the first job. Use it if releases
    /// follow a clock of the application, such as a common start of several players. Otherwise a first job that
    /// waited for a CPU would shift the releases of all later jobs.
    pub fn begin_at(&mut self, release: Instant, known: Foresight) {
        self.begin_job(clock::now(), release, known);
    }

    fn begin_job(&mut self, now: Instant, release: Instant, known: Foresight) {
        self.settle(release);
        let known = self.checked(known);
        if !known.is_nothing() {
            self.hint = known.hint();
            self.link.report(JobEvent::Begin { k: self.grid.job().k, known }, now);
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

    /// A checkpoint in the code of the current job, of whose work the part `done` (0 to 1; `n / m` after n of m pieces)
    /// is done. If the application saves energy ([`Session::save_energy`]) and the rest of the job no longer fits into
    /// the time until its deadline, the daemon is asked for the clock at which it fits, until the job ends, at most
    /// until the deadline. The cost of such a job is not used for predictions. `levels` (0 to 10) asks for so many
    /// levels of the clock more, for a job that is harder than the ones before. A later checkpoint of the same job at
    /// which its rest fits again lowers the clock.
    ///
    /// Returns whether the daemon was asked. Never fails, blocks or allocates. If the application does not save energy,
    /// a checkpoint is one read of shared memory; otherwise it also reads two clocks. Only a checkpoint that asks
    /// writes a record and makes a wake-up call. If `done` is not a number from 0 to 1, the call is ignored and counted
    /// in [`Counters::nonsense`]. More than 10 levels count as 10.
    pub fn checkpoint(&mut self, done: f64, levels: u8) -> bool {
        if !(0.0..=1.0).contains(&done) {
            self.link.counters.nonsense += 1;
            return false;
        }
        if !self.link.wants_checkpoints() {
            return false;
        }
        let (now, used) = (clock::now(), clock::thread_cpu() - self.cpu);
        let Job { k, deadline, .. } = self.grid.job();
        let left_run = left_run(done, used, self.link.grant(), self.slowdown);
        let left_time = deadline.since(now).min(Checkpoint::LONGEST);
        let hurries = left_run > left_time || levels > 0;
        // A job that hurried and need not any more says so.
        let hurried = std::mem::replace(&mut self.hurried, hurries.then_some(k)) == Some(k);
        if hurries || hurried {
            let levels = levels.min(Checkpoint::MAX_LEVELS);
            self.link.report(JobEvent::Checkpoint(Checkpoint { k, left_run, left_time, levels }), now);
        }
        hurries || hurried
    }

    /// Ends the current job, with `next` as the foresight for the next job. Never fails, blocks or allocates: two
    /// clock readings, one record in shared memory, and at most one wake-up call; a record and a wake-up call more if
    /// the job asked for a higher clock ([`Session::checkpoint`]), which may fall now. If the daemon has missed a look,
    /// also one check of the connection per second. One exception: the job at whose end the daemon is found gone
    /// starts the helper thread. Returns the record.
    pub fn end_cycle(&mut self, next: Foresight) -> JobRecord {
        let finish = clock::now();
        let cpu = clock::thread_cpu();
        let Job { k, release, deadline } = self.grid.job();
        self.begun = true;
        let mut job = JobRecord { k, release, finish, cost: cpu - self.cpu, next: self.checked(next) };
        let grant = self.link.grant();
        self.foresee(&mut job, grant);
        self.calm_down(finish);
        self.link.report(JobEvent::End(job), finish);
        self.count(finish, deadline, grant);
        self.slowdown.observe(release, deadline, finish, job.cost);
        (self.cpu, self.hint) = (cpu, next.hint());
        self.grid.advance();
        job
    }

    /// If the current job asked for a higher clock, says that nothing of it is left, so that the clock falls now and
    /// not at the deadline.
    fn calm_down(&mut self, now: Instant) {
        let Job { k, deadline, .. } = self.grid.job();
        if self.hurried.take() == Some(k) {
            let left_time = deadline.since(now).min(Checkpoint::LONGEST);
            let ended = Checkpoint { k, left_run: Nanos::ZERO, left_time, levels: 0 };
            self.link.report(JobEvent::Checkpoint(ended), now);
        }
    }

    fn checked(&mut self, known: Foresight) -> Foresight {
        let foresight = sensible(known);
        self.link.counters.nonsense += u64::from(foresight.is_nothing() && !known.is_nothing());
        foresight
    }

    /// Runs the application's predictor and controller. An interval or a budget that the application gave itself
    /// takes precedence.
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

    /// Sleeps until the current job's release; returns at once if the release has passed. Signals do not shorten the
    /// sleep.
    pub fn wait_for_next_job(&mut self) -> Job {
        loop {
            if let Some(job) = self.wait_or_signal() {
                return job;
            }
        }
    }

    /// Like [`Session::wait_for_next_job`], but returns None if a signal handler ran; call again to continue the
    /// wait.
    pub fn wait_or_signal(&mut self) -> Option<Job> {
        let job = self.next_job();
        clock::sleep_until(job.release).ok()?;
        self.overload.notify(self.link.grant().overload);
        Some(job)
    }

    /// The next job, after the treatment of late jobs and a check of the connection. For callers that wait by other
    /// means, such as event loops.
    pub fn next_job(&mut self) -> Job {
        let now = clock::now();
        self.settle(now);
        self.link.keep(now);
        if self.late == LatePolicy::Skip {
            let lost = self.grid.skip_lost(now);
            self.leave_out(lost);
        }
        self.grid.job()
    }

    /// An iterator over the jobs: each step ends the previous job and waits for the release of the next one.
    pub fn jobs(&mut self) -> Jobs<'_> {
        Jobs::new(self)
    }

    /// Runs `job` in every period until it breaks. It returns its foresight for the next job.
    pub fn start_periodic(&mut self, mut job: impl FnMut(Job) -> ControlFlow<(), Foresight>) {
        loop {
            let released = self.wait_for_next_job();
            match job(released) {
                ControlFlow::Continue(next) => self.end_cycle(next),
                ControlFlow::Break(()) => return,
            };
        }
    }

    /// The grant that the daemon last published: the reservation in force, and the error of the last job that it
    /// processed. All zero without a daemon.
    pub fn grant(&self) -> Grant {
        self.link.grant()
    }

    /// Scheduling error of the last job in nanoseconds, a multiple of the server period, measured by this library;
    /// negative if the job was early.
    pub fn last_error(&self) -> i64 {
        self.last_error
    }

    /// Results so far, measured by this library.
    pub fn quality(&self) -> Quality {
        self.meter.quality(&self.contract.name)
    }

    /// The contract that was requested.
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// Number of the application at the daemon; None without a daemon.
    pub fn id(&self) -> Option<AppId> {
        self.link.id()
    }

    /// State of the connection to the daemon.
    pub fn connection(&self) -> Connection {
        self.link.connection()
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        self.link.counters
    }

    /// Rejoins the daemon at once if the connection is lost. Waits for the daemon's answer; do not call it in a
    /// time-critical path.
    pub fn reconnect(&mut self) -> Result<(), ClientError> {
        self.link.reconnect()
    }

    /// Requests another contract; on a refusal the old contract stays in force. Later releases use the new period,
    /// counted from the current job, and the quality is counted anew. Waits for the daemon's answer.
    pub fn change(&mut self, contract: Contract) -> Result<(), ClientError> {
        let contract = Contract { jobs: JobSource::Marked, ..contract };
        contract.check()?;
        let id = self.link.held_id();
        if let Some((client, request)) = self.link.rejoin_mut() {
            if let Some(id) = id {
                client.change(id, &contract)?;
            }
            request.contract = contract.clone();
        }
        self.link.rejoin_anew();
        self.grid.change_period(contract.period);
        self.meter = QualityMeter::new(contract.period, contract.early, contract.late);
        self.contract = contract;
        Ok(())
    }

    /// From now on the deadlines are held at the lowest clock that suffices, until the contract ends. The answer says what
    /// this host lacks. `None`: there is no daemon. Waits for the daemon's answer.
    pub fn save_energy(&mut self) -> Result<Option<EnergySaving>, ClientError> {
        match (self.link.held_id(), self.link.rejoin_mut()) {
            (Some(id), Some((client, _))) => client.save_energy(id).map(Some),
            _ => Ok(None),
        }
    }

    /// Ends the contract and waits until the thread is back under its previous scheduler. Dropping the session does
    /// the same, without reporting errors.
    pub fn end(mut self) -> Result<(), ClientError> {
        self.link.leave()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.link.leave(); // closing the lease, which follows, ends the contract too
    }
}
