//! Simulates a computer under a real [`Host`]: modelled CPUs and reservations, players, best-effort hogs, and a
//! virtual clock that jumps from event to event. The only sensor is the end of jobs, as with a ring.
//!
//! Every player releases one job per period, even if the previous job has not ended. Jobs wait for each other or
//! are skipped ([`Skip`]), which counts as a miss. A player under Q-Fabric joins with its first job and leaves
//! after its last one. The ends of its jobs go into its ring. The daemon wakes when the host requests it, or when
//! a job ends after the time at which the host promised to read the ring; it then reads all rings. Settings are
//! refused as Linux refuses them. With a [`ControlThread`], the daemon decides only when this thread has had its CPU
//! time, and it decides again only when the thread has had the CPU time of the settings as well. If the daemon dies,
//! the reservations stay until its successor undoes them.

use qfabric_control::{Predictor, Slowdown, predictor};
use qfabric_host::{Host, HostConfig, HostEvent, Input, Limits, Outcome, Output};
use qfabric_sched::{Finished, Machine, MachineConfig, Server, TaskId};
use qfabric_types::api::ApplicationScope;
use qfabric_types::ring::JobEvent;
use qfabric_types::{
    AppId, Contract, Foresight, Instant, JobRecord, MechanismFeatures, Nanos, Owner, PredictorSpec, Quality,
    QualityMeter, Reclaiming, Reservation, Setting, Share, ThreadId, quantized_error,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::video::StreamJob;

/// The scheduling of a player.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Scheduled like the hogs.
    BestEffort,
    /// Scheduled like the hogs, but with this weight instead of [`qfabric_sched::WEIGHT`].
    Weighted(f64),
    /// Before the hogs, with the same fixed priority as other such players (SCHED_FIFO).
    FixedPriority,
    /// A fixed reservation.
    Static(Reservation, Reclaiming),
    /// Q-Fabric with this contract.
    Fabric(Box<Contract>),
}

/// The jobs that a player skips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Skip {
    /// None: it runs all jobs, one after the other.
    #[default]
    None,
    /// Jobs whose deadline has passed.
    Late,
    /// Also jobs that it expects to end after their deadline.
    Predicted,
}

/// A periodic program.
#[derive(Clone, Debug, PartialEq)]
pub struct Player {
    /// T.
    pub period: Nanos,
    /// P, the unit in which the errors of all policies are measured.
    pub server_period: Nanos,
    /// Release of the first job.
    pub start: Instant,
    /// The player ends after the last job.
    pub jobs: Vec<StreamJob>,
    pub policy: Policy,
    pub skip: Skip,
    /// The player knows the cost of each job beforehand and reports it.
    pub oracle: bool,
}

/// The thread of the daemon that decides, with a reservation of its own that reclaims.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlThread {
    pub reservation: Reservation,
    /// CPU time of one wake-up. What it decides takes effect at the end of this time.
    pub cost: Nanos,
    /// CPU time of each setting that it then tries, also of one that is refused or comes while the thread is awake.
    pub setting: Nanos,
}

/// The conditions of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub machine: MachineConfig,
    /// `None`: the daemon decides at once and needs no time.
    pub control: Option<ControlThread>,
    /// Limits of the host's grants.
    pub limits: Limits,
    pub players: Vec<Player>,
    /// End of the run.
    pub until: Instant,
    /// The kernel refuses one in this number of increases although it has capacity: seed and number.
    pub faults: Option<(u64, u32)>,
    /// Time at which the daemon is killed, and time at which its successor has undone the reservations.
    pub death: Option<(Instant, Instant)>,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// One row per player.
    pub rows: Vec<Quality>,
    /// Mean over time of the reserved bandwidth, in CPUs.
    pub reserved: f64,
    /// Largest reserved bandwidth.
    pub most_reserved: Share,
    /// Number of applied settings.
    pub settings: u64,
    /// Number of applied settings of threads that were awake.
    pub settings_awake: u64,
    /// Number of settings that the daemon tried: applied, refused, or given up because the thread was awake.
    pub tried: u64,
    /// Number of settings refused for lack of capacity.
    pub refused: u64,
    /// Bandwidth that is still reserved at the end.
    pub still_reserved: Share,
    /// Number of times that the daemon woke.
    pub wakeups: u64,
    /// Events that the host reported.
    pub events: Vec<HostEvent>,
}

