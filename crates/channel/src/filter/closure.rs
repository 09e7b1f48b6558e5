//! Filters in Rust.

use std::fmt;

use crate::member::Seat;
use crate::{Event, MemberId};

/// The sinks that a filter decides on.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a>(&'a [Seat]);

impl Candidates<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which one.
    pub fn member(&self, index: usize) -> &MemberId {
        &self.0[index].member
    }

    /// What it says of itself.
    pub fn attribute(&self, index: usize, key: &str) -> Option<i64> {
        self.0[index].info.attributes.get(key)
    }
}

/// A filter in Rust: unsets the places of those that are not to get the event. Those that do not want its type are
/// unset before, and stay so whatever it sets.
pub type Choose = Box<dyn FnMut(&Event<'_>, Candidates<'_>, &mut [bool]) + Send>;

pub(crate) struct Closure {
    choose: Choose,
    before: Vec<bool>,
}

impl Closure {
    pub fn new(choose: Choose) -> Closure {
        Closure { choose, before: Vec::new() }
    }

    pub fn run(&mut self, event: &Event<'_>, seats: &[Seat], chosen: &mut [bool]) {
        self.before.clear();
        self.before.extend_from_slice(chosen);
        (self.choose)(event, Candidates(seats), chosen);
        for (chosen, before) in chosen.iter_mut().zip(&self.before) {
            *chosen &= before;
        }
    }
}

impl fmt::Debug for Closure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closure")
    }
}
