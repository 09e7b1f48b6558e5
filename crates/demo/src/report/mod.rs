//! The report: tables, plots, JSON, and one HTML page.

mod heat;
mod html;
pub(crate) mod plots;
mod table;

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};
use qfabric_types::{MechanismName, Share};
use serde::{Deserialize, Serialize};

pub use plots::{INK, mesh, register_letters};

use crate::calibrate::Calibration;
use crate::clips::{Clip, write_whole};
use crate::cpu_use::CpuUse;
use crate::disturbance::Surroundings;
use crate::grid::{self, Cell, Outcome};
use crate::plan::Plan;
use crate::policy;
use crate::record::RunRecord;
use crate::rows::{self, Point, Row};
use crate::trial::Trace;
use crate::verdict::{self, Verdict};

/// The measurements of the whole demo.
pub struct Measured {
    /// The rounds in the order of playing.
    pub records: Vec<RunRecord>,
    /// Rounds that could not be played, with the reason.
    pub missing: Vec<String>,
    pub machine: Machine,
    /// The clips with their trial executions.
    pub clips: Vec<(Clip, Trace)>,
    /// The calibration of each played scenario, with the scenario's short name.
    pub loads: Vec<(String, Calibration)>,
}

/// The planned measurements.
pub struct Agenda {
    /// Scenario and policy of each row, in order.
    pub rows: Vec<(String, String)>,
    /// Number of planned rounds.
    pub rounds: usize,
    /// Policies for which no time is left.
    pub left_out: Vec<String>,
    /// The cells of the grid; empty if the grid is not played.
    pub cells: Vec<Cell>,
    /// Seed of the random order.
    pub seed: u64,
}

impl Agenda {
    /// The agenda of the two scenarios.
    pub fn of_plan(plan: &Plan, seed: u64) -> Agenda {
        let row = |entry: &crate::plan::Entry| (entry.scenario.name().to_owned(), entry.policy.label());
        let rows = plan.entries.iter().map(row).collect();
        Agenda { rows, rounds: plan.rounds.len(), left_out: plan.left_out.clone(), cells: Vec::new(), seed }
    }

    /// The agenda of the grid, with Q-Fabric's players under this mechanism.
    pub fn of_cells(mechanism: MechanismName, cells: Vec<Cell>, all: bool, seed: u64) -> Agenda {
        let of = |(i, cell): (usize, &Cell)| {
            let name = cell.name();
            grid::policies(mechanism, all, i).into_iter().map(move |policy| (name.clone(), policy.label()))
        };
        let mut rows: Vec<_> = cells.iter().enumerate().flat_map(of).collect();
        let rounds = rows.len();
        let mut known = HashSet::new();
        rows.retain(|row| known.insert(row.clone())); // a cell can be played several times
        Agenda { rounds, rows, left_out: Vec::new(), cells, seed }
    }
}

/// All results and the conditions under which they were measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of the program.
    pub version: String,
    /// Time of the report, in UTC.
    pub date: String,
    /// Whether the demo ran to its end. An interrupted report contains no verdicts.
    pub complete: bool,
    /// Number of planned rounds.
    pub planned: usize,
    /// Seed of the order of the rounds.
    pub seed: u64,
    pub machine: Machine,
    /// The decoded clips.
    pub clips: Vec<ClipNote>,
    /// The load of each scenario.
    pub loads: Vec<Load>,
    /// One row per scenario and policy.
    pub rows: Vec<Row>,
    /// The jobs behind each row.
    pub runs: Vec<RunPoints>,
    pub verdicts: Vec<Verdict>,
    /// Comparisons without a bound.
    pub comparisons: Vec<String>,
    /// The surroundings of each round, in the order of playing.
    pub rounds: Vec<RoundNote>,
    /// Rounds that could not be played, with the reason.
    pub missing: Vec<String>,
    /// Policies for which no time was left.
    pub left_out: Vec<String>,
    /// The cells of the grid; empty if the grid was not played.
    pub grid: Vec<Outcome>,
    /// Mean steal over all rounds, as a fraction of all CPU time.
    pub steal: f64,
}

