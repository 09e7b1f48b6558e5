//! Test programs that a plan names, built by cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Message, Target, TargetKind};

use super::plan::Test;

/// Package and target → its test program; package → the programs that its tests may call.
#[derive(Default)]
pub(super) struct Programs {
    tests: BTreeMap<(String, String), PathBuf>,
    called: BTreeMap<String, Vec<PathBuf>>,
}

impl Programs {
    /// The test program of a test.
    pub(super) fn of(&self, test: &Test) -> Result<&Path> {
        let key = (test.package.clone(), test.target.clone());
        let program = self.tests.get(&key).with_context(|| format!("{} has no test {}", test.package, test.target))?;
        Ok(program)
    }

    /// The programs that the package's tests find by `CARGO_BIN_EXE_…`.
    pub(super) fn called_by(&self, test: &Test) -> &[PathBuf] {
        self.called.get(&test.package).map_or(&[], Vec::as_slice)
    }
}

/// Builds the programs of these tests. All integration tests are built in one call over the workspace, as in `make
/// test`: another selection would have other features and build everything twice. Unit tests, and tests with
/// optimisation, are built package by package.
pub(super) fn build(root: &Path, tests: &[Test]) -> Result<Programs> {
    let mut programs = Programs::default();
    let (optimized, others): (Vec<_>, Vec<_>) = tests.iter().partition(|test| test.release);
    let (units, named): (Vec<_>, Vec<_>) = others.into_iter().partition(|test| test.target == "lib");
    let names: BTreeSet<_> = named.iter().map(|test| test.target.as_str()).collect();
    if !names.is_empty() {
        let names = names.into_iter().flat_map(|name| ["--test", name]);
        programs.cargo(root, ["--workspace", "--exclude", "qfabric-python"].into_iter().chain(names))?;
    }
    let packages: BTreeSet<_> = units.iter().map(|test| test.package.as_str()).collect();
    if !packages.is_empty() {
        programs.cargo(root, ["--lib"].into_iter().chain(packages.into_iter().flat_map(|name| ["-p", name])))?;
    }
    for test in optimized {
        programs.cargo(root, ["--release", "-p", &test.package, "--test", &test.target].into_iter())?;
    }
    Ok(programs)
}

impl Programs {
    fn cargo<'a>(&mut self, root: &Path, options: impl Iterator<Item = &'a str>) -> Result<()> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--no-run", "--locked", "--message-format=json-render-diagnostics"]).args(options);
        let mut cargo = cargo.current_dir(root).stdout(Stdio::piped()).spawn().context("cargo")?;
        let output = std::io::BufReader::new(cargo.stdout.take().context("cargo's output is a pipe")?);
        for message in Message::parse_stream(output) {
            if let Message::CompilerArtifact(artifact) = message?
                && let Some(program) = artifact.executable
            {
                self.add(package(artifact.package_id.repr.as_str()), &artifact.target, program.into());
            }
        }
        ensure!(cargo.wait()?.success(), "cannot build the tests; cargo's errors are above");
        Ok(())
    }

    fn add(&mut self, package: String, target: &Target, program: PathBuf) {
        if target.kind.contains(&TargetKind::Test) {
            self.tests.insert((package, target.name.clone()), program);
        } else if target.kind.contains(&TargetKind::Bin) {
            self.called.entry(package).or_default().push(program);
        } else {
            self.tests.insert((package, "lib".to_owned()), program);
        }
    }
}

/// `path+file:///x/crates/linux#qfabric-linux@0.1.0` → `qfabric-linux`; without a name after `#`, the folder's name
/// is the package.
fn package(id: &str) -> String {
    let (path, rest) = id.rsplit_once('#').unwrap_or((id, ""));
    let name = rest.split_once('@').map_or("", |(name, _)| name);
    if name.is_empty() { path.rsplit('/').next().unwrap_or_default().to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_package_id_give_its_name() {
        assert_eq!(package("path+file:///w/crates/linux#qfabric-linux@0.1.0"), "qfabric-linux");
        assert_eq!(package("path+file:///w/xtask#0.1.0"), "xtask");
    }
}
