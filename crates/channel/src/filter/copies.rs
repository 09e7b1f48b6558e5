//! Payloads that differ from sink to sink, because filters for a single sink have changed them.

use super::changed::Changed;

/// Changed payloads, by seat. The memory is reused, so that delivering an event allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Unordered; one entry for each sink whose own filter changes events.
    of: Vec<(usize, Changed)>,
    spare: Vec<Changed>,
}

impl Copies {
    /// Gives every sink the common payload again.
    pub(crate) fn clear(&mut self) {
        self.spare.extend(self.of.drain(..).map(|(_, changed)| changed));
    }

    /// Unordered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.of.iter().map(|(seat, changed)| (*seat, changed.payload(&[])))
    }

    /// The payload for the sink at this seat; `None`: the common one.
    pub(crate) fn get(&self, seat: usize) -> Option<&[u8]> {
        let found = self.of.iter().find(|(at, _)| *at == seat);
        found.map(|(_, changed)| changed.payload(&[]))
    }

    /// Removes the seat's payload for further editing; it is unchanged if the seat has the common payload.
    pub(crate) fn take(&mut self, seat: usize) -> Changed {
        if let Some(at) = self.of.iter().position(|(at, _)| *at == seat) {
            return self.of.swap_remove(at).1;
        }
        let mut changed = self.spare.pop().unwrap_or_default();
        changed.clear();
        changed
    }

    /// Sets the seat's payload; if it is unchanged, the seat has the common payload.
    pub(crate) fn put(&mut self, seat: usize, changed: Changed) {
        match changed.is_changed() {
            true => self.of.push((seat, changed)),
            false => self.spare.push(changed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seats_payload_is_its_own_and_goes_with_the_event() {
        let mut copies = Copies::default();
        let mut changed = copies.take(3);
        changed.edit(b"event").push(b'x');
        copies.put(3, changed);
        let untouched = copies.take(4);
        copies.put(4, untouched);
        assert_eq!((copies.get(3), copies.get(4)), (Some(&b"eventx"[..]), None));
        let mut changed = copies.take(3);
        changed.edit(b"event").clear();
        copies.put(3, changed);
        assert_eq!(copies.get(3), Some(&b""[..]), "an empty payload is a change");
        copies.clear();
        assert!(copies.iter().next().is_none() && !copies.take(3).is_changed());
    }
}
