//! The scheduler comes and goes: under load, with its owner, with CPUs. The system lives.

mod ext_shared;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use ext_shared::{Servers, about, hogs, load, loaded, ms, rest, server};
use qfabric_linux::clock;
use qfabric_linux::ext::{Ext, ExtConfig, ExtError, Mode, ServerSpec};
use qfabric_linux::testing::{Worker, burn};
use qfabric_types::Nanos;

fn state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default().trim().to_owned()
}

fn within(length: u64, mut what: impl FnMut() -> bool) -> bool {
    (0..length).any(|_| {
        rest(1);
        what()
    })
}

/// Not a test: what the test of the killed owner starts.
#[test]
fn an_owner_that_waits_to_be_killed() {
    if std::env::var_os("QFABRIC_EXT_OWNER").is_none() {
        return;
    }
    let mut ext = Ext::load(&ExtConfig::default()).unwrap();
    let mut servers = Servers::of(&mut ext);
    let _hog = servers.hog(&server(10, 5));
    rest(60_000);
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
    assert!(within(60_000, || state() == "enabled"), "the owner loads it");
    let worker = Worker::burning();
    rest(100);
    assert!(matches!(Ext::supported(), Err(ExtError::Occupied { name }) if name == "qfabric"));
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(within(5_000, || state() == "disabled"), "{}", state());
    assert!(worker.share_over(Duration::from_millis(100)) > 0.4, "threads go on");
}

#[test]
fn unloading_under_load_puts_everybody_back_and_loading_works_again() {
    let Some(mut ext) = load() else { return };
    let workers = hogs(6);
    let mut servers = Servers::of(&mut ext);
    let (_id, reserved) = servers.hog(&server(10, 2));
    rest(50);
    drop(servers);
    drop(ext);
    assert_eq!(state(), "disabled");
    assert!(reserved.share_over(Duration::from_millis(200)) > 0.1);
    assert!(workers.iter().all(|worker| worker.share_over(Duration::from_millis(100)) > 0.01));
}

#[test]
fn storms_of_threads_inside_and_outside_a_group_break_no_promise() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (promised, _hog) = servers.hog(&server(10, 4));
    let group = servers.create(&ServerSpec { mode: Mode::Soft, ..server(20, 6) });
    let storm = || {
        std::thread::spawn(|| burn(Nanos::from_micros(50))).join().unwrap();
    };
    let (inside, outside) = (Worker::start(storm), Worker::start(storm));
    servers.ext.join(group, inside.thread, true).unwrap();
    rest(20);
    let turns = (inside.turns(), outside.turns());
    let (used, _) = servers.share_over(promised, 800);
    let turns = (inside.turns() - turns.0, outside.turns() - turns.1);
    eprintln!("storms: {turns:?} threads born inside and outside; {:?}", servers.did(group));
    about(used, 0.4, 0.02);
    assert!(turns.0 > 50 && turns.1 > 50, "{turns:?}");
    assert_eq!((servers.did(promised).missed, servers.did(group).violations), (0, 0));
    drop((inside, outside));
    rest(50);
    assert_eq!(servers.did(group).threads, 0, "the dead are not counted");
}

#[test]
fn a_cpu_goes_and_comes_back_with_its_servers() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (id, hog) = servers.hog(&ServerSpec { cpu: Some(1), ..server(10, 3) });
    rest(50);
    fs::write("/sys/devices/system/cpu/cpu1/online", "0").unwrap();
    assert!(!servers.ext.cpu_statistics(1).unwrap().online);
    let without = hog.share_over(Duration::from_millis(200));
    fs::write("/sys/devices/system/cpu/cpu1/online", "1").unwrap();
    rest(50);
    let (used, _) = servers.share_over(id, 300);
    eprintln!("hot-unplug: {without:.3} as best effort on the other CPU, {used:.3} after; {:?}", servers.did(id));
    assert!(without > 0.5, "{without}: best effort meanwhile, alone");
    about(used, 0.3, 0.03);
    assert_eq!(servers.ext.exit_reason(), None);
}

#[test]
fn a_thread_confined_elsewhere_is_refused_and_one_that_is_moved_away_is_best_effort() {
    use rustix::thread::{CpuSet, Pid, sched_setaffinity};
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (id, hog) = servers.hog(&server(10, 3));
    let confine = |cpu: usize| {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(Pid::from_raw(hog.thread.0), &set).unwrap();
    };
    rest(30);
    confine(1);
    rest(30);
    let (used, _) = servers.share_over(id, 100);
    assert!(used < 0.02 && hog.share_over(Duration::from_millis(100)) > 0.8, "{used}: free on CPU 1");
    let refusal = servers.ext.join(id, hog.thread, false).unwrap_err();
    assert!(matches!(&refusal, ExtError::Affinity { cpu: 0, mask, .. } if mask == "1"), "{refusal}");
    confine(0);
    rest(30);
    let (used, _) = servers.share_over(id, 200);
    about(used, 0.3, 0.03);
}

#[test]
fn sleepers_wake_into_their_period_and_idle_periods_are_no_misses() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let worker = Worker::periodic(ms(25), ms(2));
    let id = servers.create(&server(10, 3));
    servers.ext.join(id, worker.thread, false).unwrap();
    rest(20);
    let (before, at) = (servers.did(id), clock::now());
    rest(800);
    let (did, periods) = (servers.did(id), clock::now().since(at).as_f64() / 25e6);
    eprintln!("sleeper: {:?} delay at most, {did:?}", did.run_queue_delay_max);
    about((did.jobs - before.jobs) as f64, periods, 0.1);
    assert_eq!((did.missed, did.throttles), (0, before.throttles));
    assert!(did.run_queue_delay_max < ms(1), "{did:?}");
}
