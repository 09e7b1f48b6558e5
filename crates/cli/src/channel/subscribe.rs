//! `qfabric channel sub`: events as they come.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::channel::{
    Channel, ChannelId, Channels, Direction, Filter, FilterScope, GroupRequest, Installed, Notice, QosRange,
    Registration, Sink, SinkOptions,
};
use qfabric_client::{ClientError, clock};

use super::together::Together;
use super::{channel, connected, events};
use crate::connect::{self, Daemon};
use crate::ecode::source::{Source, attribute, pair};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// How long a Ctrl-C may take.
const LOOK: Duration = Duration::from_millis(100);
/// The level of roles in the tree of groups.
const ROLE: u8 = 2;

/// Prints the events of a channel as they come, decoded by their formats.
///
/// With filters in E-code: IN, where they arrive; OUT, where they are submitted, on the hosts that allow it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel sub video --wait
          qfabric channel sub video --out-filter large.ec --count 10 --json
          qfabric channel sub video --wants frame_rate=10:15 --wants importance=0
          qfabric channel sub video --together")]
pub struct Args {
    /// The channel, or quality:NAME
    #[arg(value_name = "NAME", value_parser = channel)]
    channel: ChannelId,
    /// E-code: which events are kept out when they arrive
    #[arg(long, value_name = "FILE")]
    in_filter: Option<PathBuf>,
    /// E-code, shipped to the hosts of the sources: which events are not even sent here
    #[arg(long, value_name = "FILE")]
    out_filter: Option<PathBuf>,
    /// Only events of this type; may be said more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// What OUT-filters can know of this sink, such as load=3
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, i64)>,
    /// What this sink is content with, for policies: a metric's range or value, such as frame_rate=10:15 or importance=2
    #[arg(long = "wants", value_name = "METRIC=MIN:MAX", value_parser = wanted)]
    wants: Vec<QosRange>,
    /// Print each event when all sinks can, as the policy sync of the source's host decides; until then as it comes
    #[arg(long)]
    together: bool,
    /// Events that wait here at most
    #[arg(long, default_value_t = 256)]
    capacity: u32,
    /// Wait for the channel, where no host holds it yet
    #[arg(long)]
    wait: bool,
    /// End after so many events
    #[arg(long)]
    count: Option<u64>,
    /// As JSON, one object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let (channels, stop) = (connected(&args.daemon)?, interrupted()?);
    let Some(opened) = open(&channels, &args, &stop)? else { return Ok(Done(0)) };
    let options = SinkOptions {
        application: None,
        types: args.types.clone(),
        formats: String::new(),
        attributes: args.attributes.iter().cloned().collect(),
        capacity: args.capacity,
    };
    let mut sink = opened.sink(&options).map_err(connect::failure)?;
    let name = format!("sub-{}-{}", channels.host(), sink.number());
    let mut role = register(&channels, &args)?;
    let mut together = role.take_if(|_| args.together).map(|role| Together::new(role, args.capacity));
    let me = format!("{}/{}", channels.host(), sink.number());
    if let Some(file) = &args.in_filter {
        install(&opened, Direction::In, &name, file, &me, FilterScope::Here)?;
    }
    if let Some(file) = &args.out_filter {
        install(&opened, Direction::Out, &name, file, &me, FilterScope::All)?;
    }
    let shown = show(&channels, &opened, &mut sink, together.as_mut(), &args, &stop);
    if args.out_filter.is_some() {
        // Hosts that have gone have taken it with them.
        let _ = opened.remove_filter(Direction::Out, &name, FilterScope::All);
    }
    shown.map(|()| Done(0))
}

