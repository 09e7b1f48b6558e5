//! The receiving half: one task for each stream.

use std::time::{Duration, Instant};

use qfabric_metp::{FrameKind, Mode};
use qfabric_types::Nanos;
use quinn::RecvStream;

use super::wire::{HEADER, Header, MessageHeader, TOO_LARGE};
use super::{Done, Message, StreamDriver};
use crate::options::nanos;

/// The longest time from a stream's begin to its header.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// A message, completely or as much of its begin as came by its deadline.
pub(super) struct Arrived {
    pub(super) number: u64,
    pub(super) kind: FrameKind,
    pub(super) mode: Mode,
    pub(super) size: usize,
    pub(super) data: Vec<u8>,
    pub(super) dropped_before: u32,
    pub(super) deadline: Option<Instant>,
    /// When the last byte came.
    pub(super) at: Instant,
    pub(super) delay: Duration,
}

impl Arrived {
    pub(super) fn is_complete(&self) -> bool {
        self.data.len() == self.size
    }

    pub(super) fn late_by(&self) -> Nanos {
        self.deadline.map_or(Nanos::ZERO, |deadline| nanos(self.at.saturating_duration_since(deadline)))
    }

    /// `None`: nothing of it came.
    pub(super) fn into_message(mut self) -> Option<Message> {
        if self.data.is_empty() {
            return None;
        }
        let (late_by, arrived) = (self.late_by(), self.data.len());
        let holes = if self.is_complete() { Vec::new() } else { std::iter::once(arrived..self.size).collect() };
        self.data.resize(self.size, 0);
        let (number, kind, data, delay) = (self.number, self.kind, self.data, nanos(self.delay));
        Some(Message { number, kind, data, holes, late_by, delay })
    }
}

impl StreamDriver {
    /// Whether another message may be received. What the application does not take fills this, then QUIC's flow control
    /// stops the sender.
    pub(super) fn has_room(&self) -> bool {
        self.receiving < self.options.messages_in_flight && self.order.bytes() < self.options.memory().get()
    }

    pub(super) fn receive(&mut self, stream: RecvStream) {
        self.receiving += 1;
        let done = self.done.clone();
        let largest = self.options.largest_message.get();
        let way = Duration::from_nanos(self.path.min_rtt.map_or(0, Nanos::get) / 2);
        let receive_time = self.options.receive_time;
        tokio::task::spawn_local(async move {
            let result = receive(stream, largest, way, receive_time).await;
            // Fails only after the end of the driver.
            let _ = done.send(result).await;
        });
    }
}

async fn receive(mut stream: RecvStream, largest: u64, way: Duration, receive_time: Option<Duration>) -> Done {
    let mut bytes = [0; HEADER];
    let read = tokio::time::timeout(HEADER_TIME, stream.read_exact(&mut bytes)).await;
    if !matches!(read, Ok(Ok(()))) {
        return Done::Nothing { is_refused: read.is_err() };
    }
    match Header::decode(&bytes, largest) {
        Some(Header::Finish { total }) => Done::PeerFinished { total },
        Some(Header::Message(header)) => Done::Arrived(message(stream, header, way, receive_time).await),
        None => {
            // Fails only if the stream has ended.
            let _ = stream.stop(TOO_LARGE.into());
            match Header::decode(&bytes, u32::MAX.into()) {
                Some(Header::Message(header)) => Done::TooLarge(nothing(header, way)),
                _ => Done::Nothing { is_refused: true },
            }
        }
    }
}

/// The message of this header, of which nothing came. Its deadline counts: if an earlier message is missing, later ones
/// wait for both.
fn nothing(header: MessageHeader, way: Duration) -> Arrived {
    let (number, kind, mode, dropped_before) = (header.number, header.kind, header.mode, header.dropped_before);
    let (size, data, at, delay) = (header.size as usize, Vec::new(), Instant::now(), Duration::ZERO);
    let deadline = header.deadline.map(|time| at + time.saturating_sub(way));
    Arrived { number, kind, mode, size, data, dropped_before, deadline, at, delay }
}

async fn message(
    mut stream: RecvStream,
    header: MessageHeader,
    way: Duration,
    receive_time: Option<Duration>,
) -> Arrived {
    let begun = Instant::now();
    let deadline = header.deadline.map(|time| begun + time.saturating_sub(way));
    let limit = receive_time.map(|time| begun + time);
    let until = [deadline, limit].into_iter().flatten().min().filter(|_| header.mode == Mode::PartiallyReliable);
    let size = header.size as usize;
    let mut data = Vec::new();
    let reading = read(&mut stream, size, &mut data);
    let is_late = match until {
        Some(until) => tokio::time::timeout_at(until.into(), reading).await.is_err(),
        None => {
            reading.await;
            false
        }
    };
    if is_late {
        let _ = stream.stop(0u32.into());
    }
    let at = Instant::now();
    let (number, kind, mode, dropped_before) = (header.number, header.kind, header.mode, header.dropped_before);
    Arrived { number, kind, mode, size, data, dropped_before, deadline, at, delay: at - begun + way }
}

/// Reads until the message is complete, or the stream is reset.
async fn read(stream: &mut RecvStream, size: usize, data: &mut Vec<u8>) {
    while data.len() < size {
        match stream.read_chunk((size - data.len()).min(CHUNK), true).await {
            Ok(Some(chunk)) => data.extend_from_slice(&chunk.bytes),
            Ok(None) | Err(_) => return,
        }
    }
    // The end belongs to the message: only then has the sender all its bytes acknowledged.
    let _ = stream.read_chunk(1, true).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_large_keeps_its_deadline() {
        let (kind, mode, deadline) = (FrameKind::P, Mode::PartiallyReliable, Some(Duration::from_millis(50)));
        let header = MessageHeader { number: 1, kind, mode, size: 9, dropped_before: 0, deadline };
        let refused = nothing(header, Duration::from_millis(10));
        assert_eq!(refused.deadline, Some(refused.at + Duration::from_millis(40)));
    }
}
