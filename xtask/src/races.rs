//! ThreadSanitizer, by the compiler that is there: data races between threads that tests run into.
//!
//! The standard library has no instrumented build for a stable compiler. What that hides or makes up is in
//! `tests/tsan.supp`, each line with its reason; a race that goes through a stack without such a frame fails.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use xshell::{Shell, cmd};

use crate::tools::target;

/// Rooms whose own code shares memory between threads, without a server or a kernel handler in the test.
const ROOMS: [&str; 3] = ["qfabric-sync", "qfabric-shm", "qfabric-types"];
/// `qfabric_tsan`: see `crates/sync/src/edge.rs`.
const FLAGS: &str = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg qfabric_tsan";

/// What there is to choose.
#[derive(Args)]
pub struct Options {
    /// Rooms to test, instead of those that are known to run
    #[arg(long = "package", short, value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Parts of names of tests, and options of the test runner
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Unit tests of the rooms, instrumented.
pub fn run(sh: &Shell, root: &Path, options: &Options) -> Result<()> {
    let host = cmd!(sh, "rustc -vV").quiet().read()?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let known = ROOMS.map(str::to_owned).to_vec();
    let packages = if options.packages.is_empty() { &known } else { &options.packages };
    let packages: Vec<String> = packages.iter().flat_map(|package| ["--package".to_owned(), package.clone()]).collect();
    let folder = target(sh)?.join("tsan");
    let suppressions = root.join("tests/tsan.supp");
    // With a target given, programs that run at build time are not instrumented. Doc tests have no flags of their own.
    let _flags = [
        sh.push_env("RUSTC_BOOTSTRAP", "1"),
        sh.push_env("RUSTFLAGS", FLAGS),
        sh.push_env("TSAN_OPTIONS", format!("suppressions={} exitcode=66", suppressions.display())),
    ];
    let args = &options.args;
    cmd!(sh, "cargo test --locked --lib --target {host} --target-dir {folder} {packages...} -- {args...}").run()?;
    Ok(())
}
