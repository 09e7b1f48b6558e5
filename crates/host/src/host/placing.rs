//! Servers bound to CPUs: chooses the CPU of each promise, and finds room for bandwidth without a promise.
//!
//! A promise (a fixed service, or the guarantee of class A or B) is admitted on one CPU by DWCS's own test and
//! stays there. Bandwidth that threads hold beyond promises goes where most is free. If a new promise needs room
//! that is in use, the threads that use it without a promise shrink together and look for room elsewhere.

use qfabric_broker::{Partition, Promise};
use qfabric_sched::{dispatch, dwcs};
use qfabric_types::api::{CpuStatus, Problem};
use qfabric_types::{AppId, Contract, DispatchRules, Nanos, Reservation, Share, Window};

use super::{HYSTERESIS, Host};
use crate::HostConfig;
use crate::ledger::Ledger;
use crate::thread::{Thread, Value, millionths};

/// The service's own server. Applications are numbered from 1.
pub(crate) const OURSELVES: AppId = AppId(0);

/// The promises of every CPU, including the service's own server, if servers are bound to CPUs.
pub(super) fn partition(config: &HostConfig) -> (Option<Partition>, Ledger) {
    let cpus = &config.features.cpus;
    if cpus.is_empty() {
        return (None, Ledger::default());
    }
    let mut partition = Partition::new(cpus, config.cpu_capacity);
    promise_own(config, &mut partition);
    let mut ledger = Ledger::partitioned(cpus, config.cpu_capacity);
    cpus.iter().for_each(|&cpu| ledger.set_room(cpu, room_on(&partition, cpu)));
    (Some(partition), ledger)
}

/// Promises the service's own server.
pub(super) fn promise_own(config: &HostConfig, partition: &mut Partition) {
    if let Some(own) = config.own {
        // Refused only if it is more than a CPU has. Then the service runs without a promise.
        let test = test_of(config);
        let _ = partition.admit(promise(OURSELVES, "qfabric", own, Window::NONE), test);
    }
}

/// Room that promises leave on a CPU if none misses a period; `None`: the CPU is offline.
fn room_on(partition: &Partition, cpu: u32) -> Option<Share> {
    partition.is_online(cpu).then(|| partition.capacity().saturating_sub(partition.full_on(cpu)))
}

fn promise(app: AppId, name: &str, reservation: Reservation, window: Window) -> Promise {
    let (service, period) = (reservation.budget(), reservation.period());
    Promise { app, name: name.to_owned(), service, period, window, cpus: None }
}

/// The promise under `contract`: its static server, otherwise its guarantee once per server period.
fn promise_of(app: AppId, contract: &Contract, guaranteed: Share) -> Option<Promise> {
    let window = contract.window.unwrap_or(Window::NONE);
    if let Some(server) = contract.static_server() {
        return Some(promise(app, &contract.name, server, window));
    }
    let period = contract.server_period;
    let ns = u128::from(guaranteed.ppm()) * u128::from(period.get());
    let service = Nanos::new(ns.div_ceil(1_000_000) as u64);
    (guaranteed > Share::ZERO).then(|| Promise {
        app,
        name: contract.name.clone(),
        service,
        period,
        window: Window::NONE,
        cpus: None,
    })
}

/// Whether one CPU can keep all its promises within its capacity.
type Test = Box<dyn Fn(&[Promise], Share) -> Result<(), Problem>>;

/// The admission test of the mechanism in force.
fn test_of(config: &HostConfig) -> Test {
    match config.features.slots {
        Some(rules) => Box::new(move |promises, _| fit_in_slots(&rules, promises)),
        None => Box::new(keeper(config.best_effort)),
    }
}

/// Whether a dispatch table has slots for all promises of a CPU. The rules contain its capacity.
fn fit_in_slots(rules: &DispatchRules, promises: &[Promise]) -> Result<(), Problem> {
    let demand = |promise: &Promise| dispatch::Demand {
        group: dispatch::GroupId(promise.app.0),
        service: promise.service,
        period: promise.period,
    };
    let called = |group: dispatch::GroupId| {
        let promise = promises.iter().find(|promise| promise.app.0 == group.0);
        promise.map_or_else(|| group.to_string(), |promise| promise.name.clone())
    };
    let demands: Vec<dispatch::Demand> = promises.iter().map(demand).collect();
    dispatch::admit(rules, &demands).map(drop).map_err(|refusal| refusal.problem_for(&called))
}

