//! Carries events of `sched.deadline_miss` from the control thread, which must never wait, to the dispatcher.
//!
//! Without a subscription a miss costs one read of a flag. Otherwise the miss goes into a bounded list. The control
//! thread only tries the lock; a miss that cannot be written is dropped and counted.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qfabric_sync::{Lock, lock, rank};
use qfabric_types::AppId;

use crate::control::wake;

/// Misses that may wait. A dispatcher with more is far behind anyway.
const WAITING: usize = 1_024;

/// Name of the service.
pub(crate) const SERVICE: &str = "sched.deadline_miss";

/// Format of the event, as C.
pub(crate) const FORMAT: &str = "\
struct deadline_miss {
    unsigned long app;
    long pid;
    unsigned long job;
    long error_ns;
    unsigned long budget_ns;
    unsigned long period_ns;
};";

/// A job that ended after its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    pub app: AppId,
    pub pid: i32,
    /// Number of the job in the application.
    pub job: u64,
    /// Scheduling error of the job.
    pub error_ns: i64,
    pub budget_ns: u64,
    pub period_ns: u64,
}

impl Miss {
    /// The event in the layout of [`FORMAT`].
    pub(crate) fn bytes(&self) -> [u8; 48] {
        let words =
            [self.app.0, i64::from(self.pid) as u64, self.job, self.error_ns as u64, self.budget_ns, self.period_ns];
        let mut bytes = [0; 48];
        for (part, word) in bytes.chunks_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// The list of misses. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Misses(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Wakes the dispatcher.
    wake: Arc<OwnedFd>,
    wanted: AtomicBool,
    list: Lock<Vec<(Miss, u64)>, { rank::MISSES }>,
    dropped: AtomicU64,
}

impl Misses {
    /// An empty list; `wake` wakes its reader.
    pub(crate) fn new(wake: Arc<OwnedFd>) -> Misses {
        let (wanted, list, dropped) = (AtomicBool::new(false), Lock::default(), AtomicU64::new(0));
        Misses(Arc::new(Shared { wake, wanted, list, dropped }))
    }

    /// Whether there is a subscription.
    pub(crate) fn wanted(&self) -> bool {
        self.0.wanted.load(Ordering::Relaxed)
    }

    /// Sets whether there is a subscription.
    pub(crate) fn want(&self, wanted: bool) {
        self.0.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Adds a miss that was seen at `now_ns`. Never waits.
    pub(crate) fn add(&self, miss: Miss, now_ns: u64) {
        let added = match self.0.list.try_lock() {
            Some(mut list) if list.len() < WAITING => {
                list.push((miss, now_ns));
                true
            }
            _ => false,
        };
        match added {
            true => wake(&*self.0.wake),
            false => {
                self.0.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes all misses, with their times.
    pub(crate) fn take(&self) -> Vec<(Miss, u64)> {
        std::mem::take(&mut *lock(&self.0.list))
    }

    /// Number of misses dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Misses {
        Misses::new(Arc::new(crate::control::wake_descriptor().unwrap()))
    }

    const MISS: Miss = Miss { app: AppId(1), pid: -2, job: 3, error_ns: -4, budget_ns: 5, period_ns: 6 };

    #[test]
    fn misses_beyond_the_bound_are_counted() {
        let misses = empty();
        for _ in 0..WAITING + 3 {
            misses.add(MISS, 9);
        }
        assert_eq!((misses.dropped(), misses.take().len(), misses.take().len()), (3, WAITING, 0));
    }

    #[test]
    fn the_control_thread_does_not_wait_for_a_reader_of_the_list() {
        let misses = empty();
        let reading = misses.0.list.lock();
        std::thread::scope(|scope| scope.spawn(|| misses.add(MISS, 9)).join().unwrap());
        drop(reading);
        assert_eq!(misses.dropped(), 1);
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let bytes = MISS.bytes();
        assert_eq!((bytes.len(), bytes[0], bytes[8], bytes[12]), (48, 1, 0xfe, 0xff));
    }
}
