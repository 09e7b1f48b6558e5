//! The results: one row per setting, round and competitor, one JSON object per line.

use std::io::BufRead;

use anyhow::Result;
use qfabric_types::{Instant, ServerCounts, Window};
use serde::{Deserialize, Serialize};

use crate::regime::Competitor;
use crate::trace::{Summary, Trace, violations};

/// One run of a competitor at one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub experiment: String,
    pub competitor: Competitor,
    /// The varied quantity: tasks, players, hogs.
    pub setting: String,
    /// The varied quantity as a number, for the x axis.
    pub x: f64,
    /// Number of the round, from 0. Each round repeats the whole grid.
    pub round: u32,
    /// The reason, if the competitor refused the tasks.
    pub refused: Option<String>,
    pub tasks: Vec<Task>,
    /// The scheduler's own counters of each task, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<ServerCounts>,
    /// CPU time that ordinary tasks got in total, in CPUs.
    pub others: f64,
    pub host: Host,
    /// What the tasks did; not printed.
    #[serde(skip)]
    pub played: Played,
}

/// The jobs of all tasks of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// The common start, on CLOCK_MONOTONIC.
    pub start: Instant,
    /// One trace for each task; none if the competitor refused them.
    pub traces: Vec<Trace>,
}

/// The result of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Complete jobs per second that the task should reach.
    pub wanted: f64,
    /// Complete jobs per second.
    pub rate: f64,
    /// Jobs per second that were complete by their deadlines.
    pub rate_in_time: f64,
    /// Number of periods in the run.
    pub periods: u64,
    /// Periods whose job was late or skipped.
    pub missed: u64,
    /// Windows with more misses than allowed.
    pub violations: u64,
    /// Number of windows in the run.
    pub windows: u64,
    /// Time from release to running, in µs.
    pub delay: Summary,
    /// Difference between the interval of two jobs and the period, in µs.
    pub jitter: Summary,
    /// CPU time divided by wall time.
    pub load: f64,
}

impl Task {
    /// Computes the result of a trace, for a window.
    pub fn of(trace: &Trace, window: Window) -> Task {
        let met = trace.met();
        Task {
            wanted: 1e9 / trace.period as f64,
            rate: trace.rate(),
            rate_in_time: trace.rate_in_time(),
            periods: trace.periods,
            missed: met.iter().filter(|met| !**met).count() as u64,
            violations: violations(&met, window),
            windows: trace.periods.div_ceil(u64::from(window.y())),
            delay: Summary::of(trace.delays()),
            jitter: Summary::of(trace.jitter()),
            load: trace.load(),
        }
    }
}

impl Row {
    /// Sum over all tasks.
    pub fn sum(&self, of: impl Fn(&Task) -> u64) -> u64 {
        self.tasks.iter().map(of).sum()
    }

    /// Mean over all tasks.
    pub fn mean(&self, of: impl Fn(&Task) -> f64) -> f64 {
        self.tasks.iter().map(&of).sum::<f64>() / self.tasks.len().max(1) as f64
    }

    /// Largest over all tasks.
    pub fn max(&self, of: impl Fn(&Task) -> f64) -> f64 {
        self.tasks.iter().map(of).fold(0.0, f64::max)
    }

    /// Achieved rate divided by the required rate, over all tasks.
    pub fn achieved(&self) -> f64 {
        self.mean(|task| task.rate) / self.mean(|task| task.wanted).max(f64::MIN_POSITIVE)
    }
}

/// The host of a row; part of every result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the processor as the kernel reports it; it shows whether the processor is emulated.
    pub cpu: String,
    /// CPUs online.
    pub cpus: usize,
}

impl Host {
    /// Reads the properties of this host.
    pub fn this() -> Host {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Host {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: name.map_or("unknown", |(_, name)| name).to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
        }
    }
}

/// Parses the rows in a text, which may be the log of a console with other lines between the rows.
pub fn read(text: impl BufRead) -> Result<Vec<Row>> {
    let lines = text.split(b'\n').map(|line| Ok(String::from_utf8_lossy(&line?).trim().to_owned()));
    let objects =
        lines.filter(|line: &std::io::Result<String>| !matches!(line, Ok(l) if !l.starts_with("{\"experiment\"")));
    objects.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            experiment: "rate".to_owned(),
            competitor: Competitor::Default,
            setting: "3 players".to_owned(),
            x: 3.0,
            round: 0,
            refused: None,
            tasks: vec![],
            counted: vec![],
            others: 0.5,
            host: Host::this(),
            played: Played::default(),
        }
    }

    #[test]
    fn rows_are_found_among_the_lines_of_a_console() {
        let text = format!("[ 0.1] booted\r\n{}\r\n=== EXIT 0\r\n", serde_json::to_string(&row()).unwrap());
        assert_eq!(read(text.as_bytes()).unwrap(), [row()]);
    }

    #[test]
    fn an_incomplete_row_is_an_error() {
        let text = serde_json::to_string(&row()).unwrap();
        assert!(read(&text.as_bytes()[..text.len() / 2]).is_err());
    }
}
