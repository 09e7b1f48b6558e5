//! `qfabric net`: packets with deadlines on an interface.

mod attach;
mod rate;
mod show;
mod stream;

use std::path::PathBuf;

use clap::Subcommand;
use qfabric_client::Client;

use crate::connect;
use crate::exit::{Failure, Outcome};

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

/// Where the daemon is.
#[derive(clap::Args, Debug)]
struct Daemon {
    /// The daemon's socket [default: searched for]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Daemon {
    /// What is attached lives as long as the daemon: one inside this process would end with it.
    fn client(&self) -> Result<Client, Failure> {
        connect::daemon(self.socket.as_deref())
    }
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
