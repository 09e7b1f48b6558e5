//! The clock of the moment, coordinated with the queue of the network card (000 §7.1.1).
//!
//! ```text
//!            packet arrives (mean burst >= 2 packets, f_n held for t_b), or a burst begins
//!   f_n ───────────────────────────────────────────────────────────────────────────────▶ f_max
//!    ▲                                                                                     │
//!    └───────────────────────────────── the burst ends ───────────────────────────────────┘
//! ```
//!
//! [`ClockRule::Optimal`] is the general rule: the clock rises only while the awake card waits for the processor, and to
//! the level that costs the least then. Where that level is f_max, the printed rule is a case of it.

use crate::clock::{cheapest_level, governor_level, reserved_level, slowest_level, stretch_limit};
use crate::model::Model;

/// How a device chooses its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockRule {
    /// Always f_max.
    Highest,
    /// Linux's schedutil: follows the utilization.
    Governor,
    /// GRUB-PA: schedutil, with the tasks under SCHED_DEADLINE. Their budgets are this many per cent of the demand.
    Reserved { percent: u32 },
    /// k' from the windows of the tasks, without regard to packets (§6.4).
    Windows,
    /// The rule of §7.1.1: f_max while packets wait or are sent.
    Printed,
    /// The level that costs the least, with the card's power while it is held awake.
    Optimal,
}

/// The demand on the processor, as shares at the highest clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Σ(1 − x/y)·C/T of the tasks.
    pub windows: f64,
    /// The packets' part.
    pub network: f64,
}

/// Decides the clock level whenever the queue changes.
#[derive(Clone, Debug)]
pub struct Coordination {
    rule: ClockRule,
    highest: usize,
    /// f_n: the level without packets.
    low: usize,
    /// The level while the card is held awake.
    sending: usize,
    /// The printed rule: begin of the time at f_max.
    raised: Option<u64>,
    low_since: u64,
    /// Packets in a burst, and t_b, the time at f_max for a burst: means of the bursts so far.
    mean_packets: f64,
    mean_ns: f64,
}

/// Weight of the last burst in the means.
const LAST: f64 = 0.25;

impl Coordination {
    pub fn new(rule: ClockRule, model: &Model, demand: Demand) -> Self {
        let (cpu, all) = (&model.cpu, demand.windows + demand.network);
        let limit = stretch_limit(all);
        let low = match rule {
            ClockRule::Highest => cpu.highest(),
            ClockRule::Governor => governor_level(cpu, all),
            ClockRule::Reserved { percent } => {
                reserved_level(cpu, demand.windows * f64::from(percent) / 100.0 + demand.network, all)
            }
            ClockRule::Windows => slowest_level(cpu, stretch_limit(demand.windows)),
            ClockRule::Printed => slowest_level(cpu, limit),
            ClockRule::Optimal => cheapest_level(cpu, limit, 0.0),
        };
        let sending = match rule {
            ClockRule::Printed => cpu.highest(),
            ClockRule::Optimal => cheapest_level(cpu, limit, model.radio.awake_w()),
            _ => low,
        };
        Coordination {
            rule,
            highest: cpu.highest(),
            low,
            sending,
            raised: None,
            low_since: 0,
            mean_packets: 1.0,
            mean_ns: 0.0,
        }
    }

    /// The level of this moment. `card_waits` says that the card is awake only because the processor prepares a packet.
    pub fn level(&self, card_waits: bool) -> usize {
        match self.raised {
            Some(_) => self.highest,
            None if card_waits => self.sending,
            None => self.low,
        }
    }

    /// The level at which packets will be sent.
    pub fn sending_level(&self) -> usize {
        self.sending
    }

    /// A packet joined the queue.
    pub fn on_arrival(&mut self, now: u64) {
        let has_rested = (now - self.low_since) as f64 >= self.mean_ns;
        if self.rule == ClockRule::Printed && self.raised.is_none() && self.mean_packets >= 2.0 && has_rested {
            self.raised = Some(now);
        }
    }

