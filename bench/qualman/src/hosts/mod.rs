//! Runs on two hosts: network namespaces with a daemon at each end of an emulated link, streams over METP between them.
//!
//! ```text
//!  h0: daemon, a sender for each stream ──METP──> emulated link ──> h1: daemon, a receiver for each stream
//!        └──────────── one joint contract for each stream: CPU and rate on both hosts ───────────┘
//! ```

mod daemons;
mod streams;

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use qfabric_client::{Client, Cpu, JointBuilder, JointHandle};
use qfabric_demo::children::{self, ChildGuard, Stop};
use qfabric_types::{Bytes, Instant, Nanos, Resource};

pub(crate) use self::streams::play;

use self::daemons::{End, Site};
use crate::background::{Background, Player};
use crate::experiment::{Experiment, Reserved, StreamPlan};
use crate::measure::StreamTimes;
use crate::one_host::{Played, frames_of};

/// Time from the announcement of the start to the start: the senders reserve their rates in it.
const HEAD_START: Nanos = Nanos::from_millis(3_000);
/// Frames that come later than this after the last one was due are missing, in seconds.
const GRACE: f64 = 1.0;
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// Time for the processes' answers, beside nothing.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// Port of the first receiver.
const PORT: u16 = 7_900;
/// Memory of each part of a contract.
const MEMORY: Bytes = Bytes::new(16 << 20);

/// What the runs on two hosts share.
pub(crate) struct TwoHosts<'a> {
    /// Starts processes and daemons.
    pub player: &'a Player,
    pub folder: &'a std::path::Path,
    pub background: usize,
    pub seed: u64,
    pub stop: &'a Stop,
}

/// The two processes of a stream.
struct Ends {
    sender: ChildGuard,
    receiver: ChildGuard,
}

/// What holds a stream's reservations; dropping it ends them.
struct Held {
    contract: JointHandle,
    _cpus: [Cpu; 2],
}

