//! `qfabric channel pub`: publishes events that it reads as JSON.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
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
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value, json};

use super::{channel, connected, open_or_create};
use crate::connect::{self, Daemon};
use crate::ecode::source::{Source as Text, attribute};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// Time between two checks of the channel while waiting for its sinks or their reports.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for the reports of the sinks. Sinks report within 2 s after the last event, but not about events in
/// their queues.
const REPORTED: Duration = Duration::from_secs(3);

/// Longest wait for a slow sink that holds the channel up.
const BLOCKED: Duration = Duration::from_secs(60);
/// Longest part of that wait without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(500);

/// Publishes events, which it reads as JSON, on a channel.
///
/// An event is a JSON object with the fields by name; the objects follow one after the other. If the channel does not
/// exist, creates it with the types of events from --format. At the end waits up to 3 s for the reports of the sinks
/// and prints the counts as JSON: delivered, filtered, dropped, late, lost and unknown. Ends at the first event that
/// fails, after the counts of the events before it: with 2 if the event does not fit its format, and with 3 if the
/// access list or the channel refuses it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: echo '{\"number\": 1}' | qfabric channel pub video --format frame.h --json -")]
pub(super) struct Args {
    /// Channel: NAME, or quality:NAME for a hidden Q-channel
    #[arg(value_name = "NAME", value_parser = channel)]
    channel: ChannelId,
    /// File with C structure declarations of the events; needed to create the channel, otherwise compared with the
    /// channel's
    #[arg(long, value_name = "FILE")]
    format: Option<PathBuf>,
    /// File with the events as JSON; - is the standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    json: PathBuf,
    /// Type of the events; needed if the channel has several types
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Q-attribute of every event, such as rate=25, a whole number of 64 bits; may be repeated
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, i64)>,
    /// Priority of the events, 0 (lowest) to 7 (highest)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=7))]
    priority: u8,
    /// Drop events that are not delivered within this time after their submission, such as 40ms [default: never]
    #[arg(long, value_name = "TIME")]
    deadline: Option<Nanos>,
    /// Largest number of events per second, above 0 [default: as fast as they are read]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// Wait until the channel has at least this number of sinks on all hosts
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    sinks: usize,
    /// Order of queued events, if the channel is created: time of submission, or earliest deadline first
    #[arg(long, value_enum, default_value_t = OrderName::Time)]
    order: OrderName,
    /// Back-pressure of a full queue, if the channel is created: drop the oldest or the newest event, or make sources
    /// wait
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

pub(super) fn run(args: Args) -> Outcome {
    let (channels, stop) = (connected(&args.daemon)?, interrupted()?);
    let opened = open(&channels, &args)?;
    let number = event_type(&opened, args.event_type.as_deref())?;
    let source = opened.source_subscribe(&SourceOptions::default()).map_err(connect::failure)?;
    wait_for_sinks(&args, &stop)?;
    let mut sums = Sums::default();
    let published = publish(&opened, &source, &args, number, &mut sums, &stop);
    if published.is_err() && sums.events == 0 {
        return published.map(|()| Done(0));
    }
    // After a failure, too: earlier events have gone to the sinks. The failure is the result, whatever the counts are.
    let counted = final_counts(&channels, &opened, &source, &stop);
    let printed = counted.and_then(|counts| output::print(&(sums.json(counts).to_string() + "\n")));
    published.and(printed).map(|()| Done(0))
}

/// Publishes the events until the first failure, the end of the input or a signal.
fn publish(
    opened: &Channel,
    source: &Source,
    args: &Args,
    number: u16,
    sums: &mut Sums,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let input = BufReader::new(Input { file: open_input(&args.json)?, stop });
    let events = serde_json::Deserializer::from_reader(input).into_iter::<Map<String, Value>>();
    let begin = Instant::now();
    for (at, fields) in events.enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let fields = fields.map_err(|error| Failure::usage(format!("event {}: {error}", at + 1)))?;
        let format = opened.format(number);
        let payload = format.map_or(Ok(Vec::new()), |format| event_json::encode_whole(format, fields));
        let payload = payload.map_err(|why| Failure::usage(format!("event {}: {why}", at + 1)))?;
        if args.rate.is_some_and(|rate| !wait_for_turn(begin, at, rate, stop)) {
            break;
        }
        let Some(sent) = submit(source, args, number, &payload, stop)? else { break };
        sums.add(sent);
    }
    Ok(())
}

/// Waits until event number `at` may be sent. Returns false if a signal came first.
fn wait_for_turn(begin: Instant, at: usize, rate: f64, stop: &AtomicBool) -> bool {
    let after = Duration::try_from_secs_f64(at as f64 / rate).unwrap_or(Duration::MAX);
    while !stop.load(Ordering::Relaxed) {
        let left = after.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
    false
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("{text:?} is not a number of events per second above 0"))
}

