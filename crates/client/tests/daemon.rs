//! Sessions under a real daemon and the real scheduler.

mod common;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use common::{PATIENCE, connected, quiet};
use qfabric_client::{
    Client, ClientError, Connection, Contract, Cpu, Foresight, Nanos, OverloadChange, Session, Share, clock,
};
use qfabric_daemon::Embedded;
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::{Class, ThreadId};

const T: Nanos = Nanos::from_millis(20);

fn daemon_in(directory: &Path) -> Embedded {
    let mut config = quiet().in_directory(directory);
    config.limits.capacity = Some("1.0".parse().unwrap());
    Embedded::start(config).unwrap()
}

/// Runs `test` with a daemon, one such test at a time. Skips it on a machine that cannot reserve.
fn with_daemon(test: impl FnOnce(&Client)) {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon_in(directory.path());
    test(&connected(daemon.socket()));
}

fn contract(name: &str) -> Contract {
    Contract { max_bandwidth: Share::from_ppm(500_000), ..Contract::new(name, T) }
}

fn guaranteed(name: &str, share: Share) -> Contract {
    Contract { class: Class::B, guaranteed: Some(share), max_bandwidth: share, ..Contract::new(name, T) }
}

fn policy() -> Policy {
    SchedAttr::of(ThreadId(rustix::thread::gettid().as_raw_nonzero().get())).unwrap().policy
}

fn burn(time: Nanos) {
    let started = clock::thread_cpu();
    while clock::thread_cpu() - started < time {}
}

/// One job of 2 ms, and the wait for the next release.
fn job(session: &mut Session) {
    burn(Nanos::from_millis(2));
    session.end_cycle(Foresight::Nothing);
    session.wait_for_next_job();
}

/// Runs jobs until `reached`; returns false after the timeout.
fn jobs_until(session: &mut Session, mut reached: impl FnMut(&Session) -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        job(session);
        if reached(session) {
            return true;
        }
    }
    false
}

#[test]
fn a_session_runs_under_a_reservation_and_leaves_nothing_behind() {
    with_daemon(|client| {
        let before = policy();
        let mut session = Session::start(client, contract("player")).unwrap();
        assert_eq!(session.connection(), Connection::Joined(session.id().unwrap()));
        assert!(jobs_until(&mut session, |session| session.grant().jobs >= 20), "{:?}", session.grant());
        assert_eq!((policy(), session.counters().dropped), (Policy::DEADLINE, 0));
        let (grant, seen) = (session.grant(), client.application(session.id().unwrap()).unwrap());
        assert!(grant.budget > Nanos::ZERO && grant.period == session.contract().server_period, "{grant:?}");
        assert_eq!((seen.contract.name.as_str(), seen.pid), ("player", std::process::id() as i32));
        session.end().unwrap();
        assert_eq!((policy(), client.applications().unwrap()), (before, vec![]));
    });
}

/// Also for threads that end in an overrun: they leave SCHED_DEADLINE a little after their application has left the
/// daemon.
#[test]
fn ending_a_session_waits_until_its_thread_is_restored() {
    with_daemon(|client| {
        let before = policy();
        for round in 0..60 {
            let mut session = Session::start(client, contract("brief")).unwrap();
            for _ in 0..2 {
                burn(Nanos::from_micros(1_000 + 400 * (round % 20)));
                session.end_cycle(Foresight::Nothing);
            }
            session.end().unwrap();
            assert_eq!(policy(), before, "in round {round}");
        }
    });
}

#[test]
fn dropping_a_session_ends_the_contract() {
    with_daemon(|client| {
        drop(Session::start(client, contract("dropped")).unwrap());
        assert_eq!(client.applications().unwrap(), []);
    });
}

#[test]
fn a_refusal_names_the_requested_and_free_amount_and_the_holders() {
    with_daemon(|client| {
        let holder = Session::start(client, guaranteed("holder", Share::from_ppm(800_000))).unwrap();
        let asked = guaranteed("late-comer", Share::from_ppm(500_000));
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| Session::start(client, asked).map(drop).unwrap_err()).join().unwrap()
        });
        let ClientError::Refused(problem) = refused else { panic!("{refused}") };
        assert_eq!(problem.code, "over_committed");
        assert!(problem.free.unwrap() <= Share::from_ppm(200_000), "{problem:?}");
        assert_eq!(problem.holders[0].name, "holder");
        drop(holder);
    });
}

#[test]
fn a_contract_is_changed_without_losing_the_reservation() {
    with_daemon(|client| {
        let mut session = Session::start(client, contract("changing")).unwrap();
        job(&mut session);
        let slower = Contract { name: "changed".into(), ..Contract::new("", T.saturating_mul(2)) };
        session.change(slower).unwrap();
        let before = session.wait_for_next_job();
        assert_eq!(before.deadline.since(before.release), T.saturating_mul(2));
        assert_eq!(client.application(session.id().unwrap()).unwrap().contract.name, "changed");
        let refused = session.change(Contract { weight: 0, ..contract("nonsense") });
        assert!(matches!(refused, Err(ClientError::Contract(_))));
        assert_eq!(session.contract().name, "changed");
    });
}

