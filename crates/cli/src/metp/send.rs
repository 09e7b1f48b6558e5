//! `qfabric metp send`: sends the frames of a video file, each with its deadline.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use qfabric_carrier::{
    ClientConnection, Congestion, DropReason, End, Error, Event, Mode, Options, Outcome as Sent, RateGrant, Target,
    Tls, resolve,
};
use qfabric_types::BitRate;
use qfabric_types::channel::Name;
use std::net::SocketAddr;

use super::frames::Frames;
use super::identity::{EngineName, Identity};
use super::joint::Joint;
use super::pace::Pace;
use super::rate::{self, Source, Terms, duration};
use super::{failure, report};
use crate::connect::Daemon;
use crate::contracts::read_stream;
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted_or_hung_up;
use crate::net::delay_profile;
use crate::output;

/// How long one frame waits for room before Ctrl-C is looked at.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);
/// How long the end waits for the last acknowledgments in partially reliable mode, beyond the last deadline. Frames
/// without a deadline may take any time.
const LAST_ACKNOWLEDGMENTS: Duration = Duration::from_secs(5);

/// Sends the frames of a video file to a receiver, each with its deadline.
///
/// The contract gives the frame rate, the deadline, the largest frame, the reliability and the rate. If a daemon runs
/// here and the contract names an interface, the rate is reserved for the connection, and frames are sent at that rate.
/// Otherwise nothing is reserved, and congestion control decides. While the rate is reserved, the measured delays of
/// the frames update the profile of the receiver that `qfabric net profile` made. In partially reliable mode, frames
/// that would be late are dropped as a whole, B frames first. ffprobe finds the frames; the file may be an elementary
/// stream or a container that ffmpeg can read. Ends with 1 if the connection is lost, and with 3 if the receiver or the
/// daemon refuses, or if frames are too large for the receiver.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric metp send --to 192.0.2.7:7800 --tls ./cam --contract stream.toml video.mpg
          qfabric metp send --to wall:7800 --tls ./cam --contract stream.toml video.264 --mode reliable --fast
          qfabric metp send --to 10.9.0.2:7800 --tls ./cam --contract stream.toml video.264 --lab-rate 28M --json")]
