//! Connects to the configured hosts until it succeeds.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use qfabric_channel::Lane;

use super::{Plain, socket};
use crate::Address;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// An address to connect to, and the lanes on which it is connected.
pub(super) struct Wanted {
    address: Address,
    connected: [AtomicBool; 2],
}

/// A new connection for the event thread.
pub(super) struct Dialed {
    pub socket: OwnedFd,
    pub lane: Lane,
    /// Index in the list of wanted addresses.
    pub wanted: usize,
}

impl Wanted {
    pub(super) fn new(address: &Address) -> Wanted {
        Wanted { address: address.clone(), connected: Default::default() }
    }

    /// The connection has ended: connect again.
    pub(super) fn lost(&self, lane: Lane) {
        self.connected[lane as usize].store(false, Ordering::Release);
    }

    fn is_connected(&self, lane: Lane) -> bool {
        self.connected[lane as usize].load(Ordering::Acquire)
    }
}

/// The thread that connects.
pub(super) fn run(plain: &Plain) {
    while !plain.is_closing() {
        for wanted in 0..plain.wanted.len() {
            call(plain, wanted, Lane::Control);
            call(plain, wanted, Lane::Data);
        }
        thread::sleep(PAUSE);
    }
}

fn call(plain: &Plain, index: usize, lane: Lane) {
    let wanted = &plain.wanted[index];
    if wanted.is_connected(lane) {
        return;
    }
    let Ok(socket) = socket::call(&wanted.address) else { return };
    wanted.connected[lane as usize].store(true, Ordering::Release);
    plain.dialed.lock().push(Dialed { socket, lane, wanted: index });
    plain.wake();
}
