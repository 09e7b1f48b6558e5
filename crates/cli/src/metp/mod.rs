//! `qfabric metp`: video frames with deadlines from host to host.

mod bench;

use clap::Subcommand;

use crate::exit::Outcome;

/// Sends frames with deadlines to another host, and compares transports.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Bench(bench::Args),
    /// A process of the bench (started by it)
    #[command(hide = true)]
    BenchPlayer {
        /// Part, engine, address and file of the plan
        words: Vec<String>,
    },
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Bench(args) => bench::run(args),
        Command::BenchPlayer { words } => bench::play(&words),
    }
}
