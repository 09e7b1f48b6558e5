//! Bandwidth given to the dead, which GRUB lends out from then on. What this does to the kernel lasts until the machine
//! restarts, so it runs in the test machine only.

use std::path::Path;
use std::process::{Command, Stdio};

use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::testing::{live_lock, skip};
use qfabric_linux::{books, threads};
use qfabric_types::{Nanos, Reservation, ThreadId};

#[test]
fn what_was_given_to_the_dead_is_found_where_the_sum_of_the_host_is_right() {
    if std::env::var_os("QFABRIC_VM").is_none() {
        return skip("it would leave this kernel's sums wrong");
    }
    let _alone = live_lock();
    let debugfs = Path::new(DEBUGFS);
    assert_eq!(books::lent_too_much(debugfs), Ok([].into()), "a machine that was just started");

    for _ in 0..3 {
        let mut child =
            Command::new(std::env::current_exe().unwrap()).arg("--list").stdout(Stdio::null()).spawn().unwrap();
        let dead = ThreadId(child.id() as i32);
        while threads::start_time(dead).is_some() {
            std::thread::yield_now();
        }
        let some = Reservation::new(Nanos::from_millis(1), Nanos::from_millis(10)).unwrap();
        SchedAttr::deadline(some, false).give(dead).unwrap();
        child.wait().unwrap();
    }
    let (before, after) = books::rebuild(debugfs).unwrap();
    assert!(before.of_nobody() > 300_000 && after.of_nobody() == 0, "{before:?} {after:?}");

    let lent = books::lent_too_much(debugfs).unwrap();
    assert!((lent[&0].as_f64() - 0.3).abs() < 0.1, "{lent:?}");
}
