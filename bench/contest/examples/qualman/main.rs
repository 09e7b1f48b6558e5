//! Figures and tables of QualMan (004), measured and drawn:
//! `cargo run --release -p qfabric-contest --example qualman [-- --short] [-- --only figure-10] [-- --out FOLDER]`
//!
//! Writes to `out/figures/`, each as SVG and as CSV: Figure 10 (asked against achieved bandwidth and frame rate of a
//! stream of `qfabric net`, beside a flood, with and without its reservation) and Table 1 (the symbols of the
//! translation in both directions). Figure 10 needs root and takes two minutes.

mod figure_10;
#[expect(dead_code, reason = "the figures of channels have bars, these have lines")]
#[path = "../../../../crates/link/examples/figures/plot.rs"]
mod plot;
mod table_1;

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use plot::Panel;

/// A figure's name, and the function that measures it.
type Figure = (&'static str, fn(bool) -> Result<Vec<Panel>>);

const FIGURES: [Figure; 2] = [("table-1", table_1::panels), ("figure-10", figure_10::panels)];

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        // The flood is a process of the contest.
        Some("child") => return qfabric_contest::actor::child(),
        Some("receive") => return figure_10::receive(&arguments[1..]),
        _ => {}
    }
    let after = |flag: &str| arguments.iter().skip_while(|argument| *argument != flag).nth(1);
    let short = arguments.iter().any(|argument| argument == "--short");
    let folder = after("--out").map_or("out/figures".into(), PathBuf::from);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let wanted = |name: &str| after("--only").is_none_or(|only| only == name);
    let chosen: Vec<_> = FIGURES.iter().filter(|(name, _)| wanted(name)).collect();
    if chosen.is_empty() {
        bail!("no figure {:?}; there are {:?}", after("--only"), FIGURES.map(|(name, _)| name));
    }
    chosen.into_iter().try_for_each(|(name, measure)| write(&folder, &format!("qualman-{name}"), &measure(short)?))
}

fn write(folder: &Path, name: &str, panels: &[Panel]) -> Result<()> {
    for (end, text) in [("svg", plot::svg(panels)), ("csv", plot::csv(panels))] {
        let path = folder.join(format!("{name}.{end}"));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    print!("{}", plot::csv(panels));
    Ok(())
}
