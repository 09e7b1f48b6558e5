//! The whole demo: clips, calibration, every round, report.

mod cells;
mod rounds;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use qfabric_daemon::{Config, Embedded};
use qfabric_linux::doctor::{self, State};
use qfabric_linux::hrtick;
use qfabric_types::{Nanos, Share};

use crate::Options;
use crate::calibrate::{self, Calibration};
use crate::children::{self, Hogs, Interrupted, Stop};
use crate::clips::{self, Clip};
use crate::disturbance::Surroundings;
use crate::grid;
use crate::live::{Run, Stage};
use crate::plan;
use crate::policy::Ground;
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::{Agenda, Machine, Report};
use crate::trial::{self, Trace};

/// Hogs per CPU: with fewer than six, fair sharing still carries a light player.
const HOGS_PER_CPU: usize = 6;
/// e/T: one server period of four.
const EARLY: f64 = 0.25;
/// Left free of what the kernel would admit, so that rounding and late departures refuse nothing.
const MARGIN: Share = Share::from_ppm(10_000);
/// How long a round waits for room that an earlier one still holds.
const ROOM_PATIENCE: Duration = Duration::from_secs(3);
/// A round that was disturbed or failed is played again at most this often.
const REPEATS: usize = 2;

/// Passes over each clip in a trial execution; the middle cost of each frame counts.
const PASSES: usize = 3;

/// Runs the demo. On Ctrl-C everything is put back and what was measured so far comes back as a report that
/// is not complete.
pub fn run(options: Options, progress: &mut dyn Progress) -> Result<Report> {
    let _signals = raise_on_signals(&options.stop)?;
    let player = children::find_player()?;
    let cache = options.cache.clone().map_or_else(clips::cache_folder, Ok)?.join("clips");
    progress.note(&format!("order of the rounds: --seed {}", options.seed));
    stop_lending(progress);
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

/// Corrects what the kernel lends though it is reserved: what an earlier service lost would take the verdict from all rounds.
/// What cannot be corrected, or not be measured, the report says.
fn stop_lending(progress: &mut dyn Progress) {
    let debugfs = Path::new(hrtick::DEBUGFS);
    let found = doctor::reclaiming(debugfs);
    if found.state == State::Warn {
        progress.note(&format!("{}; the kernel's sums are corrected first, within a minute", found.reason));
        progress.note(&doctor::fix_reclaiming(debugfs).reason);
    }
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

    fn machine(&self) -> Machine {
        Machine { cpus: self.cpus, capacity: self.room, hogs: self.hogs.ids().len(), ..Machine::examine() }
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
