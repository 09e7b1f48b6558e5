//! Filters in Rust.

use std::fmt;

use crate::member::Seat;
use crate::{Event, MemberId};

/// The sinks that a filter decides about.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a>(&'a [Seat]);

impl Candidates<'_> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn member(&self, index: usize) -> &MemberId {
        &self.0[index].member
    }

    /// An attribute of the sink at `index`.
    pub fn attribute(&self, index: usize, key: &str) -> Option<i64> {
        self.0[index].info.attributes.get(key)
    }
}

/// A filter in Rust: clears the places of sinks that must not receive the event. Sinks that do not receive the event's
/// type are cleared before the call, and stay cleared whatever the filter sets.
pub type Choose = Box<dyn FnMut(&Event<'_>, Candidates<'_>, &mut [bool]) + Send>;

pub(crate) struct Closure {
    choose: Choose,
    before: Vec<bool>,
}

impl Closure {
    pub(crate) fn new(choose: Choose) -> Closure {
        Closure { choose, before: Vec::new() }
    }

    pub(crate) fn run(&mut self, event: &Event<'_>, seats: &[Seat], chosen: &mut [bool]) {
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
