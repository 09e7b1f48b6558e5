//! Threads and CPUs appear and disappear while servers run. The two CPUs of the test machine share one CPU of the host,
//! so the expected shares are loose.

mod ext_shared;

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use ext_shared::{Servers, loaded, server, sleep_ms};
use qfabric_linux::ext::{ExtError, ServerSpec};
use qfabric_types::ThreadId;

#[test]
fn a_cpu_that_goes_offline_and_online_again_keeps_its_servers() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (id, hog) = servers.hog(&ServerSpec { cpu: Some(1), ..server(10, 3) });
    sleep_ms(50);
    fs::write("/sys/devices/system/cpu/cpu1/online", "0").unwrap();
    assert!(!servers.ext.cpu_statistics(1).unwrap().online);
    let without = hog.share_over(Duration::from_millis(200));
    fs::write("/sys/devices/system/cpu/cpu1/online", "1").unwrap();
    sleep_ms(50);
    let (used, _) = servers.share_over(id, 300);
    eprintln!("hot-unplug: {without:.3} as best effort on the other CPU, {used:.3} after; {:?}", servers.stats(id));
    assert!(without > 0.3, "{without}: meanwhile the only best-effort thread");
    assert!(used > 0.05, "{used}: served again (time taken by the host counts as an overrun, which is owed)");
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
    sleep_ms(30);
    confine(1);
    sleep_ms(30);
    let (used, _) = servers.share_over(id, 100);
    assert!(used < 0.02 && hog.share_over(Duration::from_millis(100)) > 0.4, "{used}: it runs freely on CPU 1");
    let refusal = servers.ext.join(id, hog.thread, false).unwrap_err();
    assert!(matches!(&refusal, ExtError::Affinity { cpu: 0, mask, .. } if mask == "1"), "{refusal}");
    confine(0);
    sleep_ms(30);
    let (used, _) = servers.share_over(id, 200);
    assert!(used > 0.2, "{used}: served again");
}

#[test]
fn no_server_is_created_on_an_offline_cpu_and_its_servers_keep_their_place() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let there = ServerSpec { cpu: Some(1), ..server(10, 3) };
    let (id, _hog) = servers.hog(&there);
    let booked = servers.ext.cpu_statistics(1).unwrap().booked;
    fs::write("/sys/devices/system/cpu/cpu1/online", "0").unwrap();
    let refusal = servers.ext.create(&there).unwrap_err().to_string();
    let elsewhere = servers.ext.create(&ServerSpec { cpu: None, ..server(10, 1) }).unwrap();
    let cpu = servers.ext.cpu_of(elsewhere);
    fs::write("/sys/devices/system/cpu/cpu1/online", "1").unwrap();
    servers.ext.destroy(elsewhere).unwrap();
    assert!(refusal.contains("CPU 1"), "{refusal}");
    assert_eq!(cpu, Ok(0), "without a named CPU an online one is chosen");
    assert_eq!(servers.ext.cpu_statistics(1).unwrap().booked, booked, "the booked share is as before");
    sleep_ms(50);
    assert!(servers.share_over(id, 300).0 > 0.05, "{:?}", servers.stats(id));
}

#[test]
fn a_program_that_becomes_another_one_keeps_its_server() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let mut program = Command::new("sh")
        .args(["-c", "read go; exec sh -c 'while :; do :; done'"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let thread = ThreadId(program.id() as i32);
    let id = servers.create(&server(10, 3));
    servers.ext.join(id, thread, true).unwrap();
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    sleep_ms(100);
    let (used, _) = servers.share_over(id, 300);
    let threads = servers.stats(id).threads;
    program.kill().unwrap();
    program.wait().unwrap();
    sleep_ms(50);
    assert!(used > 0.05 && threads == 1, "{used}, {threads} threads");
    assert_eq!(servers.stats(id).threads, 0);
}

#[test]
fn an_ending_thread_cannot_join_and_is_not_counted() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let id = servers.create(&server(10, 3));
    let mut dead = Command::new("true").spawn().unwrap();
    let thread = ThreadId(dead.id() as i32);
    while fs::read_to_string(format!("/proc/{}/stat", thread.0)).is_ok_and(|stat| !stat.contains(") Z")) {
        sleep_ms(1);
    }
    assert_eq!(servers.ext.join(id, thread, true), Err(ExtError::NoThread { thread }), "not reaped yet");
    dead.wait().unwrap();
    for round in 0..100 {
        let (id_sender, id_receiver) = std::sync::mpsc::channel();
        let short = std::thread::spawn(move || {
            id_sender.send(ThreadId(rustix::thread::gettid().as_raw_nonzero().get())).unwrap();
            (0..round * 200).fold(0, |a, b| std::hint::black_box(a ^ b));
        });
        let thread = id_receiver.recv().unwrap();
        let joined = servers.ext.join(id, thread, false);
        assert!(matches!(joined, Ok(()) | Err(ExtError::NoThread { .. })), "{joined:?}");
        short.join().unwrap();
    }
    sleep_ms(100);
    assert_eq!(servers.stats(id).threads, 0);
    assert!(servers.share_over(id, 100).0 < 0.01, "no thread of the server runs");
}
