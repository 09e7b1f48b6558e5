//! Figure 10: the bandwidth that an application asks for, against the bandwidth that it gets.

use comfy_table::{Table, presets};
use qfabric_netlab::Spread;
use serde::Serialize;

use crate::experiment::{Experiment, Reserved};
use crate::measure::Jitter;
use crate::report::{Report, rounded};

/// What a stream of one asked rate got in one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Bandwidth {
    /// Bytes of the frames, without headers, as Mbit/s.
    pub asked_mbps: f64,
    /// The same of the frames that came whole, late ones included; frames without a chance are dropped by the sender.
    pub achieved_mbps: f64,
}

impl Bandwidth {
    /// All frames of a stream have one size, so the part of the frames that came is the part of the bandwidth.
    pub(crate) fn new(asked_mbps: f64, frames: &Jitter) -> Bandwidth {
        let came = frames.frames.saturating_sub(frames.missing) as f64 / frames.frames.max(1) as f64;
        Bandwidth { asked_mbps, achieved_mbps: came * asked_mbps }
    }
}

/// The asked rates, each with what it got in the runs that count.
pub(crate) fn points(report: &Report, reserved: Reserved) -> Vec<(f64, Spread)> {
    let point = |(at, plan): (usize, &crate::experiment::StreamPlan)| {
        let rows = report.rows(Experiment::Rates, reserved, at);
        let achieved = Spread::of(rows.iter().filter_map(|row| Some(row.bandwidth?.achieved_mbps)))?;
        Some((plan.asked_mbps(), achieved))
    };
    Experiment::Rates.streams().iter().enumerate().filter_map(point).collect()
}

/// The least part of an asked rate that was achieved in a run.
pub(crate) fn least(report: &Report, reserved: Reserved) -> Option<f64> {
    points(report, reserved).into_iter().map(|(asked, achieved)| achieved.least / asked).reduce(f64::min)
}

pub(crate) fn table(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(["asked Mbit/s", "reserved", "achieved Mbit/s"]);
    for &reserved in Experiment::Rates.reservations() {
        for (asked, achieved) in points(report, reserved) {
            table.add_row([rounded(0)(asked), reserved.title().to_owned(), achieved.text(rounded(2))]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_the_frames_that_came_is_the_part_of_the_bandwidth() {
        let frames = Jitter { frames: 40, missing: 10, ..Jitter::default() };
        assert_eq!(Bandwidth::new(8.0, &frames), Bandwidth { asked_mbps: 8.0, achieved_mbps: 6.0 });
        assert_eq!(Bandwidth::new(8.0, &Jitter::default()).achieved_mbps, 0.0, "no frame was due");
    }
}