/// The load of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Short name of the scenario.
    pub scenario: String,
    /// T in ns, as set last.
    pub period_ns: u64,
    /// Calibrated demand of all players together, in CPUs.
    pub demand: f64,
    /// Smallest and largest T of the compared rounds that count, in ns. The load follows the speed of the machine.
    #[serde(default)]
    pub periods_ns: Option<[u64; 2]>,
    /// Smallest and largest demand of the compared rounds that count, in CPUs, from the measured costs.
    #[serde(default)]
    pub demands: Option<[f64; 2]>,
    /// Designed demand in CPUs. The calibrated demand is lower if a frame would not fit into its period.
    pub designed: f64,
}

/// One round with its surroundings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundNote {
    /// Short name of the scenario.
    pub scenario: String,
    pub policy: String,
    /// Rounds with the same cycle number are compared with each other.
    pub cycle: usize,
    pub misses: u64,
    pub jobs: u64,
    /// Readings of other activity on the machine.
    pub around: Surroundings,
    /// The reason for which the round counts in no verdict; `None` if it was not disturbed.
    pub disturbance: Option<String>,
    /// CPU time of players, control thread and hogs.
    #[serde(flatten)]
    pub cpu: CpuUse,
}

/// The machine on which the demo ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Number of CPUs.
    pub cpus: usize,
    /// The room: bandwidth that may be reserved, as probed, minus a margin.
    pub capacity: Share,
    /// Number of hogs.
    pub hogs: usize,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Name of the mechanism of Q-Fabric's players; empty in reports of earlier versions.
    #[serde(default)]
    pub mechanism: String,
    /// The enforcement of budgets, at the tick or by a high-resolution timer, as `qfabric doctor` describes it.
    pub enforcement: String,
    /// The reserved bandwidth that the kernel lends under GRUB, as `qfabric doctor` describes it; `None` if it
    /// lends only free bandwidth.
    #[serde(default)]
    pub lends_too_much: Option<String>,
}

/// One clip, and the cost of its decoding in the trial execution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClipNote {
    /// Name of the clip in reports.
    pub title: String,
    pub size: String,
    /// Frames of one pass through the clip.
    pub frames: u32,
    /// Mean share of one CPU.
    pub mean: f64,
    /// Share of one CPU of the most expensive frame.
    pub peak: f64,
    /// Autocorrelation of the costs at a distance of 12 frames.
    pub autocorrelation_12: f64,
}

impl ClipNote {
    /// Describes the clip and its cost.
    pub fn sentence(&self) -> String {
        format!(
            "{}, {}, {} frames: decoding takes {:.1} % of one CPU in the mean and {:.1} % at the peak, autocorrelation \
             at 12 frames {:.2} (trial execution beside the hogs)",
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
    /// The jobs of the first player, which the plots over time show for all players.
    pub fn first_player(&self) -> &[Point] {
        self.players.first().map_or(&[], Vec::as_slice)
    }
}

/// The jobs behind a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunPoints {
    /// Short name of the scenario.
    pub scenario: String,
    pub policy: String,
    /// The target interval in T.
    pub target: (f64, f64),
    /// Probability of each error over all players: `(ε/T, fraction of jobs)`, ordered by ε.
    pub pmf: Vec<(f64, f64)>,
    /// The jobs of each player in the first counted round.
    pub players: Vec<Vec<Point>>,
    /// The first job after the shift; `None` without a shift.
    pub shift_at: Option<u64>,
}

/// The JSON object that `--json` writes.
#[derive(Serialize)]
struct Summary<'a> {
    rows: &'a [Row],
    verdicts: &'a [Verdict],
    steal: f64,
    seed: u64,
    complete: bool,
    date: &'a str,
    machine: &'a Machine,
    loads: &'a [Load],
    rounds: &'a [RoundNote],
    missing: &'a [String],
    left_out: &'a [String],
    grid: &'a [Outcome],
}

