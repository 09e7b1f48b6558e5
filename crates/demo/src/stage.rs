//! The whole demo: clips, calibration, all rounds, report.

mod cells;
mod load;
mod rounds;

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded, Fallback};
use qfabric_linux::doctor::{self, State};
use qfabric_linux::ext::{Ext, ExtConfig};
use qfabric_linux::hrtick;
use qfabric_types::{MechanismName, Nanos, Reservation, Share};

use crate::Options;
use crate::calibrate::{self, Calibration};
use crate::children::{self, Hogs, Interrupted, Stop};
use crate::clips::{self, Clip};
use crate::grid;
use crate::live::{Run, Stage};
use crate::plan;
use crate::policy::{RoundSettings, soft_share};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::{Agenda, Machine, Report};
use crate::timeline;
use crate::trial::{self, Trace};

/// Hogs per CPU. With fewer than six, fair scheduling alone still suffices for a light player.
const HOGS_PER_CPU: usize = 6;
/// e/T: one of four server periods.
const EARLY: f64 = 0.25;
/// Bandwidth that stays unreserved below the kernel's limit, so that rounding and late departures cause no
/// refusals.
const MARGIN: Share = Share::from_ppm(10_000);
/// Longest wait of a round for bandwidth that an earlier round still holds.
const ROOM_PATIENCE: Duration = Duration::from_secs(3);
/// Largest number of repetitions of a round that was disturbed or failed.
const REPEATS: usize = 2;

/// Names of the private folder that are tried.
const MOST_FOLDERS: u32 = 1_000;

/// Passes over each clip in a trial execution. The median cost of each frame counts.
const PASSES: usize = 3;

/// Runs the demo. On Ctrl-C it undoes all its changes to the host and returns an incomplete report of the rounds
/// measured so far. If a file cannot be written, the report is printed as a note.
///
/// # Errors
/// The mechanism does not work on this host, a program or a file is missing, or the load cannot be set.
pub fn run(options: Options, progress: &mut dyn Progress) -> Result<Report> {
    let _signals = raise_on_signals(&options.stop)?;
    check_mechanism(options.mechanism)?;
    if let Some(out) = &options.out {
        // Now, not after minutes of measurement.
        std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    }
    let player = children::find_player()?;
    let cache = options.cache.clone().map_or_else(clips::cache_folder, Ok)?.join("clips");
    progress.note(&format!("order of the rounds: --seed {}", options.seed));
    stop_lending(progress);
    let report = match options.only.iter().any(|word| is_grid(word)) {
        true => grid(&options, &player, &cache, progress)?,
        false => scenarios(&options, &player, &cache, progress)?,
    };
    write(&options, &report).inspect_err(|_| progress.note(&report.text()))?;
    Ok(report)
}

/// Refuses a mechanism that does not work here now, not after minutes of calibration.
fn check_mechanism(mechanism: MechanismName) -> Result<()> {
    match mechanism {
        MechanismName::Deadline => Ok(()),
        // Only loading shows that the kernel's type information is whole. Dropping it ends it.
        MechanismName::Ext => Ext::load(&ExtConfig::default()).map(drop).context("cannot play under ext"),
        other => bail!("the demo cannot play under the mechanism {other}; use deadline or ext"),
    }
}

/// Writes the files of the report. The rows come first, because they are worth more than a plot that cannot be drawn.
fn write(options: &Options, report: &Report) -> Result<()> {
    if let Some(path) = &options.json {
        clips::write_whole(path, report.summary_json()?.as_bytes())?;
    }
    options.out.as_ref().map_or(Ok(()), |out| report.write_to(out))
}

/// Corrects the kernel's sums if the kernel lends reserved bandwidth. An earlier service may have left them wrong,
/// and then no round would get a verdict. If the sums cannot be measured or corrected, the report says so.
fn stop_lending(progress: &mut dyn Progress) {
    let debugfs = Path::new(hrtick::DEBUGFS);
    let found = doctor::reclaiming(debugfs);
    if found.state == State::Warn {
        progress.note(&format!("{}; correcting the kernel's sums first, which takes up to a minute", found.reason));
        progress.note(&doctor::fix_reclaiming(debugfs).reason);
    }
}

/// Plays the two scenarios.
fn scenarios(options: &Options, player: &Path, cache: &Path, progress: &mut dyn Progress) -> Result<Report> {
    let plan = plan::plan(options.mechanism, options.seconds, &options.only, options.all, options.seed);
    ensure!(
        !plan.rounds.is_empty(),
        "--only {:?} matches no round; try: plain, nice, FIFO, static, GRUB, hint, oracle, hogs, shift, grid, \
         conference, events",
        options.only
    );
    if !plan.left_out.is_empty() {
        progress.note(&format!("omitted for lack of time (use a longer --seconds): {}", plan.left_out.join("; ")));
    }
    let clips = clips::ensure(cache, player, &options.stop, progress)?;
    let folder = Folder::make()?;
    let measured = Bench::new(options, player, clips.into(), &folder)?.all(&plan, cache, progress)?;
    Ok(Report::new(measured, &Agenda::of_plan(&plan, options.seed)))
}

