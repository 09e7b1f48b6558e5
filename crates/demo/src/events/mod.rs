//! The thesis' experiments with resource monitors and handlers (000 §3.5.4): a handler in the kernel reports the load
//! of servers, whose manager is on another host. Two network namespaces have a daemon and a certificate each.
//!
//! | words of `--only` | figure | question |
//! |---|---|---|
//! | `events`, `polls` | 23 | how old may the load of servers be for a manager that distributes requests? |
//! | `events`, `classes` | 24 | do priorities that follow the load serve three classes better than fixed ones? |
//!
//! Departures: the servers of Figure 23 wait instead of computing, because all hosts share this machine's CPUs; instead
//! of requests of `httperf`, short TCP connections arrive at random times; in Figure 24 the handler decides the
//! priorities, and a program sets them, because no handler may change threads.

mod classes;
mod hosts;
mod load;
mod plot;
mod polls;
mod server;

use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use qfabric_client::ecalls::{State, Subscription};
use serde::Serialize;

use crate::clips::write_whole;
use crate::progress::Progress;
use crate::{Options, stage};
use hosts::Hosts;
use load::Answer;

/// The word of `--only`.
pub const WORD: &str = "events";
/// A request is given up after this time, as in the thesis.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Shortest run.
const LEAST_SECONDS: f64 = 4.0;

/// The requests of one class in one run.
#[derive(Clone, Debug, Serialize)]
pub struct EventsRow {
    /// `polls` or `classes`.
    pub experiment: &'static str,
    /// The poll period, or the kind of priorities.
    pub setting: String,
    /// The class of requests; `all` in the experiment `polls`.
    pub class: &'static str,
    pub requests: usize,
    /// Mean time from request to answer in ms, of answered requests; `None`: none was answered.
    pub response_ms: Option<f64>,
    /// The 99th percentile of these times in ms.
    pub p99_ms: Option<f64>,
    /// Requests that were given up after 1 s.
    pub timeouts: usize,
    /// Reports of handlers that arrived: at the manager's host, or at the program that sets priorities.
    pub reports: u64,
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventsReport {
    pub rows: Vec<EventsRow>,
    /// Length of each run in seconds.
    pub seconds: f64,
    pub seed: u64,
    /// Whether all runs that were asked for are in `rows`.
    pub is_complete: bool,
}

/// One run of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    Poll { period_ms: u64 },
    Classes { is_dynamic: bool },
}

/// The thesis' periods, and a shorter one.
const TRIALS: [Trial; 6] = [
    Trial::Poll { period_ms: 1_000 },
    Trial::Poll { period_ms: 500 },
    Trial::Poll { period_ms: 250 },
    Trial::Poll { period_ms: 50 },
    Trial::Classes { is_dynamic: false },
    Trial::Classes { is_dynamic: true },
];

impl Trial {
    fn experiment(self) -> &'static str {
        match self {
            Trial::Poll { .. } => "polls",
            Trial::Classes { .. } => "classes",
        }
    }

    fn setting(self) -> String {
        match self {
            Trial::Poll { period_ms } => format!("{period_ms} ms"),
            Trial::Classes { is_dynamic: false } => "static".to_owned(),
            Trial::Classes { is_dynamic: true } => "dynamic".to_owned(),
        }
    }

    /// The runs that further words of `--only` choose.
    fn chosen(only: &[String]) -> Vec<Trial> {
        let words: Vec<&String> = only.iter().filter(|word| *word != WORD).collect();
        let wanted = |trial: &Trial| words.is_empty() || words.iter().any(|word| *word == trial.experiment());
        TRIALS.into_iter().filter(wanted).collect()
    }
}

/// Whether `--only` asks for these experiments.
pub fn is_wanted(options: &Options) -> bool {
    options.only.iter().any(|word| word == WORD)
}

/// Runs the experiments, and writes the report after each run.
///
/// # Errors
/// The process may not make network namespaces, the program `qfabric` is missing, this kernel has no handlers, or a
/// file cannot be written. After an interrupt, the report has the runs before it.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<EventsReport> {
    let _signals = stage::raise_on_signals(&options.stop)?;
    let trials = Trial::chosen(&options.only);
    anyhow::ensure!(!trials.is_empty(), "--only {WORD} has the experiments polls and classes");
    let seconds = (options.seconds / trials.len() as f64).max(LEAST_SECONDS);
    let mut report = EventsReport { seconds, seed: options.seed, ..EventsReport::default() };
    let hosts = Hosts::start(&options.stop)?;
    for (number, trial) in (1..).zip(&trials) {
        let name = format!("{}, {} ({number} of {})", trial.experiment(), trial.setting(), trials.len());
        progress.stage(&name, 1);
        let played = match *trial {
            Trial::Poll { period_ms } => polls::play(&hosts, period_ms, seconds, options),
            Trial::Classes { is_dynamic } => classes::play(&hosts, is_dynamic, seconds, options),
        };
        if options.stop.check().is_err() {
            // Ctrl-C: a run that was cut short says nothing.
            return Ok(report);
        }
        report.rows.extend(played.with_context(|| name.clone())?);
        report.is_complete = number == trials.len();
        report.write(options)?;
        progress.advance(1);
    }
    Ok(report)
}

