//! The whole demo: clips, trial execution, every run, report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use qfabric_daemon::{Config, Embedded};
use qfabric_types::{Nanos, Share};

use crate::Options;
use crate::children::{self, Hogs, Interrupted, Stop};
use crate::clips::{self, Clip};
use crate::live::Stage;
use crate::plan::{self, Run, Scenario};
use crate::policy::{Ground, Policy};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::{Machine, Report};
use crate::trial::{self, PLAYERS_PER_CPU, Trace};

/// Hogs per CPU: with fewer than six, fair sharing still carries a light player.
const HOGS_PER_CPU: usize = 6;
/// e/T: one server period of four.
const EARLY: f64 = 0.25;

/// Runs the demo. On Ctrl-C everything is put back and what was measured so far comes back as a report that
/// is not complete.
pub fn run(options: Options, progress: &mut dyn Progress) -> Result<Report> {
    let _signals = raise_on_signals(&options.stop)?;
    let player = children::find_player()?;
    let runs = plan::plan(options.seconds, &options.only);
    ensure!(
        !runs.is_empty(),
        "nothing is called {:?}; try: plain, nice, static, GRUB, hint, hogs, shift",
        options.only
    );
    let cache = options.cache.clone().map_or_else(clips::cache_folder, Ok)?.join("clips");
    let clips = clips::ensure(&cache, &player, &options.stop, progress)?;
    let folder = Folder::make()?;
    let measured = Measurement::new(&options, &player, clips, &folder)?.all(&runs, progress)?;
    let report = Report::new(measured.records, measured.machine, measured.clips, runs.len());
    if let Some(out) = &options.out {
        report.write_to(out)?;
    }
    if let Some(path) = &options.json {
        clips::write_whole(path, report.rows_json()?.as_bytes())?;
    }
    Ok(report)
}

/// Everything measured.
struct Measured {
    records: Vec<RunRecord>,
    machine: Machine,
    clips: Vec<(Clip, Trace)>,
}

/// What is needed to measure.
struct Measurement<'a> {
    options: &'a Options,
    player: &'a Path,
    clips: [Clip; 2],
    folder: &'a Folder,
    hogs: Hogs,
    capacity: Share,
    cpus: usize,
}

impl<'a> Measurement<'a> {
    fn new(options: &'a Options, player: &'a Path, clips: [Clip; 2], folder: &'a Folder) -> Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let hogs = Hogs::start(player, options.hogs.unwrap_or(HOGS_PER_CPU * cpus))?;
        let capacity = qfabric_linux::capacity::probe().context("how much may be reserved here")?;
        Ok(Measurement { options, player, clips, folder, hogs, capacity, cpus })
    }

    fn all(self, runs: &[Run], progress: &mut dyn Progress) -> Result<Measured> {
        let traces = [0, 1].map(|i| self.folder.0.join(format!("trace{i}.txt")));
        let trials = self.trial(&traces, progress)?;
        for (clip, trial) in self.clips.iter().zip(&trials) {
            if let Some(note) = clips::misfit(clip, trial.mean_share()) {
                progress.note(&note);
            }
        }
        let mut records = Vec::new();
        for (i, run) in runs.iter().enumerate() {
            let title =
                format!("{} of {}: {}, {}", i + 1, runs.len(), scenario_title(run.scenario), run.policy.label());
            progress.stage(&title, (run.seconds * 1e3) as u64);
            match self.one(run, &trials, &traces, progress) {
                Ok(record) => records.push(record),
                Err(error) if error.is::<Interrupted>() => break,
                Err(error) => return Err(error.context(title)),
            }
        }
        let machine =
            Machine { cpus: self.cpus, capacity: self.capacity, hogs: self.hogs.ids().len(), ..Machine::examine() };
        Ok(Measured { records, machine, clips: self.clips.into_iter().zip(trials).collect() })
    }

    /// Decodes both clips at full speed beside the hogs.
    fn trial(&self, outputs: &[PathBuf; 2], progress: &mut dyn Progress) -> Result<[Trace; 2]> {
        progress.stage("trial execution", 1);
        self.hogs.resume();
        let paths = [0, 1].map(|i| self.clips[i].path.clone());
        let traces = trial::run(self.player, &paths, outputs, &self.options.stop);
        self.hogs.pause();
        progress.advance(1);
        traces?.try_into().ok().context("there are two clips")
    }

    fn one(
        &self,
        run: &Run,
        trials: &[Trace; 2],
        traces: &[PathBuf],
        progress: &mut dyn Progress,
    ) -> Result<RunRecord> {
        let ground = self.ground(run.scenario, trials);
        let daemon = matches!(run.policy, Policy::Qfabric { .. }).then(|| self.daemon()).transpose()?;
        let socket = daemon.as_ref().map(|d| d.socket().to_owned()).unwrap_or_default();
        let stage = Stage {
            player: self.player,
            clips: &self.clips,
            traces,
            folder: &self.folder.0,
            hogs: &self.hogs,
            socket: &socket,
            stop: &self.options.stop,
        };
        stage.run(run, &ground, progress)
    }

    /// The daemon's control thread is scheduled by deadlines too: one that lies behind those of the players'
    /// reservations would make it wait for all of them, and new budgets would come too late.
    fn daemon(&self) -> Result<Embedded> {
        let mut config = Config::default();
        config.control.period = Nanos::new(self.options.server_period.get() / 2);
        config.control.budget = Nanos::new(config.control.period.get() / 10);
        Embedded::start(config).context("the embedded daemon")
    }

    fn ground(&self, scenario: Scenario, trials: &[Trace; 2]) -> Ground {
        let (players, mean_share) = match scenario {
            Scenario::Hogs => (1, trials[0].mean_share()),
            Scenario::Shift => (PLAYERS_PER_CPU * self.cpus, (trials[0].mean_share() + trials[1].mean_share()) / 2.0),
        };
        Ground {
            server_period: self.options.server_period,
            capacity: self.capacity,
            players: players as u32,
            early: EARLY,
            rho: scenario.rho(),
            mean_share,
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
struct Folder(PathBuf);

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
