//! The one definition of the command line: parser, help, man pages and completions come from here.

use clap::{Parser, Subcommand};

use crate::exit::Outcome;
use crate::{
    channel, completions, daemon, demo, doctor, ecode, group, guard, limits, monitor, net, policy, probe, restore, run,
    services, sim, status, top,
};

/// What every page of help ends with.
const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 a fault; 2 bad command line or input; 3 refused, nothing changed; 4 no daemon or no
mechanism; 126/127 the program cannot be executed/found. `run` and `probe` end with the program's own exit
code, or 128+n when signal n ended it.

Example: qfabric run --fps 25 -- mpv film.mkv";

/// Applications keep their deadlines on a loaded machine, with the least CPU that holds them.
#[derive(Parser, Debug)]
#[command(name = "qfabric", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // one value per process
pub enum Command {
    Run(run::Args),
    Probe(probe::Args),
    Doctor(doctor::Args),
    Status(status::Args),
    Top(top::Args),
    Limits(limits::Args),
    Daemon(daemon::Args),
    Restore(restore::Args),
    Sim(sim::Args),
    Demo(demo::Args),
    Services(services::Args),
    Ecode(ecode::Args),
    Guard(guard::Args),
    Net(net::Args),
    Channel(channel::Args),
    Monitor(monitor::Args),
    Group(group::Args),
    Policy(policy::Args),
    Generate(completions::Args),
}

impl Command {
    /// Carries the command out.
    pub fn run(self) -> Outcome {
        match self {
            Command::Run(args) => run::run(args),
            Command::Probe(args) => probe::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Status(args) => status::run(args),
            Command::Top(args) => top::run(args),
            Command::Limits(args) => limits::run(args),
            Command::Daemon(args) => daemon::run(args),
            Command::Restore(args) => restore::run(args),
            Command::Sim(args) => sim::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Services(args) => services::run(args),
            Command::Ecode(args) => ecode::run(args),
            Command::Guard(args) => guard::run(args),
            Command::Net(args) => net::run(args),
            Command::Channel(args) => channel::run(args),
            Command::Monitor(args) => monitor::run(args),
            Command::Group(args) => group::run(args),
            Command::Policy(args) => policy::run(args),
            Command::Generate(args) => completions::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example_of_itself() {
        fn check(command: &clap::Command, path: &str) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(command.has_subcommands() || help.contains(path), "{path} has no example");
            for sub in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
                check(sub, &format!("{path} {}", sub.get_name()));
            }
        }
        check(&Cli::command(), "qfabric");
    }

    #[test]
    fn every_option_is_explained() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {} has no help", command.get_name(), arg.get_id());
            }
            command.get_subcommands().filter(|c| !c.is_hide_set()).for_each(check);
        }
        check(&Cli::command());
    }
}
