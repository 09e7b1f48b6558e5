//! Making the kernel's sum of reserved bandwidth wrong on purpose, as other tools do without meaning it; put right when
//! dropped.

use std::path::Path;
use std::time::Duration;

use qfabric_types::{Nanos, Reservation, Share};

use super::Worker;
use crate::hrtick::DEBUGFS;
use crate::sched_attr::SchedAttr;
use crate::{books, capacity, threads};

/// So often a wake-up is tried to be caught: on an idle host each try did.
const TRIES: usize = 20;

/// A wrong sum, until dropped.
#[derive(Debug)]
pub struct Wrong(());

impl Drop for Wrong {
    fn drop(&mut self) {
        if let Err(error) = books::rebuild(Path::new(DEBUGFS)) {
            eprintln!("the kernel's sum stays wrong: {error}");
        }
    }
}

/// Leaves so many units of 2⁻²⁰ CPU booked for nobody: a thread that sleeps and never ran leaves the class as `chrt`
/// takes it out.
pub fn book_for_nobody(units: u64) -> Wrong {
    let sleeper = Worker::start(|| std::thread::sleep(Duration::from_secs(1)));
    while !threads::is_asleep(sleeper.thread) {
        std::thread::sleep(Duration::from_micros(100));
    }
    let exactly = SchedAttr { runtime_ns: units << 10, deadline_ns: 1 << 30, period_ns: 1 << 30, ..some() };
    assert_eq!(capacity::units_of(exactly.runtime_ns, exactly.period_ns), units);
    exactly.give(sleeper.thread).expect("there is room for that");
    SchedAttr::fair(0).give(sleeper.thread).expect("every thread may leave");
    Wrong(())
}

/// Adds so much to what the run queue of `cpu` has summed up: a sleeping thread is woken for that CPU, and its reservation is
/// changed while the wake-up is queued. Nothing puts it right but [`books::stop_lending`].
pub fn by_a_queued_wake_up(cpu: u32, share: Share) {
    for _ in 0..TRIES {
        books::shift(cpu, Share::ZERO, share).expect("there is room for that");
        let lent = books::lent_too_much(Path::new(DEBUGFS)).expect("nobody holds a reservation");
        if lent.contains_key(&cpu) {
            return;
        }
    }
    panic!("no wake-up for CPU {cpu} was queued when its thread's reservation was changed, in {TRIES} tries");
}

/// Makes the kernel subtract 0.3 CPU twice: the root domain is rebuilt while a departure is pending. `None` where
/// reading a file does not rebuild it.
pub fn subtract_twice() -> Option<Wrong> {
    for _ in 0..10 {
        let before = sum();
        let hog = Worker::burning();
        some().give(hog.thread).expect("there is room for 0.3 CPU");
        while hog.used() < Nanos::from_millis(100) {
            std::thread::sleep(Duration::from_millis(1));
        }
        SchedAttr::fair(0).give(hog.thread).expect("every thread may leave");
        let pending = sum() > before;
        let _ = std::fs::read_to_string(books::REBUILDS_WHEN_READ);
        if pending && sum() > before {
            return None;
        }
        std::thread::sleep(Duration::from_secs(2)); // its 0-lag time lies within one period
        if sum() < before {
            return Some(Wrong(()));
        }
    }
    None
}

fn some() -> SchedAttr {
    let reservation = Reservation::new(Nanos::from_millis(300), Nanos::from_millis(1_000));
    SchedAttr::deadline(reservation.expect("0.3 CPU is one"), false)
}

/// The kernel's sum; these helpers need debugfs.
fn sum() -> i64 {
    capacity::booked_units(Path::new(DEBUGFS)).expect("debugfs is open") as i64
}
