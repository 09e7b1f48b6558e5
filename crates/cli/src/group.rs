//! `qfabric group`: lists the groups of applications and the hosts of the realm.

use clap::Subcommand;
use qfabric_client::channel::{GroupInfo, GroupMember, HostInfo};

use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;

/// Lists groups of applications, and the hosts of the realm.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(LsArgs),
    Hosts(HostsArgs),
}

/// Lists the applications in groups, with their hosts and their levels in the QoS tree.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric group ls")]
struct LsArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Lists the hosts that take part, with the difference of their clocks to the clock of this host.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric group hosts")]
struct HostsArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ls(args) => {
            let list = args.daemon.client()?.groups().map_err(connect::failure)?;
            if args.json { output::print_json(&list)? } else { output::print(&groups(&list))? }
        }
        Command::Hosts(args) => {
            let list = args.daemon.client()?.hosts().map_err(connect::failure)?;
            if args.json { output::print_json(&list)? } else { output::print(&hosts(&list))? }
        }
    }
    Ok(Done(0))
}

fn groups(list: &[GroupInfo]) -> String {
    if list.is_empty() {
        return "no application is in a group; an application joins one with register() of the client library\n"
            .to_owned();
    }
    let mut table = output::new_table(["group", "level", "part of", "application", "host", "wants"]);
    for group in list {
        for member in &group.members {
            table.add_row([
                group.name.to_string(),
                level(member),
                member.parent.as_ref().map_or("–".to_owned(), ToString::to_string),
                member.application.to_string(),
                member.host.to_string(),
                wants(member),
            ]);
        }
    }
    format!("{table}\n")
}

/// The levels of the QoS tree (001 §3.3).
fn level(member: &GroupMember) -> String {
    let name = match member.level {
        1 => "connection",
        2 => "role",
        3 => "stream",
        4 => "system",
        _ => "?",
    };
    format!("{} ({name})", member.level)
}

fn wants(member: &GroupMember) -> String {
    let range = |range: &qfabric_client::channel::QosRange| format!("{} {} to {}", range.metric, range.min, range.max);
    member.qos.iter().map(range).collect::<Vec<_>>().join(", ")
}

fn hosts(list: &[HostInfo]) -> String {
    let mut table = output::new_table(["host", "start", "channels", "applications", "clock ahead"]);
    for host in list {
        let clock = host.clock_offset_ns.zip(host.clock_error_ns);
        table.add_row([
            format!("{}{}", host.host, if host.here { " (here)" } else { "" }),
            host.incarnation.clone(),
            host.channels.to_string(),
            host.registrations.to_string(),
            clock.map_or("–".to_owned(), |(offset, error)| format!("{:.3} ms ± {error}", offset as f64 / 1e6)),
        ]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_shown_with_the_name_of_its_level_and_its_wanted_range() {
        let qos = vec![qfabric_client::channel::QosRange { metric: "frame_rate".into(), min: 10, max: 25 }];
        let [host, application] = ["alpha", "player"].map(|name| name.parse().unwrap());
        let member = GroupMember { host, application, parent: None, level: 2, qos };
        let text = groups(&[GroupInfo { name: "high".parse().unwrap(), members: vec![member] }]);
        for part in ["high", "2 (role)", "player", "alpha", "frame_rate 10 to 25"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert!(groups(&[]).contains("register()"));
    }
}
