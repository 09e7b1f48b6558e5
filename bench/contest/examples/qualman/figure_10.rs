//! Figure 10: the bandwidth that an application asks for, against the bandwidth that it gets.
//!
//! A film of 25 frames per second crosses a link to another network namespace, which a flood of eight flows fills. The
//! application's rate is translated into the rate on the link (`translate`), and the stream reserves this rate (HTB,
//! the mechanism of `qfabric net` on kernels without DWCS), or nothing. The receiver counts bytes and complete frames
//! of each second. In the paper the achieved rate ends at what the protocol can send; here it ends at what the link can
//! promise: the daemon's test refuses higher rates, because the link cannot carry them with their headers beside best
//! effort. They run all the same, on the largest rate that fits (a partial acceptance).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use qfabric_contest::actor::Actor;
use qfabric_contest::link::{INTERFACE, Link, Queue};
use qfabric_contest::regime::{Competitor, elevate};
use qfabric_contest::role::Role;
use qfabric_contest::work::Work;
use qfabric_linux::clock;
use qfabric_stream::sleep_until;
use qfabric_translate::{Host, Level, Profiles, Stream, translate};
use qfabric_types::api::net::{Flow, Protocol, Selector, StreamSpec};
use qfabric_types::{BitRate, Direction, Instant, LinkEnd, Nanos, ThreadId};

use crate::plot::{Curve, Panel};

const LINK_BPS: u64 = 20_000_000;
/// Asked rates of the application, in Mbit/s.
const RATES: [u64; 11] = [1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19];
const SHORT: [u64; 3] = [2, 8, 19];
const FRAMES_PER_S: u64 = 25;
const PERIOD: Nanos = Nanos::from_millis(1_000 / FRAMES_PER_S);
/// M_N, the default of the translation.
const PACKET: usize = 1_428;
/// Frame number, number of the packet, packets of the frame.
const HEADER: usize = 12;
const RUN_UP: Nanos = Nanos::from_millis(300);
const SECOND: Nanos = Nanos::from_millis(1_000);

/// The bytes and the complete frames of one second.
type Second = (u64, u64);

/// The seconds at one asked rate.
struct Point {
    mbps: u64,
    /// Whether the link promised all of it.
    is_whole: bool,
    seconds: Vec<Second>,
}

pub(crate) fn panels(short: bool) -> Result<Vec<Panel>> {
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root: run it with sudo");
    elevate(ThreadId(0), 40)?;
    let (rates, seconds) = if short { (&SHORT[..], 1) } else { (&RATES[..], 5) };
    let (mut reserved, mut best_effort) = (Vec::new(), Vec::new());
    for &mbps in rates {
        best_effort.push(measure(mbps, false, seconds)?);
        reserved.push(measure(mbps, true, seconds)?);
    }
    let (reserved, refused): (Vec<_>, Vec<_>) = reserved.into_iter().partition(|point| point.is_whole);
    let points = (&reserved[..], &refused[..], &best_effort[..]);
    let (bandwidth, frames) = ("achieved, Mbit/s", "complete frames per second");
    Ok(vec![
        panel("Figure 10: bandwidth on a flooded link of 20 Mbit/s", bandwidth, points, mbps_of),
        panel("Figure 10: frames of 25 asked per second", frames, points, |second| second.1 as f64),
    ])
}

fn mbps_of(second: &Second) -> f64 {
    second.0 as f64 * 8.0 / 1e6
}

/// The points of the granted reservations, of refused ones on the largest rate that fits, and without a reservation.
type Points<'a> = (&'a [Point], &'a [Point], &'a [Point]);

