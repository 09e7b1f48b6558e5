//! Promises if servers are bound to CPUs: each CPU has separate accounts, and a promise stays on one CPU.
//!
//! Approach: worst fit. A promise goes to the CPU that has the largest free share, among the CPUs on which the
//! schedulability test of the mechanism accepts the promise beside the existing ones. The caller supplies the test
//! (`host` passes the one of DWCS): this crate records the promises, it does not schedule them. Shares in
//! millionths of one CPU; promised shares are rounded up.

use std::fmt;

use qfabric_types::api::{Holder, Problem};
use qfabric_types::{AppId, Nanos, Share, Window};

use crate::refusal::write_share_holders;

/// A service in every period, less the periods that the window allows to miss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    pub app: AppId,
    pub name: String,
    /// C, the CPU time in a period.
    pub service: Nanos,
    /// T, the period.
    pub period: Nanos,
    /// x/y: at most x of every y periods may pass without their service.
    pub window: Window,
    /// The CPUs on which the application may run; `None`: all.
    pub cpus: Option<Vec<u32>>,
}

impl Promise {
    /// C/T: the share in a period that is not missed.
    pub fn full(&self) -> Share {
        Share::of_budget(self.service, self.period)
    }
    fn may_run_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }
    /// `(1 − x/y)·C/T`: the guaranteed share.
    pub fn share(&self) -> Share {
        self.window.of_share(self.full())
    }
}

#[derive(Clone, Debug)]
struct Cpu {
    id: u32,
    online: bool,
    promises: Vec<Promise>,
}

impl Cpu {
    fn promised(&self) -> Share {
        self.promises.iter().map(Promise::share).sum()
    }
    fn full(&self) -> Share {
        self.promises.iter().map(Promise::full).sum()
    }
}

/// The accounts of all CPUs.
#[derive(Clone, Debug)]
pub struct Partition {
    capacity: Share,
    cpus: Vec<Cpu>,
}

/// No CPU can hold the promise. A refusal changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionRefusal {
    /// The guaranteed share `(1 − x/y)·C/T` of the request.
    pub asked: Share,
    /// The largest share that is free on one CPU.
    pub free: Share,
    /// The share that can be promised on each CPU.
    pub capacity: Share,
    /// Number of online CPUs on which the application may run.
    pub cpus: usize,
    /// The failed test on the CPU with the largest free share, if that share itself is sufficient.
    pub why: Option<Box<Problem>>,
    /// The applications with promises on that CPU, largest first; at most [`crate::Refusal::MOST_HOLDERS`].
    pub holders: Vec<Holder>,
}

impl Partition {
    /// Accounts without promises for `cpus`; up to `capacity` can be promised on each CPU.
    pub fn new(cpus: &[u32], capacity: Share) -> Self {
        let mut partition = Partition { capacity, cpus: Vec::new() };
        partition.set_online(cpus);
        partition
    }

    /// Sets the CPUs that are online. The promises on CPUs that went offline are dropped.
    pub fn set_online(&mut self, cpus: &[u32]) {
        for cpu in &mut self.cpus {
            cpu.online = cpus.contains(&cpu.id);
            if !cpu.online {
                cpu.promises.clear();
            }
        }
        let fresh = cpus.iter().filter(|id| !self.cpus.iter().any(|cpu| cpu.id == **id));
        let fresh: Vec<Cpu> = fresh.map(|&id| Cpu { id, online: true, promises: Vec::new() }).collect();
        self.cpus.extend(fresh);
    }

    pub fn is_online(&self, cpu: u32) -> bool {
        self.cpus.iter().any(|c| c.id == cpu && c.online)
    }

