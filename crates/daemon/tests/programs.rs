//! Tests with unmodified programs: all their threads, new threads, and programs that create too many.

mod common;

use std::time::{Duration, Instant};

use common::*;
use qfabric_client::Client;
use qfabric_linux::sched_attr::Policy;
use qfabric_linux::testing::live_lock;
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope};
use qfabric_types::{Contract, JobSource, Nanos, Share};

fn consumption(name: &str) -> Contract {
    Contract {
        jobs: JobSource::Consumption,
        max_bandwidth: Share::from_ppm(500_000),
        ..Contract::new(name, Nanos::from_millis(40))
    }
}

fn cover(client: &Client, pid: i32, contract: Contract) -> Application {
    client.admit(&ApplicationRequest { pid, covers: ApplicationScope::Program, contract }).unwrap()
}

#[test]
fn every_thread_is_covered_and_new_ones_are_too() {
    let _lock = live_lock();
    let (service, client) = service(quiet());
    let process = role("grows", None, &[("SOCKET", service.socket().to_str().unwrap())]);
    let id = cover(&client, process.pid(), consumption("grows")).id;
    eventually("a thread is born", || threads_of(process.0.id()).len() > 2);
    let born = Instant::now();
    eventually("every thread is covered", || {
        let covered = client.application(id).unwrap().threads;
        threads_of(process.0.id()).iter().all(|thread| covered.iter().any(|c| c.tid == *thread))
    });
    println!("new threads were covered after {:?}; the period is 40 ms", born.elapsed());
}

#[test]
#[ignore = "run by every_thread_is_covered_and_new_ones_are_too"]
fn grows() {
    let client = connected(given("SOCKET"));
    eventually("the program is covered", || !client.applications().unwrap().is_empty());
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| work_and_sleep(2_000))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn work_and_sleep(turns: usize) {
    for _ in 0..turns {
        spin(2);
        std::thread::sleep(Duration::from_millis(8));
    }
}

#[test]
fn children_are_covered_and_restored_when_the_contract_is_released() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let program = Process::shell("sleep 0.2; (while :; do :; done) & (while :; do :; done) & wait");
    let id = cover(&client, program.pid(), consumption("parent")).id;
    let children = || qfabric_linux::threads::descendants(program.pid());
    eventually("both children are under reservation", || {
        let children = children();
        children.len() == 2
            && children.iter().all(|pid| policy(qfabric_types::ThreadId(*pid)) == Some(Policy::DEADLINE))
    });
    client.release(id).unwrap();
    // A child that has used up its budget leaves after its refill, so later than the answer (page 0007).
    eventually("both children are restored", || {
        children().iter().all(|pid| policy(qfabric_types::ThreadId(*pid)) == Some(Policy::OTHER))
    });
    for pid in children() {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

#[test]
fn a_program_that_becomes_another_stays_covered() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let program = Process::shell("sleep 0.2; exec sh -c 'while :; do :; done'");
    let id = cover(&client, program.pid(), consumption("execs")).id;
    let command = || std::fs::read_to_string(format!("/proc/{}/cmdline", program.pid())).unwrap();
    eventually("it becomes another program", || command().starts_with("sh\0-c\0while"));
    let covered = || client.application(id).unwrap().threads.iter().map(|t| t.tid.0).collect::<Vec<_>>();
    eventually("it alone is covered", || covered() == [program.pid()]);
    eventually("it is under reservation", || policy(qfabric_types::ThreadId(program.pid())) == Some(Policy::DEADLINE));
}

#[test]
fn a_fork_bomb_costs_bounded_work_and_others_are_served() {
    let _lock = live_lock();
    let mut config = quiet();
    config.limits.max_threads = 16;
    let (service, client) = service(config);
    let process = role("fork_bomb", None, &[("SOCKET", service.socket().to_str().unwrap())]);
    let id = cover(&client, process.pid(), consumption("bomb")).id;
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let asked = Instant::now();
        let app = client.application(id).unwrap();
        slowest = slowest.max(asked.elapsed());
        assert!(app.threads.len() <= 16, "{} threads", app.threads.len());
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("the slowest of 100 answers took {slowest:?}");
    drop(process);
    eventually("it has left", || client.applications().unwrap().is_empty());
}

#[test]
#[ignore = "run by a_fork_bomb_costs_bounded_work_and_others_are_served"]
fn fork_bomb() {
    let client = connected(given("SOCKET"));
    eventually("the program is covered", || !client.applications().unwrap().is_empty());
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let threads: Vec<_> = (0..64).map(|_| std::thread::spawn(|| spin(1))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
