//! Tests of the mechanism for older kernels on real interfaces: classes of a hierarchical token bucket (HTB) with the
//! project's classifier. They run on every kernel with HTB, BPF classifiers and veth.

mod net_common;

use std::time::{Duration, Instant};

use net_common::{Folder, Pair, Sender, root, spec, wait_for_packets};
use qfabric_linux::net::{Attachment, NetError};
use qfabric_types::api::net::{AttachRequest, NetMechanism, Selector, StreamChange};
use qfabric_types::{Nanos, Window};

fn request(rate_bps: u64) -> AttachRequest {
    AttachRequest { mechanism: Some(NetMechanism::Htb), rate_bps: Some(rate_bps), ..AttachRequest::default() }
}

#[test]
fn each_stream_has_a_class_and_the_former_discipline_is_restored() {
    let Some(_live) = root() else { return };
    let (pair, mut book) = (Pair::new("htb"), Folder::book());
    let before = pair.root();
    let mut attachment = Attachment::attach(pair.near(), &request(100_000_000), &mut book).unwrap();
    assert_eq!(pair.root(), "htb");
    let marked = attachment.begin(&spec(300, 10, 4)).unwrap();
    let sender = Sender::to(&pair, 0);
    let mut by_flow = spec(9, 10, 4);
    by_flow.selector = Selector::Flow(sender.flow());
    let flow = attachment.begin(&by_flow).unwrap();
    (0..3).for_each(|_| Sender::to(&pair, 300).send(300));
    (0..2).for_each(|_| sender.send(300));
    Sender::to(&pair, 77).send(300);
    assert_eq!(pair.received_within(Duration::from_secs(60), 6).len(), 6);
    assert_eq!((attachment.counters(marked).sent, attachment.counters(flow).sent), (3, 2));
    assert!(attachment.best_effort_counters().sent >= 1);
    attachment.end(marked).unwrap();
    Sender::to(&pair, 300).send(300);
    wait_for_packets();
    assert_eq!(attachment.counters(flow).sent, 2, "packets of an ended stream are best effort");
    attachment.detach(&mut book).unwrap();
    assert_eq!(pair.root(), before);
}

#[test]
fn a_class_keeps_its_rate_and_a_change_takes_effect_at_once() {
    let Some(_live) = root() else { return };
    let (pair, mut book) = (Pair::new("rate"), Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100_000_000), &mut book).unwrap();
    let mut at_first = spec(5, 20, 1);
    at_first.limit = 100;
    let id = attachment.begin(&at_first).unwrap();
    let sender = Sender::to(&pair, 5);
    // The time until the first few of 100 packets have come, and until the others have, with another period.
    let mut times = |first: usize, period_ms: u64| {
        let begun = Instant::now();
        (0..100).for_each(|_| sender.send(1_000));
        assert_eq!(pair.received_within(Duration::from_secs(60), first).len(), first);
        let (of_first, period) = (begun.elapsed(), Some(Nanos::from_millis(period_ms)));
        let changed = attachment.spec(id).unwrap().changed(&StreamChange { period, ..StreamChange::default() });
        attachment.change(id, &changed).unwrap();
        let begun = Instant::now();
        assert_eq!(pair.received_within(Duration::from_secs(60), 100 - first).len(), 100 - first);
        (of_first, begun.elapsed())
    };
    // 1,514 bytes per 20 ms make a packet of 1,042 bytes in 13.8 ms, after the first two.
    let (slow, mut fast) = times(40, 1);
    assert!(slow >= Duration::from_millis(400), "40 packets in {slow:?}");
    // Without the change, 60 packets take 828 ms. On a starving machine, one of several attempts takes less.
    for _ in 0..20 {
        if fast < Duration::from_millis(500) {
            return;
        }
        times(100, 20);
        fast = times(40, 1).1;
    }
    panic!("60 packets took {fast:?} at one per millisecond");
}

#[test]
fn a_changed_limit_holds_for_the_packets_that_wait() {
    let Some(_live) = root() else { return };
    let (pair, mut book) = (Pair::new("limit"), Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100_000_000), &mut book).unwrap();
    // Two packets leave at once, and the next one 20 s later.
    let mut slow = spec(5, 60_000, 1);
    slow.limit = 10;
    let id = attachment.begin(&slow).unwrap();
    let sender = Sender::to(&pair, 5);
    (0..40).for_each(|_| sender.send(1_000));
    assert_eq!(attachment.counters(id).waiting, 10);
    let limit = Some(20);
    let longer = slow.changed(&StreamChange { limit, ..StreamChange::default() });
    attachment.change(id, &longer).unwrap();
    assert_eq!(attachment.counters(id).waiting, 10, "the packets that waited still wait");
    (0..40).for_each(|_| sender.send(1_000));
    assert_eq!(attachment.counters(id).waiting, 20);
    attachment.detach(&mut book).unwrap();
}

