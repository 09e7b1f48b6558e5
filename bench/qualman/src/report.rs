//! The report: a table for each experiment, the goals, and JSON.

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::experiment::{Experiment, Reserved};
use crate::measure::{Jitter, Skew, Spread, StreamTimes};
use crate::{FRAMES, Options};

/// All runs, and what they show.
#[derive(Serialize)]
pub struct Report {
    /// Frames of the fastest stream in each run.
    frames: u32,
    /// `frames` over the paper's number.
    factor: f64,
    runs_wanted: u32,
    seed: u64,
    cpus: usize,
    background: usize,
    pub(crate) is_complete: bool,
    pub(crate) runs: Vec<RunRow>,
    goals: Vec<Goal>,
    notes: Vec<String>,
}

/// One run.
#[derive(Serialize)]
pub(crate) struct RunRow {
    pub experiment: Experiment,
    pub reserved: Reserved,
    pub run: u32,
    /// CPU time that the hypervisor took, as a fraction of all.
    pub steal: f64,
    pub streams: Vec<StreamRow>,
    /// Of lip synchronization only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew: Option<Skew>,
}

/// One stream of a run.
#[derive(Serialize)]
pub(crate) struct StreamRow {
    pub stream: String,
    pub period_ms: f64,
    #[serde(flatten)]
    pub jitter: Jitter,
    /// Every intra-frame time after the warm-up.
    pub intra_frame_ms: Vec<f64>,
}

/// A figure that the paper reached, and this machine's.
#[derive(Debug, PartialEq, Serialize)]
struct Goal {
    goal: String,
    measured: String,
    is_reached: bool,
}

impl RunRow {
    pub(crate) fn new(
        experiment: Experiment,
        reserved: Reserved,
        run: u32,
        streams: &[StreamTimes],
        steal: f64,
    ) -> RunRow {
        let row = |(times, plan): (&StreamTimes, &crate::experiment::StreamPlan)| StreamRow {
            stream: plan.title(),
            period_ms: times.period_ms,
            jitter: times.jitter(),
            intra_frame_ms: times.intra_frame(),
        };
        let skew = match streams {
            [picture, sound] if experiment == Experiment::Lip => Some(Skew::of(picture, sound)),
            _ => None,
        };
        let streams = streams.iter().zip(experiment.streams()).map(row).collect();
        RunRow { experiment, reserved, run, steal, streams, skew }
    }
}

