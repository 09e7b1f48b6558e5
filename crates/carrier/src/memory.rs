//! A carrier within one process, for tests: two queues of bounded length.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::carrier::{Carrier, CarrierCounts, CarrierKind, Path, Sent};

/// Datagrams that wait in one direction; the next one is refused.
const LONGEST_QUEUE: usize = 256;

#[derive(Default)]
struct Queue {
    datagrams: VecDeque<Vec<u8>>,
    reader: Option<Waker>,
    is_closed: bool,
}

impl Queue {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// One end.
pub(crate) struct MemoryCarrier {
    out: Rc<RefCell<Queue>>,
    input: Rc<RefCell<Queue>>,
    max_datagram: usize,
    counts: CarrierCounts,
}

/// Both ends of a path whose datagrams have at most `max_datagram` bytes.
pub(crate) fn memory_pair(max_datagram: usize) -> (MemoryCarrier, MemoryCarrier) {
    let (there, back) = (Rc::<RefCell<Queue>>::default(), Rc::<RefCell<Queue>>::default());
    let end = |out: &Rc<RefCell<Queue>>, input: &Rc<RefCell<Queue>>| MemoryCarrier {
        out: out.clone(),
        input: input.clone(),
        max_datagram,
        counts: CarrierCounts::default(),
    };
    (end(&there, &back), end(&back, &there))
}

impl Carrier for MemoryCarrier {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Memory
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    fn path(&mut self) -> Path {
        Path { max_datagram: self.max_datagram, ..Path::default() }
    }

    fn send(&mut self, datagram: &[u8]) -> Sent {
        let mut out = self.out.borrow_mut();
        if out.is_closed {
            return Sent::Closed;
        }
        if datagram.len() > self.max_datagram {
            return Sent::TooLarge;
        }
        if out.datagrams.len() >= LONGEST_QUEUE {
            self.counts.refused += 1;
            return Sent::Full;
        }
        self.counts.sent += 1;
        self.counts.sent_bytes += datagram.len() as u64;
        out.datagrams.push_back(datagram.to_vec());
        out.wake();
        Sent::Yes
    }

    fn has_room(&self) -> bool {
        true
    }

    fn poll_room(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut Vec<u8>) -> Poll<bool> {
        let mut input = self.input.borrow_mut();
        if let Some(datagram) = input.datagrams.pop_front() {
            self.counts.received += 1;
            self.counts.received_bytes += datagram.len() as u64;
            buffer.extend_from_slice(&datagram);
            return Poll::Ready(true);
        }
        if input.is_closed {
            return Poll::Ready(false);
        }
        input.reader = Some(context.waker().clone());
        Poll::Pending
    }

    fn counts(&self) -> CarrierCounts {
        self.counts
    }

    fn close(&mut self, _reason: &str) {
        for queue in [&self.out, &self.input] {
            let mut queue = queue.borrow_mut();
            queue.is_closed = true;
            queue.wake();
        }
    }
}
