//! The report: a table for each experiment, the goals, and JSON.

use comfy_table::{Table, presets};
use qfabric_demo::disturbance::MOST_STEAL;
use qfabric_demo::verdict::State;
use qfabric_netlab::Spread;
use serde::Serialize;

use crate::experiment::{Experiment, Reserved};
use crate::measure::{Jitter, Skew, StreamTimes};
use crate::rates::{self, Bandwidth};
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
    /// Empty if the run failed.
    pub streams: Vec<StreamRow>,
    /// Why the run counts in no goal: something else took CPU time or packets.
    pub disturbance: Option<String>,
    /// Why the run has no numbers. A goal whose run failed is missed.
    pub failure: Option<String>,
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
    /// Of Figure 10 only.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Every intra-frame time after the warm-up.
    pub intra_frame_ms: Vec<f64>,
}

/// A figure that the paper reached, and this machine's.
#[derive(Debug, PartialEq, Serialize)]
struct Goal {
    goal: String,
    measured: String,
    /// `held`, `missed`, or `disturbed`: no verdict.
    state: State,
    /// Why there is no verdict, or which run failed.
    reason: Option<String>,
    is_reached: bool,
}

impl Goal {
    /// `is_held`: of the runs that count; `None` without one.
    fn judge(
        report: &Report,
        of: (Experiment, Reserved),
        goal: String,
        measured: String,
        is_held: Option<bool>,
    ) -> Goal {
        let why = |why: fn(&RunRow) -> Option<&String>| report.all(of.0, of.1).find_map(why);
        let failure = why(|run| run.failure.as_ref()).map(|why| format!("a run failed: {why}"));
        let (state, reason) = match (failure, is_held) {
            (Some(failure), _) => (State::Missed, Some(failure)),
            (None, Some(true)) => (State::Held, None),
            (None, Some(false)) => (State::Missed, None),
            (None, None) => {
                let why = why(|run| run.disturbance.as_ref()).map_or("not played", String::as_str);
                (State::Disturbed, Some(format!("no run counts: {why}")))
            }
        };
        Goal { goal, measured, state, reason, is_reached: state == State::Held }
    }

    fn line(&self) -> String {
        let mark = match self.state {
            State::Held => "✔",
            State::Missed => "✘",
            State::Disturbed => "–",
        };
        let reason = self.reason.as_ref().map_or(String::new(), |reason| format!("; {reason}"));
        format!("{mark} {}: {}{reason}\n", self.goal, self.measured)
    }
}

impl RunRow {
    pub(crate) fn new(
        experiment: Experiment,
        reserved: Reserved,
        run: u32,
        streams: &[StreamTimes],
        steal: f64,
        disturbance: Option<String>,
    ) -> RunRow {
        let row = |(times, plan): (&StreamTimes, &crate::experiment::StreamPlan)| {
            let jitter = times.jitter();
            StreamRow {
                stream: plan.title(),
                period_ms: times.period_ms,
                bandwidth: experiment.is_in_turn().then(|| Bandwidth::new(plan.asked_mbps(), &jitter)),
                jitter,
                intra_frame_ms: times.intra_frame(),
            }
        };
        let skew = match streams {
            [picture, sound] if experiment == Experiment::Lip => Some(Skew::of(picture, sound)),
            _ => None,
        };
        let streams = streams.iter().zip(experiment.streams()).map(row).collect();
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        let stolen = || format!("the hypervisor took {}, of at most {}", percent(steal), percent(MOST_STEAL));
        let disturbance = disturbance.or_else(|| (steal > MOST_STEAL).then(stolen));
        RunRow { experiment, reserved, run, steal, streams, disturbance, failure: None, skew }
    }

    /// A run without numbers.
    pub(crate) fn failed(experiment: Experiment, reserved: Reserved, run: u32, why: String) -> RunRow {
        let (streams, failure) = (Vec::new(), Some(why));
        RunRow { experiment, reserved, run, steal: 0.0, streams, disturbance: None, failure, skew: None }
    }

    fn counts(&self) -> bool {
        self.failure.is_none() && self.disturbance.is_none()
    }

    /// What the reader has to know of a run that does not count.
    fn line(&self) -> Option<String> {
        let (mark, what, why) = match (&self.failure, &self.disturbance) {
            (Some(why), _) => ("✘", "failed", why),
            (None, Some(why)) => ("–", "is disturbed and does not count", why),
            (None, None) => return None,
        };
        Some(format!("{mark} Run {}, reserved {}, {what}: {why}\n", self.run + 1, self.reserved.title()))
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

    /// All runs of an experiment under one reservation.
    fn all(&self, experiment: Experiment, reserved: Reserved) -> impl Iterator<Item = &RunRow> {
        self.runs.iter().filter(move |run| run.experiment == experiment && run.reserved == reserved)
    }

    /// One stream in the runs that count.
    pub(crate) fn rows(&self, experiment: Experiment, reserved: Reserved, stream: usize) -> Vec<&StreamRow> {
        let runs = self.all(experiment, reserved).filter(|run| run.counts());
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
            let table = if experiment.is_in_turn() { rates::table(self) } else { self.table(experiment) };
            text += &format!("\n{}\n{table}\n", experiment.title());
            text += &self.skew_text(experiment);
            text.extend(self.runs.iter().filter(|run| run.experiment == experiment).filter_map(RunRow::line));
        }
        if !self.goals.is_empty() {
            text += "\n";
        }
        text.extend(self.goals.iter().map(Goal::line));
        let steal = self.runs.iter().map(|run| run.steal).fold(0.0, f64::max);
        text += &format!("\nCPU time that the hypervisor took: at most {:.1} %.\n", steal * 100.0);
        self.notes.iter().for_each(|note| text += &format!("Note: {note}\n"));
        text
    }

