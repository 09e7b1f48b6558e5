//! Tests of the queueing discipline with real packets on a veth link. They need root and a kernel with queueing
//! disciplines in BPF (6.16 or newer). Elsewhere each test prints that it is skipped and passes; in the test machine
//! (QFABRIC_VM=1) a skip is a failure.

mod net_common;

use std::time::Duration;

use net_common::{Pair, Sender, dwcs, spec, wait_for_packets};
use qfabric_linux::net::testing::{Frames, frame};
use qfabric_linux::net::{Attachment, Book, NetError};
use qfabric_types::api::net::{AttachRequest, Flow, NetMechanism, Selector, StreamChange};
use qfabric_types::{Nanos, Share, Window};

const MEGABIT: u64 = 1_000_000;

fn request(rate_bps: u64) -> AttachRequest {
    AttachRequest { mechanism: Some(NetMechanism::Dwcs), rate_bps: Some(rate_bps), ..AttachRequest::default() }
}

#[test]
fn packets_pass_and_the_former_discipline_is_restored() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("pass"), net_common::Folder::book());
    let before = pair.root();
    let attachment = Attachment::attach(pair.near(), &request(10 * MEGABIT), &mut book).unwrap();
    assert!(pair.root().starts_with("qf_dwcs"), "{}", pair.root());
    let sender = Sender::to(&pair, 0);
    (0..20).for_each(|_| sender.send(200));
    assert_eq!(pair.received_within(Duration::from_secs(60), 20).len(), 20);
    assert!(attachment.best_effort_counters().sent >= 20);
    attachment.detach(&mut book).unwrap();
    assert_eq!(pair.root(), before);
}

#[test]
fn a_second_attachment_is_refused_and_the_first_continues() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("twice"), net_common::Folder::book());
    let _first = Attachment::attach(pair.near(), &request(MEGABIT), &mut book).unwrap();
    let refusal = Attachment::attach(pair.near(), &request(MEGABIT), &mut book).unwrap_err();
    assert!(matches!(refusal, NetError::Attached { .. }), "{refusal}");
    Sender::to(&pair, 0).send(100);
    assert_eq!(pair.received_within(Duration::from_secs(60), 1).len(), 1);
}

#[test]
fn the_queue_of_an_interface_is_refused_on_another_one_at_each_attempt() {
    let Some(_live) = dwcs() else { return };
    let (pair, other, mut book) = (Pair::new("owner"), Pair::new("other"), net_common::Folder::book());
    let before = other.root();
    let _attachment = Attachment::attach(pair.near(), &request(MEGABIT), &mut book).unwrap();
    for attempt in 0..3 {
        assert!(other.set_root(&pair.root()).is_err(), "attempt {attempt}");
    }
    assert_eq!(other.root(), before);
}

#[test]
fn a_former_discipline_is_restored_with_its_options() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("former"), net_common::Folder::book());
    pair.pfifo();
    let before = pair.root_with_options();
    let attachment = Attachment::attach(pair.near(), &request(MEGABIT), &mut book).unwrap();
    drop(attachment);
    assert_eq!(pair.root_with_options(), before);
}

#[test]
fn streams_are_sent_by_deadline_and_best_effort_last() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("order"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(MEGABIT), &mut book).unwrap();
    let far = attachment.begin(&spec(1, 400, 1)).unwrap();
    let near = attachment.begin(&spec(2, 200, 1)).unwrap();
    let (best, late, early) = (Sender::to(&pair, 0), Sender::to(&pair, 1), Sender::to(&pair, 2));
    // The first packet occupies the link, so that all others wait at the same time: 1,000 bytes at 1 Mbit/s take 8 ms.
    best.send(1_000);
    (0..3).for_each(|_| best.send(1_000));
    late.send(1_000);
    early.send(1_000);
    let marks: Vec<_> = pair.received_within(Duration::from_secs(60), 6).iter().map(|packet| packet.mark).collect();
    assert_eq!(marks.iter().filter(|mark| **mark == 0).count(), 4);
    let at = |mark| marks.iter().position(|m| *m == mark).unwrap();
    assert!(at(2) < at(1) && at(1) < 4, "{marks:?}");
    for id in [near, far] {
        let counters = attachment.counters(id);
        assert_eq!((counters.sent, counters.missed), (1, 0));
    }
}

