//! `qfabric net`: packets with deadlines on an interface.

mod attach;
mod rate;
mod show;
mod stream;

use clap::Subcommand;

use crate::exit::Outcome;

/// Packets sent by deadline: interfaces under packet scheduling, and streams on them.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Attach(attach::Args),
    Detach(attach::DetachArgs),
    Stream(stream::Args),
    Show(show::Args),
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Attach(args) => attach::run(args),
        Command::Detach(args) => attach::detach(args),
        Command::Stream(args) => stream::run(args),
        Command::Show(args) => show::run(args),
    }
}
