//! Detects rounds that other activity on the machine disturbed. A verdict needs undisturbed rounds.
//!
//! | reading | source | disturbed if |
//! |---|---|---|
//! | steal: time in which the hypervisor ran other virtual machines | `/proc/stat`, per CPU | more than 2 % of all CPU time |
//! | foreign: CPU time of processes outside the demo | `/proc/stat` minus the demo's own | more than 5 % of all CPU time |
//! | speed: cost of the same frames relative to the calibration | logs of the players | more than 15 % away |
//! | room: bandwidth that the kernel admits before the round | probing the kernel | less than the run's room |
//!
//! PSI and run-queue delay are recorded but decide nothing, because the hogs alone keep both high. The CPU time of
//! a thread contains steal if the kernel has no paravirtual time accounting, so in a round with steal the frames
//! also cost more.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A round is disturbed if steal exceeds this fraction of all CPU time.
pub const MOST_STEAL: f64 = 0.02;
/// A round is disturbed if foreign CPU time exceeds this fraction of all CPU time.
const MOST_FOREIGN: f64 = 0.05;
/// A round is disturbed if the costs differ from the calibration by more than this fraction.
const MOST_DRIFT: f64 = 0.15;
/// Two rounds are compared only if the same frames cost at most this times as much in one as in the other. The
/// speed of a machine changes from second to second, and at 100 % load a difference of a tenth decides which
/// policy misses more.
pub const MOST_APART: f64 = 1.05;
/// Rounds near capacity are compared only if their costs differ from the calibration by at most this fraction. The
/// number of misses grows with about the seventh power of the costs under static GRUB and with the twelfth under
/// Q-Fabric (`docs/design/0022-demo.md`), so a ratio of misses is valid for one load only.
const MOST_OFF_DESIGN: f64 = 0.075;

/// The readings around one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// For each CPU: the fraction of time that the hypervisor took.
    pub steal: Vec<f64>,
    /// Fraction of all CPU time that processes outside the demo used.
    pub foreign: f64,
    /// PSI of the CPU: fraction of time in which some task waited; `None` if the kernel has no PSI.
    pub psi_some: Option<f64>,
    /// Time that the players spent in run queues, per second and player.
    pub run_delay: f64,
    /// Cost of the counted frames divided by the cost of the same frames in the calibration; `None` without
    /// calibration.
    pub speed: Option<f64>,
    /// Bandwidth that the kernel still admitted before the round, in CPUs.
    pub room: f64,
    /// Bandwidth that the round needs, in CPUs.
    pub room_needed: f64,
}

impl Surroundings {
    pub fn mean_steal(&self) -> f64 {
        crate::rows::mean(&self.steal)
    }

    /// The reason for which the round counts in no verdict; `None` if it was not disturbed.
    pub fn disturbance(&self) -> Option<String> {
        let drift = drift(self.speed);
        let drifted = || format!("frames cost {:+.0} % compared with the calibration", drift * 100.0);
        self.interference().or_else(|| (drift.abs() > MOST_DRIFT).then(drifted))
    }

    /// Like [`disturbance`](Surroundings::disturbance), without the speed of the machine.
    pub fn interference(&self) -> Option<String> {
        let percent = |x: f64| format!("{:.1} %", x * 100.0);
        let steal = self.mean_steal();
        if steal > MOST_STEAL {
            return Some(format!("steal {}, the limit is {}", percent(steal), percent(MOST_STEAL)));
        }
        if self.foreign > MOST_FOREIGN {
            return Some(format!("other processes used {} of the CPUs", percent(self.foreign)));
        }
        if self.room < self.room_needed {
            return Some(format!(
                "only {:.3} CPUs could be reserved, but the round needs {:.3}",
                self.room, self.room_needed
            ));
        }
        None
    }

    /// The reason for which this round cannot be compared with the rival's; `None` if the same frames cost about
    /// the same in both.
    pub fn speed_difference(&self, rival: &Surroundings) -> Option<String> {
        let ratio = self.speed? / rival.speed?;
        let apart = !(1.0 / MOST_APART..=MOST_APART).contains(&ratio);
        apart.then(|| format!("its frames cost {:+.0} % compared with the rival's", (ratio - 1.0) * 100.0))
    }

