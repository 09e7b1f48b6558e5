//! Sets the load for each run, because the speed of a machine changes after the clips were made.
//!
//! ```text
//!  trial execution: each clip once, at full speed, beside the hogs ──> clip sizes (cached clips if they fit)
//!  pilot round of each scenario, all its players at once ──> costs of the frames under this load ──> frame period
//! ```
//! A clip that costs more than 1.4x or less than 1/1.4 of its design is replaced by a clip of another size. The
//! frame period, 40 ms by design, corrects the rest, so that the demand is the designed demand. The traces, scaled
//! by the pilot round, are the costs that the oracle knows and the profiles of Q-Fabric.

use std::path::PathBuf;

use anyhow::{Context, Result};
use qfabric_types::{Nanos, Share};

use crate::clips::Clip;
use crate::live::{Run, Stage, warm_up};
use crate::plan::Scenario;
use crate::record::RunRecord;
use crate::trial::Trace;

/// The most expensive frame takes at most this part of a period. A job that cannot fit into a period says nothing
/// about a policy.
const MOST_OF_PERIOD: f64 = 0.9;
/// Server periods are multiples of this value, so that a frame period contains a whole number of them.
const STEP: Nanos = Nanos::from_micros(25);

/// The load of a scenario or of a cell of the grid.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Number of players that run at the same time.
    pub players: usize,
    /// Player `i` starts with clip `i mod n`.
    pub clips: Vec<Clip>,
    /// T, the frame period.
    pub period: Nanos,
    /// The cost of each frame of each clip under the load of this scenario.
    pub traces: Vec<Trace>,
    /// Files with the contents of `traces`.
    pub trace_files: Vec<PathBuf>,
    /// Demand of all players together, in CPUs, with this period.
    pub demand: f64,
    /// The intended demand, in CPUs.
    pub designed: f64,
}

impl Scenario {
    /// Demand of all players together, in CPUs, if `room` can be reserved.
    pub fn designed_demand(self, room: Share) -> f64 {
        match self {
            Scenario::Hogs => 0.29,
            Scenario::Shift => 0.725 * room.as_f64(),
        }
    }
}

/// Mean and largest cost, in ns, of the counted jobs of all players of a round.
pub fn costs(stage: &Stage, run: &Run, players: usize) -> (f64, f64) {
    let jobs = warm_up(run.jobs)..run.jobs;
    let costs: Vec<f64> = (0..players)
        .flat_map(|i| jobs.clone().map(move |k| (i, k)))
        .map(|(i, k)| stage.calibrated_ns(run, i, k))
        .collect();
    (crate::rows::mean(&costs), costs.iter().copied().fold(0.0, f64::max))
}

/// The period, a multiple of `server_periods` server periods, at which `players` jobs of `mean_ns` each demand
/// `designed` CPUs. Longer if the most expensive job would not fit.
pub fn period(mean_ns: f64, largest_ns: f64, players: usize, designed: f64, server_periods: u64) -> Nanos {
    let wanted = (players as f64 * mean_ns / designed).max(largest_ns / MOST_OF_PERIOD);
    let step = STEP.saturating_mul(server_periods);
    step.saturating_mul((wanted / step.as_f64()).round().max(1.0) as u64)
}

/// For each clip: the cost of its frames in the pilot round divided by their cost in the trial execution; 1 for a
/// clip that was not decoded. Includes the warm-up jobs.
pub fn cost_ratios(stage: &Stage, run: &Run, pilot: &RunRecord) -> Vec<f64> {
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

/// Writes the traces to files that players can read.
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
    fn the_demand_equals_the_designed_demand_to_two_thousandths() {
        for (mean_ms, players, designed) in [(8.7, 6, 1.3), (11.6, 1, 0.29), (3.0, 12, 0.9)] {
            let period = period(mean_ms * 1e6, 1.0, players, designed, 4);
            let demand = players as f64 * mean_ms * 1e6 / period.as_f64();
            assert!((demand / designed - 1.0).abs() < 2e-3, "{demand} for {designed}");
        }
    }

    #[test]
    fn a_period_contains_a_whole_number_of_server_periods() {
        for server_periods in 2..=20 {
            let period = period(11.7e6, 1.0, 1, 0.29, server_periods);
            assert_eq!(period.get() % server_periods, 0);
        }
    }

    #[test]
    fn a_job_that_does_not_fit_makes_the_period_longer() {
        assert_eq!(period(10e6, 45e6, 1, 0.29, 4), Nanos::from_millis(50));
    }
}
