//! Parameters that follow a word: a number that changes without a call of the node.

use qfabric_types::channel::Name;

/// A number in memory that the kernel or another thread changes.
pub trait Word: Send {
    /// How often the number was changed, and its value; `None`: never. Called for each event, so it must not block.
    fn read(&self) -> Option<(u64, i64)>;
}

pub(crate) struct Followed {
    /// The parameter's place.
    pub at: usize,
    /// The host that changes the word.
    pub host: Name,
    word: Box<dyn Word>,
    /// The changes that were taken over, and those before the parameter followed.
    seen: u64,
}

impl Followed {
    pub(super) fn new(at: usize, host: Name, word: Box<dyn Word>) -> Followed {
        let seen = word.read().map_or(0, |(changes, _)| changes);
        Followed { at, host, word, seen }
    }

    /// The value, if it has changed since the last call.
    pub(super) fn news(&mut self) -> Option<i64> {
        let (changes, value) = self.word.read()?;
        (std::mem::replace(&mut self.seen, changes) != changes).then_some(value)
    }
}