#[test]
fn an_admitted_stream_keeps_its_window_under_a_flood_of_best_effort() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("flood"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(4 * MEGABIT), &mut book).unwrap();
    let id = attachment.begin(&spec(1, 20, 1)).unwrap();
    let (flood, stream) = (Sender::to(&pair, 0), Sender::to(&pair, 1));
    for _ in 0..50 {
        (0..20).for_each(|_| flood.send(1_000));
        stream.send(1_000);
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for_packets();
    let (counters, best) = (attachment.counters(id), attachment.best_effort_counters());
    assert_eq!((counters.violations, counters.missed, counters.sent), (0, 0, 50));
    assert!(best.overflow > 0 || best.waiting > 0 || best.sent > 300, "the flood did not fill the link: {best:?}");
    assert!(Nanos::new(counters.delay_max_ns) < Nanos::from_millis(20), "{counters:?}");
}

#[test]
fn late_packets_are_dropped_as_the_window_allows() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("late"), net_common::Folder::book());
    // 1,042 bytes occupy the link for 27.8 ms: together the streams need 111 % of it, 83 % with their windows.
    let mut attachment = Attachment::attach(pair.near(), &request(300_000), &mut book).unwrap();
    let firm = attachment.begin(&spec(1, 50, 1)).unwrap();
    let mut lossy = spec(2, 50, 1);
    lossy.window = Window::new(1, 2).unwrap();
    let lossy = attachment.begin(&lossy).unwrap();
    let senders = [Sender::to(&pair, 1), Sender::to(&pair, 2)];
    for _ in 0..30 {
        senders.iter().for_each(|sender| sender.send(1_000));
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(200));
    let (firm, lossy) = (attachment.counters(firm), attachment.counters(lossy));
    assert_eq!((firm.violations, firm.late, firm.sent), (0, 0, 30), "{firm:?}");
    assert!(lossy.late > 0 && lossy.late == lossy.missed, "{lossy:?}");
    assert_eq!((lossy.violations, lossy.late + lossy.sent), (0, 30), "{lossy:?}");
}

#[test]
fn late_packets_that_the_window_must_not_lose_are_sent_late() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("beyond"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100_000), &mut book).unwrap();
    let id = attachment.begin(&spec(1, 50, 1)).unwrap();
    let sender = Sender::to(&pair, 1);
    // A packet of 1,042 bytes occupies the link for 83.36 ms; a period is 50 ms, and C admits one packet. All six
    // packets arrive in the first arrival period, so all are tagged 50. By the machine's table (ms since the first
    // packet):
    //
    //   sent at | d before | missed        | head that no longer fits: served, d
    //      0    |    50    |               | 100
    //     83.36 |   100    |               | 150
    //    166.72 |   150    | one, d = 200  | 250
    //    250.08 |   250    | one, d = 300  | 350
    //    333.44 |   350    |               | 400
    //    416.80 |   400    | one, d = 450  | none: the period stays begun
    //
    // Three violations: a violation advances d by T, and so does the packet sent after it. All but the first are late.
    (0..6).for_each(|_| sender.send(1_000));
    std::thread::sleep(Duration::from_millis(700));
    let counters = attachment.counters(id);
    assert_eq!((counters.sent, counters.sent_late, counters.late), (6, 5, 0), "{counters:?}");
    assert_eq!((counters.served, counters.missed, counters.violations), (5, 3, 3), "{counters:?}");
}

#[test]
fn a_packet_waits_for_its_phase_and_not_much_longer() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("phase"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100 * MEGABIT), &mut book).unwrap();
    let mut phased = spec(1, 40, 1);
    phased.phase = Nanos::from_millis(15);
    let id = attachment.begin(&phased).unwrap();
    let sender = Sender::to(&pair, 1);
    for _ in 0..10 {
        sender.send(500);
        std::thread::sleep(Duration::from_millis(40));
    }
    let counters = attachment.counters(id);
    // The first packet begins the periods, so it waits for the whole phase. The timers of the test machine are coarse.
    assert_eq!((counters.sent, counters.missed), (10, 0), "{counters:?}");
    let (most, mean) = (Nanos::new(counters.delay_max_ns), Nanos::new(counters.delay_sum_ns / 10));
    assert!(most >= Nanos::from_millis(14) && most < Nanos::from_millis(55), "{most}");
    assert!(mean < Nanos::from_millis(25), "{mean}");
}