impl Outcomes {
    /// Misses divided by jobs, over all players.
    pub fn misses(&self) -> f64 {
        let (misses, jobs) = self.rows.iter().fold((0, 0), |(m, j), row| (m + row.misses, j + row.jobs));
        misses as f64 / (jobs as f64).max(1.0)
    }
    /// Fraction of the jobs in their target interval, over all players.
    pub fn in_target(&self) -> f64 {
        let jobs: u64 = self.rows.iter().map(|row| row.jobs).sum();
        self.rows.iter().map(|row| row.in_target * row.jobs as f64).sum::<f64>() / (jobs as f64).max(1.0)
    }
}

struct Running {
    player: Player,
    task: TaskId,
    app: Option<AppId>,
    released: usize,
    /// Jobs begun or skipped.
    begun: usize,
    /// Jobs ended or skipped.
    ended: u64,
    /// The player's own prediction, which decides about skipping.
    expects: Box<dyn Predictor>,
    slowdown: Slowdown,
    /// Records that the daemon has not read.
    ring: Vec<JobRecord>,
    meter: QualityMeter,
}

/// The control thread in a run.
#[derive(Clone, Copy, Debug)]
struct Control {
    task: TaskId,
    thread: ControlThread,
    /// Its present CPU time is that of the settings of its last turn.
    pays: bool,
    /// It was woken meanwhile.
    again: bool,
}

/// A run in progress.
pub struct World {
    machine: Machine,
    host: Option<Host>,
    running: Vec<Running>,
    control: Option<Control>,
    death: Option<(Instant, Instant)>,
    faults: Option<(ChaCha8Rng, u32)>,
    until: Instant,
    outcomes: Outcomes,
    reserved_ns: f64,
    measured: Instant,
}

/// Largest number of events at one time. More events mean an endless loop.
const MOST_STEPS: usize = 100_000;
const OWNER: Owner = Owner { uid: 1000, gid: 1000 };

impl World {
    /// Creates all players. No job has been released.
    pub fn new(scenario: Scenario) -> Self {
        let features = MechanismFeatures { all_reclaiming: true, gives_back: true, ..MechanismFeatures::default() };
        let limits = scenario.limits;
        let config = HostConfig { limits, features, mechanism: "sim".into(), ..HostConfig::default() };
        let mut world = World {
            machine: Machine::new(scenario.machine),
            host: Some(Host::new(config)),
            running: Vec::new(),
            control: None,
            death: scenario.death,
            faults: scenario.faults.map(|(seed, one_in)| (ChaCha8Rng::seed_from_u64(seed), one_in)),
            until: scenario.until,
            outcomes: Outcomes::default(),
            reserved_ns: 0.0,
            measured: Instant::ZERO,
        };
        for player in scenario.players {
            world.start(player);
        }
        world.control = scenario.control.map(|control| world.start_control(control));
        world
    }

    fn start_control(&mut self, thread: ControlThread) -> Control {
        let task = self.machine.spawn();
        let admitted = self.machine.reserve(task, Some((thread.reservation, Reclaiming::Grub)));
        assert!(admitted.is_ok(), "the control thread needs room beside the players: {admitted:?}");
        Control { task, thread, pays: false, again: false }
    }

    /// Runs the scenario to its end.
    pub fn run(mut self) -> Outcomes {
        let mut before = Instant::ZERO;
        let mut steps_here = 0;
        while self.machine.now() < self.until {
            steps_here = if self.machine.now() == before { steps_here + 1 } else { 0 };
            before = self.machine.now();
            assert!(steps_here < MOST_STEPS, "the virtual time does not advance beyond {} ns", before.get());
            let next = self.next_event();
            match self.machine.run_until(next) {
                Some(finished) => self.ended(finished),
                None => self.at_event(),
            }
            self.measure();
        }
        let elapsed_ns = self.until.get().max(1) as f64;
        self.outcomes.reserved = self.reserved_ns / elapsed_ns;
        self.outcomes.still_reserved = self.machine.reserved();
        self.outcomes.rows = self.running.iter().map(|r| r.meter.quality("")).collect();
        self.outcomes
    }

