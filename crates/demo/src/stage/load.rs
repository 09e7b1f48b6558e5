//! The load of a scenario follows the speed of the machine.
//!
//! The pilot round sets the load once. Afterwards the same frames cost up to a fifth more or less, in stretches of
//! half a minute to some minutes. Therefore the load is set again before the rounds of a claim:
//!
//! ```text
//!  √(cost of the frames in the last compared rounds ÷ their cost as calibrated) ──> costs of all frames ──> frame period
//! ```
//! The root halves the correction (in logarithms), because part of each difference is gone in the next round.

use anyhow::Result;

use super::Bench;
use crate::calibrate::{self, Calibration};
use crate::live::Run;
use crate::record::RunRecord;

/// A smaller difference of the costs leaves the load as it is.
const LEAST_CORRECTION: f64 = 0.02;
/// Part of a measured difference, in logarithms, by which the load is corrected.
const GAIN: f64 = 0.5;

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

    /// Notes what the frames of a compared round cost. A round that other activity disturbed says nothing about the
    /// speed of the machine.
    pub(super) fn note(&mut self, record: &RunRecord) {
        let speed = record.around.speed.filter(|_| record.around.interference().is_none());
        self.speeds.extend(speed);
    }

    /// The factor for the costs of all frames; `None` if they are as calibrated. Forgets the rounds.
    fn take_correction(&mut self) -> Option<f64> {
        let logs: Vec<f64> = self.speeds.drain(..).map(f64::ln).collect();
        let factor = (GAIN * crate::rows::mean(&logs)).exp();
        (!logs.is_empty() && (factor - 1.0).abs() > LEAST_CORRECTION).then_some(factor)
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
mod tests {
    use super::*;
    use crate::disturbance::Surroundings;

    fn load() -> Load {
        Load::new(Calibration {
            players: 1,
            clips: Vec::new(),
            period: qfabric_types::Nanos::ZERO,
            traces: Vec::new(),
            trace_files: Vec::new(),
            demand: 0.0,
            designed: 0.0,
        })
    }

    fn correction(rounds: &[(f64, f64)]) -> Option<f64> {
        let mut load = load();
        for &(speed, foreign) in rounds {
            let mut record = crate::rows::tests::run(&[30], 1, 2.5);
            record.around = Surroundings { speed: Some(speed), foreign, ..Surroundings::default() };
            load.note(&record);
        }
        let first = load.take_correction();
        assert_eq!(load.take_correction(), None, "noted rounds count once");
        first
    }

    #[test]
    fn the_load_follows_half_of_the_mean_difference_of_the_compared_rounds() {
        let near = |factor: Option<f64>, expected: f64| (factor.unwrap() - expected).abs() < 1e-9;
        assert!(near(correction(&[(1.21, 0.0), (1.21, 0.0)]), 1.1));
        assert!(near(correction(&[(1.21 * 1.25, 0.0), (0.968, 0.0)]), 1.1));
        assert!(near(correction(&[(0.81, 0.0)]), 0.9));
        assert_eq!(correction(&[(1.03, 0.0)]), None, "too small");
        assert_eq!(correction(&[(1.3, 0.2)]), None, "other processes ran");
        assert_eq!(correction(&[]), None);
    }
}
