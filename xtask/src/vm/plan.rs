//! `tests/vm/plan.toml`: which tests run in the machine, on which kernels, on what machine.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::matrix::{Entry, find};
use super::qemu::Machine;

/// One program of tests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The package it belongs to, `qfabric-linux`.
    pub package: String,
    /// The integration test's name, or `lib` for the unit tests.
    pub target: String,
    /// Which of its tests, by parts of their names; all when empty.
    #[serde(default)]
    pub filter: Vec<String>,
    /// Which not, by parts of their names.
    #[serde(default)]
    pub skip: Vec<String>,
    /// Names of kernels.
    pub kernels: Vec<String>,
    /// Those of them that are part of the short run.
    #[serde(default)]
    pub short: Vec<String>,
    /// Processors.
    #[serde(default = "two")]
    pub cpus: u32,
    /// MiB.
    #[serde(default = "gibibyte")]
    pub memory: u32,
    /// Guest time is a function of instructions.
    #[serde(default)]
    pub icount: bool,
    /// Words added to the kernel's command line.
    #[serde(default)]
    pub append: Vec<String>,
    /// A boot of its own: what it leaves behind would disturb others.
    #[serde(default)]
    pub alone: bool,
    /// Optimized code: what it measures of itself must not be the cost of unoptimized code.
    #[serde(default)]
    pub release: bool,
    /// Kernel modules.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Files and folders of the repository that it reads.
    #[serde(default)]
    pub files: Vec<String>,
    /// The host's programs that it calls.
    #[serde(default)]
    pub programs: Vec<String>,
    /// `NAME=value`
    #[serde(default)]
    pub variables: Vec<String>,
    /// Seconds it may take, by the host's clock.
    #[serde(default = "minute")]
    pub timeout: u64,
}

fn two() -> u32 {
    2
}

fn gibibyte() -> u32 {
    1024
}

fn minute() -> u64 {
    60
}

#[derive(Deserialize)]
struct File {
    test: Vec<Test>,
}

impl Test {
    /// What it runs on.
    pub fn machine(&self) -> Machine {
        let (cpus, memory, icount) = (self.cpus, self.memory, self.icount);
        Machine { cpus, memory, icount, append: self.append.clone() }
    }

    /// Whether a boot for `other` does for this one.
    fn fits(&self, other: &Test) -> bool {
        !self.alone && !other.alone && self.machine() == other.machine()
    }
}

/// All of them, checked against the matrix.
pub fn read(root: &Path, kernels: &[Entry]) -> Result<Vec<Test>> {
    let path = root.join("tests/vm/plan.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let tests = toml::from_str::<File>(&text).with_context(|| path.display().to_string())?.test;
    for test in &tests {
        check(test, kernels).with_context(|| format!("{}: {} {}", path.display(), test.package, test.target))?;
    }
    Ok(tests)
}

fn check(test: &Test, kernels: &[Entry]) -> Result<()> {
    ensure!(!test.kernels.is_empty(), "it runs on no kernel");
    for name in &test.kernels {
        find(kernels, name)?;
    }
    let unknown = test.short.iter().find(|name| !test.kernels.contains(name));
    ensure!(unknown.is_none(), "short names {unknown:?}, which kernels does not");
    Ok(())
}

/// Which tests go into one boot: those of equal machines, in the plan's order.
pub fn boots(tests: Vec<Test>) -> Vec<Vec<Test>> {
    let mut boots: Vec<Vec<Test>> = Vec::new();
    for test in tests {
        match boots.iter_mut().find(|boot| boot.iter().all(|other| test.fits(other))) {
            Some(boot) => boot.push(test),
            None => boots.push(vec![test]),
        }
    }
    boots
}

#[cfg(test)]
mod tests {
    use super::super::matrix;
    use super::*;

    fn test(lines: &str) -> Test {
        toml::from_str(&format!("package = \"p\"\ntarget = \"t\"\nkernels = [\"7.3\"]\n{lines}")).unwrap()
    }

    #[test]
    fn the_repositories_plan_can_be_read_and_has_a_short_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tests = read(root, &matrix::read(root).unwrap()).unwrap();
        assert!(tests.iter().any(|test| !test.short.is_empty()));
    }

    #[test]
    fn tests_of_equal_machines_share_a_boot() {
        let all = vec![test(""), test("cpus = 1"), test("timeout = 9"), test("alone = true"), test("icount = true")];
        let sizes: Vec<_> = boots(all).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1, 1, 1]);
    }

    #[test]
    fn a_short_run_on_a_kernel_that_is_not_its_own_is_refused() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let kernels = matrix::read(root).unwrap();
        assert!(check(&test("short = [\"7.3\"]"), &kernels).is_ok());
        assert!(check(&test("short = [\"6.12\"]"), &kernels).unwrap_err().to_string().contains("6.12"));
    }
}
