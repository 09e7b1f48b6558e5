//! What else happened on the machine during a round: a verdict needs rounds that were not disturbed.
//!
//! | reading | from | disturbed above |
//! |---|---|---|
//! | steal: time in which the hypervisor ran something else | `/proc/stat`, per CPU | 2 % of all CPU time |
//! | foreign: CPU time of processes that are not the demo's | `/proc/stat` less our own | 5 % of all CPU time |
//! | speed: cost of the same frames against the calibration | the players' logs | ±15 % |
//! | room: what the kernel admits before the round | the probe | less than the run's room |
//!
//! PSI and run-queue delay are recorded and decide nothing: the hogs alone keep both high. CPU time that threads are
//! charged with contains steal wherever the kernel has no paravirtual time accounting, so a round with steal also
//! shows dearer frames.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Steal above this fraction of all CPU time disturbs.
const MOST_STEAL: f64 = 0.02;
/// Foreign CPU time above this fraction of all CPU time disturbs.
const MOST_FOREIGN: f64 = 0.05;
/// Costs this far from the calibration disturb.
const MOST_DRIFT: f64 = 0.15;
/// So many rounds one after the other, all with dearer frames or all with cheaper ones, show another machine.
const DRIFTING: i32 = 3;

/// What was read around one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Fraction of each CPU's time that the hypervisor took.
    pub steal: Vec<f64>,
    /// Fraction of all CPU time that processes outside the demo used.
    pub foreign: f64,
    /// PSI of the CPU: fraction of time in which some task waited; none where the kernel has no PSI.
    pub psi_some: Option<f64>,
    /// Time the players spent waiting in run queues, per second of playing and player.
    pub run_delay: f64,
    /// Cost of the counted frames over that of the same frames in the calibration; none where nothing was calibrated.
    pub speed: Option<f64>,
    /// Room the kernel had left before the round, in CPUs.
    pub room: f64,
    /// Room that the round needs.
    pub room_needed: f64,
}

impl Surroundings {
    /// Mean steal over the CPUs.
    pub fn mean_steal(&self) -> f64 {
        crate::rows::mean(&self.steal)
    }

    /// Why the round says nothing; none where it was not disturbed.
    pub fn disturbance(&self) -> Option<String> {
        let percent = |x: f64| format!("{:.1} %", x * 100.0);
        let steal = self.mean_steal();
        if steal > MOST_STEAL {
            return Some(format!("steal {}, at most {}", percent(steal), percent(MOST_STEAL)));
        }
        if self.foreign > MOST_FOREIGN {
            return Some(format!("other processes used {} of the CPUs", percent(self.foreign)));
        }
        if self.room < self.room_needed {
            return Some(format!("{:.3} CPUs could be reserved, {:.3} are needed", self.room, self.room_needed));
        }
        let drift = drift(self.speed);
        (drift.abs() > MOST_DRIFT).then(|| format!("frames cost {:+.0} % against the calibration", drift * 100.0))
    }
}

/// By how much frames cost more or less than calibrated, as a fraction; nothing where that is not known.
fn drift(speed: Option<f64>) -> f64 {
    speed.map_or(0.0, |speed| speed - 1.0)
}

/// Notices that the machine has another speed than when the load was set.
#[derive(Debug, Default)]
pub struct Drift {
    /// Rounds since the last that was as calibrated: above 0 with dearer frames, below 0 with cheaper ones.
    row: i32,
}

impl Drift {
    /// Takes the speed of the next round; true where it and the rounds just before it show another machine.
    pub fn is_shown_by(&mut self, speed: Option<f64>) -> bool {
        let drift = drift(speed);
        let direction = if drift.abs() > MOST_DRIFT { drift.signum() as i32 } else { 0 };
        self.row = if direction * self.row > 0 { self.row + direction } else { direction };
        self.row.abs() >= DRIFTING
    }
}

/// The counters at one moment.
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

impl Counters {
    /// Reads them; `hogs` are the children that still run, ended ones are counted by the kernel.
    pub fn read(hogs: &[u32]) -> Result<Counters> {
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let me = process_ticks("/proc/self/stat", true)?;
        // A hog that has ended is in our own line, with all other children.
        let hogs: u64 = hogs.iter().filter_map(|pid| process_ticks(&format!("/proc/{pid}/stat"), false).ok()).sum();
        Ok(Counters {
            cpus: stat.lines().filter_map(cpu_line).collect(),
            ours: me + hogs,
            psi_some_us: std::fs::read_to_string("/proc/pressure/cpu").ok().and_then(|text| psi_some(&text)),
            at: Some(std::time::Instant::now()),
        })
    }