#[test]
fn held_packets_are_sent_in_one_burst_before_the_first_deadline() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("hold"), net_common::Folder::book());
    let hold = Some(Nanos::from_millis(20));
    let held = AttachRequest { hold, ..request(100 * MEGABIT) };
    let mut attachment = Attachment::attach(pair.near(), &held, &mut book).unwrap();
    let ids = [1, 2, 3].map(|mark| attachment.begin(&spec(mark, 100, 1)).unwrap());
    for mark in [1, 2, 3] {
        Sender::to(&pair, mark).send(500);
        std::thread::sleep(Duration::from_millis(10));
    }
    let received = pair.received_within(Duration::from_secs(60), 3);
    assert_eq!(received.len(), 3);
    assert_eq!(attachment.info().bursts, 1);
    let first = Nanos::new(attachment.counters(ids[0]).delay_max_ns);
    assert!(first >= Nanos::from_millis(79) && first < Nanos::from_millis(100), "{first}");
}

#[test]
fn a_stream_can_be_changed_while_packets_pass() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("change"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100 * MEGABIT), &mut book).unwrap();
    let id = attachment.begin(&spec(1, 40, 1)).unwrap();
    let sender = Sender::to(&pair, 1);
    sender.send(500);
    let phase = Some(Nanos::from_millis(60));
    let changed = attachment.spec(id).unwrap().changed(&StreamChange { phase, ..StreamChange::default() });
    attachment.change(id, &changed).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    sender.send(500);
    std::thread::sleep(Duration::from_millis(150));
    let counters = attachment.counters(id);
    assert_eq!(counters.sent, 2, "{counters:?}");
    assert!(Nanos::new(counters.delay_max_ns) >= Nanos::from_millis(59), "{counters:?}");
}

#[test]
fn a_streams_packets_beyond_c_wait_for_the_next_period_unless_it_is_work_conserving() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("extra"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100 * MEGABIT), &mut book).unwrap();
    let plain = attachment.begin(&spec(1, 40, 1)).unwrap();
    let mut eager = spec(2, 40, 1);
    eager.work_conserving = true;
    let eager = attachment.begin(&eager).unwrap();
    for mark in [1, 2] {
        let sender = Sender::to(&pair, mark);
        (0..4).for_each(|_| sender.send(1_000));
    }
    wait_for_packets();
    let (plain, eager) = (attachment.counters(plain), attachment.counters(eager));
    assert!(plain.sent < 4 && plain.waiting > 0, "{plain:?}");
    assert_eq!((eager.sent, eager.sent_extra), (4, 3), "{eager:?}");
}

#[test]
fn best_effort_keeps_its_share_under_greedy_streams() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("share"), net_common::Folder::book());
    let half = AttachRequest { best_effort: Some(Share::from_ppm(300_000)), ..request(4 * MEGABIT) };
    let mut attachment = Attachment::attach(pair.near(), &half, &mut book).unwrap();
    let mut greedy = spec(1, 10, 20);
    greedy.work_conserving = true;
    let id = attachment.begin(&greedy).unwrap();
    let (best, stream) = (Sender::to(&pair, 0), Sender::to(&pair, 1));
    for _ in 0..40 {
        (0..10).for_each(|_| stream.send(1_000));
        (0..10).for_each(|_| best.send(1_000));
        std::thread::sleep(Duration::from_millis(10));
    }
    let (real, best) = (attachment.counters(id).sent_bytes, attachment.best_effort_counters().sent_bytes);
    let share = best as f64 / (real + best) as f64;
    assert!((0.25..0.4).contains(&share), "{share}: {best} of {real} + {best} bytes");
}

#[test]
fn flows_and_cgroups_select_streams_as_marks_do() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("flows"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100 * MEGABIT), &mut book).unwrap();
    let sender = Sender::to(&pair, 0);
    let mut by_flow = spec(9, 40, 4);
    by_flow.selector = Selector::Flow(sender.flow());
    let flow = attachment.begin(&by_flow).unwrap();
    sender.send(500);
    wait_for_packets();
    assert_eq!(attachment.counters(flow).sent, 1);
    attachment.end(flow).unwrap();
    let group = net_common::Cgroup::enter("qf-net");
    let mut by_group = spec(9, 40, 4);
    by_group.selector = Selector::Cgroup(group.path());
    let id = attachment.begin(&by_group).unwrap();
    Sender::to(&pair, 0).send(500);
    wait_for_packets();
    assert_eq!(attachment.counters(id).sent, 1);
}

