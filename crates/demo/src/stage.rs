//! The whole demo: clips, calibration, every round, report.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use qfabric_daemon::{Config, Embedded};
use qfabric_types::{Nanos, Share};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::Options;
use crate::calibrate::{self, Calibration};
use crate::children::{self, Hogs, Interrupted, Stop};
use crate::clips::{self, Clip};
use crate::disturbance::{Drift, Surroundings};
use crate::grid::{self, Cell, Pattern};
use crate::live::{Run, Stage};
use crate::plan::{self, Entry, Plan, Scenario};
use crate::policy::{self, Ground, Policy};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::{Agenda, Machine, Measured, Report};
use crate::trial::{self, Trace};

/// Hogs per CPU: with fewer than six, fair sharing still carries a light player.
const HOGS_PER_CPU: usize = 6;
/// e/T: one server period of four.
const EARLY: f64 = 0.25;
/// Left free of what the kernel would admit, so that rounding and late departures refuse nothing.
const MARGIN: Share = Share::from_ppm(10_000);
/// How long a round waits for room that an earlier one still holds.
const ROOM_PATIENCE: Duration = Duration::from_secs(3);
/// A round that was disturbed or failed is played again at most this often …
const REPEATS: usize = 2;
/// … and all rounds together at most this part of their number.
const REPEATED_PART: usize = 3;
/// The load is set at most so often: anew where the first third of the rounds shows another machine.
const SETTINGS: usize = 2;
/// In a cell of the grid, at most so many rounds are played again because the machine was faster or slower in them.
const EVENINGS: usize = 4;

/// Passes over each clip in a trial execution; the middle cost of each frame counts.
const PASSES: usize = 3;
/// Longer frame periods get a smaller clip.
const LONGEST_PERIOD_NS: f64 = 100e6;

/// Runs the demo. On Ctrl-C everything is put back and what was measured so far comes back as a report that
/// is not complete.
pub fn run(options: Options, progress: &mut dyn Progress) -> Result<Report> {
    let _signals = raise_on_signals(&options.stop)?;
    let player = children::find_player()?;
    let cache = options.cache.clone().map_or_else(clips::cache_folder, Ok)?.join("clips");
    progress.note(&format!("order of the rounds: --seed {}", options.seed));
    let report = match options.only.iter().any(|word| word.eq_ignore_ascii_case("grid")) {
        true => grid(&options, &player, &cache, progress)?,
        false => scenarios(&options, &player, &cache, progress)?,
    };
    if let Some(out) = &options.out {
        report.write_to(out)?;
    }
    if let Some(path) = &options.json {
        clips::write_whole(path, report.summary_json()?.as_bytes())?;
    }
    Ok(report)
}

/// The two scenarios.
fn scenarios(options: &Options, player: &Path, cache: &Path, progress: &mut dyn Progress) -> Result<Report> {
    let plan = plan::plan(options.seconds, &options.only, options.all, options.seed);
    ensure!(
        !plan.rounds.is_empty(),
        "nothing is called {:?}; try: plain, nice, FIFO, static, GRUB, hint, oracle, hogs, shift, grid",
        options.only
    );
    if !plan.left_out.is_empty() {
        progress.note(&format!("left out for want of time (--seconds): {}", plan.left_out.join("; ")));
    }
    let clips = clips::ensure(cache, player, &options.stop, progress)?;
    let folder = Folder::make()?;
    let measured = Bench::new(options, player, clips.into(), &folder)?.all(&plan, cache, progress)?;
    Ok(Report::new(measured, &Agenda::of_plan(&plan, options.seed)))
}

/// The grid.
fn grid(options: &Options, player: &Path, cache: &Path, progress: &mut dyn Progress) -> Result<Report> {
    let cells = grid::cells(options.seconds, options.all, options.seed);
    let [closed, mixed] = clips::ensure(cache, player, &options.stop, progress)?;
    let folder = Folder::make()?;
    let mut bench = Bench::new(options, player, vec![closed, mixed], &folder)?;
    let measured = bench.grid(&cells, cache, progress)?;
    Ok(Report::new(measured, &Agenda::of_cells(cells, options.all, options.seed)))
}

