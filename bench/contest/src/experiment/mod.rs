//! The experiments, with their settings, and one run of a competitor at one setting.

mod packets;
mod run;

use anyhow::Result;
use qfabric_types::{Nanos, Window};
use serde::{Deserialize, Serialize};

use crate::regime::Competitor;
use crate::row::Row;
use crate::work::Work;

pub use run::{Alignment, Scene, Subject, run};

/// The experiments of the contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Misses and window violations of periodic tasks beside hogs.
    Windows,
    /// More than fits, admitted for its windows: 5 tasks of a quarter CPU each that may miss one period in three.
    Overload,
    /// Run-queue delay of video players beside a real-time endless loop (Figure 14 of the thesis).
    Delay,
    /// Achieved frame rates of 1 to 20 players, up to 95 % load (Figure 19).
    Rate,
    /// Frame rates of players while processes are started as fast as possible.
    Storm,
    /// Streams of packets over a flooded link.
    Packets,
    /// One stream with CPU time and packets reserved on one clock.
    Both,
}

/// The settings of a contest.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of tasks to run; empty: the experiment's own numbers.
    pub sizes: Vec<usize>,
    /// Duration of each run.
    pub span: Nanos,
    /// Repetitions of the whole grid.
    pub rounds: u32,
    /// The competitors that take part.
    pub competitors: Vec<Competitor>,
    /// Alignment of the players' servers, if it differs from the experiment's own.
    pub alignment: Option<Alignment>,
}

impl Experiment {
    /// Name in results.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Windows => "windows",
            Experiment::Overload => "overload",
            Experiment::Delay => "delay",
            Experiment::Rate => "rate",
            Experiment::Storm => "storm",
            Experiment::Packets => "packets",
            Experiment::Both => "both",
        }
    }

    /// Describes the measurement in one line.
    pub fn title(self) -> &'static str {
        match self {
            Experiment::Windows => "periodic tasks beside hogs: misses and window violations",
            Experiment::Overload => "more than fits, admitted for its windows, beside hogs",
            Experiment::Delay => "run-queue delay of players beside an endless real-time loop",
            Experiment::Rate => "achieved frame rate of players beside hogs",
            Experiment::Storm => "achieved frame rate of players in a fork storm",
            Experiment::Packets => "streams of packets against a flood (delay: from the frame's period to its arrival)",
            Experiment::Both => {
                "a stream's computation beside hogs and its packets against a flood (delay: end to end)"
            }
        }
    }

    /// The experiment's own numbers of tasks.
    pub fn sizes(self) -> Vec<usize> {
        match self {
            Experiment::Windows => vec![2, 5, 10],
            Experiment::Overload => vec![5],
            Experiment::Delay => vec![1, 2, 4, 6, 8],
            Experiment::Rate => vec![1, 5, 10, 15, 20],
            Experiment::Storm => vec![10],
            Experiment::Packets => vec![1, 3, 6],
            Experiment::Both => vec![1],
        }
    }

    pub fn competitors(self) -> &'static [Competitor] {
        use Competitor::*;
        match self {
            Experiment::Packets => &[Fifo, Fq, Htb, Dwcs],
            Experiment::Both => &[Neither, CpuOnly, PacketsOnly, Together],
            _ => &[Default, Rr, Deadline, Ext, ExtEvents],
        }
    }

    fn one(self, n: usize, competitor: Competitor, plan: &Plan, work: Work) -> Result<Row> {
        match self {
            Experiment::Packets => packets::packets(n, competitor, plan.span, work),
            Experiment::Both => packets::both(competitor, plan.span, work),
            _ => run(self.name(), &aligned(self.scene(n), plan.alignment), competitor, plan.span, work),
        }
    }

    fn scene(self, n: usize) -> Scene {
        match self {
            Experiment::Windows => windows(n),
            Experiment::Overload => overload(n),
            Experiment::Delay => delay(n),
            Experiment::Storm => storm(n),
            Experiment::Rate | Experiment::Packets | Experiment::Both => rate(n),
        }
    }

    /// Runs every competitor at every setting, interleaved. Calls `report` with each row as soon as it exists.
    pub fn run(self, plan: &Plan, work: Work, mut report: impl FnMut(&Row) -> Result<()>) -> Result<()> {
        let sizes = if plan.sizes.is_empty() { self.sizes() } else { plan.sizes.clone() };
        for round in 0..plan.rounds {
            for &n in &sizes {
                for &competitor in self.competitors().iter().filter(|c| plan.competitors.contains(c)) {
                    let row = self.one(n, competitor, plan, work)?;
                    report(&Row { x: n as f64, round, ..row })?;
                }
            }
        }
        Ok(())
    }
}

fn aligned(mut scene: Scene, alignment: Option<Alignment>) -> Scene {
    for subject in &mut scene.subjects {
        subject.alignment = alignment.unwrap_or(subject.alignment);
    }
    scene
}

const MS: u64 = 1_000_000;

/// n equal tasks with T = 20 ms that together need 90 % of the CPU and may miss one period in five.
fn windows(n: usize) -> Scene {
    let budget = Nanos::new(18 * MS / n as u64);
    let subjects = vec![periodic(budget, fifth()); n];
    Scene { setting: format!("{n} tasks, 4 hogs"), subjects, hogs: 4, forks: 0, endless_loop: None }
}

/// n tasks of which four fit into a period: five tasks need 112 % of the CPU, and 75 % with their windows of 1/3.
/// All services and periods are equal, so that the windows are guaranteed (West's condition). Late work is
/// abandoned.
fn overload(n: usize) -> Scene {
    let task =
        Subject { abandon: true, ..periodic(Nanos::new(4_500_000), Window::new(1, 3).expect("1/3 is a valid window")) };
    Scene { setting: format!("{n} tasks of 22.5 %"), subjects: vec![task; n], hogs: 2, forks: 0, endless_loop: None }
}

fn periodic(budget: Nanos, window: Window) -> Subject {
    let period = Nanos::from_millis(20);
    Subject { period, budget, phase: Nanos::ZERO, window, frames: false, abandon: false, alignment: Alignment::Own }
}

/// n players of 10 frames per second with 6 ms each, spread over the period, beside an endless loop.
fn delay(n: usize) -> Scene {
    let endless_loop = Some((Nanos::from_millis(20), Nanos::from_millis(100)));
    Scene {
        setting: format!("{n} players, 1 loop"),
        subjects: players(n, Nanos::from_millis(6)),
        hogs: 0,
        forks: 0,
        endless_loop,
    }
}

/// n players of 10 frames per second: 20 of them need 95 % of the CPU.
fn rate(n: usize) -> Scene {
    let subjects = players(n, Nanos::new(4_750_000));
    Scene { setting: format!("{n} players, 8 hogs"), subjects, hogs: 8, forks: 0, endless_loop: None }
}

/// n of the same players beside 16 tasks that start processes without end.
fn storm(n: usize) -> Scene {
    Scene { setting: format!("{n} players, 16 forking tasks"), hogs: 0, forks: 16, ..rate(n) }
}

fn players(n: usize, budget: Nanos) -> Vec<Subject> {
    let period = Nanos::from_millis(100);
    // Viewers start at different times, so the display times are spread over the period.
    let phase = |i: usize| Nanos::new((i as u64 * 37 % 100) * MS);
    let player = |i| Subject {
        phase: phase(i),
        frames: true,
        alignment: Alignment::Demand,
        period,
        ..periodic(budget, fifth())
    };
    (0..n).map(player).collect()
}

/// The window x/y of the thesis' players.
fn fifth() -> Window {
    Window::new(1, 5).expect("1/5 is a valid window")
}
