//! `xtask vm packages`: the life of the Debian packages under a real systemd: installed, started, killed, upgraded,
//! removed. The claims are in `packaging/check/inside`. See docs/design/0054-packages.md.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use xshell::{Shell, cmd};

use super::kernels::Cache;
use super::matrix;
use crate::{deb, setup};

/// Where, and with which packages.
#[derive(Args)]
pub(crate) struct Options {
    /// Kernel, by its name in tests/vm/kernels.toml
    #[arg(short, long, default_value = "7.3")]
    kernel: String,
    /// Use the kernel of this machine, in namespaces: seconds instead of minutes
    #[arg(long)]
    here: bool,
    /// Folder of the packages that are installed first; without it, both are built
    #[arg(long, requires = "new")]
    old: Option<PathBuf>,
    /// Folder of the packages of the upgrade
    #[arg(long, requires = "old")]
    new: Option<PathBuf>,
}

/// Prints one line for each claim; fails if one does not hold.
pub(super) fn run(sh: &Shell, root: &Path, options: &Options) -> Result<()> {
    setup::for_trying_packages(sh)?;
    let (old, new) = match (&options.old, &options.new) {
        (Some(old), Some(new)) => (old.clone(), new.clone()),
        _ => made(sh)?,
    };
    if options.here {
        cmd!(sh, "packaging/check/run {old} {new}").run()?;
        return Ok(());
    }
    let entries = matrix::read(root)?;
    let kernel = Cache::open(sh)?.get(matrix::find(&entries, &options.kernel)?)?;
    cmd!(sh, "packaging/check/run --machine {old} {new}").env("VMLINUX", kernel.vmlinux()).run()?;
    Ok(())
}

/// Packages of this source under two versions.
fn made(sh: &Shell) -> Result<(PathBuf, PathBuf)> {
    let (old, new) = (PathBuf::from("out/vm/packages/old"), PathBuf::from("out/vm/packages/new"));
    deb::make(sh, "", &old)?;
    deb::make(sh, "+1", &new)?;
    Ok((old, new))
}