    /// Records a promise and returns its CPU. `test` decides whether one CPU can keep all its promises within its
    /// capacity. A promise to an application that has one already replaces it: the test leaves the old promise out,
    /// and the new one stays on the same CPU if that CPU can hold it.
    ///
    /// # Errors
    /// No CPU can hold the promise. The old promise, if there is one, stays in force.
    pub fn admit(
        &mut self,
        promise: Promise,
        test: impl Fn(&[Promise], Share) -> Result<(), Problem>,
    ) -> Result<u32, PartitionRefusal> {
        let (mut order, home) = (self.by_room(&promise), self.place_of(promise.app));
        order.sort_by_key(|&at| Some(at) != home);
        let fitting = order.iter().find(|&&at| self.try_on(at, &promise, &test).is_ok()).copied();
        let Some(at) = fitting else { return Err(self.refusal(&promise, &test)) };
        self.release(promise.app);
        self.cpus[at].promises.push(promise);
        Ok(self.cpus[at].id)
    }

    /// Drops the promise to `app`.
    pub fn release(&mut self, app: AppId) {
        self.cpus.iter_mut().for_each(|cpu| cpu.promises.retain(|promise| promise.app != app));
    }

    /// The CPU of the promise to `app`.
    pub fn cpu_of(&self, app: AppId) -> Option<u32> {
        self.place_of(app).map(|at| self.cpus[at].id)
    }

    /// T of the promise to `app`; zero if there is none.
    pub fn period_of(&self, app: AppId) -> Nanos {
        let mut promises = self.cpus.iter().flat_map(|cpu| &cpu.promises);
        promises.find(|promise| promise.app == app).map_or(Nanos::ZERO, |promise| promise.period)
    }

    /// Σ C/T on a CPU: the share of its promises in periods that are not missed. May exceed the capacity.
    pub fn full_on(&self, cpu: u32) -> Share {
        self.cpus.iter().find(|c| c.id == cpu).map_or(Share::ZERO, Cpu::full)
    }

    /// U on a CPU: Σ `(1 − x/y)·C/T`.
    pub fn promised_on(&self, cpu: u32) -> Share {
        self.cpus.iter().find(|c| c.id == cpu).map_or(Share::ZERO, Cpu::promised)
    }

    /// The share that can be promised on each CPU.
    pub fn capacity(&self) -> Share {
        self.capacity
    }

    fn place_of(&self, app: AppId) -> Option<usize> {
        self.cpus.iter().position(|cpu| cpu.promises.iter().any(|promise| promise.app == app))
    }

    /// Indices of the CPUs on which the application may run, the one with the largest free share first, then by number.
    fn by_room(&self, promise: &Promise) -> Vec<usize> {
        let is_other = |p: &&Promise| p.app != promise.app;
        let others = |cpu: &Cpu| cpu.promises.iter().filter(is_other).map(Promise::share).sum::<Share>();
        let may_hold = |cpu: &Cpu| cpu.online && promise.may_run_on(cpu.id);
        let mut order: Vec<usize> = (0..self.cpus.len()).filter(|&at| may_hold(&self.cpus[at])).collect();
        order.sort_by_key(|&at| others(&self.cpus[at]));
        order
    }

    fn try_on(
        &self,
        at: usize,
        promise: &Promise,
        test: impl Fn(&[Promise], Share) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let mut all: Vec<Promise> = self.cpus[at].promises.iter().filter(|p| p.app != promise.app).cloned().collect();
        all.push(promise.clone());
        test(&all, self.capacity)
    }

    fn refusal(&self, promise: &Promise, test: impl Fn(&[Promise], Share) -> Result<(), Problem>) -> PartitionRefusal {
        let (asked, capacity) = (promise.share(), self.capacity);
        let order = self.by_room(promise);
        let cpus = order.len();
        let Some(&at) = order.first() else {
            return PartitionRefusal { asked, free: Share::ZERO, capacity, cpus, why: None, holders: Vec::new() };
        };
        let others = || self.cpus[at].promises.iter().filter(|p| p.app != promise.app);
        let free = capacity.saturating_sub(others().map(Promise::share).sum());
        let why = if asked <= free { self.try_on(at, promise, test).err().map(Box::new) } else { None };
        let mut holders: Vec<Holder> =
            others().map(|p| Holder { id: p.app, name: p.name.clone(), share: p.share() }).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.share));
        holders.truncate(crate::Refusal::MOST_HOLDERS);
        PartitionRefusal { asked, free, capacity, cpus, why, holders }
    }
}

