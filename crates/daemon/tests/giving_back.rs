//! Tests of giving back with the real scheduler: a thread between two jobs keeps a part of its share, and has all
//! of it at its release.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use qfabric_client::{Client, Contract, Foresight, Session};
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::ThreadId;

/// The budgets of the calling thread's session, in µs: while it sleeps between jobs, read by another thread; and at
/// its releases, read by itself. Ends after twenty jobs if `enough` returns true for both, or after a thousand: on a
/// loaded machine the other thread seldom looks.
fn budgets(
    client: &Client,
    contract: Contract,
    busy_ms: u64,
    enough: fn(&[u64], &[u64]) -> bool,
) -> (Vec<u64>, Vec<u64>) {
    let mut session = Session::start(client, contract).unwrap();
    let (thread, asleep, over) = (own_thread(), AtomicBool::new(false), AtomicBool::new(false));
    let (seen, mut at_release) = (Mutex::new(Vec::new()), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| watch(thread, &asleep, &over, &seen));
        for job in 0..1_000 {
            spin(busy_ms);
            session.end_cycle(Foresight::Nothing);
            asleep.store(true, Ordering::SeqCst);
            session.wait_for_next_job();
            asleep.store(false, Ordering::SeqCst);
            at_release.push(SchedAttr::of(thread).unwrap().runtime_ns / 1_000);
            if job > 20 && seen.try_lock().is_ok_and(|seen| enough(&seen, &at_release)) {
                break;
            }
        }
        over.store(true, Ordering::SeqCst);
    });
    (seen.into_inner().unwrap(), at_release)
}

fn watch(thread: ThreadId, asleep: &AtomicBool, over: &AtomicBool, seen: &Mutex<Vec<u64>>) {
    while !over.load(Ordering::SeqCst) {
        let before = asleep.load(Ordering::SeqCst);
        let budget = SchedAttr::of(thread).unwrap().runtime_ns / 1_000;
        let is_of_sleep = before && asleep.load(Ordering::SeqCst);
        let mut seen = seen.lock().unwrap();
        if is_of_sleep && seen.last() != Some(&budget) {
            seen.push(budget);
        }
        drop(seen);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Calls `work` while a second session needs about half of the capacity. A lone session would give nothing back.
fn beside_a_neighbour<T>(client: &Client, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = Session::start(client, contract("neighbour", 100)).unwrap();
            while !over.load(Ordering::SeqCst) {
                spin(18);
                session.end_cycle(Foresight::Nothing);
                session.wait_for_next_job();
            }
        });
        let done = work();
        over.store(true, Ordering::SeqCst);
        done
    })
}

fn has(budgets: &[u64], range: std::ops::RangeInclusive<u64>) -> bool {
    budgets.iter().any(|budget| range.contains(budget))
}

#[test]
fn a_session_gives_back_while_it_sleeps_and_has_its_share_at_the_release() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let (_service, client) = service(with_capacity("0.4"));
    let (asleep, at_release) = beside_a_neighbour(&client, || {
        // P is 25 ms. Its share is half of 0.4 CPU, which is 5 ms; 30 % of that are 1.5 ms.
        let enough = |asleep: &[u64], at_release: &[u64]| has(asleep, 1_490..=1_500) && has(at_release, 3_500..=5_000);
        budgets(&client, contract("player", 100), 14, enough)
    });
    assert!(has(&asleep, 1_490..=1_500), "asleep {asleep:?} us");
    assert!(has(&at_release, 3_500..=5_000), "14 ms in 100 need 3.5 at its releases: {at_release:?} us");
    let (_, text) = call(client.socket(), "GET", "/metrics", "");
    let line = text.lines().find(|line| line.starts_with("qfabric_settings_given_back")).unwrap();
    assert!(!line.ends_with(" 0"), "{line}");
}

#[test]
fn a_session_that_does_not_want_to_give_back_keeps_what_its_controller_asks() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let (_service, client) = service(with_capacity("0.4"));
    let keeps = Contract { give_back: false, ..contract("keeps", 100) };
    let (_, at_release) = beside_a_neighbour(&client, || budgets(&client, keeps, 2, |_, _| true));
    let last = *at_release.last().unwrap();
    assert!(last < 5_000, "2 ms in 100 need no share of 10 ms: {at_release:?} us");
}
