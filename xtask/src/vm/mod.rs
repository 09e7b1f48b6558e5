//! A newer (or older) kernel in an emulated machine: fetched, checked, and booted with a program of this project.
//! Nothing on this machine is changed. See docs/design/0011-vm.md.

mod apt;
mod cpio;
mod image;
mod kernels;
mod matrix;
mod modules;
mod packages;
mod plan;
mod qemu;
mod run;
mod session;
mod targets;
mod test;
mod vmlinux;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use xshell::Shell;

use kernels::Cache;

pub(crate) use test::short;

/// Jobs of `xtask vm`.
#[derive(Subcommand)]
pub(crate) enum Job {
    /// Fetch kernels into the cache; without names, all that are not extra
    Fetch {
        /// Names from tests/vm/kernels.toml
        kernels: Vec<String>,
    },
    /// List the kernels of the matrix and their state in the cache
    List,
    /// Boot a kernel and run commands
    Run(run::Options),
    /// Run the tests of tests/vm/plan.toml
    Test(test::Options),
    /// Try the Debian packages under a real systemd: installed, started, killed, upgraded, removed
    Packages(packages::Options),
    /// Remove all kernels from the cache
    Clean,
}

/// Runs the job; returns the exit code of the last failing command.
pub(crate) fn run(sh: &Shell, root: &Path, job: Job) -> Result<ExitCode> {
    match job {
        Job::Fetch { kernels } => fetch(sh, root, &kernels)?,
        Job::List => list(sh, root)?,
        Job::Run(options) => return run::run(sh, root, &options),
        Job::Test(options) => test::run(sh, root, &options)?,
        Job::Packages(options) => packages::run(sh, root, &options)?,
        Job::Clean => Cache::open(sh)?.clean()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn fetch(sh: &Shell, root: &Path, names: &[String]) -> Result<()> {
    let cache = Cache::open(sh)?;
    for entry in matrix::choose(matrix::read(root)?, names)? {
        let kernel = cache.get(&entry)?;
        println!("{}: {}", entry.name, kernel.release);
    }
    Ok(())
}

fn list(sh: &Shell, root: &Path) -> Result<()> {
    let cache = Cache::open(sh)?;
    for entry in matrix::read(root)? {
        let there = cache.find(&entry).map_or_else(|| "not fetched".to_owned(), |kernel| kernel.release);
        let extra = if entry.extra { " (only when named)" } else { "" };
        println!("{:8} {there}{extra}", entry.name);
    }
    println!("in {}", cache.folder().display());
    Ok(())
}