#[test]
fn ipv6_flows_are_classified_by_addresses_and_ports() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("six"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100 * MEGABIT), &mut book).unwrap();
    let mut by_flow = spec(9, 40, 4);
    let flow: Flow = "udp,[fd00::1]:5000,[fd00::2]:6000".parse().unwrap();
    by_flow.selector = Selector::Flow(flow);
    let id = attachment.begin(&by_flow).unwrap();
    let frames = Frames::at(pair.ifindex(), 0).unwrap();
    for other in
        ["udp,[fd00::1]:5001,[fd00::2]:6000", "udp,[fd00::1]:5000,[fd00::3]:6000", "tcp,[fd00::1]:5000,[fd00::2]:6000"]
    {
        frames.send(&frame(&other.parse().unwrap(), &[0; 100])).unwrap();
    }
    (0..3).for_each(|_| frames.send(&frame(&flow, &[0; 100])).unwrap());
    wait_for_packets();
    assert_eq!(attachment.counters(id).sent, 3);
}

#[test]
fn a_mark_in_use_is_refused_with_the_stream_that_has_it() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("taken"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(MEGABIT), &mut book).unwrap();
    attachment.begin(&spec(7, 40, 1)).unwrap();
    let refusal = attachment.begin(&spec(7, 80, 1)).unwrap_err();
    assert!(refusal.to_string().contains("already has the packets of mark 7"), "{refusal}");
    for mark in 100..163 {
        attachment.begin(&spec(mark, 40_000, 1)).unwrap();
    }
    let full = attachment.begin(&spec(200, 40, 1)).unwrap_err();
    assert!(matches!(full, NetError::Full { most: 64, .. }), "{full}");
}

#[test]
fn streams_can_begin_and_end_under_load_and_packets_still_arrive() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("churn"), net_common::Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(20 * MEGABIT), &mut book).unwrap();
    let senders: Vec<_> = (1..=8).map(|mark| Sender::to(&pair, mark)).collect();
    for round in 0..60u32 {
        let id = attachment.begin(&spec(round % 8 + 1, 10, 2)).unwrap();
        senders.iter().for_each(|sender| sender.send(700));
        if round % 2 == 0 {
            let faster = attachment.spec(id).unwrap().changed(&StreamChange { size: Some(900), ..Default::default() });
            attachment.change(id, &faster).unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
        attachment.end(id).unwrap();
    }
    let received = pair.received_within(Duration::from_secs(2), 480);
    assert!(received.len() >= 400, "{} of 480: at most late packets may be lost", received.len());
    attachment.detach(&mut book).unwrap();
}

#[test]
fn many_interfaces_are_scheduled_independently() {
    let Some(_live) = dwcs() else { return };
    let mut book = net_common::Folder::book();
    let pairs: Vec<_> = (0..8).map(|at| Pair::new(&format!("many{at}"))).collect();
    let mut attachments: Vec<_> =
        pairs.iter().map(|pair| Attachment::attach(pair.near(), &request(10 * MEGABIT), &mut book).unwrap()).collect();
    for (at, (pair, attachment)) in pairs.iter().zip(&mut attachments).enumerate() {
        let id = attachment.begin(&spec(1, 40, 4)).unwrap();
        (0..=at as u32 % 4).for_each(|_| Sender::to(pair, 1).send(300));
        wait_for_packets();
        assert_eq!(attachment.counters(id).sent, at as u64 % 4 + 1);
    }
}

#[test]
fn detaching_under_load_leaves_a_working_interface() {
    let Some(_live) = dwcs() else { return };
    let (pair, mut book) = (Pair::new("load"), net_common::Folder::book());
    for _ in 0..5 {
        let mut attachment = Attachment::attach(pair.near(), &request(MEGABIT), &mut book).unwrap();
        attachment.begin(&spec(1, 40, 1)).unwrap();
        let (best, stream) = (Sender::to(&pair, 0), Sender::to(&pair, 1));
        (0..200).for_each(|_| best.send(1_000));
        (0..20).for_each(|_| stream.send(1_000));
        attachment.detach(&mut book).unwrap();
    }
    let _ = pair.received_within(Duration::from_millis(100), usize::MAX);
    Sender::to(&pair, 0).send(100);
    assert_eq!(pair.received_within(Duration::from_secs(60), 1).len(), 1);
    assert_eq!(pair.root(), "noqueue");
}

#[test]
fn the_attachments_of_a_killed_service_are_removed() {
    let Some(_live) = dwcs() else { return };
    let (pair, folder) = (Pair::new("killed"), net_common::Folder::new());
    let mut book = Book::open(folder.path());
    let attachment = Attachment::attach(pair.near(), &request(MEGABIT), &mut book).unwrap();
    std::mem::forget(attachment);
    let restored = qfabric_linux::net::restore(folder.path()).unwrap();
    assert_eq!((restored.interfaces, restored.failed.len()), (1, 0));
    assert_eq!(pair.root(), "noqueue");
}
