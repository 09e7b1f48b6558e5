//! The scheduler is unloaded under load, or its owner ends. The system continues.

mod ext_shared;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use ext_shared::{Servers, hogs, load, server, sleep_ms};
use qfabric_linux::ext::{Ext, ExtConfig, ExtError, SchedulerClock};
use qfabric_linux::testing::Worker;

fn state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default().trim().to_owned()
}

fn within(length: u64, mut what: impl FnMut() -> bool) -> bool {
    (0..length).any(|_| {
        sleep_ms(1);
        what()
    })
}

/// Not a test: the process that the test of the killed owner starts.
#[test]
fn an_owner_that_waits_to_be_killed() {
    if std::env::var_os("QFABRIC_EXT_OWNER").is_none() {
        return;
    }
    let mut ext = Ext::load(&ExtConfig::default()).unwrap();
    let mut servers = Servers::of(&mut ext);
    let _hog = servers.hog(&server(10, 5));
    sleep_ms(60_000);
}

#[test]
fn a_killed_owner_leaves_all_threads_under_the_kernels_own_scheduler() {
    if let Err(error) = Ext::supported() {
        return qfabric_linux::testing::skip(error);
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "an_owner_that_waits_to_be_killed"])
        .env("QFABRIC_EXT_OWNER", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(within(60_000, || state() == "enabled"), "the owner loads the scheduler");
    let worker = Worker::burning();
    sleep_ms(100);
    assert!(matches!(Ext::supported(), Err(ExtError::Occupied { name }) if name == "qfabric"));
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(within(5_000, || state() == "disabled"), "{}", state());
    assert!(worker.share_over(Duration::from_millis(100)) > 0.4, "threads continue");
}

#[test]
fn unloading_under_load_puts_all_threads_back_and_loading_works_again() {
    let Some(mut ext) = load() else { return };
    let workers = hogs(6);
    let mut servers = Servers::of(&mut ext);
    let (_id, reserved) = servers.hog(&server(10, 2));
    sleep_ms(50);
    drop(servers);
    drop(ext);
    assert_eq!(state(), "disabled");
    assert!(reserved.share_over(Duration::from_millis(200)) > 0.1);
    assert!(workers.iter().all(|worker| worker.share_over(Duration::from_millis(100)) > 0.01));
}

#[test]
fn a_scheduler_that_asks_for_clocks_stays_in_charge() {
    let Some(mut ext) = load() else { return };
    let clock = SchedulerClock::map(&ext.clock().try_clone_to_owned().unwrap()).unwrap();
    let workers = hogs(4);
    let mut servers = Servers::of(&mut ext);
    let (_id, reserved) = servers.hog(&server(10, 2));
    for part in [0.3, 1.0, 0.0] {
        clock.set(part);
        assert!(reserved.share_over(Duration::from_millis(100)) > 0.1);
    }
    assert_eq!(servers.ext.exit_reason(), None);
    drop(workers);
}

/// Forty threads share 1 ms in each second, so each waits longer for its turn than the kernel allows: the limit is that
/// of the watchdog (30 s), or of RCU (21 s) if a thread is stopped during a look-up.
#[test]
fn an_ejection_by_the_watchdog_leaves_no_thread_behind() {
    let Some(mut ext) = load() else { return };
    let mut servers = Servers::of(&mut ext);
    let id = servers.create(&server(1_000, 1));
    let group = hogs(40);
    group.iter().for_each(|hog| servers.ext.join(id, hog.thread, false).unwrap());
    assert!(within(90_000, || state() == "disabled"), "{:?}", servers.stats(id));
    let reason = servers.ext.exit_reason().unwrap();
    assert!(reason.contains("stall"), "{reason}");
    assert_eq!(servers.ext.create(&server(10, 1)), Err(ExtError::Gone { reason }));
    let before: Vec<_> = group.iter().map(Worker::used).collect();
    sleep_ms(1_000);
    assert!(group.iter().zip(before).all(|(hog, was)| hog.used() > was), "all threads continue");
    drop((servers, group));
    drop(ext);
    assert!(load().is_some(), "the scheduler can be loaded again");
}
