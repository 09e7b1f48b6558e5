//! One command per developer's job; `make X` calls the command X.
#![forbid(unsafe_code)]

mod bench;
mod build;
mod check;
mod docs;
mod fuzz;
mod install;
mod portable;
mod races;
mod rooms;
#[cfg(test)]
mod security;
mod setup;
mod skips;
mod test;
mod tools;
mod vm;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use xshell::Shell;

/// The developer's jobs of Q-Fabric.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Install the system packages that are missing
    Setup,
    /// All tests: Rust, the C example, the Python bindings, the short run on a newer kernel
    Test,
    /// Real video at 25 fps under load, without and with Q-Fabric
    Demo {
        /// Passed on to `qfabric demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Formatting, spelling, clippy with warnings as errors, licences and sources of dependencies
    Lint,
    /// The benchmarks
    Bench {
        /// Only show that they work
        #[arg(long)]
        short: bool,
    },
    /// Random input, led by what it reaches, for everything that others wrote
    Fuzz(fuzz::Options),
    /// Data races between threads, by ThreadSanitizer
    Races(races::Options),
    /// The guide and the API documentation
    Docs,
    /// Man pages and completions, into target/man
    Man,
    /// Program, library, header, man pages, completions and unit under PREFIX
    Install {
        /// Where to
        #[arg(long, env = "PREFIX", default_value = "/usr/local")]
        prefix: String,
        /// Put before every path, for packagers
        #[arg(long, env = "DESTDIR", default_value = "")]
        destdir: String,
    },
    /// Check the rooms without C libraries for another machine
    Portable(portable::Options),
    /// Print how the rooms really depend on each other
    Rooms,
    /// Other kernels in an emulated machine
    #[command(subcommand)]
    Vm(vm::Job),
}

fn main() -> ExitCode {
    match run(Cli::parse().job) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(job: Job) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies inside the workspace")?;
    let sh = Shell::new()?;
    sh.change_dir(root);
    match job {
        Job::Setup => setup::run(&sh),
        Job::Test => test::run(&sh, root),
        Job::Demo { args } => build::demo(&sh, &args),
        Job::Lint => check::lint(&sh),
        Job::Bench { short } => bench::run(&sh, short),
        Job::Fuzz(options) => fuzz::run(&sh, root, &options),
        Job::Races(options) => races::run(&sh, root, &options),
        Job::Docs => docs::run(&sh),
        Job::Man => build::man(&sh).map(|folder| println!("man pages and completions are in {folder}")),
        Job::Install { prefix, destdir } => install::run(&sh, &prefix, &destdir),
        Job::Portable(options) => portable::run(&sh, &options),
        Job::Rooms => rooms::print(root),
        Job::Vm(job) => return vm::run(&sh, root, job),
    }
    .map(|()| ExitCode::SUCCESS)
}
