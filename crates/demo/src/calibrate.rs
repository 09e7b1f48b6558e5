//! The load is set in every run: a machine is not as fast as it was when the clips were made.
//!
//! ```text
//!  trial execution: each clip once, at full speed, beside the hogs ──> clip sizes (cached ones where they fit)
//!  pilot round of each scenario, all its players at once ──> what the frames cost in this company ──> frame period
//! ```
//! A clip that costs more than 1.4x or less than 1/1.4 of its design is replaced by another size; the frame period, 40
//! ms by design, does the rest: with it the demand is the designed one. The traces, scaled by the pilot, are the oracle's knowledge and Q-Fabric's profiles.

use std::path::PathBuf;

use anyhow::{Context, Result};
use qfabric_types::{Nanos, Share};

use crate::clips::Clip;
use crate::live::{Run, Stage, warm_up};
use crate::plan::Scenario;
use crate::record::RunRecord;
use crate::trial::Trace;

/// The dearest frame takes at most this part of a period: a job that cannot fit into one shows nothing.
const DEAREST: f64 = 0.9;
/// Server periods are multiples of this, so that a frame period holds a whole number of them.
const STEP: Nanos = Nanos::from_micros(25);

/// A scenario or a cell of the grid, ready to be played.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Players at once.
    pub players: usize,
    /// ρ of Q-Fabric's contracts.
    pub rho: f64,
    /// Player `i` starts with clip `i mod n`.
    pub clips: Vec<Clip>,
    /// T.
    pub period: Nanos,
    /// What each frame of each clip costs in this scenario's company.
    pub traces: Vec<Trace>,
    /// The same as files.
    pub trace_files: Vec<PathBuf>,
    /// Demand of all players together in CPUs, with this period.
    pub demand: f64,
    /// Demand that was aimed at.
    pub designed: f64,
}

impl Scenario {
    /// Demand of all players together in CPUs, of a room of so many CPUs.
    pub fn designed_demand(self, room: Share) -> f64 {
        match self {
            Scenario::Hogs => 0.29,
            Scenario::Shift => 0.725 * room.as_f64(),
        }
    }
}

/// Mean and largest cost in ns of the counted jobs of all players of a round.
pub fn costs(stage: &Stage, run: &Run, players: usize) -> (f64, f64) {
    let jobs = warm_up(run.jobs)..run.jobs;
    let costs: Vec<f64> = (0..players)
        .flat_map(|i| jobs.clone().map(move |k| (i, k)))
        .map(|(i, k)| stage.calibrated_ns(run, i, k))
        .collect();
    (crate::rows::mean(&costs), costs.iter().copied().fold(0.0, f64::max))
}

/// The period, of `server_periods`, at which `players` jobs of `mean_ns` each demand `designed` CPUs; longer where the
/// dearest job would not fit.
pub fn period(mean_ns: f64, dearest_ns: f64, players: usize, designed: f64, server_periods: u64) -> Nanos {
    let wanted = (players as f64 * mean_ns / designed).max(dearest_ns / DEAREST);
    let step = STEP.saturating_mul(server_periods);
    step.saturating_mul((wanted / step.as_f64()).round().max(1.0) as u64)
}

/// Cost of the frames of each clip in the pilot over their cost in the trial execution; 1 for a clip that was not
/// decoded. All jobs count, the warm-up too.
pub fn company(stage: &Stage, run: &Run, pilot: &RunRecord) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); stage.clips.len()];
    for (i, player) in pilot.players.iter().enumerate() {
        for line in &player.lines {
            let (clip, position) = stage.frame(run, i, line.job.k as usize);
            sums[clip].0 += line.job.cost.as_f64();
            sums[clip].1 += stage.traces[clip].cost_ns(position);
        }
    }
    sums.into_iter().map(|(pilot, trial)| if trial > 0.0 { pilot / trial } else { 1.0 }).collect()
}

/// Writes the traces where players read them.
pub fn write(traces: &[Trace], folder: &std::path::Path, name: &str) -> Result<Vec<PathBuf>> {
    let write = |(i, trace): (usize, &Trace)| {
        let path = folder.join(format!("{name}{i}.txt"));
        std::fs::write(&path, trace.text()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    traces.iter().enumerate().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demand_is_the_designed_one_to_a_thousandth() {
        for (mean_ms, players, designed) in [(8.7, 6, 1.3), (11.6, 1, 0.29), (3.0, 12, 0.9)] {
            let period = period(mean_ms * 1e6, 1.0, players, designed, 4);
            let demand = players as f64 * mean_ms * 1e6 / period.as_f64();
            assert!((demand / designed - 1.0).abs() < 2e-3, "{demand} for {designed}");
        }
    }

    #[test]
    fn a_period_holds_its_server_periods() {
        for server_periods in 2..=20 {
            let period = period(11.7e6, 1.0, 1, 0.29, server_periods);
            assert_eq!(period.get() % server_periods, 0);
        }
    }

    #[test]
    fn a_job_that_would_not_fit_makes_the_period_longer() {
        assert_eq!(period(10e6, 45e6, 1, 0.29, 4), Nanos::from_millis(50));
    }
}
