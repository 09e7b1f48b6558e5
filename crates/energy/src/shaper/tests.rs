//! Bursts against brute force, and the rules of §6.3.1 one by one.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn packet(id: u64, ready: u64, deadline: u64, transmission: u64) -> Packet {
    Packet { id, stream: Some(0), bytes: 1_000, ready, deadline, transmission, urgent: false }
}

fn shaper() -> Shaper {
    Shaper::new(&[Window::new(1, 4).unwrap()], 64)
}

/// Sends until the burst ends; returns each packet with the begin of its transmission, and the end.
fn send(shaper: &mut Shaper, mut now: u64) -> (Vec<(u64, u64)>, u64) {
    let mut sent = Vec::new();
    while let Some(packet) = shaper.next(now) {
        sent.push((packet.id, now));
        now += packet.transmission;
    }
    (sent, now)
}

#[test]
fn three_packets_leave_as_one_burst_at_the_last_moment() {
    let mut shaper = shaper();
    for (id, at) in [(0, 0), (1, 67 * MS), (2, 133 * MS)] {
        shaper.arrive(packet(id, at, at + 200 * MS, 6 * MS), at).unwrap();
    }
    assert_eq!(shaper.next_wakeup(), Some(200 * MS));
    assert!(shaper.next(199 * MS).is_none());
    let (sent, end) = send(&mut shaper, 200 * MS);
    assert_eq!(sent, [(0, 200 * MS), (1, 206 * MS), (2, 212 * MS)]);
    assert_eq!((shaper.next_wakeup(), shaper.late(), end), (None, 0, 218 * MS));
}

#[test]
fn a_burst_begins_earlier_if_a_later_packet_would_be_late() {
    let mut shaper = shaper();
    shaper.arrive(packet(0, 0, 100 * MS, 10 * MS), 0).unwrap();
    shaper.arrive(packet(1, 0, 105 * MS, 10 * MS), 0).unwrap();
    assert_eq!(shaper.next_wakeup(), Some(95 * MS));
    let (sent, _) = send(&mut shaper, 95 * MS);
    assert_eq!(sent, [(0, 95 * MS), (1, 105 * MS)]);
}

#[test]
fn a_packet_that_is_not_ready_waits_for_a_burst_of_its_own() {
    let mut shaper = shaper();
    shaper.arrive(packet(0, 0, 50 * MS, 5 * MS), 0).unwrap();
    shaper.arrive(packet(1, 80 * MS, 120 * MS, 5 * MS), 0).unwrap();
    assert_eq!(send(&mut shaper, 50 * MS).0, [(0, 50 * MS)]);
    assert_eq!(shaper.next_wakeup(), Some(120 * MS));
}

#[test]
fn best_effort_follows_the_burst_and_waits_at_most_its_patience() {
    let mut shaper = shaper();
    let best_effort = Packet { stream: None, ..packet(9, 0, u64::MAX, MS) };
    shaper.arrive(best_effort, 0).unwrap();
    assert_eq!(shaper.next_wakeup(), Some(PATIENCE_NS));
    shaper.arrive(packet(1, 0, 60 * MS, MS), 0).unwrap();
    assert_eq!(send(&mut shaper, 60 * MS).0, [(1, 60 * MS), (9, 61 * MS)]);
}

#[test]
fn an_urgent_packet_takes_all_ready_packets_with_it() {
    let mut shaper = shaper();
    shaper.arrive(packet(0, 0, 100 * MS, MS), 0).unwrap();
    shaper.arrive(packet(1, 50 * MS, 100 * MS, MS), 0).unwrap();
    shaper.arrive(Packet { urgent: true, ..packet(2, 0, 300 * MS, MS) }, 10 * MS).unwrap();
    assert_eq!(send(&mut shaper, 10 * MS).0, [(2, 10 * MS), (0, 11 * MS)]);
    assert_eq!(shaper.next_wakeup(), Some(100 * MS));
}

#[test]
fn violations_move_bursts_forward() {
    let mut shaper = Shaper::new(&[Window::new(0, 1).unwrap()], 64);
    shaper.arrive(packet(0, 0, 10 * MS, MS), 0).unwrap();
    assert_eq!(send(&mut shaper, 12 * MS).0, [(0, 12 * MS)]);
    assert_eq!((shaper.late(), shaper.offset()), (1, MS));
    shaper.arrive(packet(1, 20 * MS, 50 * MS, MS), 20 * MS).unwrap();
    assert_eq!(shaper.next_wakeup(), Some(49 * MS));
}

#[test]
fn without_delay_every_packet_leaves_when_it_is_ready() {
    let mut shaper = shaper().without_delay();
    shaper.arrive(packet(0, 5 * MS, 100 * MS, MS), 0).unwrap();
    assert_eq!(shaper.next_wakeup(), Some(5 * MS));
    assert_eq!(send(&mut shaper, 5 * MS).0, [(0, 5 * MS)]);
}

#[test]
fn a_full_queue_refuses_and_names_its_limit() {
    let mut shaper = Shaper::new(&[Window::new(0, 1).unwrap()], 2);
    let best_effort = Packet { stream: None, ..packet(9, 0, 0, 1) };
    for id in 0..2 {
        shaper.arrive(packet(id, 0, MS, 1), 0).unwrap();
        shaper.arrive(best_effort, 0).unwrap();
    }
    assert_eq!(shaper.arrive(packet(3, 0, MS, 1), 0), Err(QueueFull { limit: 2 }));
    assert!(shaper.arrive(best_effort, 0).unwrap_err().to_string().contains("holds 2 packets"));
}

