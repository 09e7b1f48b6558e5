//! The rooms that know nothing of this machine, checked for another one. Their dependencies are Rust alone, so no C compiler
//! for that machine is needed.

use anyhow::Result;
use clap::Args;
use xshell::{Shell, cmd};

const ROOMS: [&str; 11] =
    ["types", "sched", "control", "broker", "ecode", "channel", "host", "sync", "shm", "sim", "client"];

#[derive(Args)]
pub struct Options {
    /// The machine, as rustup names it; installed with `rustup target add`
    #[arg(long, default_value = "aarch64-unknown-linux-gnu")]
    target: String,
}

/// Checks [`ROOMS`] for the target, in a folder of its own.
pub fn run(sh: &Shell, options: &Options) -> Result<()> {
    let target = &options.target;
    let rooms = ROOMS.map(|room| format!("--package=qfabric-{room}"));
    cmd!(sh, "cargo check --locked --target {target} {rooms...}").run()?;
    Ok(())
}
