//! One run on the real machine: players under one policy, beside the hogs.
//!
//! ```text
//!  players load and warm up │ reservations set │ hogs burn ──────────────────────────── hogs rest │ logs read
//!        (hogs rest)        │                  │   start ── jobs ── shift ── jobs ── grace ──     │
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qfabric_linux::{Deadline, Mechanism};
use qfabric_types::{Instant, Nanos};

use crate::children::{self, Hogs, Killed, Stop};
use crate::clips::Clip;
use crate::plan::{Run, Scenario};
use crate::policy::{Ground, Policy};
use crate::progress::Progress;
use crate::record::{PlayerRecord, RunRecord, parse_log};

/// T: 25 frames a second.
pub const PERIOD: Nanos = Nanos::from_millis(40);
/// How far into the future the start lies when it is announced: enough for every player to go to sleep.
const HEAD_START: Nanos = Nanos::from_millis(200);
/// Late frames are decoded for this long after the last deadline.
pub const GRACE: Nanos = Nanos::from_millis(500);
/// One group of pictures warms up: caches, predictors, the scheduler's view of a new task.
pub const WARM_UP: usize = 12;
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// How long after the grace players may take to write their logs, hogs resting.
const LOG_PATIENCE: Nanos = Nanos::from_millis(10_000);

/// What all runs share.
pub struct Stage<'a> {
    /// The player program.
    pub player: &'a Path,
    /// The dear clip and the light one.
    pub clips: &'a [Clip; 2],
    /// Traces of both, for Q-Fabric's profiles.
    pub traces: &'a [PathBuf],
    /// Where logs go.
    pub folder: &'a Path,
    /// The hogs, paused.
    pub hogs: &'a Hogs,
    /// The daemon's socket.
    pub socket: &'a Path,
    /// Raised by Ctrl-C.
    pub stop: &'a Stop,
}

impl Stage<'_> {
    /// Carries one run out.
    pub fn run(&self, run: &Run, ground: &Ground, progress: &mut dyn Progress) -> Result<RunRecord> {
        let jobs = (run.seconds * 25.0).round() as usize;
        let mut players = self.ready_players(run, ground, jobs)?;
        let mut deadline = Deadline::new();
        let bandwidths = reserve(&mut deadline, &players, &run.policy, ground)?;
        let start = qfabric_linux::clock::now() + HEAD_START;
        let stopped = start + PERIOD.saturating_mul(jobs as u64) + GRACE;
        self.hogs.resume();
        let played = self.play(&mut players, start, stopped, progress);
        self.hogs.pause();
        played?;
        let lines = (0..players.len()).map(|i| self.log(i)).collect::<Result<Vec<_>>>()?;
        let record = |(lines, static_bandwidth)| PlayerRecord { lines, static_bandwidth };
        Ok(RunRecord {
            scenario: run.scenario.name().into(),
            policy: run.policy.label(),
            reserves: run.policy.reserves(),
            players: lines.into_iter().zip(bandwidths).map(record).collect(),
            period: PERIOD,
            server_period: ground.server_period,
            start,
            jobs,
            warm_up: WARM_UP.min(jobs / 2),
            stopped,
            early: ground.early,
            late: 0.0,
            hogs: self.hogs.ids().len(),
            shift_at: (run.scenario == Scenario::Shift).then(|| shift_at(jobs)),
        })
    }

    fn ready_players(&self, run: &Run, ground: &Ground, jobs: usize) -> Result<Vec<Killed>> {
        let spawned: Result<Vec<Killed>> =
            (0..ground.players as usize).map(|i| self.spawn(run, ground, i, jobs)).collect();
        let mut players = spawned?;
        for player in &mut players {
            self.stop.check()?;
            children::wait_until_ready(player, READY_PATIENCE)?;
        }
        Ok(players)
    }

    /// Player `i`: even ones go from the dear clip to the light one, odd ones the other way; each starts
    /// elsewhere in its clip, the same under every policy.
    fn spawn(&self, run: &Run, ground: &Ground, i: usize, jobs: usize) -> Result<Killed> {
        let (first, second) = (i % 2, (i + 1) % 2);
        let mut command = children::player_command(self.player);
        command.arg(&self.clips[first].path).arg("--wait").arg("--log").arg(self.log_path(i));
        command.arg("--seconds").arg(run.seconds.to_string());
        command.arg("--grace").arg(GRACE.as_secs_f64().to_string());
        command.arg("--start-at").arg((i * 23).to_string()).arg("--name").arg(format!("player {}", i + 1));
        if run.scenario == Scenario::Shift {
            command.arg("--then").arg(&self.clips[second].path);
            command.arg("--shift-at").arg(shift_at(jobs).to_string());
        }
        command.args(run.policy.arguments(ground));
        if matches!(run.policy, Policy::Qfabric { .. }) {
            command.arg("--socket").arg(self.socket).arg("--profile").arg(&self.traces[first]);
        }
        children::spawn(command)
    }

    fn play(
        &self,
        players: &mut [Killed],
        start: Instant,
        stopped: Instant,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        for player in players.iter_mut() {
            children::start_at(player, start)?;
        }
        loop {
            self.stop.check()?;
            let now = qfabric_linux::clock::now();
            progress.advance(now.since(start).get() / 1_000_000);
            let running = players.iter_mut().map(|p| p.ended("qfabric-player")).collect::<Result<Vec<_>>>()?;
            if running.iter().all(|&ended| ended) {
                return Ok(());
            }
            if now > stopped {
                // Whoever still runs only has its log to write.
                self.hogs.pause();
            }
            ensure!(now < stopped + LOG_PATIENCE, "a player did not end; is the machine overloaded by others?");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log_path(&self, i: usize) -> PathBuf {
        self.folder.join(format!("player{i}.jsonl"))
    }

    fn log(&self, i: usize) -> Result<Vec<crate::record::JobLine>> {
        let path = self.log_path(i);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        parse_log(&text).with_context(|| format!("{} is no log", path.display()))
    }
}

/// The job at which the load shifts: the middle of those that count.
fn shift_at(jobs: usize) -> u64 {
    let warm_up = WARM_UP.min(jobs / 2);
    (warm_up + (jobs - warm_up) / 2) as u64
}

/// Static reservations for the players; answers each one's Q/P, or none.
fn reserve(deadline: &mut Deadline, players: &[Killed], policy: &Policy, ground: &Ground) -> Result<Vec<Option<f64>>> {
    let reserve_one = |player: &Killed| {
        let Some(setting) = policy.static_setting(player.id(), ground)? else { return Ok(None) };
        deadline.apply(&setting).context("a static reservation was refused")?;
        Ok(setting.reservation.map(|r| r.budget().as_f64() / r.period().as_f64()))
    };
    players.iter().map(reserve_one).collect()
}
