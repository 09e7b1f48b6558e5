//! `qfabric net profile` and `qfabric net answer`: measure the delay of messages from end to end, by message size and
//! granted rate (QualMan §5.1.2).

mod sender;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use comfy_table::CellAlignment;
use qfabric_client::Client;
use qfabric_daemon::answer::{self, Answerer, MOST_BYTES, PORT};
use qfabric_types::api::net::{Flow, InterfaceInfo, Protocol, Selector, StreamId, StreamSpec};
use qfabric_types::{BitRate, Bytes, DelayPoint, DelayProfile, Nanos};

use super::stream::only_attached;
use crate::connect::{self, Daemon};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::{output, profiles};
use sender::{NoAnswer, Sender};

/// Largest number of messages of one size and rate.
const MOST_MESSAGES: i64 = 10_000;
/// Shortest period of the stream.
const PERIOD: Nanos = Nanos::from_millis(10);
/// Longest period of the stream, which users other than root may have.
const LONGEST_PERIOD: Nanos = Nanos::from_millis(1_000);

/// Measures the delay of messages to another host, by message size and granted rate.
///
/// For each rate, adds a stream of this rate for its own datagrams, sends messages of each size, and removes the
/// stream. On the other host `qfabric net answer` must run, or a daemon with `answer` in its section [net]; it
/// acknowledges complete messages. The delay is the time from the first byte sent to the acknowledgment, minus half of
/// the shortest round trip (QualMan §5.1.2). Stores the result as a profile of the host, interface and kernel, which
/// `qfabric net stream add --measured HOST --delay` uses. Ctrl-C removes the stream and stores nothing. Users may
/// measure on links that root opened. Ends with 3 if nobody answers, or if the link refuses a stream.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples: qfabric net profile 10.0.0.2
          qfabric net profile beta --interface eth0 --sizes 20kB,80kB,230kB --rates 5M,20M --count 200 --json")]
pub(super) struct Args {
    /// Name or address of the other host
    host: String,
    /// Interface through which the messages leave [default: the only attached interface]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Message sizes, up to 1 MiB, with commas between them
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "1kB,20kB,50kB,110kB,230kB")]
    sizes: Vec<Bytes>,
    /// Rates of the stream in bits per second, with commas between them [default: a quarter, a half and three quarters of
    /// the free rate]
    #[arg(long, value_name = "BITS,…", value_delimiter = ',')]
    rates: Vec<BitRate>,
    /// Number of messages of each size and rate, 1 to 10000; with fewer than 100, p99 is the longest delay
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=MOST_MESSAGES))]
    count: u32,
    /// Port of `qfabric net answer`
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Acknowledges the messages of `qfabric net profile` on another host, until Ctrl-C.
///
/// Needs no daemon; a daemon with `answer = 59714` in its section [net] does the same. Everybody who can reach the port
/// can send messages; an answer is shorter than its message.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric net answer")]
pub(super) struct AnswerArgs {
    /// Address to listen on [default: all addresses]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// UDP port
    #[arg(long, default_value_t = PORT)]
    port: u16,
}

pub(super) fn answer(args: AnswerArgs) -> Outcome {
    let stop = interrupted()?;
    let port = args.port;
    let failed = |error| Failure::fault(format!("cannot answer at port {port}: {error}; choose another --port"));
    let socket = answer::listen(args.listen, port).map_err(failed)?;
    output::note(format_args!("answering at {} until Ctrl-C", socket.local_addr().map_err(failed)?));
    let answered = Answerer::default().run(&socket, &stop).map_err(failed)?;
    output::print(&format!("{answered} messages answered\n"))?;
    Ok(Done(0))
}

pub(super) fn run(args: Args) -> Outcome {
    let stop = interrupted()?;
    check(&args)?;
    let client = args.daemon.client()?;
    let interface = match &args.interface {
        Some(interface) => interface.clone(),
        None => only_attached(&client)?,
    };
    let info = client.interface(&interface).map_err(connect::failure)?;
    let file = file(&args.host, &interface)?;
    let to = resolve(&args.host, args.port)?;
    let rates = if args.rates.is_empty() { parts_of_free(&info) } else { args.rates.clone() };
    let sender = Sender::to(to, &stop)?;
    let mut measurement = Measurement { args: &args, client, interface, link_bps: info.rate_bps, sender };
    let profile = measurement.profile(&rates)?;
    profiles::store(&file, &profile)?;
    match args.json {
        true => output::print_json(&serde_json::json!({ "stored": file, "profile": profile }))?,
        false => output::print(&format!("{}stored in {}\n", text(&profile), file.display()))?,
    }
    Ok(Done(0))
}

