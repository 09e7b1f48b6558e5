//! `qfabric channel filter`: lists, installs, changes and removes the filters of a channel.

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

/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// Lists, installs, changes and removes the filters of a channel while events flow.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
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

/// Lists the filters of a channel on this host, with their counts.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel filter ls video")]
struct LsArgs {
    /// Channel: NAME, or quality:NAME for a hidden Q-channel
    #[arg(value_name = "CHANNEL", value_parser = channel)]
    channel: ChannelId,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Installs or replaces a filter.
///
/// The filter stays until Ctrl-C. A filter with the same name is replaced between two events. Parameters with the same
/// names keep their values. With --stay the command ends at once, and the filter stays until it is removed or the
/// daemon of this host ends. Ends with 3 if the text does not compile or a host refuses the filter.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel filter install video small small.ec --param most=1400
          qfabric channel filter install video small small.ec --on all --sink wall/3
          sudo qfabric channel filter install video small - --stay < small.ec")]
struct InstallArgs {
    #[command(flatten)]
    place: Place,
    /// File with E-code; - is the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Apply the filter only to this sink: NUMBER on this host, or HOST/NUMBER [default: all sinks]
    #[arg(long)]
    sink: Option<String>,
    /// Apply the filter only to events of this type; may be repeated [default: all types]
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Initial value of a parameter, a whole number of 64 bits, which the filter reads with get_attribute(NAME); may be
    /// repeated
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = attribute)]
    parameters: Vec<(String, i64)>,
    /// Leave the filter installed and end at once; needs root
    #[arg(long)]
    stay: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Changes parameters of a filter; they apply from the next event.
///
/// Ends with 3 if the filter or a parameter does not exist.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel filter set video small most=700")]
struct SetArgs {
    #[command(flatten)]
    place: Place,
    /// New values of parameters, such as most=700
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = attribute)]
    parameters: Vec<(String, i64)>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Removes a filter.
///
/// Ends with 3 if the filter does not exist.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel filter rm video small")]
struct RmArgs {
    #[command(flatten)]
    place: Place,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(clap::Args, Debug)]
struct Place {
    /// Channel: NAME, or quality:NAME for a hidden Q-channel
    #[arg(value_name = "CHANNEL", value_parser = channel)]
    channel: ChannelId,
    /// Name of the filter
    #[arg(value_name = "FILTER")]
    name: Name,
    /// out: filter events where they are submitted; in: where they arrive
    #[arg(long, default_value = "out", value_name = "in|out", value_parser = direction)]
    direction: Direction,
    /// Hosts of the filter: here, all (that have the channel open), group:NAME, or names separated by commas
    #[arg(long, default_value = "here", value_name = "WHERE", value_parser = hosts)]
    on: FilterScope,
}

pub(super) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ls(args) => ls(&args),
        Command::Install(args) => install(args),
        Command::Set(args) => set(&args),
        Command::Rm(args) => {
            let Place { channel, name, direction, on } = &args.place;
            let removed = args.daemon.client()?.remove_filter(channel, *direction, name, on.clone());
            report(&removed.map_err(connect::failure)?, "removed", args.json)
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
        return "the channel has no filters on this host; install one with qfabric channel filter install\n".to_owned();
    }
    let mut table = output::new_table(["filter", "direction", "installed by", "calls", "blocked", "faults", "state"]);
    for filter in filters {
        table.add_row([
            filter.name.to_string(),
            filter.direction.name().to_owned(),
            filter.author.as_ref().map_or("this host".to_owned(), ToString::to_string),
            filter.calls.to_string(),
            filter.blocked.to_string(),
            filter.faults.to_string(),
            state(filter),
        ]);
    }
    format!("{table}\n")
}

/// Whether the filter is called; how many events it dropped while it was suspended; who changes it by the kernel path.
pub(super) fn state(filter: &FilterInfo) -> String {
    let skipped = filter.skipped;
    let mut state = match (filter.suspended, skipped) {
        (true, _) => format!("suspended: too many instructions per second, {skipped} events dropped"),
        (false, 0) => "active".to_owned(),
        (false, _) => format!("active; {skipped} events dropped while it was suspended"),
    };
    for (parameter, host) in &filter.followed {
        state += &format!("; the kernel of {host} changes {parameter}");
    }
    state
}

