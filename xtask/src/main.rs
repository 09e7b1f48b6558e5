//! One command for each developer's job; `make X` calls the command X.
#![forbid(unsafe_code)]

mod bench;
mod build;
mod check;
mod deb;
mod docs;
mod failures;
mod fuzz;
mod hang;
mod install;
mod laboratory;
mod miri;
#[cfg(test)]
mod plans;
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
#[cfg(test)]
mod words;

use std::env;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

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
    /// Run all tests: Rust, the C example, the Python bindings, the short run on a newer kernel
    Test {
        /// Only build the Rust tests
        #[arg(long)]
        no_run: bool,
    },
    /// Play real video at 25 fps under load, without and with Q-Fabric
    Demo {
        /// Arguments for `qfabric demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check formatting, spelling, clippy with warnings as errors, licences and sources of dependencies
    Lint {
        /// Leave out clippy: .ci/run builds the tests with it
        #[arg(long)]
        text: bool,
    },
    /// Run the benchmarks
    Bench {
        /// Only show that they work; the numbers mean little
        #[arg(long)]
        short: bool,
    },
    /// Fuzz all parsers of foreign input, guided by coverage
    Fuzz(fuzz::Options),
    /// Find data races between threads with ThreadSanitizer
    Races(races::Options),
    /// Find undefined behaviour by interpreting tests with Miri
    Miri(miri::Options),
    /// Build the guide and the API documentation
    Docs,
    /// Write man pages and completions into target/man
    Man,
    /// Install program, library, header, man pages, completions and unit under PREFIX
    Install {
        /// Folder of the installation
        #[arg(long, env = "PREFIX", default_value = "/usr/local")]
        prefix: String,
        /// Folder put before every path, for packagers
        #[arg(long, env = "DESTDIR", default_value = "")]
        destdir: String,
    },
    /// Build the policy laboratory as WebAssembly; a daemon that is built after it contains it
    Laboratory,
    /// Build Debian packages and the Python wheel into out/packages
    Deb(deb::Options),
    /// Check the rooms without C libraries for another machine
    Portable(portable::Options),
    /// Print the real dependencies between rooms
    Rooms,
    /// Boot other kernels in an emulated machine
    #[command(subcommand)]
    Vm(vm::Job),
}

fn main() -> ExitCode {
    if env::var_os("CARGO_MANIFEST_DIR").is_some() {
        eprintln!("xtask: starting again: {}", without_cargos_variables());
        return ExitCode::FAILURE;
    }
    match run(Cli::parse().job) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Replaces the process by one that does not have the variables of `cargo run`. Some build scripts (of `ring`) depend on
/// them: with them, `cargo test` and `make test` would build TLS and Zenoh again after each other. The program is named
/// by the kernel's link, which holds even when another build has replaced the file since. Returns on error.
fn without_cargos_variables() -> std::io::Error {
    let mut again = Command::new("/proc/self/exe");
    again.args(env::args_os().skip(1));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_")) {
            again.env_remove(name);
        }
    }
    again.exec()
}

fn run(job: Job) -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies inside the workspace")?;
    let sh = Shell::new()?;
    sh.change_dir(root);
    match job {
        Job::Setup => setup::run(&sh),
        Job::Test { no_run: true } => test::build(&sh),
        Job::Test { no_run: false } => test::run(&sh, root),
        Job::Demo { args } => build::demo(&sh, &args),
        Job::Lint { text } => check::lint(&sh, text),
        Job::Bench { short } => bench::run(&sh, short),
        Job::Fuzz(options) => fuzz::run(&sh, root, &options),
        Job::Races(options) => races::run(&sh, root, &options),
        Job::Miri(options) => miri::run(&sh, &options),
        Job::Docs => docs::run(&sh),
        Job::Man => build::man(&sh).map(|folder| println!("man pages and completions are in {}", folder.display())),
        Job::Install { prefix, destdir } => install::run(&sh, &prefix, &destdir),
        Job::Laboratory => laboratory::build(&sh).map(drop),
        Job::Deb(options) => deb::run(&sh, &options),
        Job::Portable(options) => portable::run(&sh, &options),
        Job::Rooms => rooms::print(root),
        Job::Vm(job) => return vm::run(&sh, root, job),
    }
    .map(|()| ExitCode::SUCCESS)
}
