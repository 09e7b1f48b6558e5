//! Transports of video beside one another: METP and its rivals bring the same frames over the same emulated link.
//!
//! Problem: a frame that comes after its deadline is worth nothing, so bytes per second do not compare transports of
//! video. Approach: each engine is a pair of processes, a sender that hands over the frames of a real clip at 25 a
//! second and a receiver that notes when each frame is whole. Both are behind an emulated link with the same seed.
//! Engines take turns in random order, in several rounds. A run in which the emulator was late is repeated.
#![forbid(unsafe_code)]

mod bulk;
mod conversation;
mod engine;
mod foreign;
mod goals;
mod measure;
mod metp;
mod place;
mod plan;
mod play;
mod process;
mod quic;
mod realm;
mod report;
mod rounds;
mod stamp;
mod tcp;
mod trial;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use qfabric_netlab::LinkSettings;
use qfabric_types::{BitRate, Nanos};

pub use crate::engine::Engine;
pub use crate::plan::MOST_FRAMES;
pub use crate::play::play;
pub use crate::report::Report;

use crate::engine::Programs;
use crate::plan::{Frame, Kind, Plan};
use crate::report::Missing;
use crate::trial::Stage;

/// What a bench measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Frames with deadlines, over the link.
    Deadlines,
    /// The same beside a TCP flow from the same host, whose network queues keep the granted rate for the frames.
    BesideTcp,
    /// Throughput on this host's loopback: large frames, each when the engine has taken the one before it.
    Loopback,
}

/// The conditions of a bench.
pub struct Options {
    pub experiment: Experiment,
    /// Whether the processes run at SCHED_FIFO 1, so that other programs of this machine do not delay them,
    /// if the kernel permits it.
    pub is_real_time: bool,
    /// Both directions of the link.
    pub link: LinkSettings,
    pub frames: u32,
    pub deadline: Nanos,
    pub granted: BitRate,
    pub rounds: u32,
    /// Decides the losses of each round, and the order of the engines.
    pub seed: u64,
    /// Empty: all engines.
    pub engines: Vec<Engine>,
    /// A video file; `None`: the default clip.
    pub clip: Option<PathBuf>,
    /// Program and first words of the processes; the words of [`play`] follow.
    pub player: (PathBuf, Vec<String>),
    /// Ends the bench before the next run.
    pub stop: Arc<AtomicBool>,
    /// Gets one line for each run.
    pub progress: Box<dyn Fn(&str)>,
}

impl Options {
    /// The rest of the link beside the granted rate, if a TCP flow takes it.
    pub(crate) fn unreserved(&self) -> Option<BitRate> {
        let link = self.link.rate.mean().filter(|_| self.experiment == Experiment::BesideTcp)?;
        Some(link.saturating_sub(self.granted))
    }
}

/// A frame of the experiment on the loopback.
const LARGE: Frame = Frame { kind: Kind::I, size: 200_000 };

/// Runs the bench. After a stop, the report has the runs so far.
pub fn run(options: &Options) -> Result<Report> {
    let folder = tempfile::Builder::new().prefix("qfabric-transport-").tempdir()?;
    let programs = Programs { player: options.player.clone(), folder: folder.path().to_owned() };
    realm::make(&realm::folder(&folder.path().join("plan")))?;
    let wanted = wanted(options);
    let lacks = |engine: &Engine| Some(Missing { engine: *engine, why: programs.lacks(*engine)? });
    let missing: Vec<Missing> = wanted.iter().filter_map(lacks).collect();
    let present = |engine: &&Engine| missing.iter().all(|lack| lack.engine != **engine);
    let engines: Vec<Engine> = wanted.iter().filter(present).copied().collect();
    let whys: Vec<&str> = missing.iter().map(|lack| lack.why.as_str()).collect();
    ensure!(!engines.is_empty(), "no engine can run: {}", whys.join("; "));
    let plan = plan(options)?;
    let is_real_time = options.is_real_time && may_run_real_time();
    let mut report = Report::new(conditions(options, &plan, is_real_time), options, engines);
    report.missing = missing;
    rounds::run(options, &Stage::new(&programs, &plan, is_real_time)?, &mut report)?;
    Ok(report.finish())
}

