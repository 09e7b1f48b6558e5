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
mod stolen;
mod tcp;
mod trial;

use std::path::PathBuf;
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
use crate::plan::Plan;
use crate::report::Missing;

/// The conditions of a bench.
pub struct Options {
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
    /// Whether a TCP flow is on the same link.
    pub beside: bool,
    /// Program and first words of the processes; the words of [`play`] follow.
    pub player: (PathBuf, Vec<String>),
    /// Ends the bench before the next run.
    pub stop: Arc<AtomicBool>,
    /// Gets one line for each run.
    pub progress: Box<dyn Fn(&str)>,
}

/// Runs the bench. After a stop, the report has the runs so far.
pub fn run(options: &Options) -> Result<Report> {
    let folder = tempfile::Builder::new().prefix("qfabric-transport-").tempdir()?;
    let programs = Programs { player: options.player.clone(), folder: folder.path().to_owned() };
    realm::make(&realm::folder(&folder.path().join("plan")))?;
    let wanted = if options.engines.is_empty() { Engine::value_variants() } else { &options.engines };
    let lacks = |engine: &Engine| Some(Missing { engine: *engine, why: programs.lacks(*engine)? });
    let missing: Vec<Missing> = wanted.iter().filter_map(lacks).collect();
    let present = |engine: &&Engine| missing.iter().all(|lack| lack.engine != **engine);
    let engines: Vec<Engine> = wanted.iter().filter(present).copied().collect();
    let whys: Vec<&str> = missing.iter().map(|lack| lack.why.as_str()).collect();
    ensure!(!engines.is_empty(), "no engine can run: {}", whys.join("; "));
    let plan = plan(options)?;
    let mut report = Report::new(conditions(options, &plan), options.seed, options.frames, engines);
    report.missing = missing;
    rounds::run(options, &programs, &plan, &mut report)?;
    Ok(report.finish())
}

fn plan(options: &Options) -> Result<Plan> {
    let clip = plan::clip(options.clip.as_deref())?;
    Ok(Plan {
        period: Duration::from_millis(40),
        deadline: Duration::from_nanos(options.deadline.get()),
        granted_bps: options.granted.get(),
        frames: Plan::new(&clip, options.frames),
    })
}

fn conditions(options: &Options, plan: &Plan) -> String {
    let mbit = 8e-6 * plan.bytes() as f64 / (plan.period.as_secs_f64() * plan.frames.len() as f64);
    format!(
        "{} frames, 25 a second, {mbit:.1} Mbit/s, deadline {}; granted {}; {} rounds.\nLink: {}.",
        options.frames, options.deadline, options.granted, options.rounds, options.link
    )
}
