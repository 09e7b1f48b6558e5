//! The result of a run.

use serde::Serialize;

use crate::lateness::{LATE_MAX, LatenessSummary};

/// Packets of one direction. Every packet that arrived is lost, dropped, delivered, or still under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionCounters {
    /// Packets that arrived at the link, and their bytes with IP headers.
    pub packets: u64,
    pub bytes: u64,
    /// Lost on the medium, by the loss model.
    pub lost: u64,
    pub lost_bytes: u64,
    /// Dropped because the queue was full.
    pub queue_drops: u64,
    pub queue_dropped_bytes: u64,
    /// Largest number of bytes in the queue.
    pub queue_peak_bytes: u64,
    pub delivered: u64,
    pub delivered_bytes: u64,
    /// Dropped because the emulator reached its limit of memory ([`crate::link::HELD_MAX`]).
    pub overflow: u64,
}

impl DirectionCounters {
    /// Part of the sent packets that the medium lost.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.packets - self.queue_drops - self.overflow).max(1) as f64
    }
}

/// What the emulator saw of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DirectionReport {
    /// The properties at the end of the run.
    pub link: String,
    #[serde(flatten)]
    pub counters: DirectionCounters,
    /// Packets of other protocols than IPv4, which the link does not carry.
    pub ignored: u64,
    /// Packets that the kernel dropped before the emulator read them.
    pub device_drops: u64,
    /// Packets that the kernel did not take at the other end.
    pub write_errors: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabReport {
    pub seed: u64,
    /// Time since the link exists.
    pub seconds: f64,
    /// From the local end to the peer's.
    pub up: DirectionReport,
    pub down: DirectionReport,
    pub lateness: LatenessSummary,
    /// Whether the emulator ran as SCHED_FIFO.
    pub real_time: bool,
    /// Whether the run measured the link. If not, `reasons` say why.
    pub valid: bool,
    pub reasons: Vec<String>,
}

impl LabReport {
    /// Decides whether the run is valid.
    pub(crate) fn judge(&mut self) {
        let mut reasons = Vec::new();
        let (p99, most) = (self.lateness.p99_ms, LATE_MAX.as_f64() / 1e6);
        if p99 > most {
            let advice = if self.real_time { "" } else { "; run it as root, so that the emulator may use SCHED_FIFO" };
            reasons.push(format!("the emulator was late: p99 {p99:.3} ms, the limit is {most} ms{advice}"));
        }
        for (name, direction) in [("up", &self.up), ("down", &self.down)] {
            let DirectionReport { counters, device_drops, write_errors, .. } = direction;
            for (count, what) in [
                (counters.overflow, "exceeded the emulator's memory"),
                (*device_drops, "were dropped by the kernel before the emulator read them"),
                (*write_errors, "were not taken by the kernel at the other end"),
            ] {
                if count > 0 {
                    reasons.push(format!("{name}: {count} packets {what}"));
                }
            }
        }
        self.valid = reasons.is_empty();
        self.reasons = reasons;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> LabReport {
        let (up, down, lateness) = Default::default();
        LabReport { seed: 1, seconds: 1.0, up, down, lateness, real_time: false, valid: false, reasons: Vec::new() }
    }

    #[test]
    fn a_run_is_invalid_if_the_emulator_was_late_or_lost_packets_itself() {
        let mut good = report();
        good.judge();
        assert!(good.valid && good.reasons.is_empty());
        let mut late = report();
        late.lateness.p99_ms = 2.5;
        late.down.device_drops = 3;
        late.judge();
        assert!(!late.valid && late.reasons.len() == 2);
        assert!(late.reasons[0].contains("p99 2.500 ms, the limit is 2 ms; run it as root"), "{}", late.reasons[0]);
        assert!(late.reasons[1].starts_with("down: 3 packets"), "{}", late.reasons[1]);
    }

    #[test]
    fn the_report_has_the_documented_keys() {
        let json = serde_json::to_value(report()).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys.join(" "), "down lateness real_time reasons seconds seed up valid");
        assert_eq!(json["up"]["queue_drops"], 0);
        assert_eq!(json["lateness"]["p99_ms"], 0.0);
    }
}
