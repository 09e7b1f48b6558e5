//! `qfabric channel ping`: measures the time of an event to an application on another host and back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_client::channel::{Channel, ChannelId, Channels, Name, Sink, SinkOptions, Source, SourceOptions, Spec};
use qfabric_client::channel::{Destination, Submission};
use qfabric_client::{ClientError, clock};
use qfabric_types::Nanos;
use qfabric_types::ping::{ANSWERS, FORMAT, Ping};
use serde_json::{Value, json};

use super::{OPENS, connected, open_or_create};
use crate::connect::{self, Daemon};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// Time between two checks whether the other host has opened the channel.
const LOOK: Duration = Duration::from_millis(10);
/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);
/// Number of exchanges for which one difference of the two clocks is used. The clocks may drift, so it is computed
/// again.
const BY_ONE_CLOCK: usize = 64;

/// Measures the time of an event to an application on another host and back, through both daemons.
///
/// Sends one event at a time on the channel ping.HOST. The daemon of the other host answers through a connection like
/// that of an application. The clocks of two hosts differ; the command assumes that the fastest of 64 exchanges took
/// the same time in both directions. Ends with 3 if the host is not present, and with 1 if it does not open the channel
/// within 5 s or answers no ping.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel ping left --count 1000 --json")]
pub(super) struct Args {
    /// Name of the other host, or of this host; `qfabric group hosts` lists them
    #[arg(value_name = "HOST")]
    host: Name,
    /// Number of pings, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Time between an answer and the next ping
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    interval: Nanos,
    /// Size of an event in bytes, 32 to 16384
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(Ping::SIZE as i64..=16384))]
    size: u32,
    /// Longest wait for an answer; later, the ping and its answer are dropped
    #[arg(long, value_name = "TIME", default_value = "1s")]
    timeout: Nanos,
    /// Print JSON instead of text, with one_way, one_way_back and round_trip in microseconds
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: Args) -> Outcome {
    let stop = interrupted()?;
    let channel = Ping::channel(&args.host)
        .map_err(|_| Failure::usage(format!("the name {} is too long for a ping: at most 59 characters", args.host)))?;
    let known = args.daemon.client()?.hosts().map_err(connect::failure)?;
    if known.iter().all(|known| known.host != args.host) {
        let names: Vec<_> = known.iter().map(|known| known.host.as_str()).collect();
        return Err(Failure::refused(format!("no host {} is present; the hosts are: {}", args.host, names.join(", "))));
    }
    let channels = connected(&args.daemon)?;
    let mut pinger = Pinger::begin(&channels, &channel, &args, &stop)?;
    let (exchanges, sent) = pinger.exchange(&args, &stop).map_err(connect::failure)?;
    drop((pinger, channels));
    let times = Times::of(&exchanges);
    match args.json {
        true => output::print_json(&times.json(&args, sent))?,
        false => output::print(&times.text(&args, sent))?,
    }
    Ok(Done(u8::from(exchanges.is_empty())))
}

/// The four times of one ping in nanoseconds: sent and back by this host's clock, arrived and answered by the other's.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    sent: u64,
    arrived: u64,
    answered: u64,
    back: u64,
}

impl Exchange {
    /// Does not include the time that the answering application took.
    fn round_trip(&self) -> u64 {
        (self.back - self.sent).saturating_sub(self.answered - self.arrived)
    }

    /// Nanoseconds by which the other clock is ahead, if both directions took the same time.
    fn ahead(&self) -> i64 {
        (self.arrived.wrapping_sub(self.sent).cast_signed() + self.answered.wrapping_sub(self.back).cast_signed()) / 2
    }
}

/// The application that sends the pings.
struct Pinger {
    _channel: Channel,
    sink: Sink,
    source: Source,
    answering_sink: u32,
}

impl Pinger {
    fn begin(channels: &Channels, channel: &ChannelId, args: &Args, stop: &AtomicBool) -> Result<Pinger, Failure> {
        let opened = open_or_create(channels, channel, &Spec::of(FORMAT)).map_err(connect::failure)?;
        let sink = opened.sink(&SinkOptions::default()).map_err(connect::failure)?;
        let source = opened.source_subscribe(&SourceOptions::default()).map_err(connect::failure)?;
        let until = Instant::now() + OPENS;
        while !stop.load(Ordering::Relaxed) {
            if let Some(answering_sink) = find_answering_sink(&opened, &args.host).map_err(connect::failure)? {
                return Ok(Pinger { _channel: opened, sink, source, answering_sink });
            }
            if Instant::now() >= until {
                let why = "its daemon is too old to answer, or an access list (its own or this host's) does not let it join and \
                           send there (its log says so)";
                return Err(Failure::fault(format!("{} did not open {channel} within 5 s: {why}", args.host)));
            }
            std::thread::sleep(LOOK);
        }
        Err(Failure::fault("stopped before the other host answered"))
    }

    /// The answered exchanges, and the number of pings sent.
    fn exchange(&mut self, args: &Args, stop: &AtomicBool) -> Result<(Vec<Exchange>, u64), ClientError> {
        let (mut exchanges, mut sent) = (Vec::new(), 0);
        let mut payload = vec![0; args.size as usize];
        while sent < u64::from(args.count) && !stop.load(Ordering::Relaxed) {
            sent += 1;
            Ping { number: sent, sink: self.sink.number(), answer: None }.write(&mut payload);
            exchanges.extend(self.ask(args, sent, &payload)?);
            if sent < u64::from(args.count) {
                pause(Duration::from_nanos(args.interval.get()), stop);
            }
        }
        Ok((exchanges, sent))
    }

