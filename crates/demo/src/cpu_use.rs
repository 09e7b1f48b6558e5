//! The CPU time of the players, of the daemon's control thread and of the hogs in one round. A policy that misses more
//! jobs may have left the players less CPU time. Times in nanoseconds, results in seconds.
//!
//! Approach: `/proc/TID/schedstat` counts the time that a thread has run. It is read at the release of the first
//! counted job and at the last deadline, each at most 50 ms late. A player counts with the thread that decodes; one that
//! has ended counts with its last reading.

use std::path::Path;

use qfabric_linux::threads;
use qfabric_types::{Instant, ThreadId};
use serde::{Deserialize, Serialize};

use crate::rows;

/// Name of the daemon's control thread.
const CONTROL: &str = "qf-control";

/// CPU time in one round, or the mean of several rounds, from the release of the first counted job to the last deadline
/// of a player without a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuUse {
    /// CPU time of all players together.
    pub players_cpu_seconds: f64,
    /// CPU time of the daemon's control thread; `None` without a daemon.
    pub control_cpu_seconds: Option<f64>,
    /// CPU time of all hogs together.
    pub hogs_cpu_seconds: f64,
    /// The time in which this CPU time was used; 0 if it was not measured.
    pub cpu_window_seconds: f64,
}

impl CpuUse {
    /// The mean of several rounds of one policy.
    pub fn mean<'a>(rounds: impl Iterator<Item = &'a CpuUse> + Clone) -> CpuUse {
        let mean = |of: fn(&CpuUse) -> f64| rows::mean(&rounds.clone().map(of).collect::<Vec<f64>>());
        let control: Vec<f64> = rounds.clone().filter_map(|round| round.control_cpu_seconds).collect();
        CpuUse {
            players_cpu_seconds: mean(|round| round.players_cpu_seconds),
            control_cpu_seconds: (!control.is_empty()).then(|| rows::mean(&control)),
            hogs_cpu_seconds: mean(|round| round.hogs_cpu_seconds),
            cpu_window_seconds: mean(|round| round.cpu_window_seconds),
        }
    }
}

/// The time that a thread has run, and the time that it has waited in run queues, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ThreadTimes {
    pub ran: u64,
    pub waited: u64,
}

impl ThreadTimes {
    /// Reads the times of a thread; zero if it has ended or the kernel does not report them.
    pub(crate) fn read(thread: u32) -> ThreadTimes {
        std::fs::read_to_string(format!("/proc/{thread}/schedstat"))
            .map_or_else(|_| ThreadTimes::default(), |text| of(&text))
    }

    /// The later of two readings: a thread that has ended has none.
    pub(crate) fn latest(self, other: ThreadTimes) -> ThreadTimes {
        ThreadTimes { ran: self.ran.max(other.ran), waited: self.waited.max(other.waited) }
    }
}

/// Fields of `schedstat`: time run, time waited, number of time slices.
fn of(text: &str) -> ThreadTimes {
    let mut fields = text.split_whitespace().map(|field| field.parse().unwrap_or(0));
    ThreadTimes { ran: fields.next().unwrap_or(0), waited: fields.next().unwrap_or(0) }
}

/// The threads of this process with the name of the control thread.
fn control_threads() -> Vec<u32> {
    let named = |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == CONTROL);
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads.filter(|entry| named(&entry.path())).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Run times at one moment, in ns.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    players: u64,
    control: u64,
    hogs: u64,
}

/// Measures the CPU time of one round.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    from: Instant,
    until: Instant,
    control: Option<Vec<u32>>,
    hogs: Vec<u32>,
    first: Option<Reading>,
    last: Option<Reading>,
}

impl CpuMeter {
    /// Measures from `from` to `until`; with `has_daemon`, also the control thread of the daemon in this process.
    pub(crate) fn new(has_daemon: bool, hogs: Vec<u32>, from: Instant, until: Instant) -> CpuMeter {
        CpuMeter { from, until, control: has_daemon.then(control_threads), hogs, first: None, last: None }
    }

    /// Takes the times of the players so far. Call it about every 50 ms.
    pub(crate) fn note(&mut self, players: &[ThreadTimes], now: Instant) {
        self.note_with(players, now, |thread| threads::cpu_time(ThreadId(thread as i32)).unwrap_or(0));
    }

    /// Takes the last times of players that have all ended, perhaps shortly before the last deadline.
    pub(crate) fn end(&mut self, players: &[ThreadTimes], now: Instant) {
        self.until = self.until.min(now);
        self.note(players, now);
    }

    fn note_with(&mut self, players: &[ThreadTimes], now: Instant, ran: impl Fn(u32) -> u64) {
        let (begins, ends) = (self.first.is_none() && now >= self.from, self.last.is_none() && now >= self.until);
        if !begins && !ends {
            return;
        }
        let sum = |threads: &[u32]| threads.iter().map(|thread| ran(*thread)).sum::<u64>();
        let reading = Reading {
            at: now,
            players: players.iter().map(|player| player.ran).sum(),
            control: self.control.as_deref().map_or(0, sum),
            hogs: sum(&self.hogs),
        };
        if begins {
            self.first = Some(reading);
        } else {
            self.last = Some(reading);
        }
    }

