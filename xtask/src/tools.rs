//! Locations of build output, and developer's tools that are fetched once.

use std::path::PathBuf;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

/// Cargo's target folder.
pub(crate) fn target(sh: &Shell) -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(sh.current_dir())
        .no_deps()
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .context("cargo metadata")?;
    Ok(metadata.target_directory.into())
}

/// Path of a cargo tool: the installed one, otherwise one built without optimisation (a third of the time) into the
/// target folder, which CI caches.
pub(crate) fn cargo_tool(sh: &Shell, name: &str, options: &[&str]) -> Result<PathBuf> {
    if cmd!(sh, "{name} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok() {
        return Ok(PathBuf::from(name));
    }
    let root = target(sh)?.join("tools");
    let program = root.join("bin").join(name);
    if !program.exists() {
        println!("{name} is not installed: building it into {}", root.display());
        cmd!(sh, "cargo install --quiet --locked --debug --root {root} {options...} {name}").run()?;
    }
    Ok(program)
}

/// Path of the project's virtual environment of Python, created once in the target folder.
pub(crate) fn venv(sh: &Shell) -> Result<PathBuf> {
    let venv = target(sh)?.join("venv");
    if !venv.join("bin/pip").exists() {
        cmd!(sh, "python3 -m venv {venv}").run()?;
    }
    Ok(venv)
}

/// Path of a program from the Python package of the same name, installed once into the virtual environment.
pub(crate) fn python_tool(sh: &Shell, name: &str) -> Result<PathBuf> {
    let bin = venv(sh)?.join("bin");
    let (program, pip) = (bin.join(name), bin.join("pip"));
    if !program.exists() {
        cmd!(sh, "{pip} install --quiet --disable-pip-version-check {name}").run()?;
    }
    Ok(program)
}
