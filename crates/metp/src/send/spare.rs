//! Memory of settled messages, for the next ones: on the steady path, no message allocates.

use super::message::{OutgoingMessage, Tpdu};

#[derive(Debug, Default)]
pub(super) struct Spare {
    data: Vec<Vec<u8>>,
    tpdus: Vec<Vec<Tpdu>>,
    /// Capacity of all `data`.
    bytes: usize,
}

impl Spare {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory for a message of `size` bytes, empty: the first one that is large enough, or the last one.
    pub(super) fn take(&mut self, size: usize) -> (Vec<u8>, Vec<Tpdu>) {
        let index = self.data.iter().position(|data| data.capacity() >= size).or(self.data.len().checked_sub(1));
        let mut data = index.map(|index| self.data.swap_remove(index)).unwrap_or_default();
        self.bytes -= data.capacity();
        data.clear();
        data.reserve_exact(size);
        (data, self.tpdus.pop().unwrap_or_default())
    }

    /// Keeps a message's memory, at most `most` bytes of data and `messages` lists.
    pub(super) fn keep(&mut self, message: OutgoingMessage, most: u64, messages: usize) {
        let capacity = message.data.capacity();
        if (self.bytes + capacity) as u64 <= most && self.data.len() < messages {
            self.bytes += capacity;
            self.data.push(message.data);
        }
        if self.tpdus.len() < messages {
            self.tpdus.push(message.tpdus);
        }
    }
}
