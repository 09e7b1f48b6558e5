//! Events that the daemon keeps while a slow sink holds their channel up, in the order of their sources.
//!
//! The client asks for this (`SubmitRequest::keep`), so that it need not wait for the answer of each event. The bound
//! is larger than the number of events that a client has under way, so the connection's other messages are read
//! meanwhile: a sink on the same connection still gets credit.
//!
//! A stream that is faster than its sink fills the channel, and then most of its events are kept for a while. So a large
//! event is not copied: it keeps the memory that it was read into.

use std::collections::{BTreeMap, VecDeque};

use qfabric_channel::SourceId;
use qfabric_types::channel_wire::{FromClient, MAX_MESSAGE};

use super::Fabric;
use super::registry::Registry;
use super::serve::is_kept;

/// A connection that has this many kept events, or bytes, is not read until some are submitted.
const EVENTS: usize = 512;
const BYTES: usize = 384 << 10;
/// From this number of bytes on, a message keeps the memory that it was read into, and the reader gets other memory:
/// cheaper than a copy, and at most twice as much memory.
const LARGE: usize = MAX_MESSAGE / 2;
/// Pieces of memory that are used again, for all connections: more than a client has events of 16 KiB without an answer
/// (192 KiB).
const SPARE: usize = 16;

/// The kept events of one connection.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Messages, the oldest first. No queue is empty.
    sources: BTreeMap<SourceId, VecDeque<Vec<u8>>>,
    events: usize,
    bytes: usize,
}

impl Held {
    pub(super) fn has(&self, source: SourceId) -> bool {
        self.sources.contains_key(&source)
    }

    pub(super) fn is_full(&self) -> bool {
        // One event of any size does not stop the connection's other messages.
        self.events >= EVENTS || self.events > 1 && self.bytes >= BYTES
    }

    /// `message` submits an event of the source.
    pub(super) fn push(&mut self, source: SourceId, message: Vec<u8>) {
        self.add(1, message.len() as isize);
        self.sources.entry(source).or_default().push_back(message);
    }

    fn take(&mut self, source: SourceId) -> Option<Vec<u8>> {
        let queue = self.sources.get_mut(&source)?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.sources.remove(&source);
        }
        let bytes = message.as_ref().map_or(0, Vec::len);
        self.add(-1, -(bytes as isize));
        message
    }

    fn put_back(&mut self, source: SourceId, message: Vec<u8>) {
        self.add(1, message.len() as isize);
        self.sources.entry(source).or_default().push_front(message);
    }

    pub(super) fn forget(&mut self, source: SourceId) {
        let gone = self.sources.remove(&source).unwrap_or_default();
        let bytes = gone.iter().map(Vec::len).sum::<usize>();
        self.add(-(gone.len() as isize), -(bytes as isize));
    }

    fn add(&mut self, events: isize, bytes: isize) {
        self.events = self.events.saturating_add_signed(events);
        self.bytes = self.bytes.saturating_add_signed(bytes);
    }
}

/// Memory of large messages that were carried out, for the next ones.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// The message of `length` bytes at the beginning of `buffer`, which has [`MAX_MESSAGE`] bytes. A large message keeps
    /// this memory, and `buffer` gets other memory of that size.
    pub(super) fn keep(&mut self, buffer: &mut Vec<u8>, length: usize) -> Vec<u8> {
        if length < LARGE {
            return buffer[..length].to_vec();
        }
        let mut kept = self.0.pop().unwrap_or_default();
        kept.resize(MAX_MESSAGE, 0);
        std::mem::swap(&mut kept, buffer);
        kept.truncate(length);
        kept
    }

    /// The message was carried out. Its memory is used again if it is of a buffer's size.
    fn give_back(&mut self, message: Vec<u8>) {
        if self.0.len() < SPARE && message.capacity() == MAX_MESSAGE {
            self.0.push(message);
        }
    }
}