    /// What happened from here to `end`; readings of the players and the room are left at zero.
    pub fn until(&self, end: &Counters) -> Surroundings {
        let steal = self.cpus.iter().zip(&end.cpus).map(|(a, b)| fraction(b.steal - a.steal, b.all - a.all)).collect();
        let (busy, all) = self.cpus.iter().zip(&end.cpus).fold((0, 0), |(busy, all), (a, b)| {
            (busy + b.busy.saturating_sub(a.busy), all + b.all.saturating_sub(a.all))
        });
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

fn fraction(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

/// user nice system idle iowait irq softirq steal guest guest_nice (proc(5)); guest is part of user.
fn cpu_line(line: &str) -> Option<CpuTicks> {
    let (name, numbers) = line.split_once(' ')?;
    let is_one_cpu = name.strip_prefix("cpu").is_some_and(|n| !n.is_empty());
    let t: Vec<u64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let steal = t.get(7).copied().unwrap_or(0);
    (is_one_cpu && t.len() >= 4).then(|| CpuTicks { busy: t[0] + t[1] + t[2], steal, all: t.iter().take(8).sum() })
}

/// utime + stime of a `/proc/PID/stat`, with those of ended children where wanted.
fn process_ticks(path: &str, with_children: bool) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    // The name, in parentheses, may contain anything.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = after_name.split_whitespace().skip(11).take(4).filter_map(|n| n.parse().ok()).collect();
    anyhow::ensure!(fields.len() == 4, "{path} has no CPU times");
    Ok(fields[..if with_children { 4 } else { 2 }].iter().sum())
}

fn psi_some(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some"))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Nanoseconds that the thread `pid` has waited in run queues; zero where the kernel does not tell.
pub fn run_delay_ns(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(busy: u64, idle: u64, steal: u64, ours: u64) -> Counters {
        let text = format!("cpu0 {busy} 0 0 {idle} 0 0 0 {steal} 0 0");
        Counters { cpus: vec![cpu_line(&text).unwrap()], ours, psi_some_us: None, at: None }
    }

    #[test]
    fn steal_of_a_tenth_disturbs() {
        let around = counters(0, 0, 0, 0).until(&counters(90, 0, 10, 90));
        assert!((around.mean_steal() - 0.1).abs() < 1e-9 && around.foreign == 0.0);
        assert!(around.disturbance().unwrap().contains("steal 10.0 %"));
    }

    #[test]
    fn a_compiler_beside_us_disturbs_and_our_own_hogs_do_not() {
        let calm = counters(0, 0, 0, 0).until(&counters(100, 0, 0, 98));
        assert_eq!(calm.disturbance(), None);
        let compiled = counters(0, 0, 0, 0).until(&counters(100, 0, 0, 60));
        assert!(compiled.disturbance().unwrap().contains("40.0 %"), "{compiled:?}");
    }

    #[test]
    fn frames_that_cost_a_fifth_more_and_a_smaller_room_disturb() {
        let slow = Surroundings { speed: Some(1.2), ..Surroundings::default() };
        assert!(slow.disturbance().unwrap().contains("+20 %"));
        let booked = Surroundings { room: 1.5, room_needed: 1.79, ..Surroundings::default() };
        assert!(booked.disturbance().unwrap().contains("1.500"));
    }

    #[test]
    fn three_rounds_off_in_one_direction_show_another_machine() {
        let shown = |speeds: &[Option<f64>]| {
            let mut drift = Drift::default();
            speeds.iter().map(|&speed| drift.is_shown_by(speed)).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[Some(1.2), Some(1.3), Some(1.2), Some(1.0)]), [false, false, true, false]);
        assert_eq!(shown(&[Some(0.8), Some(0.8), Some(1.2), Some(0.8), Some(0.8)]), [false; 5]);
        assert_eq!(shown(&[Some(0.8), Some(1.1), Some(0.8), None, Some(0.7), Some(0.7)]), [false; 6]);
    }

    #[test]
    fn the_total_line_is_no_cpu() {
        assert_eq!(cpu_line("cpu  1 2 3 4 5 6 7 8 0 0"), None);
        let one = cpu_line("cpu1 1 2 3 4 5 6 7 8 9 9").unwrap();
        assert_eq!(one, CpuTicks { busy: 6, steal: 8, all: 36 });
        assert_eq!(psi_some("some avg10=1.0 avg60=2.0 avg300=3.0 total=4711\nfull avg10=0 total=1\n"), Some(4711));
    }

    #[test]
    fn time_burnt_here_is_ours() {
        let before = Counters::read(&[]).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_millis(200);
        while std::time::Instant::now() < end {
            std::hint::spin_loop();
        }
        let after = Counters::read(&[]).unwrap();
        assert!(after.ours > before.ours && after.cpus.len() == before.cpus.len());
    }
}
