//! `qfabric metp`: media between hosts over METP.

mod bench;
mod frames;
mod identity;
mod joint;
mod pace;
mod rate;
mod recv;
mod report;
mod send;

use clap::Subcommand;
use qfabric_carrier::Error;

use crate::exit::{Advice, Failure, Outcome};

/// Sends and receives media with deadlines over METP.
///
/// METP is the transport of Q-Fabric for frames of media: it knows the deadline and the kind of each frame, and drops
/// whole frames that would arrive late. Both hosts need certificates of one realm: see qfabric channel init-ca, and
/// qfabric channel issue.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // one value per process
enum Command {
    Send(send::Args),
    Recv(recv::Args),
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
        Command::Send(args) => send::run(&args),
        Command::Recv(args) => recv::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::BenchPlayer { words } => bench::play(&words),
    }
}

/// Exit code and next step of an error of a connection.
fn failure(error: &Error) -> Failure {
    let problem = error.problem();
    match error {
        Error::Refused(_) | Error::Stranger { .. } => Failure::problem(&problem),
        Error::Option { .. } | Error::Message(_) | Error::Address { .. } => Failure::usage(Advice(&problem)),
        _ => Failure::fault(Advice(&problem)),
    }
}
