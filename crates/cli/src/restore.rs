//! `qfabric restore`: puts back what a killed daemon left.

use std::path::PathBuf;

use qfabric_daemon::Config;
use qfabric_linux::journal::{self, Restored};

use crate::exit::{Done, Failure, Outcome};
use crate::{doctor, output};

/// Puts threads and host settings back that a killed daemon left changed; safe to repeat.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric restore")]
pub struct Args {
    /// The daemon's folder, with its journal [default: that of the daemon's configuration, and
    /// that of doctor --fix]
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let directories = match args.directory {
        Some(directory) => vec![directory],
        None => {
            let daemon = Config::load(None).and_then(|config| config.directory()).map_err(Failure::usage)?;
            vec![daemon, doctor::directory()?]
        }
    };
    let mut restored = Restored::default();
    for directory in directories {
        add(&mut restored, journal::restore(&directory).map_err(Failure::fault)?);
        let networks = qfabric_linux::net::restore(&directory).map_err(Failure::fault)?;
        restored.settings += networks.interfaces;
        restored.failed.extend(networks.failed);
    }
    if args.json {
        output::print_json(&restored)?;
    } else {
        output::print(&text(&restored))?;
    }
    Ok(Done(if restored.failed.is_empty() { 0 } else { 1 }))
}

fn add(sum: &mut Restored, more: Restored) {
    sum.threads += more.threads;
    sum.skipped += more.skipped;
    sum.settings += more.settings;
    sum.failed.extend(more.failed);
}

fn text(restored: &Restored) -> String {
    let Restored { threads, skipped, settings, failed } = restored;
    let mut text = format!("{threads} threads and {settings} host settings put back, {skipped} threads were over\n");
    for failure in failed {
        text += &format!("not put back: {failure}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_put_back_is_named() {
        let restored = Restored { threads: 2, failed: vec!["thread 7: EPERM".into()], ..Restored::default() };
        let text = text(&restored);
        assert!(text.contains("2 threads") && text.contains("not put back: thread 7: EPERM"));
    }
}