pub(super) struct Args {
    /// Receiver, HOST:PORT
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// Contract: a stream file, as for qfabric contract explain
    #[arg(long, value_name = "FILE")]
    contract: PathBuf,
    /// Video file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    identity: Identity,
    /// Name that the receiver's certificate must have [default: the peer of the contract, if it is on the access list;
    /// else any host on this list]
    #[arg(long, value_name = "NAME")]
    expect: Option<Name>,
    /// Own address and port [default: the system chooses them]
    #[arg(long, value_name = "HOST:PORT")]
    from: Option<String>,
    /// Reliability [default: the contract's]
    #[arg(long, value_name = "MODE")]
    mode: Option<ModeName>,
    /// How messages travel over QUIC
    #[arg(long, value_name = "ENGINE", default_value = "metp")]
    engine: EngineName,
    /// Congestion control while nothing is reserved
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: CongestionName,
    /// Send as fast as the receiver takes frames, instead of at the frame rate
    #[arg(long)]
    fast: bool,
    /// Reserve nothing, even if a daemon runs
    #[arg(long, conflicts_with = "lab_rate")]
    best_effort: bool,
    /// Reserve CPU, memory and bandwidth of the contract on both hosts together, or send nothing
    ///
    /// The amounts are those of qfabric contract explain at the best quality. This process runs with the CPU time and the
    /// memory of its host and sends at the rate of its host. The contract's identity is printed: on the other host, qfabric
    /// run --contract ID gives the receiver its part. The contract ends with this command.
    #[arg(long, conflicts_with_all = ["lab_rate", "best_effort"])]
    joint: bool,
    /// Code point of all packets, for routers and access points, such as 46 (expedited forwarding)
    #[arg(long, value_name = "0-63", value_parser = clap::value_parser!(u8).range(0..=i64::from(Options::MOST_DSCP)))]
    dscp: Option<u8>,
    /// Send at this rate although nobody reserved it, such as 28M: only on links of a laboratory, because it takes the
    /// bandwidth of all other flows
    #[arg(long, value_name = "RATE")]
    lab_rate: Option<BitRate>,
    /// Host whose stored profile of delays the frames update [default: the host in --to, if it has a profile]
    #[arg(long, value_name = "HOST", conflicts_with_all = ["lab_rate", "best_effort"])]
    measured: Option<String>,
    /// Print statistics as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ModeName {
    /// Every byte arrives, in order
    Reliable,
    /// Deadlines come first
    Partial,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CongestionName {
    /// Shares a link fairly with TCP
    Cubic,
    /// Measures the rate of the path
    Bbr,
}

pub(super) fn run(args: &Args) -> Outcome {
    let stream = read_stream(&args.contract)?;
    let mut terms = Terms::of(&stream).map_err(|failure| failure.context(args.contract.display()))?;
    match args.mode {
        Some(ModeName::Reliable) => terms.mode = Mode::TotallyReliable,
        Some(ModeName::Partial) => terms.mode = Mode::PartiallyReliable,
        None => {}
    }
    // The video of a container is in a temporary file, which is removed at the end.
    let stop = interrupted_or_hung_up()?;
    let tls = args.identity.tls()?;
    let mut frames = Frames::open(&args.file, terms.largest.get())?;
    let joint = args.joint.then(|| Joint::begin(&stream, &args.daemon)).transpose()?;
    let expected = stream.peer.map(|peer| peer.host).filter(|host| tls.access.hosts.contains(host));
    let connection = open(args, tls, options(args, &terms), expected)?;
    let source = match &joint {
        Some(joint) => Source::Reservation(joint.grant_rate(&connection, &terms)?),
        None => source(args, &connection, &terms)?,
    };
    if let Some(joint) = &joint {
        output::note(joint.text());
    }
    say(&source, &connection, &terms, args);
    renew_profile(args, &connection, &terms, &source)?;
    let begun = Instant::now();
    let sent = transmit(args, &connection, &terms, &mut frames, &stop);
    let end = sent.and_then(|()| finish(&connection, &terms, &stop));
    print(args, &connection, end.as_ref().ok(), begun.elapsed())?;
    match end? {
        End::Finished if connection.statistics().session.dropped_too_large > 0 => Err(too_large(&terms)),
        End::Finished => Ok(Done(0)),
        End::Closed if stop.load(Ordering::Relaxed) => Err(Failure::fault("interrupted before all frames were sent")),
        End::Closed => {
            Err(Failure::fault("the receiver did not acknowledge the last frames in time; some may be lost"))
        }
        other => Err(failure(&Error::Ended(other))),
    }
}

fn options(args: &Args, terms: &Terms) -> Options {
    Options {
        engine: args.engine.into(),
        congestion: match args.congestion {
            CongestionName::Cubic => Congestion::Cubic,
            CongestionName::Bbr => Congestion::Bbr,
        },
        mode: terms.mode,
        rate: args.lab_rate.unwrap_or(terms.rate),
        largest_message: terms.largest,
        send_time: terms.deadline.map(duration),
        mtu: args.identity.mtu,
        dscp: args.dscp,
        ..Options::default()
    }
}

fn open(args: &Args, tls: Tls, options: Options, expected: Option<Name>) -> Result<ClientConnection, Failure> {
    let address = |text: &String| -> Result<SocketAddr, Failure> { resolve(text).map_err(|error| failure(&error)) };
    let target = Target {
        peer: address(&args.to)?,
        local: args.from.as_ref().map(address).transpose()?,
        service: args.identity.service.clone(),
        host: args.expect.clone().or(expected),
    };
    ClientConnection::open(target, tls, options).map_err(|error| failure(&error))
}

fn source(args: &Args, connection: &ClientConnection, terms: &Terms) -> Result<Source, Failure> {
    match args.lab_rate {
        Some(rate) => {
            connection.grant(Some(RateGrant::laboratory(rate))).map_err(|error| failure(&error))?;
            Ok(Source::Laboratory(rate))
        }
        None if args.best_effort => Ok(Source::Nothing("--best-effort".to_owned())),
        None => rate::reserve(connection, terms, &args.daemon),
    }
}

/// What the user has to know about the rate.
fn say(source: &Source, connection: &ClientConnection, terms: &Terms, args: &Args) {
    let peer = connection.peer();
    match source {
        Source::Reservation(rate) => output::note(format_args!("to {peer}: {rate} are reserved")),
        Source::Laboratory(rate) => output::note(format_args!(
            "to {peer}: WARNING: sending at {rate} that nobody reserved, without congestion control; for laboratories only"
        )),
        Source::Nothing(why) => output::note(format_args!(
            "to {peer}: nothing is reserved ({why}); {:?} decides the rate, at most {}",
            args.congestion, terms.rate
        )),
    }
}

/// Lets the frames renew the stored profile of the receiver, if their rate is reserved and there is a profile.
fn renew_profile(args: &Args, connection: &ClientConnection, terms: &Terms, source: &Source) -> Result<(), Failure> {
    let (Source::Reservation(_), Some(interface)) = (source, &terms.interface) else {
        if args.measured.is_some() {
            output::note("no profile is renewed, because nothing is reserved");
        }
        return Ok(());
    };
    let host = args.measured.as_deref().unwrap_or_else(|| host_of(&args.to));
    let file = delay_profile(host, interface.as_str());
    if args.measured.is_none() && !file.as_ref().is_ok_and(|file| file.exists()) {
        return Ok(());
    }
    let file = file?;
    connection.record_delays(&file, &terms.sizes).map_err(|error| failure(&error))?;
    output::note(format_args!("renewing {}", file.display()));
    Ok(())
}

/// The host of `HOST:PORT`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Sends all frames, until Ctrl-C.
fn transmit(
    args: &Args,
    connection: &ClientConnection,
    terms: &Terms,
    frames: &mut Frames,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let progress = progress(frames.length());
    let mut pace = Pace::new((!args.fast).then(|| duration(terms.period)));
    while let Some(frame) = frames.next()? {
        if !pace.wait(stop) {
            break;
        }
        let size = frame.data.len() as u64;
        let deadline = terms.deadline.map(duration);
        let mut data = frame.data;
        loop {
            match connection.try_send(frame.kind, data, deadline, SIGNAL_CHECK) {
                Ok(_) => break,
                Err((Error::TimeOut { .. }, unsent)) if !stop.load(Ordering::Relaxed) => data = unsent,
                Err((Error::TimeOut { .. }, _)) => break,
                Err((error, _)) => return Err(failure(&error)),
            }
        }
        progress.inc(size);
        if warn(connection) {
            return Err(too_large(terms));
        }
    }
    progress.finish_and_clear();
    Ok(())
}

fn progress(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}");
    let bar = ProgressBar::new(bytes);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

/// Says what the user has to know. Returns whether the receiver takes only smaller frames.
fn warn(connection: &ClientConnection) -> bool {
    let mut is_too_large = false;
    while let Ok(event) = connection.event(Duration::ZERO) {
        match event {
            Event::Outcome { outcome: Sent::Dropped(DropReason::TooLargeForPeer), .. } => is_too_large = true,
            Event::Revoked(why) => {
                output::note(format_args!("the granted rate is revoked: {why}; congestion control decides from now on"))
            }
            Event::CarrierLost { why, .. } => output::note(format_args!("a carrier is lost: {why}")),
            _ => {}
        }
    }
    is_too_large
}

/// A part of a video without its large frames is of no use, whatever the mode.
fn too_large(terms: &Terms) -> Failure {
    Failure::refused(format!(
        "the receiver accepts only smaller frames than the video has\ntry: `qfabric metp recv --largest {}B` there",
        terms.largest.get()
    ))
}

/// Lets everything arrive, then ends the connection.
fn finish(connection: &ClientConnection, terms: &Terms, stop: &AtomicBool) -> Result<End, Failure> {
    let ended = |error: Error| failure(&error);
    if stop.load(Ordering::Relaxed) {
        connection.close();
        return connection.wait_for_end(LAST_ACKNOWLEDGMENTS).map_err(ended);
    }
    connection.finish().map_err(ended)?;
    let deadline = terms.deadline.filter(|_| terms.mode == Mode::PartiallyReliable);
    let until = deadline.map(|deadline| Instant::now() + duration(deadline) + LAST_ACKNOWLEDGMENTS);
    loop {
        match connection.wait_for_end(SIGNAL_CHECK) {
            Ok(end) => return Ok(end),
            Err(Error::TimeOut { .. }) => {}
            Err(error) => return Err(ended(error)),
        }
        let is_late = until.is_some_and(|until| Instant::now() > until);
        if is_late || stop.load(Ordering::Relaxed) {
            connection.close();
        }
    }
}

fn print(args: &Args, connection: &ClientConnection, end: Option<&End>, time: Duration) -> Result<(), Failure> {
    warn(connection);
    let statistics = connection.statistics();
    if let Some(why) = &statistics.renewal_failure {
        output::note(format_args!("the profile of delays is not renewed any more: {why}"));
    }
    let report = report::sent(&statistics, end, time);
    if args.json {
        return output::print_json(&report);
    }
    let keys = [
        ("frames", "{} frames"),
        ("delivered", "{} delivered"),
        ("partly", "{} in part"),
        ("expired", "{} expired"),
        ("dropped", "{} dropped"),
        ("retransmissions", "{} retransmissions"),
        ("profile_renewals", "profile renewed {} times"),
        ("min_rtt_ms", "round trip {} ms"),
        ("seconds", "in {} s"),
    ];
    output::print(&format!("{}\n", report::line(&report, &keys)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_has_neither_port_nor_brackets() {
        assert_eq!(["wall:7800", "[fd00::7]:7800", "wall"].map(host_of), ["wall", "fd00::7", "wall"]);
    }
}
