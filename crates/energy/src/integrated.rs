//! TEQ with the effects on the clock and on the card's sleep (000 §7.2, §7.4.1).
//!
//! A transcoder adds computation, so the clock rises from level n to m and every other computation costs more: E_dfs. It
//! removes bytes, so the card sleeps longer: E_sleep. All terms are joules per image. The printed formulas divide E_dfs
//! and E_sleep by the rate of images although both are energies of one image; [`Rules::Printed`] keeps that.

use crate::clock::{slowest_level, stretch_limit, work_cost};
use crate::directive::Rules;
use crate::model::Model;
use crate::transcoder::Selection;

/// The load of a host without the transcoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostLoad {
    /// Σ(1 − x/y)·C/T, at the highest clock.
    pub utilization: f64,
    /// Images per second; above 0.
    pub rate: f64,
}

/// The terms of a TEQ, in joules per image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// E_d − E_d', without the card's sleep.
    pub data_j: f64,
    /// K_r(m)·rt_t.
    pub run_j: f64,
    /// E_dfs.
    pub clock_j: f64,
    /// E_sleep.
    pub sleep_j: f64,
    /// E_a.
    pub selection_j: f64,
}

impl Terms {
    pub fn teq_j(&self) -> f64 {
        self.data_j + self.sleep_j - self.run_j - self.clock_j - self.selection_j
    }
}

/// The levels without and with the transcoder: n, and m = n + i (§7.4.1; Figure 70).
pub fn levels(model: &Model, load: HostLoad, run_s: f64) -> (usize, usize) {
    let level = |utilization| slowest_level(&model.cpu, stretch_limit(utilization));
    (level(load.utilization), level(load.utilization + run_s * load.rate))
}

/// The terms for a sender that runs `selection` on an image of `input_kb` instead of sending it as it is.
pub fn sender_terms(model: &Model, load: HostLoad, input_kb: f64, selection: &Selection, rules: Rules) -> Terms {
    let (cpu, radio) = (&model.cpu, &model.radio);
    let (before, after) = levels(model, load, selection.run_s);
    let saved_kb = input_kb - selection.output_kb;
    let shorter_s = saved_kb * (radio.air_s_per_kb + radio.cpu_s_per_kb * cpu.stretch(after));
    let (clock_j, sleep_j) = match rules {
        Rules::Corrected => {
            let dearer_w = work_cost(cpu, after, 0.0) - work_cost(cpu, before, 0.0);
            (dearer_w * load.utilization / load.rate, shorter_s * radio.awake_w())
        }
        Rules::Printed => {
            let step_j = selection.run_s * (cpu.busy_w(after) - cpu.busy_w(before));
            (step_j / load.rate, shorter_s * radio.transmit_w / load.rate)
        }
    };
    Terms {
        data_j: saved_kb * radio.send_j_per_kb(cpu),
        run_j: work_cost(cpu, after, 0.0) * selection.run_s,
        clock_j,
        sleep_j,
        selection_j: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOAD: HostLoad = HostLoad { utilization: 0.2, rate: 10.0 };

    fn ipaq() -> Model {
        Model::shipped("ipaq-h3870-orinoco").unwrap()
    }

    fn reduce(input_kb: f64) -> Selection {
        Selection { chain: vec![0], output_kb: input_kb / 4.0, run_s: 0.27e-3 * input_kb, teq_j: 0.0 }
    }

    #[test]
    fn figure_70_the_clock_rises_with_the_image() {
        // The text does not print the rate; 20 images a second give its 103.2 MHz for 50 kB.
        let load = HostLoad { rate: 20.0, ..LOAD };
        let mhz = |kb: f64| ipaq().cpu.levels[levels(&ipaq(), load, reduce(kb).run_s).1].mhz;
        let clocks: Vec<f64> = [1.0, 10.0, 25.0, 50.0, 100.0].map(mhz).into();
        assert!(clocks.windows(2).all(|pair| pair[0] <= pair[1]), "{clocks:?}");
        assert_eq!((clocks[0], levels(&ipaq(), LOAD, 0.0).0), (59.0, 0));
        assert_eq!(clocks[3], 103.2, "{clocks:?}");
    }

    #[test]
    fn the_sleep_of_the_card_is_a_large_part_of_the_gain() {
        let terms = sender_terms(&ipaq(), LOAD, 30.0, &reduce(30.0), Rules::Corrected);
        assert!(terms.teq_j() > 0.0 && terms.sleep_j > terms.data_j && terms.clock_j >= 0.0, "{terms:?}");
        let printed = sender_terms(&ipaq(), LOAD, 30.0, &reduce(30.0), Rules::Printed);
        assert!(printed.sleep_j < terms.sleep_j, "divided by the rate: {printed:?}");
    }

    proptest! {
        /// The sum of the terms is the difference of two whole budgets of a second.
        #[test]
        fn teq_is_the_difference_of_two_budgets(kb in 1.0..60.0f64, utilization in 0.05..0.5f64, rate in 1.0..15.0f64) {
            let (model, selection) = (ipaq(), reduce(kb));
            let load = HostLoad { utilization, rate };
            let (before, after) = levels(&model, load, selection.run_s);
            // Packets are sent at the level with the transcoder in both budgets.
            let budget = |level: usize, run_s: f64, sent_kb: f64| {
                let computing = work_cost(&model.cpu, level, 0.0) * (utilization + rate * run_s);
                let stretch = model.cpu.stretch(after);
                let awake = sent_kb * (model.radio.air_s_per_kb + model.radio.cpu_s_per_kb * stretch);
                computing + rate * (sent_kb * model.radio.send_j_per_kb(&model.cpu) + awake * model.radio.awake_w())
            };
            let gain = budget(before, 0.0, kb) - budget(after, selection.run_s, selection.output_kb);
            let teq = sender_terms(&model, load, kb, &selection, Rules::Corrected).teq_j();
            prop_assert!((gain / rate - teq).abs() <= 1e-9 + 1e-6 * gain.abs(), "{} {}", gain / rate, teq);
        }
    }
}
