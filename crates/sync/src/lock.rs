//! Locks with a rank, so that threads cannot wait for each other in a circle.
//!
//! Problem: two threads that take the same two locks in opposite orders can deadlock, and no test shows it until
//! their timing coincides. Approach: every lock has a rank, which is a part of its type ([`crate::rank`] is the one
//! list). A thread takes a lock only while all locks that it holds have smaller ranks. Debug builds assert this at
//! every lock, also if no other thread wants the lock; release builds do not keep the list of held ranks.
//!
//! A thread with the smallest real-time priority may hold a lock that a thread with the largest priority waits for.
//! Without a countermeasure, every thread with a priority in between would run before the holder. Therefore the
//! holder runs with the priority of the waiting thread until it releases the lock: the kernel's futexes with
//! priority inheritance do this. They hand the lock over to the waiting thread with the highest priority, and among
//! equals to the one that came first.
//!
//! A panic of a thread does not poison its locks: the next thread gets the value as it is. Put a guard into a `let`
//! of its own, or use [`Lock::with`]: a guard in the scrutinee of a `match` lives until the last arm ends.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use lock_api::MutexGuard;
use priority_inheriting_lock::{PriorityInheritingLock, PriorityInheritingLockGuard};

use crate::Condvar;
use crate::edge::{Crossed, Edge};

/// A mutex that protects a value. `RANK` is its place in the order of locks.
#[derive(Default)]
pub struct Lock<T: ?Sized, const RANK: u16> {
    edge: Edge,
    value: PriorityInheritingLock<T>,
}

/// Exclusive access to the value; the lock is released when the guard is dropped.
#[clippy::has_significant_drop]
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard<'a, T: ?Sized, const RANK: u16> {
    // Fields drop in this order: the edge is crossed before the lock is released.
    edge: Crossed<'a>,
    value: PriorityInheritingLockGuard<'a, T>,
    _held: held::Held,
}

/// The same as [`Lock::lock`], as a function; easier to read for locks that are fields.
pub fn lock<T: ?Sized, const RANK: u16>(lock: &Lock<T, RANK>) -> Guard<'_, T, RANK> {
    lock.lock()
}

/// Asserts, in debug builds, that the calling thread may wait for something outside the process: it holds no lock
/// that a thread of the event path waits for ([`crate::rank::LAST_THAT_MAY_BLOCK`]).
pub fn assert_may_block(what: &str) {
    held::assert_may_block(what);
}

impl<T, const RANK: u16> Lock<T, RANK> {
    pub const fn new(value: T) -> Lock<T, RANK> {
        Lock { edge: Edge::new(), value: PriorityInheritingLock::new(value) }
    }
}

impl<T: ?Sized, const RANK: u16> Lock<T, RANK> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same or a larger rank.
    pub fn lock(&self) -> Guard<'_, T, RANK> {
        let held = held::Held::in_order(RANK);
        let value = self.value.lock();
        Guard { edge: self.edge.cross(), value, _held: held }
    }

    /// The guard, if no thread holds the lock. Never waits, so the rank does not matter.
    ///
    /// # Panics
    /// If the calling thread itself holds the lock.
    pub fn try_lock(&self) -> Option<Guard<'_, T, RANK>> {
        let value = self.value.try_lock()?;
        Some(Guard { edge: self.edge.cross(), value, _held: held::Held::out_of_order(RANK) })
    }

    /// Waits for the lock and releases it when `act` returns.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.lock())
    }
}

impl<T, const RANK: u16> From<T> for Lock<T, RANK> {
    fn from(value: T) -> Lock<T, RANK> {
        Lock::new(value)
    }
}

impl<T: ?Sized, const RANK: u16> fmt::Debug for Lock<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("rank", &RANK).finish_non_exhaustive()
    }
}

impl<'a, T, const RANK: u16> Guard<'a, T, RANK> {
    /// Releases the lock until `condition` is notified, then takes it again.
    ///
    /// # Panics
    /// In debug builds, if the thread holds another lock of the same or a larger rank: it would take its lock again
    /// out of order.
    pub fn wait(mut self, condition: &Condvar) -> Guard<'a, T, RANK> {
        held::assert_innermost(RANK);
        condition.wait(|sleep| self.without_the_lock(sleep));
        self
    }

    /// Like [`Guard::wait`], for at most `longest`; returns `true` if `longest` has passed.
    ///
    /// # Panics
    /// As [`Guard::wait`].
    pub fn wait_timeout(mut self, condition: &Condvar, longest: Duration) -> (Guard<'a, T, RANK>, bool) {
        held::assert_innermost(RANK);
        let is_over = condition.wait_timeout(longest, |sleep| self.without_the_lock(sleep));
        (self, is_over)
    }

    fn without_the_lock(&mut self, act: &mut dyn FnMut()) {
        self.edge.pass();
        MutexGuard::unlocked(&mut self.value, act);
        self.edge.pass();
    }
}