fn open(channels: &Channels, args: &Args) -> Result<Channel, Failure> {
    let Some(file) = &args.format else { return channels.open(&args.channel.to_string()).map_err(connect::failure) };
    let text = Text::read(file)?.text;
    let opened = open_or_create(channels, &args.channel, &spec(args, &text)).map_err(connect::failure)?;
    check_formats(&opened, &text).map(|()| opened)
}

fn spec(args: &Args, formats: &str) -> Spec {
    Spec {
        order: match args.order {
            OrderName::Time => Order::Time,
            OrderName::Deadline => Order::Deadline,
        },
        pressure: match args.pressure {
            PressureName::DropOldest => Pressure::DropOldest,
            PressureName::DropNewest => Pressure::DropNewest,
            PressureName::Block => Pressure::Block,
        },
        ..Spec::of(formats)
    }
}

/// Refuses if the types of the existing channel differ from those in `text`.
fn check_formats(opened: &Channel, text: &str) -> Result<(), Failure> {
    let formats = qfabric_ecode::parse_formats(text).map_err(|error| Failure::usage(format!("--format: {error}")))?;
    let (id, known) = (opened.id(), &opened.info().types);
    let there = |format: &Format| known.iter().find(|there| there.format.name == format.name);
    let pairs: Vec<_> = formats.iter().filter_map(|format| Some((format, &there(format)?.format))).collect();
    if pairs.is_empty() && !formats.is_empty() {
        let remedy = "leave --format out, or choose another channel: qfabric channel ls";
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
        None => Err(Failure::usage(format!(
            "{} has several types of events; choose one with --type: {}",
            opened.id(),
            known.join(", ")
        ))),
    }
}

fn open_input(path: &Path) -> Result<File, Failure> {
    let opened = match path.as_os_str() == "-" {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(path),
    };
    opened.map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

/// An input that ends when a signal sets `stop`. A plain read would go on after the signal, until the next event comes.
struct Input<'a> {
    file: File,
    stop: &'a AtomicBool,
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let look = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
        while !self.stop.load(Ordering::Relaxed) {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&look)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.file.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
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

/// Submits an event; waits up to [`BLOCKED`] while a slow sink holds the channel up. None: a signal came first.
fn submit(
    source: &Source,
    args: &Args,
    event_type: u16,
    payload: &[u8],
    stop: &AtomicBool,
) -> Result<Option<Sent>, Failure> {
    let attributes: Vec<_> = args.attributes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let event = Submission {
        event_type,
        priority: args.priority,
        deadline: args.deadline.map(|after| clock::now() + after),
        attributes: &attributes,
        payload,
        ..Submission::default()
    };
    let until = Instant::now() + BLOCKED;
    loop {
        match source.submit_patiently(&event, SIGNAL_CHECK) {
            Err(ClientError::NotSubmitted { blocked_until: Some(_), .. }) if stop.load(Ordering::Relaxed) => {
                return Ok(None);
            }
            Err(ClientError::NotSubmitted { blocked_until: Some(_), .. }) if Instant::now() < until => {}
            sent => return sent.map(Some).map_err(connect::failure),
        }
    }
}

/// Waits until the sinks have reported about all events, at most [`REPORTED`], and returns the counts of the source.
/// None: the channel is closed.
fn final_counts(
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

/// Events without a report: they wait in a queue, or are on their way.
fn unknown(counts: &SourceCounts) -> u64 {
    let SourceCounts { delivered, filtered, dropped, late, lost, .. } = counts;
    counts.sent.saturating_sub(delivered + filtered + dropped + late + lost)
}

/// Sums of the answers to all submissions.
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

    /// The sums, with the counts of the source if they are known.
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

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_signal_ends_an_input_without_events() {
        let (reader, _writer) = io::pipe().unwrap();
        let stop = AtomicBool::new(false);
        let mut input = Input { file: File::from(OwnedFd::from(reader)), stop: &stop };
        std::thread::scope(|scope| {
            let read = scope.spawn(|| input.read(&mut [0; 8]).unwrap());
            stop.store(true, Ordering::Relaxed);
            assert_eq!(read.join().unwrap(), 0);
        });
    }

    #[test]
    fn a_signal_ends_the_wait_for_the_next_event() {
        let stop = AtomicBool::new(true);
        assert!(!wait_for_turn(Instant::now(), 1, 1e-300, &stop));
        stop.store(false, Ordering::Relaxed);
        assert!(wait_for_turn(Instant::now(), 0, 1e-300, &stop));
        assert!(rate("0").is_err() && rate("-1").is_err() && rate("NaN").is_err() && rate("0.5") == Ok(0.5));
    }
}
