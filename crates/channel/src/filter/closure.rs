//! Filters in Rust.

use std::fmt;

use crate::member::Seat;
use crate::{Event, MemberId};

/// The sinks that a filter decides about.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    pub(crate) seats: &'a [Seat],
    user: Option<u32>,
}

impl Candidates<'_> {
    pub(crate) fn new(seats: &[Seat], user: Option<u32>) -> Candidates<'_> {
        Candidates { seats, user }
    }

    pub fn len(&self) -> usize {
        self.seats.len()
    }

    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// The user of the event's source; `None`: a source of another host, or of the host itself.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    pub fn member(&self, index: usize) -> &MemberId {
        &self.seats[index].member
    }

    /// An attribute of the sink at `index`.
    pub fn attribute(&self, index: usize, key: &str) -> Option<i64> {
        self.seats[index].info.attributes.get(key)
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

    pub(crate) fn run(&mut self, event: &Event<'_>, candidates: Candidates<'_>, chosen: &mut [bool]) {
        self.before.clear();
        self.before.extend_from_slice(chosen);
        (self.choose)(event, candidates, chosen);
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