impl<T: ?Sized, const RANK: u16> Deref for Guard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized, const RANK: u16> DerefMut for Guard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: ?Sized + fmt::Debug, const RANK: u16> fmt::Debug for Guard<'_, T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The ranks of the locks that each thread holds.
#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use crate::rank;

    thread_local! {
        static RANKS: RefCell<Vec<u16>> = const { RefCell::new(Vec::new()) };
    }

    /// An entry of the list; removed from it when dropped.
    pub(crate) struct Held(u16);

    impl Held {
        pub(crate) fn in_order(rank: u16) -> Held {
            let largest = largest();
            // A thread that already panics unwinds with the locks that it holds.
            assert!(
                largest.is_none_or(|largest| largest < rank) || std::thread::panicking(),
                "lock of rank {rank} taken while a lock of rank {} is held; see qfabric_sync::rank",
                largest.unwrap_or_default()
            );
            Held::out_of_order(rank)
        }

        pub(crate) fn out_of_order(rank: u16) -> Held {
            // At the end of a thread the list is gone; then nothing is checked.
            let _ = RANKS.try_with(|ranks| ranks.borrow_mut().push(rank));
            Held(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = RANKS.try_with(|ranks| {
                let mut ranks = ranks.borrow_mut();
                let at = ranks.iter().rposition(|rank| *rank == self.0);
                at.map(|at| ranks.remove(at));
            });
        }
    }

    fn largest() -> Option<u16> {
        RANKS.try_with(|ranks| ranks.borrow().iter().copied().max()).ok().flatten()
    }

    /// Asserts that the lock of this rank, which the thread holds, is the only one of this or a larger rank.
    pub(crate) fn assert_innermost(rank: u16) {
        let held = RANKS.try_with(|ranks| ranks.borrow().iter().filter(|held| **held >= rank).count());
        assert!(
            held.map_or(true, |held| held <= 1) || std::thread::panicking(),
            "wait under a lock of rank {rank} while another one of rank {} is held; see qfabric_sync::rank",
            largest().unwrap_or_default()
        );
    }

    pub(crate) fn assert_may_block(what: &str) {
        let largest = largest().unwrap_or(0);
        assert!(
            largest <= rank::LAST_THAT_MAY_BLOCK || std::thread::panicking(),
            "{what} may block for ever while the thread holds a lock of rank {largest}; see qfabric_sync::rank"
        );
    }
}

/// Release builds keep no list.
#[cfg(not(debug_assertions))]
mod held {
    pub(super) struct Held;

    impl Held {
        pub(super) fn in_order(_rank: u16) -> Held {
            Held
        }

        pub(super) fn out_of_order(_rank: u16) -> Held {
            Held
        }
    }

    pub(super) fn assert_innermost(_rank: u16) {}

    pub(super) fn assert_may_block(_what: &str) {}
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::rank;

    type Outer = Lock<u32, 1>;
    type Inner = Lock<u32, 2>;

    /// Whether `act` panics.
    fn is_refused(act: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(act)).is_err()
    }

    #[test]
    fn locks_are_taken_only_in_the_order_of_their_ranks() {
        let (outer, inner) = (Outer::new(1), Inner::new(2));
        let first = outer.lock();
        assert_eq!(*first + *inner.lock(), 3);
        drop(first);
        let second = inner.lock();
        assert_eq!(is_refused(|| drop(outer.lock())), cfg!(debug_assertions));
        drop(second);
        assert_eq!(*outer.lock(), 1, "the refused lock left no entry behind");
    }

    #[test]
    fn two_locks_of_one_rank_are_never_held_together() {
        let (one, other) = (Outer::new(1), Outer::new(2));
        let _held = one.lock();
        assert_eq!(is_refused(|| drop(other.lock())), cfg!(debug_assertions));
        assert_eq!(other.try_lock().as_deref(), Some(&2), "try_lock does not wait, so its rank does not matter");
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let (outer, inner) = (Outer::new(1), Inner::new(2));
        let (first, second) = (outer.lock(), inner.lock());
        drop(first);
        drop(second);
        assert_eq!((outer.with(|value| *value), inner.with(|value| *value)), (1, 2));
    }

    #[test]
    fn a_panic_does_not_poison_the_lock() {
        let value = Outer::new(1);
        assert!(is_refused(|| value.with(|value| {
            *value = 7;
            panic!("while it is held");
        })));
        let left = value.with(|value| *value);
        assert_eq!((left, value.try_lock().is_some()), (7, true));
    }

    #[test]
    fn a_thread_waits_only_under_its_lock_of_the_largest_rank() {
        let (outer, inner, condition) = (Outer::new(1), Inner::new(2), Condvar::default());
        let wait = |guard: Guard<'_, u32, 1>| drop(guard.wait_timeout(&condition, Duration::ZERO));
        let (first, second) = (outer.lock(), inner.lock());
        assert_eq!(is_refused(|| wait(first)), cfg!(debug_assertions), "a lock of a larger rank is held");
        let (value, is_over) = second.wait_timeout(&condition, Duration::ZERO);
        assert_eq!((*value, is_over), (2, true));
        drop(value);
        wait(outer.lock());
        let same = Outer::new(3);
        let _tried = same.try_lock();
        let first = outer.try_lock().unwrap();
        assert_eq!(is_refused(|| wait(first)), cfg!(debug_assertions), "another lock of the same rank is held");
    }

    #[test]
    fn a_thread_with_a_lock_of_the_event_path_may_not_block() {
        let (setup, short) = (Lock::<(), { rank::SETUP }>::default(), Lock::<(), { rank::ECALLS_REGISTRY }>::default());
        setup.with(|()| assert_may_block("a test"));
        let _held = short.lock();
        assert_eq!(is_refused(|| assert_may_block("a test")), cfg!(debug_assertions));
    }
}
