//! `qfabric metp recv`: receives frames and writes them to the standard output.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_carrier::{Connection, End, Error, Message, Options, ServerConnection, resolve};
use qfabric_types::{Bytes, Nanos};

use super::identity::Identity;
use super::rate::duration;
use super::{failure, report};
use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::output;

/// Longest time without a check whether Ctrl-C was pressed.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);
/// For the answer to the sender's last frames.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Receives the frames of one sender and writes them to the standard output.
///
/// Any player can read them from there. Hosts with the right `connect` on the service, in the access list of this host,
/// may send. Ends when the sender has finished, or after Ctrl-C. Statistics go to the standard error. Ends with 1 if the
/// sender is lost or falls silent.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric metp recv --listen 7800 --tls ./wall | ffplay -
          qfabric metp recv --listen 192.0.2.7:7800 --tls ./wall --out video.264 --json")]
pub(super) struct Args {
    /// Port at which to listen, or ADDRESS:PORT [default address: all addresses of this host]
    #[arg(long, value_name = "PORT")]
    listen: String,
    #[command(flatten)]
    identity: Identity,
    /// Largest frame that is received
    #[arg(long, value_name = "BYTES", default_value = "1MiB")]
    largest: Bytes,
    /// In partially reliable mode: longest time from the first part of a frame to its delivery [default: the sender's
    /// deadline decides]
    #[arg(long, value_name = "TIME")]
    receive_time: Option<Nanos>,
    /// Write frames that did not arrive completely too, with zeros for the missing parts
    #[arg(long)]
    incomplete: bool,
    /// Write to this file instead of the standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print statistics as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let stop = interrupted()?;
    let options = Options {
        largest_message: args.largest,
        receive_time: args.receive_time.map(duration),
        mtu: args.identity.mtu,
        ..Options::default()
    };
    let server = ServerConnection::register(
        args.identity.service.clone(),
        address(&args.listen)?,
        args.identity.tls()?,
        options,
    );
    let server = server.map_err(|error| failure(&error))?;
    // Not before: a command that is refused does not empty an earlier recording.
    let mut sink = sink(args)?;
    output::note(format_args!("the service {} listens on {}", args.identity.service, server.address()));
    let Some(connection) = accept(&server, &stop)? else { return Ok(Done(0)) };
    output::note(format_args!("from {}", connection.peer()));
    let begun = Instant::now();
    let written = copy(&connection, sink.as_mut(), args.incomplete, &stop);
    if !matches!(written, Ok(Copied::Ended(_))) {
        connection.close();
    }
    let end = connection.wait_for_end(LAST_WORDS).ok();
    print(args, &connection, end.as_ref(), begun.elapsed())?;
    match written? {
        Copied::Ended(End::Finished) | Copied::Stopped => Ok(Done(0)),
        Copied::Ended(end) => Err(failure(&Error::Ended(end))),
    }
}

/// `PORT`, or `ADDRESS:PORT`.
fn address(text: &str) -> Result<SocketAddr, Failure> {
    match text.parse::<u16>() {
        Ok(port) => {
            // A socket of IPv6 also takes packets of IPv4; a host may have no IPv6.
            let has_v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
            let all: IpAddr = if has_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            Ok(SocketAddr::new(all, port))
        }
        Err(_) => resolve(text).map_err(|error| failure(&error)),
    }
}

fn sink(args: &Args) -> Result<Box<dyn Write>, Failure> {
    let Some(path) = &args.out else { return Ok(Box::new(io::stdout().lock())) };
    let file = File::create(path);
    let file = file.map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))?;
    Ok(Box::new(file))
}

fn accept(server: &ServerConnection, stop: &AtomicBool) -> Result<Option<Connection>, Failure> {
    while !stop.load(Ordering::Relaxed) {
        match server.accept(SIGNAL_CHECK) {
            Ok(connection) => return Ok(Some(connection)),
            Err(Error::TimeOut { .. }) => {}
            Err(error) => return Err(failure(&error)),
        }
    }
    Ok(None)
}

/// Why no more frames are written.
enum Copied {
    Ended(End),
    /// By Ctrl-C, or because the reader of the standard output has gone.
    Stopped,
}

fn copy(
    connection: &Connection,
    sink: &mut dyn Write,
    is_incomplete_wanted: bool,
    stop: &AtomicBool,
) -> Result<Copied, Failure> {
    while !stop.load(Ordering::Relaxed) {
        match connection.receive(SIGNAL_CHECK) {
            Ok(message) if message.is_complete() || is_incomplete_wanted => {
                if !write(sink, &message)? {
                    return Ok(Copied::Stopped);
                }
            }
            Ok(_) | Err(Error::TimeOut { .. }) => {}
            Err(Error::Ended(end)) => return Ok(Copied::Ended(end)),
            Err(error) => return Err(failure(&error)),
        }
        finish_with_sender(connection)?;
    }
    Ok(Copied::Stopped)
}

/// This side has nothing to send: it finishes when the sender does.
fn finish_with_sender(connection: &Connection) -> Result<(), Failure> {
    while let Ok(event) = connection.event(Duration::ZERO) {
        if event == qfabric_carrier::Event::PeerFinished && connection.ended().is_none() {
            // It may have ended in between.
            let _ = connection.finish();
        }
    }
    Ok(())
}

/// Returns false if nobody reads any more.
fn write(sink: &mut dyn Write, message: &Message) -> Result<bool, Failure> {
    match sink.write_all(&message.data).and_then(|()| sink.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::fault(format!("cannot write a frame: {error}"))),
    }
}

fn print(args: &Args, connection: &Connection, end: Option<&End>, time: Duration) -> Result<(), Failure> {
    let report = report::received(&connection.statistics(), end, time);
    let keys = [
        ("frames", "{} frames"),
        ("in_time", "{} in time"),
        ("with_holes", "{} with holes"),
        ("skipped", "{} skipped"),
        ("delay_p50_ms", "delay p50 {} ms"),
        ("delay_p99_ms", "p99 {} ms"),
        ("seconds", "in {} s"),
    ];
    match (args.json, args.out.is_some()) {
        (true, true) => output::print_json(&report),
        (true, false) => {
            output::note(report);
            Ok(())
        }
        (false, _) => {
            output::note(report::line(&report, &keys));
            Ok(())
        }
    }
}