    fn start(&mut self, player: Player) {
        let task = self.machine.spawn();
        let (early, late) = match &player.policy {
            Policy::Fabric(contract) => (contract.early, contract.late),
            _ => (0.2, 0.0),
        };
        let meter = QualityMeter::new(player.period, early, late);
        if let Policy::Static(reservation, reclaiming) = &player.policy {
            let admitted = self.machine.reserve(task, Some((*reservation, *reclaiming)));
            self.outcomes.refused += u64::from(admitted.is_err());
        }
        match player.policy {
            Policy::Weighted(weight) => self.machine.set_weight(task, weight),
            Policy::FixedPriority => self.machine.set_fixed_priority(task),
            _ => (),
        }
        let expects = predictor(PredictorSpec::Hint { n: 24 }, 0.0);
        let slowdown = Slowdown::default();
        let (app, released, begun, ended, ring) = (None, 0, 0, 0, Vec::new());
        self.running.push(Running { player, task, app, released, begun, ended, expects, slowdown, ring, meter });
    }

    fn next_event(&self) -> Instant {
        let releases = self.running.iter().map(Running::next_release).min().unwrap_or(Instant::NEVER);
        let wakeup = self.host.as_ref().and_then(Host::next_wakeup).filter(|_| !self.is_waking());
        let wakeup = wakeup.unwrap_or(Instant::NEVER);
        let death = match self.death {
            Some((killed, _)) if self.host.is_some() => killed,
            Some((_, restored)) => restored,
            None => Instant::NEVER,
        };
        releases.min(wakeup).min(death).min(self.until).max(self.machine.now())
    }

    fn at_event(&mut self) {
        let now = self.machine.now();
        match self.death {
            Some((killed, _)) if killed <= now && self.host.is_some() => self.host = None,
            Some((_, restored)) if restored <= now => self.restore(),
            _ => (),
        }
        if self.host.as_ref().and_then(Host::next_wakeup).is_some_and(|due| due <= now) {
            self.wake();
        }
        for index in 0..self.running.len() {
            if self.running[index].next_release() <= now {
                self.release(index);
            }
        }
    }

    fn release(&mut self, index: usize) {
        let running = &mut self.running[index];
        let (k, task) = (running.released, running.task);
        running.released += 1;
        if let (0, Policy::Fabric(contract)) = (k, &running.player.policy) {
            let join = join(task, contract);
            self.handle_input(join);
        }
        let running = &mut self.running[index];
        if running.player.skip == Skip::None {
            running.begun += 1;
            return self.machine.release(task, running.player.jobs[k].cost);
        }
        self.begin(index);
    }

    /// Begins the next job of a player that skips, if it is released and no other job of the player runs.
    fn begin(&mut self, index: usize) {
        let now = self.machine.now();
        let running = &mut self.running[index];
        if self.machine.backlog(running.task) > 0 {
            return;
        }
        running.skip(now);
        if running.begun < running.released {
            let release = running.release_of(running.begun);
            let cost = running.player.jobs[running.begun].cost;
            running.begun += 1;
            self.machine.begin(running.task, release, cost);
        }
        self.leave_after_the_last(index);
    }

    fn leave_after_the_last(&mut self, index: usize) {
        let running = &mut self.running[index];
        if running.ended == running.player.jobs.len() as u64
            && let Some(app) = running.app.take()
        {
            self.handle_input(Input::Leave { app });
        }
    }

    /// The successor of the daemon finds the journal and undoes all reservations.
    fn restore(&mut self) {
        self.death = None;
        for running in &self.running {
            let restored = self.machine.reserve(running.task, None);
            debug_assert!(restored.is_ok(), "removing a reservation cannot be refused");
        }
    }

