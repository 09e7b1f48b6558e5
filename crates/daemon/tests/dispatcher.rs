//! Tests of the service with the mechanism `dispatcher`, end to end.

mod common;

use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::*;
use qfabric_client::{Client, ClientError, Cpu, Foresight, Session};
use qfabric_daemon::{Config, MechanismName};
use qfabric_linux::cpus::CpuList;
use qfabric_linux::dispatcher;
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::testing::{live_lock, skip};
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope};
use qfabric_types::{AppId, Contract, DispatchRules, Nanos, ServerCounts, Share, ThreadId};

fn slots() -> Config {
    let mut config = quiet();
    config.mechanism.name = MechanismName::Dispatcher;
    config
}

fn is_here() -> bool {
    dispatcher::supported().map_err(skip).is_ok()
}

fn fixed(name: &str, service_ms: u64, period_ms: u64) -> Contract {
    Contract::fixed(name, Nanos::from_millis(period_ms), Nanos::from_millis(service_ms))
}

fn admit(client: &Client, process: &Process, contract: Contract) -> Result<Application, ClientError> {
    client.admit(&ApplicationRequest { pid: process.pid(), covers: ApplicationScope::Program, contract })
}

fn refusal(client: &Client, process: &Process, contract: Contract) -> String {
    admit(client, process, contract).unwrap_err().to_string()
}

fn counts(client: &Client, app: &Application) -> ServerCounts {
    client.application(app.id).unwrap().server.unwrap_or_default()
}

/// A busy process that is pinned to the last CPU, and that CPU.
fn pinned() -> (Process, u32) {
    let cpu = CpuList::online().iter().last().unwrap();
    let process = Process::shell("while :; do :; done");
    let pid = process.pid().to_string();
    assert!(Command::new("taskset").args(["-cp", &cpu.to_string(), &pid]).output().unwrap().status.success());
    (process, cpu)
}

#[test]
fn a_pinned_program_gets_slots_on_its_cpu_and_its_policy_back() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(slots());
    let (process, cpu) = pinned();
    let policy = || SchedAttr::of(ThreadId(process.pid())).map(|attr| (attr.policy, attr.flags)).ok();
    let before = policy();
    let app = admit(&client, &process, fixed("pinned", 20, 50)).unwrap();
    assert_eq!(client.status().unwrap().mechanism, "dispatcher");
    eventually("its slots are served", || counts(&client, &app).served >= 5);
    // It is always busy. A period from which the hypervisor took much of a slot counts as an underrun.
    eventually("it used all slots of a period", || counts(&client, &app).throttles > 0);
    let seen = client.application(app.id).unwrap();
    assert_eq!(seen.cpus, [cpu]);
    let counted = seen.server.unwrap();
    assert!(counted.previous_ns > 0, "it is always busy: {counted:?}");
    assert!(counted.slots >= 2 * counted.served, "20 ms are two slots: {counted:?}");
    let tables = client.status().unwrap().tables;
    assert_eq!(tables.iter().map(|table| (table.cpu, table.groups, table.frame)).collect::<Vec<_>>(), [(cpu, 1, 5)]);
    client.release(app.id).unwrap();
    assert!(client.status().unwrap().tables.is_empty(), "no table without a group");
    eventually("it has its policy back", || policy() == before);
}

/// What a refusal suggests for a window, under this kernel and with these rights.
fn other_for_windows() -> &'static str {
    let others = qfabric_linux::alternatives("dispatcher", DispatchRules::default());
    match others.iter().any(|(name, _)| *name == MechanismName::Ext) {
        true => "use --mechanism ext",
        false => "no other mechanism of this machine",
    }
}

#[test]
fn requests_that_no_table_serves_are_refused_with_the_next_step() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(slots());
    let (first, second) = (pinned().0, pinned().0);
    admit(&client, &first, fixed("first", 50, 100)).unwrap();
    let windowed = Contract { window: "1/5".parse().ok(), ..fixed("second", 10, 100) };
    for (contract, parts) in [
        (fixed("second", 50, 100), ["0.9 CPU on each of 1, at most 0.4 CPU", "first (1): 0.5 CPU"]),
        (fixed("second", 1, 9), ["shorter than a slot of 10 ms", "mechanism.slot"]),
        (windowed, ["dispatcher cannot give a window", other_for_windows()]),
        (Contract::new("second", Nanos::from_millis(40)), ["feedback", "--service TIME"]),
    ] {
        let told = format!("{contract:?}");
        let refused = refusal(&client, &second, contract);
        assert!(parts.iter().all(|part| refused.contains(part)), "{told}: {refused}");
    }
    assert_eq!(client.applications().unwrap().len(), 1, "nothing is left of the refused ones");
}