impl Report {
    /// Computes rows, verdicts and comparisons from the rounds.
    pub fn new(measured: Measured, agenda: &Agenda) -> Report {
        let Measured { records, missing, machine, clips, loads } = measured;
        let policies = by_policy(agenda, &records);
        let rows: Vec<Row> = policies.iter().map(|rounds| rows::row(rounds)).collect();
        let complete = records.len() + missing.len() == agenda.rounds;
        let steal: Vec<f64> = records.iter().map(|round| round.around.mean_steal()).collect();
        let mut grid = grid::outcomes(&agenda.cells, &records, &loads);
        let interrupted = (!complete).then_some("the demo was interrupted");
        if let Some(reason) = machine.lends_too_much.as_deref().or(interrupted) {
            grid.iter_mut().for_each(|outcome| outcome.verdict.withdraw(reason));
        }
        let (mut verdicts, comparisons) = match (complete, agenda.cells.is_empty()) {
            (false, _) => (Vec::new(), Vec::new()),
            (true, true) => (verdict::verdicts(&records), verdict::comparisons(&rows)),
            (true, false) => (grid::verdicts(&grid), vec![grid::tally(&grid)]),
        };
        if let Some(reason) = &machine.lends_too_much {
            verdicts.iter_mut().for_each(|verdict| verdict.withdraw(reason));
        }
        if machine.mechanism == MechanismName::Ext.name() {
            let of_cells = grid.iter_mut().map(|outcome| &mut outcome.verdict);
            verdicts.iter_mut().chain(of_cells).for_each(Verdict::name_ext);
        }
        Report {
            version: env!("CARGO_PKG_VERSION").into(),
            date: date(),
            complete,
            planned: agenda.rounds,
            seed: agenda.seed,
            machine,
            clips: clips.iter().map(|(clip, trace)| note(clip, trace)).collect(),
            loads: loads.into_iter().map(|one| load(&records, one)).collect(),
            verdicts,
            comparisons,
            grid,
            rows,
            runs: policies.iter().map(|rounds| run_points(rounds)).collect(),
            rounds: records.iter().map(round_note).collect(),
            missing,
            left_out: agenda.left_out.clone(),
            steal: rows::mean(&steal),
        }
    }

    /// Rows, verdicts and circumstances as one JSON object.
    pub fn summary_json(&self) -> Result<String> {
        let Report { rows, verdicts, steal, seed, complete, date, machine, loads, rounds, missing, left_out, .. } =
            self;
        let (steal, seed, complete) = (*steal, *seed, *complete);
        let summary = Summary {
            rows,
            verdicts,
            steal,
            seed,
            complete,
            date,
            machine,
            loads,
            rounds,
            missing,
            left_out,
            grid: &self.grid,
        };
        Ok(serde_json::to_string_pretty(&summary)? + "\n")
    }

    /// The tables and verdicts as text.
    pub fn text(&self) -> String {
        table::text(self)
    }

    /// The self-contained HTML page.
    pub fn html(&self) -> Result<String> {
        html::page(self)
    }

    /// The heat maps of the grid with their names; empty if the grid was not played.
    fn heat_maps(&self) -> Vec<(&'static str, String)> {
        if self.grid.is_empty() {
            return Vec::new();
        }
        let title = "Misses of Q-Fabric divided by those of static GRUB";
        let skipping = "The same ratio if the players of both skip frames that are predicted to be late";
        vec![
            ("grid", heat::svg(title, &self.grid, |outcome| Some((&outcome.plain, Some(&outcome.verdict))))),
            ("grid-skipping", heat::svg(skipping, &self.grid, |outcome| Some((outcome.both_skip.as_ref()?, None)))),
        ]
    }

    /// Writes `report.html`, `report.json`, `summary.json`, `report.txt` and the plots as PNG and SVG to `folder`,
    /// which is created if necessary.
    pub fn write_to(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        for (name, figure) in plots::figures(self) {
            plots::png(&folder.join(format!("{name}.png")), &figure)?;
            write_whole(&folder.join(format!("{name}.svg")), plots::svg(&figure)?.as_bytes())?;
        }
        for (name, svg) in self.heat_maps() {
            write_whole(&folder.join(format!("{name}.svg")), svg.as_bytes())?;
        }
        write_whole(&folder.join("report.txt"), self.text().as_bytes())?;
        write_whole(&folder.join("summary.json"), self.summary_json()?.as_bytes())?;
        write_whole(&folder.join("report.json"), &serde_json::to_vec(self)?)?;
        write_whole(&folder.join("report.html"), self.html()?.as_bytes())
    }
}

