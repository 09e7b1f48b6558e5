//! The clock that a set of tasks needs, and the one that costs the least (000 §6.4.1, §7.1.1).

use qfabric_sched::dwcs::{Task, TaskIndex, Utilization};

use crate::model::Cpu;

/// U_x%: the part of the processor that tasks may fill; the rest keeps best effort alive. The thesis names 95 %.
pub const USABLE: f64 = 0.95;

/// k' = U_95% / Σ(1 − x/y)·C/T: the longest stretch of all computations at which the windows still fit. Infinite
/// without demand.
pub fn stretch_limit(utilization: f64) -> f64 {
    if utilization > 0.0 { USABLE / utilization } else { f64::INFINITY }
}

/// The slowest level with k_n <= `limit`; the highest level if all are too slow.
pub fn slowest_level(cpu: &Cpu, limit: f64) -> usize {
    (0..=cpu.highest()).find(|&level| cpu.stretch(level) <= limit).unwrap_or(cpu.highest())
}

/// The level with k_n <= `limit` that minimises (P(f) − P_idle + ΔP)·k(f), the energy of a unit of computation while
/// `beside_w` = ΔP watts are spent beside it only because it runs. With a large ΔP this is the highest level, the rule
/// of the thesis; with ΔP = 0 it is the cheapest clock for computation alone. Of equal levels, the faster.
pub fn cheapest_level(cpu: &Cpu, limit: f64, beside_w: f64) -> usize {
    let cost = |&level: &usize| work_cost(cpu, level, beside_w);
    let fits = |level: &usize| cpu.stretch(*level) <= limit || *level == cpu.highest();
    let levels = (0..=cpu.highest()).rev().filter(fits);
    levels.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(cpu.highest())
}

/// (P(f) − P_idle + ΔP)·k(f), in joules per second of computation at the highest clock.
pub fn work_cost(cpu: &Cpu, level: usize, beside_w: f64) -> f64 {
    (cpu.busy_w(level) + beside_w) * cpu.stretch(level)
}

/// The level that Linux's governor schedutil aims at: 1.25 × utilization × highest frequency.
pub fn governor_level(cpu: &Cpu, utilization: f64) -> usize {
    reserved_level(cpu, 0.0, utilization)
}

/// The level that schedutil aims at beside reservations of SCHED_DEADLINE (GRUB-PA): their bandwidth with the time of
/// interrupts is the lower limit, without headroom. As in Linux 6.8 and later (`effective_cpu_util`,
/// `sugov_effective_cpu_perf`).
pub(crate) fn reserved_level(cpu: &Cpu, promised: f64, utilization: f64) -> usize {
    slowest_level(cpu, 1.0 / promised.max(1.25 * utilization).max(1e-9))
}

/// The clock of a processor under DWCS: k' is computed again when a task joins or leaves (000 §6.4.1).
#[derive(Clone, Debug)]
pub struct DwcsClock {
    cpu: Cpu,
    tasks: Vec<(TaskIndex, Task)>,
    /// CPU time per second for packets, at the highest clock.
    network: f64,
    level: usize,
}

impl DwcsClock {
    /// A clock without tasks: the lowest level. `network` is the share of the processor, at the highest clock, that
    /// packets take beside the tasks.
    pub fn new(cpu: Cpu, network: f64) -> Self {
        let mut clock = DwcsClock { cpu, tasks: Vec::new(), network: network.max(0.0), level: 0 };
        clock.choose();
        clock
    }

    /// A task joins, or a known task changes. Returns the level from now on.
    pub fn join(&mut self, id: TaskIndex, task: Task) -> usize {
        self.tasks.retain(|(known, _)| *known != id);
        self.tasks.push((id, task));
        self.choose()
    }

    pub fn leave(&mut self, id: TaskIndex) -> usize {
        self.tasks.retain(|(known, _)| *known != id);
        self.choose()
    }

    pub fn level(&self) -> usize {
        self.level
    }

    /// Σ(1 − x/y)·C/T and the packets, at the highest clock.
    pub fn utilization(&self) -> f64 {
        let tasks: Vec<Task> = self.tasks.iter().map(|(_, task)| *task).collect();
        Utilization::of_windows(&tasks).as_f64() + self.network
    }

    /// k'.
    pub fn stretch_limit(&self) -> f64 {
        stretch_limit(self.utilization())
    }

