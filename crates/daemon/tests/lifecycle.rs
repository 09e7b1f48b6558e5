//! Tests of start, stop and kill: no thread stays throttled, and every thread has its former policy afterwards.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::*;
use qfabric_client::{Client, JointBuilder, Resource, Session};
use qfabric_daemon::{Config, DaemonError, Embedded};
use qfabric_linux::cgroup::Mounts;
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::testing::live_lock;
use qfabric_types::api::{ApplicationRequest, ApplicationScope, HostLimits};
use qfabric_types::{JobSource, Reclaiming, ThreadId};
use rustix::process::{Pid, Signal, kill_process};

#[test]
#[ignore = "run by other tests: a service until it is stopped"]
fn a_daemon() {
    qfabric_daemon::run(quiet().in_directory(given("FOLDER"))).unwrap();
}

fn is_as_before(thread: ThreadId) -> bool {
    SchedAttr::of(thread).is_ok_and(|now| now.policy == Policy::OTHER && now.nice == 5)
}

fn cpu_time(process: &Process) -> u64 {
    qfabric_linux::clock::process_cpu(process.pid()).unwrap().get()
}

/// A service that reads `file` at its start and at each hangup, and a client of it.
fn daemon_with_file(folder: &Path, file: &Path) -> (Process, Client) {
    let environment = [("FOLDER", folder.to_str().unwrap()), ("CONFIG", file.to_str().unwrap())];
    let process = role("a_daemon_with_a_file", None, &environment);
    (process, served(folder))
}

#[test]
fn a_daemon_that_is_stopped_restores_everything_and_removes_its_sockets() {
    let _lock = live_lock();
    for signal in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().unwrap();
        let (mut process, client) = daemon(folder.path());
        let (_worker, thread) = covered_worker(&client);
        kill_process(Pid::from_raw(process.pid()).unwrap(), signal).unwrap();
        assert!(process.wait(), "{signal:?} must not be a failure");
        assert!(is_as_before(thread), "{:?}", SchedAttr::of(thread));
        assert!(!folder.path().join("qfabric.sock").exists());
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_hangup_reads_the_configuration_again_and_ends_nothing() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("daemon.toml");
    let configure = |capacity: &str| std::fs::write(&file, format!("[limits]\ncapacity = {capacity}\n")).unwrap();
    configure("0.6");
    let (mut process, client) = daemon_with_file(folder.path(), &file);
    let capacity = || Some(client.status().ok()?.capacity.ppm());
    assert_eq!(capacity(), Some(600_000));
    let (_worker, thread) = covered_worker(&client);
    let hang_up = || kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::HUP).unwrap();
    configure("0.4");
    hang_up();
    eventually("the new capacity holds", || capacity() == Some(400_000));
    configure("nonsense");
    hang_up();
    configure("0.5\nmax_threads = 0");
    hang_up();
    let sections =
        "[limits.users]\n7 = 0.3\n[limits.levels]\n9 = 0.2\n[memory]\nglobal_reserve = \"32M\"\n[api]\nmode = \"600\"";
    configure(&format!("0.5\n{sections}"));
    hang_up();
    eventually("it still reads its file", || capacity() == Some(500_000));
    eventually("the sockets have the new mode", || mode(&folder.path().join("ring.sock")) == 0o600);
    let limits = client.limits().unwrap();
    let memory = client.status().unwrap().memory.unwrap();
    assert_eq!(memory.global_reserve, qfabric_types::Bytes::from_mib(32), "the section [memory] holds");
    let share = qfabric_types::Share::from_ppm;
    assert_eq!((limits.users, limits.levels), ([(7, share(300_000))].into(), [(9, share(200_000))].into()));
    client.set_limits(&HostLimits { capacity: Some(share(450_000)), ..HostLimits::default() }).unwrap();
    assert_eq!(capacity(), Some(450_000));
    hang_up();
    eventually("the file's limits take the place of those set through the API", || capacity() == Some(500_000));
    assert_eq!(client.limits().unwrap().users.len(), 1);
    assert_eq!(policy(thread), Some(Policy::DEADLINE), "its applications continue");
    kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::TERM).unwrap();
    assert!(process.wait() && is_as_before(thread));
}

