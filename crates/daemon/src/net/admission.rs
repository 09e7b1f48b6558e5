//! Decides whether a link carries a set of streams: DWCS's admission test, with time on the link as the service.
//!
//! The transmission of a packet is not interrupted. So a stream may have to wait for one of the largest packets,
//! and for one more that best effort was owed. That time is subtracted from the capacity, relative to the shortest
//! period.

use qfabric_linux::net::{Attachment, blocking};
use qfabric_sched::dwcs::{self, Task};
use qfabric_types::api::Problem;
use qfabric_types::api::net::{NetMechanism, StreamId, StreamSpec};
use qfabric_types::{BitRate, Bytes, Nanos, PathError, Share, TrafficSpec, Window};

use super::problems;

/// Checks that the link carries `spec`, in place of the stream `instead_of` or beside all others.
pub(super) fn check(attachment: &Attachment, instead_of: Option<StreamId>, spec: &StreamSpec) -> Result<(), Problem> {
    let others = attachment.streams().filter(|(id, _)| Some(*id) != instead_of).map(|(_, spec)| spec);
    let all: Vec<&StreamSpec> = others.chain([spec]).collect();
    admit(&all, attachment.rate_bps(), attachment.best_effort())
}

/// The largest C from 1 to `most` that the link carries; 0 if it carries none.
pub(super) fn largest(attachment: &Attachment, instead_of: Option<StreamId>, spec: &StreamSpec, most: u32) -> u32 {
    let fits = |size| check(attachment, instead_of, &StreamSpec { size, ..spec.clone() }).is_ok();
    largest_of(most, fits)
}

/// Bisection: if a size fits, all smaller sizes fit.
fn largest_of(most: u32, fits: impl Fn(u32) -> bool) -> u32 {
    if most > 0 && fits(most) {
        return most;
    }
    let (mut fitting, mut too_large) = (0, most);
    while too_large > fitting + 1 {
        let middle = fitting + (too_large - fitting) / 2;
        if fits(middle) { fitting = middle } else { too_large = middle }
    }
    fitting
}

/// Checks that the delay of the stream's packets is at most the delay in its terms.
pub(super) fn check_delay(attachment: &Attachment, spec: &StreamSpec) -> Result<(), Problem> {
    let Some(delay) = spec.terms.delay else { return Ok(()) };
    let Some(traffic) = spec.terms.traffic else {
        let message = format!("a delay of {delay} is asked for, but the traffic is not known");
        return Err(problems::invalid(message, "state the traffic too (--traffic RATE,BUCKET,PEAK,LARGEST)"));
    };
    match delay_bound(attachment, spec, &traffic) {
        Some(bound) if bound <= delay => Ok(()),
        Some(bound) => {
            let message = format!("{}: the longest delay is {bound}, asked for {delay}", spec.selector);
            Err(problems::over_delay(message))
        }
        None => {
            let message = format!("{}: the delay has no bound, asked for {delay}", spec.selector);
            Err(problems::over_delay(message))
        }
    }
}

/// The longest delay of a packet from its arrival in the queue to its transmission. `None` for classes of HTB, which
/// keep no deadlines, for a window that loses packets, and if the stream's rate is below the traffic's token rate.
pub(super) fn delay_bound(attachment: &Attachment, spec: &StreamSpec, traffic: &TrafficSpec) -> Option<Nanos> {
    match attachment.mechanism() {
        NetMechanism::Dwcs => delay_under_dwcs(spec, traffic),
        NetMechanism::Htb => None,
    }
}

/// DWCS sends what is ready, up to C, by the end of each packet period, which is at most Θ + T after the arrival. So it
/// is a server of rate R with the error term D = Θ + T (RFC 2212). Packets are not divided: up to M − 1 bytes of C may
/// stay unused, which leaves R = (C − M + 1)/T.
fn delay_under_dwcs(spec: &StreamSpec, traffic: &TrafficSpec) -> Option<Nanos> {
    if spec.window != Window::NONE || u64::from(spec.size) < traffic.largest().get() {
        return None;
    }
    let used = u128::from(u64::from(spec.size) - traffic.largest().get() + 1);
    let rate = BitRate::new((used * 8_000_000_000 / u128::from(spec.period.get().max(1))) as u64);
    let latest = Nanos::new(spec.phase.get().saturating_add(spec.period.get()));
    traffic.delay_bound(rate, PathError { bytes: Bytes::ZERO, time: latest })
}

fn admit(streams: &[&StreamSpec], rate_bps: u64, best_effort: Share) -> Result<(), Problem> {
    let capacity = capacity(streams, rate_bps, best_effort);
    let task = |spec: &&StreamSpec| {
        let task = Task::new(spec.period.get(), spec.service(rate_bps).get(), spec.window);
        task.map_err(|_| problems::over_link(too_long(spec, rate_bps)))
    };
    let tasks = streams.iter().map(task).collect::<Result<Vec<_>, _>>()?;
    let wording = dwcs::Wording {
        task: &|task| streams[task.0].selector.to_string(),
        time: &|ns| Nanos::new(ns).to_string(),
        shared: dwcs::Shared::Link,
    };
    match dwcs::admit(&tasks, capacity) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(problems::over_link(format!(
            "{} of the link; it carries {rate_bps} bit/s, of which best effort is sure of {}",
            refusal.text(&wording),
            best_effort.percent()
        ))),
    }
}

