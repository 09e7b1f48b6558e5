//! `qfabric energy`: the account of joules of devices and applications.

mod status;

use clap::Subcommand;

use crate::exit::Outcome;

/// Shows the joules of applications and devices, each with its source.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Status(status::Args),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Status(args) => status::run(args),
    }
}
