//! Makes the kernel's sum of reserved bandwidth wrong on purpose, as other tools do by accident. The sum is corrected
//! when the value is dropped.

use std::path::Path;
use std::time::Duration;

use qfabric_types::{Nanos, Reservation, Share};

use super::Worker;
use crate::hrtick::DEBUGFS;
use crate::sched_attr::SchedAttr;
use crate::{books, capacity, threads};

/// Largest number of attempts to change a reservation during a queued wake-up. On an idle host every attempt succeeded.
const TRIES: usize = 20;

/// A wrong sum, corrected when dropped.
#[derive(Debug)]
pub struct Wrong(());

impl Drop for Wrong {
    fn drop(&mut self) {
        if let Err(error) = books::rebuild(Path::new(DEBUGFS)) {
            eprintln!("the kernel's sum stays wrong: {error}");
        }
    }
}

/// Books `units` of 2⁻²⁰ CPU with no owner: a thread that sleeps and never ran leaves the class the way `chrt` does it.
pub fn book_for_nobody(units: u64) -> Wrong {
    let sleeper = Worker::start(|| std::thread::sleep(Duration::from_secs(1)));
    while !threads::is_asleep(sleeper.thread) {
        std::thread::sleep(Duration::from_micros(100));
    }
    let exactly = SchedAttr { runtime_ns: units << 10, deadline_ns: 1 << 30, period_ns: 1 << 30, ..three_tenths() };
    assert_eq!(capacity::units_of(exactly.runtime_ns, exactly.period_ns), units);
    exactly.give(sleeper.thread).expect("there is room for that");
    SchedAttr::fair(0).give(sleeper.thread).expect("every thread may leave");
    Wrong(())
}

/// Adds `share` to the sum of the run queue of `cpu`: wakes a sleeping thread for that CPU and changes its reservation
/// while the wake-up is queued. Only [`books::stop_lending`] corrects this.
pub fn by_a_queued_wake_up(cpu: u32, share: Share) {
    for _ in 0..TRIES {
        books::shift(cpu, Share::ZERO, share).expect("there is room for that");
        let lent = books::lent_too_much(Path::new(DEBUGFS)).expect("nobody holds a reservation");
        if lent.contains_key(&cpu) {
            return;
        }
    }
    panic!("in {TRIES} attempts, no wake-up for CPU {cpu} was queued when the reservation of its thread changed");
}

/// Makes the kernel subtract 0.3 CPU twice, by rebuilding the root domain while a departure is pending. `None` if the
/// kernel does not rebuild it when the file is read.
pub fn subtract_twice() -> Option<Wrong> {
    for _ in 0..10 {
        let before = sum();
        let hog = Worker::burning();
        three_tenths().give(hog.thread).expect("there is room for 0.3 CPU");
        while hog.used() < Nanos::from_millis(100) {
            std::thread::sleep(Duration::from_millis(1));
        }
        SchedAttr::fair(0).give(hog.thread).expect("every thread may leave");
        let pending = sum() > before;
        let _ = std::fs::read_to_string(books::REBUILDS_WHEN_READ);
        if pending && sum() > before {
            return None;
        }
        std::thread::sleep(Duration::from_secs(2)); // its 0-lag time is within one period
        if sum() < before {
            return Some(Wrong(()));
        }
    }
    None
}

fn three_tenths() -> SchedAttr {
    let reservation = Reservation::new(Nanos::from_millis(300), Nanos::from_millis(1_000));
    SchedAttr::deadline(reservation.expect("0.3 CPU is one"), false)
}

/// The kernel's sum, read from debugfs.
fn sum() -> i64 {
    capacity::booked_units(Path::new(DEBUGFS)).expect("debugfs is open") as i64
}
