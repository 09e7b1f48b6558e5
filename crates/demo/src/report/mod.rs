//! What was measured, and its faces: table, plots, JSON, one HTML page.

mod html;
mod plots;
mod table;

use std::path::Path;

use anyhow::{Context, Result};
use qfabric_types::Share;
use serde::{Deserialize, Serialize};

use crate::clips::{Clip, write_whole};
use crate::record::RunRecord;
use crate::rows::{self, Point, Row};
use crate::trial::Trace;
use crate::verdict::{self, Verdict};

/// Everything the demo found out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of the program.
    pub version: String,
    /// Whether every planned run was carried out; of a report that is not complete nothing is claimed.
    pub complete: bool,
    /// Runs planned.
    pub planned: usize,
    /// Where it ran.
    pub machine: Machine,
    /// What was decoded.
    pub clips: Vec<ClipNote>,
    /// One row per scenario and policy.
    pub rows: Vec<Row>,
    /// The jobs behind each row.
    pub runs: Vec<RunPoints>,
    /// What the rows say.
    pub verdicts: Vec<Verdict>,
}

/// Where it ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// CPUs.
    pub cpus: usize,
    /// What may be reserved, as probed.
    pub capacity: Share,
    /// Processes burning CPU time.
    pub hogs: usize,
    /// The kernel.
    pub kernel: String,
    /// The processor.
    pub processor: String,
    /// Where budgets are enforced: at the tick, or by a high-resolution timer; in the host's own words.
    pub enforcement: String,
}

/// One clip, and what decoding it cost in the trial execution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClipNote {
    /// What it is.
    pub title: String,
    /// Picture size.
    pub size: String,
    /// Frames of one pass.
    pub frames: u32,
    /// Mean share of one CPU.
    pub mean: f64,
    /// The dearest frame's share of one CPU.
    pub peak: f64,
    /// Autocorrelation of the costs at a distance of 12 frames.
    pub autocorrelation_12: f64,
}

impl ClipNote {
    /// What it is and what it cost.
    pub fn sentence(&self) -> String {
        format!(
            "{}, {}, {} frames: decoding takes {:.1} % of one CPU in the mean, {:.1} % at the peak, autocorrelation at \
             12 frames {:.2} (trial execution beside the hogs)",
            self.title,
            self.size,
            self.frames,
            self.mean * 100.0,
            self.peak * 100.0,
            self.autocorrelation_12
        )
    }
}

impl RunPoints {
    /// The jobs of the first player, which stands for all in the plots over time.
    pub fn first_player(&self) -> &[Point] {
        self.players.first().map_or(&[], Vec::as_slice)
    }
}

/// The jobs behind a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunPoints {
    /// Short name of the scenario.
    pub scenario: String,
    /// The policy.
    pub policy: String,
    /// The target interval in T.
    pub target: (f64, f64),
    /// Probability of each error, all players: `(ε/T, fraction of jobs)`, by ε.
    pub pmf: Vec<(f64, f64)>,
    /// The jobs of each player.
    pub players: Vec<Vec<Point>>,
    /// The first job after the shift, where there is one.
    pub shift_at: Option<u64>,
}

impl Report {
    /// Works the runs out.
    pub fn new(runs: Vec<RunRecord>, machine: Machine, clips: Vec<(Clip, Trace)>, planned: usize) -> Report {
        let rows: Vec<Row> = runs.iter().map(rows::row).collect();
        let complete = runs.len() == planned;
        Report {
            version: env!("CARGO_PKG_VERSION").into(),
            complete,
            planned,
            machine,
            clips: clips.iter().map(|(clip, trace)| note(clip, trace)).collect(),
            verdicts: if complete { verdict::verdicts(&rows) } else { Vec::new() },
            rows,
            runs: runs.iter().map(run_points).collect(),
        }
    }

    /// The rows as JSON, one object per scenario and policy.
    pub fn rows_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(&self.rows)? + "\n")
    }

    /// The tables and verdicts as text.
    pub fn text(&self) -> String {
        table::text(self)
    }

    /// The self-contained page.
    pub fn html(&self) -> Result<String> {
        html::page(self)
    }

    /// Writes `report.html`, `report.json`, `rows.json`, `report.txt` and the plots as PNG and SVG to
    /// `folder`, which is made where it is not there.
    pub fn write_to(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (name, figure) in plots::figures(self) {
            plots::png(&folder.join(format!("{name}.png")), &figure)?;
            write_whole(&folder.join(format!("{name}.svg")), plots::svg(&figure)?.as_bytes())?;
        }
        write_whole(&folder.join("report.txt"), self.text().as_bytes())?;
        write_whole(&folder.join("rows.json"), self.rows_json()?.as_bytes())?;
        write_whole(&folder.join("report.json"), &serde_json::to_vec(self)?)?;
        write_whole(&folder.join("report.html"), self.html()?.as_bytes())
    }
}

impl Machine {
    /// What the host says of itself.
    pub fn examine() -> Machine {
        let system = rustix::system::uname();
        let kernel = format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy());
        Machine { kernel, processor: processor().unwrap_or_default(), enforcement: enforcement(), ..Machine::default() }
    }
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn enforcement() -> String {
    qfabric_linux::doctor::examine()
        .findings
        .iter()
        .find(|finding| finding.name.to_lowercase().contains("hrtick"))
        .map_or(String::new(), |finding| finding.reason.clone())
}

