//! The receiver: it assembles frames from packets and records when each frame was complete.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_types::{Instant, Nanos};

use crate::packet::{Head, PAYLOAD};

/// A frame whose packets have all arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub frame: u32,
    /// Release of the frame at the sender.
    pub release: Instant,
    /// Arrival of the last packet.
    pub end: Instant,
}

/// Receives one stream. Packets arrive in order (one path, one queue), so a frame with a gap is never completed.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    /// Number of the frame that is being assembled, and the number of its packets that have arrived.
    current: (u32, u16),
}

impl Receiver {
    /// Creates a receiver on a bound socket.
    pub fn new(socket: UdpSocket) -> Receiver {
        Receiver { socket, current: (u32::MAX, 0) }
    }

    /// Receives until `end`. Returns all frames that were completed.
    pub fn until(mut self, end: Instant) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::new();
        let mut packet = [0; PAYLOAD];
        loop {
            let left = end.since(clock::now());
            if left == Nanos::ZERO {
                return Ok(arrivals);
            }
            self.socket.set_read_timeout(Some(Duration::from_nanos(left.get())))?;
            match self.socket.recv(&mut packet) {
                Ok(length) => arrivals.extend(self.take(&packet[..length], clock::now())),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn take(&mut self, packet: &[u8], now: Instant) -> Option<Arrival> {
        let Head { frame, piece, pieces, release } = Head::read(packet)?;
        if self.current.0 != frame {
            self.current = (frame, 0);
        }
        // A gap before this packet, or a packet that the network repeats.
        if piece != self.current.1 {
            return None;
        }
        self.current.1 = piece.checked_add(1)?;
        (self.current.1 == pieces).then_some(Arrival { frame, release, end: now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shape, send};

    fn packet(frame: u32, piece: u16) -> [u8; PAYLOAD] {
        let mut packet = [0; PAYLOAD];
        Head { frame, piece, pieces: 2, release: Instant::new(1) }.write(&mut packet);
        packet
    }

    #[test]
    fn a_frame_is_complete_with_its_last_packet_and_never_with_a_gap() {
        let mut receiver = Receiver::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut take =
            |frame, piece| receiver.take(&packet(frame, piece), Instant::new(9)).map(|arrival| arrival.frame);
        assert_eq!((take(0, 0), take(0, 1)), (None, Some(0)));
        assert_eq!((take(1, 1), take(2, 0), take(2, 1)), (None, None, Some(2)));
        assert_eq!((take(3, 0), take(3, 0), take(3, 1)), (None, None, Some(3)), "a repeated packet does not count");
        assert_eq!((take(4, u16::MAX), take(3, 1)), (None, None));
    }

    #[test]
    fn every_frame_that_is_sent_on_an_idle_host_arrives() {
        let receiving = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sending = UdpSocket::bind("127.0.0.1:0").unwrap();
        sending.connect(receiving.local_addr().unwrap()).unwrap();
        let shape = Shape { period: Nanos::from_millis(5), phase: Nanos::ZERO, bytes: 4_000, frames: 20 };
        let start = clock::now();
        let receiver = Receiver::new(receiving);
        let receiver_thread = std::thread::spawn(move || receiver.until(start + Nanos::from_millis(200)).unwrap());
        let sent = send(&sending, &shape, start, |_| ()).unwrap();
        let frames: Vec<_> = receiver_thread.join().unwrap().iter().map(|arrival| arrival.frame).collect();
        assert_eq!(frames.len() as u32, sent);
        assert!(frames.is_sorted());
    }
}