/// DWCS's own admission test: the windows of these promises will never be violated on one CPU, of which `capacity`
/// is for them and the rest for best effort, which is a task among them.
fn keeper(best_effort: Option<Reservation>) -> impl Fn(&[Promise], Share) -> Result<(), Problem> {
    move |promises, capacity| {
        let task = |service: Nanos, period: Nanos, window: Window| {
            dwcs::Task::new(period.get(), service.get(), window).map_err(|why| why.problem())
        };
        let mut tasks: Vec<dwcs::Task> =
            promises.iter().map(|p| task(p.service, p.period, p.window)).collect::<Result<_, _>>()?;
        let mut whole = capacity;
        if let Some(rest) = best_effort {
            tasks.push(task(rest.budget(), rest.period(), Window::NONE)?);
            whole = (whole + rest.share()).min(Share::ONE);
        }
        let called = |task: dwcs::TaskIndex| {
            promises.get(task.0).map_or("best effort".to_owned(), |promise| promise.name.clone())
        };
        let wording =
            dwcs::Wording { task: &called, time: &|ns| Nanos::new(ns).to_string(), shared: dwcs::Shared::Cpu };
        dwcs::admit(&tasks, whole).map(drop).map_err(|refusal| refusal.problem(&wording))
    }
}

impl Host {
    /// The CPU on which the service's own server is promised.
    pub fn own_cpu(&self) -> Option<u32> {
        self.partition.as_ref()?.cpu_of(OURSELVES)
    }

    /// Promises the bandwidth of `contract` on one of `cpus` (`None`: any CPU). Returns the promises before.
    pub(super) fn promise(
        &mut self,
        app: AppId,
        contract: &Contract,
        guaranteed: Share,
        cpus: Option<&[u32]>,
    ) -> Result<Option<Partition>, Problem> {
        let test = test_of(&self.config);
        let Some(partition) = &mut self.partition else { return Ok(None) };
        let before = partition.clone();
        match promise_of(app, contract, guaranteed) {
            Some(promise) => {
                let cpus = cpus.map(<[u32]>::to_vec);
                partition.admit(Promise { cpus, ..promise }, test)?;
            }
            None => partition.release(app),
        }
        self.follow_promises(app, &before);
        Ok(Some(before))
    }

    /// Undoes [`Host::promise`].
    pub(super) fn unpromise(&mut self, before: Option<Partition>) {
        if let (Some(before), Some(partition)) = (before, &mut self.partition) {
            *partition = before;
            self.set_rooms();
        }
    }

    /// Ends the promise to `app`.
    pub(super) fn end_promise(&mut self, app: AppId) {
        if let Some(partition) = &mut self.partition {
            let before = partition.clone();
            partition.release(app);
            self.follow_promises(app, &before);
        }
    }

    /// Updates the rooms at once, except that what a promise gave up stays occupied for a period, because it may be
    /// in use.
    fn follow_promises(&mut self, app: AppId, before: &Partition) {
        let Some(partition) = &self.partition else { return };
        if let Some(cpu) = before.cpu_of(app) {
            let given_up = before.full_on(cpu).saturating_sub(partition.full_on(cpu));
            let due = self.now + before.period_of(app);
            if given_up > Share::ZERO {
                self.ledger.promise_ended(cpu, given_up, due);
                self.due = self.due.min(due);
                self.starved = true;
            }
        }
        self.set_rooms();
    }

    pub(super) fn set_rooms(&mut self) {
        let Some(partition) = &self.partition else { return };
        for &cpu in &self.config.features.cpus {
            self.ledger.set_room(cpu, room_on(partition, cpu));
        }
    }

    /// If threads hold more without a promise on the CPU of `app` than promises leave, they shrink together.
    pub(super) fn make_room_for(&mut self, app: AppId) {
        self.align();
        let Some(cpu) = self.partition.as_ref().and_then(|partition| partition.cpu_of(app)) else { return };
        let Some(place) = self.ledger.place_of(cpu) else { return };
        let (loose, room) = self.ledger.loose_and_room(place);
        if loose <= room {
            return;
        }
        for at in 0..self.apps.len() {
            if self.crowd_out(at, place, room, loose) {
                self.place(at);
            }
        }
    }

