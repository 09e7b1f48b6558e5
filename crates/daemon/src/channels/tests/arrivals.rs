//! Events that frames bring: the thread that receives them hands them over, or leaves them to the socket's thread.

use super::*;

/// An event waits for a reader with credit, and nothing says so to the socket's thread.
fn with_waiting_event(host: &Host) -> (SinkId, End) {
    let (alice, end) = host.reader(ALICE);
    alice.create("video").unwrap();
    let (source, sink) = (alice.source("video").unwrap(), alice.sink("video").unwrap());
    alice.reads(sink, 10);
    host.turn();
    assert_eq!(alice.submit(source, 1), 1);
    host.fabric.mailbox.take(&mut Noted::default());
    (sink, end)
}

#[test]
fn an_arrival_is_handed_over_at_once_if_the_registry_is_free() {
    let host = Host::start(Vec::new());
    let (sink, mut end) = with_waiting_event(&host);
    let mut arrived = vec![sink];
    host.fabric.hand_over(&mut arrived);
    assert_eq!((came(&mut end), arrived.len()), (vec![1], 0));
}

#[test]
fn an_arrival_is_left_to_the_sockets_thread_while_the_registry_is_in_use() {
    let host = Host::start(Vec::new());
    let (sink, mut end) = with_waiting_event(&host);
    let (fabric, registry, mut arrived) = (&host.fabric, host.fabric.registry(), vec![sink]);
    // The thread that has the lock cannot try to take it.
    std::thread::scope(|scope| scope.spawn(|| fabric.hand_over(&mut arrived)).join()).unwrap();
    drop(registry);
    assert_eq!((came(&mut end), arrived.len()), (vec![], 0), "the receiving thread does not wait");
    host.turn();
    assert_eq!(came(&mut end), [1]);
}

#[test]
fn an_arrival_before_the_service_answers_is_left_to_the_sockets_thread() {
    let host = Host::start(Vec::new());
    let (sink, mut end) = with_waiting_event(&host);
    host.fabric.mailbox.ready_by_arrival(sink);
    let mut arrived = Vec::new();
    host.fabric.mailbox.take_arrived(&mut arrived);
    assert_eq!((came(&mut end), arrived.len()), (vec![], 0));
    host.turn();
    assert_eq!(came(&mut end), [1]);
}
