//! Figure 23: a manager on one host gives each request to the server on another host that had the fewest open requests
//! when its handler reported last. The handlers run in the kernel of the servers' host, with a poll period, and
//! redirect their events to the manager's host through a channel.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use qfabric_client::channel::{Channel, Channels, Sink, SinkOptions};
use qfabric_client::ecalls::{Ecalls, Subscription, SubscriptionBuilder};
use qfabric_types::channel::Name;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::hosts::{Hosts, MANAGER, SERVERS};
use super::load::{arrivals, offer};
use super::server::{Server, Work};
use super::{EventsRow, Trial, check_handler};
use crate::Options;
use crate::children::Stop;

const COUNT: usize = 4;
const PORT: u16 = 8_100;
/// Mean time of a request at a server.
const WORK: Duration = Duration::from_millis(40);
/// Requests per second for all servers: half of what they can answer.
const RATE: f64 = 50.0;
/// Longest wait for the channel on the manager's host.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the manager waits for a report before it looks whether the run is over.
const LOOK: Duration = Duration::from_millis(50);

/// What a server's handler reports.
const HANDLER: &str = "
struct output { long server; long open; };
output.server = attr.server;
output.open = attr.open;
return 1;";

/// A server with its handler. Dropping it ends both.
struct Watched {
    server: Server,
    subscription: Subscription,
    _ecalls: Ecalls,
}

/// What the manager knows.
#[derive(Default)]
struct Known {
    /// Open requests of each server at its last report.
    open: [AtomicI64; COUNT],
    reports: AtomicU64,
    /// Where the search for the least begins: equal servers take turns.
    turn: AtomicUsize,
}

impl Known {
    fn take(&self, payload: &[u8]) {
        let number = |at: usize| Some(i64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
        let (Some(server), Some(open)) = (number(0), number(8)) else { return };
        if let Some(known) = usize::try_from(server).ok().and_then(|server| self.open.get(server)) {
            known.store(open, Ordering::Relaxed);
            self.reports.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The server with the fewest open requests.
    fn least(&self) -> usize {
        let begin = self.turn.fetch_add(1, Ordering::Relaxed);
        let all = (0..COUNT).map(|step| (begin + step) % COUNT);
        all.min_by_key(|server| self.open[*server].load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// One run.
pub(super) fn play(hosts: &Hosts, period_ms: u64, seconds: f64, options: &Options) -> Result<Vec<EventsRow>> {
    let name = format!("load.{period_ms}");
    let watched: Vec<Watched> =
        (0..COUNT).map(|number| watch(hosts, number, period_ms, &name)).collect::<Result<_>>()?;
    let channels = Channels::connect(&hosts.client(MANAGER)?)?;
    let channel = open(&channels, &name, &options.stop)?;
    let mut sink = channel.sink(&SinkOptions::default())?;
    let (known, is_over) = (Known::default(), AtomicBool::new(false));
    let servers: Vec<SocketAddr> = watched.iter().map(|one| one.server.address).collect();
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    let arrivals = arrivals(&mut random, 0, seconds, |_| RATE);
    let answers = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&mut sink, &known, &is_over));
        let answers = offer(hosts, &arrivals, &|_| servers[known.least()], &options.stop);
        is_over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader does not panic").and(answers)
    })?;
    watched.iter().try_for_each(|one| check_handler(&one.subscription))?;
    let reports = known.reports.load(Ordering::Relaxed);
    Ok(vec![EventsRow::of(Trial::Poll { period_ms }, "all", &answers, reports)])
}

/// Starts a server, and the handler that reports it.
fn watch(hosts: &Hosts, number: usize, period_ms: u64, channel: &str) -> Result<Watched> {
    // Attributes belong to a connection.
    let ecalls = Ecalls::connect(&hosts.client(SERVERS)?)?;
    let wanted = SubscriptionBuilder::to("timer")
        .option("period", format!("{period_ms}ms"))
        .code(HANDLER)
        .attribute("server", number as i64)
        .attribute("open", 0)
        .channel(Name::try_from(channel.to_owned())?);
    let subscription = ecalls.subscribe(&wanted).context("cannot install the handler")?;
    let open = ecalls.attribute("open")?;
    let server = Server::start(hosts, PORT + number as u16, 1, Work::Waits(WORK), &open)?;
    Ok(Watched { server, subscription, _ecalls: ecalls })
}

/// Opens the channel of the reports as soon as the manager's host knows it.
fn open(channels: &Channels, name: &str, stop: &Stop) -> Result<Channel> {
    let end = Instant::now() + PATIENCE;
    loop {
        stop.check()?;
        match channels.open(name) {
            Ok(channel) => return Ok(channel),
            Err(error) if Instant::now() > end => return Err(error).context("the reports do not arrive"),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

/// Takes reports until the run is over.
fn read(sink: &mut Sink, known: &Known, is_over: &AtomicBool) -> Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        if let Some(received) = sink.next(LOOK)? {
            known.take(received.event().payload);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_to_the_server_with_the_fewest_open_ones() {
        let known = Known::default();
        let report = |server: i64, open: i64| known.take(&[server.to_le_bytes(), open.to_le_bytes()].concat());
        let chosen: Vec<usize> = (0..4).map(|_| known.least()).collect();
        assert_eq!(chosen, [0, 1, 2, 3], "equal servers take turns");
        (0..4).for_each(|server| report(server, 5 - (server % 3)));
        assert_eq!((known.least(), known.least()), (2, 2));
        report(4, 0);
        report(-1, 0);
        known.take(&[0; 9]);
        assert_eq!((known.least(), known.reports.load(Ordering::Relaxed)), (2, 4));
    }
}
