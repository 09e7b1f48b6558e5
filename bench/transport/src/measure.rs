//! The numbers of one run.

use serde::Serialize;

use crate::place::LinkCounts;
use crate::plan::Plan;
use crate::trial::Arrived;

/// The numbers of one run of one engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Measure {
    /// Frames that were sent.
    pub frames: usize,
    /// Frames that arrived whole at most one deadline after they were due.
    pub in_time: f64,
    /// Frames that arrived whole at any time.
    pub delivered: f64,
    /// Delay of the frames that arrived, from when they were due; `None` if none did.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Bytes of packets that the sender's host gave to the link.
    pub sent_bytes: f64,
    /// Bytes of packets that the receiver's host gave to the link: acknowledgments.
    pub returned_bytes: f64,
    /// Bytes of the frames that arrived whole.
    pub delivered_bytes: f64,
    /// CPU time of both processes.
    pub cpu_ms: f64,
    /// From the first frame's due time to the last arrival.
    pub seconds: f64,
    /// What a TCP flow on the same link carried.
    pub beside_bps: Option<f64>,
    /// Lateness of the emulator.
    pub late_p99_ms: f64,
    /// CPU time that the hypervisor took, in percent of all.
    pub stolen_percent: f64,
}

impl Measure {
    pub(crate) fn new(plan: &Plan, arrived: &Arrived, link: &LinkCounts, stolen_percent: f64) -> Measure {
        let mut delays: Vec<u64> =
            arrived.frames.iter().map(|frame| frame.arrived_ns.saturating_sub(frame.due_ns)).collect();
        delays.sort_unstable();
        let deadline = plan.deadline.as_nanos() as u64;
        let size = |number: u32| plan.frames.get(number as usize).map_or(0, |frame| u64::from(frame.size));
        let begin = arrived.frames.iter().map(|frame| frame.due_ns).min();
        let end = arrived.frames.iter().map(|frame| frame.arrived_ns).max();
        Measure {
            frames: plan.count(),
            in_time: delays.partition_point(|delay| *delay <= deadline) as f64,
            delivered: delays.len() as f64,
            p50_ms: percentile(&delays, 0.50).map(ms),
            p99_ms: percentile(&delays, 0.99).map(ms),
            sent_bytes: link.sent_bytes as f64,
            returned_bytes: link.returned_bytes as f64,
            delivered_bytes: arrived.frames.iter().map(|frame| size(frame.number)).sum::<u64>() as f64,
            cpu_ms: ms(arrived.cpu_ns),
            seconds: begin.zip(end).map_or(0.0, |(begin, end)| ms(end.saturating_sub(begin)) / 1e3),
            beside_bps: arrived.beside_bps,
            late_p99_ms: link.late_p99_ms,
            stolen_percent,
        }
    }

    /// CPU time for each Mbit/s of one second: for each million bits that arrived.
    pub(crate) fn cpu_ms_per_mbit(&self) -> Option<f64> {
        (self.delivered_bytes > 0.0).then(|| self.cpu_ms / (8e-6 * self.delivered_bytes))
    }

    /// Megabits that arrived each second.
    pub(crate) fn mbit_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| 8e-6 * self.delivered_bytes / self.seconds)
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The smallest value that at least this part of all values does not exceed.
fn percentile(sorted: &[u64], part: f64) -> Option<u64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Three digits, or whole numbers.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{Frame, Kind};
    use crate::trial::Arrival;

    #[test]
    fn a_frame_at_its_deadline_is_in_time_and_one_after_it_is_not() {
        let frame = |size| Frame { kind: Kind::P, size };
        let plan = Plan {
            period: Duration::from_millis(40),
            deadline: Duration::from_millis(200),
            frames: vec![frame(100), frame(200), frame(400)],
            ..Plan::example()
        };
        let arrival = |number, delay_ms: u64| Arrival { number, due_ns: 7, arrived_ns: 7 + delay_ms * 1_000_000 };
        let arrived = Arrived { frames: vec![arrival(0, 200), arrival(2, 201)], cpu_ns: 8_000_000, beside_bps: None };
        let measure = Measure::new(&plan, &arrived, &LinkCounts::default(), 0.0);
        assert_eq!((measure.in_time, measure.delivered, measure.delivered_bytes), (1.0, 2.0, 500.0));
        assert_eq!((measure.p50_ms, measure.p99_ms), (Some(200.0), Some(201.0)));
        assert_eq!(measure.cpu_ms_per_mbit(), Some(2_000.0));
        let nothing = Measure::new(&plan, &Arrived::default(), &LinkCounts::default(), 0.0);
        assert_eq!((nothing.p99_ms, nothing.cpu_ms_per_mbit(), nothing.mbit_per_s()), (None, None, None));
    }

    #[test]
    fn a_number_has_three_digits_or_is_whole() {
        assert_eq!([3.0, 2.346, 23.46, 123.4].map(number), ["3", "2.35", "23.5", "123"]);
    }
}
