//! One round on the real machine: players under one policy, beside the hogs.
//!
//! ```text
//!  players load and warm up │ reservations set │ hogs burn ──────────────────────────── hogs rest │ logs read
//!        (hogs rest)        │                  │   start ── jobs ── shift ── jobs ── grace ──     │
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::{Deadline, Mechanism};
use qfabric_types::{Instant, Nanos, ThreadId};

use crate::children::{self, Hogs, Killed, Stop};
use crate::clips::Clip;
use crate::disturbance::{Counters, Surroundings, run_delay_ns};
use crate::holding::Holding;
use crate::policy::{Ground, Policy};
use crate::progress::Progress;
use crate::record::{PlayerRecord, RunRecord, parse_log};
use crate::trial::Trace;

/// How far into the future the start lies when it is announced: enough for every player to go to sleep.
const HEAD_START: Nanos = Nanos::from_millis(200);
/// Late frames are decoded for this long after the last deadline.
pub const GRACE: Nanos = Nanos::from_millis(500);
/// One group of pictures warms up: caches, predictors, the scheduler's view of a new task.
pub const WARM_UP: usize = 12;
/// Each player starts this many frames after the one before it, so that dear frames do not meet by design.
const OFFSET: usize = 23;
/// Priority of players under SCHED_FIFO.
const FIFO_PRIORITY: u32 = 50;
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// How long after the grace players may take to write their logs, hogs resting.
const LOG_PATIENCE: Nanos = Nanos::from_millis(10_000);

/// What is played in one round.
#[derive(Clone, Debug)]
pub struct Run {
    /// Short name of the scenario.
    pub scenario: String,
    /// Under which policy.
    pub policy: Policy,
    /// Jobs of each player, the warm-up included.
    pub jobs: usize,
    /// Whether every player changes its clip half-way.
    pub shifts: bool,
    /// Whether the hogs burn.
    pub hogs: bool,
    /// Rounds of one cycle are compared with each other.
    pub cycle: usize,
}

