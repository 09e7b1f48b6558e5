//! `qfabric channel sub`: prints the events of a channel as they arrive.

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

/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);
/// The level of roles in the QoS tree (001 §3.3).
const ROLE: u8 = 2;

/// Prints the events of a channel as they arrive.
///
/// Decodes the events by their formats. Ends after Ctrl-C or --count events. Ends with 3 if the channel does not exist
/// (use --wait then), the access list forbids to join it, a host refuses a filter, or the sink ends because the channel
/// was closed or the access list changed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel sub video --wait
          qfabric channel sub video --out-filter large.ec --count 10 --json
          qfabric channel sub video --wants frame_rate=10:15 --wants importance=0
          qfabric channel sub video --together")]
pub(super) struct Args {
    /// Channel: NAME, or quality:NAME for a hidden Q-channel
    #[arg(value_name = "NAME", value_parser = channel)]
    channel: ChannelId,
    /// File with an IN-filter in E-code: it runs on this host, on each event that arrives
    #[arg(long, value_name = "FILE")]
    in_filter: Option<PathBuf>,
    /// File with an OUT-filter in E-code: it runs on the hosts of the sources, so that blocked events are not sent
    #[arg(long, value_name = "FILE")]
    out_filter: Option<PathBuf>,
    /// Receive only events of this type; may be repeated [default: all types]
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Q-attribute of this sink, which OUT-filters can read, such as load=3; may be repeated
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, i64)>,
    /// Range or value of a metric that this sink can use, for policies, such as frame_rate=10:15 or importance=2; may
    /// be repeated
    #[arg(long = "wants", value_name = "METRIC=MIN:MAX", value_parser = wanted)]
    wants: Vec<QosRange>,
    /// Print each event at the time that the policy sync on the host of the source decides for all sinks
    ///
    /// As long as no such policy runs, events are printed as they arrive.
    #[arg(long)]
    together: bool,
    /// Number of events that can wait in the queue of this sink, 1 to 4096; the channel's back-pressure applies to
    /// further events
    #[arg(long, default_value_t = 256)]
    capacity: u32,
    /// Wait for the channel if it does not exist yet
    #[arg(long)]
    wait: bool,
    /// End after this number of events [default: run until Ctrl-C]
    #[arg(long)]
    count: Option<u64>,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: Args) -> Outcome {
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
        // Ignored: a host that has ended has no filter any more.
        let _ = opened.remove_filter(Direction::Out, &name, FilterScope::All);
    }
    shown.map(|()| Done(0))
}

/// Prints events until `--count` events or a signal, or until nobody reads them any more.
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
        let wait = together.as_ref().map_or(SIGNAL_CHECK, |together| together.time_until_due(SIGNAL_CHECK, now()));
        let next = sink.next(wait).map_err(connect::failure)?;
        print_decisions(channels, together.as_deref_mut())?;
        let line = next.map(|event| (event.event().sent_ns, events::line(opened, &event.event(), args.json)));
        let Some(together) = &mut together else {
            if let Some((_, line)) = line {
                if !output::print_next(&line)? {
                    return Ok(());
                }
                left -= 1;
            }
            continue;
        };
        line.into_iter().for_each(|(sent, line)| together.push(sent, line, now()));
        together.report().map_err(connect::failure)?;
        while let Some(line) = if left > 0 { together.pop_due(now()) } else { None } {
            if !output::print_next(&line)? {
                return Ok(());
            }
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
                std::thread::sleep(SIGNAL_CHECK);
            }
            Err(ClientError::Refused(mut problem)) if problem.code == "no_such_channel" => {
                problem.next_step += "; or wait for the channel with --wait";
                return Err(Failure::problem(&problem));
            }
            Err(error) => return Err(connect::failure(error)),
        }
    }
    Ok(None)
}

/// Prints decisions of policies on stderr, so that stdout has only events.
fn print_decisions(channels: &Channels, mut together: Option<&mut Together>) -> Result<(), Failure> {
    while let Some(notice) = channels.next_notice().map_err(connect::failure)? {
        if let Some(together) = together.as_deref_mut() {
            together.on_notice(&notice);
        }
        if let Notice::Decided { attribute, subject, amount: Some(amount), .. } = notice {
            output::note(format_args!("{attribute} for {subject}: {}", crate::policy::amount(&attribute, amount)));
        }
    }
    Ok(())
}

/// Registers in the group with the channel's name, in which the policies of the channel look for roles.
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

/// Parses `METRIC=MIN:MAX` or `METRIC=VALUE`.
fn wanted(text: &str) -> Result<QosRange, String> {
    let (metric, range) = pair(text)?;
    let (min, max) = range.split_once(':').unwrap_or((&range, &range));
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a whole number of 64 bits"));
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
    fn a_wanted_metric_is_a_range_or_one_value() {
        let range = |metric: &str, min, max| Ok(QosRange { metric: metric.to_owned(), min, max });
        assert_eq!(wanted("frame_rate=10:15"), range("frame_rate", 10, 15));
        assert_eq!(wanted("importance=2"), range("importance", 2, 2));
        assert!(wanted("frame_rate=15:10").unwrap_err().contains("above"));
        assert!(wanted("frame_rate").is_err() && wanted("frame_rate=a:b").is_err());
    }
}
