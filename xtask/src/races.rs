//! Runs tests under ThreadSanitizer with the installed compiler, to find data races between threads.
//!
//! A stable compiler has no instrumented standard library, which hides some races and reports others falsely.
//! `tests/tsan.supp` lists the suppressed frames, each with its reason; a race whose stack has no such frame fails.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use xshell::{Shell, cmd};

use crate::tools::target;

/// Rooms whose code shares memory between threads, and whose tests need no server and no kernel handler.
const ROOMS: [&str; 3] = ["qfabric-sync", "qfabric-shm", "qfabric-types"];
/// `crates/sync/src/edge.rs` uses the cfg `qfabric_tsan`.
const FLAGS: &str = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg qfabric_tsan";

/// Options of `xtask races`.
#[derive(Args)]
pub(crate) struct Options {
    /// Rooms to test, instead of the default ones
    #[arg(long = "package", short, value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Parts of test names, and options of the test runner
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Runs the unit tests of the rooms, instrumented.
pub(crate) fn run(sh: &Shell, root: &Path, options: &Options) -> Result<()> {
    let host = cmd!(sh, "rustc -vV").quiet().read()?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let known = ROOMS.map(str::to_owned).to_vec();
    let packages = if options.packages.is_empty() { &known } else { &options.packages };
    let packages: Vec<String> = packages.iter().flat_map(|package| ["--package".to_owned(), package.clone()]).collect();
    let folder = target(sh)?.join("tsan");
    let suppressions = root.join("tests/tsan.supp");
    // With an explicit target, programs that run at build time are not instrumented. Doc tests get no flags.
    let _flags = [
        sh.push_env("RUSTC_BOOTSTRAP", "1"),
        sh.push_env("RUSTFLAGS", FLAGS),
        sh.push_env("TSAN_OPTIONS", format!("suppressions={} exitcode=66", suppressions.display())),
    ];
    let args = &options.args;
    cmd!(sh, "cargo test --locked --lib --target {host} --target-dir {folder} {packages...} -- {args...}").run()?;
    Ok(())
}
