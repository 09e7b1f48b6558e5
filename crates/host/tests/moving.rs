//! A thread of a program gets its own contract and returns: its reservation and the accounts continue without a gap.

mod common;

use common::*;
use qfabric_host::{HostConfig, Input};
use qfabric_types::api::ApplicationScope;
use qfabric_types::{AppId, Class, Contract, JobSource, MechanismFeatures, Nanos, ThreadId};

const WORKER: i32 = 1;

/// A program whose first thread works while the others rest.
fn program(bench: &mut Bench) -> AppId {
    let contract = Contract { jobs: JobSource::Consumption, ..marked() };
    let app = bench.join(&contract, ApplicationScope::Program, &[WORKER, 2, 3]).unwrap();
    for k in 0..100 {
        bench.ran(app, WORKER, at(1_000 + 40 * k), Nanos::from_millis(8), true);
    }
    bench.settings.clear();
    app
}

/// Checks that what is in force is booked and within the capacity.
fn check_books(bench: &Bench, capacity: u32) {
    assert!(bench.host.held() >= bench.in_force(), "{} is booked of {}", bench.host.held(), bench.in_force());
    assert!(bench.host.held() <= share(capacity), "{} is booked", bench.host.held());
}

/// Answers the settings one by one and checks the accounts in between.
fn obey(bench: &mut Bench, capacity: u32) {
    check_books(bench, capacity);
    while let Some(setting) = bench.unanswered.pop_front() {
        assert!(
            setting.thread != ThreadId(WORKER) || setting.reservation.is_some(),
            "the thread lost its reservation: {setting:?}"
        );
        bench.apply(setting);
        check_books(bench, capacity);
        bench.input(Input::Tick);
    }
}

fn hand_back(bench: &mut Bench, own: AppId, program: AppId) {
    bench.input(Input::HandBack { app: own, thread: ThreadId(WORKER), to: program });
    check_books(bench, 100);
    bench.input(Input::Leave { app: own });
}

#[test]
fn a_thread_keeps_its_reservation_through_both_moves_and_the_accounts_follow_in_one_step() {
    for capacity in [90, 26] {
        let mut bench = Bench::new(share(capacity));
        let program = program(&mut bench);
        let before = bench.budget_us(WORKER);
        assert!(before > 2_000);
        bench.hold_back = true;
        let own = bench.join_thread(&marked(), WORKER).expect("the contract of its program gives way");
        assert_eq!(bench.host.covering(ThreadId(WORKER)), Some(own));
        obey(&mut bench, capacity);
        assert!(bench.budget_us(WORKER) >= before, "{} µs of {capacity} %, {before} before", bench.budget_us(WORKER));
        let sum: u32 = [own, program].iter().map(|app| bench.host.application(*app).unwrap().granted.ppm()).sum();
        assert!(sum <= share(capacity).ppm(), "{sum} granted");
        bench.wait_until(at(8_000));
        obey(&mut bench, capacity);

        hand_back(&mut bench, own, program);
        obey(&mut bench, capacity);
        bench.wait_until(at(9_000));
        obey(&mut bench, capacity);
        assert_eq!(bench.host.covering(ThreadId(WORKER)), Some(program));
        assert!(bench.host.application(own).is_none() && bench.budget_us(WORKER) > 0);
        bench.input(Input::Leave { app: program });
        bench.hold_back = false;
        bench.catch_up();
        bench.wait_until(at(10_000));
        assert_eq!((bench.host.held(), bench.kernel.len()), (share(0), 0), "nothing is left in the ledger");
    }
}

#[test]
fn a_refused_contract_moves_nothing() {
    let mut bench = Bench::new(share(90));
    let program = program(&mut bench);
    let greedy = Contract { class: Class::A, guaranteed: Some(share(95)), ..marked() };
    assert_eq!(bench.join_thread(&greedy, WORKER).unwrap_err().code, "over_committed");
    assert_eq!((bench.host.covering(ThreadId(WORKER)), bench.settings.len()), (Some(program), 0));
    bench.join_thread(&marked(), WORKER).unwrap();
    assert_eq!(bench.join_thread(&marked(), WORKER).unwrap_err().code, "already_covered");
}

#[test]
fn an_unanswered_setting_moves_with_the_thread() {
    let mut bench = Bench::new(share(90));
    bench.hold_back = true;
    let contract = Contract { jobs: JobSource::Consumption, ..marked() };
    let program = bench.join(&contract, ApplicationScope::Program, &[WORKER, 2]).unwrap();
    let own = bench.join_thread(&marked(), WORKER).unwrap();
    obey(&mut bench, 90);
    assert_eq!(bench.host.application(own).unwrap().threads.len(), 1);
    assert_eq!(bench.host.application(program).unwrap().threads.len(), 1);
    assert!(bench.budget_us(WORKER) > 0);
}

#[test]
fn a_server_that_several_threads_share_stays_with_the_others_and_is_counted_once() {
    let features = MechanismFeatures { terms: true, ..MechanismFeatures::default() };
    let mut bench = Bench::with_config(HostConfig { features, ..HostConfig::default() });
    let fixed = Contract { fixed: Some(share(30)), ..marked() };
    let program = bench.join(&fixed, ApplicationScope::Program, &[WORKER, 2]).unwrap();
    assert_eq!(bench.host.held(), share(30), "one server");
    bench.hold_back = true;
    let own = bench.join_thread(&Contract { fixed: Some(share(20)), ..marked() }, WORKER).unwrap();
    assert!(bench.host.held() >= share(30) && bench.host.held() <= share(50), "{}", bench.host.held());
    bench.hold_back = false;
    bench.catch_up();
    bench.wait_until(at(3_000));
    assert_eq!(bench.host.held(), share(50), "the server of the others, and the thread's own");
    bench.input(Input::HandBack { app: own, thread: ThreadId(WORKER), to: program });
    bench.input(Input::Leave { app: own });
    bench.wait_until(at(4_000));
    assert_eq!(bench.host.held(), share(30));
}
