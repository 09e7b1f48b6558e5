//! `qfabric ecode fmt`: formats E-code.

use std::path::PathBuf;

use super::source::Source;
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Formats E-code and prints it; comments stay.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric ecode fmt f.ec --write")]
pub(super) struct Args {
    /// Files with E-code; - is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Change nothing; end with 1 if a file is not formatted
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Rewrite the files instead of printing them
    #[arg(long)]
    write: bool,
}

pub(super) fn run(args: Args) -> Outcome {
    if args.write && args.files.iter().any(|path| path.as_os_str() == "-") {
        return Err(Failure::usage("--write rewrites files, and - is the standard input; leave --write out"));
    }
    let mut differ = Vec::new();
    for path in &args.files {
        let source = Source::read(path)?;
        let formatted = qfabric_ecode::pretty(&source.text).map_err(|wrong| source.failure(&wrong))?;
        let same = formatted == source.text;
        match (args.check, args.write) {
            (true, _) if !same => differ.push(source.name),
            (false, true) if !same => std::fs::write(path, formatted)
                .map_err(|error| Failure::fault(format!("cannot write {}: {error}", path.display())))?,
            (false, false) => output::print(&formatted)?,
            _ => {}
        }
    }
    match differ.is_empty() {
        true => Ok(Done(0)),
        false => Err(Failure::fault(format!("not formatted: {}; run qfabric ecode fmt --write", differ.join(", ")))),
    }
}
