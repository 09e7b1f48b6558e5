//! An attempt to join the daemon again, between the helper thread that makes it and the session that waits for it.
//!
//! ```text
//!            failed: why
//!              +---+
//!              v   |      joined            adopt
//!   Trying ----+---+----------------> Joined -----> Over
//!      |                                 |            ^
//!      +---------------------------------+------------+
//!                      give_up
//! ```
//! Whatever the order, a lease that was won is with one of the two: it is never lost, and never used twice.

use crate::sync::{Mutex, MutexGuard};

/// See above; `L` is the lease.
#[derive(Debug)]
pub struct Attempt<L>(Mutex<State<L>>);

#[derive(Debug)]
enum State<L> {
    /// And why it has not succeeded yet.
    Trying(String),
    Joined(L),
    /// The session has its lease, or wants none.
    Over,
}

impl<L> Attempt<L> {
    /// An attempt that begins because of `why`.
    pub fn new(why: &str) -> Attempt<L> {
        Attempt(Mutex::new(State::Trying(why.to_owned())))
    }

    /// For the session: what was joined, once. Never waits: where the helper is just here, the next look will do.
    pub fn adopt(&self) -> Option<L> {
        let mut state = self.0.try_lock().ok()?;
        match *state {
            State::Joined(_) => taken(&mut state),
            _ => None,
        }
    }

    /// For the session, which wants no lease any more: what was joined meanwhile.
    pub fn give_up(&self) -> Option<L> {
        taken(&mut self.state())
    }

    /// Why there is no lease yet.
    pub fn why(&self) -> String {
        match &*self.state() {
            State::Trying(why) => why.clone(),
            State::Joined(_) | State::Over => String::new(),
        }
    }

    /// For the helper: whether to go on.
    pub fn is_wanted(&self) -> bool {
        matches!(*self.state(), State::Trying(_))
    }

    /// For the helper, which has joined: the lease comes back where it is not wanted any more.
    pub fn joined(&self, lease: L) -> Option<L> {
        let mut state = self.state();
        match *state {
            State::Trying(_) => {
                *state = State::Joined(lease);
                None
            }
            State::Joined(_) | State::Over => Some(lease),
        }
    }

    /// For the helper: it was refused, or there is no daemon.
    pub fn failed(&self, why: String) {
        if let State::Trying(told) = &mut *self.state() {
            *told = why;
        }
    }

    /// Nothing in here leaves a state half changed.
    fn state(&self) -> MutexGuard<'_, State<L>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// It is over; what was joined.
fn taken<L>(state: &mut State<L>) -> Option<L> {
    match std::mem::replace(state, State::Over) {
        State::Joined(lease) => Some(lease),
        State::Trying(_) | State::Over => None,
    }
}
