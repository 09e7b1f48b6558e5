//! The experiments of QualMan on this machine: video under load with nothing, CPU, CPU and memory, or everything
//! reserved.
//!
//! Problem: the paper shows on two machines of its time that reservations keep video smooth beside gcc, a table of sines
//! and a memory copier. Approach: the same programs run here, with real decoders; the runs of an experiment take turns
//! in random order, and each reports intra-frame times, average jitter and frames beyond one period.
//!
//! Source: QualMan, §6.3 and §7, Figures 10 and 12 to 15, Table 6. Design: docs/design/0042-qualman-demo.md.
#![forbid(unsafe_code)]

mod background;
mod clip;
mod experiment;
#[cfg(feature = "hosts")]
mod hosts;
mod measure;
mod one_host;
mod plots;
mod rates;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use qfabric_demo::Progress;
use qfabric_demo::children::{self, Interrupted, Stop};
use qfabric_demo::disturbance::Counters;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

pub use crate::report::Report;

use crate::experiment::{Experiment, Reserved};
use crate::one_host::{OneHost, Played};
use crate::report::RunRow;

/// Frames of the paper's runs.
pub const FRAMES: u32 = 650;
/// Least frames of a run: the warm-up and enough for a mean.
const LEAST_FRAMES: u32 = 30;
/// Background programs for each CPU; with three, as on the paper's machine, fair sharing alone often suffices here.
const BACKGROUND_PER_CPU: usize = 6;
/// Seconds that a run needs beside its frames.
const SET_UP: f64 = 4.0;

/// What to measure.
pub struct Options {
    /// Words that select experiments, such as `cpu-1`; empty: all.
    pub only: Vec<String>,
    /// Frames of the fastest stream in each run.
    pub frames: u32,
    /// Target for the duration of all runs; shortens `frames`.
    pub seconds: Option<f64>,
    pub runs: u32,
    /// Background programs; `None`: six for each CPU.
    pub background: Option<usize>,
    /// Folder for the clip; `None`: that of the demo.
    pub cache: Option<PathBuf>,
    pub out: Option<PathBuf>,
    /// Seed of the order of the runs.
    pub seed: u64,
    /// Program and first words of background processes; the words of [`play`] follow.
    pub player: (PathBuf, Vec<String>),
    /// Ends the runs at its next check; the report has the runs so far.
    pub stop: Stop,
}

/// Runs the experiments. After a stop, the report has the runs so far; every reservation is released.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Report> {
    let experiments = selected(&options.only)?;
    let frames = frames(options, &experiments)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let background = options.background.unwrap_or(BACKGROUND_PER_CPU * cpus);
    let stage = Stage::new(options, &experiments, background)?;
    let mut report = Report::new(options, frames, background, cpus);
    if !background::has_compiler() {
        report.note("there is no cc: the table of sines replaces the compiler (apt-get install gcc)");
    }
    let mut random = ChaCha8Rng::seed_from_u64(options.seed);
    for experiment in experiments {
        for run in 0..options.runs {
            let mut order = experiment.reservations().to_vec();
            order.shuffle(&mut random);
            for reserved in order {
                if options.stop.check().is_err() {
                    report.is_complete = false;
                    return finish(report, options.out.as_deref());
                }
                progress.stage(&format!("{}, run {}: {}", experiment.word(), run + 1, reserved.title()), 1);
                one(&stage, experiment, reserved, frames, run, &mut report)?;
            }
        }
    }
    finish(report, options.out.as_deref())
}

/// What all runs share.
struct Stage<'a> {
    options: &'a Options,
    background: usize,
    /// Decoder and clip of the experiments on one host, if one is played.
    player: Option<(PathBuf, PathBuf)>,
    /// The same for compressed frames over the link.
    #[cfg(feature = "hosts")]
    sent: Option<(PathBuf, PathBuf)>,
    folder: tempfile::TempDir,
}

impl Stage<'_> {
    fn new<'a>(options: &'a Options, experiments: &[Experiment], background: usize) -> Result<Stage<'a>> {
        let cache = || options.cache.clone().map_or_else(qfabric_demo::clips::cache_folder, Ok);
        let player = |clip| anyhow::Ok((children::find_player()?, clip::ensure(&cache()?, clip)?));
        let is_needed = |is_user: fn(Experiment) -> bool| experiments.iter().any(|experiment| is_user(*experiment));
        let files = is_needed(|experiment| !experiment.is_of_two_hosts());
        Ok(Stage {
            options,
            background,
            player: files.then(|| player(&clip::NOISY)).transpose()?,
            #[cfg(feature = "hosts")]
            sent: is_needed(Experiment::is_decoded).then(|| player(&clip::SENT)).transpose()?,
            folder: tempfile::Builder::new().prefix("qfabric-qualman-").tempdir()?,
        })
    }

    fn run(&self, experiment: Experiment, reserved: Reserved, frames: u32) -> Result<Played> {
        if experiment.is_of_two_hosts() {
            return self.run_hosts(experiment, reserved, frames);
        }
        let (decoder, clip) = self.player.as_ref().context("there is no decoder")?;
        let host = OneHost {
            decoder,
            clip,
            folder: self.folder.path(),
            player: &self.options.player,
            background: self.background,
            stop: &self.options.stop,
        };
        host.run(experiment, reserved, frames)
    }

    #[cfg(feature = "hosts")]
    fn run_hosts(&self, experiment: Experiment, reserved: Reserved, frames: u32) -> Result<Played> {
        let hosts = hosts::TwoHosts {
            player: &self.options.player,
            folder: self.folder.path(),
            sent: self.sent.as_ref().map(|(decoder, clip)| (decoder.as_path(), clip.as_path())),
            background: self.background,
            seed: self.options.seed,
            stop: &self.options.stop,
        };
        hosts.run(experiment, reserved, frames)
    }

    #[cfg(not(feature = "hosts"))]
    fn run_hosts(&self, experiment: Experiment, _: Reserved, _: u32) -> Result<Played> {
        bail!(
            "{} needs two hosts, and this program was built without METP; build it with default features",
            experiment.word()
        )
    }
}

