//! Plays one round on the real machine: players under one policy, beside the hogs.
//!
//! ```text
//!  players load and warm up │ reservations set │ hogs run ─────────────────────────── hogs paused │ logs read
//!        (hogs paused)      │                  │   start ── jobs ── shift ── jobs ── grace ──     │
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::{Deadline, Mechanism};
use qfabric_types::{Instant, Nanos, ThreadId};

use crate::children::{self, ChildGuard, Hogs, Stop};
use crate::clips::Clip;
use crate::cpu_use::{CpuMeter, ThreadTimes};
use crate::disturbance::{Counters, Surroundings};
use crate::holding::Holding;
use crate::policy::{Policy, RoundSettings};
use crate::progress::Progress;
use crate::record::{PlayerRecord, RunRecord, parse_log};
use crate::trial::Trace;

/// Time from the announcement of the start to the start: enough for every player to go to sleep.
const HEAD_START: Nanos = Nanos::from_millis(200);
/// Late frames are decoded until this time after the last deadline.
pub const GRACE: Nanos = Nanos::from_millis(500);
/// Jobs of the warm-up, one group of pictures: warms caches, predictors, and the scheduler's statistics of a new
/// task.
pub const WARM_UP: usize = 12;
/// Each player starts this number of frames after the player before it, so that expensive frames do not coincide
/// by design.
const OFFSET: usize = 23;
/// Priority of players under SCHED_FIFO.
const FIFO_PRIORITY: u32 = 50;
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Time after the grace in which players may write their logs, while the hogs are paused.
const LOG_PATIENCE: Nanos = Nanos::from_millis(10_000);

/// The settings of one round.
#[derive(Clone, Debug)]
pub struct Run {
    /// Short name of the scenario.
    pub scenario: String,
    pub policy: Policy,
    /// Jobs of each player, the warm-up included.
    pub jobs: usize,
    /// Every player changes its clip half-way.
    pub shifts: bool,
    /// The hogs run.
    pub hogs: bool,
    /// Release of each player's jobs after the common start, divided by T; empty if all are released together.
    pub releases: Vec<f64>,
    /// Rounds with the same cycle number are compared with each other.
    pub cycle: usize,
}

impl Run {
    /// Release of the first job of player `i` after the common start.
    fn phase(&self, i: usize, period: Nanos) -> Nanos {
        self.releases.get(i).map_or(Nanos::ZERO, |release| Nanos::from_f64(release * period.as_f64()))
    }
}

/// The values that all rounds share.
pub struct Stage<'a> {
    pub player: &'a Path,
    /// The clips: player `i` starts with clip `i mod n`.
    pub clips: &'a [Clip],
    /// Calibrated costs of the clips.
    pub traces: &'a [Trace],
    /// Files with the contents of `traces`, for Q-Fabric's profiles and the oracle.
    pub trace_files: &'a [PathBuf],
    /// Folder of the logs.
    pub folder: &'a Path,
    /// The hogs, paused.
    pub hogs: &'a Hogs,
    /// The daemon's socket.
    pub socket: &'a Path,
    /// Set by Ctrl-C.
    pub stop: &'a Stop,
}

