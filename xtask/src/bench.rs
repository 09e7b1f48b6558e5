//! The benchmarks: every bench target of the workspace, found rather than listed, so that none is forgotten,
//! and what the daemon costs.

use anyhow::{Context, Result};
use cargo_metadata::{MetadataCommand, TargetKind};
use xshell::{Shell, cmd};

/// Runs them all; `short` ones show that they work, their figures say little.
pub fn run(sh: &Shell, short: bool) -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(sh.current_dir()).no_deps().exec().context("cargo metadata")?;
    let options: &[&str] = if short { &["--max-time", "0.05"] } else { &[] };
    for package in metadata.workspace_packages() {
        for bench in package.targets.iter().filter(|target| target.kind.contains(&TargetKind::Bench)) {
            let (package, bench) = (package.name.as_str(), bench.name.as_str());
            cmd!(sh, "cargo bench --locked -p {package} --bench {bench} -- {options...}").run()?;
        }
    }
    let seconds = if short { "2" } else { "20" };
    cmd!(sh, "cargo run --release --locked -p qfabric-daemon --example cost -- 50 {seconds}").run()?;
    Ok(())
}
