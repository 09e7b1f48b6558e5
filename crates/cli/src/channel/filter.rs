//! `qfabric channel filter`: filters of a channel, installed, replaced and steered while events flow.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Subcommand;
use qfabric_client::channel::{
    ChannelId, Direction, Filter, FilterInfo, FilterRequest, FilterScope, HostAnswer, Installed, Name, ParameterRequest,
};

use super::{channel, connected};
use crate::connect::{self, Daemon};
use crate::ecode::source::{Source, attribute};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// How long a Ctrl-C may take.
const LOOK: Duration = Duration::from_millis(100);

/// Filters of a channel: what there is, and E-code installed, replaced and steered while events flow.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Ls(LsArgs),
    Install(InstallArgs),
    Set(SetArgs),
    Rm(RmArgs),
}

/// Lists the filters of a channel on this host, and what they did.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel filter ls video")]
struct LsArgs {
    /// The channel, or quality:NAME
    #[arg(value_name = "CHANNEL", value_parser = channel)]
    channel: ChannelId,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Installs a filter, or replaces the one of that name between two events; parameters of the same name keep their values.
///
/// It is there until Ctrl-C; with --stay until it is removed, or the service of this host ends.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel filter install video small small.ec --param most=1400
          qfabric channel filter install video small small.ec --on all --sink wall/3
          sudo qfabric channel filter install video small - --stay < small.ec")]
struct InstallArgs {
    #[command(flatten)]
    place: Place,
    /// E-code; - is the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The only sink that it decides on: NUMBER of this host, or HOST/NUMBER [default: all]
    #[arg(long)]
    sink: Option<String>,
    /// Only for events of this type; may be said more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// First value of what it gets by get_attribute(NAME); may be said more than once
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = attribute)]
    parameters: Vec<(String, i64)>,
    /// Leave it there, and end at once; for root
    #[arg(long)]
    stay: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Changes parameters of a filter: the next event sees them.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel filter set video small most=700")]
struct SetArgs {
    #[command(flatten)]
    place: Place,
    /// Parameters, such as most=700
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = attribute)]
    parameters: Vec<(String, i64)>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Removes a filter.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel filter rm video small")]
struct RmArgs {
    #[command(flatten)]
    place: Place,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Which filter.
#[derive(clap::Args, Debug)]
struct Place {
    /// The channel, or quality:NAME
    #[arg(value_name = "CHANNEL", value_parser = channel)]
    channel: ChannelId,
    /// The filter's name
    #[arg(value_name = "FILTER")]
    name: Name,
    /// Where in an event's way: out, where it is submitted; in, where it arrives
    #[arg(long, default_value = "out", value_name = "in|out", value_parser = direction)]
    direction: Direction,
    /// On which hosts: here, all that hold the channel, group:NAME, or their names by commas
    #[arg(long, default_value = "here", value_name = "WHERE", value_parser = hosts)]
    on: FilterScope,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ls(args) => ls(&args),
        Command::Install(args) => install(args),
        Command::Set(args) => set(&args),
        Command::Rm(args) => {
            let Place { channel, name, direction, on } = &args.place;
            let removed = args.daemon.client()?.remove_filter(channel, *direction, name, on.clone());
            said(&removed.map_err(connect::failure)?, "removed", args.json)
        }
    }
}

fn ls(args: &LsArgs) -> Outcome {
    let filters = args.daemon.client()?.channel(&args.channel).map_err(connect::failure)?.filters;
    match args.json {
        true => output::print_json(&filters)?,
        false => output::print(&table(&filters))?,
    }
    Ok(Done(0))
}

