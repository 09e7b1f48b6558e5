//! `qfabric ecode fmt`: E-code, laid out.

use std::path::PathBuf;

use super::source::Source;
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Lays E-code out; comments stay.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric ecode fmt f.ec --write")]
pub struct Args {
    /// The files; - for the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Change nothing; end with 1 if a file is not laid out so
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the files, instead of printing them
    #[arg(long)]
    write: bool,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let mut differ = Vec::new();
    for path in &args.files {
        let source = Source::read(path)?;
        let laid_out = qfabric_ecode::pretty(&source.text).map_err(|wrong| source.failure(&wrong))?;
        let same = laid_out == source.text;
        match (args.check, args.write) {
            (true, _) if !same => differ.push(source.name),
            (false, true) if !same => std::fs::write(path, laid_out)
                .map_err(|error| Failure::fault(format!("cannot write {}: {error}", path.display())))?,
            (false, false) => output::print(&laid_out)?,
            _ => {}
        }
    }
    match differ.is_empty() {
        true => Ok(Done(0)),
        false => Err(Failure::fault(format!("not laid out: {}; run with --write", differ.join(", ")))),
    }
}
