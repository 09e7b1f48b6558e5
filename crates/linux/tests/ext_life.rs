//! Threads and CPUs come and go while servers serve. Two CPUs of the test machine share one of the host: shares are loose.

mod ext_shared;

use std::fs;
use std::time::Duration;

use ext_shared::{Servers, loaded, rest, server};
use qfabric_linux::ext::{ExtError, ServerSpec};

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
    assert!(without > 0.3, "{without}: best effort meanwhile, alone");
    assert!(used > 0.2, "{used}: served again");
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
    assert!(used < 0.02 && hog.share_over(Duration::from_millis(100)) > 0.4, "{used}: free on CPU 1");
    let refusal = servers.ext.join(id, hog.thread, false).unwrap_err();
    assert!(matches!(&refusal, ExtError::Affinity { cpu: 0, mask, .. } if mask == "1"), "{refusal}");
    confine(0);
    rest(30);
    let (used, _) = servers.share_over(id, 200);
    assert!(used > 0.2, "{used}: served again");
}