    /// The reason for which the load of this round was not the designed one; `None` if it was, or is unknown.
    pub fn load_difference(&self) -> Option<String> {
        let drift = drift(self.speed);
        let (is, limit) = (drift * 100.0, MOST_OFF_DESIGN * 100.0);
        let words = || format!("the load was {is:+.1} % away from the designed one, the limit is {limit} %");
        (drift.abs() > MOST_OFF_DESIGN).then(words)
    }
}

/// The relative difference of the costs from the calibration; 0 if it is unknown.
fn drift(speed: Option<f64>) -> f64 {
    speed.map_or(0.0, |speed| speed - 1.0)
}

/// The counters of the kernel at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    cpus: Vec<CpuTicks>,
    ours: u64,
    psi_some_us: Option<u64>,
    at: Option<std::time::Instant>,
}

/// One `cpuN` line of `/proc/stat`, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CpuTicks {
    busy: u64,
    steal: u64,
    all: u64,
}

impl CpuTicks {
    /// The ticks between `self` and `end`. The kernel's sums of steal and of waiting for disks can decrease (proc(5));
    /// then nothing has passed.
    fn until(&self, end: &CpuTicks) -> CpuTicks {
        CpuTicks {
            busy: end.busy.saturating_sub(self.busy),
            steal: end.steal.saturating_sub(self.steal),
            all: end.all.saturating_sub(self.all),
        }
    }
}

impl Counters {
    /// Reads the counters. `hogs` are the children that still run; the kernel adds ended children to the demo's
    /// own times.
    pub fn read(hogs: &[u32]) -> Result<Counters> {
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let me = process_ticks("/proc/self/stat", true)?;
        // The times of an ended hog are already in the line of the demo itself.
        let hogs: u64 = hogs.iter().filter_map(|pid| process_ticks(&format!("/proc/{pid}/stat"), false).ok()).sum();
        Ok(Counters {
            cpus: stat.lines().filter_map(cpu_line).collect(),
            ours: me + hogs,
            psi_some_us: std::fs::read_to_string("/proc/pressure/cpu").ok().and_then(|text| psi_some(&text)),
            at: Some(std::time::Instant::now()),
        })
    }

    /// The readings between `self` and `end`, without the readings of the players and of the room, which stay at
    /// zero.
    pub fn until(&self, end: &Counters) -> Surroundings {
        let passed: Vec<CpuTicks> = self.cpus.iter().zip(&end.cpus).map(|(a, b)| a.until(b)).collect();
        let steal = passed.iter().map(|cpu| fraction(cpu.steal, cpu.all)).collect();
        let (busy, all) = passed.iter().fold((0, 0), |(busy, all), cpu| (busy + cpu.busy, all + cpu.all));
        let ours = end.ours.saturating_sub(self.ours);
        Surroundings {
            steal,
            foreign: fraction(busy.saturating_sub(ours), all),
            psi_some: self.psi_until(end),
            ..Surroundings::default()
        }
    }

    fn psi_until(&self, end: &Counters) -> Option<f64> {
        let waited = end.psi_some_us?.saturating_sub(self.psi_some_us?) as f64;
        let wall = end.at?.duration_since(self.at?).as_micros().max(1) as f64;
        Some((waited / wall).min(1.0))
    }
}

/// At most 1, also if the sum of all ticks decreased while the part grew.
fn fraction(part: u64, all: u64) -> f64 {
    (part as f64 / all.max(1) as f64).min(1.0)
}

/// Fields: user nice system idle iowait irq softirq steal guest guest_nice (proc(5)). `guest` is part of `user`.
fn cpu_line(line: &str) -> Option<CpuTicks> {
    let (name, numbers) = line.split_once(' ')?;
    let is_one_cpu = name.strip_prefix("cpu").is_some_and(|n| !n.is_empty());
    let t: Vec<u64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let steal = t.get(7).copied().unwrap_or(0);
    (is_one_cpu && t.len() >= 4).then(|| CpuTicks { busy: t[0] + t[1] + t[2], steal, all: t.iter().take(8).sum() })
}

