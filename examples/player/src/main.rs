//! A video player without a screen: decodes a stream frame by frame as a periodic task and writes down when
//! each frame was ready and what it cost.
//!
//! Problem: a scheduler is judged by what a real decoder achieves under it, job by job. Approach: the whole
//! stream lies in memory, one thread decodes (`threads=1`), job `k` is released at `start + k·T` whatever
//! became of the job before, and nothing is written before the last job has ended. Times in nanoseconds of
//! CLOCK_MONOTONIC, costs on the thread's CPU clock. Source: AQuoSA 2009, §6.1 (the decoding experiment).
#![forbid(unsafe_code)]

mod clip;
mod decoder;
mod foresight;
mod hog;
mod log;
mod marks;
mod options;
mod pace;
mod play;
mod skip;
mod trace;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match run(&options::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("qfabric-player: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &options::Options) -> anyhow::Result<()> {
    ffmpeg_next::util::log::set_level(ffmpeg_next::util::log::Level::Fatal);
    if let Some(parent) = options.die_with_parent {
        hog::die_with_parent(parent)?;
    }
    match (&options.trace, options.hog) {
        (_, true) => hog::spin(),
        (Some(path), _) => trace::write(options, path),
        (None, _) => play::play(options),
    }
}
