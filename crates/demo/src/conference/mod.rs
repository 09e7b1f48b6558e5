//! The conference of the paper's chapter 5: a server and a client in network namespaces, each with a daemon and a
//! certificate, real coding and decoding, and programs that spin at the server and then at the client.
//!
//! Each host's conference and spinning programs have a CPU of their own, so that those of one host do not disturb the
//! other host. On a machine with one CPU they do, and a note says so. The daemons run on all CPUs.
//!
//! Source: 000 §5.3 to 5.5, Figures 37 to 43. Departures: JPEG of 1280x720 instead of H.261 of 352x288, which costs a
//! processor of today too little to be disturbed; and a time that is shortened by a factor, which is printed.

mod figures;
mod measure;
mod plot;
mod priority;
mod scenes;
mod shaped;
mod site;
mod spread;
mod timeline;

use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;

pub use figures::Figure;
pub use measure::{ConferenceRow, Outcome, Recovery, Series};
pub use scenes::Adaptation;
pub use spread::ConferenceSpread;
pub use timeline::{Disturbance, Place, Step, Strain, Timeline};

use crate::children::{self, Hogs};
use crate::clips::write_whole;
use crate::progress::Progress;
use crate::{Options, stage};
use qfabric_types::BitRate;
use scenes::Scene;
use site::Site;

/// Pictures per second that the paper wants.
pub const RATE: u32 = 20;
/// The paper's 14 kB/s.
const NARROW_LINK: BitRate = BitRate::new(14_000 * 8);
/// Spinning programs at a host; with fewer, fair scheduling still suffices.
const HOGS: usize = 6;

/// What was measured.
#[derive(Clone, Debug)]
pub struct ConferenceReport {
    /// One row for each client in each run of each scenario.
    pub rows: Vec<ConferenceRow>,
    /// What the plots show, run by run.
    pub series: Vec<Series>,
    /// Runs that were asked for.
    planned: usize,
    timeline: Timeline,
    circumstances: String,
}

/// Whether `--only` asks for the conference.
pub fn is_wanted(options: &Options) -> bool {
    options.only.iter().any(|word| word.eq_ignore_ascii_case("conference"))
}

/// Runs all scenarios as often as asked, in turns, and writes the report after each run: what comes later may fail.
/// They need root, `taskset`, and the programs `qfabric-conference` and `qfabric-player`.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<ConferenceReport> {
    let _signals = stage::raise_on_signals(&options.stop)?;
    let (scenes, runs) = (Scene::chosen(options), options.runs.max(1));
    let planned = scenes.len() * runs as usize;
    let seconds = if options.full { timeline::PAPER } else { options.seconds / planned as f64 };
    let timeline = Timeline::of(seconds);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        progress.note("one CPU only: both hosts share it, so each disturbance disturbs both");
    }
    progress.note(&timeline.to_string());
    let count = options.hogs.unwrap_or(HOGS);
    let mut report = ConferenceReport {
        rows: Vec::new(),
        series: Vec::new(),
        planned,
        timeline,
        circumstances: format!("{RATE} frames/s, {count} spinning programs, {cpus} CPUs"),
    };
    for (run, scene) in (1..=runs).flat_map(|run| scenes.iter().map(move |scene| (run, *scene))) {
        let of_runs = if runs > 1 { format!(", run {run} of {runs}") } else { String::new() };
        let stage = format!("scenario {} ({}){of_runs}: starting two hosts", scene.name, scene.adaptation);
        progress.stage(&stage, timeline.seconds() as u64);
        let played = play(options, scene, timeline, count, progress);
        if played.is_err() && options.stop.check().is_err() {
            // Ctrl-C: the report has the runs before it.
            break;
        }
        let series = played
            .inspect_err(|_| progress.note(&format!("the runs before the one that failed:\n{}", report.text())))?;
        report.add(run, scene, series, options)?;
    }
    Ok(report)
}

/// Plays one scenario.
fn play(
    options: &Options,
    scene: Scene,
    timeline: Timeline,
    hogs: usize,
    progress: &mut dyn Progress,
) -> Result<Series> {
    let player = children::find_player()?;
    let site = Site::start(&scene, &options.stop)?;
    let spinning = [site::SERVER, site::CLIENT].map(|host| Hogs::start_on(&player, hogs, site.cpu(host)));
    let [server, client] = spinning;
    let (server, client) = (server?, client?);
    let talk = site.talk(&scene, RATE, &options.stop)?;
    let begin = timeline::now();
    let mut advance = |second| {
        progress.advance(second);
        talk.look();
    };
    for step in timeline.steps(scene.strain) {
        timeline::sleep_until(begin, step.at, &options.stop, &mut advance)?;
        match (step.place, step.begins) {
            (Place::Server, true) => server.resume(),
            (Place::Server, false) => server.pause(),
            (Place::Client, true) => client.resume(),
            (Place::Client, false) => client.pause(),
            (Place::Link, narrow) => talk.limit_link(narrow.then_some(NARROW_LINK))?,
        }
    }
    timeline::sleep_until(begin, timeline.seconds(), &options.stop, &mut advance)?;
    talk.end(begin, timeline.seconds()).with_context(|| format!("scenario {}", scene.name))
}

impl ConferenceReport {
    /// Adds a run, and writes the report so far.
    fn add(&mut self, run: u32, scene: Scene, series: Series, options: &Options) -> Result<()> {
        self.rows.push(ConferenceRow { run, ..series.row(&scene, &self.timeline) });
        self.series.push(series);
        if let Some(path) = &options.json {
            write_whole(path, self.summary_json()?.as_bytes())?;
        }
        let (Some(out), Some(series)) = (&options.out, self.series.last()) else { return Ok(()) };
        std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        write_whole(&out.join("conference.json"), self.summary_json()?.as_bytes())?;
        self.write_run(out, run, &scene, series)
    }

