//! `qfabric ecode`: checks, runs, installs and traces E-code.

mod check;
mod fmt;
mod histogram;
mod install;
mod ls;
mod run;
pub(crate) mod source;
mod trace;

use clap::Subcommand;

use crate::exit::Outcome;

/// Checks, runs and installs E-code: handlers for events.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // one value per process
enum Command {
    Check(check::Args),
    Fmt(fmt::Args),
    Run(run::Args),
    Install(install::Args),
    Ls(ls::Args),
    Rm(ls::RmArgs),
    Trace(trace::Args),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Check(args) => check::run(args),
        Command::Fmt(args) => fmt::run(args),
        Command::Run(args) => run::run(args),
        Command::Install(args) => install::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Rm(args) => ls::remove(args),
        Command::Trace(args) => trace::run(args),
    }
}
