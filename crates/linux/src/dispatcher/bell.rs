//! What a dispatching thread sleeps on: a count of changes, and the order to end.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex::{self, Flags, Timespec};

/// The lowest bit of the word: the thread ends. The bits above it count changes.
const ENDS: u32 = 1;
const RING: u32 = 2;

/// Both facts are in one word, so that a sleeper cannot miss one of them between two reads.
#[derive(Debug, Default)]
pub(super) struct Bell(AtomicU32);

/// What the bell said before its listener looked at the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard(u32);

impl Bell {
    /// Something has changed.
    pub(super) fn ring(&self) {
        self.0.fetch_add(RING, Ordering::Release);
        self.wake();
    }

    /// The listener ends.
    pub(super) fn end(&self) {
        self.0.fetch_or(ENDS, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
    }

    /// Call it before looking at what may have changed. `None`: the listener ends.
    pub(super) fn listen(&self) -> Option<Heard> {
        let word = self.0.load(Ordering::Acquire);
        (word & ENDS == 0).then_some(Heard(word))
    }

    /// Sleeps until the bell says something new, until the time `until` of CLOCK_MONOTONIC, or until a signal.
    pub(super) fn sleep(&self, heard: Heard, until: Option<Timespec>) {
        let _ = futex::wait_bitset(&self.0, Flags::PRIVATE, heard.0, until.as_ref(), NonZeroU32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qfabric_types::RandomNumbers;

    use super::*;

    /// With the order to end in a word of its own, read before the count, a listener slept for ever in one of some
    /// thousand rounds.
    #[test]
    fn a_listener_never_misses_the_order_to_end() {
        let mut random = RandomNumbers::new(11);
        for _ in 0..20_000 {
            let bell = Arc::new(Bell::default());
            let heard = bell.clone();
            let listener = std::thread::spawn(move || {
                while let Some(before) = heard.listen() {
                    heard.sleep(before, None);
                }
            });
            bell.ring();
            (0..random.draw() % 2_000).for_each(|_| std::hint::spin_loop());
            bell.end();
            listener.join().unwrap();
        }
    }
}
