//! Events under way to the daemon that nobody waits for: submitted by [`super::Source::submit_queued`] and not answered.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use qfabric_types::channel_wire::{FromClient, SubmitRequest};

use super::connection::{Inner, State};
use crate::error::ClientError;

/// The most events under way on one connection, and their bytes. The daemon keeps more than this for a connection, so
/// that it never stops reading the connection's other messages.
const EVENTS: usize = 256;
const BYTES: usize = 192 << 10;

/// Events without an answer, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Queued {
    events: VecDeque<Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    tag: u32,
    source: u32,
    bytes: usize,
}

impl Queued {
    fn has_room(&self, bytes: usize) -> bool {
        self.events.is_empty() || self.events.len() < EVENTS && self.bytes + bytes <= BYTES
    }

    /// A thread that found no room waits for this, so that it is not woken for each event.
    fn is_half_empty(&self) -> bool {
        self.events.len() <= EVENTS / 2 && self.bytes <= BYTES / 2
    }

    fn add(&mut self, submit: &SubmitRequest<'_>) {
        let bytes = submit.payload.len();
        self.events.push_back(Entry { tag: submit.tag, source: submit.source, bytes });
        self.bytes += bytes;
    }

    /// An answer has come. Does nothing if the event is not queued.
    pub(super) fn answered(&mut self, tag: u32) {
        // Answers come in the order of a source's events.
        let at = self.events.iter().position(|event| event.tag == tag);
        let event = at.and_then(|at| self.events.remove(at));
        self.bytes -= event.map_or(0, |event| event.bytes);
    }

    /// The source has ended: no more answers come for it.
    pub(super) fn forget(&mut self, source: u32) {
        self.events.retain(|event| event.source != source);
        self.bytes = self.events.iter().map(|event| event.bytes).sum();
    }

    fn waits_for(&self, source: u32) -> bool {
        self.events.iter().any(|event| event.source == source)
    }
}

impl Inner {
    /// Sends an event that the daemon keeps while a slow sink holds the channel up. False: no room within `patience`.
    pub(super) fn send_queued(&self, submit: SubmitRequest<'_>, patience: Duration) -> Result<bool, ClientError> {
        self.own()?;
        let add = |state: &mut State| {
            state.inbox.queued.add(&submit);
            self.send_with(state, &FromClient::Submit(submit))
        };
        // Answers are read only if there is no room: a client that does not sleep is not woken for each of them.
        let mut state = self.state();
        if state.inbox.queued.has_room(submit.payload.len()) {
            return add(&mut state).map(|()| true);
        }
        drop(state);
        let sent = self.wait_until(Instant::now() + patience, |state| match state.inbox.queued.is_half_empty() {
            true => add(state).map(Some),
            false => Ok(None),
        })?;
        Ok(sent.is_some())
    }

    /// Waits until all queued events of the source have answers. False: not within `patience`.
    pub(super) fn drain(&self, source: u32, patience: Duration) -> Result<bool, ClientError> {
        let until = Instant::now() + patience;
        let done = self.wait_until(until, |state| Ok((!state.inbox.queued.waits_for(source)).then_some(())))?;
        Ok(done.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(tag: u32, source: u32, payload: &[u8]) -> SubmitRequest<'_> {
        SubmitRequest { tag, source, payload, ..SubmitRequest::default() }
    }

    #[test]
    fn bytes_and_events_under_way_are_bounded_and_answers_make_room() {
        let mut queued = Queued::default();
        assert!(queued.has_room(1 << 20), "an event above the bound goes alone");
        let payload = vec![0; BYTES / 2];
        queued.add(&submit(1, 7, &payload));
        queued.add(&submit(2, 8, &payload));
        assert!(!queued.has_room(1));
        queued.answered(9);
        queued.answered(2);
        assert!(queued.has_room(BYTES / 2) && !queued.has_room(BYTES / 2 + 1));
        assert!(queued.waits_for(7) && !queued.waits_for(8));
        queued.forget(7);
        (0..EVENTS as u32).for_each(|tag| queued.add(&submit(tag, 9, &[])));
        assert!(!queued.has_room(0));
    }
}
