//! The processes of the engines in Rust: a sender that keeps the pace, a receiver that notes arrivals.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Result, bail};
use clap::ValueEnum;
use qfabric_carrier::Congestion;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};

use crate::conversation::{Arrivals, answer, now_ns, say, wait_for_go};
use crate::engine::Engine;
use crate::plan::{Frame, Kind, Plan};
use crate::stamp::Stamp;
use crate::{bulk, metp, quic, realm, tcp};

/// The sending side of an engine, connected.
pub(crate) trait Sender {
    /// Hands over a frame that was due at `stamp.due_ns`; may block.
    fn send(&mut self, frame: Vec<u8>, kind: Kind, stamp: Stamp) -> Result<()>;
}

/// Plays the part that the conductor started this process for: `send|receive ENGINE ADDRESS PLAN`.
pub fn play(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["bulk-send", address] => bulk::send(address.parse()?),
        ["short-send", address, seed, shorten] => bulk::send_files(address.parse()?, seed.parse()?, shorten.parse()?),
        ["bulk-receive", address] => bulk::receive(address.parse()?),
        [part, engine, address, plan] => {
            let engine = Engine::from_str(engine, false).map_err(anyhow::Error::msg)?;
            let (plan, folder) = (Plan::read(Path::new(plan))?, realm::folder(Path::new(plan)));
            match part {
                "send" => send(&plan, &mut *sender(engine, address.parse()?, &plan, &folder)?),
                "receive" => receive(engine, address.parse()?, &plan, &folder),
                _ => bail!("there is no part {part:?}"),
            }
        }
        _ => bail!("there is no part {words:?}"),
    }
}

fn sender(engine: Engine, address: SocketAddr, plan: &Plan, folder: &Path) -> Result<Box<dyn Sender>> {
    match engine {
        Engine::Metp => Ok(Box::new(metp::connect(address, metp::Kind::Metp, plan, folder)?)),
        Engine::MetpStreams => Ok(Box::new(metp::connect(address, metp::Kind::Streams, plan, folder)?)),
        Engine::Quic => Ok(Box::new(quic::connect(address, folder, Congestion::Cubic)?)),
        Engine::QuicBbr => Ok(Box::new(quic::connect(address, folder, Congestion::Bbr)?)),
        Engine::Tcp => Ok(Box::new(tcp::connect(address, "cubic")?)),
        Engine::TcpBbr => Ok(Box::new(tcp::connect(address, "bbr")?)),
        _ => bail!("{} is not played by this program", engine.word()),
    }
}

fn receive(engine: Engine, address: SocketAddr, plan: &Plan, folder: &Path) -> Result<()> {
    let arrivals = Arc::new(Arrivals::new(plan));
    let ready = || conduct(&arrivals);
    match engine {
        Engine::Metp => metp::receive(address, metp::Kind::Metp, plan, folder, ready, &arrivals),
        Engine::MetpStreams => metp::receive(address, metp::Kind::Streams, plan, folder, ready, &arrivals),
        Engine::Quic | Engine::QuicBbr => quic::receive(address, plan, folder, ready, &arrivals),
        Engine::Tcp | Engine::TcpBbr => tcp::receive(address, &plan.frames, ready, &arrivals),
        _ => bail!("{} is not played by this program", engine.word()),
    }
}

/// The receiver listens: converses with the conductor from now on.
fn conduct(arrivals: &Arc<Arrivals>) {
    let arrivals = arrivals.clone();
    say("ready");
    thread::spawn(move || {
        let cpu_at_go = wait_for_go();
        answer(cpu_at_go, || arrivals.lines())
    });
}

/// Sends the plan at its pace.
fn send(plan: &Plan, sender: &mut dyn Sender) -> Result<()> {
    say("ready");
    let cpu_at_go = wait_for_go();
    let period = plan.period.as_nanos() as u64;
    let start = now_ns() + period;
    for (number, frame) in plan.frames.iter().enumerate() {
        let due_ns = if period == 0 { now_ns() } else { start + number as u64 * period };
        sleep_until(due_ns);
        if frame.size == 0 {
            continue;
        }
        send_frame(sender, *frame, number as u32, due_ns)?;
    }
    say("sent");
    answer(cpu_at_go, String::new)
}

fn send_frame(sender: &mut dyn Sender, frame: Frame, number: u32, due_ns: u64) -> Result<()> {
    let stamp = Stamp { due_ns, number, size: frame.size };
    sender.send(stamp.frame(), frame.kind, stamp)
}

pub(crate) fn sleep_until(due_ns: u64) {
    let due = Timespec { tv_sec: (due_ns / 1_000_000_000) as i64, tv_nsec: (due_ns % 1_000_000_000) as i64 };
    // A signal interrupts the sleep.
    while clock_nanosleep_absolute(ClockId::Monotonic, &due).is_err() {}
}
