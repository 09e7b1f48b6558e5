//! Runs all tests. Each runner prints its own lines.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

use crate::failures::Failures;
use crate::hang::run_and_search;
use crate::tools::{python_tool, target, venv};
use crate::vm;
use crate::{laboratory, setup, skips};

/// The packages of `cargo test`. Other jobs with the same packages find the build of the tests.
pub(crate) const TESTED: [&str; 3] = ["--workspace", "--exclude", "qfabric-python"];

/// After this time without a line, a test hangs. The longest such time is that of linking all programs of tests; Cargo
/// prints no line for it.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Runs Rust tests (the tests of the C interface compile the C examples), then Python, then the short run on a newer
/// kernel, then prints the skipped tests, and last of all what failed. A failure in one part does not hide failures in
/// the others.
pub(crate) fn run(sh: &Shell, root: &Path) -> Result<()> {
    setup::run(sh)?;
    // The tests run it, and the daemon of the tests contains it.
    let laboratory = laboratory::build_if_possible(sh).map(drop);
    let skips = skips::begin(&target(sh)?)?;
    let failures = Failures::default();
    let rust = cmd!(sh, "cargo test --locked {TESTED...} --no-fail-fast");
    let rust = run_and_search(rust.env(skips::FILE, &skips), LONGEST, &failures);
    let python = python(sh, &failures);
    let machine = vm::short(sh, root);
    conclude([laboratory, rust, python, machine, skips::check(sh, root, &skips)], &failures)
}

/// Builds the Rust tests.
pub(crate) fn build(sh: &Shell) -> Result<()> {
    Ok(cmd!(sh, "cargo test --locked {TESTED...} --no-run").run()?)
}

/// Prints what failed, if anything did.
fn conclude(parts: [Result<()>; 5], failures: &Failures) -> Result<()> {
    let wrong: Vec<_> = parts.into_iter().filter_map(Result::err).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    eprintln!("\nwhat failed, in short; the whole output of each is above");
    failures.lines().iter().for_each(|line| eprintln!("  {line}"));
    wrong.iter().for_each(|error| eprintln!("  {error:#}"));
    bail!("{} of 5 parts of the tests failed", wrong.len())
}

/// Builds the bindings into a virtual environment and tests them there.
fn python(sh: &Shell, failures: &Failures) -> Result<()> {
    let venv = venv(sh)?;
    let (maturin, _pytest) = (python_tool(sh, "maturin")?, python_tool(sh, "pytest")?);
    let python = venv.join("bin/python");
    let _venv = sh.push_env("VIRTUAL_ENV", &venv);
    cmd!(sh, "env -u CONDA_PREFIX {maturin} develop --locked -m bindings/python/Cargo.toml").run()?;
    run_and_search(cmd!(sh, "{python} -m pytest -q bindings/python/tests"), LONGEST, failures)
}