/// Uses `ms` of CPU time in each job until `reached`; returns the number of jobs before the last one.
fn jobs_of(session: &mut Session, ms: u64, reached: impl Fn(&Session) -> bool) -> Option<usize> {
    // A count, not a time: far more jobs than the test needs.
    (0..3_000).find(|_| {
        session.wait_for_next_job();
        let until = clock::thread_cpu() + Nanos::from_millis(ms);
        while clock::thread_cpu() < until {}
        session.end_cycle(Foresight::Nothing);
        reached(session)
    })
}

#[test]
fn the_callback_reports_the_begin_and_the_end_of_an_overload() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let mut config = quiet();
    config.limits.capacity = Some("0.5".parse().unwrap());
    let daemon = Embedded::start(config).unwrap();
    let client = connected(daemon.socket());
    let (predictor, most) = ("ma:2".parse().unwrap(), Share::from_ppm(900_000));
    let dear = Contract { predictor, max_bandwidth: most, ..contract("dear") };
    let mut session = Session::start(&client, dear).unwrap();
    let changes = Rc::new(RefCell::new(Vec::new()));
    let seen = changes.clone();
    session.on_overload(move |change| seen.borrow_mut().push(change));
    // Jobs of 14 ms in 20 ms, with a capacity of 0.5 CPU.
    let jobs = jobs_of(&mut session, 14, |_| !changes.borrow().is_empty()).expect("the overload begins");
    assert!(jobs >= 8, "the callback ran after {jobs} jobs");
    let OverloadChange::Begins(overload) = changes.borrow()[0] else { panic!("{:?}", changes.borrow()) };
    assert!(overload.wanted > Share::from_ppm(600_000) && overload.granted <= Share::from_ppm(500_000), "{overload:?}");
    let shown = client.application(session.id().unwrap()).unwrap().overload;
    assert!(shown.is_some_and(|shown| shown.wanted > shown.granted), "{shown:?}");
    // The application lowers its quality.
    jobs_of(&mut session, 2, |_| changes.borrow().len() > 1).expect("the overload ends");
    assert_eq!(changes.borrow()[1..], [OverloadChange::Ends]);
    assert!(session.overload().is_none() && session.predicted_lateness().is_some());
}

#[test]
fn a_session_survives_the_end_of_the_daemon_and_joins_the_next_one() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon_in(directory.path());
    let client = connected(daemon.socket());
    let mut session = Session::start(&client, contract("survivor")).unwrap();
    job(&mut session);

    daemon.stop().unwrap();
    let lost = jobs_until(&mut session, |session| matches!(session.connection(), Connection::Alone { .. }));
    assert!(lost && session.counters().lost == 1 && session.grant().budget == Nanos::ZERO);
    assert!(matches!(session.reconnect(), Err(ClientError::NoDaemon { .. })));

    let _successor = daemon_in(directory.path());
    assert!(jobs_until(&mut session, |session| session.grant().jobs > 3), "{:?}", session.connection());
    assert_eq!((session.counters().rejoined, policy()), (1, Policy::DEADLINE));
    assert!(session.end().is_ok());
}

#[test]
fn reconnect_joins_the_next_daemon_at_once() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let directory = tempfile::tempdir().unwrap();
    let daemon = daemon_in(directory.path());
    let client = connected(daemon.socket());
    let mut session = Session::start(&client, contract("impatient")).unwrap();
    session.reconnect().unwrap(); // already joined: no effect
    drop(daemon);
    let _successor = daemon_in(directory.path());
    session.reconnect().unwrap();
    assert_eq!((session.counters().rejoined, policy()), (1, Policy::DEADLINE));
}

#[test]
fn the_probed_utilisation_is_reserved_and_freed() {
    with_daemon(|client| {
        let (mut cpu, before) = (Cpu::new(), policy());
        cpu.probe_on(T);
        for _ in 0..3 {
            burn(Nanos::from_millis(2));
            cpu.yield_now();
        }
        let utilisation = cpu.probe_off().utilisation + Share::from_ppm(50_000);
        cpu.reserve(client, std::process::id() as i32, utilisation, T).unwrap();
        cpu.start();
        for _ in 0..3 {
            burn(Nanos::from_millis(2));
            cpu.yield_now();
        }
        assert_eq!(client.applications().unwrap()[0].guaranteed, utilisation);
        assert_eq!(policy(), Policy::DEADLINE);
        cpu.free_reserve().unwrap();
        assert_eq!((policy(), client.applications().unwrap().len()), (before, 0));
    });
}

#[test]
fn a_reservation_for_another_program_is_made_and_freed() {
    with_daemon(|client| {
        let mut child = std::process::Command::new("sleep").arg("20").spawn().unwrap();
        let mut cpu = Cpu::new();
        cpu.reserve(client, child.id() as i32, Share::from_ppm(100_000), T).unwrap();
        assert_eq!(client.applications().unwrap()[0].pid, child.id() as i32);
        cpu.free_reserve().unwrap();
        assert_eq!(client.applications().unwrap(), []);
        child.kill().and_then(|()| child.wait()).unwrap();
    });
}
