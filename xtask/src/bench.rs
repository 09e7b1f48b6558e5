//! Runs the benchmarks: all bench targets of the workspace. The list comes from cargo, so that none is forgotten.

use std::time::Duration;

use anyhow::{Context, Result};
use cargo_metadata::{MetadataCommand, Package, TargetKind};
use xshell::{Shell, cmd};

use crate::hang::run_or_report;
use crate::test::TESTED;

/// After this, a short run of all benchmarks hangs; it needs some six minutes on two CPUs.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// Runs all benchmarks. With `short` they only show that they work: they are built like the tests, without
/// optimisation, so that after `make test` only the bench targets themselves are compiled.
pub(crate) fn run(sh: &Shell, short: bool) -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(sh.current_dir()).no_deps().exec().context("cargo metadata")?;
    let packages = metadata.workspace_packages();
    // One call for all: a call per package would build each package with different features.
    let targets = bench_targets(&packages).flat_map(|(_, bench)| ["--bench", bench]);
    if short {
        let short = cmd!(sh, "cargo bench --locked --profile dev {TESTED...} {targets...} -- --max-time 0.05");
        run_or_report(short, LONGEST)?;
    } else {
        let owners = bench_targets(&packages).flat_map(|(package, _)| ["--package", package]);
        cmd!(sh, "cargo bench --locked {owners...} {targets...}").run()?;
    }
    Ok(())
}

/// The bench targets, each with the name of its package.
fn bench_targets<'a>(packages: &'a [&'a Package]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_bench = |kinds: &[TargetKind]| kinds.contains(&TargetKind::Bench);
    packages.iter().flat_map(move |package| {
        let targets = package.targets.iter().filter(move |target| is_bench(&target.kind));
        targets.map(|target| (package.name.as_str(), target.name.as_str()))
    })
}