/// Fails if a handler was removed in a run: its last reports would count as those of the end.
fn check_handler(subscription: &Subscription) -> Result<()> {
    let info = subscription.now().context("a handler has ended")?;
    anyhow::ensure!(info.state == State::Active, "a handler was removed: {:?}", info.state);
    Ok(())
}

impl EventsRow {
    fn of(trial: Trial, class: &'static str, answers: &[Answer], reports: u64) -> EventsRow {
        let mut times: Vec<f64> =
            answers.iter().filter_map(|answer| Some(answer.response?.as_secs_f64() * 1e3)).collect();
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        // The smallest time that is not below 99 % of them.
        let rank = (99 * times.len()).div_ceil(100).checked_sub(1);
        EventsRow {
            experiment: trial.experiment(),
            setting: trial.setting(),
            class,
            requests: answers.len(),
            response_ms: rank.map(|_| mean),
            p99_ms: rank.map(|rank| times[rank]),
            timeouts: answers.len() - times.len(),
            reports,
        }
    }

    /// The name of the row's bar in a plot.
    fn label(&self) -> String {
        match self.experiment {
            "polls" => self.setting.clone(),
            _ => format!("{}, {}", self.class, self.setting),
        }
    }
}

impl EventsReport {
    /// The report as text.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header(["experiment", "setting", "class", "requests", "response", "p99", "timeouts", "reports"]);
        let ms = |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |time| format!("{time:.0} ms"));
        for row in &self.rows {
            table.add_row([
                row.experiment.to_owned(),
                row.setting.clone(),
                row.class.to_owned(),
                row.requests.to_string(),
                ms(row.response_ms),
                ms(row.p99_ms),
                row.timeouts.to_string(),
                row.reports.to_string(),
            ]);
        }
        let missing = if self.is_complete { "" } else { "incomplete\n" };
        format!("Events: runs of {:.0} s, seed {}\n{table}\n{missing}", self.seconds, self.seed)
    }

    /// The rows as JSON.
    pub fn summary_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    fn write(&self, options: &Options) -> Result<()> {
        if let Some(path) = &options.json {
            write_whole(path, self.summary_json()?.as_bytes())?;
        }
        let Some(out) = &options.out else { return Ok(()) };
        std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
        write_whole(&out.join("events.json"), self.summary_json()?.as_bytes())?;
        for experiment in ["polls", "classes"] {
            let rows: Vec<&EventsRow> = self.rows.iter().filter(|row| row.experiment == experiment).collect();
            if !rows.is_empty() {
                plot::write(out, experiment, &rows)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(trial: Trial, times_ms: &[u64], timeouts: usize) -> EventsRow {
        let answered = times_ms.iter().map(|ms| Answer { class: 0, response: Some(Duration::from_millis(*ms)) });
        let given_up = (0..timeouts).map(|_| Answer { class: 0, response: None });
        EventsRow::of(trial, "all", &answered.chain(given_up).collect::<Vec<_>>(), 7)
    }

    #[test]
    fn requests_without_an_answer_are_timeouts_and_have_no_time() {
        let mixed = row(TRIALS[0], &[10, 30], 3);
        assert_eq!((mixed.requests, mixed.timeouts, mixed.response_ms, mixed.p99_ms), (5, 3, Some(20.0), Some(30.0)));
        let none = row(TRIALS[0], &[], 2);
        assert_eq!((none.requests, none.timeouts, none.response_ms), (2, 2, None));
    }

    #[test]
    fn further_words_choose_an_experiment() {
        let chosen = |words: &[&str]| Trial::chosen(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&["events"]).len(), 6);
        assert_eq!(chosen(&["events", "classes"]).len(), 2);
        assert!(chosen(&["events", "none"]).is_empty());
    }

    #[test]
    fn the_report_is_written_with_its_plots() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { out: Some(folder.path().join("out")), ..Options::default() };
        let rows = vec![row(TRIALS[0], &[10], 1), row(TRIALS[4], &[10], 0)];
        let report = EventsReport { rows, seconds: 4.0, seed: 1, is_complete: true };
        report.write(&options).unwrap();
        let text = std::fs::read_to_string(folder.path().join("out/events.json")).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["rows"][0]["timeouts"], &read["is_complete"]), (&1.into(), &true.into()));
        for name in ["events-polls.png", "events-polls.svg", "events-classes.png", "events-classes.svg"] {
            assert!(folder.path().join("out").join(name).exists(), "{name}");
        }
        assert!(report.text().contains("1000 ms") && !report.text().contains("incomplete"), "{}", report.text());
    }
}
