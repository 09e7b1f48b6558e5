//! `qfabric channel pub`: events from JSON.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use qfabric_client::channel::{
    Channel, ChannelId, Channels, Order, Pressure, Sent, Source, SourceCounts, SourceOptions, Spec, Submission,
};
use qfabric_client::{Client, ClientError, clock};
use qfabric_types::format::Format;
use qfabric_types::{Nanos, event_json};
use serde_json::{Map, Value, json};

use super::{channel, connected};
use crate::connect::{self, Daemon};
use crate::ecode::source::{Source as Text, attribute};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// Longest line of the summary's wait for sinks between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for what became of the events. Sinks report within 2 s of the last one, but not of what waits in their queues.
const REPORTED: Duration = Duration::from_secs(3);

/// Publishes events on a channel: JSON objects with their fields by name, one after the other.
///
/// Creates the channel where no host holds it; then --format says what its events look like. Afterwards it says what
/// became of them: sinks of other hosts report within 2 s.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: echo '{\"number\": 1}' | qfabric channel pub video --format frame.h --json -")]
pub struct Args {
    /// The channel, or quality:NAME
    #[arg(value_name = "NAME", value_parser = channel)]
    channel: ChannelId,
    /// C structure declarations: what its events look like, where it is to be created
    #[arg(long, value_name = "FILE")]
    format: Option<PathBuf>,
    /// The events; - for the standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    json: PathBuf,
    /// Type of the events, where the channel has several
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// A Q-attribute of every event, such as rate=25
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, i64)>,
    /// 0, the lowest, to 7
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=7))]
    priority: u8,
    /// Events are of no use any more so long after they were submitted
    #[arg(long, value_name = "TIME")]
    deadline: Option<Nanos>,
    /// Events per second at most
    #[arg(long, value_name = "RATE")]
    rate: Option<f64>,
    /// Wait until the channel has so many sinks
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    sinks: usize,
    /// Order of queued events, where it is to be created
    #[arg(long, value_enum, default_value_t = OrderName::Time)]
    order: OrderName,
    /// What a full queue does, where it is to be created
    #[arg(long, value_enum, default_value_t = PressureName::DropOldest)]
    pressure: PressureName,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderName {
    Time,
    Deadline,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PressureName {
    DropOldest,
    DropNewest,
    Block,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let (channels, stop) = (connected(&args.daemon)?, interrupted()?);
    let opened = open(&channels, &args)?;
    let number = event_type(&opened, args.event_type.as_deref())?;
    let source = opened.source_subscribe(&SourceOptions::default()).map_err(connect::failure)?;
    wait_for_sinks(&args, &stop)?;
    let mut sums = Sums::default();
    let events = serde_json::Deserializer::from_reader(input(&args.json)?).into_iter::<Map<String, Value>>();
    let begin = Instant::now();
    for (at, fields) in events.enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let fields = fields.map_err(|error| Failure::usage(format!("event {}: {error}", at + 1)))?;
        let format = opened.format(number);
        let payload = format.map_or(Ok(Vec::new()), |format| event_json::encode_whole(format, fields));
        let payload = payload.map_err(|why| Failure::usage(format!("event {}: {why}", at + 1)))?;
        if let Some(rate) = args.rate.filter(|rate| *rate > 0.0) {
            std::thread::sleep(
                (begin + Duration::from_secs_f64(at as f64 / rate)).saturating_duration_since(Instant::now()),
            );
        }
        sums.add(submit(&source, &args, number, &payload)?);
    }
    let counts = settled(&channels, &opened, &source, &stop)?;
    output::print(&(sums.json(counts).to_string() + "\n"))?;
    Ok(Done(0))
}

fn open(channels: &Channels, args: &Args) -> Result<Channel, Failure> {
    match (channels.open(&args.channel.to_string()), &args.format) {
        (Ok(opened), Some(file)) => agree(&opened, &Text::read(file)?.text).map(|()| opened),
        (Ok(opened), None) => Ok(opened),
        (Err(ClientError::Refused(problem)), Some(file)) if problem.code == "no_such_channel" => {
            let spec = Spec {
                order: match args.order {
                    OrderName::Time => Order::Time,
                    OrderName::Deadline => Order::Deadline,
                },
                pressure: match args.pressure {
                    PressureName::DropOldest => Pressure::DropOldest,
                    PressureName::DropNewest => Pressure::DropNewest,
                    PressureName::Block => Pressure::Block,
                },
                ..Spec::of(&Text::read(file)?.text)
            };
            channels.create(args.channel.name.as_str(), &spec).map_err(connect::failure)
        }
        (Err(error), _) => Err(connect::failure(error)),
    }
}

