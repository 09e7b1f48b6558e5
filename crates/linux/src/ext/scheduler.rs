//! The scheduler in the kernel as a value: it is in charge as long as the value lives.

use std::collections::BTreeMap;

use qfabric_types::{Instant, Nanos, Reclaiming, Share, ThreadId, Window};

use super::control;
use super::kernel::Kernel;
use super::{Change, CpuStatistics, ExtError, ServerId, ServerSpec, ServerStatistics, refusal, support};
use crate::abi::*;
use crate::cpus::CpuList;
use crate::sched_attr::SchedAttr;

/// Parameters for threads without a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtConfig {
    /// Guaranteed service of best effort on each CPU, in every `best_effort_period`.
    pub best_effort_service: Nanos,
    pub best_effort_period: Nanos,
    /// Periods of which best effort may miss its service.
    pub best_effort_window: Window,
    /// Time that a thread without a server runs before the next such thread.
    pub slice: Nanos,
}

impl Default for ExtConfig {
    /// 5 % (1 ms in 20 ms), never missed; slices of 3 ms.
    fn default() -> Self {
        ExtConfig {
            best_effort_service: Nanos::from_millis(1),
            best_effort_period: Nanos::from_millis(20),
            best_effort_window: Window::NONE,
            slice: Nanos::from_millis(3),
        }
    }
}

impl ExtConfig {
    /// Guaranteed share of best effort on each CPU.
    pub fn best_effort_share(&self) -> Share {
        let share = Share::of_budget(self.best_effort_service, self.best_effort_period);
        self.best_effort_window.of_share(share)
    }

    /// Share of each CPU that can be promised to servers.
    pub fn capacity(&self) -> Share {
        Share::ONE - self.best_effort_share() - OVERHEAD
    }

    fn check(&self) -> Result<(), ExtError> {
        let (service, period) = (self.best_effort_service, self.best_effort_period);
        refusal::within("best effort's period", period, refusal::PERIODS)?;
        refusal::within("best effort's service", service, (refusal::SERVICE_MIN, period))?;
        refusal::within("the slice", self.slice, (Nanos::from_micros(100), Nanos::from_millis(100)))
    }
}

/// Share of a CPU that interrupts, timers and context switches use; it is never promised. If 100 % were promised, a
/// period of 20 ms would sometimes be missed by about 10 µs.
const OVERHEAD: Share = Share::from_ppm(10_000);

/// The loaded scheduler. Dropping it puts all threads back under the kernel's own scheduler.
#[derive(Debug)]
pub struct Ext {
    config: ExtConfig,
    kernel: Kernel,
    servers: BTreeMap<u32, qf_create>,
}

impl Ext {
    /// Fails with the reason and an alternative if this kernel cannot load the scheduler.
    pub fn supported() -> Result<(), ExtError> {
        support::check()
    }

    /// Loads the scheduler and puts the whole machine under it.
    pub fn load(config: &ExtConfig) -> Result<Ext, ExtError> {
        Ext::load_lingering(config, 0)
    }

    /// For tests of races: between a verdict and the insertion that the verdict orders, the BPF program waits for
    /// `rounds` (about 0.1 µs each).
    #[doc(hidden)]
    pub fn load_lingering(config: &ExtConfig, rounds: u16) -> Result<Ext, ExtError> {
        config.check()?;
        support::check()?;
        Ok(Ext { config: config.clone(), kernel: Kernel::load(config, rounds)?, servers: BTreeMap::new() })
    }

    pub fn config(&self) -> &ExtConfig {
        &self.config
    }

    /// Creates a server. Fails if no CPU has enough bandwidth left: the promises of a CPU (reduced by their windows)
    /// plus the part of best effort must not exceed one CPU. This test is necessary; if losses are allowed it is not
    /// sufficient, but the broker's admission is.
    pub fn create(&mut self, spec: &ServerSpec) -> Result<ServerId, ExtError> {
        self.create_beside(spec, None)
    }

    /// Creates a server in place of `old`, whose bandwidth it may use, because both together may exceed the CPU. The
    /// caller then moves the threads and destroys `old`.
    pub fn create_instead(&mut self, spec: &ServerSpec, old: ServerId) -> Result<ServerId, ExtError> {
        self.create_beside(spec, Some(old.0))
    }

