//! The pure link against closed forms.

use proptest::prelude::*;
use qfabric_netlab::{
    EmulatedLink, EmulatedPath, LabSettings, LinkDirection, LinkRate, LinkSettings, LossModel, LossSource, QueueLimit,
    Schedule, Trace,
};
use qfabric_types::{BitRate, Bytes, Instant, Nanos, RandomNumbers, Share};

const START: Instant = Instant::new(1_000_000_007);

fn link(rate_bps: u64, queue: u64, delay: Nanos) -> LinkSettings {
    let (rate, queue) = (LinkRate::Constant(BitRate::new(rate_bps)), QueueLimit::Bytes(Bytes::new(queue)));
    LinkSettings { rate, queue, delay, ..LinkSettings::default() }
}

fn new(settings: LinkSettings, seed: u64) -> EmulatedLink<u32> {
    EmulatedLink::new(settings, &[Nanos::ZERO], seed, START)
}

/// Everything that the link delivers from now on, with the times.
fn drain(link: &mut EmulatedLink<u32>) -> Vec<(u32, Instant)> {
    let mut delivered = Vec::new();
    while let Some(at) = link.next_wakeup() {
        while let Some(delivery) = link.deliver(at) {
            delivered.push((delivery.packet, delivery.due));
        }
    }
    delivered
}

/// Sizes and gaps of packets.
fn packets() -> impl Strategy<Value = Vec<(u32, u64)>> {
    prop::collection::vec((40u32..1_500, 0u64..3_000_000), 1..120)
}

