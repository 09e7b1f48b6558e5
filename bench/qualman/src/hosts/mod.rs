//! Runs on two hosts: network namespaces with a daemon at each end of an emulated link, streams over METP between them.
//!
//! ```text
//!  h0: daemon, a sender for each stream ──METP──> emulated link ──> h1: daemon, a receiver for each stream
//!        └──────────── one joint contract for each stream: CPU, memory, rate on both ───────────┘
//! ```

mod contract;
mod daemons;
mod streams;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use qfabric_client::Client;
use qfabric_demo::children::{self, ChildGuard, Stop};
use qfabric_demo::record::parse_log;
use qfabric_types::{Instant, Nanos};

pub(crate) use self::streams::play;

use self::contract::reserve;
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
/// Nobody listens there: the discard service.
const FLOOD_PORT: u16 = 9;

/// What the streams of a run share.
struct Scene<'a> {
    site: &'a Site,
    /// Of the daemons, if there are any.
    clients: Option<[Client; 2]>,
    folder: &'a Path,
    /// Length of each stream.
    seconds: f64,
}

/// What the runs on two hosts share.
pub(crate) struct TwoHosts<'a> {
    /// Starts processes and daemons.
    pub player: &'a Player,
    pub folder: &'a Path,
    /// Decoder and clip, for compressed frames.
    pub sent: Option<(&'a Path, &'a Path)>,
    pub background: usize,
    pub seed: u64,
    pub stop: &'a Stop,
}

/// The two processes of a stream.
struct Ends {
    sender: ChildGuard,
    receiver: ChildGuard,
    /// Decodes what the receiver gets; for compressed frames only.
    decoder: Option<Decoder>,
}

/// A decoder, the FIFO through which it gets frames, and its log.
struct Decoder {
    process: ChildGuard,
    fifo: PathBuf,
    log: PathBuf,
}

