//! A video player without a screen. It decodes a stream frame by frame as a periodic task, and logs when each
//! frame was ready and how much CPU time it cost.
//!
//! Problem: a scheduler is judged by the jobs of a real decoder. Approach: the whole stream is in memory, one
//! thread decodes (`threads=1`), and job `k` is released at `start + k·T` even if the job before is late. The
//! player writes no file before the last job has ended. Times are in nanoseconds of CLOCK_MONOTONIC; costs are
//! measured with the CPU clock of the thread. Source: AQuoSA 2009, §6.1 (the decoding experiment).
#![forbid(unsafe_code)]

mod arriving;
mod clip;
mod decoder;
mod display;
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
