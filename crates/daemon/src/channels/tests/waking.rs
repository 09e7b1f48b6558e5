//! Which descriptor wakes the socket's thread when a connection sends something.

use std::mem::MaybeUninit;

use rustix::event::Timespec;
use rustix::event::epoll;

use super::connections::submitting;
use super::*;

/// The numbers of the descriptors at which something has happened.
fn woken(host: &Host) -> Vec<u64> {
    let (now, mut space) = (Timespec { tv_sec: 0, tv_nsec: 0 }, [const { MaybeUninit::uninit() }; 8]);
    let (happened, _) = epoll::wait(&host.fabric.sockets.epoll, &mut space[..], Some(&now)).unwrap();
    happened.iter().map(|event| event.data.u64()).collect()
}

/// Begins to wait for the connection, as when it is accepted.
fn watch(host: &Host, user: User<'_>) {
    let mut registry = host.fabric.registry();
    let lease = registry.leases.get_mut(&user.lease).unwrap();
    host.fabric.watch(lease, user.lease).unwrap();
}

/// Without a thread of the network, the socket's thread learns from the wake-up itself which connection it is.
#[test]
fn a_connection_wakes_the_sockets_thread_by_its_own_number() {
    let host = Host::start(Vec::new());
    let (bob, _quiet) = host.reader(BOB);
    let (alice, End(mut duplex, socket), message, heard) = submitting(&host);
    [bob, alice].into_iter().for_each(|user| watch(&host, user));
    let mut buffer = vec![0; MAX_MESSAGE];
    host.fabric.read_messages(alice.lease, &mut buffer, None);
    assert!(woken(&host).is_empty());
    for number in 1..=3 {
        assert!(duplex.send(&socket, &message).unwrap());
        assert_eq!(woken(&host), [alice.lease]);
        assert!(woken(&host).is_empty(), "an unread packet wakes the thread once");
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
        assert_eq!(heard(), number);
    }
}

#[test]
fn a_connection_stays_with_the_sockets_thread_if_there_is_no_other() {
    let host = Host::start(Vec::new());
    let (alice, End(mut duplex, socket), message, _heard) = submitting(&host);
    watch(&host, alice);
    let mut buffer = vec![0; MAX_MESSAGE];
    host.fabric.read_messages(alice.lease, &mut buffer, None);
    for is_busy in [true, false] {
        let mut registry = host.fabric.registry();
        let lease = registry.leases.get_mut(&alice.lease).unwrap();
        lease.habit.is_busy = is_busy;
        host.fabric.move_to(lease, alice.lease);
        assert!(lease.attending.is_none() && lease.habit.is_busy == is_busy);
        drop(registry);
        assert!(duplex.send(&socket, &message).unwrap());
        assert_eq!(woken(&host), [alice.lease]);
        host.fabric.serve_lease(alice.lease, EventFlags::IN, &mut buffer, None);
    }
}

#[test]
fn the_end_of_a_connection_is_not_reported_after_it_was_removed() {
    let host = Host::start(Vec::new());
    let (alice, End(_duplex, socket)) = host.reader(ALICE);
    watch(&host, alice);
    host.fabric.sockets.unwatch(host.fabric.registry().leases.get_mut(&alice.lease).unwrap());
    drop(socket);
    assert!(woken(&host).is_empty());
}