    /// A packet of a burst begins.
    pub fn on_transmission(&mut self, now: u64) {
        if self.rule == ClockRule::Printed {
            self.raised.get_or_insert(now);
        }
    }

    /// A burst of `packets` is over. The low clock holds for at least t_b, although packets may wait: so it has about
    /// half of the time.
    pub fn on_burst_end(&mut self, packets: u32, now: u64) {
        self.mean_packets += LAST * (f64::from(packets) - self.mean_packets);
        if let Some(raised) = self.raised.take() {
            self.mean_ns += LAST * ((now - raised) as f64 - self.mean_ns);
        }
        self.low_since = now;
    }
}

/// k' of §7.1.1 for the time at f_n, if `raised` is the part of time at f_max, and `done` the part of one processor that
/// was used in it: (U − raised) / (ΣU_i − done). The thesis prints U' for both; with the same number twice, idle time at
/// f_max counts as usable. `None` if no time is left.
pub fn printed_stretch_limit(demand: Demand, raised: f64, done: f64) -> Option<f64> {
    let (time, work) = (crate::clock::USABLE - raised, demand.windows + demand.network - done);
    match (time > 0.0, work > 0.0) {
        (false, _) => None,
        (true, false) => Some(f64::INFINITY),
        (true, true) => Some(time / work),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::work_cost;
    use crate::model::SHIPPED;

    const DEMAND: Demand = Demand { windows: 0.2, network: 0.05 };

    fn coordination(rule: ClockRule) -> Coordination {
        Coordination::new(rule, &Model::shipped("ipaq-h3870-orinoco").unwrap(), DEMAND)
    }

    #[test]
    fn the_printed_rule_raises_the_clock_at_arrival_only_for_large_bursts() {
        let mut clock = coordination(ClockRule::Printed);
        clock.on_arrival(0);
        assert_eq!(clock.level(false), 0, "bursts of one packet so far");
        for begun in 0..12 {
            clock.on_transmission(begun * 100);
            assert_eq!(clock.level(false), 10);
            clock.on_burst_end(3, begun * 100 + 20);
        }
        clock.on_arrival(1_125);
        assert_eq!(clock.level(false), 0, "the low clock holds for t_b");
        clock.on_arrival(1_150);
        assert_eq!(clock.level(false), 10);
    }

    #[test]
    fn ours_raises_the_clock_only_while_the_card_waits_for_the_processor() {
        let mut clock = coordination(ClockRule::Optimal);
        (0..20).for_each(|at| clock.on_burst_end(3, at * 100));
        clock.on_arrival(5_000);
        clock.on_transmission(5_000);
        assert_eq!((clock.level(false), clock.level(true)), (0, 10));
    }

    #[test]
    fn sending_costs_no_more_than_by_the_printed_rule_on_every_model() {
        for (name, _) in SHIPPED {
            let model = Model::shipped(name).unwrap();
            let cost = |rule| {
                let level = Coordination::new(rule, &model, DEMAND).sending_level();
                work_cost(&model.cpu, level, model.radio.awake_w())
            };
            assert!(cost(ClockRule::Optimal) <= cost(ClockRule::Printed), "{name}");
        }
    }

    #[test]
    fn work_done_at_the_highest_clock_leaves_more_stretch_for_the_rest() {
        let limit = printed_stretch_limit(DEMAND, 0.1, 0.1).unwrap();
        assert!((limit - 0.85 / 0.15).abs() < 1e-9);
        assert!(printed_stretch_limit(DEMAND, 0.3, 0.1).unwrap() < limit, "idle time at f_max is lost");
        assert_eq!(printed_stretch_limit(DEMAND, 0.95, 0.1), None);
        assert_eq!(printed_stretch_limit(DEMAND, 0.3, 0.25), Some(f64::INFINITY));
    }
}
