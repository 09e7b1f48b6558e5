//! Work for descriptors in the network's own thread.
#![cfg(feature = "zenoh")]

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};

use qfabric_link::{Attending, attend, one_receive_thread};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

/// What happens at a descriptor: whether the other end is closed. The channel ends with the work.
struct Attended {
    attending: Attending,
    turns: Receiver<bool>,
    far: OwnedFd,
}

/// After a number of packets have arrived.
fn attended(packets: usize) -> Attended {
    // Begins the tests anew if there is no single thread yet.
    one_receive_thread();
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    let (near, far) = socketpair(family, SocketType::SEQPACKET, flags, None).unwrap();
    (0..packets).for_each(|_| arrive(&far));
    let (turn, turns): (Sender<bool>, Receiver<bool>) = channel();
    let failed = |thread: &'static str, message: String| eprintln!("{thread}: {message}");
    // A test that is over receives nothing more.
    let report = move |is_closed| {
        let _ = turn.send(is_closed);
    };
    let attending = attend(near, report, failed).unwrap();
    Attended { attending: attending.expect("there is a single thread"), turns, far }
}

/// Nobody reads it.
fn arrive(far: &OwnedFd) {
    assert_eq!(send(far, &[0], SendFlags::empty()), Ok(1));
}

#[test]
fn each_arrival_has_a_turn_while_earlier_ones_are_unread_and_the_end_is_the_last() {
    let Attended { attending: _attending, turns, far } = attended(0);
    for _ in 0..3 {
        arrive(&far);
        assert_eq!(turns.recv(), Ok(false));
    }
    drop(far);
    assert_eq!(turns.recv(), Ok(true));
    assert!(turns.recv().is_err(), "the end can be seen for ever, but has one turn");
}

#[test]
fn what_arrived_before_has_a_turn() {
    let Attended { attending: _attending, turns, far: _far } = attended(2);
    assert_eq!(turns.recv(), Ok(false));
}

#[test]
fn an_arrival_has_a_turn_at_its_own_descriptor_only() {
    let (quiet, other) = (attended(0), attended(0));
    arrive(&other.far);
    assert_eq!(other.turns.recv(), Ok(false));
    drop(quiet.attending);
    assert!(quiet.turns.recv().is_err(), "the work ended without a turn");
    arrive(&other.far);
    assert_eq!(other.turns.recv(), Ok(false));
}
