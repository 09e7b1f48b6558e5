//! The sender: in every period it computes a frame and then sends it.

use std::io;
use std::net::UdpSocket;

use qfabric_linux::clock;
use qfabric_types::Instant;

use crate::pace::{Shape, sleep_until};
use crate::packet::{Head, PAYLOAD, pieces};

/// Sends all frames over a connected socket; `render` computes one frame. A frame is skipped if its whole period
/// has passed. Returns the number of frames sent.
pub fn send(socket: &UdpSocket, shape: &Shape, start: Instant, mut render: impl FnMut(u32)) -> io::Result<u32> {
    let (mut frame, mut sent) = (0, 0);
    while frame < shape.frames {
        let release = shape.release(start, frame);
        sleep_until(release);
        render(frame);
        transmit(socket, shape, frame, release)?;
        sent += 1;
        let passed = clock::now().since(start).get() / shape.period.get().max(1);
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
            // No program listens yet, or the queue is full. The packet counts as lost, as on any network.
            Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused) || e.raw_os_error() == Some(NO_BUFFERS) => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// ENOBUFS: the queue of the interface refused the packet.
const NO_BUFFERS: i32 = 105;