fn note(clip: &Clip, trace: &Trace) -> ClipNote {
    let shares: Vec<f64> = trace.costs_ns.iter().map(|c| c / crate::trial::PERIOD_NS).collect();
    ClipNote {
        title: clip.title.clone(),
        size: clip.size.to_string(),
        frames: clip.frames,
        mean: rows::mean(&shares),
        peak: shares.iter().copied().fold(0.0, f64::max),
        autocorrelation_12: rows::autocorrelation(&shares, 12),
    }
}

fn run_points(run: &RunRecord) -> RunPoints {
    let players: Vec<Vec<Point>> = run.players.iter().map(|player| rows::points(run, player)).collect();
    let errors: Vec<f64> = players.iter().flatten().map(|p| p.error).collect();
    RunPoints {
        scenario: run.scenario.clone(),
        policy: run.policy.clone(),
        target: (-run.early, run.late),
        pmf: pmf(&errors, run.server_period.as_f64() / run.period.as_f64()),
        players,
        shift_at: run.shift_at,
    }
}

/// Fractions of the errors on the lattice of the server period.
fn pmf(errors: &[f64], step: f64) -> Vec<(f64, f64)> {
    let mut counts = std::collections::BTreeMap::new();
    for error in errors {
        *counts.entry((error / step).round() as i64).or_insert(0_u64) += 1;
    }
    counts.into_iter().map(|(h, n)| (h as f64 * step, n as f64 / errors.len() as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::run;

    /// A report of two scenarios from records that were never measured.
    pub(crate) fn report() -> Report {
        let named = |scenario: &str, policy: &str, response_ms: &[u64], budget_ms: f64| {
            let mut run = run(response_ms, response_ms.len(), budget_ms);
            (run.scenario, run.policy) = (scenario.into(), policy.into());
            run.shift_at = (scenario == "shift").then_some(2);
            run
        };
        let runs = vec![
            named("hogs", "plain", &[90, 140, 300, 420, 700], 0.0),
            named("hogs", "Q-Fabric MA[12], GRUB", &[35, 41, 30, 38, 39], 2.4),
            named("hogs", "Q-Fabric hint[24], GRUB", &[35, 36, 37, 38, 39], 2.5),
            named("shift", "static equal shares, GRUB", &[20, 45, 60, 20, 20], 3.0),
            named("shift", "Q-Fabric hint[24], GRUB", &[35, 36, 41, 38, 39], 2.5),
        ];
        let machine = Machine { cpus: 2, processor: "made up <&>".into(), ..Machine::default() };
        Report::new(runs, machine, Vec::new(), 5)
    }

    #[test]
    fn the_probabilities_of_all_errors_add_up() {
        let pmf = pmf(&[-0.25, 0.0, 0.0, 0.5], 0.25);
        assert_eq!(pmf, [(-0.25, 0.25), (0.0, 0.5), (0.5, 0.25)]);
    }

    #[test]
    fn a_report_survives_its_json() {
        let report = report();
        let again: Report = serde_json::from_slice(&serde_json::to_vec(&report).unwrap()).unwrap();
        assert_eq!((again.text(), again.html().unwrap()), (report.text(), report.html().unwrap()));
    }

    #[test]
    fn a_report_that_was_interrupted_claims_nothing() {
        let mut report = report();
        let partial = Report { complete: false, planned: 18, verdicts: Vec::new(), ..report.clone() };
        assert!(partial.text().contains("5 of 18") && partial.html().unwrap().contains("5 of 18"));
        report.planned = 5;
        assert!(!report.text().contains("interrupted"));
    }

    #[test]
    fn every_file_of_the_report_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new");
        report().write_to(&out).unwrap();
        let files = ["report.html", "report.json", "report.txt", "rows.json", "hogs-pmf.png", "shift-budget.svg"];
        for name in files {
            assert!(std::fs::metadata(out.join(name)).unwrap().len() > 100, "{name}");
        }
        assert!(std::fs::read_dir(&out).unwrap().all(|f| !f.unwrap().path().to_string_lossy().contains(".part")));
    }

    #[test]
    fn the_page_needs_nothing_but_itself() {
        let page = report().html().unwrap();
        for outside in ["http:", "https:", "src=\"", "@import", "url(", "<link", "<script"] {
            let own = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains(outside), "{outside}");
        }
        assert!(page.contains("<svg") && page.contains("made up &lt;&amp;&gt;"));
    }

    #[test]
    fn the_json_rows_have_the_promised_keys() {
        let rows: Vec<serde_json::Value> = serde_json::from_str(&report().rows_json().unwrap()).unwrap();
        assert_eq!(rows.len(), 5);
        for key in ["policy", "jobs", "misses", "in_target", "mean_error", "sd_error", "mean_bandwidth", "sd_bandwidth"]
        {
            assert!(rows.iter().all(|row| row.get(key).is_some()), "{key}");
        }
        assert!(rows[0]["mean_bandwidth"].is_null() && rows[1]["mean_bandwidth"].is_number());
    }
}