impl PartitionRefusal {
    fn next_step(&self) -> String {
        match &self.why {
            Some(why) => {
                format!("{}, or stop one of the holders (`qfabric status` lists them)", why.next_step)
            }
            None => format!(
                "ask for at most {} (a shorter service, a longer period, or a wider window), or stop one of the \
                 holders (`qfabric status` lists them)",
                self.free
            ),
        }
    }
}

impl fmt::Display for PartitionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartitionRefusal { asked, free, capacity, cpus, .. } = self;
        write!(f, "asked for U = {asked} on one CPU; of {capacity} on each of {cpus}, at most {free} is free")?;
        if let Some(why) = &self.why {
            write!(f, ", but the schedulability test fails beside the promises on that CPU: {}", why.message)?;
        }
        write_share_holders(f, &self.holders)
    }
}

impl std::error::Error for PartitionRefusal {}

impl From<PartitionRefusal> for Problem {
    fn from(refusal: PartitionRefusal) -> Problem {
        Problem {
            code: "over_committed".to_owned(),
            message: refusal.to_string(),
            next_step: refusal.next_step(),
            asked: Some(refusal.asked),
            free: Some(refusal.free),
            holders: refusal.holders.into(),
            ..Problem::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn promise(app: u64, service_ms: u64, period_ms: u64, window: &str) -> Promise {
        Promise {
            app: AppId(app),
            name: format!("app{app}"),
            service: Nanos::from_millis(service_ms),
            period: Nanos::from_millis(period_ms),
            window: window.parse().unwrap(),
            cpus: None,
        }
    }

    /// Accepts if U ≤ capacity.
    fn by_sum(all: &[Promise], capacity: Share) -> Result<(), Problem> {
        let sum: Share = all.iter().map(Promise::share).sum();
        if sum <= capacity { Ok(()) } else { Err(Problem::new("not_schedulable", sum.to_string(), "ask for less")) }
    }

    fn partition() -> Partition {
        Partition::new(&[0, 1], Share::from_ppm(950_000))
    }

    #[test]
    fn a_promise_goes_where_most_is_free() {
        let mut partition = partition();
        let cpus: Vec<_> = [30, 20, 20, 30]
            .iter()
            .enumerate()
            .map(|(i, &ms)| partition.admit(promise(i as u64 + 1, ms, 100, "0/1"), by_sum).unwrap())
            .collect();
        assert_eq!(cpus, [0, 1, 1, 0]);
        assert_eq!(partition.promised_on(0), Share::from_ppm(600_000));
    }

    #[test]
    fn a_promise_that_fits_no_single_cpu_is_refused_though_the_sum_is_free() {
        let mut partition = partition();
        for app in [1, 2] {
            partition.admit(promise(app, 50, 100, "0/1"), by_sum).unwrap();
        }
        let refusal = partition.admit(promise(3, 60, 100, "0/1"), by_sum).unwrap_err();
        let problem = Problem::from(refusal);
        for part in ["U = 0.6 CPU", "0.95 CPU on each of 2", "at most 0.45 CPU is free", "app1 (1): 0.5 CPU"] {
            assert!(problem.message.contains(part), "{} lacks {part}", problem.message);
        }
        assert!(problem.next_step.contains("at most 0.45 CPU"), "{}", problem.next_step);
    }

    #[test]
    fn an_offline_cpu_holds_no_promise_and_gets_none() {
        let mut partition = partition();
        let cpus = [1, 2].map(|app| partition.admit(promise(app, 50, 100, "0/1"), by_sum).unwrap());
        partition.set_online(&[0, 4]);
        assert_eq!((cpus, partition.cpu_of(AppId(1)), partition.cpu_of(AppId(2))), ([0, 1], Some(0), None));
        assert_eq!([0, 1, 4].map(|cpu| partition.is_online(cpu)), [true, false, true]);
        assert_eq!(partition.admit(promise(2, 50, 100, "0/1"), by_sum), Ok(4));
        let refusal = partition.admit(promise(3, 60, 100, "0/1"), by_sum).unwrap_err();
        assert_eq!(refusal.cpus, 2);
        partition.set_online(&[0, 1, 4]);
        assert_eq!(partition.admit(promise(3, 60, 100, "0/1"), by_sum), Ok(1));
    }

    #[test]
    fn a_promise_to_a_pinned_application_stays_on_its_cpus() {
        let mut partition = partition();
        let pinned = |app, ms| Promise { cpus: Some(vec![1]), ..promise(app, ms, 100, "0/1") };
        assert_eq!(partition.admit(pinned(1, 50), by_sum), Ok(1));
        assert_eq!(partition.admit(pinned(2, 40), by_sum), Ok(1));
        let refusal = partition.admit(pinned(3, 10), by_sum).unwrap_err();
        assert_eq!((refusal.free, refusal.cpus), (Share::from_ppm(50_000), 1));
        assert_eq!(partition.admit(promise(3, 10, 100, "0/1"), by_sum), Ok(0));
    }

    #[test]
    fn a_window_lowers_the_promised_share() {
        let mut partition = Partition::new(&[3], Share::from_ppm(950_000));
        partition.admit(promise(1, 50, 100, "1/2"), by_sum).unwrap();
        assert_eq!(partition.admit(promise(2, 60, 100, "0/1"), by_sum), Ok(3));
        assert_eq!(
            (partition.promised_on(3), partition.full_on(3)),
            (Share::from_ppm(850_000), Share::from_ppm(1_100_000))
        );
    }

    #[test]
    fn a_failed_test_is_named_in_the_refusal() {
        let mut partition = Partition::new(&[0], Share::from_ppm(950_000));
        let apart = |all: &[Promise], _| match all.len() {
            0 | 1 => Ok(()),
            _ => Err(Problem::new("not_schedulable", "T = 7 ms beside 40 ms", "use T = 10 ms")),
        };
        partition.admit(promise(1, 10, 40, "0/1"), apart).unwrap();
        let refusal = partition.admit(promise(2, 1, 7, "1/2"), apart).unwrap_err();
        assert!(refusal.to_string().contains("beside the promises on that CPU: T = 7 ms beside 40 ms"), "{refusal}");
        let Problem { message, next_step, .. } = Problem::from(refusal);
        assert!(next_step.starts_with("use T = 10 ms, or stop one") && !message.contains("use T"), "{next_step}");
    }

    #[test]
    fn a_change_stays_on_its_cpu_and_a_refused_one_changes_nothing() {
        let mut partition = partition();
        partition.admit(promise(1, 50, 100, "0/1"), by_sum).unwrap();
        partition.admit(promise(2, 20, 100, "0/1"), by_sum).unwrap();
        assert_eq!(partition.admit(promise(1, 60, 100, "0/1"), by_sum), Ok(0));
        assert!(partition.admit(promise(1, 96, 100, "0/1"), by_sum).is_err());
        assert_eq!(partition.promised_on(0), Share::from_ppm(600_000));
        partition.release(AppId(1));
        assert_eq!((partition.cpu_of(AppId(1)), partition.cpu_of(AppId(2))), (None, Some(1)));
    }

    proptest! {
        #[test]
        fn no_cpu_is_ever_promised_beyond_its_capacity(asks in prop::collection::vec((1u64..100, 0u64..4, any::<bool>()), 1..40)) {
            let mut partition = Partition::new(&[0, 1, 2], Share::from_ppm(900_000));
            for (i, (ms, x, leaves)) in asks.into_iter().enumerate() {
                let app = i as u64 + 1;
                let admitted = partition.admit(promise(app, ms, 100, &format!("{x}/5")), by_sum);
                prop_assert_eq!(admitted.is_ok(), partition.cpu_of(AppId(app)).is_some());
                if leaves {
                    partition.release(AppId(app / 2));
                }
                for cpu in 0..3 {
                    prop_assert!(partition.promised_on(cpu) <= Share::from_ppm(900_000));
                }
            }
        }
    }
}
