//! `qfabric contract`: contracts in the application's language.

mod explain;

use clap::Subcommand;

use crate::exit::Outcome;

/// Translates streams in the application's language into contracts.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Explain(explain::Args),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Explain(args) => explain::run(args),
    }
}