    fn ended(&mut self, finished: Finished) {
        if let Some(control) = self.control.filter(|control| control.task == finished.task) {
            return self.control_ran(control);
        }
        let share = self.machine.server(finished.task).map_or(0.0, |server| server.share().as_f64());
        let index = finished.task.0;
        let running = &mut self.running[index];
        let record = running.end(finished, share);
        self.begin_next(index);
        self.leave_after_the_last(index);
        let running = &mut self.running[index];
        let Some(app) = running.app else { return };
        running.ring.push(record);
        let look = self.host.as_ref().map(|host| host.look_at(app));
        if look.is_some_and(|look| finished.finish >= look) {
            self.wake();
        }
    }

    fn begin_next(&mut self, index: usize) {
        if self.running[index].player.skip != Skip::None {
            self.begin(index);
        }
    }

    /// Whether the control thread has woken and has not decided yet, or has not done all its settings.
    fn is_waking(&self) -> bool {
        self.control.is_some_and(|control| self.machine.backlog(control.task) > 0)
    }

    fn wake(&mut self) {
        let Some(control) = self.control else { return self.decide() };
        if !self.is_waking() {
            self.machine.release(control.task, control.thread.cost);
        } else if control.pays {
            // Its last turn has read the rings already.
            self.control = Some(Control { again: true, ..control });
        }
    }

    /// The control thread has had the CPU time that it waited for.
    fn control_ran(&mut self, control: Control) {
        if !control.pays {
            return self.decide();
        }
        self.control = Some(Control { pays: false, again: false, ..control });
        if control.again {
            self.machine.release(control.task, control.thread.cost);
        }
    }

    /// The control thread needs CPU time for this number of settings before its next turn.
    fn pay_for(&mut self, settings: u64) {
        let Some(control) = self.control else { return };
        let time = control.thread.setting.saturating_mul(settings);
        if time > Nanos::ZERO {
            self.machine.release(control.task, time);
            self.control = Some(Control { pays: true, ..control });
        }
    }

    /// The daemon reads every ring and carries out the host's outputs.
    fn decide(&mut self) {
        self.outcomes.wakeups += 1;
        let before = self.outcomes.tried;
        self.handle_input(Input::Tick);
        for index in 0..self.running.len() {
            let Some(app) = self.running[index].app else { continue };
            for record in std::mem::take(&mut self.running[index].ring) {
                self.handle_input(Input::Job { app, event: JobEvent::End(record) });
            }
        }
        self.pay_for(self.outcomes.tried - before);
    }

    fn handle_input(&mut self, input: Input) {
        let now = self.machine.now();
        let Some(mut host) = self.host.take() else { return };
        host.handle(input, now);
        while let Some(output) = host.poll() {
            match output {
                Output::Set(setting) => {
                    let outcome = self.set(setting);
                    host.handle(Input::Applied { thread: setting.thread, outcome }, now);
                }
                Output::GiveBack(setting) => {
                    let outcome = self.give_back(setting);
                    host.handle(Input::Applied { thread: setting.thread, outcome }, now);
                }
                Output::Admitted { request, app } => self.running[request as usize].app = Some(app),
                Output::Event(event) => self.outcomes.events.push(event),
                Output::Changed { .. } | Output::Refused { .. } | Output::Job { .. } => (),
            }
        }
        self.host = Some(host);
    }

    fn give_back(&mut self, setting: Setting) -> Outcome {
        self.outcomes.tried += 1;
        let server = self.machine.server(TaskId(setting.thread.0 as usize));
        match server.is_some_and(Server::is_at_rest) {
            true => self.apply(setting),
            false => Outcome::Awake,
        }
    }

    fn set(&mut self, setting: Setting) -> Outcome {
        self.outcomes.tried += 1;
        self.apply(setting)
    }

