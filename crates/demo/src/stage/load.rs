//! The load of a scenario follows the speed of the machine.
//!
//! The pilot round sets the load once. Afterwards the same frames cost up to a fifth more or less, in stretches of
//! half a minute to some minutes. Therefore the load is set again before the rounds of a claim:
//!
//! ```text
//!  cost of the frames in the last compared rounds ÷ their cost as calibrated ──> costs of all frames ──> frame period
//! ```

use anyhow::Result;

use super::Bench;
use crate::calibrate::{self, Calibration};
use crate::disturbance::MOST_DRIFT;
use crate::live::Run;
use crate::record::RunRecord;

/// A smaller difference of the costs leaves the load as it is.
const LEAST_CORRECTION: f64 = 0.02;

/// The load of one scenario.
pub(super) struct Load {
    pub(super) calibration: Calibration,
    /// Cost of the frames in the rounds since the load was set, relative to the calibration.
    speeds: Vec<f64>,
}

impl Load {
    pub(super) fn new(calibration: Calibration) -> Load {
        Load { calibration, speeds: Vec::new() }
    }

    /// Notes what the frames of a round cost. A round that other activity disturbed says nothing about the speed.
    /// Other policies than the compared ones change the cost of frames by up to 13 %, so their rounds say something
    /// only if the cost is farther away.
    fn note(&mut self, record: &RunRecord, is_claim: bool) {
        let speed = record.around.speed.filter(|speed| is_claim || (speed - 1.0).abs() > MOST_DRIFT);
        self.speeds.extend(speed.filter(|_| record.around.interference().is_none()));
    }

    /// The factor by which the costs of all frames have changed since the load was set; `None` if they are as
    /// calibrated. Forgets the rounds.
    fn take_correction(&mut self) -> Option<f64> {
        let logs: Vec<f64> = self.speeds.drain(..).map(f64::ln).collect();
        let factor = crate::rows::mean(&logs).exp();
        (!logs.is_empty() && (factor - 1.0).abs() > LEAST_CORRECTION).then_some(factor)
    }

    pub(super) fn note_played(&mut self, played: &Result<RunRecord>, is_claim: bool) {
        if let Ok(record) = played {
            self.note(record, is_claim);
        }
    }
}

impl Bench<'_> {
    /// Sets the load again if the costs of the frames have changed.
    pub(super) fn follow(&self, load: &mut Load, run: &Run) -> Result<()> {
        let Some(factor) = load.take_correction() else { return Ok(()) };
        let calibration = load.calibration.clone();
        let traces = calibration.traces.iter().map(|trace| trace.scaled(factor)).collect();
        load.calibration = self.with_period(Calibration { traces, ..calibration }, run);
        calibrate::write(&load.calibration.traces, &self.folder.0, &run.scenario)?;
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::disturbance::Surroundings;

    pub(in crate::stage) fn load() -> Load {
        Load::new(Calibration {
            players: 1,
            rho: 0.5,
            clips: Vec::new(),
            period: qfabric_types::Nanos::ZERO,
            traces: Vec::new(),
            trace_files: Vec::new(),
            demand: 0.0,
            designed: 0.0,
        })
    }

    fn correction(rounds: &[(f64, f64, bool)]) -> Option<f64> {
        let mut load = load();
        for &(speed, foreign, is_claim) in rounds {
            let mut record = crate::rows::tests::run(&[30], 1, 2.5);
            record.around = Surroundings { speed: Some(speed), foreign, ..Surroundings::default() };
            load.note(&record, is_claim);
        }
        let first = load.take_correction();
        assert_eq!(load.take_correction(), None, "noted rounds count once");
        first
    }

    #[test]
    fn the_load_follows_the_mean_cost_of_the_compared_rounds() {
        let near = |factor: Option<f64>, expected: f64| (factor.unwrap() - expected).abs() < 1e-9;
        assert!(near(correction(&[(1.1, 0.0, true), (1.1, 0.0, true)]), 1.1));
        assert!(near(correction(&[(1.25, 0.0, true), (0.968, 0.0, true)]), 1.1));
        assert!(near(correction(&[(0.8, 0.0, true)]), 0.8));
        assert_eq!(correction(&[(1.015, 0.0, true)]), None, "too small");
        assert_eq!(correction(&[]), None);
    }

    #[test]
    fn disturbed_rounds_and_small_differences_of_other_policies_say_nothing_about_the_speed() {
        assert_eq!(correction(&[(1.3, 0.2, true)]), None, "other processes ran");
        assert_eq!(correction(&[(0.88, 0.0, false)]), None);
        assert!(correction(&[(1.3, 0.0, false)]).is_some());
    }
}