    fn create_beside(&mut self, spec: &ServerSpec, old: Option<u32>) -> Result<ServerId, ExtError> {
        self.check_alive()?;
        refusal::check(spec)?;
        let cpu = self.place(spec, old)?;
        let slot = self.free_slot()?;
        let mut ask =
            qf_create { slot, cpu, flags: flags(spec.wake_events), config: config(spec), ..Default::default() };
        let control = control::config(spec.control.as_ref())?;
        control::fits(&control, spec.period)?;
        self.kernel.create.call(&mut ask).map_err(|e| refusal::of("create a server", &e))?;
        self.servers.insert(slot, ask);
        if control.on == 1
            && let Err(error) = self.control(slot, control)
        {
            self.destroy(ServerId(slot))?;
            return Err(error);
        }
        Ok(ServerId(slot))
    }

    /// Changes a server at once, also for the running job.
    pub fn change(&mut self, id: ServerId, change: &Change) -> Result<(), ExtError> {
        self.check_alive()?;
        let mut ask = changed(&self.current_request(id)?, change);
        refusal::check_config(&ask.config)?;
        self.check_room(id, &ask)?;
        let control = change.control.map(|control| control::config(control.as_ref())).transpose()?;
        control.iter().try_for_each(|control| control::fits(control, Nanos::new(ask.config.period_ns)))?;
        self.kernel.change.call(&mut ask).map_err(|e| refusal::of("change a server", &e))?;
        self.servers.insert(id.0, ask);
        control.map_or(Ok(()), |control| self.control(id.0, control))
    }

    /// Removes a server; its threads continue as best effort.
    pub fn destroy(&mut self, id: ServerId) -> Result<(), ExtError> {
        self.check_alive()?;
        self.known(id)?;
        let mut ask = qf_command { slot: id.0, ..Default::default() };
        self.kernel.destroy.call(&mut ask).map_err(|e| refusal::of("destroy a server", &e))?;
        self.servers.remove(&id.0);
        wait_for_all_cpus();
        let _ = self.kernel.destroy.call(&mut ask); // finds threads that were being inserted into its queue
        Ok(())
    }

    /// Puts a thread into a server and removes it from its former server. With `children`, later children join, too.
    pub fn join(&mut self, id: ServerId, thread: ThreadId, children: bool) -> Result<(), ExtError> {
        self.check_alive()?;
        let cpu = self.known(id)?.cpu;
        check_policy(thread)?;
        self.move_thread(qf_join { tid: thread.0, slot: id.0, children: children.into(), zero: 0 }, cpu)
    }

    /// Takes a thread out of its server. Does nothing if the thread has no server or has ended.
    pub fn leave(&mut self, thread: ThreadId) -> Result<(), ExtError> {
        self.check_alive()?;
        match self.move_thread(qf_join { tid: thread.0, ..Default::default() }, 0) {
            Err(ExtError::NoThread { .. }) => Ok(()),
            other => other,
        }
    }

    /// Raises an event for a server: it is favoured under rules 1 to 5 until it has run, or until `deadline`.
    pub fn raise(&mut self, id: ServerId, deadline: Option<Instant>) -> Result<(), ExtError> {
        self.check_alive()?;
        self.known(id)?;
        let deadline_ns = deadline.map_or(Instant::NEVER, |d| d).get();
        let mut ask = qf_command { slot: id.0, deadline_ns, ..Default::default() };
        self.kernel.raise.call(&mut ask).map_err(|e| refusal::of("raise an event", &e)).map(drop)
    }

    pub fn statistics(&self, id: ServerId) -> Result<ServerStatistics, ExtError> {
        self.known(id)?;
        let seen = |_| {
            let before = self.kernel.server(id.0).jobs;
            let (server, late) = (self.kernel.server(id.0), self.kernel.controller(id.0).late_periods);
            (before == self.kernel.server(id.0).jobs).then_some((server, late))
        };
        // If a job ends during the reading, the values would be from two jobs; then read again.
        let (server, late) = (0..10).find_map(seen).unwrap_or_else(|| (self.kernel.server(id.0), 0));
        Ok(ServerStatistics { last_late: late, ..statistics(&server, &self.kernel.slot(id.0)) })
    }