/// The text for a stream whose packet takes longer than its period, or whose period or service is 0.
fn too_long(spec: &StreamSpec, rate_bps: u64) -> String {
    let StreamSpec { selector, size, period, .. } = spec;
    let time = spec.service(rate_bps);
    format!("{selector}: {size} bytes take {time} of a link of {rate_bps} bit/s, and its period is {period}")
}

/// The part of the link that is available to streams.
fn capacity(streams: &[&StreamSpec], rate_bps: u64, best_effort: Share) -> Share {
    let shortest = streams.iter().map(|spec| spec.period).min().unwrap_or_default();
    let blocked = Share::of_budget(blocking(rate_bps).saturating_mul(2), shortest);
    Share::ONE.saturating_sub(best_effort).saturating_sub(blocked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::api::net::Selector;

    const MEGABIT: u64 = 1_000_000;

    fn stream(mark: u32, period_ms: u64, bytes: u32) -> StreamSpec {
        let mut spec = StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(period_ms));
        spec.size = bytes;
        spec
    }

    #[test]
    fn streams_are_admitted_up_to_what_best_effort_and_the_largest_packets_leave() {
        let (one, share) = (stream(1, 40, 40_000), Share::from_ppm(50_000));
        // 40,000 bytes each 40 ms are 8 Mbit/s; two packets of 1,514 bytes at 10 Mbit/s are 2.4 ms of 40.
        assert!(admit(&[&one], 10 * MEGABIT, share).is_ok());
        let refusal = admit(&[&one, &stream(2, 40, 5_000)], 10 * MEGABIT, share).unwrap_err();
        assert_eq!(refusal.code, "over_link");
        assert!(refusal.message.contains("= 90 %") && refusal.message.contains("10000000 bit/s"), "{refusal:?}");
    }

    #[test]
    fn the_sum_with_windows_must_fit_the_link() {
        let mut lossy = stream(1, 40, 10_000);
        lossy.window = Window::new(1, 2).unwrap();
        let refusal = admit(&[&stream(2, 40, 45_000), &lossy], 10 * MEGABIT, Share::ZERO).unwrap_err();
        assert!(refusal.message.contains("U = "), "{refusal:?}");
    }

    #[test]
    fn the_largest_size_that_fits_is_found() {
        for limit in [0, 1, 2, 37, 999, 1_000] {
            assert_eq!(largest_of(1_000, |size| size <= limit), limit);
        }
        assert_eq!((largest_of(0, |_| true), largest_of(u32::MAX, |_| true)), (0, u32::MAX));
        let (others, share) = (stream(1, 40, 40_000), Share::from_ppm(50_000));
        let fits = |size| admit(&[&others, &stream(2, 40, size)], 10 * MEGABIT, share).is_ok();
        let largest = largest_of(50_000, fits);
        assert!(fits(largest) && !fits(largest + 1) && largest > 2_000, "{largest}");
    }

    #[test]
    fn the_delay_under_dwcs_is_that_of_a_server_with_the_latency_of_a_period() {
        let mut video = stream(1, 40, 41_513);
        video.phase = Nanos::from_millis(5);
        // R = 40,000 bytes in 40 ms = 8 Mbit/s = p: M/R + Θ + T.
        let rates = (BitRate::new(6 * MEGABIT), BitRate::new(8 * MEGABIT));
        let traffic = TrafficSpec::new(rates.0, Bytes::new(30_000), rates.1, Bytes::new(1_514)).unwrap();
        assert_eq!(delay_under_dwcs(&video, &traffic), Some(Nanos::from_micros(46_514)));
        video.window = Window::new(1, 10).unwrap();
        assert_eq!(delay_under_dwcs(&video, &traffic), None);
        assert_eq!(delay_under_dwcs(&stream(1, 40, 1_000), &traffic), None);
        assert_eq!(delay_under_dwcs(&stream(1, 40, 31_000), &traffic), None, "5.9 of 6 Mbit/s");
    }

    #[test]
    fn a_stream_beyond_the_link_is_refused_by_its_numbers() {
        let refusal = admit(&[&stream(1, 1, 15_000)], MEGABIT, Share::ZERO).unwrap_err();
        let said = "mark 1: 15000 bytes take 120 ms of a link of 1000000 bit/s, and its period is 1 ms";
        assert_eq!(refusal.message, said);
    }

    #[test]
    fn a_refusal_for_a_link_does_not_mention_cpus() {
        let refusal = admit(&[&stream(1, 40, 49_000)], 10 * MEGABIT, Share::from_ppm(50_000)).unwrap_err();
        assert!(refusal.message.contains("sure of 5 %") && !refusal.message.contains("CPU"), "{refusal:?}");
    }
}