#[test]
fn a_renegotiated_service_changes_the_table_and_the_thread_keeps_its_cpu() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(slots());
    let (process, cpu) = pinned();
    let app = admit(&client, &process, fixed("player", 10, 100)).unwrap();
    eventually("its slots are served", || counts(&client, &app).served >= 3);
    client.change(app.id, &fixed("player", 60, 100)).unwrap();
    eventually("a period used six slots", || counts(&client, &app).previous_ns > 55_000_000);
    assert_eq!(client.application(app.id).unwrap().cpus, [cpu]);
}

/// A thread with slots of 0.9 s in every 1.8 s that does one job when it is asked to, and then sleeps.
fn does_one_job(client: &Client, joined: &Sender<(AppId, ThreadId)>, begin: &Receiver<()>, end: &Receiver<()>) {
    let mut session = Session::start(client, fixed("marks", 900, 1_800)).unwrap();
    joined.send((session.id().unwrap(), own_thread())).unwrap();
    begin.recv().unwrap();
    session.begin(Foresight::Nothing);
    session.end_cycle(Foresight::Nothing);
    end.recv().unwrap();
    session.end().unwrap();
}

/// Whether a job that is released `phase` ms after the table begins gives its slots back before the table's next period.
fn yields_in_its_period(client: &Client, phase: u64) -> bool {
    let ((joins, joined), (begin, begins), (end, ends)) = (channel(), channel(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || does_one_job(client, &joins, &begins, &ends));
        // Dropped if this thread panics, so that the other one ends.
        let (begin, end) = (begin, end);
        let (id, thread) = joined.recv().unwrap();
        let counts = || client.application(id).unwrap().server.unwrap_or_default();
        eventually("it has slots", || counts().slots > 0);
        std::thread::sleep(Duration::from_millis(phase));
        let periods = || counts().served + counts().missed;
        let before = periods();
        begin.send(()).unwrap();
        let waits = || SchedAttr::of(thread).is_ok_and(|attr| attr.policy == Policy::IDLE);
        eventually("it waits, or the next period has begun", || waits() || periods() > before);
        let yielded = waits() && periods() == before;
        end.send(()).unwrap();
        yielded
    })
}

/// The daemon promised its next look for two periods after the release, so an end came when the next period had begun.
/// A boundary may fall between the release and the end of a job, on a loaded machine more often than not: each phase is
/// tried several times.
#[test]
fn the_end_of_a_job_gives_back_the_slots_of_its_own_period_in_each_phase() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(slots());
    let _hog = pinned();
    for phase in [0, 400, 1_000, 1_400] {
        let yielded = (0..20).any(|_| yields_in_its_period(&client, phase));
        assert!(yielded, "at {phase} ms the slots are given back in the next period");
    }
}

#[test]
fn the_cpu_interface_of_qualman_reserves_slots_and_a_job_is_no_overrun() {
    let _lock = live_lock();
    if !is_here() {
        return;
    }
    let (_service, client) = service(slots());
    let (mut cpu, me) = (Cpu::new(), std::process::id() as i32);
    cpu.reserve(&client, me, Share::from_ppm(100_000), Nanos::from_millis(100)).unwrap();
    cpu.start();
    let counts = || client.applications().unwrap()[0].server.unwrap_or_default();
    (0..5).for_each(|_| cpu.yield_now());
    eventually("periods in which it yielded", || counts().underruns >= 3);
    assert_eq!(client.status().unwrap().tables[0].groups, 1);
    cpu.free_reserve().unwrap();
    assert!(client.applications().unwrap().is_empty());
    let other = Process::shell("while :; do :; done");
    cpu.reserve(&client, other.pid(), Share::from_ppm(200_000), Nanos::from_millis(100)).unwrap();
    eventually("another program has its slots", || counts().served >= 3);
    cpu.free_reserve().unwrap();
}
