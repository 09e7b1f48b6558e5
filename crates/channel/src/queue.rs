//! A sink's queue: bounded in events and in bytes, ordered by priority, then by time or deadline.

use std::collections::VecDeque;
use std::sync::Arc;

use qfabric_types::Instant;
use qfabric_types::channel::Name;

use crate::event::Meta;
use crate::{Event, Limits, Order, Pressure};

/// On a channel that blocks, events of one host may take this many times the bounds of the queue. The host itself keeps
/// to the bounds once, whatever other hosts send. The rest is for events that it sent before it restarted, or before it
/// closed the channel and opened it again.
const SHARE: usize = 2;

/// The memory of buffers that is kept for later events, in bytes.
const KEPT_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Waiting {
    pub meta: Meta,
    pub host: Arc<Name>,
    /// Attributes, then the payload.
    pub bytes: Vec<u8>,
    /// The smallest key is first: 7 − priority, then time or deadline, then arrival.
    key: (u8, u64, u64),
}

#[derive(Debug)]
pub(crate) struct Queue {
    events: VecDeque<Waiting>,
    capacity: usize,
    bytes: usize,
    arrivals: u64,
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

impl Queue {
    pub(crate) fn new(capacity: u32) -> Queue {
        let capacity = capacity as usize;
        let events = VecDeque::with_capacity(capacity.min(256));
        Queue { events, capacity, bytes: 0, arrivals: 0, spare: Vec::new(), spare_bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity as u32
    }

    pub(crate) fn is_full_for(&self, bytes: usize) -> bool {
        self.events.len() >= self.capacity || self.bytes + bytes > Limits::QUEUE_BYTES
    }

    /// Inserts an event in its place; returns false if the new event was dropped. `time` orders events by submission
    /// and never decreases within one source. `dropped` is called for each event that makes room.
    pub(crate) fn push(
        &mut self,
        event: &Event<'_>,
        host: &Arc<Name>,
        time: u64,
        rules: (Order, Pressure),
        dropped: &mut dyn FnMut(&Waiting),
    ) -> bool {
        self.arrivals += 1;
        let second = match rules.0 {
            Order::Time => time,
            Order::Deadline => event.deadline.map_or(u64::MAX, Instant::get),
        };
        let key = (7 - event.priority.min(7), second, self.arrivals);
        let bytes = event.attributes.bytes().len() + event.payload.len();
        let blocks = matches!(rules.1, Pressure::Block { .. });
        while self.is_full_for(bytes) && !(blocks && self.has_share(host, bytes)) {
            let Some(older) = self.make_room(key.0, rules.1) else { return false };
            dropped(&older);
            self.give_back(older.bytes);
        }
        let waiting = self.waiting(event, host, key);
        self.bytes += waiting.bytes.len();
        let at = self.events.partition_point(|have| have.key < key);
        self.events.insert(at, waiting);
        true
    }

    /// Whether the host's share of the queue has room for another event of this number of bytes.
    fn has_share(&self, host: &Arc<Name>, bytes: usize) -> bool {
        let (mut events, mut used) = (0, bytes);
        for waiting in self.events.iter().filter(|waiting| waiting.host == *host) {
            events += 1;
            used += waiting.bytes.len();
        }
        events < SHARE * self.capacity && used <= SHARE * Limits::QUEUE_BYTES
    }

    fn waiting(&mut self, event: &Event<'_>, host: &Arc<Name>, key: (u8, u64, u64)) -> Waiting {
        let mut bytes = self.buffer();
        bytes.extend_from_slice(event.attributes.bytes());
        bytes.extend_from_slice(event.payload);
        Waiting { meta: Meta::of(event), host: host.clone(), bytes, key }
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let first = self.events.pop_front()?;
        self.bytes -= first.bytes.len();
        Some(first)
    }

    /// Removes the earliest arrival of the lowest priority, unless the new event's priority is lower still.
    fn make_room(&mut self, class: u8, pressure: Pressure) -> Option<Waiting> {
        let lowest = self.events.back()?.key.0;
        if pressure != Pressure::DropOldest || class > lowest {
            return None;
        }
        let from = self.events.partition_point(|have| have.key.0 < lowest);
        let oldest = (from..self.events.len()).min_by_key(|at| self.events[*at].key.2)?;
        let dropped = self.events.remove(oldest)?;
        self.bytes -= dropped.bytes.len();
        Some(dropped)
    }

    fn buffer(&mut self) -> Vec<u8> {
        let buffer = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= buffer.capacity();
        buffer
    }

    /// Keeps a buffer for a later event.
    pub(crate) fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare_bytes + buffer.capacity() <= KEPT_BYTES && self.spare.len() < self.capacity {
            buffer.clear();
            self.spare_bytes += buffer.capacity();
            self.spare.push(buffer);
        }
    }
}