fn panel(title: &str, up: &str, (reserved, refused, other): Points<'_>, value: fn(&Second) -> f64) -> Panel {
    let curve = |name: &str, points: &[Point], choose: fn(&mut [f64]) -> f64| {
        let point =
            |point: &Point| (point.mbps as f64, choose(&mut point.seconds.iter().map(value).collect::<Vec<_>>()));
        Curve { name: name.into(), points: points.iter().map(point).collect() }
    };
    let curves = vec![
        curve("reserved, median second", reserved, median),
        curve("reserved, worst second", reserved, |values| values.iter().copied().fold(f64::INFINITY, f64::min)),
        curve("reserved, best second", reserved, |values| values.iter().copied().fold(0.0, f64::max)),
        curve("refused, on the largest rate that fits, median second", refused, median),
        curve("not reserved, median second", other, median),
    ];
    Panel::lines(title.into(), "asked by the application, Mbit/s", up, curves)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The film at one asked rate, reserved or not.
fn measure(mbps: u64, is_reserved: bool, seconds: u64) -> Result<Point> {
    let link = Link::new(LINK_BPS)?;
    let (from, to) = link.stream(0);
    let mut queue = link.set_scheduler(Competitor::Htb)?;
    let is_whole = is_reserved && reserve(&link, &mut queue, (from, to), mbps)?;
    let mut flood = Actor::spawn(&Role::Flood(link.discard()), Work::calibrate())?;
    let socket = UdpSocket::bind(from).context("the sender's address")?;
    socket.connect(to)?;
    // A film does not wait: packets that find the socket's buffer full are lost.
    socket.set_nonblocking(true)?;
    let start = clock::now() + RUN_UP;
    // The flood fills the queue before the film begins.
    let film = start + RUN_UP;
    let receiver = Receiver::start(&link, to, film, seconds)?;
    flood.begin(start)?;
    send(&socket, mbps, film, seconds);
    Ok(Point { mbps, is_whole, seconds: receiver.finish()? })
}

/// The rate on the link that the translation derives from the application's terms.
fn link_rate(mbps: u64) -> Result<BitRate> {
    let bytes = frame_bytes(mbps);
    let text = format!(
        "[video]\nframe_rate = {FRAMES_PER_S}\nframe_size = \"{bytes}B\"\n[local]\ninterface = \"{INTERFACE}\"\n\
         [peer]\nhost = \"viewer\"\ninterface = \"qfc1\""
    );
    let stream = Stream::parse(&text)?;
    let translation = translate(&stream, stream.quality(Level::Wanted), &Profiles::new())?;
    let (_, resources) = translation.resources.iter().find(|(host, _)| *host == Host::Local).context("a local part")?;
    Ok(resources.network(&LinkEnd { interface: INTERFACE.parse()?, direction: Direction::Out }))
}

fn frame_bytes(mbps: u64) -> usize {
    (mbps * 1_000_000 / 8 / FRAMES_PER_S) as usize
}

/// Reserves the rate on the link that the application needs. If the link refuses it, the refusal is printed, and the
/// largest rate that fits is reserved. Returns whether all of it was granted.
fn reserve(link: &Link, queue: &mut Queue, (source, destination): (SocketAddr, SocketAddr), mbps: u64) -> Result<bool> {
    let size = (link_rate(mbps)?.get() * PERIOD.get() / 8 / SECOND.get()) as u32;
    let selector = Selector::Flow(Flow { protocol: Protocol::Udp, source, destination });
    let stream = |size| StreamSpec { size, ..StreamSpec::new(selector.clone(), PERIOD) };
    let Err(refused) = link.admit(&[stream(size)]) else {
        queue.begin(&[stream(size)])?;
        return Ok(true);
    };
    let largest = link.largest(PERIOD);
    println!("{mbps} Mbit/s need {size} bytes in each {PERIOD} on the link: {refused}; it runs with {largest} bytes");
    queue.begin(&[stream(largest)])?;
    Ok(false)
}

/// Sends the frames of the film, each at the begin of its period.
fn send(socket: &UdpSocket, mbps: u64, start: Instant, seconds: u64) {
    let bytes = frame_bytes(mbps);
    let packets = bytes.div_ceil(PACKET);
    let mut buffer = [0; PACKET];
    for frame in 0..seconds * FRAMES_PER_S {
        sleep_until(start + PERIOD.saturating_mul(frame));
        for packet in 0..packets {
            let numbers = [frame as u32, packet as u32, packets as u32];
            buffer[..HEADER].copy_from_slice(&numbers.map(u32::to_le_bytes).concat());
            let length = (bytes - packet * PACKET).clamp(HEADER, PACKET);
            let _may_be_full = socket.send(&buffer[..length]);
        }
    }
}

/// The process that receives the film on the other host.
struct Receiver(Child);

impl Receiver {
    fn start(link: &Link, at: SocketAddr, start: Instant, seconds: u64) -> Result<Receiver> {
        let [program, words @ ..] = link.netns_command();
        let mut command = Command::new(program);
        command.args(words).arg(std::env::current_exe()?).arg("receive");
        command.args([at.to_string(), start.get().to_string(), seconds.to_string()]);
        Ok(Receiver(command.stdout(Stdio::piped()).spawn().context("the receiver")?))
    }

    fn finish(mut self) -> Result<Vec<Second>> {
        let output = BufReader::new(self.0.stdout.take().context("piped")?);
        let second = |line: std::io::Result<String>| {
            let line = line?;
            let (bytes, frames) = line.split_once(' ').context("two numbers")?;
            Ok((bytes.parse()?, frames.parse()?))
        };
        let seconds = output.lines().map(second).collect();
        ensure!(self.0.wait()?.success(), "the receiver failed; its message is above");
        seconds
    }
}

/// The receiver's side: prints bytes and complete frames of each second. A packet counts in the second in which it
/// arrives, a frame in that of its last packet.
pub(crate) fn receive(words: &[String]) -> Result<()> {
    let [at, start, seconds] = words else { anyhow::bail!("usage: receive ADDRESS START SECONDS") };
    let socket = UdpSocket::bind(at.parse::<SocketAddr>()?)?;
    socket.set_read_timeout(Some(std::time::Duration::from_millis(10)))?;
    elevate(ThreadId(0), 41)?;
    let (start, count) = (Instant::new(start.parse()?), seconds.parse::<usize>()?);
    let (mut seconds, mut open) = (vec![(0, 0); count], BTreeMap::<u32, u32>::new());
    let mut buffer = [0; 2_048];
    loop {
        let received = socket.recv(&mut buffer);
        let second = (clock::now().since(start).get() / SECOND.get()) as usize;
        // The last frames may still be under way; they count in the last second.
        if clock::now() >= start + SECOND.saturating_mul(count as u64) + PERIOD {
            break;
        }
        let Ok(length) = received else { continue };
        let second = &mut seconds[second.min(count - 1)];
        second.0 += length as u64;
        let [frame, packets] = [0, 8].map(|at| u32::from_le_bytes(std::array::from_fn(|byte| buffer[at + byte])));
        let arrived = open.entry(frame).or_default();
        *arrived += 1;
        second.1 += u64::from(*arrived == packets);
    }
    seconds.iter().for_each(|(bytes, frames)| println!("{bytes} {frames}"));
    Ok(())
}
