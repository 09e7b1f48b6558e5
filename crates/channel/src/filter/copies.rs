//! Payloads that differ from sink to sink: what a sink's own filters have changed, for that sink alone.

/// Changed payloads, by seat. Memory is used again: the way of an event allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// In no order: there are as many as sinks with a filter of their own that changes events.
    of: Vec<(usize, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Copies {
    /// Every sink gets the common payload again.
    pub fn clear(&mut self) {
        self.spare.extend(self.of.drain(..).map(|(_, payload)| payload));
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.of.iter().map(|(seat, payload)| (*seat, &payload[..]))
    }

    /// What the sink at that seat gets instead of the common payload.
    pub fn get(&self, seat: usize) -> Option<&[u8]> {
        let found = self.of.iter().find(|(at, _)| *at == seat);
        found.map(|(_, payload)| &payload[..])
    }

    /// The payload of that seat to be changed further; empty: it has the common one.
    pub fn take(&mut self, seat: usize) -> Vec<u8> {
        if let Some(at) = self.of.iter().position(|(at, _)| *at == seat) {
            return self.of.swap_remove(at).1;
        }
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        payload
    }

    /// What that seat gets from now on; empty: the common payload.
    pub fn put(&mut self, seat: usize, payload: Vec<u8>) {
        match payload.is_empty() {
            true => self.spare.push(payload),
            false => self.of.push((seat, payload)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seats_payload_is_its_own_and_goes_with_the_event() {
        let mut copies = Copies::default();
        let payload = copies.take(3);
        copies.put(3, [&payload[..], b"x"].concat());
        let untouched = copies.take(4);
        copies.put(4, untouched);
        assert_eq!((copies.get(3), copies.get(4)), (Some(&b"x"[..]), None));
        let payload = copies.take(3);
        copies.put(3, [&payload[..], b"y"].concat());
        assert_eq!(copies.get(3), Some(&b"xy"[..]));
        copies.clear();
        assert!(copies.iter().next().is_none() && copies.take(3).is_empty());
    }
}