    /// Lowers the ceilings of an application's threads on a place in the ratio `room` to `loose`.
    fn crowd_out(&mut self, at: usize, place: usize, room: u64, loose: u64) -> bool {
        let mut any = false;
        let here = |thread: &&mut Thread| thread.place == Some(place) && thread.loose() > 0;
        for thread in self.apps[at].threads.iter_mut().filter(here) {
            let left = (u128::from(thread.loose()) * u128::from(room) / u128::from(loose)) as u64;
            thread.ceiling = Some(Share::from_ppm((thread.promised + left).min(u32::MAX.into()) as u32));
            any = true;
        }
        any
    }

    /// The value with its CPU, limited to the room there; `None` if the change gains nothing.
    pub(super) fn settle_place(&mut self, at: usize, index: usize, value: Value) -> Option<Value> {
        let bound = self.promised_place(at, index);
        let covered = if bound.is_some() { u64::from(self.apps[at].guarantee.share.ppm()) } else { 0 };
        self.end_covers(at, bound);
        let thread = &mut self.apps[at].threads[index];
        let (wanted, held) = (u64::from(value.counted.ppm()), millionths(thread.applied));
        let (place, most) = self.ledger.find_place(thread, wanted, bound.map(|place| (place, covered)));
        let gain = wanted.min(most).saturating_sub(held);
        if wanted > held.max(most) && gain < u64::from(HYSTERESIS.ppm()) {
            return None;
        }
        let mut value = value.clipped(Share::from_ppm(most.min(u32::MAX.into()) as u32))?;
        // It moves only if this setting is sent now.
        if !self.ledger.fits(thread, Some(value), self.books.capacity()) {
            return None;
        }
        self.ledger.settle_on(thread, Some(place), covered, self.now);
        self.due = self.due.min(self.ledger.next_pending());
        let of_place = (thread.cpu, self.aligned_on.get(place).copied().unwrap_or_default());
        (_, thread.aligned) = of_place;
        (value.terms.cpu, value.terms.aligned) = of_place;
        if let Some(desired) = &mut thread.desired {
            (desired.terms.cpu, desired.terms.aligned) = of_place;
        }
        Some(value)
    }

    /// On a CPU whose promises fit only with windows, the periods of all servers are aligned from now on.
    fn align(&mut self) {
        let Some(partition) = &self.partition else { return };
        let over = |&cpu: &u32| partition.full_on(cpu) > partition.capacity();
        let aligned: Vec<bool> = self.config.features.cpus.iter().map(over).collect();
        if std::mem::replace(&mut self.aligned_on, aligned) == self.aligned_on {
            return;
        }
        for at in 0..self.apps.len() {
            for thread in &mut self.apps[at].threads {
                thread.aligned = thread.place.is_some_and(|place| self.aligned_on[place]);
            }
            self.place(at);
        }
    }

    /// A promise covers only what the application's bound threads hold.
    fn end_covers(&mut self, at: usize, bound: Option<usize>) {
        let (app, now) = (&mut self.apps[at], self.now);
        for other in 0..app.threads.len() {
            let is_bound = bound.is_some() && app.is_bound(app.threads[other].id);
            let thread = &mut app.threads[other];
            if !is_bound && thread.promised > 0 {
                let place = thread.place;
                self.ledger.settle_on(thread, place, 0, now);
            }
        }
    }

    /// The place of the promise that covers the thread, if one does.
    fn promised_place(&self, at: usize, index: usize) -> Option<usize> {
        let app = &self.apps[at];
        if !app.is_bound(app.threads[index].id) {
            return None;
        }
        let cpu = self.partition.as_ref()?.cpu_of(app.id)?;
        self.ledger.place_of(cpu)
    }

    /// The promised and granted bandwidth of every CPU.
    pub(super) fn cpu_statuses(&self) -> Vec<CpuStatus> {
        let Some(partition) = &self.partition else { return Vec::new() };
        let held = |cpu: u32| {
            let threads = self.apps.iter().flat_map(|app| &app.threads).filter(|thread| thread.cpu == Some(cpu));
            threads.filter_map(|thread| thread.applied).map(|value| value.counted).sum()
        };
        let status = |&cpu: &u32| CpuStatus {
            cpu,
            capacity: partition.capacity(),
            guaranteed: partition.promised_on(cpu),
            granted: held(cpu),
        };
        self.config.features.cpus.iter().filter(|cpu| partition.is_online(**cpu)).map(status).collect()
    }
}