fn table(filters: &[FilterInfo]) -> String {
    if filters.is_empty() {
        return "this host has no filters of the channel; install one with qfabric channel filter install\n".to_owned();
    }
    let mut table = output::new_table(["filter", "direction", "of", "calls", "blocked", "faults"]);
    for filter in filters {
        table.add_row([
            filter.name.to_string(),
            filter.direction.name().to_owned(),
            filter.author.as_ref().map_or("this host".to_owned(), ToString::to_string),
            filter.calls.to_string(),
            filter.blocked.to_string(),
            filter.faults.to_string(),
        ]);
    }
    format!("{table}\n")
}

fn install(args: InstallArgs) -> Outcome {
    let InstallArgs { place: Place { channel, name, direction, on }, file, sink, types, parameters, .. } = args;
    let (code, parameters) = (Source::read(&file)?.text, parameters.into_iter().collect());
    if args.stay {
        let request = FilterRequest { lease: None, code, sink, types, parameters, to: on };
        let installed = args.daemon.client()?.install_filter(&channel, direction, &name, &request);
        return said(&installed.map_err(connect::failure)?, "installed", args.json);
    }
    let (channels, stop) = (connected(&args.daemon)?, interrupted()?);
    let opened = channels.open(&channel.to_string()).map_err(connect::failure)?;
    let filter = Filter { code, sink, types, parameters, to: on };
    let installed = opened.install(direction, name.as_str(), &filter).map_err(connect::failure)?;
    let done = said(&installed, "installed, until Ctrl-C", args.json)?;
    while done.0 == 0 && !stop.load(Ordering::Relaxed) {
        // That the service has ended is an error here.
        channels.next_notice().map_err(connect::failure)?;
        std::thread::sleep(LOOK);
    }
    Ok(done)
}

fn set(args: &SetArgs) -> Outcome {
    let Place { channel, name, direction, on } = &args.place;
    let request = ParameterRequest { parameters: args.parameters.iter().cloned().collect(), to: on.clone() };
    let changed = args.daemon.client()?.set_filter_parameters(channel, *direction, name, &request);
    said(&changed.map_err(connect::failure)?, "changed", args.json)
}

/// What each host says. Where one refuses, that is a failure.
fn said(installed: &Installed, done: &str, json: bool) -> Outcome {
    if json {
        output::print_json(installed)?;
    } else {
        let line = |HostAnswer { host, refused }: &HostAnswer| match refused {
            Some(why) => format!("{host}: {why}\n"),
            None => format!("{host}: {done}\n"),
        };
        output::print(&installed.hosts.iter().map(line).collect::<String>())?;
    }
    let refused: Vec<_> = installed.hosts.iter().filter(|answer| answer.refused.is_some()).collect();
    match (json, refused.first()) {
        (_, None) => Ok(Done(0)),
        (true, Some(_)) => Ok(Done(1)),
        (false, Some(first)) => Err(Failure::refused(format!(
            "{} of {} hosts refused, {} first",
            refused.len(),
            installed.hosts.len(),
            first.host
        ))),
    }
}

fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "in" => Ok(Direction::In),
        "out" => Ok(Direction::Out),
        _ => Err("a filter's direction is in or out".to_owned()),
    }
}

/// `here`, `all`, `group:NAME`, or hosts by commas.
fn hosts(text: &str) -> Result<FilterScope, String> {
    let name = |text: &str| text.parse::<Name>().map_err(|error| format!("{text:?}: {error}"));
    match text {
        "here" => Ok(FilterScope::Here),
        "all" => Ok(FilterScope::All),
        _ => match text.strip_prefix("group:") {
            Some(group) => name(group).map(FilterScope::Group),
            None => text.split(',').map(name).collect::<Result<_, _>>().map(FilterScope::Hosts),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_this_host_all_a_group_or_hosts() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert_eq!(hosts("here"), Ok(FilterScope::Here));
        assert_eq!(hosts("group:wall"), Ok(FilterScope::Group(name("wall"))));
        assert_eq!(hosts("left,right"), Ok(FilterScope::Hosts(vec![name("left"), name("right")])));
        assert!(hosts("left,").is_err() && direction("both").is_err());
    }
}