    pub fn cpu_statistics(&self, cpu: u32) -> Result<CpuStatistics, ExtError> {
        if cpu >= self.kernel.cpus() {
            return Err(refusal::no_cpu(cpu));
        }
        let counts = self.kernel.counts(cpu);
        let reserved = self.kernel.server(1 + cpu);
        Ok(CpuStatistics {
            decisions: counts.decisions,
            kicks: counts.kicks,
            timers: counts.timers,
            late_timers: counts.late,
            best_effort: Nanos::new(counts.best_effort_ns),
            best_effort_missed: reserved.missed,
            booked: self.booked(cpu, None),
            online: counts.online == 1,
        })
    }

    /// Why the scheduler is no longer in charge; `None` while it is.
    pub fn exit_reason(&self) -> Option<String> {
        self.kernel.exit_reason()
    }

    pub fn servers(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.servers.keys().map(|slot| ServerId(*slot))
    }

    pub fn cpu_of(&self, id: ServerId) -> Result<u32, ExtError> {
        Ok(self.known(id)?.cpu)
    }

    /// Descriptor of the map by which other code raises events for servers. Its value is one `qf_raised`;
    /// `bpf/include/qf_sched.h` defines the order of writes.
    pub fn raised(&self) -> std::os::fd::BorrowedFd<'_> {
        self.kernel.raised()
    }

    /// Descriptor of the map with the clock that the scheduler asks for; see [`super::SchedulerClock`].
    pub fn clock(&self) -> std::os::fd::BorrowedFd<'_> {
        self.kernel.clock()
    }

    fn check_alive(&self) -> Result<(), ExtError> {
        self.exit_reason().map_or(Ok(()), |reason| Err(ExtError::Gone { reason }))
    }

    fn known(&self, id: ServerId) -> Result<&qf_create, ExtError> {
        self.servers.get(&id.0).ok_or(ExtError::NoServer { id })
    }

    /// The request for the server, with the budget that its controller has chosen since.
    fn current_request(&self, id: ServerId) -> Result<qf_create, ExtError> {
        let mut ask = *self.known(id)?;
        ask.config.service_ns = self.kernel.server(id.0).config.service_ns;
        Ok(ask)
    }

    fn control(&self, slot: u32, config: qf_control_config) -> Result<(), ExtError> {
        let mut ask = qf_steer { slot, zero: 0, config };
        self.kernel.control.call(&mut ask).map_err(|e| refusal::of("give a server its controller", &e)).map(drop)
    }

    fn free_slot(&self) -> Result<u32, ExtError> {
        let first = self.kernel.cpus() + 1;
        let free = (first..QF_SLOTS).find(|slot| !self.servers.contains_key(slot));
        free.ok_or(ExtError::Full { limit: QF_SLOTS - first })
    }

    /// Promised share of a CPU, including best effort's part, without the server in slot `but`.
    fn booked(&self, cpu: u32, but: Option<u32>) -> Share {
        let others = self.servers.values().filter(|s| s.cpu == cpu && Some(s.slot) != but);
        others.fold(self.config.best_effort_share() + OVERHEAD, |sum, server| sum + share(&server.config))
    }

    /// The requested CPU, or the online CPU with the most free share. The server in slot `but` does not count.
    fn place(&self, spec: &ServerSpec, but: Option<u32>) -> Result<u32, ExtError> {
        let online = CpuList::online();
        let asked = share(&config(spec));
        let cpu = match spec.cpu {
            Some(cpu) if online.iter().any(|c| c == cpu) && cpu < self.kernel.cpus() => cpu,
            Some(cpu) => return Err(refusal::no_cpu(cpu)),
            None => online.iter().min_by_key(|cpu| self.booked(*cpu, but)).unwrap_or(0),
        };
        refusal::room(asked, self.booked(cpu, but), cpu)?;
        Ok(cpu)
    }

    fn check_room(&self, id: ServerId, ask: &qf_create) -> Result<(), ExtError> {
        if share(&ask.config) <= share(&self.known(id)?.config) {
            return Ok(());
        }
        refusal::room(share(&ask.config), self.booked(ask.cpu, Some(id.0)), ask.cpu)
    }

    /// Calls the command twice: the second call finds a thread that was being inserted into a queue during the first.
    fn move_thread(&self, ask: qf_join, cpu: u32) -> Result<(), ExtError> {
        for _ in 0..2 {
            self.kernel.join.call(&mut { ask }).map_err(|e| refusal::of_join(ThreadId(ask.tid), cpu, &e))?;
        }
        Ok(())
    }
}

