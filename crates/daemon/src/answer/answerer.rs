//! The side that receives: acknowledges every message of which all parts have arrived.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::wire::{LONGEST, MOST_PARTS, MessageId, Part};

/// Interval at which the thread checks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);

/// The parts of one message that have arrived.
#[derive(Debug)]
struct Arriving {
    of: MessageId,
    parts: u16,
    arrived: [bool; MOST_PARTS as usize],
    count: u16,
    last: Instant,
}

/// The newest message of each sender.
#[derive(Debug, Default)]
pub struct Answerer {
    senders: HashMap<SocketAddr, Arriving>,
}

impl Answerer {
    /// Largest number of senders whose messages are kept; the one that was silent longest is forgotten.
    pub const MOST_SENDERS: usize = 64;

    /// Number of senders whose messages are kept.
    pub fn senders(&self) -> usize {
        self.senders.len()
    }

    /// Takes a datagram; returns the acknowledgment if it completes a message.
    pub fn take(&mut self, from: SocketAddr, datagram: &[u8], now: Instant) -> Option<[u8; 12]> {
        let part = Part::read(datagram)?;
        self.make_room(from);
        let begin =
            || Arriving { of: part.of, parts: part.parts, arrived: [false; MOST_PARTS as usize], count: 0, last: now };
        let message = self.senders.entry(from).or_insert_with(begin);
        if (message.of, message.parts) != (part.of, part.parts) {
            *message = begin();
        }
        message.last = now;
        let arrived = &mut message.arrived[usize::from(part.index)];
        if std::mem::replace(arrived, true) {
            return None;
        }
        message.count += 1;
        (message.count == message.parts).then(|| part.of.acknowledgment())
    }

    fn make_room(&mut self, from: SocketAddr) {
        if self.senders.len() < Self::MOST_SENDERS || self.senders.contains_key(&from) {
            return;
        }
        let silent = self.senders.iter().min_by_key(|(_, message)| message.last).map(|(sender, _)| *sender);
        silent.and_then(|sender| self.senders.remove(&sender));
    }

    /// Answers until `stop` is set; returns the number of acknowledged messages.
    pub fn run(&mut self, socket: &UdpSocket, stop: &AtomicBool) -> std::io::Result<u64> {
        socket.set_read_timeout(Some(LOOK))?;
        let (mut datagram, mut answered) = ([0; LONGEST + 1], 0);
        while !stop.load(Ordering::Relaxed) {
            let (length, from) = match socket.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error) if is_for_a_moment(&error) => continue,
                Err(error) => return Err(error),
            };
            if let Some(answer) = self.take(from, &datagram[..length], Instant::now()) {
                // A lost acknowledgment counts as a lost message at the sender.
                answered += u64::from(socket.send_to(&answer, from).is_ok());
            }
        }
        Ok(answered)
    }
}

/// Nothing arrived, a signal came, or an earlier acknowledgment found its receiver closed.
pub fn is_for_a_moment(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn datagrams(number: u32, bytes: u64) -> Vec<Vec<u8>> {
        let parts = Part::all(MessageId { run: 1, number }, bytes);
        let datagram = |(part, length): (Part, usize)| {
            let mut datagram = vec![0; length];
            part.write(&mut datagram);
            datagram
        };
        parts.map(datagram).collect()
    }

    #[test]
    fn a_message_is_acknowledged_once_when_its_last_part_has_arrived_in_any_order() {
        let (mut answerer, now) = (Answerer::default(), Instant::now());
        let message = datagrams(5, 4_000);
        let take = |answerer: &mut Answerer, datagram: &[u8]| answerer.take(from(1), datagram, now).is_some();
        assert!(!take(&mut answerer, &message[2]) && !take(&mut answerer, &message[0]));
        assert!(!take(&mut answerer, &message[0]), "repeated");
        assert!(take(&mut answerer, &message[1]) && !take(&mut answerer, &message[1]));
        assert!(!take(&mut answerer, &message[0]) && !take(&mut answerer, b"nonsense"));
        assert!(take(&mut answerer, &datagrams(6, 1)[0]), "the next message takes its place");
    }

    #[test]
    fn senders_are_bounded_and_the_silent_one_is_forgotten() {
        let (mut answerer, now) = (Answerer::default(), Instant::now());
        let message = datagrams(5, 4_000);
        for sender in 0..200u16 {
            let later = now + Duration::from_millis(sender.into());
            assert!(answerer.take(from(sender + 1), &message[0], later).is_none());
            assert!(answerer.senders() <= Answerer::MOST_SENDERS);
        }
        assert!(answerer.senders.contains_key(&from(200)) && !answerer.senders.contains_key(&from(1)));
    }
}