proptest! {
    /// Lindley's recursion: d(i) = max(a(i), d(i−1)) + bytes/rate, delivered at d(i) + delay.
    #[test]
    fn delivery_times_follow_lindleys_recursion(packets in packets(), kbps in 100u64..100_000, delay_us in 0u64..50_000) {
        let (rate, delay) = (BitRate::new(kbps * 1_000), Nanos::from_micros(delay_us));
        let mut link = new(link(rate.get(), 1 << 30, delay), 1);
        let (mut now, mut free, mut expected) = (START, START, Vec::new());
        for (number, (bytes, gap)) in (0..).zip(&packets) {
            now = now + Nanos::new(*gap);
            free = free.max(now) + rate.time_for(Bytes::new(u64::from(*bytes)));
            expected.push((number, free + delay));
            link.arrive(now, number, *bytes, 0);
        }
        prop_assert_eq!(drain(&mut link), expected);
    }

    /// How often the link is asked changes nothing.
    #[test]
    fn the_result_does_not_depend_on_the_times_of_the_calls(packets in packets(), seed: u64, step in 1u64..5_000_000) {
        let loss = LossModel::Random(Share::from_ppm(100_000));
        let settings = LinkSettings { loss, jitter: Nanos::from_millis(3), ..link(3_000_000, 9_000, Nanos::from_millis(7)) };
        let run = |asks: bool| {
            let mut link = new(settings.clone(), seed);
            let (mut now, mut asked, mut delivered) = (START, START, Vec::new());
            for (number, (bytes, gap)) in (0..).zip(&packets) {
                now = now + Nanos::new(*gap);
                while asks && asked < now {
                    delivered.extend(std::iter::from_fn(|| link.deliver(asked)).map(|d| (d.packet, d.due)));
                    asked = asked + Nanos::new(step);
                }
                link.arrive(now, number, *bytes, 0);
            }
            delivered.extend(drain(&mut link));
            (delivered, link.counters())
        };
        prop_assert_eq!(run(false), run(true));
    }

    /// Packets are neither lost nor created without a counter, and the queue never exceeds its limit.
    #[test]
    fn every_packet_is_counted_once(packets in packets(), seed: u64, queue in 1u64..20_000) {
        let settings = LinkSettings { loss: LossModel::Random(Share::from_ppm(50_000)), ..link(800_000, queue, Nanos::ZERO) };
        let mut link = new(settings, seed);
        let mut now = START;
        for (number, (bytes, gap)) in (0..).zip(&packets) {
            now = now + Nanos::new(*gap / 10);
            let before = link.queued().get();
            link.arrive(now, number, *bytes, 0);
            let queued = link.queued().get();
            // Only a packet that found the queue empty may be larger than the queue.
            let fits = queued <= queue || queued <= before || queued == u64::from(*bytes);
            prop_assert!(fits, "{queued} bytes in a queue of {queue}");
        }
        let delivered = drain(&mut link).len() as u64;
        let counters = link.counters();
        prop_assert_eq!(counters.delivered, delivered);
        prop_assert_eq!(counters.packets, counters.lost + counters.queue_drops + delivered);
        prop_assert_eq!(counters.bytes, counters.lost_bytes + counters.queue_dropped_bytes + counters.delivered_bytes);
        prop_assert_eq!((link.held(), counters.overflow), (0, 0));
    }

    /// The losses depend on the seed and the order only: not on times, rate, queue or other properties.
    #[test]
    fn the_order_of_packets_decides_the_losses(packets in packets(), seed: u64, kbps in 1u64..50_000) {
        let loss = LossModel::GilbertElliott { p: Share::from_ppm(100_000), r: Share::from_ppm(300_000) };
        let mut link = new(LinkSettings { loss, ..link(kbps * 1_000, 1 << 29, Nanos::from_micros(kbps)) }, seed);
        let mut now = START;
        for (number, (bytes, gap)) in (0..).zip(&packets) {
            now = now + Nanos::new(*gap);
            link.arrive(now, number, *bytes, 0);
        }
        let mut source = LossSource::new(loss, RandomNumbers::new(seed).draw());
        let expected: Vec<u32> = (0..packets.len() as u32).filter(|_| !source.next_is_lost()).collect();
        let delivered: Vec<u32> = drain(&mut link).into_iter().map(|(packet, _)| packet).collect();
        prop_assert_eq!(delivered, expected);
    }

    /// A rate that changes while packets wait sends ∫ rate dt bits.
    #[test]
    fn a_change_of_the_rate_applies_to_the_rest_of_the_queue(first in 100u64..5_000, then in 100u64..5_000, at_us in 1u64..200_000) {
        let mut link = new(link(first * 1_000, 1 << 30, Nanos::ZERO), 1);
        (0..100).for_each(|number| link.arrive(START, number, 1_250, 0));
        let at = Nanos::from_micros(at_us);
        let mut settings = link.settings().clone();
        settings.rate = LinkRate::Constant(BitRate::new(then * 1_000));
        let mut delivered: Vec<Instant> = std::iter::from_fn(|| link.deliver(START + at)).map(|d| d.due).collect();
        link.set(START + at, settings);
        delivered.extend(drain(&mut link).into_iter().map(|(_, due)| due));
        // The end of each packet is rounded up to 1 ns at the first rate.
        let rounding = 200.0 + 100.0 * first as f64 / then as f64;
        let before = at.as_f64() * first as f64 / 1e6;
        for (bits, due) in (1..=100u64).map(|number| (number * 10_000) as f64).zip(delivered) {
            let later = at.as_f64() + (bits - before) / then as f64 * 1e6;
            let exact = if bits <= before { bits / first as f64 * 1e6 } else { later };
            let found = due.since(START).as_f64();
            prop_assert!((found - exact).abs() < rounding, "{bits} bits at {found} instead of {exact}");
        }
    }

    /// Jitter keeps the order, and stays within its bound.
    #[test]
    fn jitter_is_bounded_and_keeps_the_order(packets in packets(), seed: u64, most_us in 1u64..40_000) {
        let (delay, most) = (Nanos::from_millis(5), Nanos::from_micros(most_us));
        let mut link = new(LinkSettings { jitter: most, delay, ..LinkSettings::default() }, seed);
        let (mut now, mut sent) = (START, Vec::new());
        for (number, (bytes, gap)) in (0..).zip(&packets) {
            now = now + Nanos::new(*gap);
            sent.push(now);
            link.arrive(now, number, *bytes, 0);
        }
        let delivered = drain(&mut link);
        prop_assert!(delivered.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        for (number, due) in delivered {
            let took = due.since(sent[number as usize]);
            prop_assert!((delay..=delay + most).contains(&took), "{took}");
        }
    }
}

#[test]
fn a_full_queue_holds_a_packet_for_the_queues_length_at_most() {
    let mut link =
        new(LinkSettings { queue: QueueLimit::Time(Nanos::from_millis(300)), ..link(1_000_000, 1, Nanos::ZERO) }, 1);
    (0..200).for_each(|number| link.arrive(START, number, 1_250, 0));
    assert_eq!((link.queued(), link.counters().queue_drops), (Bytes::new(37_500), 170));
    let last = drain(&mut link).pop().unwrap();
    assert_eq!((last.0, last.1.since(START)), (29, Nanos::from_millis(300)));
}

#[test]
fn an_idle_link_takes_a_packet_that_is_larger_than_its_queue() {
    let mut link = new(link(1_000_000, 100, Nanos::ZERO), 1);
    link.arrive(START, 0, 1_500, 0);
    link.arrive(START, 1, 40, 0);
    assert_eq!((drain(&mut link).len(), link.counters().queue_drops), (1, 1));
}

#[test]
fn paths_have_delays_of_their_own_and_one_bottleneck() {
    let settings = link(8_000_000, 1 << 20, Nanos::from_millis(10));
    let paths = [0, 40].map(Nanos::from_millis);
    let mut link = EmulatedLink::new(settings, &paths, 1, START);
    for (number, path) in [(0, 1), (1, 0), (2, 1), (3, 7)] {
        link.arrive(START, number, 1_000, path);
    }
    let delivered = drain(&mut link).into_iter().map(|(packet, due)| (packet, due.since(START).get() / 1_000_000));
    assert_eq!(delivered.collect::<Vec<_>>(), [(1, 12), (3, 14), (0, 51), (2, 53)]);
}

#[test]
fn memory_is_bounded_and_a_drop_for_its_sake_is_counted() {
    let mut link: EmulatedLink<()> = EmulatedLink::new(
        LinkSettings { delay: Nanos::from_millis(60_000), ..LinkSettings::default() },
        &[Nanos::ZERO],
        1,
        START,
    );
    (0..10_000).for_each(|_| link.arrive(START, (), 65_000, 0));
    let counters = link.counters();
    assert!(counters.overflow > 0 && counters.overflow < 10_000, "{counters:?}");
    assert_eq!(link.held() as u64 + counters.overflow, 10_000);
}

#[test]
fn a_schedule_changes_each_direction_at_its_time() {
    let schedule = Schedule::parse("at 1s up rate 100k\nat 2s down delay 50ms\nat 2s rate unlimited\n").unwrap();
    let settings = LabSettings { schedule, ..LabSettings::symmetric(link(1_000_000, 1 << 20, Nanos::ZERO), 1) };
    let mut path = EmulatedPath::new(&settings, START);
    assert_eq!(path.next_wakeup(), None, "the schedule begins when it is told to");
    let took = |path: &mut EmulatedPath<()>, direction, ms: u64| {
        let now = START + Nanos::from_millis(ms);
        path.arrive(now, direction, (), 1_250, 0);
        let due = path.link(direction).next_wakeup().unwrap();
        path.deliver(due, direction).unwrap();
        due.since(now).get() / 1_000_000
    };
    path.begin(START);
    assert_eq!([took(&mut path, LinkDirection::Up, 10), took(&mut path, LinkDirection::Down, 10)], [10, 10]);
    assert_eq!([took(&mut path, LinkDirection::Up, 1_500), took(&mut path, LinkDirection::Down, 1_500)], [100, 10]);
    assert_eq!([took(&mut path, LinkDirection::Up, 2_500), took(&mut path, LinkDirection::Down, 2_500)], [0, 50]);
}

#[test]
fn a_trace_paces_a_full_link() {
    let trace = Trace::parse("10\n20\n20\n").unwrap();
    assert_eq!(trace.mean(), BitRate::new(1_800_000));
    let mut link = new(LinkSettings { rate: LinkRate::Trace(trace.into()), ..link(1, 1 << 20, Nanos::ZERO) }, 1);
    (0..6).for_each(|number| link.arrive(START, number, 1_500, 0));
    let times: Vec<_> = drain(&mut link).into_iter().map(|(_, due)| due.since(START).get() / 1_000_000).collect();
    assert_eq!(times, [10, 20, 20, 30, 40, 40]);
}