/// What is needed to measure.
struct Bench<'a> {
    options: &'a Options,
    player: &'a Path,
    clips: Vec<Clip>,
    folder: &'a Folder,
    hogs: Hogs,
    room: Share,
    cpus: usize,
    repeats_left: usize,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, player: &'a Path, clips: Vec<Clip>, folder: &'a Folder) -> Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let hogs = Hogs::start(player, options.hogs.unwrap_or(HOGS_PER_CPU * cpus))?;
        let free = qfabric_linux::capacity::probe().context("how much may be reserved here")?;
        let room = free.saturating_sub(MARGIN);
        Ok(Bench { options, player, clips, folder, hogs, room, cpus, repeats_left: 0 })
    }

    fn all(&mut self, plan: &Plan, cache: &Path, progress: &mut dyn Progress) -> Result<Measured> {
        let mut settings_left = SETTINGS;
        loop {
            settings_left -= 1;
            let trials = self.fitting_trials(cache, progress)?;
            let calibrations = Scenario::ALL.map(|scenario| {
                let is_played = plan.entries.iter().any(|entry| entry.scenario == scenario);
                is_played.then(|| self.calibration(scenario, &trials, progress)).transpose()
            });
            let [hogs, shift] = calibrations;
            let calibrations = [hogs?, shift?];
            let Some((records, missing)) = self.rounds(plan, &calibrations, settings_left > 0, progress)? else {
                progress.note("the machine has another speed than when the load was set: from the beginning");
                continue;
            };
            let machine = self.machine();
            let loads = Scenario::ALL.into_iter().zip(calibrations);
            let loads = loads.filter_map(|(s, c)| Some((s.name().to_owned(), c?))).collect();
            let clips = self.clips.iter().cloned().zip(trials).collect();
            return Ok(Measured { records, missing, machine, clips, loads });
        }
    }

    fn machine(&self) -> Machine {
        Machine { cpus: self.cpus, capacity: self.room, hogs: self.hogs.ids().len(), ..Machine::examine() }
    }

    /// Every cell with its policies, in random order.
    fn grid(&mut self, cells: &[Cell], cache: &Path, progress: &mut dyn Progress) -> Result<Measured> {
        let mut random = ChaCha8Rng::seed_from_u64(self.options.seed);
        let mut measured = Measured {
            records: Vec::new(),
            missing: Vec::new(),
            machine: self.machine(),
            clips: Vec::new(),
            loads: Vec::new(),
        };
        self.repeats_left = 2 * cells.len();
        for (i, cell) in cells.iter().enumerate() {
            let mut policies = grid::policies(self.options.all, i);
            policies.shuffle(&mut random);
            match self.cell(i, cell, &policies, cache, &mut measured, progress) {
                Ok(()) => (),
                Err(error) if error.is::<Interrupted>() => break,
                Err(error) => {
                    let reason = format!("{}: {error:#}", cell.name());
                    progress.note(&format!("not played: {reason}"));
                    measured.missing.extend(policies.iter().map(|_| reason.clone()));
                }
            }
        }
        Ok(measured)
    }

    /// Sets the load of a cell and plays its policies.
    fn cell(
        &mut self,
        i: usize,
        cell: &Cell,
        policies: &[Policy],
        cache: &Path,
        measured: &mut Measured,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let run = |policy| Run {
            scenario: cell.name(),
            policy,
            jobs: cell.jobs(),
            shifts: cell.shifts,
            hogs: cell.hogs,
            cycle: i,
        };
        progress.stage(&format!("cell {}: {}", i + 1, cell.name()), policies.len() as u64);
        let clips = self.clips_of(cell, cache, progress)?;
        let traces = self.trials_of(&clips, cell.hogs)?;
        let trial = Calibration {
            players: cell.players,
            rho: Scenario::Shift.rho(),
            clips,
            period: Nanos::ZERO,
            traces,
            trace_files: Vec::new(),
            demand: 0.0,
            designed: cell.load * self.room_for(cell.players),
        };
        let calibration = self.calibrated(trial, &run(policy::equal_shares(true)), grid::PILOT_JOBS, progress)?;
        measured.loads.push((cell.name(), calibration.clone()));
        let mut rounds: Vec<(&Policy, RunRecord)> = Vec::new();
        for policy in policies {
            match self.undisturbed(&run(policy.clone()), &calibration, progress) {
                Ok(record) => rounds.push((policy, record)),
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) => measured.missing.push(format!("{}, {}: {error:#}", cell.name(), policy.label())),
            }
        }
        let evened = self.even_out(&mut rounds, |policy| run(policy.clone()), &calibration, progress);
        measured.records.extend(rounds.into_iter().map(|(_, record)| record));
        evened
    }

    /// Plays again what met another machine than the rounds that it is compared with, a bounded number of times.
    fn even_out(
        &mut self,
        rounds: &mut [(&Policy, RunRecord)],
        run: impl Fn(&Policy) -> Run,
        calibration: &Calibration,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        for _ in 0..EVENINGS {
            let compared = rounds.iter().filter(|(policy, _)| grid::is_compared(policy)).map(|(_, record)| record);
            let Some((odd, reason)) = grid::odd_one_out(compared).filter(|_| self.repeats_left > 0) else { break };
            progress.note(&format!("played again, {odd}: {reason}"));
            self.repeats_left -= 1;
            let Some((policy, record)) = rounds.iter_mut().find(|(_, record)| record.policy == odd) else { break };
            *record = self.undisturbed(&run(policy), calibration, progress)?;
        }
        Ok(())
    }

    /// What so many players can use: a thread runs on one CPU at a time.
    fn room_for(&self, players: usize) -> f64 {
        self.room.as_f64().min(0.95 * players as f64)
    }

    /// The clips of a cell: a quarter of the size where the frame period would be longer than 100 ms.
    fn clips_of(&self, cell: &Cell, cache: &Path, progress: &mut dyn Progress) -> Result<Vec<Clip>> {
        let stop = &self.options.stop;
        let kinds = match (cell.shifts, cell.pattern) {
            (true, _) => self.clips.clone(),
            (false, Pattern::Closed) => vec![self.clips[0].clone()],
            (false, Pattern::Mixed) => vec![self.clips[1].clone()],
            (false, Pattern::None) => vec![clips::unpatterned(cache, &self.clips[1], stop, progress)?],
        };
        let share = cell.load * self.room_for(cell.players) / cell.players as f64;
        let designed: f64 = kinds.iter().map(clips::designed_share).sum::<f64>() / kinds.len() as f64;
        if designed / share * trial::PERIOD_NS <= LONGEST_PERIOD_NS {
            return Ok(kinds);
        }
        kinds.iter().map(|clip| clips::resized(cache, clip, 0.25, stop, progress)).collect()
    }

    fn trials_of(&self, clips: &[Clip], hogs: bool) -> Result<Vec<Trace>> {
        if hogs {
            self.hogs.resume();
        }
        let paths: Vec<_> = clips.iter().map(|clip| clip.path.clone()).collect();
        let outputs: Vec<_> = (0..paths.len()).map(|i| self.folder.0.join(format!("trial{i}.txt"))).collect();
        let passes: Result<Vec<_>> =
            (0..PASSES).map(|_| trial::run(self.player, &paths, &outputs, &self.options.stop)).collect();
        self.hogs.pause();
        let passes = passes?;
        let of_clip = |i: usize| passes.iter().map(|pass| pass[i].clone()).collect::<Vec<_>>();
        Ok((0..clips.len()).map(|i| Trace::middle(&of_clip(i))).collect())
    }

    /// Decodes the clips beside the hogs; other sizes where they cost much more or less than they were made for.
    fn fitting_trials(&mut self, cache: &Path, progress: &mut dyn Progress) -> Result<Vec<Trace>> {
        let mut trials = self.trials(progress)?;
        let misfits: Vec<Option<f64>> =
            self.clips.iter().zip(&trials).map(|(clip, trial)| clips::misfit(clip, trial.mean_share())).collect();
        if misfits.iter().any(Option::is_some) {
            for (clip, factor) in self.clips.iter_mut().zip(misfits) {
                let Some(factor) = factor else { continue };
                *clip = clips::resized(cache, clip, factor, &self.options.stop, progress)?;
                progress.note(&format!("{} is decoded in {}, which fits this machine now", clip.title, clip.size));
            }
            trials = self.trials(progress)?;
        }
        Ok(trials)
    }

    /// Decodes each clip once at full speed beside the hogs.
    fn trials(&self, progress: &mut dyn Progress) -> Result<Vec<Trace>> {
        progress.stage("trial execution", 1);
        let traces = self.trials_of(&self.clips, true);
        progress.advance(1);
        traces
    }

    fn calibration(&self, scenario: Scenario, trials: &[Trace], progress: &mut dyn Progress) -> Result<Calibration> {
        let trial = Calibration {
            players: scenario.players(self.cpus),
            rho: scenario.rho(),
            clips: self.clips.clone(),
            period: Nanos::ZERO,
            traces: trials.to_vec(),
            trace_files: Vec::new(),
            demand: 0.0,
            designed: scenario.designed_demand(self.room),
        };
        let run = self.run_of(scenario, policy::equal_shares(true), 0);
        progress.stage(&format!("pilot round: {}", scenario_title(scenario)), 1);
        self.calibrated(trial, &run, scenario.jobs() / 2, progress)
    }

    /// Sets the load of `run` from a pilot round of `jobs` jobs.
    fn calibrated(
        &self,
        trial: Calibration,
        run: &Run,
        jobs: usize,
        progress: &mut dyn Progress,
    ) -> Result<Calibration> {
        let trial_files = calibrate::write(&trial.traces, &self.folder.0, &run.scenario)?;
        let pilot_run = Run { jobs, ..run.clone() };
        let trial = self.with_period(Calibration { trace_files: trial_files, ..trial }, &pilot_run);
        let pilot = self.pilot(&pilot_run, &trial, progress)?;
        let company = self.with_stage(&trial, Path::new(""), |stage| calibrate::company(stage, &pilot_run, &pilot));
        let traces: Vec<Trace> = trial.traces.iter().zip(company).map(|(trace, by)| trace.scaled(by)).collect();
        calibrate::write(&traces, &self.folder.0, &run.scenario)?;
        Ok(self.with_period(Calibration { traces, ..trial }, run))
    }

    /// A pilot round, played again while it fails or something else has the CPUs: it sets the load of all others. That
    /// frames cost more or less than alone is what it is played for.
    fn pilot(&self, run: &Run, trial: &Calibration, progress: &mut dyn Progress) -> Result<RunRecord> {
        for _ in 0..REPEATS {
            let reason = match self.play(run, trial, progress) {
                Ok(pilot) => match (Surroundings { speed: None, ..pilot.around.clone() }).disturbance() {
                    None => return Ok(pilot),
                    Some(reason) => reason,
                },
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) => format!("{error:#}"),
            };
            progress.note(&format!("pilot round played again: {reason}"));
        }
        self.play(run, trial, progress)
    }

    /// The calibration with the period at which the run demands what was designed.
    fn with_period(&self, calibration: Calibration, run: &Run) -> Calibration {
        let (players, designed) = (calibration.players, calibration.designed);
        let (mean, dearest) =
            self.with_stage(&calibration, Path::new(""), |stage| calibrate::costs(stage, run, players));
        let period = calibrate::period(mean, dearest, players, designed, self.options.server_periods);
        Calibration { period, demand: players as f64 * mean / period.as_f64(), ..calibration }
    }

    fn run_of(&self, scenario: Scenario, policy: Policy, cycle: usize) -> Run {
        let (shifts, jobs) = (scenario == Scenario::Shift, scenario.jobs());
        Run { scenario: scenario.name().into(), policy, jobs, shifts, hogs: true, cycle }
    }

    /// All rounds in the plan's order, and after them once more those that were disturbed: what slows a machine down often
    /// lasts for some rounds. Also those that could not be played, with the reason. None where the load `may_be_set_anew`
    /// and the first third of the rounds shows that it should.
    fn rounds(
        &mut self,
        plan: &Plan,
        calibrations: &[Option<Calibration>; 2],
        may_be_set_anew: bool,
        progress: &mut dyn Progress,
    ) -> Result<Option<(Vec<RunRecord>, Vec<String>)>> {
        self.repeats_left = plan.rounds.len().div_ceil(REPEATED_PART);
        let (mut records, mut missing) = (Vec::new(), Vec::new());
        let mut ahead: VecDeque<_> = plan.rounds.iter().map(|round| (round, 0)).collect();
        let (mut drift, mut played) = (Drift::default(), 0);
        while let Some((round, repeats)) = ahead.pop_front() {
            let Entry { scenario, policy, .. } = &plan.entries[round.entry];
            let Some(calibration) = &calibrations[*scenario as usize] else { continue };
            let run = self.run_of(*scenario, policy.clone(), round.cycle);
            let name = format!("{}, {}", scenario_title(*scenario), policy.label());
            played += 1;
            let title = format!("{played} of {}: {name}", played + ahead.len());
            progress.stage(&title, run.jobs as u64 * calibration.period.get() / 1_000_000);
            let outcome = self.play(&run, calibration, progress);
            let drifts = outcome.as_ref().is_ok_and(|record| drift.is_shown_by(record.around.speed));
            if drifts && may_be_set_anew && played <= plan.rounds.len() / 3 {
                return Ok(None);
            }
            if let Some(reason) = disturbance(&outcome).filter(|_| repeats < REPEATS && self.repeats_left > 0) {
                progress.note(&format!("to be played again after the others, {name}: {reason}"));
                self.repeats_left -= 1;
                ahead.push_back((round, repeats + 1));
                continue;
            }
            match outcome {
                Ok(record) => records.push(record),
                Err(error) if error.is::<Interrupted>() => break,
                Err(error) => {
                    let reason = format!("{name}: {error:#}");
                    progress.note(&format!("not played: {reason}"));
                    missing.push(reason);
                }
            }
        }
        Ok(Some((records, missing)))
    }

    /// Plays a round again while it is disturbed or fails, a bounded number of times.
    fn undisturbed(&mut self, run: &Run, calibration: &Calibration, progress: &mut dyn Progress) -> Result<RunRecord> {
        for _ in 0..REPEATS {
            let played = self.play(run, calibration, progress);
            let Some(reason) = disturbance(&played).filter(|_| self.repeats_left > 0) else { return played };
            self.repeats_left -= 1;
            progress.note(&format!("played again, {}: {reason}", run.policy.label()));
        }
        self.play(run, calibration, progress)
    }

    fn play(&self, run: &Run, calibration: &Calibration, progress: &mut dyn Progress) -> Result<RunRecord> {
        let free = self.wait_for_room()?;
        let ground = self.ground(calibration);
        let daemon = run.policy.is_ours().then(|| self.daemon(ground.server_period)).transpose()?;
        let socket = daemon.as_ref().map(|d| d.socket().to_owned()).unwrap_or_default();
        let mut record = self.with_stage(calibration, &socket, |stage| stage.run(run, &ground, progress))?;
        (record.around.room, record.around.room_needed) = (free.as_f64(), self.room.as_f64());
        Ok(record)
    }

    /// Waits until threads of earlier rounds have left their reservations; answers what is free then.
    fn wait_for_room(&self) -> Result<Share> {
        let end = Instant::now() + ROOM_PATIENCE;
        loop {
            self.options.stop.check()?;
            let free = qfabric_linux::capacity::probe().context("how much may be reserved here")?;
            if free >= self.room || Instant::now() > end {
                return Ok(free);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn with_stage<T>(&self, calibration: &Calibration, socket: &Path, act: impl FnOnce(&Stage) -> T) -> T {
        act(&Stage {
            player: self.player,
            clips: &calibration.clips,
            traces: &calibration.traces,
            trace_files: &calibration.trace_files,
            folder: &self.folder.0,
            hogs: &self.hogs,
            socket,
            stop: &self.options.stop,
        })
    }

    /// The daemon's control thread is scheduled by deadlines too: one that lies behind those of the players'
    /// reservations would make it wait for all of them, and new budgets would come too late. Its own reservation is
    /// part of the room: rivals may hand out as much as it does with everything it needs itself.
    fn daemon(&self, server_period: Nanos) -> Result<Embedded> {
        let mut config = Config::default();
        config.limits.capacity = Some(self.room);
        config.control.period = Nanos::new(server_period.get() / 2);
        config.control.budget = Nanos::new(config.control.period.get() / 10);
        Embedded::start(config).context("the embedded daemon")
    }

    fn ground(&self, calibration: &Calibration) -> Ground {
        let players = calibration.players;
        Ground {
            period: calibration.period,
            server_period: Nanos::new(calibration.period.get() / self.options.server_periods),
            capacity: self.room,
            players: players as u32,
            early: EARLY,
            rho: calibration.rho,
            mean_share: calibration.demand / players as f64,
            contract: self.options.contract.clone(),
        }
    }
}

/// Why a round says nothing: it was disturbed, or failed. None where it was interrupted.
fn disturbance(played: &Result<RunRecord>) -> Option<String> {
    match played {
        Ok(record) => record.around.disturbance(),
        Err(error) if error.is::<Interrupted>() => None,
        Err(error) => Some(format!("{error:#}")),
    }
}

fn scenario_title(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Hogs => "one player",
        Scenario::Shift => "near capacity",
    }
}

/// A folder of our own for logs and traces, removed at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn make() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("qfabric-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok(); // what cannot be removed lies in the system's temporary folder
    }
}

/// Raises the flag on SIGINT and SIGTERM for as long as the answer lives.
fn raise_on_signals(stop: &Stop) -> Result<Signals> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let register = |signal| signal_hook::flag::register(signal, Arc::clone(&stop.0)).context("cannot catch signals");
    Ok(Signals([register(SIGINT)?, register(SIGTERM)?]))
}

struct Signals([signal_hook::SigId; 2]);

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.0 {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_folder_is_gone_afterwards() {
        let folder = Folder::make().unwrap();
        let path = folder.0.clone();
        assert!(path.is_dir());
        drop(folder);
        assert!(!path.exists());
    }
}