/// What all rounds share.
pub struct Stage<'a> {
    /// The player program.
    pub player: &'a Path,
    /// The clips: player `i` starts with clip `i mod n`.
    pub clips: &'a [Clip],
    /// Their costs, as calibrated.
    pub traces: &'a [Trace],
    /// The same as files, for Q-Fabric's profiles and the oracle.
    pub trace_files: &'a [PathBuf],
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
    /// Carries one round out. Room and needed room of the surroundings are left at zero.
    pub fn run(&self, run: &Run, ground: &Ground, progress: &mut dyn Progress) -> Result<RunRecord> {
        let before = Counters::read(&self.hogs.ids())?;
        let mut players = self.ready_players(run, ground)?;
        let mut deadline = Deadline::new();
        let bandwidths = reserve(&mut deadline, &players, &run.policy, ground)?;
        let start = qfabric_linux::clock::now() + HEAD_START;
        let stopped = start + ground.period.saturating_mul(run.jobs as u64) + GRACE;
        if run.hogs {
            self.hogs.resume();
        }
        let counted = start + ground.period.saturating_mul(warm_up(run.jobs) as u64);
        let mut holding = self.holding(run, &players, counted, stopped - GRACE)?;
        let played = self.play(&mut players, start, stopped, &mut holding, progress);
        self.hogs.pause();
        let delay_ns = played?;
        let reserved = holding.map_or(bandwidths.clone(), |holding| holding.means());
        let lines = (0..players.len()).map(|i| self.log(i)).collect::<Result<Vec<_>>>()?;
        drop(players);
        let around = before.until(&Counters::read(&self.hogs.ids())?);
        let record = |((lines, static_bandwidth), reserved)| PlayerRecord { lines, static_bandwidth, reserved };
        let mut record = RunRecord {
            scenario: run.scenario.clone(),
            policy: run.policy.label(),
            cycle: run.cycle,
            around,
            reserves: run.policy.reserves(),
            players: lines.into_iter().zip(bandwidths).zip(reserved).map(record).collect(),
            period: ground.period,
            server_period: ground.server_period,
            start,
            jobs: run.jobs,
            warm_up: warm_up(run.jobs),
            stopped,
            early: ground.early,
            late: 0.0,
            hogs: if run.hogs { self.hogs.ids().len() } else { 0 },
            shift_at: run.shifts.then(|| shift_at(run.jobs)),
        };
        let played_ns = ground.period.as_f64() * (run.jobs * record.players.len()) as f64;
        record.around =
            Surroundings { run_delay: delay_ns as f64 / played_ns, speed: self.speed(run, &record), ..record.around };
        Ok(record)
    }

    /// The calibrated cost of job `k` of player `i` in ns.
    pub fn calibrated_ns(&self, run: &Run, i: usize, k: usize) -> f64 {
        let (clip, position) = self.frame(run, i, k);
        self.traces[clip].cost_ns(position)
    }

    /// Which clip job `k` of player `i` decodes, and which of its frames.
    pub fn frame(&self, run: &Run, i: usize, k: usize) -> (usize, usize) {
        let (first, second) = (i % self.clips.len(), (i + 1) % self.clips.len());
        match shift_at(run.jobs) as usize {
            at if run.shifts && k >= at => (second, i * OFFSET + k - at),
            _ => (first, i * OFFSET + k),
        }
    }

    /// Cost of the counted frames over that of the same frames in the calibration.
    fn speed(&self, run: &Run, record: &RunRecord) -> Option<f64> {
        let (mut cost, mut calibrated) = (0.0, 0.0);
        for (i, player) in record.players.iter().enumerate() {
            for line in player.lines.iter().skip(record.warm_up).filter(|line| !line.skipped) {
                cost += line.job.cost.as_f64();
                calibrated += self.calibrated_ns(run, i, line.job.k as usize);
            }
        }
        (calibrated > 0.0).then(|| cost / calibrated)
    }

    fn ready_players(&self, run: &Run, ground: &Ground) -> Result<Vec<Killed>> {
        let spawned: Result<Vec<Killed>> = (0..ground.players as usize).map(|i| self.spawn(run, ground, i)).collect();
        let mut players = spawned?;
        for player in &mut players {
            self.stop.check()?;
            children::wait_until_ready(player, READY_PATIENCE)?;
        }
        Ok(players)
    }

    /// Player `i` of `n` clips starts with clip `i mod n` and shifts to the next one; each starts elsewhere in its
    /// clip, the same under every policy.
    fn spawn(&self, run: &Run, ground: &Ground, i: usize) -> Result<Killed> {
        let (first, second) = (i % self.clips.len(), (i + 1) % self.clips.len());
        let mut command = children::player_command(self.player);
        command.arg(&self.clips[first].path).arg("--wait").arg("--log").arg(self.log_path(i));
        command.arg("--period").arg(format!("{}ns", ground.period.get()));
        command.arg("--jobs").arg(run.jobs.to_string());
        command.arg("--grace").arg(GRACE.as_secs_f64().to_string());
        command.arg("--start-at").arg((i * OFFSET).to_string()).arg("--name").arg(format!("player {}", i + 1));
        if run.shifts {
            command.arg("--then").arg(&self.clips[second].path);
            command.arg("--shift-at").arg(shift_at(run.jobs).to_string());
        }
        command.args(run.policy.arguments(ground));
        if run.policy.is_ours() {
            command.arg("--socket").arg(self.socket);
        }
        if run.policy.predicts() {
            command.arg("--profile").arg(&self.trace_files[first]);
        }
        if run.policy.is_oracle() {
            command.arg("--oracle").arg(&self.trace_files[first]);
            command.arg("--then-oracle").arg(&self.trace_files[second]);
        }
        children::spawn(command)
    }

    /// What Q-Fabric's players hold from the first counted job to the last deadline.
    fn holding(&self, run: &Run, players: &[Killed], from: Instant, until: Instant) -> Result<Option<Holding>> {
        let ours = run.policy.is_ours();
        ours.then(|| Holding::new(self.socket, players.iter().map(Killed::id), from, until)).transpose()
    }

    /// Answers how long the players have waited in run queues, all together, in ns.
    fn play(
        &self,
        players: &mut [Killed],
        start: Instant,
        stopped: Instant,
        holding: &mut Option<Holding>,
        progress: &mut dyn Progress,
    ) -> Result<u64> {
        let mut delays = vec![0; players.len()];
        for player in players.iter_mut() {
            children::start_at(player, start)?;
        }
        loop {
            self.stop.check()?;
            let now = qfabric_linux::clock::now();
            progress.advance(now.since(start).get() / 1_000_000);
            for (player, delay) in players.iter().zip(&mut delays) {
                *delay = run_delay_ns(player.id()).max(*delay); // zero once it has ended
            }
            holding.as_mut().map_or(Ok(()), |holding| holding.look(now))?;
            let running = players.iter_mut().map(|p| p.ended("qfabric-player")).collect::<Result<Vec<_>>>()?;
            if running.iter().all(|&ended| ended) {
                return Ok(delays.iter().sum());
            }
            if now > stopped {
                // A player that still runs only has its log to write.
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
    let warm_up = warm_up(jobs);
    (warm_up + (jobs - warm_up) / 2) as u64
}

/// First jobs of a round that do not count.
pub fn warm_up(jobs: usize) -> usize {
    WARM_UP.min(jobs / 2)
}

/// Puts the players under a static policy; answers each one's Q/P, or none.
fn reserve(deadline: &mut Deadline, players: &[Killed], policy: &Policy, ground: &Ground) -> Result<Vec<Option<f64>>> {
    let reserve_one = |player: &Killed| {
        if *policy == Policy::Fifo {
            let attributes = SchedAttr::fifo(FIFO_PRIORITY);
            attributes.give(ThreadId(player.id() as i32)).context("SCHED_FIFO was refused; it needs CAP_SYS_NICE")?;
        }
        let Some(setting) = policy.static_setting(player.id(), ground)? else { return Ok(None) };
        deadline.apply(&setting).context("a static reservation was refused")?;
        Ok(setting.reservation.map(|r| r.budget().as_f64() / r.period().as_f64()))
    };
    players.iter().map(reserve_one).collect()
}
