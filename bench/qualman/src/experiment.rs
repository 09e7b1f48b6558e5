//! The experiments of §7 as values: streams, reservations, figures.

use qfabric_types::{Nanos, Share};
use serde::Serialize;

/// What is reserved for the streams of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reserved {
    Nothing,
    Cpu,
    CpuMemory,
}

impl Reserved {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Reserved::Nothing => "nothing",
            Reserved::Cpu => "CPU",
            Reserved::CpuMemory => "CPU and memory",
        }
    }
}

/// One experiment of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Experiment {
    #[serde(rename = "cpu-1")]
    Cpu1,
    #[serde(rename = "cpu-2")]
    Cpu2,
}

/// One stream of an experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StreamPlan {
    pub frames_per_second: f64,
    /// CPU share that its player reserves in every period.
    pub share: f64,
}

impl StreamPlan {
    const fn new(frames_per_second: f64, share: f64) -> StreamPlan {
        StreamPlan { frames_per_second, share }
    }

    pub(crate) fn period(&self) -> Nanos {
        Nanos::from_f64(1e9 / self.frames_per_second)
    }

    pub(crate) fn share(&self) -> Share {
        Share::from_f64(self.share)
    }

    pub(crate) fn title(&self) -> String {
        format!("{} fps", self.frames_per_second)
    }
}

impl Experiment {
    pub(crate) const ALL: [Experiment; 2] = [Experiment::Cpu1, Experiment::Cpu2];

    /// The word of `--only`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Experiment::Cpu1 => "cpu-1",
            Experiment::Cpu2 => "cpu-2",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Experiment::Cpu1 => "CPU-1 and CPU-MEM-1: one player (Figure 12 a/b, Table 6)",
            Experiment::Cpu2 => "CPU-2 and CPU-MEM-2: two players (Figure 12 c/d, Table 6)",
        }
    }

    /// Rates and CPU shares are those of the paper.
    pub(crate) fn streams(self) -> &'static [StreamPlan] {
        const ONE: [StreamPlan; 1] = [StreamPlan::new(10.0, 0.7)];
        const TWO: [StreamPlan; 2] = [StreamPlan::new(8.0, 0.6), StreamPlan::new(4.0, 0.3)];
        match self {
            Experiment::Cpu1 => &ONE,
            Experiment::Cpu2 => &TWO,
        }
    }

    pub(crate) fn reservations(self) -> &'static [Reserved] {
        &[Reserved::Nothing, Reserved::Cpu, Reserved::CpuMemory]
    }

    /// The paper's average jitter in ms, by stream.
    pub(crate) fn paper_ms(self, reserved: Reserved) -> &'static [f64] {
        match (self, reserved) {
            (Experiment::Cpu1, Reserved::Nothing) => &[93.85],
            (Experiment::Cpu1, Reserved::Cpu) => &[4.46],
            (Experiment::Cpu1, Reserved::CpuMemory) => &[3.94],
            (Experiment::Cpu2, Reserved::Nothing) => &[136.41, 72.32],
            (Experiment::Cpu2, Reserved::Cpu) => &[19.30, 5.49],
            (Experiment::Cpu2, Reserved::CpuMemory) => &[8.42, 2.40],
        }
    }

    /// Seconds of a run with this number of frames of the fastest stream.
    pub(crate) fn seconds(self, frames: u32) -> f64 {
        let fastest = self.streams().iter().map(|stream| stream.frames_per_second).fold(1.0, f64::max);
        f64::from(frames) / fastest
    }
}
