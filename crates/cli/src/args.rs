//! Defines the command line. The parser, the help, the man pages and the shell completions all come from here.

use clap::{Parser, Subcommand};

use crate::exit::Outcome;
#[cfg(feature = "metp")]
use crate::metp;
use crate::{
    attach, channel, completions, conference, contracts, daemon, demo, doctor, ecode, energy, group, guard, lab,
    limits, monitor, net, policy, probe, restore, run, services, sim, status, top, trace, web,
};

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 fault: something that should have worked did not; 2 invalid command line or input file; \
3 refused by admission, a limit or access rights, nothing was changed; 4 no daemon answers, or this host lacks what \
the command needs; 126 the program cannot be executed; 127 the program cannot be found; 130 Ctrl-C ended `demo` or \
`metp bench`. `run`, `probe` and `lab` end with the exit code of their program, or with 128+n if signal n ended the \
program.

Example: qfabric run --fps 25 -- mpv film.mkv";

/// Applications keep their deadlines on a loaded machine, with the least CPU that holds them.
#[derive(Parser, Debug)]
#[command(name = "qfabric", version, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
#[allow(clippy::large_enum_variant)] // one value per process
pub(crate) enum Command {
    Run(run::Args),
    Attach(attach::Args),
    Probe(probe::Args),
    Doctor(doctor::Args),
    Status(status::Args),
    Top(top::Args),
    Trace(trace::Args),
    Web(web::Args),
    Limits(limits::Args),
    Daemon(daemon::Args),
    Restore(restore::Args),
    Sim(sim::Args),
    Demo(demo::Args),
    Services(services::Args),
    Ecode(ecode::Args),
    Energy(energy::Args),
    Guard(guard::Args),
    Net(net::Args),
    Lab(lab::Args),
    Contract(contracts::Args),
    Channel(channel::Args),
    Conference(conference::Args),
    #[cfg(feature = "metp")]
    Metp(metp::Args),
    Monitor(monitor::Args),
    Group(group::Args),
    Policy(policy::Args),
    Generate(completions::Args),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Command::Run(args) => run::run(args),
            Command::Attach(args) => attach::run(args),
            Command::Probe(args) => probe::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Status(args) => status::run(args),
            Command::Top(args) => top::run(args),
            Command::Trace(args) => trace::run(args),
            Command::Web(args) => web::run(args),
            Command::Limits(args) => limits::run(args),
            Command::Daemon(args) => daemon::run(args),
            Command::Restore(args) => restore::run(args),
            Command::Sim(args) => sim::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Services(args) => services::run(args),
            Command::Ecode(args) => ecode::run(args),
            Command::Energy(args) => energy::run(args),
            Command::Guard(args) => guard::run(args),
            Command::Net(args) => net::run(args),
            Command::Lab(args) => lab::run(args),
            Command::Contract(args) => contracts::run(args),
            Command::Channel(args) => channel::run(args),
            Command::Conference(args) => conference::run(args),
            #[cfg(feature = "metp")]
            Command::Metp(args) => metp::run(args),
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
    fn the_definition_of_the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
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
    fn every_option_has_a_help_text() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {} has no help", command.get_name(), arg.get_id());
            }
            command.get_subcommands().filter(|c| !c.is_hide_set()).for_each(check);
        }
        check(&Cli::command());
    }
}