impl Report {
    pub(crate) fn new(options: &Options, frames: u32, background: usize, cpus: usize) -> Report {
        Report {
            frames,
            factor: f64::from(frames) / f64::from(FRAMES),
            runs_wanted: options.runs,
            seed: options.seed,
            cpus,
            background,
            is_complete: true,
            runs: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a note once.
    pub(crate) fn note(&mut self, note: &str) {
        if !self.notes.iter().any(|other| other == note) {
            self.notes.push(note.to_owned());
        }
    }

    pub(crate) fn add(&mut self, run: RunRow) {
        self.runs.push(run);
        self.goals = goals(self);
    }

    /// The experiments that have runs, in the order of the paper.
    pub(crate) fn experiments(&self) -> Vec<Experiment> {
        let has_runs = |experiment: &Experiment| self.runs.iter().any(|run| run.experiment == *experiment);
        Experiment::ALL.into_iter().filter(has_runs).collect()
    }

    /// One stream in all runs of an experiment under one reservation.
    pub(crate) fn rows(&self, experiment: Experiment, reserved: Reserved, stream: usize) -> Vec<&StreamRow> {
        let runs = self.runs.iter().filter(|run| run.experiment == experiment && run.reserved == reserved);
        runs.filter_map(|run| run.streams.get(stream)).collect()
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!(
            "QualMan §7: {} frames in each run (factor {:.2} of the paper's {FRAMES}), {} runs, {} CPUs, {} background \
             programs, seed {}.\n",
            self.frames, self.factor, self.runs_wanted, self.cpus, self.background, self.seed
        );
        if !self.is_complete {
            text += "Interrupted: the report has the runs before.\n";
        }
        for experiment in self.experiments() {
            text += &format!("\n{}\n{}\n", experiment.title(), self.table(experiment));
            text += &self.skew_text(experiment);
        }
        if !self.goals.is_empty() {
            text += "\n";
        }
        for goal in &self.goals {
            let mark = if goal.is_reached { "✔" } else { "✘" };
            text += &format!("{mark} {}: {}\n", goal.goal, goal.measured);
        }
        let steal = self.runs.iter().map(|run| run.steal).fold(0.0, f64::max);
        text += &format!("\nCPU time that the hypervisor took: at most {:.1} %.\n", steal * 100.0);
        self.notes.iter().for_each(|note| text += &format!("Note: {note}\n"));
        text
    }

    /// The skews of an experiment under one reservation.
    pub(crate) fn skews(&self, experiment: Experiment, reserved: Reserved) -> Vec<&Skew> {
        let runs = self.runs.iter().filter(|run| run.experiment == experiment && run.reserved == reserved);
        runs.filter_map(|run| run.skew.as_ref()).collect()
    }

    fn skew_text(&self, experiment: Experiment) -> String {
        let line = |reserved: &Reserved| {
            let skews = self.skews(experiment, *reserved);
            let spread = |decimals, value: &dyn Fn(&Skew) -> Option<f64>| {
                let spread = Spread::of(skews.iter().filter_map(|skew| value(skew)));
                spread.map_or("–".to_owned(), |spread| spread.text(decimals))
            };
            (!skews.is_empty()).then(|| {
                format!(
                    "Skew, reserved {}: {} % of the pictures within ±10 ms, mean {} ms, largest {} ms, missing {}\n",
                    reserved.title(),
                    spread(1, &|skew| Some(100.0 * skew.within_10_ms)),
                    spread(2, &|skew| skew.mean_ms),
                    spread(1, &|skew| skew.largest_ms),
                    spread(0, &|skew| Some(skew.missing as f64))
                )
            })
        };
        experiment.reservations().iter().filter_map(line).collect()
    }

    fn table(&self, experiment: Experiment) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header([
            "reserved",
            "stream",
            "mean jitter ms",
            "paper ms",
            "beyond 1 period",
            "missing",
            "largest ms",
            "frames",
        ]);
        for &reserved in experiment.reservations() {
            for (at, plan) in experiment.streams().iter().enumerate() {
                let rows = self.rows(experiment, reserved, at);
                if rows.is_empty() {
                    continue;
                }
                let paper = experiment.paper_ms(reserved).get(at).map_or("–".to_owned(), f64::to_string);
                table.add_row([
                    reserved.title().to_owned(),
                    plan.title(),
                    spread(&rows, 2, |jitter| jitter.mean_ms),
                    paper,
                    spread(&rows, 0, |jitter| Some(jitter.beyond as f64)),
                    spread(&rows, 0, |jitter| Some(jitter.missing as f64)),
                    spread(&rows, 0, |jitter| jitter.largest_ms),
                    rows[0].jitter.frames.to_string(),
                ]);
            }
        }
        table
    }
}

fn spread(rows: &[&StreamRow], decimals: usize, value: impl Fn(&Jitter) -> Option<f64>) -> String {
    let values = rows.iter().filter_map(|row| value(&row.jitter));
    Spread::of(values).map_or("–".to_owned(), |spread| spread.text(decimals))
}

/// Table 6: no frame beyond one period with everything reserved, while the run beside it fails; the mean jitter is at
/// most the paper's.
fn goals(report: &Report) -> Vec<Goal> {
    report.experiments().into_iter().flat_map(|experiment| goals_of(report, experiment)).collect()
}

fn goals_of(report: &Report, experiment: Experiment) -> Vec<Goal> {
    let lost = |reserved| {
        let rows = (0..experiment.streams().len()).flat_map(|at| report.rows(experiment, reserved, at));
        let counts: Vec<usize> = rows.map(|row| row.jitter.beyond + row.jitter.missing).collect();
        (!counts.is_empty()).then(|| counts.iter().sum::<usize>())
    };
    let without = lost(Reserved::Nothing);
    let mut goals = Vec::new();
    for &reserved in experiment.reservations().iter().filter(|reserved| **reserved != Reserved::Nothing) {
        let Some(with) = lost(reserved) else { continue };
        let (name, what) = (experiment.word(), reserved.title());
        goals.push(Goal {
            goal: format!("{name}, {what}: no frame beyond one period or missing, and some with nothing reserved"),
            measured: format!("{with}, and {}", without.map_or("not measured".to_owned(), |lost| lost.to_string())),
            is_reached: with == 0 && without.is_some_and(|lost| lost > 0),
        });
        goals.extend(jitter_goals(report, experiment, reserved));
        goals.extend(skew_goal(report, experiment, reserved));
    }
    goals
}

/// The largest mean of all runs counts.
fn jitter_goals(report: &Report, experiment: Experiment, reserved: Reserved) -> Vec<Goal> {
    let goal = |(at, paper): (usize, &f64)| {
        let means = report.rows(experiment, reserved, at).into_iter().filter_map(|row| row.jitter.mean_ms);
        let spread = Spread::of(means)?;
        let (name, what, stream) = (experiment.word(), reserved.title(), experiment.streams()[at].title());
        Some(Goal {
            goal: format!("{name}, {what}, {stream}: mean jitter at most {paper} ms in every run"),
            measured: format!("{} ms", spread.text(2)),
            is_reached: spread.most <= *paper,
        })
    };
    experiment.paper_ms(reserved).iter().enumerate().filter_map(goal).collect()
}

/// The paper has 99.3 % within ±10 ms (§7.4); the worst run counts.
fn skew_goal(report: &Report, experiment: Experiment, reserved: Reserved) -> Option<Goal> {
    let skews = report.skews(experiment, reserved);
    let spread = Spread::of(skews.iter().map(|skew| 100.0 * skew.within_10_ms))?;
    Some(Goal {
        goal: format!("{}, {}: 99 % of the pictures within ±10 ms of their sound", experiment.word(), reserved.title()),
        measured: format!("{} %", spread.text(1)),
        is_reached: spread.least >= 99.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(reserved: Reserved, gap: f64) -> RunRow {
        let ready = |number| (number, number as f64 * gap);
        let times = StreamTimes { period_ms: 100.0, due: 60, ready_ms: (0..60).map(ready).collect() };
        RunRow::new(Experiment::Cpu1, reserved, 0, &[times], 0.01)
    }

    #[test]
    fn goals_need_the_failure_of_the_run_with_nothing_reserved() {
        let mut report = Report::new(&Options::example(), 60, 12, 2);
        report.add(run(Reserved::Cpu, 101.0));
        let reached = |report: &Report| report.goals.iter().map(|goal| goal.is_reached).collect::<Vec<_>>();
        assert_eq!(reached(&report), [false, true], "nothing to compare with");
        report.add(run(Reserved::Nothing, 100.0));
        assert_eq!(reached(&report), [false, true], "fair sharing sufficed");
        report.add(run(Reserved::Nothing, 250.0));
        assert_eq!(reached(&report), [true, true]);
        report.add(run(Reserved::Cpu, 220.0));
        assert_eq!(reached(&report), [false, false]);
    }

    #[test]
    fn the_text_names_factor_table_and_goals() {
        let mut report = Report::new(&Options::example(), 65, 12, 2);
        report.add(run(Reserved::Cpu, 101.0));
        report.note("once");
        report.note("once");
        let text = report.text();
        assert!(text.contains("factor 0.10") && text.contains("4.46") && text.contains("1.00"), "{text}");
        assert_eq!(text.matches("Note: once").count(), 1);
    }
}
