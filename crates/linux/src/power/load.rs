//! The inputs of a power model: CPU time of the host, its clock, and its network traffic.

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

/// Mean clock of all CPUs as a part of the highest clock; `None` if the kernel does not scale clocks.
pub fn clock_fraction(sys: &Path) -> Option<f64> {
    let folder = sys.join("devices/system/cpu/cpufreq");
    let fraction = |policy: String| {
        let khz = |file: &str| number(&folder.join(&policy).join(file)).ok();
        let (now, most) = (khz("scaling_cur_freq")? as f64, khz("cpuinfo_max_freq")? as f64);
        (most > 0.0).then(|| (now / most).clamp(0.0, 1.0))
    };
    let policies = entries(&folder).into_iter().filter(|name| name.starts_with("policy"));
    let fractions: Vec<f64> = policies.filter_map(fraction).collect();
    (!fractions.is_empty()).then(|| fractions.iter().sum::<f64>() / fractions.len() as f64)
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