impl TwoHosts<'_> {
    /// Sends `frames` frames of the fastest stream.
    pub(crate) fn run(&self, experiment: Experiment, reserved: Reserved, frames: u32) -> Result<Played> {
        let folder = tempfile::Builder::new().prefix("hosts-").tempdir_in(self.folder)?;
        let site = Site::new(self.player, folder.path(), self.seed)?;
        let clients = match reserved {
            Reserved::Everything => Some(site.start_daemons(self.stop)?),
            _ => None,
        };
        let seconds = experiment.seconds(frames);
        let plans = experiment.streams();
        let connect = |(at, plan)| self.connect(&site, at, plan, frames_of(plan, seconds));
        let mut ends = plans.iter().enumerate().map(connect).collect::<Result<Vec<_>>>()?;
        let reserve = |(ends, plan): (&Ends, &StreamPlan)| {
            let held = clients.as_ref().map(|clients| reserve(clients, ends, plan));
            held.transpose()
        };
        let held = ends.iter().zip(plans).map(reserve).collect::<Result<Vec<_>>>()?;
        // After the reservations: their set-up is no part of the measurement.
        let background = Background::start(self.player, self.folder, self.background)?;
        let start = qfabric_linux::clock::now() + HEAD_START;
        for (ends, held) in ends.iter_mut().zip(&held) {
            let contract = held.as_ref().map_or("-".to_owned(), |held| held.contract.id().to_string());
            let input = ends.sender.child().stdin.as_mut().context("the sender's input is not piped")?;
            writeln!(input, "{} {contract}", start.get()).context("a sender has ended")?;
        }
        self.wait(&mut ends, start + Nanos::from_f64((seconds + GRACE) * 1e9))?;
        drop(background);
        let times = |(ends, plan)| times(ends, plan, start, seconds);
        let streams = ends.into_iter().zip(plans).map(times).collect::<Result<_>>()?;
        held.into_iter().flatten().try_for_each(|held| held.contract.end())?;
        let notes = site
            .invalid()?
            .into_iter()
            .map(|why| format!("a run of {} with {} does not count: {why}", experiment.word(), reserved.title()));
        Ok(Played { streams, notes: notes.collect() })
    }

    /// Starts both processes of a stream and waits until they are connected.
    fn connect(&self, site: &Site, at: usize, plan: &StreamPlan, frames: usize) -> Result<Ends> {
        let address = format!("{}:{}", site.address(), PORT + at as u16);
        let words = [
            address,
            frames.to_string(),
            plan.bytes.to_string(),
            plan.period().get().to_string(),
            plan.rate().get().to_string(),
            plan.play_out.get().to_string(),
        ];
        let start = |part: &str, end| -> Result<ChildGuard> {
            let mut process = children::spawn(site.command(part, &words, end)?)?;
            children::wait_until_ready(&mut process, READY_PATIENCE).with_context(|| format!("the part {part}"))?;
            Ok(process)
        };
        self.stop.check()?;
        let receiver = start("receive", End::Receiver)?;
        Ok(Ends { sender: start("send", End::Sender)?, receiver })
    }

    fn wait(&self, ends: &mut [Ends], end: Instant) -> Result<()> {
        while qfabric_linux::clock::now() < end {
            self.stop.check()?;
            for Ends { sender, receiver } in ends.iter_mut() {
                ensure!(!sender.ended("the sender")? && !receiver.ended("the receiver")?, "a process ended too early");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// One joint contract for a stream: CPU, memory and the rate on both hosts; both processes draw from it.
fn reserve(clients: &[Client; 2], ends: &Ends, plan: &StreamPlan) -> Result<Held> {
    let rate = plan.rate().get() as f64;
    let memory = MEMORY.as_f64();
    let network = |direction: &str| format!("network {} {direction}", daemons::INTERFACE).parse::<Resource>();
    let contract = JointBuilder::new()
        .want("", Resource::Cpu, plan.sender_share, plan.sender_share)?
        .want("", Resource::Memory, memory, memory)?
        .want("", network("out")?, rate, rate)?
        .want(End::Receiver.name(), Resource::Cpu, plan.share, plan.share)?
        .want(End::Receiver.name(), Resource::Memory, memory, memory)?
        .want(End::Receiver.name(), network("in")?, rate, rate)?
        .patience(Duration::from_secs(5))
        .leased()
        .apply(&clients[0])
        .context("the joint contract is refused")?;
    let draw = |client: &Client, process: &ChildGuard, share: qfabric_types::Share| -> Result<Cpu> {
        let mut cpu = Cpu::new();
        cpu.reserve_from(client, contract.id(), process.id() as i32, share, plan.period())?;
        Ok(cpu)
    };
    let cpus = [
        draw(&clients[0], &ends.sender, plan.sender_share()).context("the sender's CPU")?,
        draw(&clients[1], &ends.receiver, plan.share()).context("the receiver's CPU")?,
    ];
    Ok(Held { contract, _cpus: cpus })
}

/// Asks the receiver for its times. Its lines are `frame NUMBER NS`, then `end`.
fn times(mut ends: Ends, plan: &StreamPlan, start: Instant, seconds: f64) -> Result<StreamTimes> {
    let child = ends.receiver.child();
    // The end of its input is the question; it answers and ends.
    drop(child.stdin.take());
    let mut output = child.stdout.take().context("the receiver's output is not piped")?;
    let (answer, answered) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.read_to_string(&mut text).map(|_| text);
        // The reader has gone after its patience.
        let _ = answer.send(read);
    });
    let text = answered.recv_timeout(ANSWER_PATIENCE).context("the receiver does not answer")??;
    if !text.ends_with("end\n") {
        bail!("the receiver's answer is cut: {:?}", text.lines().last());
    }
    let frame = |line: &str| {
        let (number, ns) = line.strip_prefix("frame ")?.split_once(' ')?;
        Some((number.parse().ok()?, ns.parse::<u64>().ok()?.saturating_sub(start.get()) as f64 / 1e6))
    };
    Ok(StreamTimes {
        period_ms: plan.period().as_f64() / 1e6,
        due: frames_of(plan, seconds),
        ready_ms: text.lines().filter_map(frame).collect(),
    })
}
