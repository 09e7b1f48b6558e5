//! The benchmarks: every bench target of the workspace, found rather than listed, so that none is forgotten.

use anyhow::{Context, Result};
use cargo_metadata::{MetadataCommand, TargetKind};
use xshell::{Shell, cmd};

/// Runs them all; `args` go to each.
pub fn run(sh: &Shell, args: &[String]) -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(sh.current_dir()).no_deps().exec().context("cargo metadata")?;
    for package in metadata.workspace_packages() {
        for bench in package.targets.iter().filter(|target| target.kind.contains(&TargetKind::Bench)) {
            let (package, bench) = (package.name.as_str(), bench.name.as_str());
            cmd!(sh, "cargo bench --locked -p {package} --bench {bench} -- {args...}").run()?;
        }
    }
    Ok(())
}