impl Machine {
    /// Reads the properties of this host.
    pub fn examine() -> Machine {
        let system = rustix::system::uname();
        let kernel = format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy());
        let processor = qfabric_client::platform().cpu;
        Machine {
            kernel,
            processor,
            enforcement: enforcement(),
            lends_too_much: lends_too_much(),
            ..Machine::default()
        }
    }
}

/// Checks whether GRUB lends reserved bandwidth; if so, no comparison under GRUB is valid.
fn lends_too_much() -> Option<String> {
    use qfabric_linux::doctor::{self, State};
    let finding = doctor::reclaiming(Path::new(qfabric_linux::hrtick::DEBUGFS));
    (finding.state == State::Warn).then(|| format!("{}; {}", finding.reason, finding.fix.unwrap_or_default()))
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

/// The rounds of each row in the agenda's order. Omits rows without rounds.
fn by_policy<'a>(agenda: &Agenda, records: &'a [RunRecord]) -> Vec<Vec<&'a RunRecord>> {
    let of = |(scenario, label): &(String, String)| {
        records.iter().filter(|r| r.scenario == *scenario && r.policy == *label).collect::<Vec<_>>()
    };
    agenda.rows.iter().map(of).filter(|rounds| !rounds.is_empty()).collect()
}

fn load(records: &[RunRecord], (scenario, calibration): (String, Calibration)) -> Load {
    let Calibration { period, demand, designed, .. } = calibration;
    let compared = [policy::headline().label(), policy::equal_shares(true).label()];
    let rounds: Vec<&RunRecord> = records
        .iter()
        .filter(|round| round.scenario == scenario && compared.contains(&round.policy))
        .filter(|round| round.around.disturbance().is_none())
        .collect();
    let periods = rounds.iter().map(|round| round.period.get());
    let demands = rounds.iter().filter_map(|round| Some(demand * round.around.speed?));
    Load {
        periods_ns: periods.clone().min().zip(periods.max()).map(<[u64; 2]>::from),
        demands: demands.clone().reduce(f64::min).zip(demands.reduce(f64::max)).map(<[f64; 2]>::from),
        scenario,
        period_ns: period.get(),
        demand,
        designed,
    }
}

fn round_note(round: &RunRecord) -> RoundNote {
    let rows::Count { misses, jobs } = rows::count(round);
    RoundNote {
        scenario: round.scenario.clone(),
        policy: round.policy.clone(),
        cycle: round.cycle,
        misses,
        jobs,
        around: round.around.clone(),
        disturbance: round.around.disturbance(),
        cpu: round.cpu,
    }
}

/// The current time in UTC, to the minute.
fn date() -> String {
    let now = time::OffsetDateTime::now_utc();
    format!("{} {:02}:{:02} UTC", now.date(), now.hour(), now.minute())
}

/// The errors of all counted rounds, and the jobs over time of the first counted round.
fn run_points(rounds: &[&RunRecord]) -> RunPoints {
    let counted = rows::counted(rounds);
    let run = counted[0];
    let players: Vec<Vec<Point>> = run.players.iter().map(|player| rows::points(run, player)).collect();
    let all = counted.iter().flat_map(|run| run.players.iter().flat_map(|player| rows::points(run, player)));
    let errors: Vec<f64> = all.filter(|p| !p.skipped).map(|p| p.error).collect();
    RunPoints {
        scenario: run.scenario.clone(),
        policy: run.policy.clone(),
        target: (-run.early, run.late),
        pmf: pmf(&errors, run.server_period.as_f64() / run.period.as_f64()),
        players,
        shift_at: run.shift_at,
    }
}

