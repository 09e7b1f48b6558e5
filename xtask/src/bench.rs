//! Runs the benchmarks: all bench targets of the workspace. The list comes from cargo, so that none is forgotten.

use anyhow::{Context, Result};
use cargo_metadata::{MetadataCommand, TargetKind};
use xshell::{Shell, cmd};

/// Runs all benchmarks. With `short` they only show that they work; their numbers mean little.
pub(crate) fn run(sh: &Shell, short: bool) -> Result<()> {
    let options: &[&str] = if short { &["--max-time", "0.05"] } else { &[] };
    // One call for all: a call per package would build each package with different features.
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