/// Refuses real-time threads: their policy precedes sched_ext, so a server would never get them.
fn check_policy(thread: ThreadId) -> Result<(), ExtError> {
    let attr = SchedAttr::of(thread).map_err(|_| ExtError::NoThread { thread })?;
    match attr.policy.is_real_time() {
        true => Err(ExtError::RealTime { thread, policy: attr.policy.name() }),
        false => Ok(()),
    }
}

/// Returns after every CPU has left the kernel code that it was running when this was called.
fn wait_for_all_cpus() {
    // If the kernel does not offer membarrier (full dynticks), a pause has the same effect.
    if crate::sys::membarrier().is_err() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn flags(wake_events: bool) -> u32 {
    if wake_events { QF_SLOT_WAKE_EVENTS } else { 0 }
}

fn mode(reclaiming: Reclaiming) -> u8 {
    (match reclaiming {
        Reclaiming::Hard => QF_MODE_HARD,
        Reclaiming::Soft => QF_MODE_SOFT,
        Reclaiming::Grub => QF_MODE_GRUB,
        Reclaiming::Iris => QF_MODE_IRIS,
    }) as u8
}

fn config(spec: &ServerSpec) -> qf_config {
    let conserving = if spec.work_conserving { QF_ASK_WORK_CONSERVING } else { 0 };
    let aligned = if spec.phase.is_some() { QF_ASK_ALIGNED } else { 0 };
    qf_config {
        period_ns: spec.period.get(),
        service_ns: spec.service.get(),
        arrival_ns: spec.phase.map_or(0, Instant::get),
        x: spec.window.x().into(),
        y: spec.window.y().into(),
        mode: mode(spec.reclaiming),
        network: spec.network_probability,
        ask: conserving | aligned,
        ..Default::default()
    }
}

fn changed(old: &qf_create, change: &Change) -> qf_create {
    let mut ask = *old;
    let config = &mut ask.config;
    config.service_ns = change.service.map_or(config.service_ns, Nanos::get);
    config.period_ns = change.period.map_or(config.period_ns, Nanos::get);
    if let Some(window) = change.window {
        (config.x, config.y) = (window.x().into(), window.y().into());
    }
    config.mode = change.reclaiming.map_or(config.mode, mode);
    config.network = change.network_probability.unwrap_or(config.network);
    match change.work_conserving {
        Some(true) => config.ask |= QF_ASK_WORK_CONSERVING,
        Some(false) => config.ask &= !QF_ASK_WORK_CONSERVING,
        None => {}
    }
    ask.flags = change.wake_events.map_or(ask.flags, flags);
    ask
}

/// C/T, reduced by the window.
fn share(config: &qf_config) -> Share {
    let share = Share::of_budget(Nanos::new(config.service_ns), Nanos::new(config.period_ns));
    Window::new(config.x.into(), config.y.into()).map_or(share, |window| window.of_share(share))
}

fn statistics(server: &qf_server, slot: &qf_slot) -> ServerStatistics {
    ServerStatistics {
        served: server.served,
        missed: server.missed,
        violations: server.violations,
        boosts: server.events,
        expired: server.events_late,
        used: Nanos::new(server.used_ns),
        extra: Nanos::new(server.extra_ns),
        jobs: server.jobs,
        last_job: Nanos::new(server.last_job_ns),
        last_late: 0,
        throttles: slot.throttles,
        wakeups: slot.wakeups,
        run_queue_delay: Nanos::new(slot.delay_ns),
        run_queue_delay_max: Nanos::new(slot.delay_max_ns),
        run_queue_delay_sum: Nanos::new(slot.delay_sum_ns),
        service: Nanos::new(server.config.service_ns),
        remaining: Nanos::new(server.left_ns),
        deadline: Instant::new(server.deadline_ns),
        window_now: (server.x_now, server.y_now),
        threads: slot.threads.max(0) as u32,
        lost: slot.lost,
    }
}