impl Stage<'_> {
    /// Plays one round. Leaves `room` and `room_needed` of the surroundings at zero.
    pub fn run(&self, run: &Run, settings: &RoundSettings, progress: &mut dyn Progress) -> Result<RunRecord> {
        let before = Counters::read(&self.hogs.ids())?;
        let mut players = self.ready_players(run, settings)?;
        let mut deadline = Deadline::new();
        let bandwidths = reserve(&mut deadline, &players, &run.policy, settings)?;
        let start = qfabric_linux::clock::now() + HEAD_START;
        let phases: Vec<Nanos> = (0..players.len()).map(|i| run.phase(i, settings.period)).collect();
        let end = start + settings.period.saturating_mul(run.jobs as u64);
        let stopped = end + phases.iter().copied().max().unwrap_or(Nanos::ZERO) + GRACE;
        let counted = start + settings.period.saturating_mul(warm_up(run.jobs) as u64);
        let mut holding = self.holding(run, &players, counted, end)?;
        let mut meter = CpuMeter::new(run.policy.is_qfabric(), self.hogs.ids(), counted, end);
        if run.hogs {
            self.hogs.resume();
        }
        let played = self.play(&mut players, (start, &phases), stopped, (&mut holding, &mut meter), progress);
        self.hogs.pause();
        let delay_ns = played?;
        let reserved = holding.map_or(bandwidths.clone(), |holding| holding.means());
        let lines = (0..players.len()).map(|i| self.log(i)).collect::<Result<Vec<_>>>()?;
        drop(players);
        let around = before.until(&Counters::read(&self.hogs.ids())?);
        let record =
            |(((lines, phase), static_bandwidth), reserved)| PlayerRecord { lines, phase, static_bandwidth, reserved };
        let mut record = RunRecord {
            scenario: run.scenario.clone(),
            policy: run.policy.label(),
            cycle: run.cycle,
            around,
            cpu: meter.result(),
            reserves: run.policy.reserves(),
            players: lines.into_iter().zip(phases).zip(bandwidths).zip(reserved).map(record).collect(),
            period: settings.period,
            server_period: settings.server_period,
            start,
            jobs: run.jobs,
            warm_up: warm_up(run.jobs),
            stopped,
            early: settings.early,
            late: 0.0,
            hogs: if run.hogs { self.hogs.ids().len() } else { 0 },
            shift_at: run.shifts.then(|| shift_at(run.jobs)),
        };
        let played_ns = settings.period.as_f64() * (run.jobs * record.players.len()) as f64;
        record.around =
            Surroundings { run_delay: delay_ns as f64 / played_ns, speed: self.speed(run, &record), ..record.around };
        Ok(record)
    }

    /// The calibrated cost, in ns, of job `k` of player `i`.
    pub fn calibrated_ns(&self, run: &Run, i: usize, k: usize) -> f64 {
        let (clip, position) = self.frame(run, i, k);
        self.traces[clip].cost_ns(position)
    }

    /// The clip and the frame of the clip that job `k` of player `i` decodes.
    pub fn frame(&self, run: &Run, i: usize, k: usize) -> (usize, usize) {
        let (first, second) = (i % self.clips.len(), (i + 1) % self.clips.len());
        match shift_at(run.jobs) as usize {
            at if run.shifts && k >= at => (second, i * OFFSET + k - at),
            _ => (first, i * OFFSET + k),
        }
    }

    /// Cost of the counted frames divided by the cost of the same frames in the calibration.
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

    fn ready_players(&self, run: &Run, settings: &RoundSettings) -> Result<Vec<ChildGuard>> {
        let spawned: Result<Vec<ChildGuard>> =
            (0..settings.players as usize).map(|i| self.spawn(run, settings, i)).collect();
        let mut players = spawned?;
        for player in &mut players {
            self.stop.check()?;
            children::wait_until_ready(player, READY_PATIENCE)?;
        }
        Ok(players)
    }

    /// Starts player `i`. With `n` clips it begins with clip `i mod n` and shifts to the next clip. Each player
    /// begins at a different frame, which is the same under every policy.
    fn spawn(&self, run: &Run, settings: &RoundSettings, i: usize) -> Result<ChildGuard> {
        let (first, second) = (i % self.clips.len(), (i + 1) % self.clips.len());
        let mut command = children::player_command(self.player);
        command.arg(&self.clips[first].path).arg("--wait").arg("--log").arg(self.log_path(i));
        command.arg("--period").arg(format!("{}ns", settings.period.get()));
        command.arg("--jobs").arg(run.jobs.to_string());
        command.arg("--grace").arg(GRACE.as_secs_f64().to_string());
        command.arg("--start-at").arg((i * OFFSET).to_string()).arg("--name").arg(format!("player {}", i + 1));
        if run.shifts {
            command.arg("--then").arg(&self.clips[second].path);
            command.arg("--shift-at").arg(shift_at(run.jobs).to_string());
        }
        command.args(run.policy.arguments(settings));
        if run.policy.is_qfabric() {
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

    /// Measures the bandwidth of Q-Fabric's players from the first counted job to the last deadline.
    fn holding(&self, run: &Run, players: &[ChildGuard], from: Instant, until: Instant) -> Result<Option<Holding>> {
        let ours = run.policy.is_qfabric();
        ours.then(|| Holding::new(self.socket, players.iter().map(ChildGuard::id), from, until)).transpose()
    }

    /// Plays the jobs. Returns the time, in ns, that all players together have waited in run queues.
    fn play(
        &self,
        players: &mut [ChildGuard],
        (start, phases): (Instant, &[Nanos]),
        stopped: Instant,
        (holding, meter): (&mut Option<Holding>, &mut CpuMeter),
        progress: &mut dyn Progress,
    ) -> Result<u64> {
        let mut times = vec![ThreadTimes::default(); players.len()];
        for (player, &phase) in players.iter_mut().zip(phases) {
            children::start_at(player, start + phase)?;
        }
        loop {
            self.stop.check()?;
            let now = qfabric_linux::clock::now();
            progress.advance(now.since(start).get() / 1_000_000);
            for (player, times) in players.iter().zip(&mut times) {
                *times = times.latest(ThreadTimes::read(player.id())); // 0 after the player has ended
            }
            meter.note(&times, now);
            holding.as_mut().map_or(Ok(()), |holding| holding.read_if_due(now))?;
            let running = players.iter_mut().map(|p| p.ended("qfabric-player")).collect::<Result<Vec<_>>>()?;
            if running.iter().all(|&ended| ended) {
                meter.end(&times, now);
                return Ok(times.iter().map(|times| times.waited).sum());
            }
            if now > stopped {
                // A player that still runs only has to write its log.
                self.hogs.pause();
            }
            ensure!(
                now < stopped + LOG_PATIENCE,
                "a player did not end in time; check whether other programs use the CPUs"
            );
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
        parse_log(&text).with_context(|| format!("{} is not a valid log", path.display()))
    }
}

/// The job at which the load shifts: the middle of the counted jobs.
fn shift_at(jobs: usize) -> u64 {
    let warm_up = warm_up(jobs);
    (warm_up + (jobs - warm_up) / 2) as u64
}

/// Number of jobs at the start of a round that do not count.
pub fn warm_up(jobs: usize) -> usize {
    WARM_UP.min(jobs / 2)
}

/// Applies a static policy to the players. Returns the Q/P of each player, or `None` without a reservation.
fn reserve(
    deadline: &mut Deadline,
    players: &[ChildGuard],
    policy: &Policy,
    settings: &RoundSettings,
) -> Result<Vec<Option<f64>>> {
    let reserve_one = |player: &ChildGuard| {
        if *policy == Policy::Fifo {
            let attributes = SchedAttr::fifo(FIFO_PRIORITY);
            attributes
                .give(ThreadId(player.id() as i32))
                .context("the kernel refused SCHED_FIFO; run as root, or with CAP_SYS_NICE")?;
        }
        let Some(setting) = policy.static_setting(player.id(), settings)? else { return Ok(None) };
        deadline.apply(&setting).context("the kernel refused a static reservation")?;
        Ok(setting.reservation.map(|r| r.budget().as_f64() / r.period().as_f64()))
    };
    players.iter().map(reserve_one).collect()
}