fn install(args: InstallArgs) -> Outcome {
    let InstallArgs { place: Place { channel, name, direction, on }, file, sink, types, parameters, .. } = args;
    let (code, parameters) = (Source::read(&file)?.text, parameters.into_iter().collect());
    if args.stay {
        let request = FilterRequest { lease: None, code, sink, types, parameters, to: on };
        let installed = args.daemon.client()?.install_filter(&channel, direction, &name, &request);
        return report(&installed.map_err(connect::failure)?, "installed", args.json);
    }
    let (channels, stop) = (connected(&args.daemon)?, interrupted()?);
    let opened = channels.open(&channel.to_string()).map_err(connect::failure)?;
    let filter = Filter { code, sink, types, parameters, to: on };
    let installed = opened.install(direction, name.as_str(), &filter).map_err(connect::failure)?;
    let done = report(&installed, "installed, until Ctrl-C", args.json)?;
    while done.0 == 0 && !stop.load(Ordering::Relaxed) {
        // Fails if the daemon has ended.
        channels.next_notice().map_err(connect::failure)?;
        std::thread::sleep(SIGNAL_CHECK);
    }
    Ok(done)
}

fn set(args: &SetArgs) -> Outcome {
    let Place { channel, name, direction, on } = &args.place;
    let request = ParameterRequest { parameters: args.parameters.iter().cloned().collect(), to: on.clone() };
    let changed = args.daemon.client()?.set_filter_parameters(channel, *direction, name, &request);
    report(&changed.map_err(connect::failure)?, "changed", args.json)
}

/// Prints the answer of each host. A refusal is a failure.
fn report(installed: &Installed, done: &str, json: bool) -> Outcome {
    if json {
        output::print_json(installed)?;
    } else {
        let line = |HostAnswer { host, refused, kernel_path }: &HostAnswer| match (refused, kernel_path) {
            (Some(why), _) => format!("{host}: {why}\n"),
            (None, true) => format!("{host}: sent to its kernel\n"),
            (None, false) => format!("{host}: {done}\n"),
        };
        output::print(&installed.hosts.iter().map(line).collect::<String>())?;
    }
    let refused: Vec<_> = installed.hosts.iter().filter(|answer| answer.refused.is_some()).collect();
    match (json, refused.first()) {
        (_, None) => Ok(Done(0)),
        (true, Some(_)) => Ok(Done(3)),
        (false, Some(first)) => Err(Failure::refused(format!(
            "{} of {} hosts refused; the first was {}",
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

/// Parses `here`, `all`, `group:NAME`, or the names of hosts separated by commas.
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
    fn the_scope_is_this_host_all_hosts_a_group_or_named_hosts() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert_eq!(hosts("here"), Ok(FilterScope::Here));
        assert_eq!(hosts("group:wall"), Ok(FilterScope::Group(name("wall"))));
        assert_eq!(hosts("left,right"), Ok(FilterScope::Hosts(vec![name("left"), name("right")])));
        assert!(hosts("left,").is_err() && direction("both").is_err());
    }

    #[test]
    fn a_refusal_has_the_same_exit_code_in_json_as_in_text() {
        let refused = Some("no room".to_owned());
        let answer = HostAnswer { host: "wall".parse().unwrap(), refused, kernel_path: false };
        let installed = Installed { hosts: vec![answer] };
        assert_eq!(report(&installed, "installed", true), Ok(Done(3)));
        let refusal = report(&installed, "installed", false).unwrap_err();
        assert_eq!(refusal, Failure::refused("1 of 1 hosts refused; the first was wall"));
        assert_eq!(report(&Installed::default(), "installed", true), Ok(Done(0)));
    }

    #[test]
    fn a_suspended_filter_is_shown_with_the_events_that_it_dropped() {
        let filter = serde_json::json!({ "name": "f", "direction": "out", "calls": 9, "blocked": 0, "faults": 0,
                                         "beyond": 0, "skipped": 5, "suspended": true });
        let mut filter: FilterInfo = serde_json::from_value(filter).unwrap();
        let table = table(std::slice::from_ref(&filter));
        assert!(table.contains("suspended: too many instructions per second, 5 events"), "{table}");
        filter.suspended = false;
        assert!(state(&filter).starts_with("active; 5 events"), "{}", state(&filter));
        filter.followed.insert("most".to_owned(), "cam-1".parse().unwrap());
        assert!(state(&filter).ends_with("; the kernel of cam-1 changes most"), "{}", state(&filter));
    }
}
