//! `qfabric channel ls` and `show`: list all channels, and show one.

use comfy_table::Table;
use qfabric_client::channel::{ChannelId, ChannelInfo, Holding, Order, Plane, Pressure, SinkInfo, SourceInfo};

use super::channel;
use crate::connect::{self, Daemon};
use crate::exit::{Done, Outcome};
use crate::output;

/// Lists the channels of all hosts, with their types of events and numbers of members.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel ls")]
pub(super) struct LsArgs {
    /// Also list the hidden Q-channels of the resource managers
    #[arg(long)]
    all: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Shows one channel: its types of events, its members on all hosts, and its filters on this host.
///
/// The counts of a member are known only on its own host. Ends with 3 if the channel does not exist.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel show video\n          qfabric channel show quality:video --json")]
pub(super) struct ShowArgs {
    /// Channel: NAME, or quality:NAME for a hidden Q-channel
    #[arg(value_name = "NAME", value_parser = channel)]
    channel: ChannelId,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn ls(args: LsArgs) -> Outcome {
    let mut list = args.daemon.client()?.channels().map_err(connect::failure)?;
    list.retain(|info| args.all || info.plane == Plane::Data);
    if args.json {
        output::print_json(&list)?
    } else {
        output::print(&table(&list))?
    }
    Ok(Done(0))
}

pub(super) fn show(args: ShowArgs) -> Outcome {
    let info = args.daemon.client()?.channel(&args.channel).map_err(connect::failure)?;
    if args.json {
        output::print_json(&info)?
    } else {
        output::print(&one(&info))?
    }
    Ok(Done(0))
}

fn table(list: &[ChannelInfo]) -> String {
    if list.is_empty() {
        return "there are no channels; create one with qfabric channel pub NAME --format FILE\n".to_owned();
    }
    let mut table = output::new_table(["channel", "types", "hosts", "sources", "sinks", "here", "created by"]);
    for info in list {
        let count = |of: fn(&Holding) -> usize| info.hosts.iter().map(of).sum::<usize>().to_string();
        table.add_row([
            id(info).to_string(),
            info.types.iter().map(|known| known.format.name.as_str()).collect::<Vec<_>>().join(", "),
            info.hosts.len().to_string(),
            count(|host| host.sources.len()),
            count(|host| host.sinks.len()),
            if info.open_here { "open" } else { "–" }.to_owned(),
            info.creator.to_string(),
        ]);
    }
    format!("{table}\n\nDetails of one channel: qfabric channel show NAME\n")
}

fn id(info: &ChannelInfo) -> ChannelId {
    ChannelId { plane: info.plane, name: info.name.clone() }
}

fn one(info: &ChannelInfo) -> String {
    let order = match info.order {
        Order::Time => "events in the order of submission",
        Order::Deadline => "events with the earliest deadline first",
    };
    let pressure = match info.pressure {
        Pressure::DropOldest => "a full queue drops its oldest event".to_owned(),
        Pressure::DropNewest => "a full queue drops the new event".to_owned(),
        Pressure::Block => {
            format!("a full queue makes sources wait, for at most {}", info.patience_ns.unwrap_or_default())
        }
    };
    let mut text = format!("{}, created by {}; {order}; {pressure}\n", id(info), info.creator);
    info.types.iter().for_each(|known| text += &format!("\n{}\n", known.declaration.trim_end()));
    text += &format!("\n{}\n", members(info));
    for filter in &info.filters {
        let (calls, blocked, faults) = (filter.calls, filter.blocked, filter.faults);
        let direction = filter.direction.name();
        let by = filter.author.as_ref().map_or_else(String::new, |host| format!(" of {host}"));
        let name = &filter.name;
        let state = super::filter::state(filter);
        text += &format!("\n{direction}-filter {name}{by}: {calls} calls, {blocked} blocked, {faults} faults, {state}");
    }
    for pace in &info.paced {
        let rate = crate::policy::amount("app.rate_milli", pace.rate_milli);
        let of = pace.uid.map_or_else(String::new, |uid| format!(" from sources of user {uid}"));
        text += &format!("\nto {}{of}: {rate}, {} events let through, {} held back", pace.host, pace.passed, pace.held);
    }
    text.trim_end().to_owned() + "\n"
}

fn members(info: &ChannelInfo) -> Table {
    let columns =
        ["host", "member", "application", "attributes", "sent", "delivered", "filtered", "dropped", "late", "lost"];
    let mut table = output::new_table(columns);
    let attributes_text = |attributes: &std::collections::BTreeMap<String, i64>| {
        attributes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    let name = |name: &Option<qfabric_client::channel::Name>| name.as_ref().map_or("–".to_owned(), ToString::to_string);
    let number = |count: Option<u64>| count.map_or("–".to_owned(), |count| count.to_string());
    let row = |host: &Holding, member: String, application, attributes, counts: Option<[u64; 6]>| {
        let counts: [String; 6] = std::array::from_fn(|at| number(counts.map(|counts| counts[at])));
        [host.host.to_string(), member, name(application), attributes_text(attributes)].into_iter().chain(counts)
    };
    for host in &info.hosts {
        for SourceInfo { number, application, attributes, counts } in &host.sources {
            let counts = counts.map(|c| [c.sent, c.delivered, c.filtered, c.dropped, c.late, c.lost]);
            table.add_row(row(host, format!("source {number}"), application, attributes, counts));
        }
        for SinkInfo { number, application, attributes, counts, .. } in &host.sinks {
            let counts = counts.map(|c| [c.sent, c.delivered, c.filtered, c.dropped, c.late, c.lost]);
            table.add_row(row(host, format!("sink {number}"), application, attributes, counts));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_names_the_command_that_creates_a_channel() {
        assert!(table(&[]).contains("qfabric channel pub"));
    }
}