/// Prints events until there were enough, or a signal came.
fn show(
    channels: &Channels,
    opened: &Channel,
    sink: &mut Sink,
    mut together: Option<&mut Together>,
    args: &Args,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let now = || clock::now().get();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 && !stop.load(Ordering::Relaxed) {
        let patience = together.as_ref().map_or(LOOK, |together| together.patience(LOOK, now()));
        let next = sink.next(patience).map_err(connect::failure)?;
        say_what_was_decided(channels, together.as_deref_mut())?;
        let line = next.map(|event| (event.event().sent_ns, events::line(opened, &event.event(), args.json)));
        let Some(together) = &mut together else {
            if let Some((_, line)) = line {
                output::print(&line)?;
                left -= 1;
            }
            continue;
        };
        line.into_iter().for_each(|(sent, line)| together.take_in(sent, line, now()));
        together.report().map_err(connect::failure)?;
        while let Some(line) = if left > 0 { together.due(now()) } else { None } {
            output::print(&line)?;
            left -= 1;
        }
    }
    Ok(())
}

fn open(channels: &Channels, args: &Args, stop: &AtomicBool) -> Result<Option<Channel>, Failure> {
    while !stop.load(Ordering::Relaxed) {
        match channels.open(&args.channel.to_string()) {
            Ok(opened) => return Ok(Some(opened)),
            Err(ClientError::Refused(problem)) if args.wait && problem.code == "no_such_channel" => {
                std::thread::sleep(LOOK);
            }
            Err(ClientError::Refused(mut problem)) if problem.code == "no_such_channel" => {
                problem.next_step += "; or wait for it: --wait";
                return Err(Failure::problem(&problem));
            }
            Err(error) => return Err(connect::failure(error)),
        }
    }
    Ok(None)
}

/// On the standard error: whoever reads the events is not disturbed.
fn say_what_was_decided(channels: &Channels, mut together: Option<&mut Together>) -> Result<(), Failure> {
    while let Some(notice) = channels.next_notice().map_err(connect::failure)? {
        if let Some(together) = together.as_deref_mut() {
            together.hear(&notice);
        }
        if let Notice::Decided { attribute, subject, amount: Some(amount), .. } = notice {
            eprintln!("{attribute} for {subject}: {}", crate::policy::amount(&attribute, amount));
        }
    }
    Ok(())
}

/// The group of the channel's name is where its policies look for roles.
fn register(channels: &Channels, args: &Args) -> Result<Option<Registration>, Failure> {
    if args.wants.is_empty() && !args.together {
        return Ok(None);
    }
    let request = GroupRequest {
        lease: channels.lease(),
        application: "sub".parse().expect("is a name"),
        group: args.channel.name.clone(),
        parent: None,
        level: ROLE,
        qos: args.wants.clone(),
    };
    channels.register_as(request).map(Some).map_err(connect::failure)
}

/// `METRIC=MIN:MAX`, or `METRIC=VALUE`.
fn wanted(text: &str) -> Result<QosRange, String> {
    let (metric, range) = pair(text)?;
    let (min, max) = range.split_once(':').unwrap_or((&range, &range));
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no whole number of 64 bits"));
    let (min, max): (i64, i64) = (number(min)?, number(max)?);
    match min <= max {
        true => Ok(QosRange { metric, min, max }),
        false => Err(format!("{min} is above {max}; write METRIC=MIN:MAX")),
    }
}

fn install(
    opened: &Channel,
    direction: Direction,
    name: &str,
    file: &Path,
    me: &str,
    to: FilterScope,
) -> Result<(), Failure> {
    let code = Source::read(file)?.text;
    let filter = Filter { code, sink: Some(me.to_owned()), to, ..Filter::default() };
    let Installed { hosts } = opened.install(direction, name, &filter).map_err(connect::failure)?;
    let refused = hosts.iter().find_map(|answer| answer.refused.as_ref().map(|why| (&answer.host, why)));
    match refused {
        Some((host, why)) => Err(Failure::refused(format!("{host} does not take the filter: {why}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sink_wants_is_a_range_or_one_value() {
        let range = |metric: &str, min, max| Ok(QosRange { metric: metric.to_owned(), min, max });
        assert_eq!(wanted("frame_rate=10:15"), range("frame_rate", 10, 15));
        assert_eq!(wanted("importance=2"), range("importance", 2, 2));
        assert!(wanted("frame_rate=15:10").unwrap_err().contains("above"));
        assert!(wanted("frame_rate").is_err() && wanted("frame_rate=a:b").is_err());
    }
}
