//! The inputs of a power model: CPU time of the host, its clock, and its network traffic.

use std::collections::BTreeMap;
use std::path::Path;

use qfabric_types::Nanos;

use super::{entries, number, text};
use crate::files;

/// CPU time that all CPUs were busy since the boot, from `/proc/stat`; up to one tick old for each CPU. `None`: the
/// file cannot be read.
pub fn busy_time(proc: &Path) -> Option<Nanos> {
    let text = files::short_text(proc.join("stat"), 256).ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq; the rest is the time of guests and of other hosts.
    let [user, nice, system, _, _, irq, softirq] = *ticks.first_chunk::<7>()?;
    let busy = [user, nice, system, irq, softirq].iter().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(Nanos::new(busy.saturating_mul(tick_ns)))
}

/// The mean clock of all CPUs between two calls.
///
/// `stats/time_in_state` has the time that a clock spent at each frequency. Where the kernel lacks it (it is not made for
/// drivers that choose the frequency themselves), one sample of the present frequency stands for the whole time.
#[derive(Debug, Default)]
pub struct MeanClock {
    /// Time in ticks at each frequency in kHz, for each policy, at the last call.
    before: BTreeMap<String, Vec<(u64, u64)>>,
}

impl MeanClock {
    /// As a part of the highest clock, since the last call; `None` if the kernel does not scale clocks.
    pub fn take(&mut self, sys: &Path) -> Option<f64> {
        let folder = sys.join("devices/system/cpu/cpufreq");
        let policies = entries(&folder).into_iter().filter(|name| name.starts_with("policy"));
        let fractions: Vec<f64> = policies.filter_map(|policy| self.of_policy(&folder, policy)).collect();
        (!fractions.is_empty()).then(|| fractions.iter().sum::<f64>() / fractions.len() as f64)
    }

    fn of_policy(&mut self, folder: &Path, policy: String) -> Option<f64> {
        let at = folder.join(&policy);
        let now = times(&at.join("stats/time_in_state"));
        let before = self.before.insert(policy, now.clone()).unwrap_or_default();
        let khz = |file: &str| number(&at.join(file)).ok().map(|khz| khz as f64);
        let most = khz("cpuinfo_max_freq").filter(|most| *most > 0.0)?;
        let mean = mean(&before, &now).or_else(|| khz("scaling_cur_freq"))?;
        Some((mean / most).clamp(0.0, 1.0))
    }
}

fn times(path: &Path) -> Vec<(u64, u64)> {
    let pair = |line: &str| {
        let (khz, ticks) = line.trim().split_once(' ')?;
        Some((khz.parse().ok()?, ticks.trim().parse().ok()?))
    };
    text(path).map(|text| text.lines().filter_map(pair).collect()).unwrap_or_default()
}

/// The mean frequency between two readings. `None`: no time passed, the counters were reset, or the frequencies changed.
fn mean(before: &[(u64, u64)], now: &[(u64, u64)]) -> Option<f64> {
    let same = before.len() == now.len() && before.iter().zip(now).all(|(one, other)| one.0 == other.0);
    let passed = |((khz, before), (_, now)): (&(u64, u64), &(u64, u64))| Some((*khz, now.checked_sub(*before)?));
    let passed: Vec<(u64, u64)> = before.iter().zip(now).map(passed).collect::<Option<_>>().filter(|_| same)?;
    let ticks: f64 = passed.iter().map(|(_, ticks)| *ticks as f64).sum();
    (ticks > 0.0).then(|| passed.iter().map(|(khz, ticks)| *khz as f64 * *ticks as f64).sum::<f64>() / ticks)
}

/// Bytes through all network devices of the machine since the boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub received: u64,
    pub sent: u64,
}

/// The traffic of all interfaces that are devices; `None` without one. Bridges, tunnels and loopback are left out.
pub fn traffic(sys: &Path) -> Option<Traffic> {
    let folder = sys.join("class/net");
    let devices = entries(&folder).into_iter().filter(|name| folder.join(name).join("device").exists());
    let bytes = |name: &str, file: &str| {
        let path = folder.join(name).join("statistics").join(file);
        text(&path).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    devices.fold(None, |sum: Option<Traffic>, name| {
        let sum = sum.unwrap_or_default();
        let received = sum.received.saturating_add(bytes(&name, "rx_bytes"));
        Some(Traffic { received, sent: sum.sent.saturating_add(bytes(&name, "tx_bytes")) })
    })
}
