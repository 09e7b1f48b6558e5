//! Where things are, and developer's tools that are fetched once.

use std::path::PathBuf;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

/// Cargo's target folder.
pub fn target(sh: &Shell) -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(sh.current_dir())
        .no_deps()
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .context("cargo metadata")?;
    Ok(metadata.target_directory.into())
}

/// A cargo tool: the one installed, else one built without optimisation (a third of the time) into the
/// target folder, where a cache of that folder keeps it.
pub fn cargo_tool(sh: &Shell, name: &str, options: &[&str]) -> Result<PathBuf> {
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

/// The project's virtual environment of Python, made once, in the target folder.
pub fn venv(sh: &Shell) -> Result<PathBuf> {
    let venv = target(sh)?.join("venv");
    if !venv.join("bin/pip").exists() {
        cmd!(sh, "python3 -m venv {venv}").run()?;
    }
    Ok(venv)
}

/// A program of a Python package of the same name, installed once into the virtual environment.
pub fn python_tool(sh: &Shell, name: &str) -> Result<PathBuf> {
    let bin = venv(sh)?.join("bin");
    let (program, pip) = (bin.join(name), bin.join("pip"));
    if !program.exists() {
        cmd!(sh, "{pip} install --quiet --disable-pip-version-check {name}").run()?;
    }
    Ok(program)
}
