//! The processes of a stream: a sender that keeps the pace, a receiver that notes when each frame is ready.
//!
//! | process | line | meaning |
//! |---|---|---|
//! | both → conductor | `ready` | the receiver listens; the sender is connected |
//! | conductor → sender | `START CONTRACT` | ns of CLOCK_MONOTONIC of the first frame; the contract to draw from, or `-` |
//! | receiver → conductor | `frame NUMBER NS`, `end` | the frames that came, after the end of its input |

use std::fs::OpenOptions;
use std::io::{BufRead, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use qfabric_carrier::{
    ClientConnection, DeliveryOrder, Error, FrameKind, Mode, Options, ServerConnection, Target, Tls, default_service,
};
use qfabric_client::Client;
use qfabric_types::{BitRate, Bytes, Nanos};
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};

use super::daemons::INTERFACE;
use crate::clip::pictures;

/// The sender waits as long for room in the queue before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// End-to-end delay of the paper's sample (§6.4), after which a frame is dropped.
const DELAY: Duration = Duration::from_millis(300);
/// Due time and number at the start of each frame.
const STAMP: usize = 12;

/// What both processes know.
struct Part {
    tls: Tls,
    socket: PathBuf,
    address: SocketAddr,
    frames: u32,
    bytes: usize,
    period_ns: u64,
    rate: BitRate,
    /// Time from when a frame is due until it is shown; zero: frames are shown when they come.
    play_out_ns: u64,
    /// The clip of the sender or the FIFO of the receiver's decoder, for compressed frames.
    file: Option<PathBuf>,
}

/// Plays `send` or `receive` with `TLS HOST SOCKET ADDRESS FRAMES BYTES PERIOD RATE PLAYOUT FILE`, or `flood` with
/// `TLS HOST SOCKET ADDRESS RATE`.
pub(crate) fn play(part: &str, words: &[&str]) -> Result<()> {
    if let ("flood", [_, _, _, address, rate]) = (part, words) {
        return flood(address.parse()?, rate.parse()?);
    }
    let [tls, host, socket, address, frames, bytes, period, rate, play_out, file] = words[..] else {
        bail!("{part} needs ten words, not {}", words.len());
    };
    let tls = Path::new(tls);
    let role = Part {
        tls: Tls::from_folder(tls, &host.parse()?, &tls.join("access.toml"))?,
        socket: socket.into(),
        address: address.parse()?,
        frames: frames.parse()?,
        bytes: bytes.parse::<usize>()?.max(STAMP),
        period_ns: period.parse()?,
        rate: BitRate::new(rate.parse()?),
        play_out_ns: play_out.parse()?,
        file: (file != "-").then(|| file.into()),
    };
    match part {
        "send" => role.send(),
        _ => role.receive(),
    }
}

impl Part {
    fn options(&self) -> Options {
        Options {
            mode: Mode::PartiallyReliable,
            rate: self.rate,
            largest_message: Bytes::new(self.bytes as u64),
            send_time: Some(DELAY),
            order: DeliveryOrder::WhenComplete,
            idle_limit: PATIENCE,
            ..Options::default()
        }
    }

    fn send(self) -> Result<()> {
        let clip = self.file.as_ref().map(std::fs::read).transpose().context("cannot read the clip")?;
        let content = Content::new(clip.as_deref(), self.bytes)?;
        let target = Target { peer: self.address, local: None, service: default_service(), host: None };
        let connection = ClientConnection::open(target, self.tls.clone(), self.options())?;
        say("ready");
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        let (start, contract) = line.trim().split_once(' ').context("the conductor named no start")?;
        let start: u64 = start.parse().context("the start is no number")?;
        if contract != "-" {
            let client = Client::connect_to(&self.socket)?;
            let period = Nanos::new(self.period_ns);
            connection.reserve(&client, INTERFACE, self.rate, period, Some(&contract.parse()?))?;
        }
        for number in 0..self.frames {
            let due = start + u64::from(number) * self.period_ns;
            sleep_until(due);
            let left = (due + DELAY.as_nanos() as u64).saturating_sub(now_ns());
            // A frame that is late already is dropped here, as METP would drop it.
            if left > 0 {
                let left = Some(Duration::from_nanos(left));
                connection.send(FrameKind::I, content.frame(due, number), left, PATIENCE)?;
            }
        }
        // The connection stays until the conductor ends this process.
        std::io::stdin().lock().read_to_string(&mut line)?;
        Ok(())
    }