/// Fractions of the errors, rounded to multiples of the server period.
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

    /// A report of two scenarios from invented records.
    pub(crate) fn report() -> Report {
        Report::new(measured(), &agenda())
    }

    fn measured() -> Measured {
        let named = |scenario: &str, policy: &str, response_ms: &[u64], budget_ms: f64| {
            let mut run = run(response_ms, response_ms.len(), budget_ms);
            (run.scenario, run.policy) = (scenario.into(), policy.into());
            run.shift_at = (scenario == "shift").then_some(2);
            run
        };
        let records = vec![
            named("hogs", "plain", &[90, 140, 300, 420, 700], 0.0),
            named("hogs", "Q-Fabric hint[24], hard", &[35, 41, 30, 38, 39], 2.4),
            named("hogs", "Q-Fabric hint[24], GRUB", &[35, 36, 37, 38, 39], 2.5),
            named("shift", "static equal shares, GRUB", &[20, 45, 60, 20, 20], 3.0),
            named("shift", "Q-Fabric hint[24], GRUB", &[35, 36, 41, 38, 39], 2.5),
        ];
        let machine = Machine { cpus: 2, processor: "made up <&>".into(), ..Machine::default() };
        Measured { records, missing: Vec::new(), machine, clips: Vec::new(), loads: Vec::new() }
    }

    fn agenda() -> Agenda {
        let plan = crate::plan::plan(MechanismName::Deadline, 165.0, &[], false, 7);
        Agenda { rounds: 5, ..Agenda::of_plan(&plan, 7) }
    }

    #[test]
    fn the_probabilities_of_all_errors_add_up() {
        let pmf = pmf(&[-0.25, 0.0, 0.0, 0.5], 0.25);
        assert_eq!(pmf, [(-0.25, 0.25), (0.0, 0.5), (0.5, 0.25)]);
    }

    #[test]
    fn a_report_read_back_from_json_is_equal() {
        let report = report();
        let again: Report = serde_json::from_slice(&serde_json::to_vec(&report).unwrap()).unwrap();
        assert_eq!((again.text(), again.html().unwrap()), (report.text(), report.html().unwrap()));
    }

    #[test]
    fn an_interrupted_report_has_no_verdicts() {
        let report = report();
        let partial = Report { complete: false, planned: 18, verdicts: Vec::new(), ..report.clone() };
        assert!(partial.text().contains("5 of 18") && partial.html().unwrap().contains("5 of 18"));
        assert!(report.complete && !report.text().contains("interrupted"));
    }

    #[test]
    fn a_round_with_steal_is_named_and_gives_no_verdict() {
        let mut records: Vec<RunRecord> = Vec::new();
        for cycle in 0..5 {
            let mut round = run(&[30; 200], 200, 2.5);
            (round.scenario, round.policy, round.cycle) = ("hogs".into(), "Q-Fabric hint[24], GRUB".into(), cycle);
            round.around.steal = vec![0.4, 0.0];
            records.push(round);
        }
        let measured = Measured {
            records,
            missing: Vec::new(),
            machine: Machine::default(),
            clips: Vec::new(),
            loads: Vec::new(),
        };
        let report = Report::new(measured, &agenda());
        assert!((report.steal - 0.2).abs() < 1e-9 && report.rows[0].disturbed);
        assert!(report.rounds.iter().all(|round| round.disturbance.as_ref().unwrap().contains("steal 20")));
        assert!(report.verdicts.iter().all(|verdict| verdict.state == verdict::State::Disturbed));
        assert!(report.text().contains("no verdict: disturbed"), "{}", report.text());
    }

    #[test]
    fn every_file_of_the_report_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new");
        report().write_to(&out).unwrap();
        let files = ["report.html", "report.json", "report.txt", "summary.json", "hogs-pmf.png", "shift-budget.svg"];
        for name in files {
            assert!(std::fs::metadata(out.join(name)).unwrap().len() > 100, "{name}");
        }
        assert!(std::fs::read_dir(&out).unwrap().all(|f| !f.unwrap().path().to_string_lossy().contains(".part")));
    }

    #[test]
    fn the_page_is_self_contained() {
        let page = report().html().unwrap();
        for outside in ["http:", "https:", "src=\"", "@import", "url(", "<link", "<script"] {
            let own = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains(outside), "{outside}");
        }
        assert!(page.contains("<svg") && page.contains("made up &lt;&amp;&gt;"));
    }

    #[test]
    fn the_grid_is_drawn_and_judged() {
        let cell = grid::cells(1.0, false, 7, &[]).unwrap()[0];
        let played = |policy: crate::policy::Policy, ms: u64| {
            let mut round = run(&vec![ms; 400], 400, 2.5);
            (round.scenario, round.policy) = (cell.name(), policy.label());
            round
        };
        let records = vec![played(crate::policy::equal_shares(true), 50), played(crate::policy::headline(), 30)];
        let (missing, machine) = (Vec::new(), Machine::default());
        let measured = Measured { records, missing, machine, clips: Vec::new(), loads: Vec::new() };
        let agenda = Agenda { rounds: 2, ..Agenda::of_cells(MechanismName::Deadline, vec![cell], false, 7) };
        let report = Report::new(measured, &agenda);
        assert_eq!((report.rows.len(), report.grid.len(), report.verdicts.len()), (2, 1, 7));
        assert!(report.grid[0].plain.ratio < 0.01 && report.html().unwrap().contains("0.00x"));
        assert!(report.text().contains("players"), "{}", report.text());
    }

    #[test]
    fn no_cell_has_a_verdict_if_the_kernel_lends_bandwidth_or_the_demo_was_interrupted() {
        let cell = grid::cells(1.0, false, 7, &[]).unwrap()[0];
        let played = |policy: crate::policy::Policy, ms: u64| {
            let mut round = run(&vec![ms; 600], 600, 2.5);
            (round.scenario, round.policy) = (cell.name(), policy.label());
            round
        };
        let state = |lends: Option<&str>, rounds: usize| {
            let records = vec![played(crate::policy::equal_shares(true), 50), played(crate::policy::headline(), 30)];
            let machine = Machine { lends_too_much: lends.map(str::to_owned), ..Machine::default() };
            let measured = Measured { records, missing: Vec::new(), machine, clips: Vec::new(), loads: Vec::new() };
            let agenda = Agenda::of_cells(MechanismName::Deadline, vec![cell], false, 7);
            let report = Report::new(measured, &Agenda { rounds, ..agenda });
            report.grid[0].verdict.state
        };
        assert_eq!(state(None, 2), verdict::State::Held);
        assert_eq!([state(Some("GRUB lends 0.4 CPU"), 2), state(None, 5)], [verdict::State::Disturbed; 2]);
    }

    #[test]
    fn if_the_kernel_lends_reserved_bandwidth_all_verdicts_are_withdrawn() {
        let machine = Machine { lends_too_much: Some("GRUB lends 0.4 CPU".into()), ..Machine::default() };
        let report = Report::new(Measured { machine, ..measured() }, &agenda());
        let reasons = report.verdicts.iter().map(|verdict| (verdict.state, verdict.reason.as_deref()));
        let withdrawn = (verdict::State::Disturbed, Some("GRUB lends 0.4 CPU"));
        assert_eq!(reasons.collect::<Vec<_>>(), [withdrawn; 4]);
    }

    #[test]
    fn under_ext_the_report_and_every_claim_name_the_mechanism() {
        let machine = Machine { mechanism: MechanismName::Ext.name().to_owned(), ..Machine::default() };
        let report = Report::new(Measured { machine, ..measured() }, &agenda());
        assert_eq!(report.verdicts.len(), 4);
        assert!(report.verdicts.iter().all(|verdict| verdict.claim.starts_with("under ext, ")));
        let words = "Q-Fabric's players run under the mechanism ext";
        assert!(report.text().contains(words) && report.html().unwrap().contains(words));
        let summary: serde_json::Value = serde_json::from_str(&report.summary_json().unwrap()).unwrap();
        assert_eq!(summary["machine"]["mechanism"], "ext");
    }

    #[test]
    fn the_json_has_rows_verdicts_and_steal() {
        let summary: serde_json::Value = serde_json::from_str(&report().summary_json().unwrap()).unwrap();
        let rows = summary["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 5);
        for key in ["policy", "jobs", "misses", "in_target", "mean_error", "misses_low", "misses_high"] {
            assert!(rows.iter().all(|row| row.get(key).is_some()), "{key}");
        }
        assert!(rows[0]["mean_bandwidth"].is_null() && rows[1]["mean_bandwidth"].is_number());
        for verdict in summary["verdicts"].as_array().unwrap() {
            assert!(["held", "missed", "disturbed"].contains(&verdict["state"].as_str().unwrap()));
            assert!(["claim", "samples", "low", "high"].iter().all(|key| verdict.get(key).is_some()));
        }
        assert!(summary["steal"].is_number());
    }
}
