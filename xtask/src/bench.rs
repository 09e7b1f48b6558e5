//! The benchmarks: every bench target of the workspace, found rather than listed, so that none is forgotten.

use anyhow::{Context, Result};
use cargo_metadata::{MetadataCommand, TargetKind};
use xshell::{Shell, cmd};

/// Runs them all; `short` ones show that they work, their figures say little.
pub fn run(sh: &Shell, short: bool) -> Result<()> {
    let options: &[&str] = if short { &["--max-time", "0.05"] } else { &[] };
    // One call for all: with a call per package each would be built with features of its own.
    let benches: Vec<_> = benches(sh)?.into_iter().flat_map(|bench| ["--bench".to_owned(), bench]).collect();
    cmd!(sh, "cargo bench --locked --workspace --exclude qfabric-python {benches...} -- {options...}").run()?;
    Ok(())
}

fn benches(sh: &Shell) -> Result<Vec<String>> {
    let metadata = MetadataCommand::new().current_dir(sh.current_dir()).no_deps().exec().context("cargo metadata")?;
    let packages = metadata.workspace_packages();
    let targets = packages.iter().flat_map(|package| &package.targets);
    Ok(targets.filter(|t| t.kind.contains(&TargetKind::Bench)).map(|t| t.name.clone()).collect())
}