    fn ask(&mut self, args: &Args, number: u64, payload: &[u8]) -> Result<Option<Exchange>, ClientError> {
        let sent = clock::now();
        let until = sent + args.timeout;
        let to = Destination::Sink(args.host.as_str(), self.answering_sink);
        self.source.submit(&Submission { deadline: Some(until), to, payload, ..Submission::default() })?;
        loop {
            let left = until.get().saturating_sub(clock::now().get());
            let Some(event) = self.sink.next(Duration::from_nanos(left))? else { return Ok(None) };
            let back = clock::now().get();
            match Ping::read(event.event().payload) {
                Some(Ping { number: of, answer: Some((arrived, answered)), .. }) if of == number => {
                    return Ok(Some(Exchange {
                        sent: sent.get(),
                        arrived: arrived.get(),
                        answered: answered.get(),
                        back,
                    }));
                }
                // The late answer to an earlier ping.
                _ => {}
            }
        }
    }
}

/// Sleeps, at most until a signal sets `stop`.
fn pause(time: Duration, stop: &AtomicBool) {
    let begin = Instant::now();
    let left = || time.saturating_sub(begin.elapsed());
    while !stop.load(Ordering::Relaxed) && !left().is_zero() {
        std::thread::sleep(left().min(SIGNAL_CHECK));
    }
}

fn find_answering_sink(channel: &Channel, host: &Name) -> Result<Option<u32>, ClientError> {
    let info = channel.look()?;
    let there = info.hosts.iter().filter(|there| there.host == *host).flat_map(|there| &there.sinks);
    let answers = |sink: &&qfabric_client::channel::SinkInfo| {
        sink.application.as_ref().is_some_and(|name| name.as_str() == ANSWERS)
    };
    Ok(there.into_iter().find(answers).map(|sink| sink.number))
}

/// Sorted times in nanoseconds.
#[derive(Debug, PartialEq, Eq)]
struct Times {
    one_way: Vec<u64>,
    back: Vec<u64>,
    round_trip: Vec<u64>,
}

impl Times {
    fn of(exchanges: &[Exchange]) -> Times {
        let (mut one_way, mut back) = (Vec::new(), Vec::new());
        for together in exchanges.chunks(BY_ONE_CLOCK) {
            let Some(fastest) = together.iter().min_by_key(|exchange| exchange.round_trip()) else { continue };
            let ahead = fastest.ahead();
            let way = |from: u64, to: u64, ahead: i64| {
                u64::try_from(to.wrapping_sub(from).cast_signed() - ahead).unwrap_or(0)
            };
            one_way.extend(together.iter().map(|one| way(one.sent, one.arrived, ahead)));
            back.extend(together.iter().map(|one| way(one.answered, one.back, -ahead)));
        }
        let mut times = Times { one_way, back, round_trip: exchanges.iter().map(Exchange::round_trip).collect() };
        [&mut times.one_way, &mut times.back, &mut times.round_trip].into_iter().for_each(|all| all.sort_unstable());
        times
    }

    fn json(&self, args: &Args, sent: u64) -> Value {
        let answered = self.round_trip.len() as u64;
        let of = |all: &[u64]| json!({ "p50_us": quantile(all, 0.5), "p99_us": quantile(all, 0.99) });
        json!({
            "host": args.host, "size": args.size, "sent": sent, "answered": answered, "lost": sent - answered,
            "one_way": of(&self.one_way), "one_way_back": of(&self.back), "round_trip": of(&self.round_trip),
        })
    }

    fn text(&self, args: &Args, sent: u64) -> String {
        let answered = self.round_trip.len();
        let head = format!("{}: {answered} of {sent} pings of {} B answered", args.host, args.size);
        let line = |what: &str, all: &[u64]| match (quantile(all, 0.5), quantile(all, 0.99)) {
            (Some(median), Some(late)) => format!("\n{what:<12} p50 {median:>8.1} µs   p99 {late:>8.1} µs"),
            _ => String::new(),
        };
        let lines = [("there", &self.one_way), ("back", &self.back), ("round trip", &self.round_trip)];
        head + &lines.map(|(what, all)| line(what, all)).concat() + "\n"
    }
}

/// A quantile in microseconds of sorted nanoseconds; none if there are no times.
fn quantile(sorted: &[u64], part: f64) -> Option<f64> {
    let at = (sorted.len().checked_sub(1)? as f64 * part).round() as usize;
    sorted.get(at).map(|ns| *ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exchange that takes `there` to the other host and `back` back. The other clock is 5,000 behind; the
    /// application takes 100.
    fn exchange(sent: u64, there: u64, back: u64) -> Exchange {
        let arrived = sent + there - 5_000;
        Exchange { sent, arrived, answered: arrived + 100, back: sent + there + 100 + back }
    }

    #[test]
    fn both_directions_are_measured_although_the_clocks_differ() {
        let times = Times::of(&[exchange(10_000, 50, 50), exchange(20_000, 90, 60), exchange(30_000, 60, 100)]);
        assert_eq!(times.one_way, [50, 60, 90]);
        assert_eq!(times.back, [50, 60, 100]);
        assert_eq!(times.round_trip, [100, 150, 160], "without the time of the application");
    }

    #[test]
    fn the_difference_of_drifting_clocks_is_computed_again() {
        let exchanges: Vec<_> = (0..640u64)
            .map(|n| {
                let mut exchange = exchange(10_000 + n * 1_000, 50, 50);
                exchange.arrived += n / 64 * 7;
                exchange.answered += n / 64 * 7;
                exchange
            })
            .collect();
        assert!(Times::of(&exchanges).one_way.iter().all(|way| *way == 50));
    }

    #[test]
    fn without_an_answer_there_are_no_times() {
        let times = Times::of(&[]);
        assert_eq!((quantile(&times.one_way, 0.5), quantile(&[3_000], 0.99)), (None, Some(3.0)));
    }
}
