//! Upper bounds of the time that a task and a packet wait.

use proptest::prelude::*;
use qfabric_sched::dwcs::{
    Choice, Machine, Next, Packets, Pair, Policy, Rate, Source, Stream, TaskIndex, Window, admit,
};
use qfabric_types::Share;

use crate::sets::{numbers, tasks, window};

/// A stream of 100-byte packets on a link that sends 10 bytes per tick.
fn stream(period: u64, window: (u64, u64)) -> Stream {
    let window = Window::new(window.0, window.1).unwrap();
    Stream { period, phase: 0, bytes: 100, window, work_conserving: false, start: Some(0), limit: 8 }
}

const LINK: Rate = Rate { bytes: 10, time: 1 };

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 50_000, ..ProptestConfig::with_cases(150) })]

    /// 000 §2.4.1 (a). Windows follow each other, so x losses may end one window and x losses begin the next:
    /// between the ends of two services pass at most 2x lost periods and the two periods that were served, (2x +
    /// 2)T − C.
    #[test]
    fn an_admitted_task_waits_at_most_for_the_losses_of_two_windows(numbers in prop::collection::vec(numbers(8), 1..6)) {
        let tasks = tasks(&numbers);
        prop_assume!(admit(&tasks, Share::ONE).is_ok());
        let mut machine = Machine::new(&tasks, Policy::Dwcs);
        let mut last: Vec<u64> = tasks.iter().map(|task| task.arrival() + task.service()).collect();
        for _ in 0..1_500 {
            let Choice::Regular(TaskIndex(k)) = machine.step().run else { continue };
            let (task, now) = (&tasks[k], machine.now());
            if machine.left(TaskIndex(k)) == task.service() {
                let losses = u64::from(task.window().0);
                let bound = (2 * losses + 2) * task.period() - task.service();
                prop_assert!(now - last[k] <= bound, "{:?} waited {} > {}", task, now - last[k], bound);
                last[k] = now;
            }
        }
    }

    /// Figure 10: l_max = Θ + T, for every packet that is sent by its deadline.
    #[test]
    fn from_creation_to_sending_pass_at_most_phase_and_period(
        numbers in prop::collection::vec((numbers(12), 0u64..15, 1u64..60), 1..5),
    ) {
        let source = |(numbers, phase, bytes): &(crate::sets::Numbers, u64, u64)| {
            Source { task: numbers.task(), phase: *phase, bytes: *bytes }
        };
        let sources: Vec<Source> = numbers.iter().map(source).collect();
        let mut pair = Pair::new(&sources, LINK).unwrap();
        for now in 0..1_500 {
            let Some(sending) = pair.step() else { continue };
            let source = &sources[sending.stream.unwrap()];
            let bound = source.phase + source.task.period();
            prop_assert!(sending.tag <= sending.arrived + bound);
            prop_assert!(now > sending.tag || now - sending.arrived <= bound);
            prop_assert!(now + source.task.period() >= sending.tag, "{:?} sent before its period at {}", sending, now);
        }
    }

    /// If tasks and packets fit even with the longest packet in the way, no packet is late.
    #[test]
    fn a_pair_that_fits_sends_every_packet_in_time(
        n in 1u64..5, extra in 0u64..6, phases in prop::collection::vec(0u64..20, 4), windows in prop::collection::vec(window(), 4),
    ) {
        // Each packet takes 2 ticks of the link, each service 1 tick of the processor; one more packet may be in
        // the way.
        let period = 2 * n + 2 + extra;
        let task = |k: usize| {
            let window = Window::new(windows[k].0, windows[k].1).unwrap();
            qfabric_sched::dwcs::Task::new(period, 1, window).unwrap()
        };
        let sources: Vec<Source> =
            (0..n as usize).map(|k| Source { task: task(k), phase: phases[k], bytes: 20 }).collect();
        let mut pair = Pair::new(&sources, LINK).unwrap();
        for now in 0..1_000 {
            if let Some(sending) = pair.step() {
                let bound = sources[sending.stream.unwrap()].phase + period;
                prop_assert!(now - sending.arrived <= bound && now <= sending.tag);
            }
        }
        for (k, phase) in phases.iter().enumerate().take(n as usize) {
            let (task, stream) = (pair.task(k), pair.link().statistics(k));
            prop_assert_eq!((task.missed, stream.missed, stream.late, stream.overflow), (0, 0, 0, 0));
            prop_assert!(stream.sent + 3 + phase / period >= task.served, "{:?} {:?}", stream, task);
        }
    }
}

/// The numbers of the thesis: a period of 30 ms and a phase of 15 ms bound the latency by 45 ms.
#[test]
fn figure_10_a_packet_made_at_the_beginning_waits_at_most_45() {
    let mut packets =
        Packets::new(&[Stream { phase: 15, ..stream(30, (0, 1)) }, stream(30, (0, 1))], Rate { bytes: 10, time: 3 })
            .unwrap();
    packets.arrive(Some(0), 100, 0);
    assert_eq!(packets.next(0), Next::Wait(15));
    let Next::Send(sending) = packets.next(15) else { panic!("no packet was sent although its period has begun") };
    assert_eq!((sending.tag, sending.until), (45, 45));
}

#[test]
fn late_packets_are_dropped_within_the_window_and_beyond_it_sent_late() {
    let mut packets = Packets::new(&[stream(30, (1, 2))], LINK).unwrap();
    packets.arrive(Some(0), 100, 0);
    packets.arrive(Some(0), 100, 31);
    packets.arrive(Some(0), 100, 61);
    // The link is free at 95. The first packet was due at 30: dropped, 1/2 becomes 0/1. The second was due at 60,
    // and took the period of the third, which ended at 90: two violations, but it is sent now.
    let Next::Send(late) = packets.next(95) else { panic!("no packet was sent although two wait") };
    let counts = packets.statistics(0);
    assert_eq!((counts.late, counts.violations, counts.missed), (1, 2, 3));
    assert_eq!((late.arrived, late.tag), (31, 60));
}

#[test]
fn a_begun_packet_is_not_interrupted_and_best_effort_comes_last() {
    let mut packets = Packets::new(&[stream(30, (0, 1)), stream(20, (0, 1))], LINK).unwrap();
    packets.arrive(None, 1_000, 0);
    packets.arrive(Some(0), 100, 0);
    packets.arrive(Some(1), 100, 0);
    let mut now = 0;
    let order: Vec<_> = std::iter::from_fn(|| match packets.next(now) {
        Next::Send(sending) => {
            now = sending.until;
            Some((sending.stream, sending.until))
        }
        _ => None,
    })
    .collect();
    assert_eq!(order, [(Some(1), 10), (Some(0), 20), (None, 120)]);
}

#[test]
fn a_packet_longer_than_its_stream_promises_is_best_effort_and_a_full_queue_counts() {
    let mut packets = Packets::new(&[Stream { limit: 1, ..stream(30, (0, 1)) }], LINK).unwrap();
    assert!(packets.arrive(Some(0), 101, 0) && packets.arrive(Some(0), 100, 0));
    assert!(!packets.arrive(Some(0), 100, 0));
    assert_eq!(packets.statistics(0).overflow, 1);
    assert!(matches!(packets.next(0), Next::Send(sending) if sending.stream == Some(0)));
    assert!(matches!(packets.next(10), Next::Send(sending) if sending.stream.is_none()));
    assert_eq!(packets.next(20), Next::Idle);
}
