//! `qfabric channel sub`: events as they come.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_client::ClientError;
use qfabric_client::channel::{Channel, ChannelId, Channels, Direction, Filter, Installed, SinkOptions, Where};

use super::{Daemon, channel, events, interrupted};
use crate::connect;
use crate::ecode::source::{Source, attribute};
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// How long a Ctrl-C may take.
const LOOK: Duration = Duration::from_millis(100);

/// Prints the events of a channel as they come, decoded by their formats.
///
/// With filters in E-code: IN, where they arrive; OUT, where they are submitted, on the hosts that allow it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel sub video
          qfabric channel sub video --out-filter large.ec --count 10 --json")]
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
    let (channels, stop) = (args.daemon.channels()?, interrupted()?);
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
    let me = format!("{}/{}", channels.host(), sink.number());
    if let Some(file) = &args.in_filter {
        install(&opened, Direction::In, &name, file, &me, Where::Here)?;
    }
    if let Some(file) = &args.out_filter {
        install(&opened, Direction::Out, &name, file, &me, Where::All)?;
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut shown = || -> Result<(), Failure> {
        while left > 0 && !stop.load(Ordering::Relaxed) {
            let Some(event) = sink.next(LOOK).map_err(connect::failure)? else { continue };
            output::print(&events::line(&opened, &event.event(), args.json))?;
            left -= 1;
        }
        Ok(())
    };
    let shown = shown();
    if args.out_filter.is_some() {
        // Hosts that have gone have taken it with them.
        let _ = opened.remove_filter(Direction::Out, &name, Where::All);
    }
    shown.map(|()| Done(0))
}

fn open(channels: &Channels, args: &Args, stop: &AtomicBool) -> Result<Option<Channel>, Failure> {
    while !stop.load(Ordering::Relaxed) {
        match channels.open(&args.channel.to_string()) {
            Ok(opened) => return Ok(Some(opened)),
            Err(ClientError::Refused(problem)) if args.wait && problem.code == "no_such_channel" => {
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(connect::failure(error)),
        }
    }
    Ok(None)
}

fn install(
    opened: &Channel,
    direction: Direction,
    name: &str,
    file: &Path,
    me: &str,
    to: Where,
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