impl Decoder {
    /// Waits for its end, which follows that of the receiver, and reads number and time in ms of each decoded frame.
    fn finish(mut self, start: Instant) -> Result<Vec<(usize, f64)>> {
        let until = std::time::Instant::now() + ANSWER_PATIENCE;
        while !self.process.ended("qfabric-player")? {
            ensure!(std::time::Instant::now() < until, "the decoder does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let text = std::fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        let lines = parse_log(&text).with_context(|| format!("{} is not a valid log", self.log.display()))?;
        let ready = |line: qfabric_demo::record::JobLine| {
            (line.job.k as usize, line.job.finish.get().saturating_sub(start.get()) as f64 / 1e6)
        };
        Ok(lines.into_iter().map(ready).collect())
    }
}

impl TwoHosts<'_> {
    /// Sends `frames` frames of the fastest stream.
    pub(crate) fn run(&self, experiment: Experiment, reserved: Reserved, frames: u32) -> Result<Played> {
        let folder = tempfile::Builder::new().prefix("hosts-").tempdir_in(self.folder)?;
        let site = Site::new(self.player, folder.path(), experiment.link(), self.seed)?;
        let clients = match reserved {
            Reserved::Everything => Some(site.start_daemons(self.stop)?),
            _ => None,
        };
        let scene = Scene { site: &site, clients, folder: folder.path(), seconds: experiment.seconds(frames) };
        let mut played = Played { streams: Vec::new(), notes: Vec::new(), disturbance: None };
        for plans in experiment.parts() {
            self.play(&scene, experiment, plans, &mut played)?;
        }
        let reasons = site.invalid()?;
        played.disturbance = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(played)
    }

    /// Sends the streams that run together, and adds their times.
    fn play(&self, scene: &Scene, experiment: Experiment, plans: &[StreamPlan], played: &mut Played) -> Result<()> {
        let Scene { site, clients, folder, seconds } = scene;
        let seconds = *seconds;
        let before = played.streams.len();
        let connect = |(at, plan): (usize, &StreamPlan)| {
            let decoder = self.decoder(folder, at, plan, frames_of(plan, seconds))?;
            self.connect(site, before + at, plan, frames_of(plan, seconds), decoder)
        };
        let mut ends = plans.iter().enumerate().map(connect).collect::<Result<Vec<_>>>()?;
        let reserve = |(ends, plan): (&Ends, &StreamPlan)| {
            let held = clients.as_ref().map(|clients| reserve(clients, ends, plan));
            held.transpose()
        };
        let held = ends.iter().zip(plans).map(reserve).collect::<Result<Vec<_>>>()?;
        // After the reservations: their set-up is no part of the measurement.
        let load = self.load(site, experiment)?;
        let start = qfabric_linux::clock::now() + HEAD_START;
        for (ends, held) in ends.iter_mut().zip(&held) {
            let contract = held.as_ref().map_or("-".to_owned(), |held| held.contract.id().to_string());
            let input = ends.sender.child().stdin.as_mut().context("the sender's input is not piped")?;
            writeln!(input, "{} {contract}", start.get()).context("a sender has ended")?;
            if let Some(decoder) = &mut ends.decoder {
                children::start_at(&mut decoder.process, start)?;
            }
        }
        self.wait(&mut ends, start + Nanos::from_f64((seconds + GRACE) * 1e9))?;
        drop(load);
        let times = |(ends, plan)| times(ends, plan, start, seconds);
        let streams = ends.into_iter().zip(plans).map(times).collect::<Result<Vec<_>>>()?;
        played.streams.extend(streams);
        played.notes.extend(held.iter().flatten().flat_map(|held| held.notes.clone()));
        Ok(held.into_iter().flatten().try_for_each(|held| held.contract.end())?)
    }

    /// A flood of the link, or the background programs.
    fn load(&self, site: &Site, experiment: Experiment) -> Result<(Option<ChildGuard>, Background)> {
        let flood = experiment.is_in_turn().then(|| -> Result<ChildGuard> {
            let words = [format!("{}:{FLOOD_PORT}", site.address()), experiment.link().get().to_string()];
            children::spawn(site.command("flood", &words, End::Sender)?)
        });
        let programs = if flood.is_some() { 0 } else { self.background };
        Ok((flood.transpose()?, Background::start(self.player, self.folder, programs)?))
    }

    /// Starts both processes of a stream and waits until they are connected.
    fn connect(
        &self,
        site: &Site,
        at: usize,
        plan: &StreamPlan,
        frames: usize,
        decoder: Option<Decoder>,
    ) -> Result<Ends> {
        let address = format!("{}:{}", site.address(), PORT + at as u16);
        let words = [
            address,
            frames.to_string(),
            plan.bytes.to_string(),
            plan.period().get().to_string(),
            plan.rate().get().to_string(),
            plan.play_out.get().to_string(),
        ];
        let none = || Path::new("-");
        let clip = self.sent.filter(|_| decoder.is_some()).map_or_else(none, |(_, clip)| clip);
        let fifo = decoder.as_ref().map_or_else(none, |decoder| &decoder.fifo);
        let start = |part: &str, file: &Path, end| -> Result<ChildGuard> {
            let words = [&words[..], &[file.to_string_lossy().into_owned()]].concat();
            let mut process = children::spawn(site.command(part, &words, end)?)?;
            children::wait_until_ready(&mut process, READY_PATIENCE).with_context(|| format!("the part {part}"))?;
            Ok(process)
        };
        self.stop.check()?;
        let receiver = start("receive", fifo, End::Receiver)?;
        Ok(Ends { sender: start("send", clip, End::Sender)?, receiver, decoder })
    }

    /// Starts the decoder of a stream of compressed frames and waits until it is ready.
    fn decoder(&self, folder: &Path, at: usize, plan: &StreamPlan, frames: usize) -> Result<Option<Decoder>> {
        if plan.decoder_share == 0.0 {
            return Ok(None);
        }
        let (program, clip) = self.sent.context("there is no decoder")?;
        let [fifo, log] = ["fifo", "jsonl"].map(|kind| folder.join(format!("decoder{at}.{kind}")));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .with_context(|| format!("cannot make {}", fifo.display()))?;
        let mut command = children::player_command(program);
        command.arg(clip).arg("--wait").arg("--packets").arg(&fifo).arg("--log").arg(&log);
        command.arg("--period").arg(format!("{}ns", plan.period().get())).arg("--jobs").arg(frames.to_string());
        command.arg("--grace").arg(GRACE.to_string());
        let mut process = children::spawn(command)?;
        children::wait_until_ready(&mut process, READY_PATIENCE)?;
        Ok(Some(Decoder { process, fifo, log }))
    }

    fn wait(&self, ends: &mut [Ends], end: Instant) -> Result<()> {
        while qfabric_linux::clock::now() < end {
            self.stop.check()?;
            for Ends { sender, receiver, .. } in ends.iter_mut() {
                ensure!(!sender.ended("the sender")? && !receiver.ended("the receiver")?, "a process ended too early");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
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
    let (period_ms, due) = (plan.period().as_f64() / 1e6, frames_of(plan, seconds));
    if let Some(decoder) = ends.decoder {
        return Ok(StreamTimes { period_ms, due, ready_ms: decoder.finish(start)? });
    }
    let frame = |line: &str| {
        let (number, ns) = line.strip_prefix("frame ")?.split_once(' ')?;
        Some((number.parse().ok()?, ns.parse::<u64>().ok()?.saturating_sub(start.get()) as f64 / 1e6))
    };
    Ok(StreamTimes { period_ms, due, ready_ms: text.lines().filter_map(frame).collect() })
}
