//! What came out: one row per setting, round and competitor, one JSON object a line.

use std::io::BufRead;

use anyhow::Result;
use qfabric_types::{ServerCounts, Window};
use serde::{Deserialize, Serialize};

use crate::regime::Competitor;
use crate::trace::{Summary, Trace, violations};

/// One run of a competitor at one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Which experiment.
    pub experiment: String,
    /// Who.
    pub competitor: Competitor,
    /// What varies: tasks, players, hogs.
    pub setting: String,
    /// The same as a number, for the x axis.
    pub x: f64,
    /// From 0; rounds repeat the whole grid.
    pub round: u32,
    /// What was refused, if the competitor did not take the set.
    pub refused: Option<String>,
    /// Each task.
    pub tasks: Vec<Task>,
    /// What the scheduler itself counted of them, if it counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<ServerCounts>,
    /// What ordinary tasks got in all, in CPUs.
    pub others: f64,
    /// Where it ran.
    pub host: Host,
}

/// What one task got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Complete jobs per second that it wants.
    pub wanted: f64,
    /// Complete jobs per second.
    pub rate: f64,
    /// Complete by their deadlines, per second.
    pub rate_in_time: f64,
    /// Periods in the run.
    pub periods: u64,
    /// Periods whose job was late or left out.
    pub missed: u64,
    /// Windows with more misses than allowed.
    pub violations: u64,
    /// Windows in the run.
    pub windows: u64,
    /// From release to running, µs.
    pub delay: Summary,
    /// Distance of the interval between two jobs from the period, µs.
    pub jitter: Summary,
    /// CPUs used.
    pub load: f64,
}

impl Task {
    /// Of its trace, for a window.
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

    /// Achieved rate in parts of the wanted one, over all tasks.
    pub fn achieved(&self) -> f64 {
        self.mean(|task| task.rate) / self.mean(|task| task.wanted).max(f64::MIN_POSITIVE)
    }
}

/// Where a row comes from: part of every result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// The processor as the kernel names it; an emulated one says so.
    pub cpu: String,
    /// CPUs online.
    pub cpus: usize,
}

impl Host {
    /// This one.
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

/// The rows in a text, which may be a console with other lines between them.
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
        }
    }

    #[test]
    fn rows_are_found_among_the_lines_of_a_console() {
        let text = format!("[ 0.1] booted\r\n{}\r\n=== EXIT 0\r\n", serde_json::to_string(&row()).unwrap());
        assert_eq!(read(text.as_bytes()).unwrap(), [row()]);
    }

    #[test]
    fn a_row_that_was_cut_is_an_error_and_not_left_out() {
        let text = serde_json::to_string(&row()).unwrap();
        assert!(read(&text.as_bytes()[..text.len() / 2]).is_err());
    }
}
