//! A payload as filters have changed it.

/// Whether a payload was changed, and to what. Memory is used again: the way of an event allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    bytes: Vec<u8>,
    is_changed: bool,
}

impl Changed {
    /// The next payload is not changed yet.
    pub fn clear(&mut self) {
        self.is_changed = false;
        self.bytes.clear();
    }

    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The payload as it is by now.
    pub fn payload<'a>(&'a self, original: &'a [u8]) -> &'a [u8] {
        if self.is_changed { &self.bytes } else { original }
    }

    /// The payload, to be changed.
    pub fn edit(&mut self, original: &[u8]) -> &mut Vec<u8> {
        if !self.is_changed {
            self.is_changed = true;
            self.bytes.extend_from_slice(original);
        }
        &mut self.bytes
    }
}
