//! `make laboratory`: the compiler and the simulation of the policy laboratory as WebAssembly, which the daemon contains
//! if it was made before the daemon is built.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::tools::target;

const TARGET: &str = "wasm32-unknown-unknown";
/// Where the daemon's build looks for the module.
pub(crate) const BUILT: &str = "crates/laboratory/built/laboratory.wasm";
const PAGE: &str = "crates/daemon/src/web/page";
/// The files of the page that the laboratory needs without a daemon: below [`PAGE`], and as the page names them.
const FILES: [(&str, &str); 10] = [
    ("laboratory.html", "laboratory.html"),
    ("laboratory.js", "laboratory.js"),
    ("laboratory-worker.js", "laboratory-worker.js"),
    ("charts.js", "charts.js"),
    ("tables.js", "tables.js"),
    ("page.css", "page.css"),
    ("icon.svg", "icon.svg"),
    ("uplot/uPlot.iife.min.js", "uplot.js"),
    ("uplot/uPlot.min.css", "uplot.css"),
    ("uplot/LICENSE", "uplot-license"),
];

/// Builds the module; returns its path. An unchanged module keeps its date, so that the daemon is not built again.
pub(crate) fn build(sh: &Shell) -> Result<PathBuf> {
    add_target(sh)?;
    cmd!(sh, "cargo build --quiet --locked --profile laboratory --target {TARGET} -p qfabric-laboratory").run()?;
    let made = target(sh)?.join(TARGET).join("laboratory/qfabric_laboratory.wasm");
    let built = sh.current_dir().join(BUILT);
    let bytes = sh.read_binary_file(&made)?;
    if sh.read_binary_file(&built).ok().as_ref() != Some(&bytes) {
        sh.write_file(&built, &bytes)?;
    }
    println!("{}: {} KiB", built.display(), bytes.len() >> 10);
    Ok(built)
}

/// The same; on a machine that has no standard library for WebAssembly and cannot get it, prints what is missing.
pub(crate) fn build_if_possible(sh: &Shell) -> Result<Option<PathBuf>> {
    match add_target(sh) {
        Ok(()) => build(sh).map(Some),
        Err(why) => {
            println!("left out: {why:#}");
            Ok(None)
        }
    }
}

/// Installs the standard library for WebAssembly, if it is missing.
fn add_target(sh: &Shell) -> Result<()> {
    let library = cmd!(sh, "rustc --print target-libdir --target {TARGET}").quiet().read().context("rustc")?;
    if Path::new(&library).is_dir() {
        return Ok(());
    }
    let missing = format!(
        "the laboratory needs Rust's standard library for {TARGET}: with a network, `rustup target add {TARGET}` installs \
         it; without rustup, the package of your distribution (Debian: libstd-rust-dev-wasm32)"
    );
    cmd!(sh, "rustup target add {TARGET}").run().context(missing)
}

/// Places the laboratory into a folder of a web site, where it checks and simulates without a daemon, if its module can
/// be built here.
pub(crate) fn place(sh: &Shell, folder: &Path) -> Result<()> {
    let Some(module) = build_if_possible(sh)? else { return Ok(()) };
    sh.create_dir(folder)?;
    for (file, name) in FILES {
        sh.copy_file(Path::new(PAGE).join(file), folder.join(name))?;
    }
    sh.copy_file(module, folder.join("laboratory.wasm"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Names that the files of the laboratory load: in attributes of HTML, in imports, and in the worker.
    fn loaded(text: &str) -> Vec<&str> {
        let before = ["src=\"", "href=\"", "from \"./", "new Worker(\"", "fetch(\""];
        let parts = before.iter().flat_map(|before| text.split(before).skip(1));
        parts.filter_map(|rest| rest.split('"').next()).filter(|name| !name.starts_with('/')).collect()
    }

    #[test]
    fn a_web_site_gets_every_file_that_the_laboratory_loads() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
        let mut known: Vec<&str> = FILES.iter().map(|(_, name)| *name).collect();
        known.push("laboratory.wasm");
        let mut found = 0;
        for (file, _) in FILES.iter().filter(|(file, _)| file.ends_with(".html") || file.ends_with(".js")) {
            let text = fs::read_to_string(page.join(file)).unwrap();
            for name in loaded(&text) {
                assert!(known.contains(&name), "{file} loads {name}, which a web site does not get");
                found += 1;
            }
        }
        assert!(found >= 10, "{found} names were found");
    }
}
