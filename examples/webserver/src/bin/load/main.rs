//! The overload experiments of the ECalls article (§5.3, Figures 6 and 8), and the same experiments with nginx.
#![forbid(unsafe_code)]

mod child;
mod generators;
mod nginx;
mod options;
mod plot;
mod run;
mod servers;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use clap::Parser;

use crate::options::Options;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("qfabric-webload: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    options.check()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    if let Some(connections) = options.busy {
        let rows = run::busy(options, connections, &|| stop.load(Ordering::Relaxed))?;
        print!("{}", if options.json { serde_json::to_string_pretty(&rows)? + "\n" } else { table::busy(&rows) });
        return Ok(());
    }
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let report = run::run(options, &|| stop.load(Ordering::Relaxed))?;
    let json = serde_json::to_string_pretty(&report)? + "\n";
    if let Some(folder) = &options.out {
        std::fs::write(folder.join("report.json"), &json)?;
        plot::write(folder, &report)?;
    }
    print!("{}", if options.json { json } else { table::table(&report) });
    Ok(())
}
