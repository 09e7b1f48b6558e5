//! A payload that filters have changed.

/// Whether a payload was changed, and its new bytes. The memory is reused, so that delivering an event allocates
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    bytes: Vec<u8>,
    is_changed: bool,
}

impl Changed {
    /// Marks the next payload as unchanged.
    pub(crate) fn clear(&mut self) {
        self.is_changed = false;
        self.bytes.clear();
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The payload after the changes so far.
    pub(crate) fn payload<'a>(&'a self, original: &'a [u8]) -> &'a [u8] {
        if self.is_changed { &self.bytes } else { original }
    }

    /// The payload for editing.
    pub(crate) fn edit(&mut self, original: &[u8]) -> &mut Vec<u8> {
        if !self.is_changed {
            self.is_changed = true;
            self.bytes.extend_from_slice(original);
        }
        &mut self.bytes
    }
}
