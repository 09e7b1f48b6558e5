//! Decides whether a link carries a set of streams: DWCS's admission test, with time on the link as the service.
//!
//! The transmission of a packet is not interrupted. So a stream may have to wait for one of the largest packets,
//! and for one more that best effort was owed. That time is subtracted from the capacity, relative to the shortest
//! period.

use qfabric_sched::dwcs::{self, Task};
use qfabric_types::api::Problem;
use qfabric_types::api::net::{Selector, StreamSpec};
use qfabric_types::{Nanos, Share};

use super::PERIOD_MAX;

/// Checks that a link of `rate_bps` carries the streams together, beside the part `best_effort` of it.
///
/// # Errors
/// It does not; the problem names the stream, what it asks for, and what the link has.
pub fn admit(streams: &[&StreamSpec], rate_bps: u64, best_effort: Share) -> Result<(), Problem> {
    let shortest = streams.iter().map(|spec| spec.period).min().unwrap_or_default();
    let task = |spec: &&StreamSpec| {
        let task = Task::new(spec.period.get(), spec.service(rate_bps).get(), spec.window);
        task.map_err(|_| too_long(spec, rate_bps))
    };
    let tasks = streams.iter().map(task).collect::<Result<Vec<_>, _>>()?;
    let wording = dwcs::Wording {
        task: &|task| streams[task.0].selector.to_string(),
        time: &|ns| Nanos::new(ns).to_string(),
        shared: dwcs::Shared::Link,
    };
    dwcs::admit(&tasks, capacity(shortest, rate_bps, best_effort)).map(drop).map_err(|refusal| {
        let (refusal, sure) = (refusal.problem(&wording), best_effort.percent());
        let message =
            format!("{}; the link carries {rate_bps} bit/s, of which best effort is sure of {sure}", refusal.message);
        over_link(message, &format!("{} of the link, ", refusal.next_step))
    })
}

/// The part of a link of `rate_bps` that is available to streams, of which `shortest` is the shortest period.
pub fn capacity(shortest: Nanos, rate_bps: u64, best_effort: Share) -> Share {
    let blocked = Share::of_budget(blocking(rate_bps).saturating_mul(2), shortest);
    Share::ONE.saturating_sub(best_effort).saturating_sub(blocked)
}

/// The refusal of a stream whose packet takes longer than its period, or whose period or service is 0.
fn too_long(spec: &StreamSpec, rate_bps: u64) -> Problem {
    let StreamSpec { selector, size, period, .. } = spec;
    let time = spec.service(rate_bps);
    let message =
        format!("{selector}: {size} bytes take {time} of a link of {rate_bps} bit/s, and its period is {period}");
    over_link(message, "")
}

/// `first` is put before the next steps that always help.
fn over_link(message: String, first: &str) -> Problem {
    let always = "request less, end a stream (qfabric net stream rm), or attach with a higher --rate";
    Problem::new("over_link", message, format!("{first}{always}"))
}

/// Longest time for which the link is blocked by one packet of the largest size.
fn blocking(rate_bps: u64) -> Nanos {
    let size = StreamSpec::LARGEST_PACKET;
    StreamSpec { size, ..StreamSpec::new(Selector::Mark(1), PERIOD_MAX) }.service(rate_bps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Window;

    const MEGABIT: u64 = 1_000_000;

    fn stream(mark: u32, period_ms: u64, bytes: u32) -> StreamSpec {
        let spec = StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(period_ms));
        StreamSpec { size: bytes, ..spec }
    }

    #[test]
    fn streams_are_admitted_up_to_what_best_effort_and_the_largest_packets_leave() {
        let (one, share) = (stream(1, 40, 40_000), Share::from_ppm(50_000));
        // 40,000 bytes each 40 ms are 8 Mbit/s; two packets of 1,514 bytes at 10 Mbit/s are 2.4 ms of 40.
        assert!(admit(&[&one], 10 * MEGABIT, share).is_ok());
        let refusal = admit(&[&one, &stream(2, 40, 5_000)], 10 * MEGABIT, share).unwrap_err();
        assert!(refusal.message.contains("= 90 %") && refusal.message.contains("10000000 bit/s"), "{refusal:?}");
    }

    #[test]
    fn the_sum_with_windows_must_fit_the_link() {
        let mut lossy = stream(1, 40, 10_000);
        lossy.window = Window::new(1, 2).unwrap();
        let refusal = admit(&[&stream(2, 40, 45_000), &lossy], 10 * MEGABIT, Share::ZERO).unwrap_err();
        assert!(refusal.message.contains("U = ") && refusal.next_step.contains("of the link, "), "{refusal:?}");
    }

    #[test]
    fn a_stream_beyond_the_link_is_refused_by_its_numbers() {
        let refusal = admit(&[&stream(1, 1, 15_000)], MEGABIT, Share::ZERO).unwrap_err();
        let said = "mark 1: 15000 bytes take 120 ms of a link of 1000000 bit/s, and its period is 1 ms";
        assert_eq!((refusal.code.as_str(), refusal.message.as_str()), ("over_link", said));
    }

    #[test]
    fn a_refusal_for_a_link_does_not_mention_cpus() {
        let refusal = admit(&[&stream(1, 40, 49_000)], 10 * MEGABIT, Share::from_ppm(50_000)).unwrap_err();
        let refusal = refusal.to_string();
        assert!(refusal.contains("sure of 5 %") && !refusal.contains("CPU"), "{refusal:?}");
    }
}