#[test]
fn a_packet_that_is_not_ready_at_the_start_still_leaves_the_others_in_time() {
    let mut shaper = shaper();
    for (id, ready, deadline, transmission) in [(0, 170, 180, 10), (1, 0, 200, 50), (2, 0, 205, 50)] {
        shaper.arrive(packet(id, ready * MS, deadline * MS, transmission * MS), 0).unwrap();
    }
    assert_eq!(shaper.next_wakeup(), Some(130 * MS));
    assert_eq!(send(&mut shaper, 130 * MS).0, [(1, 130 * MS), (0, 180 * MS), (2, 190 * MS)]);
    assert_eq!(shaper.late(), 0);
}

#[test]
fn urgent_best_effort_stays_urgent_when_another_packet_arrives() {
    let mut shaper = shaper();
    let best_effort = Packet { stream: None, ..packet(9, 0, u64::MAX, MS) };
    shaper.arrive(Packet { urgent: true, ..best_effort }, 10 * MS).unwrap();
    shaper.arrive(packet(1, 0, 300 * MS, MS), 10 * MS).unwrap();
    assert_eq!(shaper.next_wakeup(), Some(10 * MS));
    assert_eq!(send(&mut shaper, 10 * MS).0, [(1, 10 * MS), (9, 11 * MS)]);
    assert_eq!(shaper.next_wakeup(), None);
}

#[test]
fn an_urgent_packet_that_is_not_ready_wakes_the_card_when_it_is() {
    let mut shaper = shaper();
    shaper.arrive(Packet { urgent: true, ..packet(0, 50 * MS, 300 * MS, MS) }, 0).unwrap();
    assert_eq!(shaper.next_wakeup(), Some(50 * MS));
}

/// Whether all packets begin in time if they are sent back to back from `start` on, in some order.
fn feasible(packets: &[Packet], start: u64) -> bool {
    fn orders(left: &[Packet], now: u64) -> bool {
        left.is_empty()
            || (0..left.len()).any(|at| {
                let mut rest = left.to_vec();
                let packet = rest.remove(at);
                now <= packet.deadline && packet.ready <= now && orders(&rest, now + packet.transmission)
            })
    }
    orders(packets, start)
}

/// Number of late packets if the card sends from `start` on, each time the first one that is ready, and waits if none is.
fn lateness(sorted: &[Packet], start: u64) -> usize {
    let (mut left, mut now, mut late) = (sorted.to_vec(), start, 0);
    while !left.is_empty() {
        match left.iter().position(|packet| packet.ready <= now) {
            Some(at) => {
                let packet = left.remove(at);
                late += usize::from(now > packet.deadline);
                now += packet.transmission;
            }
            None => now += 1,
        }
    }
    late
}

fn packets(most_ready: u64) -> impl Strategy<Value = Vec<Packet>> {
    let one = (0..=most_ready, 0u64..60, 1u64..12);
    prop::collection::vec(one, 1..=5).prop_map(|all| {
        let packet = |(id, (ready, slack, transmission))| packet(id as u64, ready, 40 + ready + slack, transmission);
        all.into_iter().enumerate().map(packet).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// If all packets are ready, t_w is the latest start at which they begin in time in the order of DWCS. If they are
    /// equally long, no other order begins later.
    #[test]
    fn the_watchdog_is_the_latest_feasible_start(packets in packets(0), length in 1u64..12) {
        let mut sorted = packets;
        sorted.sort_by_key(|packet| packet.deadline);
        let in_order = |start: &u64| lateness(&sorted, *start) == 0;
        let latest = (0..=100).rev().find(in_order);
        latest.map_or(Ok(()), |latest| { prop_assert_eq!(latest_start(&sorted, 0, 0), Some(latest)); Ok(()) })?;
        sorted.iter_mut().for_each(|packet| packet.transmission = length);
        if let Some(any_order) = (0..=100).rev().find(|&start| feasible(&sorted, start)) {
            prop_assert_eq!(latest_start(&sorted, 0, 0), Some(any_order));
        }
    }

    /// With ready times, t_w is the latest of all starts at which no packet is late, each tried; and if packets are late
    /// at every start, no start has fewer.
    #[test]
    fn with_ready_times_the_watchdog_is_the_latest_start_without_a_late_packet(packets in packets(60)) {
        let mut sorted = packets;
        sorted.sort_by_key(|packet| packet.deadline);
        let earliest = sorted.iter().map(|packet| packet.ready).min().unwrap();
        let tried = (earliest..=200).map(|start| (lateness(&sorted, start), start));
        let (fewest, _) = tried.clone().min().unwrap();
        let chosen = latest_start(&sorted, earliest, 0).unwrap();
        prop_assert_eq!(lateness(&sorted, chosen), fewest);
        if fewest == 0 {
            prop_assert_eq!(Some(chosen), tried.filter(|(late, _)| *late == 0).map(|(_, start)| start).max());
        }
    }

    /// No packet begins before its ready time, and none is late if some start of the first burst allows that.
    #[test]
    fn a_burst_respects_ready_times_and_deadlines(packets in packets(60)) {
        let mut shaper = shaper();
        for &packet in &packets {
            shaper.arrive(packet, 0).unwrap();
        }
        let mut sorted = packets.clone();
        sorted.sort_by_key(|packet| packet.deadline);
        while let Some(start) = shaper.next_wakeup() {
            for (id, begin) in send(&mut shaper, start).0 {
                prop_assert!(begin >= packets[id as usize].ready);
            }
        }
        if (0..=200).any(|start| lateness(&sorted, start) == 0) {
            prop_assert_eq!(shaper.late(), 0);
        }
    }
}