/// The engines of the options, each once.
fn wanted(options: &Options) -> Vec<Engine> {
    let named = if options.engines.is_empty() { options.experiment.engines() } else { options.engines.clone() };
    let is_first = |(at, engine): &(usize, &Engine)| !named[..*at].contains(engine);
    named.iter().enumerate().filter(is_first).map(|(_, engine)| *engine).collect()
}

impl Experiment {
    /// The engines that are measured if none are named.
    fn engines(self) -> Vec<Engine> {
        match self {
            Experiment::Deadlines => Engine::value_variants().to_vec(),
            Experiment::BesideTcp => vec![Engine::Metp, Engine::MetpStreams, Engine::Srt200],
            Experiment::Loopback => vec![Engine::Metp, Engine::MetpStreams, Engine::Quic],
        }
    }
}

fn plan(options: &Options) -> Result<Plan> {
    if options.experiment == Experiment::Loopback {
        let frames = vec![LARGE; options.frames as usize];
        let deadline = Duration::from_secs(60);
        return Ok(Plan { period: Duration::ZERO, deadline, granted_bps: options.granted.get(), frames });
    }
    let clip = plan::clip(options.clip.as_deref())?;
    Ok(Plan {
        period: Duration::from_millis(40),
        deadline: Duration::from_nanos(options.deadline.get()),
        granted_bps: options.granted.get(),
        frames: Plan::frames_of(&clip, options.frames),
    })
}

/// Whether the kernel permits SCHED_FIFO.
fn may_run_real_time() -> bool {
    Command::new("chrt").args(["-f", "1", "true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn conditions(options: &Options, plan: &Plan, is_real_time: bool) -> String {
    let policy = match is_real_time {
        true => "processes at SCHED_FIFO 1",
        false if options.is_real_time => "processes at the default policy, because SCHED_FIFO is not permitted",
        false => "processes at the default policy",
    };
    if options.experiment == Experiment::Loopback {
        let (frames, size, rate) = (options.frames, LARGE.size, options.granted);
        return format!(
            "Loopback: {frames} frames of {size} bytes, granted {rate}; {} rounds; {policy}.",
            options.rounds
        );
    }
    let mbit = 8e-6 * plan.bytes() as f64 / (plan.period.as_secs_f64() * plan.frames.len() as f64);
    format!(
        "{} frames, 25 a second, {mbit:.1} Mbit/s, deadline {}; granted {}; {} rounds; {policy}.\nLink: {}.",
        options.frames, options.deadline, options.granted, options.rounds, options.link
    )
}

#[cfg(test)]
impl Options {
    /// Without engines; nothing stops it, and nobody sees its progress.
    fn example() -> Options {
        Options {
            experiment: Experiment::Deadlines,
            is_real_time: false,
            link: LinkSettings::default(),
            frames: 400,
            deadline: Nanos::from_millis(200),
            granted: BitRate::new(27_000_000),
            rounds: 1,
            seed: 1,
            engines: Vec::new(),
            clip: None,
            player: (PathBuf::new(), Vec::new()),
            stop: Arc::default(),
            progress: Box::new(|_| {}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_named_twice_takes_one_turn() {
        let twice = vec![Engine::Tcp, Engine::Srt120, Engine::Tcp];
        assert_eq!(wanted(&Options { engines: twice, ..Options::example() }), [Engine::Tcp, Engine::Srt120]);
        assert_eq!(wanted(&Options::example()).len(), Engine::value_variants().len());
    }

    #[test]
    fn a_flow_beside_the_frames_may_have_the_rest_of_the_link() {
        let link = LinkSettings { rate: "30M".parse().unwrap(), ..LinkSettings::default() };
        let beside = |experiment| Options { experiment, link: link.clone(), ..Options::example() }.unreserved();
        assert_eq!(beside(Experiment::BesideTcp), Some(BitRate::new(3_000_000)));
        assert_eq!(beside(Experiment::Deadlines), None);
    }
}