    fn apply(&mut self, setting: Setting) -> Outcome {
        self.measure();
        let task = TaskId(setting.thread.0 as usize);
        let is_awake = self.machine.backlog(task) > 0;
        if self.is_refused_at_random(task, setting) {
            self.outcomes.refused += 1;
            return Outcome::Busy;
        }
        match self.machine.reserve(task, setting.reservation.map(|reservation| (reservation, setting.reclaiming))) {
            Ok(()) => {
                self.outcomes.settings += 1;
                self.outcomes.settings_awake += u64::from(is_awake);
                Outcome::Done
            }
            Err(_) => {
                self.outcomes.refused += 1;
                Outcome::Busy
            }
        }
    }

    fn is_refused_at_random(&mut self, task: TaskId, setting: Setting) -> bool {
        let Some((random, one_in)) = &mut self.faults else { return false };
        let before = self.machine.server(task).map_or(Share::ZERO, |server| server.share());
        setting.reservation.is_some_and(|new| new.share() > before) && random.random_range(0..*one_in) == 0
    }

    /// Adds the reserved bandwidth since the last call.
    fn measure(&mut self) {
        let (now, reserved) = (self.machine.now(), self.machine.reserved());
        self.reserved_ns += reserved.as_f64() * now.since(self.measured).as_f64();
        self.measured = now;
        self.outcomes.most_reserved = self.outcomes.most_reserved.max(reserved);
    }
}

impl Running {
    fn next_release(&self) -> Instant {
        if self.released >= self.player.jobs.len() {
            return Instant::NEVER;
        }
        self.release_of(self.released)
    }

    fn release_of(&self, k: usize) -> Instant {
        self.player.start + self.player.period.saturating_mul(k as u64)
    }

    /// Counts the released jobs that the player skips at `now`.
    fn skip(&mut self, now: Instant) {
        while self.player.skip != Skip::None && self.begun < self.released && self.is_lost(self.begun, now) {
            self.meter.count(self.player.period.as_f64(), 0.0, true, None);
            self.expects.skip(1);
            self.slowdown.skip(1);
            self.begun += 1;
            self.ended += 1;
        }
    }

    fn is_lost(&self, k: usize, now: Instant) -> bool {
        let deadline = self.release_of(k) + self.player.period;
        let expected = match (self.player.skip, self.player.oracle) {
            (Skip::Predicted, true) => self.player.jobs[k].cost.as_f64(),
            (Skip::Predicted, false) => {
                let costs = self.expects.predict(Some(self.player.jobs[k].hint));
                costs.map_or(0.0, |costs| (costs.low + costs.high) / 2.0)
            }
            _ => 0.0,
        };
        now + Nanos::from_f64(self.slowdown.time_of(expected)) >= deadline
    }

    /// The foresight that a record contains for the next job.
    fn foresees(&self, k: usize) -> Foresight {
        match self.player.jobs.get(k) {
            Some(job) if self.player.oracle => Foresight::Interval { low: job.cost, high: job.cost },
            Some(job) => Foresight::Hint(job.hint),
            None => Foresight::Nothing,
        }
    }

    /// Counts a job that ended, and returns its record.
    fn end(&mut self, finished: Finished, share: f64) -> JobRecord {
        let k = finished.release.since(self.player.start).get() / self.player.period.get();
        self.ended += 1;
        self.expects.observe(finished.cost.as_f64(), Some(self.player.jobs[k as usize].hint));
        let deadline = finished.release + self.player.period;
        self.slowdown.observe(finished.release, deadline, finished.finish, finished.cost);
        self.skip(finished.finish);
        let error = quantized_error(finished.finish, deadline, self.player.server_period);
        self.meter.count(error as f64, share, finished.finish > deadline, Some(finished.finish));
        let next = self.foresees(if self.player.skip == Skip::None { k as usize + 1 } else { self.begun });
        JobRecord { k, release: finished.release, finish: finished.finish, cost: finished.cost, next }
    }
}

fn join(task: TaskId, contract: &Contract) -> Input {
    let thread = ThreadId(task.0 as i32);
    Input::Join {
        request: task.0 as u64,
        pid: thread.0,
        owner: OWNER,
        covers: ApplicationScope::Thread(thread),
        threads: vec![thread],
        contract: contract.clone(),
        cpus: None,
    }
}