impl Fabric {
    /// The source may submit again: submits its kept events until the channel is full again. False: none is kept.
    pub(super) fn submit_held(&self, registry: &mut Registry, source: SourceId) -> bool {
        let id = registry.sources.get(&source).copied().unwrap_or(0);
        let Some(lease) = registry.leases.get(&id).filter(|lease| lease.held.has(source)) else { return false };
        let was_full = lease.held.is_full();
        while let Some(message) = registry.leases.get_mut(&id).and_then(|lease| lease.held.take(source)) {
            let Some(FromClient::Submit(submit)) = FromClient::decode(&message) else { continue };
            let done = self.try_submit(registry, id, &submit);
            if !is_kept(&submit, &done) {
                self.confirm(registry, id, &submit, done);
                registry.spare.give_back(message);
                continue;
            }
            if let Some(lease) = registry.leases.get_mut(&id) {
                lease.held.put_back(source, message);
            }
            break;
        }
        if was_full {
            self.mailbox.unread(id);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::channel_wire::SubmitRequest;

    use super::*;

    fn push(held: &mut Held, source: u32, tag: u32, payload: &[u8]) {
        let (submit, mut message) = (SubmitRequest { source, tag, payload, ..SubmitRequest::default() }, Vec::new());
        FromClient::Submit(submit).encode(&mut message);
        held.push(SourceId(source), message);
    }

    fn tag(message: Option<Vec<u8>>) -> Option<u32> {
        let message = message?;
        let Some(FromClient::Submit(submit)) = FromClient::decode(&message) else { panic!("a submission") };
        Some(submit.tag)
    }

    #[test]
    fn events_stay_in_order_and_are_bounded_by_number_and_bytes() {
        let (mut held, source) = (Held::default(), SourceId(1));
        (1..=3).for_each(|number| push(&mut held, 1, number, b"data"));
        push(&mut held, 2, 9, b"data");
        let first = held.take(source).unwrap();
        held.put_back(source, first);
        assert_eq!([(); 4].map(|()| tag(held.take(source))), [Some(1), Some(2), Some(3), None]);
        assert!(!held.has(source) && held.has(SourceId(2)) && !held.is_full());
        push(&mut held, 1, 4, &vec![0; BYTES]);
        assert!(held.is_full());
        held.forget(source);
        assert!(!held.is_full());
        held.forget(SourceId(2));
        push(&mut held, 1, 5, &vec![0; BYTES]);
        assert!(!held.is_full(), "an event above the bound, alone");
        held.forget(source);
        push(&mut held, 2, 9, b"data");
        (1..EVENTS as u32).for_each(|number| push(&mut held, 1, number, &[]));
        assert!(held.is_full(), "the event of the other source counts");
        held.forget(source);
        held.forget(SourceId(2));
        assert_eq!((held.events, held.bytes), (0, 0));
    }

    #[test]
    fn a_large_event_keeps_the_memory_it_was_read_into_and_gives_it_back() {
        let (mut held, mut spare, mut buffer) = (Held::default(), Spare::default(), vec![7; MAX_MESSAGE]);
        let (source, read_into) = (SourceId(1), buffer.as_ptr());
        held.push(source, spare.keep(&mut buffer, LARGE - 1));
        assert_eq!(buffer.as_ptr(), read_into, "a copy of a small message needs less memory");
        held.push(source, spare.keep(&mut buffer, LARGE));
        assert_eq!((buffer.len(), held.bytes), (MAX_MESSAGE, 2 * LARGE - 1));
        assert_ne!(buffer.as_ptr(), read_into);
        assert_eq!(held.take(source), Some(vec![7; LARGE - 1]));
        let message = held.take(source).unwrap();
        assert_eq!((message.as_ptr(), &message[..]), (read_into, &[7; LARGE][..]));
        spare.give_back(message);
        assert_eq!(spare.keep(&mut buffer, MAX_MESSAGE).len(), MAX_MESSAGE);
        assert_eq!((buffer.as_ptr(), buffer.len()), (read_into, MAX_MESSAGE), "the next message is read into it");
    }

    #[test]
    fn memory_that_waits_for_the_next_events_is_bounded() {
        let mut spare = Spare::default();
        (0..2 * SPARE).for_each(|_| spare.give_back(vec![0; MAX_MESSAGE]));
        assert_eq!(spare.0.len(), SPARE);
        let mut spare = Spare::default();
        [1 << 20, MAX_MESSAGE + 1, 100].into_iter().for_each(|bytes| spare.give_back(vec![0; bytes]));
        assert!(spare.0.is_empty());
    }
}
