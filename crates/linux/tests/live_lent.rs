//! Run-queue sums that are too large, so that GRUB lends reserved bandwidth: their causes, their detection and their
//! correction.

use std::path::Path;
use std::process::{Command, Stdio};

use qfabric_linux::books::Corrected;
use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::testing::{live_lock, losses, skip};
use qfabric_linux::{books, threads};
use qfabric_types::{Nanos, Reservation, Share, ThreadId};

#[test]
fn bandwidth_reserved_for_dead_threads_is_found_although_the_hosts_sum_is_correct() {
    if std::env::var_os("QFABRIC_VM").is_none() {
        return skip("it leaves wrong sums in the kernel, so it runs only in the test machine: make vm-test");
    }
    let (_alone, debugfs) = (live_lock(), Path::new(DEBUGFS));
    let fresh = books::lent_too_much(debugfs);
    if fresh == Err(books::LentError::Miscounted) {
        return; // this kernel lends 0.6 of one CPU and 0.35 of the other right after the start
    }
    assert_eq!(fresh, Ok([].into()), "the machine was just started");
    for _ in 0..3 {
        let mut child =
            Command::new(std::env::current_exe().unwrap()).arg("--list").stdout(Stdio::null()).spawn().unwrap();
        let dead = ThreadId(child.id() as i32);
        while threads::start_time(dead).is_some() {
            std::thread::yield_now();
        }
        let tenth = Reservation::new(Nanos::from_millis(1), Nanos::from_millis(10)).unwrap();
        SchedAttr::deadline(tenth, false).give(dead).unwrap();
        child.wait().unwrap();
    }
    let (before, after) = books::rebuild(debugfs).unwrap();
    assert!(before.without_owner() > 300_000 && after.without_owner() == 0, "{before:?} {after:?}");

    let lent = books::lent_too_much(debugfs).unwrap();
    assert!((lent[&0].as_f64() - 0.3).abs() < 0.1, "{lent:?}");
}

/// Needs two CPUs in real time with no other load: the emulated CPUs of the test machine reach the wake-up too early or
/// too late.
#[test]
#[ignore = "run by hand on an idle host: for some seconds GRUB lends 0.3 CPU too much on CPU 1"]
fn a_wrong_sum_from_a_change_during_a_queued_wake_up_is_found_and_corrected() {
    let (_alone, debugfs) = (live_lock(), Path::new(DEBUGFS));
    assert_eq!(books::lent_too_much(debugfs), Ok([].into()), "no reservation exists yet");
    losses::by_a_queued_wake_up(1, Share::from_ppm(300_000));
    let lost = books::lost(debugfs);
    assert_eq!(
        lost.as_ref().map(books::Books::without_owner),
        Ok(0),
        "the sum of the root domain is correct: {lost:?}"
    );

    let Corrected { before, after } = books::stop_lending(debugfs).unwrap();
    assert!(before.contains_key(&1) && after.is_empty(), "{before:?} {after:?}");
}
