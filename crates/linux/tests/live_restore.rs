//! Tests of `journal::restore` on the real scheduler: what a killed service left is restored.

use qfabric_linux::journal::{self, Journal};
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::testing::{Worker, live_lock, may_reserve};
use qfabric_linux::{Deadline, Mechanism};
use qfabric_types::{Nanos, Reclaiming, Reservation, Setting, ThreadId};

fn setting(thread: ThreadId) -> Setting {
    let reservation = Reservation::new(Nanos::from_millis(1), Nanos::from_millis(10)).unwrap();
    Setting { thread, reservation: Some(reservation), reclaiming: Reclaiming::Grub, terms: Default::default() }
}

/// Copies the journal and forgets the mechanism, so that nothing is restored, as when the process is killed.
fn crash(mechanism: Deadline, dir: &std::path::Path) {
    let kept = dir.join("kept");
    std::fs::copy(dir.join(journal::FILE), &kept).unwrap();
    let threads: Vec<_> = std::fs::read_to_string(&kept).unwrap().lines().map(str::to_owned).collect();
    assert!(threads.len() > 1);
    std::mem::forget(mechanism);
}

#[test]
fn threads_of_a_killed_service_are_restored() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let run = tempfile::tempdir().unwrap();
    let (plain, nice, over) = (Worker::sleeping(), Worker::burning(), Worker::sleeping());
    SchedAttr::fair(9).give(nice.thread).unwrap();
    let mut mechanism = Deadline::with_journal(Journal::open(run.path()).unwrap());
    for worker in [&plain, &nice, &over] {
        mechanism.apply(&setting(worker.thread)).unwrap();
    }
    drop(over);
    crash(mechanism, run.path());
    // The forgotten mechanism still holds the lock within this process: restore from the copy.
    let after = tempfile::tempdir().unwrap();
    std::fs::copy(run.path().join("kept"), after.path().join(journal::FILE)).unwrap();
    let restored = journal::restore(after.path()).unwrap();
    assert_eq!((restored.threads, restored.skipped, &restored.failed[..]), (2, 1, &[][..]));
    let attr = SchedAttr::of(nice.thread).unwrap();
    assert_eq!((attr.policy, attr.nice), (Policy::OTHER, 9));
    assert_eq!(SchedAttr::of(plain.thread).unwrap().policy, Policy::OTHER);
    assert_eq!(journal::restore(after.path()).unwrap(), journal::Restored::default());
}

#[test]
fn a_service_that_ends_normally_leaves_nothing_to_restore() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let run = tempfile::tempdir().unwrap();
    let worker = Worker::sleeping();
    let mut mechanism = Deadline::with_journal(Journal::open(run.path()).unwrap());
    mechanism.apply(&setting(worker.thread)).unwrap();
    assert_eq!(SchedAttr::of(worker.thread).unwrap().policy, Policy::DEADLINE);
    drop(mechanism);
    assert_eq!(SchedAttr::of(worker.thread).unwrap().policy, Policy::OTHER);
    assert_eq!(journal::restore(run.path()).unwrap(), journal::Restored::default());
}

#[test]
fn a_thread_is_recorded_once_however_often_its_budget_changes() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let run = tempfile::tempdir().unwrap();
    let worker = Worker::sleeping();
    let mut mechanism = Deadline::with_journal(Journal::open(run.path()).unwrap());
    for budget in 1..50 {
        let reservation = Reservation::new(Nanos::from_micros(100 * budget), Nanos::from_millis(10)).unwrap();
        let setting = Setting { reservation: Some(reservation), ..setting(worker.thread) };
        mechanism.apply(&setting).unwrap();
    }
    let lines = std::fs::read_to_string(run.path().join(journal::FILE)).unwrap().lines().count();
    assert_eq!(lines, 2, "the boot and the thread");
}
