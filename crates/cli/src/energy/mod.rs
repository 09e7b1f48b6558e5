//! `qfabric energy`: the account of joules of devices and applications, and its power model.

mod calibrate;
mod status;

use clap::Subcommand;

use crate::exit::Outcome;

/// Shows the joules of applications and devices, each with its source, and fits a power model to a meter.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Status(status::Args),
    Calibrate(calibrate::Args),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Status(args) => status::run(args),
        Command::Calibrate(args) => calibrate::run(&args),
    }
}