#[test]
fn a_hangup_changes_who_consents_to_joint_contracts() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("daemon.toml");
    let configure =
        |joint: &str| std::fs::write(&file, format!("[limits]\ncapacity = 0.6\n[joint]\n{joint}\n")).unwrap();
    configure("");
    let (mut process, client) = daemon_with_file(folder.path(), &file);
    let hang_up = || kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::HUP).unwrap();
    let request = JointBuilder::new().want("", Resource::Cpu, 0.1, 0.1).unwrap().application("", "player");
    let is_declined = || request.apply(&client).is_err_and(|error| error.to_string().contains("no program answers"));
    assert!(is_declined());
    configure("consent = \"accept\"\nconsent_time = \"500ms\"");
    hang_up();
    eventually("the new default holds", || request.apply(&client).is_ok());
    let kept = client.joint_contracts().unwrap()[0].id.clone();
    configure("consent = \"decline\"\n[joint.default_host]\ncontracts = 1");
    hang_up();
    eventually("the default is the old one", is_declined);
    assert!(client.joint_contract(&kept).is_ok(), "contracts in force stay");
    kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::TERM).unwrap();
    assert!(process.wait());
}

#[test]
fn a_hangup_changes_the_rule_for_contracts() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("daemon.toml");
    let configure = |rule: &str| {
        std::fs::write(&file, format!("[limits]\ncapacity = 0.6\n[contracts]\nreclaim = \"{rule}\"\n")).unwrap();
    };
    configure("never");
    let (mut process, client) = daemon_with_file(folder.path(), &file);
    let worker = Process::shell("exec sleep 600");
    let given = || {
        let request =
            ApplicationRequest { pid: worker.pid(), covers: ApplicationScope::Program, contract: contract("app", 40) };
        let admitted = client.admit(&request).unwrap();
        client.release(admitted.id).unwrap();
        admitted.contract.reclaiming
    };
    assert_eq!(given(), Reclaiming::Hard);
    configure("always");
    kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::HUP).unwrap();
    eventually("the new rule holds", || given() == Reclaiming::Grub);
    kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::TERM).unwrap();
    assert!(process.wait());
}

#[test]
fn a_hangup_begins_changes_and_ends_contracts_of_the_configuration() {
    let _lock = live_lock();
    let group = Mounts::here().v2.map(|at| at.join(format!("qfabric-hangup-{}", std::process::id())));
    let Some(group) = group.filter(|group| std::fs::create_dir(group).is_ok()) else {
        return qfabric_linux::testing::skip("this test needs a control group that it may make");
    };
    let worker = Process::shell("exec sleep 600");
    std::fs::write(group.join("cgroup.procs"), worker.pid().to_string()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("daemon.toml");
    let configure = |table: &str| std::fs::write(&file, format!("[limits]\ncapacity = 0.6\n{table}")).unwrap();
    let table = |fixed: &str| format!("[[contract]]\nname = 'web'\ncgroup = '{}'\nfixed = {fixed}\n", group.display());
    configure("");
    let (mut process, client) = daemon_with_file(folder.path(), &file);
    let hang_up = || kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::HUP).unwrap();
    let fixed = || client.applications().unwrap().first().and_then(|app| app.contract.fixed.map(|share| share.ppm()));
    assert_eq!(fixed(), None);
    for (share, ppm) in [("0.1", 100_000), ("0.2", 200_000)] {
        configure(&table(share));
        hang_up();
        eventually("the contract is in force", || fixed() == Some(ppm));
    }
    assert_eq!(client.applications().unwrap()[0].id.0, 1, "the contract was changed, not made again");
    configure("");
    hang_up();
    eventually("the contract has ended", || fixed().is_none());
    eventually("the process is restored", || policy(ThreadId(worker.pid())) == Some(Policy::OTHER));
    kill_process(Pid::from_raw(process.pid()).unwrap(), Signal::TERM).unwrap();
    assert!(process.wait());
    drop(worker);
    eventually("the group is empty", || std::fs::remove_dir(&group).is_ok());
}