    /// The skews of an experiment under one reservation.
    pub(crate) fn skews(&self, experiment: Experiment, reserved: Reserved) -> Vec<&Skew> {
        let runs = self.all(experiment, reserved).filter(|run| run.counts());
        runs.filter_map(|run| run.skew.as_ref()).collect()
    }

    fn skew_text(&self, experiment: Experiment) -> String {
        let line = |reserved: &Reserved| {
            let skews = self.skews(experiment, *reserved);
            let spread = |decimals, value: &dyn Fn(&Skew) -> Option<f64>| {
                let spread = Spread::of(skews.iter().filter_map(|skew| value(skew)));
                spread.map_or("–".to_owned(), |spread| spread.text(rounded(decimals)))
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

/// Shows a number with this number of decimals.
pub(crate) fn rounded(decimals: usize) -> impl Fn(f64) -> String {
    move |value| format!("{value:.decimals$}")
}

fn spread(rows: &[&StreamRow], decimals: usize, value: impl Fn(&Jitter) -> Option<f64>) -> String {
    let values = rows.iter().filter_map(|row| value(&row.jitter));
    Spread::of(values).map_or("–".to_owned(), |spread| spread.text(rounded(decimals)))
}

/// Table 6: no frame beyond one period with everything reserved, while the run beside it fails; the mean jitter is at
/// most the paper's.
fn goals(report: &Report) -> Vec<Goal> {
    report.experiments().into_iter().flat_map(|experiment| goals_of(report, experiment)).collect()
}

fn goals_of(report: &Report, experiment: Experiment) -> Vec<Goal> {
    if experiment.is_in_turn() {
        return rates_goal(report).into_iter().collect();
    }
    let lost = |reserved| {
        let rows = (0..experiment.streams().len()).flat_map(|at| report.rows(experiment, reserved, at));
        let counts: Vec<usize> = rows.map(|row| row.jitter.beyond + row.jitter.missing).collect();
        (!counts.is_empty()).then(|| counts.iter().sum::<usize>())
    };
    let without = lost(Reserved::Nothing);
    let shown = |lost: Option<usize>| lost.map_or("not measured".to_owned(), |lost| lost.to_string());
    let mut goals = Vec::new();
    for &reserved in experiment.reservations().iter().filter(|reserved| **reserved != Reserved::Nothing) {
        if report.all(experiment, reserved).next().is_none() {
            continue;
        }
        let with = lost(reserved);
        let (name, what) = (experiment.word(), reserved.title());
        let goal = format!("{name}, {what}: no frame beyond one period or missing, and some with nothing reserved");
        let measured = format!("{}, and {}", shown(with), shown(without));
        // Lost frames are a miss whatever the other side did; none is a success only beside a failure.
        let is_held = with.and_then(|with| if with > 0 { Some(false) } else { without.map(|lost| lost > 0) });
        goals.push(Goal::judge(report, (experiment, reserved), goal, measured, is_held));
        goals.extend(jitter_goals(report, experiment, reserved));
        goals.extend(skew_goal(report, experiment, reserved));
    }
    goals
}

/// Figure 10: what is reserved is achieved at each rate, while it is not beside the flood without a reservation.
fn rates_goal(report: &Report) -> Option<Goal> {
    let of = (Experiment::Rates, Reserved::Everything);
    report.all(of.0, of.1).next()?;
    let [with, without] = [Reserved::Everything, Reserved::Nothing].map(|reserved| rates::least(report, reserved));
    let shown = |part: Option<f64>| part.map_or("not measured".to_owned(), |part| format!("{:.1} %", 100.0 * part));
    let goal = "rates, everything: at least 99 % of each asked rate, and less of some with nothing reserved".to_owned();
    let measured = format!("at least {}, and {}", shown(with), shown(without));
    let is_held = with.and_then(|with| if with < 0.99 { Some(false) } else { without.map(|part| part < 0.99) });
    Some(Goal::judge(report, of, goal, measured, is_held))
}

/// The largest mean of all runs that count.
fn jitter_goals(report: &Report, experiment: Experiment, reserved: Reserved) -> Vec<Goal> {
    let goal = |(at, paper): (usize, &f64)| {
        let means = report.rows(experiment, reserved, at).into_iter().filter_map(|row| row.jitter.mean_ms);
        let spread = Spread::of(means);
        let (name, what, stream) = (experiment.word(), reserved.title(), experiment.streams()[at].title());
        let goal = format!("{name}, {what}, {stream}: mean jitter at most {paper} ms in every run");
        let measured = spread.map_or("not measured".to_owned(), |spread| format!("{} ms", spread.text(rounded(2))));
        Goal::judge(report, (experiment, reserved), goal, measured, spread.map(|spread| spread.most <= *paper))
    };
    experiment.paper_ms(reserved).iter().enumerate().map(goal).collect()
}

/// The paper has 99.3 % within ±10 ms (§7.4); the worst run counts.
fn skew_goal(report: &Report, experiment: Experiment, reserved: Reserved) -> Option<Goal> {
    if experiment != Experiment::Lip {
        return None;
    }
    let skews = report.skews(experiment, reserved);
    let spread = Spread::of(skews.iter().map(|skew| 100.0 * skew.within_10_ms));
    let goal =
        format!("{}, {}: 99 % of the pictures within ±10 ms of their sound", experiment.word(), reserved.title());
    let measured = spread.map_or("not measured".to_owned(), |spread| format!("{} %", spread.text(rounded(1))));
    Some(Goal::judge(report, (experiment, reserved), goal, measured, spread.map(|spread| spread.least >= 99.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(reserved: Reserved, gap: f64) -> RunRow {
        let ready = |number| (number, number as f64 * gap);
        let times = StreamTimes { period_ms: 100.0, due: 60, ready_ms: (0..60).map(ready).collect() };
        RunRow::new(Experiment::Cpu1, reserved, 0, &[times], 0.01, None)
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
    fn a_failed_run_is_a_missed_goal_and_a_disturbed_run_counts_in_none() {
        let mut report = Report::new(&Options::example(), 60, 12, 2);
        let states = |report: &Report| report.goals.iter().map(|goal| goal.state).collect::<Vec<_>>();
        report.add(run(Reserved::Nothing, 250.0));
        let stolen = |gap| {
            let ready = (0..60).map(|number| (number, number as f64 * gap)).collect();
            let times = StreamTimes { period_ms: 100.0, due: 60, ready_ms: ready };
            RunRow::new(Experiment::Cpu1, Reserved::Cpu, 1, &[times], 0.4, None)
        };
        report.add(stolen(250.0));
        assert_eq!(states(&report), [State::Disturbed, State::Disturbed]);
        report.add(run(Reserved::Cpu, 101.0));
        assert_eq!(states(&report), [State::Held, State::Held], "the disturbed run does not count");
        report.add(RunRow::failed(Experiment::Cpu1, Reserved::Cpu, 2, "a player ended".to_owned()));
        assert_eq!(states(&report), [State::Missed, State::Missed]);
        let text = report.text();
        for line in ["– Run 2, reserved CPU, is disturbed", "40.0 %", "✘ Run 3, reserved CPU, failed: a player ended"]
        {
            assert!(text.contains(line), "{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(
            (&json["goals"][0]["state"], &json["runs"][3]["failure"]),
            (&"missed".into(), &"a player ended".into())
        );
        report.add(RunRow::failed(Experiment::Lip, Reserved::Nothing, 0, "no link".to_owned()));
        assert_eq!(report.goals.len(), 2, "a failure with nothing reserved is no failure of a reservation");
    }

    /// A run in which each asked rate lost this many of 50 frames.
    fn rates(reserved: Reserved, lost: usize) -> RunRow {
        let ready = (0..60 - lost).map(|number| (number, number as f64 * 40.0)).collect();
        let times = vec![StreamTimes { period_ms: 40.0, due: 60, ready_ms: ready }; Experiment::Rates.streams().len()];
        RunRow::new(Experiment::Rates, reserved, 0, &times, 0.0, None)
    }

    #[test]
    fn asked_rates_are_held_if_they_are_achieved_with_the_reservation_only_and_are_drawn() {
        let mut report = Report::new(&Options::example(), 60, 12, 2);
        let state = |report: &Report| report.goals[0].state;
        report.add(rates(Reserved::Everything, 0));
        assert_eq!(state(&report), State::Disturbed, "nothing to compare with");
        report.add(rates(Reserved::Nothing, 25));
        assert_eq!(state(&report), State::Held);
        let text = report.text();
        assert!(text.contains(" 7.00 ") && text.contains("at least 100.0 %, and 50.0 %"), "half of 14 Mbit/s: {text}");
        let row = serde_json::to_value(&report.runs[1].streams[6]).unwrap();
        assert_eq!((&row["asked_mbps"], &row["achieved_mbps"]), (&14.0.into(), &7.0.into()));
        let folder = tempfile::tempdir().unwrap();
        crate::plots::write(&report, folder.path()).unwrap();
        assert!(folder.path().join("qualman-rates.png").metadata().unwrap().len() > 1_000);
        report.add(rates(Reserved::Everything, 5));
        assert_eq!(state(&report), State::Missed);
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
