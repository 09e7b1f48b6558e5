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

use std::time::{Duration, Instant};

use clap::Subcommand;
use qfabric_client::ClientError;
use qfabric_client::channel::{Channel, ChannelId, Channels, Spec};

use crate::connect::{self, Daemon};
use crate::exit::{Failure, Outcome};

/// How long a channel that others open, create and close at the same time is tried, and how long a ping waits until the
/// other host opens it.
const OPENS: Duration = Duration::from_secs(5);

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

/// Opens the channel, or creates it if it does not exist. Others may do the same at the same time: one of them creates
/// the channel, and the last member may close it between the two calls, so both are repeated.
fn open_or_create(channels: &Channels, channel: &ChannelId, spec: &Spec) -> Result<Channel, ClientError> {
    let is = |error: &ClientError, code: &str| matches!(error, ClientError::Refused(problem) if problem.code == code);
    let until = Instant::now() + OPENS;
    loop {
        match channels.open(&channel.to_string()) {
            Err(error) if is(&error, "no_such_channel") => {}
            opened => return opened,
        }
        match channels.create(channel.name.as_str(), spec) {
            Err(error) if is(&error, "channel_exists") && Instant::now() < until => {}
            created => return created,
        }
    }
}
