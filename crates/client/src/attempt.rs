//! One attempt to rejoin the daemon, shared by the helper thread that makes it and the session that waits for it.
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
//! In every order of events exactly one of the two threads gets the lease: no lease is lost, and none is used twice.
#![allow(unreachable_pub)] // the models in tests/models include this file

use crate::sync::{Mutex, MutexGuard};

/// State of the attempt, as in the diagram above; `L` is the lease.
#[derive(Debug)]
pub struct Attempt<L>(Mutex<State<L>>);

#[derive(Debug)]
enum State<L> {
    /// With the reason why the attempt has not succeeded yet.
    Trying(String),
    Joined(L),
    /// The session has the lease, or no longer wants one.
    Over,
}

impl<L> Attempt<L> {
    /// Begins an attempt; `why` is the reason why the session lost its lease.
    pub fn new(why: &str) -> Attempt<L> {
        Attempt(Mutex::new(State::Trying(why.to_owned())))
    }

    /// Called by the session: takes the lease, once. Never blocks: if the helper holds the lock, the session tries
    /// again at its next check.
    pub fn adopt(&self) -> Option<L> {
        let mut state = self.0.try_lock().ok()?;
        match *state {
            State::Joined(_) => taken(&mut state),
            _ => None,
        }
    }

    /// Called by the session to end the attempt: returns a lease that the helper won meanwhile.
    pub fn give_up(&self) -> Option<L> {
        taken(&mut self.state())
    }

    /// The reason why there is no lease yet.
    pub fn why(&self) -> String {
        match &*self.state() {
            State::Trying(why) => why.clone(),
            State::Joined(_) | State::Over => String::new(),
        }
    }

    /// Called by the helper: false ends its loop.
    pub fn is_wanted(&self) -> bool {
        matches!(*self.state(), State::Trying(_))
    }

    /// Called by the helper after it joined: returns the lease if the session no longer wants it.
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

    /// Called by the helper after a refusal, or if there is no daemon.
    pub fn failed(&self, why: String) {
        if let State::Trying(reason) = &mut *self.state() {
            *reason = why;
        }
    }

    /// Ignores poisoning: every method changes the state in one step.
    fn state(&self) -> MutexGuard<'_, State<L>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Ends the attempt and returns the lease, if the helper won one.
fn taken<L>(state: &mut State<L>) -> Option<L> {
    match std::mem::replace(state, State::Over) {
        State::Joined(lease) => Some(lease),
        State::Trying(_) | State::Over => None,
    }
}
