//! `qfabric channel`: events between hosts.

mod authority;
mod bench;
mod events;
mod list;
mod publish;
mod subscribe;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;
use qfabric_client::Client;
use qfabric_client::channel::{ChannelId, Channels};

use crate::connect;
use crate::exit::{Failure, Outcome};

pub use list::new_table;

/// Channels between hosts: what there is, events in and out, certificates.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // one value per process
enum Command {
    Ls(list::LsArgs),
    Show(list::ShowArgs),
    Watch(watch::Args),
    Pub(publish::Args),
    Sub(subscribe::Args),
    Bench(bench::Args),
    InitCa(authority::InitArgs),
    Issue(authority::IssueArgs),
}

/// Where the daemon is.
#[derive(clap::Args, Debug)]
pub struct Daemon {
    /// The daemon's socket [default: searched for]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Daemon {
    /// A running daemon: what is opened inside this process would end with it.
    pub fn client(&self) -> Result<Client, Failure> {
        connect::daemon(self.socket.as_deref())
    }

    /// A connection for events.
    fn channels(&self) -> Result<Channels, Failure> {
        Channels::connect(&self.client()?).map_err(connect::failure)
    }
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ls(args) => list::ls(args),
        Command::Show(args) => list::show(args),
        Command::Watch(args) => watch::run(args),
        Command::Pub(args) => publish::run(args),
        Command::Sub(args) => subscribe::run(args),
        Command::Bench(args) => bench::run(args),
        Command::InitCa(args) => authority::init(args),
        Command::Issue(args) => authority::issue(args),
    }
}

/// `NAME`, or `quality:NAME`.
fn channel(text: &str) -> Result<ChannelId, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// Set at Ctrl-C and SIGTERM.
pub fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}