/// The stored profile of a host for this kernel.
pub(super) fn stored(host: &str, interface: &str) -> Result<DelayProfile, Failure> {
    profiles::read(&file(host, interface)?, &format!("qfabric net profile {host} --interface {interface}"))
}

/// The file of a profile. Its name has the host, the interface and the kernel, for which alone the delays hold.
pub(crate) fn file(host: &str, interface: &str) -> Result<PathBuf, Failure> {
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "-_.:".contains(c) { c } else { '_' };
    let kernel = qfabric_client::platform().kernel;
    profiles::delays(&format!("net-{host}-{interface}-{kernel}").chars().map(harmless).collect::<String>())
}

fn check(args: &Args) -> Result<(), Failure> {
    let is_sent = |size: &&Bytes| (1..=MOST_BYTES).contains(&size.get());
    if let Some(size) = args.sizes.iter().find(|size| !is_sent(size)) {
        return Err(Failure::usage(format!("a message has {} bytes; use 1 to {} (1 MiB)", size.get(), MOST_BYTES)));
    }
    if let Some(rate) = args.rates.iter().find(|rate| **rate < slowest()) {
        return Err(Failure::usage(format!("the rate is {rate}; use at least {}", slowest())));
    }
    let rates = if args.rates.is_empty() { DEFAULT_PARTS.len() } else { args.rates.len() };
    let points = args.sizes.len() * rates;
    if points > DelayProfile::MOST_POINTS {
        let most = DelayProfile::MOST_POINTS;
        return Err(Failure::usage(format!("{points} sizes and rates together; use at most {most}")));
    }
    Ok(())
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let unknown = |why: String| Failure::usage(format!("{host:?} is not a host ({why}); use its name or address"));
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    addresses.next().ok_or_else(|| unknown("it has no address".to_owned()))
}

/// Bits of the largest packet.
const PACKET_BITS: u64 = StreamSpec::LARGEST_PACKET as u64 * 8;

/// The slowest rate: the largest packet in the longest period.
fn slowest() -> BitRate {
    BitRate::new((PACKET_BITS * 1_000_000_000).div_ceil(LONGEST_PERIOD.get()))
}

/// Packets of the link's rate in the shortest period. DWCS subtracts two packets of each period, which may be on their
/// way when the period begins: 5 % of the link.
const PACKETS: u64 = 40;

/// The period in which a stream of this rate sends at least one of the largest packets, and in which a link of
/// `link_bps` sends many.
fn period(rate: BitRate, link_bps: u64) -> Nanos {
    let time = |packets: u64, bps: u64| Nanos::new((packets * PACKET_BITS * 1_000_000_000).div_ceil(bps.max(1)));
    time(1, rate.get()).max(time(PACKETS, link_bps).min(LONGEST_PERIOD)).max(PERIOD)
}

/// Parts of the free rate that are measured by default.
const DEFAULT_PARTS: [f64; 3] = [0.25, 0.5, 0.75];

/// A quarter, a half and three quarters of the rate that is free.
fn parts_of_free(info: &InterfaceInfo) -> Vec<BitRate> {
    let unpromised = info.rate_bps as f64 * (1.0 - info.best_effort.as_f64() - info.utilization).max(0.0);
    let free = info.link.as_ref().map_or(unpromised, |link| link.free_bps.as_f64());
    let parts = DEFAULT_PARTS.map(|part| BitRate::new((free * part) as u64));
    parts.into_iter().map(|rate| rate.max(slowest())).collect()
}

/// A measurement in progress.
struct Measurement<'a> {
    args: &'a Args,
    client: Client,
    interface: String,
    /// The rate for which the interface admits streams.
    link_bps: u64,
    sender: Sender<'a>,
}

