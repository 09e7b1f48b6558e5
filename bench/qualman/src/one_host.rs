//! Runs on one host: real decoders beside the background, reserved through the daemon as QualMan's brokers did.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded};
use qfabric_demo::children::{self, ChildGuard, Stop};
use qfabric_demo::record::parse_log;
use qfabric_types::api::{ApplicationRequest, ApplicationScope};
use qfabric_types::{Bytes, Class, Contract, Instant, JobSource, Nanos, Reclaiming};

use crate::background::{Background, Player};
use crate::experiment::{Experiment, Reserved, StreamPlan};
use crate::measure::StreamTimes;

/// Time from the announcement of the start to the start: enough for every player to go to sleep.
const HEAD_START: Nanos = Nanos::from_millis(500);
/// Late frames are decoded until this time after the last deadline, in seconds.
const GRACE: f64 = 1.0;
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// Time after the grace in which a player may write its log beside the background.
const LOG_PATIENCE: Nanos = Nanos::from_millis(30_000);
/// Memory reserve of a player: text, libraries, the clip and the decoder's pictures. The paper's player had 3 MB.
const MEMORY: Bytes = Bytes::new(256 << 20);

/// What the runs on one host share.
pub(crate) struct OneHost<'a> {
    /// The decoder, `qfabric-player`.
    pub decoder: &'a Path,
    pub clip: &'a Path,
    pub folder: &'a Path,
    /// Starts the background programs.
    pub player: &'a Player,
    /// Number of background programs.
    pub background: usize,
    pub stop: &'a Stop,
}

/// The result of one run.
pub(crate) struct Played {
    pub streams: Vec<StreamTimes>,
    /// What could be reserved only partly, and why.
    pub notes: Vec<String>,
    /// Why the run does not count, if it does not.
    pub disturbance: Option<String>,
}

impl OneHost<'_> {
    /// Plays `frames` frames of the fastest stream.
    pub(crate) fn run(&self, experiment: Experiment, reserved: Reserved, frames: u32) -> Result<Played> {
        let daemon = (reserved != Reserved::Nothing).then(daemon).transpose()?;
        let seconds = experiment.seconds(frames);
        let streams = experiment.streams();
        let mut players =
            streams.iter().enumerate().map(|(at, plan)| self.spawn(at, plan, seconds)).collect::<Result<Vec<_>>>()?;
        for player in &mut players {
            self.stop.check()?;
            children::wait_until_ready(player, READY_PATIENCE)?;
        }
        let mut notes = Vec::new();
        if let Some(daemon) = &daemon {
            let client = Client::connect_to(daemon.socket())?;
            for (player, plan) in players.iter().zip(streams) {
                notes.extend(admit(&client, player, plan, reserved)?);
            }
        }
        // After the reservations: their set-up is no part of the measurement.
        let background = Background::start(self.player, self.folder, self.background)?;
        let start = qfabric_linux::clock::now() + HEAD_START;
        for player in &mut players {
            children::start_at(player, start)?;
        }
        let end = start + Nanos::from_f64((seconds + GRACE) * 1e9);
        self.wait(&mut players, end, background)?;
        let times = |(at, plan)| self.times(at, plan, start, seconds);
        let streams = streams.iter().enumerate().map(times).collect::<Result<_>>()?;
        Ok(Played { streams, notes, disturbance: None })
    }

    fn spawn(&self, at: usize, plan: &StreamPlan, seconds: f64) -> Result<ChildGuard> {
        let mut command = children::player_command(self.decoder);
        command.arg(self.clip).arg("--wait").arg("--log").arg(self.log(at));
        command.arg("--period").arg(format!("{}ns", plan.period().get()));
        command.arg("--jobs").arg(frames_of(plan, seconds).to_string()).arg("--grace").arg(GRACE.to_string());
        children::spawn(command)
    }

    /// Waits until all players have ended. The background ends with the last deadline and its grace, so that the
    /// players can write their logs.
    fn wait(&self, players: &mut [ChildGuard], end: Instant, background: Background) -> Result<()> {
        let mut background = Some(background);
        loop {
            self.stop.check()?;
            let running = players.iter_mut().map(|p| p.ended("qfabric-player")).collect::<Result<Vec<_>>>()?;
            if running.iter().all(|&ended| ended) {
                return Ok(());
            }
            let now = qfabric_linux::clock::now();
            if now > end {
                drop(background.take());
            }
            ensure!(
                now < end + LOG_PATIENCE,
                "a player did not end in time; check whether other programs use the CPUs"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn times(&self, at: usize, plan: &StreamPlan, start: Instant, seconds: f64) -> Result<StreamTimes> {
        let path = self.log(at);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = parse_log(&text).with_context(|| format!("{} is not a valid log", path.display()))?;
        let ready = |line: qfabric_demo::record::JobLine| {
            (line.job.k as usize, line.job.finish.get().saturating_sub(start.get()) as f64 / 1e6)
        };
        Ok(StreamTimes {
            period_ms: plan.period().as_f64() / 1e6,
            due: frames_of(plan, seconds),
            ready_ms: lines.into_iter().map(ready).collect(),
        })
    }

    fn log(&self, at: usize) -> PathBuf {
        self.folder.join(format!("player{at}.jsonl"))
    }
}

/// Frames that are due in this time.
pub(crate) fn frames_of(plan: &StreamPlan, seconds: f64) -> usize {
    (seconds * plan.frames_per_second).round() as usize
}

fn daemon() -> Result<Embedded> {
    let mut config = Config::default();
    // A static reservation needs no control thread with a reservation of its own.
    config.control.budget = Nanos::ZERO;
    Embedded::start(config).context("cannot start the embedded daemon; run as root, or with CAP_SYS_NICE")
}

/// Reserves the share in every period, as `cpu.reserve(pid, util, period)` of §6.4; returns a note if the memory is not
/// protected.
fn admit(client: &Client, player: &ChildGuard, plan: &StreamPlan, reserved: Reserved) -> Result<Option<String>> {
    let contract = Contract {
        class: Class::B,
        guaranteed: Some(plan.share()),
        max_bandwidth: plan.share(),
        fixed: Some(plan.share()),
        server_period: plan.period(),
        jobs: JobSource::Consumption,
        reclaiming: Reclaiming::Hard,
        memory: if reserved == Reserved::CpuMemory { MEMORY } else { Bytes::ZERO },
        ..Contract::new(&format!("player {}", plan.title()), plan.period())
    };
    let request = ApplicationRequest { pid: player.id() as i32, covers: ApplicationScope::Program, contract };
    let admitted = client.admit(&request).context("the daemon refused a player")?;
    Ok(admitted.memory.and_then(|memory| memory.missing).map(|why| format!("memory is promised, not protected: {why}")))
}