#[test]
fn a_stream_ends_although_another_program_has_replaced_the_discipline() {
    let Some(_live) = root() else { return };
    let (pair, mut book) = (Pair::new("gone"), Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100_000_000), &mut book).unwrap();
    let id = attachment.begin(&spec(5, 20, 1)).unwrap();
    pair.pfifo();
    attachment.end(id).unwrap();
    assert_eq!(attachment.streams().count(), 0);
    attachment.detach(&mut book).unwrap();
    assert_eq!(pair.root(), "pfifo", "the discipline of the other program stays");
}

#[test]
fn a_stream_ends_although_a_discipline_without_classes_has_the_handle_now() {
    let Some(_live) = root() else { return };
    let (pair, mut book) = (Pair::new("class"), Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(100_000_000), &mut book).unwrap();
    let id = attachment.begin(&spec(5, 20, 1)).unwrap();
    pair.pfifo_with_our_handle();
    attachment.end(id).unwrap();
    assert_eq!(attachment.streams().count(), 0);
}

/// A class drops no late packet, so that a window saves nothing: the stream needs C in every T.
#[test]
fn a_class_offers_no_window_and_no_phase() {
    let Some(_live) = root() else { return };
    let (pair, mut book) = (Pair::new("window"), Folder::book());
    let mut attachment = Attachment::attach(pair.near(), &request(10_000_000), &mut book).unwrap();
    let mut asked = spec(5, 20, 1);
    asked.window = Window::new(1, 2).unwrap();
    asked.phase = Nanos::from_millis(5);
    let id = attachment.begin(&asked).unwrap();
    let effective = attachment.spec(id).unwrap().clone();
    assert_eq!((effective.window, effective.phase, effective.period), (Window::NONE, Nanos::ZERO, asked.period));
    let stream = &attachment.info().streams[0];
    let utilization = effective.service(10_000_000).as_f64() / effective.period.as_f64();
    assert!((stream.utilization - utilization).abs() < 1e-9, "{stream:?}");
    attachment.change(id, &asked).unwrap();
    assert_eq!(attachment.spec(id).unwrap().window, Window::NONE);
    attachment.detach(&mut book).unwrap();
}

#[test]
fn without_bpf_queues_htb_is_used_and_the_reason_is_reported() {
    let Some(_live) = root() else { return };
    if qfabric_linux::net::supported().is_ok() {
        return;
    }
    let (pair, mut book) = (Pair::new("auto"), Folder::book());
    let asked = AttachRequest { rate_bps: Some(10_000_000), ..AttachRequest::default() };
    let attachment = Attachment::attach(pair.near(), &asked, &mut book).unwrap();
    let info = attachment.info();
    assert_eq!(info.mechanism, NetMechanism::Htb);
    let why = info.instead.unwrap();
    assert!(
        why.contains("6.16") && !why.contains("--htb"),
        "the reason must not recommend what is already in use: {why}"
    );
    attachment.detach(&mut book).unwrap();
    let dwcs = AttachRequest { mechanism: Some(NetMechanism::Dwcs), ..asked };
    let refusal = Attachment::attach(pair.near(), &dwcs, &mut book).unwrap_err();
    assert!(matches!(refusal, NetError::NoDwcs { .. }) && pair.root() == "noqueue", "{refusal}");
}

#[test]
fn a_missing_interface_and_one_without_a_rate_are_refused() {
    let Some(_live) = root() else { return };
    let mut book = Folder::book();
    let none = Attachment::attach("qf-none", &request(1_000_000), &mut book).unwrap_err();
    assert!(none.to_string().contains("qf-none") && none.to_string().contains("lo"), "{none}");
    let silent = Attachment::attach("lo", &AttachRequest::default(), &mut book).unwrap_err();
    assert!(matches!(silent, NetError::NoRate { .. }) && silent.to_string().contains("--rate"), "{silent}");
    let slow = Attachment::attach("lo", &request(10), &mut book).unwrap_err();
    assert!(slow.to_string().contains("from 1000"), "{slow}");
}