impl Measurement<'_> {
    fn profile(&mut self, rates: &[BitRate]) -> Result<DelayProfile, Failure> {
        let shortest = self.sender.shortest_round_trip().map_err(|why| self.failure(why))?;
        output::note(format_args!("{}: shortest round trip {shortest}", self.args.host));
        let mut points = Vec::new();
        for rate in rates {
            points.extend(self.at_rate(*rate, shortest)?);
        }
        let interface = self.interface.parse().map_err(Failure::usage)?;
        Ok(DelayProfile {
            host: self.args.host.clone(),
            interface,
            kernel: qfabric_client::platform().kernel,
            min_rtt: shortest,
            points,
        })
    }

    /// The delays of all sizes under one rate. The stream ends in any case; with the process at the latest.
    fn at_rate(&mut self, rate: BitRate, shortest: Nanos) -> Result<Vec<DelayPoint>, Failure> {
        let id = self.begin(rate)?;
        let measured = self.sizes(id, rate, shortest);
        let ended = self.client.end_stream(&self.interface, id).map_err(connect::failure);
        let points = measured?;
        ended.map(|()| points)
    }

    fn begin(&self, rate: BitRate) -> Result<StreamId, Failure> {
        let flow = Flow { protocol: Protocol::Udp, source: self.sender.from()?, destination: self.sender.to_address() };
        let mut spec = StreamSpec::new(Selector::Flow(flow), period(rate, self.link_bps));
        spec.size = spec.size_at(rate).max(StreamSpec::LARGEST_PACKET);
        spec.terms.holder = Some(std::process::id() as i32);
        Ok(self.client.begin_stream(&self.interface, &spec).map_err(connect::failure)?.id)
    }

    fn sizes(&mut self, id: StreamId, rate: BitRate, shortest: Nanos) -> Result<Vec<DelayPoint>, Failure> {
        let mut points = Vec::new();
        for size in &self.args.sizes {
            let measured = self.sender.measure(*size, rate, self.args.count, shortest);
            let point = measured.map_err(|why| self.failure(why))?;
            let DelayPoint { p50, p99, arrived, lost, .. } = point;
            output::note(format_args!("{rate}, {size}: p50 {p50}, p99 {p99}; {arrived} arrived, {lost} lost"));
            points.extend((arrived > 0).then_some(point));
        }
        self.check_way(id)?;
        Ok(points)
    }

    /// Checks that the messages went through the stream.
    fn check_way(&self, id: StreamId) -> Result<(), Failure> {
        let info = self.client.interface(&self.interface).map_err(connect::failure)?;
        let sent = info.streams.iter().find(|stream| stream.id == id).map_or(0, |stream| stream.counters.sent);
        let (host, interface) = (&self.args.host, &self.interface);
        match sent {
            0 => Err(Failure::refused(format!(
                "messages to {host} do not leave through {interface}; name their --interface"
            ))),
            _ => Ok(()),
        }
    }

    fn failure(&self, why: NoAnswer) -> Failure {
        match why {
            NoAnswer::Failed(failure) => failure,
            NoAnswer::Lost => self.sender.nobody(),
            NoAnswer::Stopped => Failure::fault("stopped before everything was measured; nothing is stored"),
        }
    }
}

fn text(profile: &DelayProfile) -> String {
    let DelayProfile { host, interface, min_rtt, points, .. } = profile;
    let mut table = output::new_table(["message", "rate", "p50", "p99", "arrived", "lost"]);
    for DelayPoint { message_bytes, rate_bps, p50, p99, arrived, lost } in points {
        let cells = [message_bytes.to_string(), rate_bps.to_string(), p50.to_string(), p99.to_string()];
        table.add_row(cells.into_iter().chain([arrived.to_string(), lost.to_string()]));
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("{host} through {interface}: shortest round trip {min_rtt}\n{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_of_a_stream_has_room_for_the_largest_packet() {
        let fast = 1_000_000_000;
        for (rate, link, ms) in [
            (10_000_000, fast, 10),
            (1_211_200, fast, 10),
            (605_600, fast, 20),
            (5_000_000, 12_112_000, 40),
            (500_000, 400_000, 1_000),
            (slowest().get(), fast, 1_000),
        ] {
            let rate = BitRate::new(rate);
            let spec = StreamSpec::new(Selector::Mark(1), period(rate, link));
            assert_eq!(spec.period, Nanos::from_millis(ms), "{rate}");
            assert!(spec.size_at(rate) >= StreamSpec::LARGEST_PACKET, "{rate}");
        }
    }

    #[test]
    fn the_file_of_a_profile_names_host_interface_and_kernel() {
        let name = file("a/../b", "eth0").unwrap_or_else(|why| panic!("{why:?}"));
        let name = name.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("net-a_.._b-eth0-") && name.ends_with(".json"), "{name}");
    }
}