    /// The numbers of each scenario over its runs.
    pub fn spreads(&self) -> Vec<ConferenceSpread> {
        ConferenceSpread::of(&self.rows)
    }

    /// The figures that the runs so far can show.
    pub fn figures(&self) -> Vec<Figure> {
        figures::figures(&self.rows, &self.series, &self.timeline)
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header([
            "scenario",
            "adapts",
            "client",
            "utility",
            "frames/s",
            "jitter p99",
            "recovery",
            "level changes",
        ]);
        for (spread, rows) in self.spreads().iter().zip(spread::groups(&self.rows)) {
            table.add_row(cells(spread, &rows));
        }
        let (played, planned) = (self.rows.len(), self.planned);
        let missing = match played < planned {
            true => format!("incomplete: {played} of {planned} runs\n"),
            false => String::new(),
        };
        let figures: String = self.figures().iter().map(|figure| format!("{figure}\n")).collect();
        format!("Conference: {}\n{}\n{table}\n{missing}{figures}", self.circumstances, self.timeline)
    }

    /// The rows as JSON.
    pub fn summary_json(&self) -> Result<String> {
        let rows = serde_json::json!({
            "rows": self.rows, "spreads": self.spreads(), "figures": self.figures(),
            "shortened": self.timeline.factor(), "seconds": self.timeline.seconds(),
            "circumstances": self.circumstances, "is_complete": self.rows.len() == self.planned,
        });
        Ok(serde_json::to_string_pretty(&rows)? + "\n")
    }

    /// Writes the series and the plots of a run into a folder.
    fn write_run(&self, folder: &Path, run: u32, scene: &Scene, series: &Series) -> Result<()> {
        let name = if run > 1 { format!("{}-{run}", scene.file()) } else { scene.file() };
        write_whole(&folder.join(format!("{name}-series.json")), &serde_json::to_vec(series)?)?;
        let plot = plot::Plot { scene, series, timeline: &self.timeline };
        plot.png(&folder.join(format!("{name}.png")))?;
        write_whole(&folder.join(format!("{name}.svg")), plot.svg()?.as_bytes())
    }
}

/// A row of the table: median (least to most) of the runs, and what became of the rate in each run.
fn cells(spread: &ConferenceSpread, rows: &[&ConferenceRow]) -> [String; 8] {
    let recoveries: Vec<String> = rows.iter().map(|row| row.recoveries_text()).collect();
    [
        spread.scenario.clone(),
        spread.adaptation.to_string(),
        spread.client.clone(),
        spread.utility.text(|value| format!("{value:.2}")),
        spread.rate_mean.text(|value| format!("{value:.1}")),
        spread.jitter_p99_ms.text(|value| format!("{value:.0} ms")),
        recoveries.join("; "),
        spread.quality_changes.text(|value| value.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_is_written_before_the_next_one_begins() {
        let folder = tempfile::tempdir().unwrap();
        let (out, json) = (folder.path().join("out"), folder.path().join("rows.json"));
        let options = Options { out: Some(out.clone()), json: Some(json.clone()), ..Options::default() };
        let scenes = Scene::chosen(&options);
        let (rows, series, timeline) = (Vec::new(), Vec::new(), Timeline::of(42.0));
        let mut report = ConferenceReport { rows, series, planned: 2, timeline, circumstances: String::new() };
        for (at, scene) in scenes.into_iter().take(2).enumerate() {
            report.add(1, scene, Series { shown: vec![20; 42], ..Series::default() }, &options).unwrap();
            assert_eq!(report.text().contains("incomplete: 1 of 2 runs"), at == 0);
            let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
            assert_eq!(
                (written["rows"].as_array().unwrap().len(), &written["is_complete"]),
                (at + 1, &(at == 1).into())
            );
            assert_eq!(written["rows"][at]["recoveries"][0]["outcome"], "kept");
            assert!(out.join(format!("{}-series.json", scene.file())).exists() && out.join("conference.json").exists());
        }
        assert!(report.text().contains("server kept, client kept"), "{}", report.text());
    }

    #[test]
    fn a_scenario_that_was_played_twice_has_two_rows_one_spread_and_files_for_each_run() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let options = Options { out: Some(out.clone()), ..Options::default() };
        let scene = Scene::chosen(&options)[0];
        let (rows, series, timeline) = (Vec::new(), Vec::new(), Timeline::of(42.0));
        let mut report = ConferenceReport { rows, series, planned: 2, timeline, circumstances: String::new() };
        for (run, shown) in [(1, 20), (2, 10)] {
            report.add(run, scene, Series { shown: vec![shown; 42], ..Series::default() }, &options).unwrap();
        }
        let written: serde_json::Value = serde_json::from_str(&report.summary_json().unwrap()).unwrap();
        assert_eq!((&written["rows"][1]["run"], &written["spreads"][0]["runs"]), (&2.into(), &2.into()));
        assert_eq!(written["spreads"][0]["rate_mean"]["least"], 10.0);
        assert!(report.text().contains("15.0 (10.0 to 20.0)"), "{}", report.text());
        let file = |end: &str| out.join(format!("{}{end}", scene.file())).exists();
        assert!(file(".png") && file("-2.png") && file("-2-series.json"));
    }
}
