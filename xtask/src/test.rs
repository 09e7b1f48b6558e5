//! Runs all tests. Each runner prints its own lines.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::hang::run_or_report;
use crate::tools::{python_tool, target, venv};
use crate::vm;
use crate::{setup, skips};

/// The packages of `cargo test`. Other steps of `.ci/run` that name the same packages find the build of the tests.
pub(crate) const TESTED: [&str; 3] = ["--workspace", "--exclude", "qfabric-python"];

/// After this, a test hangs. All of them need some 25 minutes on two CPUs, with their build, and up to twice that beside
/// other work.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Runs Rust tests (the tests of the C interface compile the C examples), then Python, then the short run on a newer
/// kernel, then prints the skipped tests. A failure in one part does not hide failures in the others.
pub(crate) fn run(sh: &Shell, root: &Path) -> Result<()> {
    setup::run(sh)?;
    let skips = skips::begin(&target(sh)?)?;
    let rust = cmd!(sh, "cargo test --locked {TESTED...} --no-fail-fast");
    let rust = run_or_report(rust.env(skips::FILE, &skips), LONGEST);
    let python = python(sh);
    let machine = vm::short(sh, root);
    rust.and(python).and(machine).and(skips::check(sh, root, &skips))
}

/// Builds the bindings into a virtual environment and tests them there.
fn python(sh: &Shell) -> Result<()> {
    let venv = venv(sh)?;
    let (maturin, _pytest) = (python_tool(sh, "maturin")?, python_tool(sh, "pytest")?);
    let python = venv.join("bin/python");
    let _venv = sh.push_env("VIRTUAL_ENV", &venv);
    cmd!(sh, "env -u CONDA_PREFIX {maturin} develop --locked -m bindings/python/Cargo.toml").run()?;
    cmd!(sh, "{python} -m pytest -q bindings/python/tests").run()?;
    Ok(())
}
