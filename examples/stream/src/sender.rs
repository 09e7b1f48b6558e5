//! The sending end: in every period computes a frame, then sends it.

use std::io;
use std::net::UdpSocket;

use qfabric_linux::clock;
use qfabric_types::Instant;

use crate::pace::{Shape, sleep_until};
use crate::packet::{Head, PAYLOAD, pieces};

/// Sends all frames over a connected socket; `render` computes one. Frames whose whole period has passed are left
/// out. Answers how many were sent.
pub fn send(socket: &UdpSocket, shape: &Shape, start: Instant, mut render: impl FnMut(u32)) -> io::Result<u32> {
    let (mut frame, mut sent) = (0, 0);
    while frame < shape.frames {
        let release = shape.release(start, frame);
        sleep_until(release);
        render(frame);
        transmit(socket, shape, frame, release)?;
        sent += 1;
        let passed = clock::now().since(start).get() / shape.period.get();
        frame = (frame + 1).max(passed as u32);
    }
    Ok(sent)
}

fn transmit(socket: &UdpSocket, shape: &Shape, frame: u32, release: Instant) -> io::Result<()> {
    let (pieces, _) = pieces(shape.bytes);
    let mut packet = [0; PAYLOAD];
    for piece in 0..pieces {
        Head { frame, piece, pieces, release }.write(&mut packet);
        match socket.send(&packet) {
            // Nobody listens yet, or the queue is full: a lost packet, as on any network.
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused) || e.raw_os_error() == Some(NO_BUFFERS) => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// ENOBUFS: the interface's queue refused the packet.
const NO_BUFFERS: i32 = 105;