#[test]
#[ignore = "run by a_hangup_reads_the_configuration_again_and_ends_nothing"]
fn a_daemon_with_a_file() {
    let read = || {
        let config = Config::load(Some(Path::new(&given("CONFIG"))))?.in_directory(given("FOLDER"));
        Ok(Config { log: quiet().log, ..config })
    };
    qfabric_daemon::run_and_reload(read().unwrap(), read).unwrap();
}

#[test]
fn after_a_kill_no_thread_is_throttled_and_the_next_start_restores_all() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let (mut process, client) = daemon(folder.path());
    let (worker, thread) = covered_worker(&client);
    let _hogs: Vec<_> = (0..4).map(|_| Process::shell("while :; do :; done")).collect();
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    assert_eq!(policy(thread), Some(Policy::DEADLINE), "it keeps its last reservation");
    let before = cpu_time(&worker);
    eventually("it runs on without the daemon", || cpu_time(&worker) - before > 5_000_000);

    let (_process, client) = daemon(folder.path());
    assert!(is_as_before(thread), "{:?}", SchedAttr::of(thread));
    assert!(client.applications().unwrap().is_empty());
    let before = cpu_time(&worker);
    eventually("it runs on", || cpu_time(&worker) > before);
    let contract = qfabric_types::Contract { jobs: JobSource::Consumption, ..contract("again", 40) };
    client
        .admit(&ApplicationRequest { pid: worker.pid(), covers: ApplicationScope::Program, contract })
        .expect("a new contract is admitted");
    eventually("it is under reservation again", || policy(thread) == Some(Policy::DEADLINE));
    let before = cpu_time(&worker);
    eventually("it runs under its new reservation", || cpu_time(&worker) - before > 5_000_000);
}

#[test]
fn an_embedded_service_that_is_dropped_restores_everything() {
    let _lock = live_lock();
    let (service, client) = service(quiet());
    let folder = service.socket().parent().unwrap().to_owned();
    let (_worker, thread) = covered_worker(&client);
    let session = Session::start(&client, contract("own", 20)).unwrap();
    eventually("the session's thread is under reservation", || policy(own_thread()) == Some(Policy::DEADLINE));
    drop(service);
    assert!(is_as_before(thread), "{:?}", SchedAttr::of(thread));
    assert_eq!(policy(own_thread()), Some(Policy::OTHER));
    assert!(!folder.exists(), "its private folder goes with it");
    drop(session);
}

#[test]
fn an_embedded_service_can_be_started_again_and_again() {
    let _lock = live_lock();
    for _ in 0..5 {
        let (service, client) = service(quiet());
        assert!(client.status().unwrap().capacity > qfabric_types::Share::from_ppm(100_000));
        service.stop().unwrap();
    }
}

#[test]
fn a_second_service_on_the_same_folder_is_refused_and_the_first_continues() {
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let first = Embedded::start(quiet().in_directory(folder.path())).unwrap();
    let refusal = Embedded::start(quiet().in_directory(folder.path())).unwrap_err();
    assert!(matches!(refusal, DaemonError::Running { .. }), "{refusal}");
    connected(first.socket()).status().unwrap();
}

#[test]
fn a_missing_capability_is_reported_with_the_command_that_grants_it() {
    let mut process = role("has_no_capability", Some(NOBODY), &[]);
    assert!(process.wait());
}

#[test]
#[ignore = "run as another user by a_missing_capability_is_reported_with_the_command_that_grants_it"]
fn has_no_capability() {
    let refusal = Embedded::start(Config::default()).unwrap_err().to_string();
    for part in ["CAP_SYS_NICE", "setcap", "systemd"] {
        assert!(refusal.contains(part), "{refusal}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let refusal = Embedded::start(quiet().in_directory("/proc/nowhere")).unwrap_err().to_string();
    assert!(refusal.contains("/proc/nowhere") && refusal.contains("api.directory"), "{refusal}");
}