/// utime + stime of a `/proc/PID/stat`, with the times of ended children if `with_children`.
fn process_ticks(path: &str, with_children: bool) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    // The name stands in parentheses and may contain any character.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = after_name.split_whitespace().skip(11).take(4).filter_map(|n| n.parse().ok()).collect();
    anyhow::ensure!(fields.len() == 4, "{path} has no CPU times");
    Ok(fields[..if with_children { 4 } else { 2 }].iter().sum())
}

fn psi_some(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some"))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(busy: u64, idle: u64, steal: u64, ours: u64) -> Counters {
        let text = format!("cpu0 {busy} 0 0 {idle} 0 0 0 {steal} 0 0");
        Counters { cpus: vec![cpu_line(&text).unwrap()], ours, psi_some_us: None, at: None }
    }

    #[test]
    fn ten_percent_steal_disturb_a_round() {
        let around = counters(0, 0, 0, 0).until(&counters(90, 0, 10, 90));
        assert!((around.mean_steal() - 0.1).abs() < 1e-9 && around.foreign == 0.0);
        assert!(around.disturbance().unwrap().contains("steal 10.0 %"));
    }

    #[test]
    fn steal_that_decreases_is_no_steal() {
        let around = counters(0, 0, 10, 0).until(&counters(100, 0, 4, 100));
        assert_eq!((around.mean_steal(), around.disturbance()), (0.0, None));
        let all_decreases = counters(100, 900, 0, 0).until(&counters(100, 200, 50, 0));
        assert_eq!(all_decreases.mean_steal(), 1.0);
    }

    #[test]
    fn rounds_with_different_costs_are_not_compared() {
        let at = |speed| Surroundings { speed: Some(speed), ..Default::default() };
        assert_eq!(at(0.97).speed_difference(&at(1.0)), None);
        let why = at(1.11).speed_difference(&at(1.0)).unwrap();
        assert_eq!(why, "its frames cost +11 % compared with the rival's");
        assert_eq!(at(1.11).speed_difference(&Surroundings::default()), None, "unknown without calibration");
    }

    #[test]
    fn the_load_of_a_round_follows_the_costs_of_its_frames() {
        let at = |speed| Surroundings { speed, ..Default::default() }.load_difference();
        assert_eq!((at(Some(1.07)), at(Some(0.93)), at(None)), (None, None, None));
        assert_eq!(at(Some(0.91)).unwrap(), "the load was -9.0 % away from the designed one, the limit is 7.5 %");
        assert!(at(Some(1.08)).is_some());
    }

    #[test]
    fn foreign_cpu_time_disturbs_a_round_and_the_hogs_do_not() {
        let calm = counters(0, 0, 0, 0).until(&counters(100, 0, 0, 98));
        assert_eq!(calm.disturbance(), None);
        let compiled = counters(0, 0, 0, 0).until(&counters(100, 0, 0, 60));
        assert!(compiled.disturbance().unwrap().contains("40.0 %"), "{compiled:?}");
    }

    #[test]
    fn higher_frame_costs_and_a_smaller_room_disturb_a_round() {
        let slow = Surroundings { speed: Some(1.2), ..Surroundings::default() };
        assert!(slow.disturbance().unwrap().contains("+20 %"));
        let booked = Surroundings { room: 1.5, room_needed: 1.79, ..Surroundings::default() };
        assert!(booked.disturbance().unwrap().contains("1.500"));
    }

    #[test]
    fn the_total_line_of_proc_stat_is_not_a_cpu() {
        assert_eq!(cpu_line("cpu  1 2 3 4 5 6 7 8 0 0"), None);
        let one = cpu_line("cpu1 1 2 3 4 5 6 7 8 9 9").unwrap();
        assert_eq!(one, CpuTicks { busy: 6, steal: 8, all: 36 });
        assert_eq!(psi_some("some avg10=1.0 avg60=2.0 avg300=3.0 total=4711\nfull avg10=0 total=1\n"), Some(4711));
    }

    #[test]
    fn cpu_time_of_the_demo_is_not_foreign() {
        let before = Counters::read(&[]).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_millis(200);
        while std::time::Instant::now() < end {
            std::hint::spin_loop();
        }
        let after = Counters::read(&[]).unwrap();
        assert!(after.ours > before.ours && after.cpus.len() == before.cpus.len());
    }
}
