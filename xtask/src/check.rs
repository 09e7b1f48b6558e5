//! Checks that run no program of the project.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::setup;
use crate::tools::{cargo_tool, python_tool};

/// Checks formatting, spelling, clippy with warnings as errors, and the dependencies' licences and sources. `text`:
/// without clippy.
pub(crate) fn lint(sh: &Shell, text: bool) -> Result<()> {
    setup::run(sh)?;
    cmd!(sh, "cargo fmt --all --check").run()?;
    let typos = python_tool(sh, "typos")?;
    cmd!(sh, "{typos} --config typos.toml").run()?;
    if !text {
        cmd!(sh, "cargo clippy --workspace --all-targets --locked -- -D warnings").run()?;
    }
    let deny = cargo_tool(sh, "cargo-deny", &[])?;
    // Advisories come from the network and change daily, so they are checked by hand with `cargo deny check`.
    cmd!(sh, "{deny} --locked check bans licenses sources").run()?;
    Ok(())
}