/// One run; a failed run is a row of the report, an interrupted one is left out.
fn one(
    stage: &Stage,
    experiment: Experiment,
    reserved: Reserved,
    frames: u32,
    run: u32,
    report: &mut Report,
) -> Result<()> {
    let before = Counters::read(&[])?;
    match stage.run(experiment, reserved, frames) {
        Ok(played) => {
            let steal = before.until(&Counters::read(&[])?).mean_steal();
            played.notes.iter().for_each(|note| report.note(note));
            report.add(RunRow::new(experiment, reserved, run, &played.streams, steal, played.disturbance));
        }
        Err(error) if error.is::<Interrupted>() => report.is_complete = false,
        Err(error) => report.add(RunRow::failed(experiment, reserved, run, format!("{error:#}"))),
    }
    Ok(())
}

fn finish(report: Report, out: Option<&Path>) -> Result<Report> {
    if let Some(out) = out {
        std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        plots::write(&report, out)?;
    }
    Ok(report)
}

/// The experiments that one of the words selects; without words, all that this build has.
fn selected(only: &[String]) -> Result<Vec<Experiment>> {
    let is_known = |word: &&String| Experiment::ALL.iter().any(|experiment| experiment.word().contains(word.as_str()));
    if let Some(unknown) = only.iter().find(|word| !is_known(word)) {
        let words: Vec<_> = Experiment::ALL.iter().map(|experiment| experiment.word()).collect();
        bail!("--only {unknown:?} matches no experiment of QualMan; use one of {}", words.join(", "));
    }
    let is_built = |experiment: &Experiment| cfg!(feature = "hosts") || !experiment.is_of_two_hosts();
    let wanted = |experiment: &Experiment| only.iter().any(|word| experiment.word().contains(word.as_str()));
    Ok(Experiment::ALL
        .into_iter()
        .filter(|experiment| if only.is_empty() { is_built(experiment) } else { wanted(experiment) })
        .collect())
}

/// Frames of a run: as asked, or fewer if all runs must fit into `seconds`.
fn frames(options: &Options, experiments: &[Experiment]) -> Result<u32> {
    let Some(seconds) = options.seconds else { return Ok(options.frames) };
    let runs = |experiment: &Experiment| f64::from(options.runs) * experiment.reservations().len() as f64;
    let set_up: f64 = experiments.iter().map(|experiment| SET_UP * runs(experiment)).sum();
    let of_frames: f64 = experiments.iter().map(|experiment| runs(experiment) * experiment.run_seconds(1)).sum();
    let fit = ((seconds - set_up) / of_frames).floor();
    let least = set_up + of_frames * f64::from(LEAST_FRAMES);
    ensure!(
        fit >= f64::from(LEAST_FRAMES),
        "--seconds {seconds} is too short for {} runs of {LEAST_FRAMES} frames; use at least {:.0}, fewer --runs, or name \
         one experiment with --only",
        experiments.iter().map(runs).sum::<f64>(),
        least.ceil()
    );
    Ok((fit as u32).min(options.frames))
}

/// Plays the part that the conductor started this process for: `background KIND FOLDER PARENT`, or a side of a stream.
pub fn play(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["background", kind, folder, parent] => background::run(kind, Path::new(folder), parent),
        #[cfg(feature = "hosts")]
        [part @ ("send" | "receive" | "flood"), ref rest @ ..] => hosts::play(part, rest),
        _ => bail!("there is no part {words:?}"),
    }
}

#[cfg(test)]
impl Options {
    fn example() -> Options {
        Options {
            only: Vec::new(),
            frames: FRAMES,
            seconds: None,
            runs: 3,
            background: None,
            cache: None,
            out: None,
            seed: 1,
            player: (PathBuf::new(), Vec::new()),
            stop: Stop::never(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_select_experiments_and_unknown_words_are_named() {
        assert_eq!(selected(&["cpu-2".into()]).unwrap(), [Experiment::Cpu2]);
        assert_eq!(selected(&[]).unwrap().len(), if cfg!(feature = "hosts") { 8 } else { 2 });
        let refusal = selected(&["cpu-9".into()]).unwrap_err().to_string();
        assert!(refusal.contains("cpu-9") && refusal.contains("cpu-1"), "{refusal}");
    }

    #[test]
    fn a_shorter_time_shortens_the_runs_but_never_below_a_mean() {
        let of = |seconds| frames(&Options { seconds, ..Options::example() }, &[Experiment::Cpu1]);
        assert_eq!(of(None).unwrap(), FRAMES);
        assert_eq!(of(Some(1e6)).unwrap(), FRAMES, "never longer than asked");
        assert_eq!(of(Some(36.0 + 9.0 * 5.0)).unwrap(), 50);
        assert!(of(Some(20.0)).unwrap_err().to_string().contains("at least 63"));
    }
}
