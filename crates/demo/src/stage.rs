//! The whole demo: clips, calibration, every round, report.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use qfabric_daemon::{Config, Embedded};
use qfabric_types::{Nanos, Share};

use crate::Options;
use crate::calibrate::{self, Calibration};
use crate::children::{self, Hogs, Interrupted, Stop};
use crate::clips::{self, Clip};
use crate::live::{Run, Stage};
use crate::plan::{self, Entry, Plan, Scenario};
use crate::policy::{self, Ground, Policy};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::{Machine, Measured, Report};
use crate::trial::{self, Trace};

/// Hogs per CPU: with fewer than six, fair sharing still carries a light player.
const HOGS_PER_CPU: usize = 6;
/// e/T: one server period of four.
const EARLY: f64 = 0.25;
/// Left free of what the kernel would admit, so that rounding and late departures refuse nothing.
const MARGIN: Share = Share::from_ppm(10_000);
/// How long a round waits for room that an earlier one still holds.
const ROOM_PATIENCE: Duration = Duration::from_secs(3);
/// A disturbed round is played again at most this often …
const REPEATS: usize = 2;
/// … and all rounds together at most this part of their number.
const REPEATED_PART: usize = 3;

/// Runs the demo. On Ctrl-C everything is put back and what was measured so far comes back as a report that
/// is not complete.
pub fn run(options: Options, progress: &mut dyn Progress) -> Result<Report> {
    let _signals = raise_on_signals(&options.stop)?;
    let player = children::find_player()?;
    let plan = plan::plan(options.seconds, &options.only, options.all, options.seed);
    ensure!(
        !plan.rounds.is_empty(),
        "nothing is called {:?}; try: plain, nice, FIFO, static, GRUB, hint, oracle, hogs, shift",
        options.only
    );
    let cache = options.cache.clone().map_or_else(clips::cache_folder, Ok)?.join("clips");
    let clips = clips::ensure(&cache, &player, &options.stop, progress)?;
    let folder = Folder::make()?;
    progress.note(&format!("order of the rounds: --seed {}", options.seed));
    if !plan.left_out.is_empty() {
        progress.note(&format!("left out for want of time (--seconds): {}", plan.left_out.join("; ")));
    }
    let mut bench = Bench::new(&options, &player, clips.into(), &folder)?;
    let measured = bench.all(&plan, &cache, progress)?;
    let report = Report::new(measured, &plan, options.seed);
    if let Some(out) = &options.out {
        report.write_to(out)?;
    }
    if let Some(path) = &options.json {
        clips::write_whole(path, report.summary_json()?.as_bytes())?;
    }
    Ok(report)
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
        let trials = self.fitting_trials(cache, progress)?;
        let calibrations = Scenario::ALL.map(|scenario| {
            let is_played = plan.entries.iter().any(|entry| entry.scenario == scenario);
            is_played.then(|| self.calibration(scenario, &trials, progress)).transpose()
        });
        let [hogs, shift] = calibrations;
        let calibrations = [hogs?, shift?];
        let (records, missing) = self.rounds(plan, &calibrations, progress)?;
        let machine =
            Machine { cpus: self.cpus, capacity: self.room, hogs: self.hogs.ids().len(), ..Machine::examine() };
        let loads = Scenario::ALL.into_iter().zip(calibrations).filter_map(|(s, c)| Some((s.name().to_owned(), c?)));
        let clips = self.clips.iter().cloned().zip(trials).collect();
        Ok(Measured { records, missing, machine, clips, loads: loads.collect() })
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
        self.hogs.resume();
        let paths: Vec<_> = self.clips.iter().map(|clip| clip.path.clone()).collect();
        let outputs: Vec<_> = (0..paths.len()).map(|i| self.folder.0.join(format!("trial{i}.txt"))).collect();
        let traces = trial::run(self.player, &paths, &outputs, &self.options.stop);
        self.hogs.pause();
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
        let pilot = self.play(&pilot_run, &trial, progress)?;
        let company = self.with_stage(&trial, Path::new(""), |stage| calibrate::company(stage, &pilot_run, &pilot));
        let traces: Vec<Trace> = trial.traces.iter().zip(company).map(|(trace, by)| trace.scaled(by)).collect();
        calibrate::write(&traces, &self.folder.0, &run.scenario)?;
        Ok(self.with_period(Calibration { traces, ..trial }, run))
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

    /// All rounds in the plan's order; and those that could not be played, with the reason.
    fn rounds(
        &mut self,
        plan: &Plan,
        calibrations: &[Option<Calibration>; 2],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<RunRecord>, Vec<String>)> {
        self.repeats_left = plan.rounds.len().div_ceil(REPEATED_PART);
        let (mut records, mut missing) = (Vec::new(), Vec::new());
        for (i, round) in plan.rounds.iter().enumerate() {
            let Entry { scenario, policy, .. } = &plan.entries[round.entry];
            let Some(calibration) = &calibrations[*scenario as usize] else { continue };
            let run = self.run_of(*scenario, policy.clone(), round.cycle);
            let title =
                format!("{} of {}: {}, {}", i + 1, plan.rounds.len(), scenario_title(*scenario), policy.label());
            progress.stage(&title, run.jobs as u64 * calibration.period.get() / 1_000_000);
            match self.undisturbed(&run, calibration, progress) {
                Ok(record) => records.push(record),
                Err(error) if error.is::<Interrupted>() => break,
                Err(error) => {
                    let reason = format!("{title}: {error:#}");
                    progress.note(&format!("not played: {reason}"));
                    missing.push(reason);
                }
            }
        }
        Ok((records, missing))
    }

    /// Plays a round again while it is disturbed or fails, a bounded number of times.
    fn undisturbed(&mut self, run: &Run, calibration: &Calibration, progress: &mut dyn Progress) -> Result<RunRecord> {
        for _ in 0..REPEATS {
            let played = self.play(run, calibration, progress);
            let reason = match &played {
                Ok(record) => record.around.disturbance(),
                Err(error) if error.is::<Interrupted>() => None,
                Err(error) => Some(format!("{error:#}")),
            };
            let Some(reason) = reason.filter(|_| self.repeats_left > 0) else { return played };
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
