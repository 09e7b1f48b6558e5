//! Checks the rooms that use nothing of this machine for another target. Their dependencies are Rust only, so no C
//! compiler for that target is needed.

use anyhow::Result;
use clap::Args;
use xshell::{Shell, cmd};

const ROOMS: [&str; 11] =
    ["types", "sched", "control", "broker", "ecode", "channel", "host", "sync", "shm", "sim", "client"];

#[derive(Args)]
pub(crate) struct Options {
    /// Target triple, installed with `rustup target add`
    #[arg(long, default_value = "aarch64-unknown-linux-gnu")]
    target: String,
}

/// Checks [`ROOMS`] for the target, in a separate target folder.
pub(crate) fn run(sh: &Shell, options: &Options) -> Result<()> {
    let target = &options.target;
    let rooms = ROOMS.map(|room| format!("--package=qfabric-{room}"));
    cmd!(sh, "cargo check --locked --target {target} {rooms...}").run()?;
    Ok(())
}
