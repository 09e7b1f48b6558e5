//! A newer (or older) kernel in an emulated machine: fetched, checked, booted with a program of ours.
//! Nothing of this machine is changed. See docs/design/0011-vm.md.

mod apt;
mod cpio;
mod image;
mod kernels;
mod matrix;
mod modules;
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

pub use test::short;

/// What can be done with kernels.
#[derive(Subcommand)]
pub enum Job {
    /// Fetch kernels into the cache; all that are not extra when none is named
    Fetch {
        /// Names of tests/vm/kernels.toml
        kernels: Vec<String>,
    },
    /// The kernels of the matrix and which are there
    List,
    /// Boot and run commands
    Run(run::Options),
    /// Run what tests/vm/plan.toml says
    Test(test::Options),
    /// Remove all kernels from the cache
    Clean,
}

/// Does it; the exit code is the last failing command's.
pub fn run(sh: &Shell, root: &Path, job: Job) -> Result<ExitCode> {
    match job {
        Job::Fetch { kernels } => fetch(sh, root, &kernels)?,
        Job::List => list(sh, root)?,
        Job::Run(options) => return run::run(sh, root, &options),
        Job::Test(options) => test::run(sh, root, &options)?,
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