    fn choose(&mut self) -> usize {
        self.level = slowest_level(&self.cpu, self.stretch_limit());
        self.level
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use qfabric_types::Window;

    use super::*;
    use crate::model::{Model, SHIPPED};

    fn ipaq() -> Cpu {
        Model::shipped("ipaq-h3870-orinoco").unwrap().cpu
    }

    fn task(period: u64, service: u64, x: u64, y: u64) -> Task {
        Task::new(period, service, Window::new(x, y).unwrap()).unwrap()
    }

    #[test]
    fn a_loop_of_3_09_seconds_saves_200_millijoules_at_the_lowest_clock() {
        let cpu = ipaq();
        let work = 3.09 / cpu.stretch(0);
        let saved = work * (work_cost(&cpu, cpu.highest(), 0.0) - work_cost(&cpu, 0, 0.0));
        assert!((0.160..0.240).contains(&saved), "Figure 54: {saved} J");
        assert!(3.09 - work > 2.0, "the run time grows by more than 2 s");
    }

    #[test]
    fn a_quarter_of_the_processor_saves_46_millijoules_in_a_second() {
        let cpu = ipaq();
        let level = slowest_level(&cpu, stretch_limit(0.25));
        assert_eq!(level, 0);
        let saved = 0.25 * (work_cost(&cpu, cpu.highest(), 0.0) - work_cost(&cpu, level, 0.0));
        assert!((0.040..0.058).contains(&saved), "Figure 60: {saved} J");
    }

    #[test]
    fn a_transcoder_lifts_the_clock_of_figure_70() {
        let mut clock = DwcsClock::new(ipaq(), 0.0);
        assert_eq!(clock.join(TaskIndex(0), task(1_000, 200, 0, 1)), 0);
        let lifted = clock.join(TaskIndex(1), task(1_000, 270, 0, 1));
        assert_eq!(ipaq().levels[lifted].mhz, 103.2);
        assert_eq!(clock.leave(TaskIndex(1)), 0);
    }

    #[test]
    fn reservations_raise_the_clock_only_beyond_the_headroom_of_the_governor() {
        let (cpu, used) = (ipaq(), 0.4);
        let levels = [0.0, used, 1.25 * used, 2.0 * used].map(|promised| reserved_level(&cpu, promised, used));
        assert_eq!(levels[..3], [governor_level(&cpu, used); 3]);
        assert!(levels[3] > levels[0] && cpu.stretch(levels[3]) <= 1.0 / (2.0 * used));
    }

    #[test]
    fn losses_that_a_window_allows_lower_the_clock() {
        let mut clock = DwcsClock::new(ipaq(), 0.0);
        let strict = clock.join(TaskIndex(0), task(100, 60, 0, 1));
        assert!(clock.join(TaskIndex(0), task(100, 60, 1, 2)) < strict);
    }

    #[test]
    fn while_the_card_is_awake_the_ipaq_runs_fastest_and_the_phone_does_not() {
        let ipaq = Model::shipped("ipaq-h3870-orinoco").unwrap();
        assert_eq!(cheapest_level(&ipaq.cpu, f64::INFINITY, ipaq.radio.awake_w()), ipaq.cpu.highest());
        let phone = Model::shipped("pixel6-tensor").unwrap();
        let awake_w = phone.radio.awake_w();
        let best = cheapest_level(&phone.cpu, f64::INFINITY, awake_w);
        let saved = 1.0 - work_cost(&phone.cpu, best, awake_w) / work_cost(&phone.cpu, phone.cpu.highest(), awake_w);
        assert!(best > 0 && best < phone.cpu.highest() && saved >= 0.15, "{} MHz, {saved}", phone.cpu.levels[best].mhz);
    }

    proptest! {
        #[test]
        fn the_cheapest_level_is_that_of_brute_force(model in 0..SHIPPED.len(), limit in 0.5..8.0f64, beside in 0.0..3.0f64) {
            let cpu = Model::shipped(SHIPPED[model].0).unwrap().cpu;
            let chosen = cheapest_level(&cpu, limit, beside);
            prop_assert!(cpu.stretch(chosen) <= limit || chosen == cpu.highest());
            for level in (0..=cpu.highest()).filter(|&level| cpu.stretch(level) <= limit) {
                prop_assert!(work_cost(&cpu, chosen, beside) <= work_cost(&cpu, level, beside));
            }
        }

        #[test]
        fn at_the_chosen_level_the_windows_fit(u in 0.01..0.95f64) {
            let cpu = ipaq();
            let level = slowest_level(&cpu, stretch_limit(u));
            prop_assert!(u * cpu.stretch(level) <= USABLE + 1e-9);
            prop_assert!(level == 0 || u * cpu.stretch(level - 1) > USABLE);
        }
    }
}