/// The word of `--only` that chooses the grid.
fn is_grid(word: &str) -> bool {
    word.eq_ignore_ascii_case("grid")
}

/// Plays the grid.
fn grid(options: &Options, player: &Path, cache: &Path, progress: &mut dyn Progress) -> Result<Report> {
    let words: Vec<String> = options.only.iter().filter(|word| !is_grid(word)).cloned().collect();
    let cells = grid::cells(options.seconds, options.all, options.seed, &words)?;
    let [closed, mixed] = clips::ensure(cache, player, &options.stop, progress)?;
    let folder = Folder::make()?;
    let mut bench = Bench::new(options, player, vec![closed, mixed], &folder)?;
    let measured = bench.grid(&cells, cache, progress)?;
    Ok(Report::new(measured, &Agenda::of_cells(options.mechanism, cells, options.all, options.seed)))
}

/// The resources of the measurements.
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
        let free = qfabric_linux::capacity::probe().context("cannot probe the bandwidth available for reservations")?;
        let room = free.saturating_sub(MARGIN);
        Ok(Bench { options, player, clips, folder, hogs, room, cpus, repeats_left: 0 })
    }

    fn machine(&self) -> Machine {
        let (mechanism, hogs) = (self.options.mechanism.to_string(), self.hogs.ids().len());
        Machine { cpus: self.cpus, capacity: self.room, hogs, mechanism, ..Machine::examine() }
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
        Ok((0..clips.len()).map(|i| Trace::median(&of_clip(i))).collect())
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
        let ratios = self.with_stage(&trial, Path::new(""), |stage| calibrate::cost_ratios(stage, &pilot_run, &pilot));
        let traces: Vec<Trace> = trial.traces.iter().zip(ratios).map(|(trace, by)| trace.scaled(by)).collect();
        calibrate::write(&traces, &self.folder.0, &run.scenario)?;
        Ok(self.with_period(Calibration { traces, ..trial }, run))
    }

    /// Plays a pilot round, and repeats it if it fails or if other activity disturbs it, because it sets the load
    /// of all other rounds. A change in the cost of the frames is no disturbance here: the pilot round measures
    /// that change.
    fn pilot(&self, run: &Run, trial: &Calibration, progress: &mut dyn Progress) -> Result<RunRecord> {
        for _ in 0..REPEATS {
            let reason = match self.play(run, trial, progress) {
                Ok(pilot) => match pilot.around.interference() {
                    None => return Ok(pilot),
                    Some(reason) => reason,
                },
                Err(error) if error.is::<Interrupted>() => return Err(error),
                Err(error) => format!("{error:#}"),
            };
            progress.note(&format!("playing the pilot round again: {reason}"));
        }
        self.play(run, trial, progress)
    }

    /// The calibration with the period at which the run has the designed demand.
    fn with_period(&self, calibration: Calibration, run: &Run) -> Calibration {
        let (players, designed) = (calibration.players, calibration.designed);
        let (mean, dearest) =
            self.with_stage(&calibration, Path::new(""), |stage| calibrate::costs(stage, run, players));
        let period = calibrate::period(mean, dearest, players, designed, self.options.server_periods);
        Calibration { period, demand: players as f64 * mean / period.as_f64(), ..calibration }
    }

    fn play(&self, run: &Run, calibration: &Calibration, progress: &mut dyn Progress) -> Result<RunRecord> {
        let free = self.wait_for_room()?;
        let settings = self.settings(calibration);
        let daemon = run.policy.is_qfabric().then(|| self.daemon(settings.server_period)).transpose()?;
        let socket = daemon.as_ref().map(|d| d.socket().to_owned()).unwrap_or_default();
        let mut record = self.with_stage(calibration, &socket, |stage| stage.run(run, &settings, progress))?;
        if daemon.is_some() && self.options.mechanism == MechanismName::Ext {
            is_in_force(&socket)?;
        }
        if let (Some(daemon), Some(out)) = (&daemon, &self.options.out) {
            // Each round replaces the file of the one before.
            let written = timeline::write(daemon.socket(), &out.join(timeline::FILE));
            written.unwrap_or_else(|error| progress.note(&format!("no {}: {error:#}", timeline::FILE)));
        }
        (record.around.room, record.around.room_needed) = (free.as_f64(), self.room.as_f64());
        Ok(record)
    }

    /// Waits until the threads of earlier rounds have left their reservations. Returns the free bandwidth.
    fn wait_for_room(&self) -> Result<Share> {
        let end = Instant::now() + ROOM_PATIENCE;
        loop {
            self.options.stop.check()?;
            let free =
                qfabric_linux::capacity::probe().context("cannot probe the bandwidth available for reservations")?;
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

    /// Starts the daemon with a control thread whose deadlines lie before those of the players. With later
    /// deadlines it would wait for all players, and new budgets would come too late. Its own reservation is part
    /// of the room: the rivals may hand out as much bandwidth as the daemon together with its own needs.
    fn daemon(&self, server_period: Nanos) -> Result<Embedded> {
        let mut config = Config::default();
        config.mechanism.name = self.options.mechanism;
        // Another mechanism would play the rest of the round under a wrong name.
        config.mechanism.fallback = Fallback::None;
        config.limits.capacity = Some(self.room);
        let share = config.control_reservation()?.map_or(Share::ZERO, Reservation::share);
        config.control.period = config.control.period.min(Nanos::new(server_period.get() / 2));
        config.control.budget = share.budget_in(config.control.period);
        Embedded::start(config).context("cannot start the embedded daemon")
    }

    fn settings(&self, calibration: &Calibration) -> RoundSettings {
        let players = calibration.players;
        let own = Config::default().control_reservation().ok().flatten().map_or(Share::ZERO, Reservation::share);
        RoundSettings {
            period: calibration.period,
            server_period: Nanos::new(calibration.period.get() / self.options.server_periods),
            capacity: self.room,
            players: players as u32,
            soft_share: soft_share(self.room, own, self.cpus as u32, players as u32),
            early: EARLY,
            mean_share: calibration.demand / players as f64,
            contract: self.options.contract.clone(),
        }
    }
}

/// Fails if the kernel has ended the mechanism during the round.
fn is_in_force(socket: &Path) -> Result<()> {
    let client = Client::connect_to(socket).context("cannot connect to the daemon to read its mechanism")?;
    match client.status().context("cannot read the mechanism in force")?.fallback {
        Some(reason) => bail!("{reason}"),
        None => Ok(()),
    }
}

/// The reason for which a round does not count: it was disturbed, or it failed. `None` if the user interrupted it.
fn disturbance(played: &Result<RunRecord>) -> Option<String> {
    match played {
        Ok(record) => record.around.disturbance(),
        Err(error) if error.is::<Interrupted>() => None,
        Err(error) => Some(format!("{error:#}")),
    }
}

/// A private folder for logs and traces, removed at the end.
pub(crate) struct Folder(pub(crate) std::path::PathBuf);

impl Folder {
    /// Makes a new folder. One that exists may belong to another user, whose links would lead the files of root
    /// elsewhere.
    pub(crate) fn make() -> Result<Folder> {
        let mut number = 0;
        loop {
            let path = std::env::temp_dir().join(format!("qfabric-demo-{}-{number}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MOST_FOLDERS => number += 1,
                Err(error) => return Err(error).with_context(|| format!("cannot create {}", path.display())),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok(); // a folder that cannot be removed stays in the system's temporary folder
    }
}

/// Sets the flag on the [`ending_signals`] until the returned value is dropped.
pub(crate) fn raise_on_signals(stop: &Stop) -> Result<Signals> {
    let register =
        |signal| signal_hook::flag::register(signal, Arc::clone(&stop.0)).context("cannot install the signal handlers");
    ending_signals().into_iter().map(register).collect::<Result<_>>().map(Signals)
}

/// The signals that end the demo in order: SIGINT, SIGTERM, and SIGHUP for a closed terminal. A hangup that the
/// process ignores (`nohup`) stays ignored.
pub fn ending_signals() -> Vec<i32> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let hangup = (!qfabric_linux::signals::ignores_hangup()).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

pub(crate) struct Signals(Vec<signal_hook::SigId>);

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};

    #[test]
    fn the_private_folder_is_removed_at_the_end() {
        let folder = Folder::make().unwrap();
        let path = folder.0.clone();
        assert!(path.is_dir());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_that_exists_is_never_used() {
        use std::os::unix::fs::PermissionsExt;
        let (first, second) = (Folder::make().unwrap(), Folder::make().unwrap());
        assert_ne!(first.0, second.0);
        assert_eq!(std::fs::metadata(&second.0).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_closed_terminal_ends_the_demo_like_ctrl_c() {
        let stop = Stop::default();
        let signals = raise_on_signals(&stop).unwrap();
        assert!(stop.check().is_ok());
        // Under `nohup` it goes on.
        let ends = !qfabric_linux::signals::ignores_hangup();
        kill_process(getpid(), Signal::HUP).unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        while ends && stop.check().is_ok() && Instant::now() < patience {
            std::thread::yield_now();
        }
        assert_eq!(stop.check().is_err(), ends);
        drop(signals);
    }
}
