//! `qfabric net`: schedules packets with deadlines on network interfaces.

mod attach;
mod link;
mod profile;
mod show;
mod stream;

#[cfg(feature = "metp")]
pub(crate) use profile::file as delay_profile;

use clap::Subcommand;
use qfabric_types::api::net::LinkInfo;

use crate::exit::Outcome;

/// Manages packet scheduling by deadline: interfaces, links that are open to all users, and streams.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Attach(attach::Args),
    Detach(attach::DetachArgs),
    Link(link::Args),
    Stream(Box<stream::Args>),
    Show(show::Args),
    Profile(profile::Args),
    Answer(profile::AnswerArgs),
}

/// Describes an open link: its rates, its maxima and the rate of each user.
pub(crate) fn link_text(interface: &str, link: &LinkInfo) -> String {
    link::text(interface, link)
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Attach(args) => attach::run(args),
        Command::Detach(args) => attach::detach(args),
        Command::Link(args) => link::run(args),
        Command::Stream(args) => stream::run(*args),
        Command::Show(args) => show::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Answer(args) => profile::answer(args),
    }
}
