//! All tests. Each runner prints its own lines.

use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::setup;
use crate::tools::target;
use crate::vm;

/// Rust (with the C examples, which the C interface's own tests compile), then Python, then the short run on a
/// newer kernel. A failure of one does not hide the others.
pub fn run(sh: &Shell, root: &Path) -> Result<()> {
    setup::run(sh)?;
    let rust = cmd!(sh, "cargo test --locked --workspace --exclude qfabric-python --no-fail-fast").run();
    let python = python(sh);
    let machine = vm::short(sh, root);
    rust.map_err(Into::into).and(python).and(machine)
}

/// The bindings are built into a virtual environment of their own and tested there.
fn python(sh: &Shell) -> Result<()> {
    let venv = venv(sh)?;
    let (maturin, python) = (venv.join("bin/maturin"), venv.join("bin/python"));
    let _venv = sh.push_env("VIRTUAL_ENV", &venv);
    cmd!(sh, "env -u CONDA_PREFIX {maturin} develop --locked -m bindings/python/Cargo.toml").run()?;
    cmd!(sh, "{python} -m pytest -q bindings/python/tests").run()?;
    Ok(())
}

/// The virtual environment, made once.
fn venv(sh: &Shell) -> Result<PathBuf> {
    let venv = target(sh)?.join("venv");
    let pytest = venv.join("bin/pytest");
    if !pytest.exists() {
        cmd!(sh, "python3 -m venv {venv}").run()?;
        let pip = venv.join("bin/pip");
        cmd!(sh, "{pip} install --quiet --disable-pip-version-check maturin pytest").run()?;
    }
    Ok(venv)
}
