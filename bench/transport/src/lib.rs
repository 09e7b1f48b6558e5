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
use qfabric_netlab::{LabSettings, LinkDirection, LinkSettings, MediaFlow, Scenario, TcpTraffic};
use qfabric_types::{BitRate, Nanos};

pub use crate::engine::Engine;
pub use crate::plan::MOST_FRAMES;
pub use crate::play::play;
pub use crate::report::Report;

use crate::engine::Programs;
use crate::place::End;
use crate::plan::{Frame, Kind, Plan};
use crate::report::Missing;
use crate::trial::{Beside, Flow, Stage};

/// What a bench measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Frames with deadlines, over the link.
    Deadlines,
    /// The same beside a TCP flow from the same host, whose network queues keep the granted rate for the frames.
    BesideTcp,
    /// Throughput on this host's loopback: large frames, each when the engine has taken the one before it.
    Loopback,
    /// A test case of RFC 8867 with its link, its media flows and its TCP traffic. Nothing is granted. `shorten` divides
    /// all times, and the sizes of the files of §5.7.
    Rfc8867 { case: Scenario, shorten: u32 },
}

/// The conditions of a bench.
pub struct Options {
    pub experiment: Experiment,
    /// Whether the processes run at SCHED_FIFO 1, so that other programs of this machine do not delay them,
    /// if the kernel permits it.
    pub is_real_time: bool,
    /// Both directions of the link; a test case has its own.
    pub link: LinkSettings,
    /// Frames of a run; a test case has its own.
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
    /// The usual deadline in test cases of RFC 8867: the longest delay of one way (150 ms), the jitter, the queue when it
    /// is half full, and time for a repetition.
    pub const RFC8867_DEADLINE: Nanos = Nanos::from_millis(400);

    /// The link of a round.
    pub fn lab(&self, seed: u64) -> LabSettings {
        match self.experiment {
            Experiment::Rfc8867 { case, shorten } => {
                let mut settings = case.settings(seed);
                settings.schedule.shorten(shorten);
                settings
            }
            _ => LabSettings::symmetric(self.link.clone(), seed),
        }
    }

    fn beside(&self) -> Beside {
        match self.experiment {
            Experiment::BesideTcp => Beside::STEADY,
            Experiment::Rfc8867 { case, shorten } => match case.tcp() {
                None => Beside::Nothing,
                Some(TcpTraffic::Long) => Beside::Long { head_start: Duration::ZERO },
                Some(TcpTraffic::Short) => Beside::Short { shorten },
            },
            _ => Beside::Nothing,
        }
    }

    /// The rest of the link beside the granted rate, if a TCP flow takes it.
    pub(crate) fn unreserved(&self) -> Option<BitRate> {
        let link = self.link.rate.mean().filter(|_| self.experiment == Experiment::BesideTcp)?;
        Some(link.saturating_sub(self.granted))
    }
}

/// The rate of a media flow of RFC 8867: the reference capacity of §4.2, between the bounds of §4.3. The frames do not
/// follow the capacity, as the RFC's sources do: an engine has to drop, or falls behind.
const SOURCE: BitRate = BitRate::new(1_000_000);

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
    let flows = flows(options)?;
    let is_real_time = options.is_real_time && may_run_real_time();
    let names = flows.iter().map(|flow| flow.name.clone()).collect();
    let mut report = Report::new(conditions(options, &flows[0].plan, is_real_time), options, engines, names);
    report.missing = missing;
    rounds::run(options, &Stage::new(&programs, &flows, options.beside(), is_real_time)?, &mut report)?;
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
            Experiment::Deadlines | Experiment::Rfc8867 { .. } => Engine::value_variants().to_vec(),
            Experiment::BesideTcp => vec![Engine::Metp, Engine::MetpStreams, Engine::Srt200],
            Experiment::Loopback => vec![Engine::Metp, Engine::MetpStreams, Engine::Quic],
        }
    }
}

/// The flows of a run, in the order of their starts; at least one.
fn flows(options: &Options) -> Result<Vec<Flow>> {
    let granted_bps = options.granted.get();
    let one = |plan| vec![Flow { name: None, plan, from: End::Sender, path: 0, begin: Duration::ZERO }];
    if options.experiment == Experiment::Loopback {
        let (period, deadline) = (Duration::ZERO, Duration::from_secs(60));
        let frames = vec![LARGE; options.frames as usize];
        return Ok(one(Plan { period, deadline, granted_bps, is_reserved: true, frames }));
    }
    let clip = plan::clip(options.clip.as_deref())?;
    let deadline = Duration::from_nanos(options.deadline.get());
    let Experiment::Rfc8867 { case, shorten } = options.experiment else {
        let frames = Plan::frames_of(&clip, options.frames);
        return Ok(one(Plan { period: plan::PERIOD, deadline, granted_bps, is_reserved: true, frames }));
    };
    let flow = |flow: &MediaFlow| Flow {
        name: Some(flow.to_string()),
        plan: Plan::of_flow(flow, &clip, SOURCE, deadline, shorten),
        from: if flow.direction == LinkDirection::Up { End::Sender } else { End::Receiver },
        path: flow.path,
        begin: Duration::from_secs(flow.begin) / shorten,
    };
    Ok(case.media().iter().map(flow).collect())
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
    if let Experiment::Rfc8867 { case, shorten } = options.experiment {
        let tcp = match case.tcp() {
            None => "no other traffic",
            Some(TcpTraffic::Long) => "one long TCP flow",
            Some(TcpTraffic::Short) => "ten short TCP flows",
        };
        return format!(
            "RFC 8867, test case {case}, {} s, times divided by {shorten}: {} media flows of {SOURCE}, {tcp}. Frames of a \
             source that does not adapt, 25 a second, deadline {}; nothing is granted; {} rounds; {policy}.",
            case.length().get() / 1_000_000_000,
            case.media().len(),
            options.deadline,
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
impl Plan {
    /// Without frames.
    fn example() -> Plan {
        let period = plan::PERIOD;
        Plan { period, deadline: 5 * period, granted_bps: 1, is_reserved: true, frames: Vec::new() }
    }
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
    fn a_test_case_has_its_flows_and_a_pause_has_no_frames() {
        let of = |case| flows(&Options { experiment: Experiment::Rfc8867 { case, shorten: 10 }, ..Options::example() });
        let paused = of(Scenario::PauseAndResume).unwrap();
        let counts: Vec<_> = paused.iter().map(|flow| (flow.plan.frames.len(), flow.plan.count())).collect();
        assert_eq!(counts, [(297, 297), (297, 247), (297, 297)], "2 s of 25 frames are the pause");
        let seconds = 297.0 * plan::PERIOD.as_secs_f64();
        assert!((8.0 * paused[0].plan.bytes() as f64 / seconds / SOURCE.as_f64() - 1.0).abs() < 0.1);
        let starts = of(Scenario::CompetingFlows).unwrap().iter().map(|flow| flow.begin.as_secs()).collect::<Vec<_>>();
        assert_eq!(starts, [0, 2, 4]);
        assert_eq!(of(Scenario::CongestedFeedback).unwrap()[1].from, End::Receiver);
    }

    #[test]
    fn a_flow_beside_the_frames_may_have_the_rest_of_the_link() {
        let link = LinkSettings { rate: "30M".parse().unwrap(), ..LinkSettings::default() };
        let beside = |experiment| Options { experiment, link: link.clone(), ..Options::example() }.unreserved();
        assert_eq!(beside(Experiment::BesideTcp), Some(BitRate::new(3_000_000)));
        assert_eq!(beside(Experiment::Deadlines), None);
    }
}