    /// The CPU time between the two readings; zero if one of them is missing.
    pub(crate) fn result(&self) -> CpuUse {
        let (Some(first), Some(last)) = (self.first, self.last) else { return CpuUse::default() };
        let seconds = |of: fn(&Reading) -> u64| of(&last).saturating_sub(of(&first)) as f64 * 1e-9;
        CpuUse {
            players_cpu_seconds: seconds(|reading| reading.players),
            control_cpu_seconds: self.control.is_some().then(|| seconds(|reading| reading.control)),
            hogs_cpu_seconds: seconds(|reading| reading.hogs),
            cpu_window_seconds: last.at.since(first.at).as_f64() * 1e-9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000)
    }

    fn players(ran_ms: [u64; 2]) -> [ThreadTimes; 2] {
        ran_ms.map(|ms| ThreadTimes { ran: ms * 1_000_000, waited: 0 })
    }

    #[test]
    fn cpu_time_before_the_first_counted_job_and_after_the_last_deadline_does_not_count() {
        let mut meter = CpuMeter { control: Some(vec![9]), ..CpuMeter::new(false, vec![1, 2], at(1_000), at(5_000)) };
        // The control thread runs for a hundredth of the time, each hog for a tenth.
        let mut note = |ran_ms, ms: u64| {
            let ran = |thread: u32| if thread == 9 { ms * 10_000 } else { ms * 100_000 };
            meter.note_with(&players(ran_ms), at(ms), ran);
        };
        note([100, 100], 900);
        note([200, 300], 1_000);
        note([900, 900], 3_000);
        note([1_200, 1_400], 5_020);
        note([1_300, 1_500], 5_400);
        let CpuUse { players_cpu_seconds, control_cpu_seconds, hogs_cpu_seconds, cpu_window_seconds } = meter.result();
        let expected = [(players_cpu_seconds, 2.1), (control_cpu_seconds.unwrap(), 0.0402), (hogs_cpu_seconds, 0.804)];
        for (found, expected) in expected.into_iter().chain([(cpu_window_seconds, 4.02)]) {
            assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
        }
    }

    #[test]
    fn a_round_without_a_daemon_has_no_control_thread_and_one_without_readings_no_time() {
        let mut meter = CpuMeter::new(false, Vec::new(), at(1_000), at(2_000));
        assert_eq!(meter.result(), CpuUse::default());
        meter.note_with(&players([0, 0]), at(1_000), |_| 0);
        meter.note_with(&players([10, 10]), at(2_000), |_| 0);
        assert_eq!((meter.result().control_cpu_seconds, meter.result().cpu_window_seconds), (None, 1.0));
    }

    #[test]
    fn players_that_end_before_the_last_deadline_end_the_measurement() {
        let mut meter = CpuMeter::new(false, Vec::new(), at(1_000), at(2_000));
        meter.note(&players([0, 0]), at(1_000));
        meter.note(&players([500, 500]), at(1_900));
        assert_eq!(meter.result(), CpuUse::default());
        meter.end(&players([550, 550]), at(1_950));
        let CpuUse { players_cpu_seconds, cpu_window_seconds, .. } = meter.result();
        assert!((players_cpu_seconds - 1.1).abs() < 1e-9 && (cpu_window_seconds - 0.95).abs() < 1e-9);
    }

    #[test]
    fn the_mean_of_rounds_counts_the_control_thread_where_there_is_one() {
        let with = CpuUse { players_cpu_seconds: 2.0, control_cpu_seconds: Some(0.2), ..CpuUse::default() };
        let without = CpuUse { players_cpu_seconds: 4.0, ..CpuUse::default() };
        let mean = CpuUse::mean([with, without].iter());
        assert_eq!((mean.players_cpu_seconds, mean.control_cpu_seconds), (3.0, Some(0.2)));
    }

    #[test]
    fn the_times_of_a_thread_are_read_from_the_kernel() {
        assert_eq!(of("12345 678 9\n"), ThreadTimes { ran: 12_345, waited: 678 });
        assert_eq!(ThreadTimes::read(u32::MAX), ThreadTimes::default());
        let (early, ended) = (of("5 7 1"), ThreadTimes::default());
        assert_eq!(early.latest(ended), early);
    }

    #[test]
    fn the_control_thread_is_found_by_its_name() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel();
        let life = move || begin.send(()).is_ok() && ended.recv().is_err();
        let thread = std::thread::Builder::new().name(CONTROL.to_owned()).spawn(life).unwrap();
        begun.recv().unwrap();
        assert!(!control_threads().is_empty());
        drop(end);
        assert!(thread.join().unwrap());
    }
}
