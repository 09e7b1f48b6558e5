//! The experiments: what each varies, and one run of a competitor at one setting.

mod run;

use anyhow::Result;
use qfabric_types::{Nanos, Window};
use serde::{Deserialize, Serialize};

use crate::regime::Competitor;
use crate::row::Row;
use crate::work::Work;

pub use run::{Scene, Subject, run};

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Window violations and misses of periodic tasks among hogs.
    Windows,
    /// Run-queue delay of video players beside a real-time endless loop (Figure 14 of the thesis).
    Delay,
    /// Achieved frame rates of 1 to 20 players, up to 95 % load (Figure 19).
    Rate,
}

/// How long, how often, how many.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of tasks to go through; empty: the experiment's own.
    pub sizes: Vec<usize>,
    /// Of each run.
    pub span: Nanos,
    /// Repetitions of the whole grid.
    pub rounds: u32,
    /// Who takes part.
    pub competitors: Vec<Competitor>,
}

impl Experiment {
    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Windows => "windows",
            Experiment::Delay => "delay",
            Experiment::Rate => "rate",
        }
    }

    /// What is measured, in a line.
    pub fn title(self) -> &'static str {
        match self {
            Experiment::Windows => "periodic tasks among hogs: misses and window violations",
            Experiment::Delay => "run-queue delay of players beside an endless real-time loop",
            Experiment::Rate => "achieved frame rate of players among hogs",
        }
    }

    /// The numbers of tasks it goes through.
    pub fn sizes(self) -> Vec<usize> {
        match self {
            Experiment::Windows => vec![2, 5, 10],
            Experiment::Delay => vec![1, 2, 4, 6, 8],
            Experiment::Rate => vec![1, 5, 10, 15, 20],
        }
    }

    fn scene(self, n: usize) -> Scene {
        match self {
            Experiment::Windows => windows(n),
            Experiment::Delay => delay(n),
            Experiment::Rate => rate(n),
        }
    }

    /// Every competitor at every setting, side by side; each row is told as soon as it is there.
    pub fn run(self, plan: &Plan, work: Work, mut tell: impl FnMut(&Row) -> Result<()>) -> Result<()> {
        let sizes = if plan.sizes.is_empty() { self.sizes() } else { plan.sizes.clone() };
        for round in 0..plan.rounds {
            for &n in &sizes {
                for &competitor in &plan.competitors {
                    let row = run(self.name(), &self.scene(n), competitor, plan.span, work)?;
                    tell(&Row { x: n as f64, round, ..row })?;
                }
            }
        }
        Ok(())
    }
}

const MS: u64 = 1_000_000;

/// n equal tasks of T = 20 ms that need 90 % of the CPU together, and may miss one period in five.
fn windows(n: usize) -> Scene {
    let period = Nanos::from_millis(20);
    let budget = Nanos::new(18 * MS / n as u64);
    let subject = |_| Subject { period, budget, phase: Nanos::ZERO, window: fifth(), frames: false, abandon: false };
    Scene {
        setting: format!("{n} tasks, 4 hogs"),
        subjects: (0..n).map(subject).collect(),
        hogs: 4,
        endless_loop: None,
    }
}

/// n players of 10 frames a second, 6 ms each, spread over the period; a loop that never ends beside them.
fn delay(n: usize) -> Scene {
    let endless_loop = Some((Nanos::from_millis(20), Nanos::from_millis(100)));
    Scene {
        setting: format!("{n} players, 1 loop"),
        subjects: players(n, Nanos::from_millis(6)),
        hogs: 0,
        endless_loop,
    }
}

/// n players of 10 frames a second: 20 of them need 95 % of the CPU.
fn rate(n: usize) -> Scene {
    let subjects = players(n, Nanos::new(4_750_000));
    Scene { setting: format!("{n} players, 8 hogs"), subjects, hogs: 8, endless_loop: None }
}

fn players(n: usize, budget: Nanos) -> Vec<Subject> {
    let period = Nanos::from_millis(100);
    // Viewers begin whenever they like: display times are spread over the period.
    let phase = |i: usize| Nanos::new((i as u64 * 37 % 100) * MS);
    let player = |i| Subject { period, budget, phase: phase(i), window: fifth(), frames: true, abandon: false };
    (0..n).map(player).collect()
}

/// x/y of both: the thesis' players.
fn fifth() -> Window {
    Window::new(1, 5).expect("1/5 is a window")
}
