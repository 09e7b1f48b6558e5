//! The frequencies that this host can run at.
//!
//! The lowest one that suffices is chosen. A power model whose cheapest level is not its lowest one (leakage, or a
//! supply voltage that no longer falls) sets a floor: below this part of the highest clock nothing is saved. A model
//! with one level, such as one calibrated without `--clocks`, says nothing about other clocks and sets none.

use qfabric_energy::{Cpu, cheapest_level};
use qfabric_linux::power::Clock;

pub(super) struct Frequencies {
    cpu: Cpu,
    /// Part of the highest clock below which the model says that nothing is saved.
    floor: f64,
}

impl Frequencies {
    pub(super) fn of(cpu: Cpu) -> Frequencies {
        let cheapest = cheapest_level(&cpu, f64::INFINITY, 0.0);
        let floor = if cheapest == 0 { 0.0 } else { 1.0 / cpu.stretch(cheapest) };
        Frequencies { cpu, floor }
    }

    /// The lowest part of the highest clock that this host can set and that is at least `needed`. Several clocks have
    /// several frequencies; the largest part counts. Without cpufreq, the levels of the model stand for them.
    pub(super) fn lowest(&self, clocks: &[Clock], needed: f64) -> f64 {
        let needed = needed.max(self.floor);
        let parts = clocks.iter().map(|clock| clock.at_least(needed) as f64 / clock.range.1 as f64);
        let largest = parts.fold(0.0, f64::max);
        if largest > 0.0 {
            largest
        } else {
            1.0 / self.cpu.stretch(cheapest_level(&self.cpu, 1.0 / needed.max(1e-6), 0.0))
        }
    }

    /// The part that is `levels` frequencies of the host above `part`; at most the highest one.
    pub(super) fn above(&self, clocks: &[Clock], part: f64, levels: u8) -> f64 {
        (0..levels).fold(part, |part, _| self.lowest(clocks, part + 1e-6))
    }

    /// One step below `part`: 10 % of the highest clock, and at least one frequency of the host.
    pub(super) fn below(&self, clocks: &[Clock], part: f64) -> f64 {
        let step = |times: i32| self.lowest(clocks, part - 0.1 * f64::from(times));
        (1..=10).map(step).find(|lower| *lower < part - 1e-9).unwrap_or(part)
    }
}
