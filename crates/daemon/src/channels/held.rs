//! Events that the daemon keeps while a slow sink holds their channel up, in the order of their sources.
//!
//! The client asks for this (`SubmitRequest::keep`), so that it need not wait for the answer of each event. The bound
//! is larger than the number of events that a client has under way, so the connection's other messages are read
//! meanwhile: a sink on the same connection still gets credit.

use std::collections::{BTreeMap, VecDeque};

use qfabric_channel::SourceId;
use qfabric_types::channel_wire::{FromClient, SubmitRequest};

use super::Fabric;
use super::registry::Registry;
use super::serve::is_kept;

/// A connection that has this many kept events, or bytes, is not read until some are submitted.
const EVENTS: usize = 512;
const BYTES: usize = 384 << 10;

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

    pub(super) fn push(&mut self, submit: SubmitRequest<'_>) {
        let mut message = Vec::new();
        FromClient::Submit(submit).encode(&mut message);
        self.add(1, message.len() as isize);
        self.sources.entry(SourceId(submit.source)).or_default().push_back(message);
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
    use super::*;

    fn submit(source: u32, tag: u32, payload: &[u8]) -> SubmitRequest<'_> {
        SubmitRequest { source, tag, payload, keep: true, ..SubmitRequest::default() }
    }

    fn tag(message: Option<Vec<u8>>) -> Option<u32> {
        let message = message?;
        let Some(FromClient::Submit(submit)) = FromClient::decode(&message) else { panic!("a submission") };
        Some(submit.tag)
    }

    #[test]
    fn events_stay_in_order_and_are_bounded_by_number_and_bytes() {
        let (mut held, source) = (Held::default(), SourceId(1));
        (1..=3).for_each(|number| held.push(submit(1, number, b"data")));
        held.push(submit(2, 9, b"data"));
        let first = held.take(source).unwrap();
        held.put_back(source, first);
        assert_eq!([(); 4].map(|()| tag(held.take(source))), [Some(1), Some(2), Some(3), None]);
        assert!(!held.has(source) && held.has(SourceId(2)) && !held.is_full());
        held.push(submit(1, 4, &vec![0; BYTES]));
        assert!(held.is_full());
        held.forget(source);
        assert!(!held.is_full());
        held.forget(SourceId(2));
        held.push(submit(1, 5, &vec![0; BYTES]));
        assert!(!held.is_full(), "an event above the bound, alone");
        held.forget(source);
        held.push(submit(2, 9, b"data"));
        (1..EVENTS as u32).for_each(|number| held.push(submit(1, number, &[])));
        assert!(held.is_full(), "the event of the other source counts");
        held.forget(source);
        held.forget(SourceId(2));
        assert_eq!((held.events, held.bytes), (0, 0));
    }
}
