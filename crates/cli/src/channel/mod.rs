//! `qfabric channel`: channels between hosts.

mod authority;
mod bench;
mod events;
mod filter;
mod list;
mod ping;
mod publish;
mod reload;
mod subscribe;
mod together;
mod watch;

use clap::Subcommand;
use qfabric_client::channel::{ChannelId, Channels};

use crate::connect::{self, Daemon};
use crate::exit::{Failure, Outcome};

/// Manages channels between hosts: events, filters, certificates.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
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
    Filter(filter::Args),
    Bench(bench::Args),
    Ping(ping::Args),
    Reload(reload::Args),
    InitCa(authority::InitArgs),
    Issue(authority::IssueArgs),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ls(args) => list::ls(args),
        Command::Show(args) => list::show(args),
        Command::Watch(args) => watch::run(args),
        Command::Pub(args) => publish::run(args),
        Command::Sub(args) => subscribe::run(args),
        Command::Filter(args) => filter::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Ping(args) => ping::run(args),
        Command::Reload(args) => reload::run(args),
        Command::InitCa(args) => authority::init(args),
        Command::Issue(args) => authority::issue(args),
    }
}

fn connected(daemon: &Daemon) -> Result<Channels, Failure> {
    Channels::connect(&daemon.client()?).map_err(connect::failure)
}

/// Parses `NAME` or `quality:NAME`.
fn channel(text: &str) -> Result<ChannelId, String> {
    text.parse().map_err(|error| format!("{error}"))
}