    fn receive(self) -> Result<()> {
        let server = ServerConnection::register(default_service(), self.address, self.tls.clone(), self.options())?;
        // Open for reading, too: then neither end waits for the other one, and the end of this process is the end of the file.
        let decoder = self.file.as_ref().map(|fifo| OpenOptions::new().read(true).write(true).open(fifo));
        let mut decoder = decoder.transpose().context("cannot open the decoder's FIFO")?;
        let shown = Arc::new(Mutex::new(Vec::with_capacity(self.frames as usize)));
        say("ready");
        answer_at_the_end(shown.clone());
        let connection = server.accept(PATIENCE)?;
        loop {
            match connection.receive(PATIENCE) {
                Ok(message) if message.is_complete() => {
                    let Some((due, number)) = stamp(&message.data).filter(|(_, number)| *number < self.frames) else {
                        continue;
                    };
                    if let Some(decoder) = &mut decoder {
                        decoder.write_all(&packet(number, &message.data[STAMP..])).context("the decoder's FIFO")?;
                    }
                    if self.play_out_ns > 0 {
                        sleep_until(due + self.play_out_ns);
                    }
                    shown.lock().unwrap_or_else(PoisonError::into_inner).push((number, now_ns()));
                }
                Ok(_) | Err(Error::TimeOut { .. }) => {}
                Err(error) => bail!("{error}"),
            }
        }
    }
}

/// What frames contain behind their stamp: the pictures of a clip in turn, or nothing but their size.
enum Content<'a> {
    Pictures(Vec<&'a [u8]>),
    Bytes(usize),
}

impl<'a> Content<'a> {
    /// `most`: the size of a frame, or of the largest one of a clip.
    fn new(clip: Option<&'a [u8]>, most: usize) -> Result<Content<'a>> {
        let Some(clip) = clip else { return Ok(Content::Bytes(most - STAMP)) };
        let pictures = pictures(clip);
        let largest = pictures.iter().map(|picture| picture.len() + STAMP).max().context("the clip has no pictures")?;
        ensure!(
            largest <= most,
            "the clip has a picture of {largest} bytes with its stamp; at most {most} were planned"
        );
        Ok(Content::Pictures(pictures))
    }

    fn frame(&self, due: u64, number: u32) -> Vec<u8> {
        let stamp = [&due.to_be_bytes()[..], &number.to_be_bytes()].concat();
        match self {
            Content::Pictures(all) => [&stamp, all[number as usize % all.len()]].concat(),
            Content::Bytes(size) => [stamp, vec![number as u8; *size]].concat(),
        }
    }
}

/// A frame as the decoder reads it.
fn packet(number: u32, picture: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &(picture.len() as u32).to_be_bytes(), picture].concat()
}

fn stamp(frame: &[u8]) -> Option<(u64, u32)> {
    let due = u64::from_be_bytes(*frame.first_chunk()?);
    let number = u32::from_be_bytes(frame.get(8..STAMP)?.try_into().ok()?);
    Some((due, number))
}

/// After the end of the input: prints the frames, and ends the process.
fn answer_at_the_end(shown: Arc<Mutex<Vec<(u32, u64)>>>) {
    std::thread::spawn(move || {
        let mut line = String::new();
        // An error is an end, too.
        let _ = std::io::stdin().lock().read_to_string(&mut line);
        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: String = shown.iter().map(|(number, at)| format!("frame {number} {at}\n")).collect();
        say(&format!("{lines}end"));
        std::process::exit(0)
    });
}

/// Sends half as much again as a link of this rate carries, until the conductor ends this process.
fn flood(address: SocketAddr, link_bps: u64) -> Result<()> {
    const PACKET: usize = 1_400;
    /// Packets at a time: fewer wake-ups.
    const BURST: u64 = 4;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("the flood's socket")?;
    let pause_ns = BURST * PACKET as u64 * 8 * 1_000_000_000 / (link_bps / 2 * 3);
    let begin = now_ns();
    for burst in 1.. {
        for _ in 0..BURST {
            // A full queue drops the packet.
            let _ = socket.send_to(&[0; PACKET], address);
        }
        sleep_until(begin + burst * pause_ns);
    }
    Ok(())
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // Without a conductor nobody reads; the end of the input ends the process.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

fn now_ns() -> u64 {
    qfabric_linux::clock::now().get()
}

fn sleep_until(ns: u64) {
    let moment = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    // A signal interrupts the sleep.
    while clock_nanosleep_absolute(ClockId::Monotonic, &moment).is_err() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_frame_has_no_stamp() {
        assert_eq!(stamp(&[0; STAMP - 1]), None);
        assert_eq!(stamp(&[&7_u64.to_be_bytes()[..], &9_u32.to_be_bytes(), b"rest"].concat()), Some((7, 9)));
    }
}
