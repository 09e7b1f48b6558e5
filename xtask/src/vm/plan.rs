//! `tests/vm/plan.toml`: the tests that run in the machine, their kernels, and the machine's settings.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::matrix::{Entry, find};
use super::qemu::Machine;

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    /// Package of the test, such as `qfabric-linux`.
    pub package: String,
    /// Name of the integration test, or `lib` for the unit tests.
    pub target: String,
    /// Run only tests whose names contain one of these parts; all if empty.
    #[serde(default)]
    pub filter: Vec<String>,
    /// Skip tests whose names contain one of these parts.
    #[serde(default)]
    pub skip: Vec<String>,
    /// Names of kernels from the matrix.
    pub kernels: Vec<String>,
    /// The kernels of the short run.
    #[serde(default)]
    pub short: Vec<String>,
    /// Number of processors.
    #[serde(default = "two")]
    pub cpus: u32,
    /// Memory in MiB.
    #[serde(default = "gibibyte")]
    pub memory: u32,
    /// Guest time is a function of executed instructions.
    #[serde(default)]
    pub icount: bool,
    /// Words added to the kernel's command line.
    #[serde(default)]
    pub append: Vec<String>,
    /// An ACPI table of `tests/vm/acpi`, without `.asl`.
    #[serde(default)]
    pub firmware: Option<String>,
    /// Boot for this test alone, because it leaves something behind that would disturb other tests.
    #[serde(default)]
    pub alone: bool,
    /// Build with optimisation, because the test measures its own cost.
    #[serde(default)]
    pub release: bool,
    /// Kernel modules.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Files and folders of the repository that the test reads.
    #[serde(default)]
    pub files: Vec<String>,
    /// Programs of the host that the test calls.
    #[serde(default)]
    pub programs: Vec<String>,
    /// `NAME=value`
    #[serde(default)]
    pub variables: Vec<String>,
    /// Timeout in seconds, on a host without other work.
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
    /// The machine for this test.
    pub(super) fn machine(&self) -> Machine {
        let (cpus, memory, icount) = (self.cpus, self.memory, self.icount);
        Machine { cpus, memory, icount, append: self.append.clone(), firmware: self.firmware.clone() }
    }

    /// True if a boot for `other` also serves this test.
    fn fits(&self, other: &Test) -> bool {
        !self.alone && !other.alone && self.machine() == other.machine()
    }
}

/// Reads all tests and checks them against the matrix.
pub(super) fn read(root: &Path, kernels: &[Entry]) -> Result<Vec<Test>> {
    let path = root.join("tests/vm/plan.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let tests = toml::from_str::<File>(&text).with_context(|| path.display().to_string())?.test;
    for test in &tests {
        check(test, kernels).with_context(|| format!("{}: {} {}", path.display(), test.package, test.target))?;
    }
    Ok(tests)
}

fn check(test: &Test, kernels: &[Entry]) -> Result<()> {
    ensure!(!test.kernels.is_empty(), "`kernels` is empty; name at least one kernel");
    for name in &test.kernels {
        find(kernels, name)?;
    }
    let unknown = test.short.iter().find(|name| !test.kernels.contains(name));
    ensure!(unknown.is_none(), "`short` has {unknown:?}, which is not in `kernels`");
    Ok(())
}

/// Groups tests into boots: tests with equal machines share a boot, in the order of the plan.
pub(super) fn boots(tests: Vec<Test>) -> Vec<Vec<Test>> {
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