/// Whether a channel that is there has the events that its publisher thinks of.
fn agree(opened: &Channel, text: &str) -> Result<(), Failure> {
    let formats = qfabric_ecode::parse_formats(text).map_err(|error| Failure::usage(format!("--format: {error}")))?;
    let (id, known) = (opened.id(), &opened.info().types);
    let there = |format: &Format| known.iter().find(|there| there.format.name == format.name);
    let pairs: Vec<_> = formats.iter().filter_map(|format| Some((format, &there(format)?.format))).collect();
    if pairs.is_empty() && !formats.is_empty() {
        let remedy = "leave --format out, or choose another name: qfabric channel ls";
        return Err(Failure::refused(format!("{id} has none of these events; {remedy}")));
    }
    let differs = pairs.into_iter().find_map(|(format, there)| Some((&format.name, format.first_difference(there)?)));
    differs.map_or(Ok(()), |(name, difference)| {
        let remedy = format!("leave --format out, or take the channel's: qfabric channel show {id}");
        Err(Failure::refused(format!("{id} has other events of type `{name}`: {difference}; {remedy}")))
    })
}

fn event_type(opened: &Channel, name: Option<&str>) -> Result<u16, Failure> {
    let known: Vec<_> = opened.info().types.iter().map(|known| known.format.name.as_str()).collect();
    match name {
        Some(name) => opened.type_number(name).ok_or_else(|| {
            Failure::usage(format!("{} has no events of type {name}; it has {}", opened.id(), known.join(", ")))
        }),
        None if known.len() <= 1 => Ok(0),
        None => Err(Failure::usage(format!("{} has several types; say --type: {}", opened.id(), known.join(", ")))),
    }
}

fn input(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = File::open(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    Ok(Box::new(BufReader::new(file)))
}

fn wait_for_sinks(args: &Args, stop: &AtomicBool) -> Result<(), Failure> {
    let client: Client = args.daemon.client()?;
    while args.sinks > 0 && !stop.load(Ordering::Relaxed) {
        let info = client.channel(&args.channel).map_err(connect::failure)?;
        if info.hosts.iter().map(|host| host.sinks.len()).sum::<usize>() >= args.sinks {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn submit(source: &Source, args: &Args, event_type: u16, payload: &[u8]) -> Result<Sent, Failure> {
    let attributes: Vec<_> = args.attributes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let event = Submission {
        event_type,
        priority: args.priority,
        deadline: args.deadline.map(|after| clock::now() + after),
        attributes: &attributes,
        payload,
        ..Submission::default()
    };
    source.submit_patiently(&event, Duration::from_secs(60)).map_err(connect::failure)
}

/// What is known of the source's events once it is known of all, or when that takes too long. None: the channel is gone.
fn settled(
    channels: &Channels,
    opened: &Channel,
    source: &Source,
    stop: &AtomicBool,
) -> Result<Option<SourceCounts>, Failure> {
    let until = Instant::now() + REPORTED;
    loop {
        let info = match opened.look() {
            Ok(info) => info,
            Err(ClientError::Refused(_)) => return Ok(None),
            Err(error) => return Err(connect::failure(error)),
        };
        let own = info.hosts.iter().filter(|host| host.host.as_str() == channels.host()).flat_map(|host| &host.sources);
        let counts = own.into_iter().find(|own| own.number == source.number()).and_then(|own| own.counts);
        let is_over = stop.load(Ordering::Relaxed) || Instant::now() >= until;
        if is_over || counts.is_none_or(|counts| unknown(&counts) == 0) {
            return Ok(counts);
        }
        std::thread::sleep(LOOK);
    }
}

/// Events that still wait for their readers, or are on their way.
fn unknown(counts: &SourceCounts) -> u64 {
    let SourceCounts { delivered, filtered, dropped, late, lost, .. } = counts;
    counts.sent.saturating_sub(delivered + filtered + dropped + late + lost)
}

/// What was said of all events when they were submitted.
#[derive(Default)]
struct Sums {
    events: u64,
    remote: u64,
    local: u64,
    filtered: u64,
    dropped: u64,
}

impl Sums {
    fn add(&mut self, sent: Sent) {
        self.events += 1;
        self.remote += u64::from(sent.remote);
        self.local += u64::from(sent.local);
        self.filtered += u64::from(sent.filtered);
        self.dropped += u64::from(sent.dropped);
    }

    /// With what became of them, where that is known.
    fn json(&self, counts: Option<SourceCounts>) -> Value {
        let Sums { events, remote, local, filtered, dropped } = self;
        let Some(counts) = counts else {
            return json!({ "events": events, "remote": remote, "local": local, "filtered": filtered, "dropped": dropped });
        };
        json!({
            "events": events, "remote": remote, "local": local, "delivered": counts.delivered,
            "filtered": counts.filtered, "dropped": counts.dropped, "late": counts.late, "lost": counts.lost,
            "unknown": unknown(&counts),
        })
    }
}
