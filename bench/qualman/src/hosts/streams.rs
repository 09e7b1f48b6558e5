//! The processes of a stream: a sender that keeps the pace, a receiver that notes when each frame is ready.
//!
//! | process | line | meaning |
//! |---|---|---|
//! | both → conductor | `ready` | the receiver listens; the sender is connected |
//! | conductor → sender | `START CONTRACT` | ns of CLOCK_MONOTONIC of the first frame; the contract to draw from, or `-` |
//! | receiver → conductor | `frame NUMBER NS`, `end` | the frames that came, after the end of its input |

use std::io::{BufRead, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use qfabric_carrier::{
    ClientConnection, DeliveryOrder, Error, FrameKind, Mode, Options, ServerConnection, Target, Tls, default_service,
};
use qfabric_client::Client;
use qfabric_types::{BitRate, Bytes, Nanos};
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};

use super::daemons::INTERFACE;

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
}

/// Plays `send` or `receive` with `TLS HOST SOCKET ADDRESS FRAMES BYTES PERIOD RATE PLAYOUT`.
pub(crate) fn play(part: &str, words: &[&str]) -> Result<()> {
    let [tls, host, socket, address, frames, bytes, period, rate, play_out] = words[..] else {
        bail!("{part} needs nine words, not {}", words.len());
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
                connection.send(FrameKind::I, self.frame(due, number), left, PATIENCE)?;
            }
        }
        // The connection stays until the conductor ends this process.
        std::io::stdin().lock().read_to_string(&mut line)?;
        Ok(())
    }

    fn frame(&self, due: u64, number: u32) -> Vec<u8> {
        let mut bytes = vec![number as u8; self.bytes];
        bytes[..8].copy_from_slice(&due.to_be_bytes());
        bytes[8..STAMP].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn receive(self) -> Result<()> {
        let server = ServerConnection::register(default_service(), self.address, self.tls.clone(), self.options())?;
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
