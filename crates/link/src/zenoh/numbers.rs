//! The numbers that Zenoh gives to declared keys.
//!
//! Zenoh 1.10 numbers the keys of a session, and those of a connection to another host, with 16 bits. It uses no number
//! of a session again, and does not notice when all are used: then a new key gets the number of another one, and its
//! frames take the way of that key. Therefore this host counts the declarations of a session. When most numbers are
//! used, the daemon opens a new session, whose numbers begin again. If no number is left before that, frames go to keys
//! without a number, which costs some bytes and time for each frame, and new subscriptions fail.

use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers that are used in one session. Both ends of a connection take theirs from the same 65,535, so each has less
/// than half.
const MOST: u32 = 32_000;
/// From this number on a new session is due.
const WORN: u32 = 28_000;

const _: () = assert!(2 * MOST < u16::MAX as u32);

/// Counts the numbers of a session.
#[derive(Debug, Default)]
pub(super) struct Numbers(AtomicU32);

impl Numbers {
    /// Takes a number; `false`: there is none left.
    pub(super) fn take(&self) -> bool {
        let next = |used: u32| (used < MOST).then_some(used + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Whether a new session is due.
    pub(super) fn are_worn(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= WORN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_uses_less_than_half_of_the_numbers_and_is_replaced_before() {
        let numbers = Numbers::default();
        let fresh = (0..100_000).take_while(|_| numbers.take() && !numbers.are_worn()).count();
        let rest = (0..100_000).filter(|_| numbers.take()).count();
        assert_eq!((fresh + 1, rest), (WORN as usize, (MOST - WORN) as usize));
        assert!(numbers.are_worn() && !numbers.take());
    }
}
