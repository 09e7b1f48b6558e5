//! The guide (mdBook) and the API documentation (rustdoc, warnings as errors).

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::tools::{cargo_tool, target};

/// Builds both and says where they are.
pub fn run(sh: &Shell) -> Result<()> {
    let target = target(sh)?;
    let book = target.join("guide");
    let mdbook = cargo_tool(sh, "mdbook", &["--no-default-features", "--features", "search"])?;
    cmd!(sh, "{mdbook} build docs/guide --dest-dir {book}").run()?;
    let _flags = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    // The models borrow sources of other rooms, whose links lead elsewhere there.
    let without = ["qfabric-python", "xtask", "qfabric-models"].map(|room| format!("--exclude={room}"));
    cmd!(sh, "cargo doc --workspace {without...} --no-deps --locked --lib").run()?;
    println!("guide: {}\nAPI:   {}", book.join("index.html").display(), target.join("doc").display());
    Ok(())
}
