//! Decides whether a link carries a set of streams, each with its delay.

use qfabric_linux::net::{Attachment, admit};
use qfabric_types::api::Problem;
use qfabric_types::api::net::{MeasuredDelays, NetMechanism, StreamId, StreamSpec, StreamTerms};
use qfabric_types::{BitRate, Bytes, DelayPoint, Nanos, PathError, TrafficSpec, Window};

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

/// Checks that the delay in the stream's terms is kept: by the measured delay of its messages, and by the bound of its
/// packets' delay, as far as the terms have them.
pub(super) fn check_delay(attachment: &Attachment, spec: &StreamSpec) -> Result<(), Problem> {
    let Some(delay) = spec.terms.delay else { return Ok(()) };
    let is_measured = check_measured(spec, delay)?;
    match spec.terms.traffic {
        Some(traffic) => check_bound(attachment, spec, &traffic, delay),
        None if is_measured => Ok(()),
        None => {
            let message = format!("a delay of {delay} is asked for, but the traffic is not known");
            let next =
                "state the traffic too (--traffic RATE,BUCKET,PEAK,LARGEST), or measured delays (--measured HOST)";
            Err(problems::invalid(message, next))
        }
    }
}

/// QualMan's test of the end-to-end delay (§5.1.2). Returns whether the terms have a profile.
fn check_measured(spec: &StreamSpec, delay: Nanos) -> Result<bool, Problem> {
    let Some(MeasuredDelays { message_bytes, profile }) = &spec.terms.measured else { return Ok(false) };
    let next = "measure this size and rate: qfabric net profile HOST --sizes BYTES --rates BITS";
    let point =
        profile.delay_of(*message_bytes, spec.rate()).map_err(|why| problems::invalid(why.to_string(), next))?;
    if point.p99 <= delay {
        return Ok(true);
    }
    let DelayPoint { message_bytes: size, rate_bps, p99, .. } = point;
    let host = profile.host.chars().take(64).collect::<String>();
    let message = format!("messages of {size} to {host} took up to {p99} at {rate_bps}, asked for {delay}");
    Err(problems::over_measured_delay(message))
}

/// The delay of the stream's largest message from end to end, if its terms have a profile with such a message.
pub(super) fn measured_delay(spec: &StreamSpec, terms: &StreamTerms) -> Option<Nanos> {
    let MeasuredDelays { message_bytes, profile } = terms.measured.as_ref()?;
    profile.delay_of(*message_bytes, spec.rate()).ok().map(|point| point.p99)
}

fn check_bound(attachment: &Attachment, spec: &StreamSpec, traffic: &TrafficSpec, delay: Nanos) -> Result<(), Problem> {
    match delay_bound(attachment, spec, traffic) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::DelayProfile;
    use qfabric_types::api::net::Selector;

    const MEGABIT: u64 = 1_000_000;

    fn stream(mark: u32, period_ms: u64, bytes: u32) -> StreamSpec {
        let mut spec = StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(period_ms));
        spec.size = bytes;
        spec
    }

    #[test]
    fn the_largest_size_that_fits_is_found() {
        for limit in [0, 1, 2, 37, 999, 1_000] {
            assert_eq!(largest_of(1_000, |size| size <= limit), limit);
        }
        assert_eq!((largest_of(0, |_| true), largest_of(u32::MAX, |_| true)), (0, u32::MAX));
        let (others, share) = (stream(1, 40, 40_000), qfabric_types::Share::from_ppm(50_000));
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
    fn a_delay_is_admitted_by_the_measured_delay_of_the_closest_larger_message() {
        let point = |message_bytes, p99| DelayPoint {
            message_bytes: Bytes::new(message_bytes),
            rate_bps: BitRate::new(2 * MEGABIT),
            p50: Nanos::from_millis(1),
            p99: Nanos::from_millis(p99),
            arrived: 100,
            lost: 0,
        };
        let profile = DelayProfile {
            host: "beta".to_owned(),
            interface: "eth0".parse().unwrap(),
            kernel: "6.16".to_owned(),
            min_rtt: Nanos::ZERO,
            points: vec![point(20_000, 80), point(50_000, 200)],
        };
        // 10,000 bytes in 40 ms are 2 Mbit/s.
        let mut spec = stream(1, 40, 10_000);
        let check = |spec: &StreamSpec, delay| check_measured(spec, Nanos::from_millis(delay));
        assert_eq!(check(&spec, 1), Ok(false), "nothing was measured");
        spec.terms.measured = Some(MeasuredDelays { message_bytes: Bytes::new(20_000), profile });
        assert_eq!((check(&spec, 80), measured_delay(&spec, &spec.terms)), (Ok(true), Some(Nanos::from_millis(80))));
        let over = check(&spec, 79).unwrap_err();
        assert!(over.code == "over_link" && over.message.contains("took up to 80 ms at 2 Mbit/s"), "{over:?}");
        spec.size = 9_999;
        assert!(check(&spec, 80).unwrap_err().next_step.contains("qfabric net profile"), "the rate is lower");
    }
}
