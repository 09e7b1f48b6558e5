//! Handlers in the kernel that favour the server of their sink without user space. Run with one CPU in the test
//! machine.

mod ext_shared;

use std::collections::BTreeMap;

use ext_shared::{Servers, hogs, loaded, ms, server, sleep_ms};
use qfabric_ecode::{Environment, Limits, compile};
use qfabric_linux::RaiseTarget;
use qfabric_linux::ecalls::{Aim, Install, Installed, Kernel, Step};
use qfabric_linux::ext::{Ext, ServerId};
use qfabric_types::Nanos;

/// Installs a handler on a timer with this period; the handler lets every second event pass.
fn favouring(ext: &Ext, aim: &Aim, period: &str) -> Installed {
    let kernel = Kernel::open().unwrap();
    let input = Some(kernel.service("timer").unwrap().format.clone());
    let program = compile("return input.count % 2;", &Environment { input, ..Environment::default() }).unwrap();
    let steps = [Step::Handler(&program), Step::Favour { raised: ext.raised(), aim }];
    let install = Install {
        service: "timer",
        options: &BTreeMap::from([("period".to_owned(), period.to_owned())]),
        only_pid: None,
        steps: &steps,
        limits: Limits::default(),
        down: None,
        deadline: Some(Nanos::from_millis(150)),
        fault_passes: true,
        measured: false,
    };
    kernel.install(&install).unwrap()
}

fn at(ext: &Ext, id: ServerId) -> RaiseTarget {
    RaiseTarget { slot: id.0, cpu: ext.cpu_of(id).unwrap() }
}

#[test]
fn an_event_at_a_hook_is_answered_within_a_service_time_without_user_space() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let (id, _hog) = servers.hog(&server(400, 5));
    let (other, _second) = servers.hog(&server(400, 5));
    let aim = Aim::new().unwrap();
    let installed = favouring(servers.ext, &aim, "100ms");
    let before = servers.stats(id);
    sleep_ms(450);
    assert_eq!(servers.stats(id).boosts, before.boosts, "the aim has no target");
    aim.at([at(servers.ext, id)]);
    let (passed, before, others) = (installed.counters().passed, servers.stats(id), servers.stats(other));
    sleep_ms(1_000);
    aim.at(None);
    sleep_ms(20);
    let (passed, after) = (installed.counters().passed - passed, servers.stats(id));
    let boosts: u64 = after.boosts.iter().zip(before.boosts).map(|(after, before)| after - before).sum();
    let (extra, blocked) = ((after.extra - before.extra).as_f64(), installed.counters().blocked);
    eprintln!("{passed} events passed, {blocked} did not: boosts {:?}, {extra} ns beyond the budget", after.boosts);
    assert!(passed >= 4 && blocked >= 4, "every second event passes: {passed}, {blocked}");
    assert!((passed - 1..=passed).contains(&boosts), "one boost for each event: {boosts} of {passed}");
    let each = extra / boosts as f64;
    assert!((0.0..=6e6).contains(&each), "at most one service time each: {each}");
    assert!(after.boosts[1] - before.boosts[1] >= 3, "most of them while it was throttled (rule 2): {after:?}");
    assert_eq!((after.missed, servers.stats(other).boosts), (before.missed, others.boosts));
}

#[test]
fn an_outdated_aim_favours_no_server_and_harms_none() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(2);
    let aim = Aim::new().unwrap();
    let (id, _hog) = servers.hog(&server(50, 5));
    let (gone, target) = servers.hog(&server(50, 5));
    aim.at([at(servers.ext, gone), RaiseTarget { slot: 1_000, cpu: 200 }]);
    drop(target);
    servers.ext.destroy(gone).unwrap();
    let _installed = favouring(servers.ext, &aim, "1ms");
    sleep_ms(400);
    let did = servers.stats(id);
    assert_eq!((did.missed, did.boosts, servers.ext.exit_reason()), (0, [0; 5], None), "{did:?}");
    assert!(did.served >= 7 && did.service == ms(5));
}
