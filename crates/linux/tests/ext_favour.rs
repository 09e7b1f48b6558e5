//! Handlers in the kernel that favour the server of their sink without user space. Run with one CPU in the test
//! machine.

mod ext_shared;
#[allow(dead_code, reason = "it measures other ways of scheduling as well")]
#[path = "../benches/event_delay/measure.rs"]
mod measure;

use std::collections::BTreeMap;

use ext_shared::{Servers, hogs, loaded, ms, server, sleep_ms};
use measure::{Plan, Receiver, Way};
use qfabric_ecode::{Environment, Limits, compile};
use qfabric_linux::RaiseTarget;
use qfabric_linux::ecalls::{Aim, DownMemory, Install, Installed, Kernel, Step};
use qfabric_linux::ext::{Ext, ServerId};
use qfabric_types::Nanos;

/// Lets every second event pass.
const EVERY_SECOND: &str = "return input.count % 2;";
/// Lets every second event pass, after three events that it emits.
const FOUR_AT_ONCE: &str = "struct output { int n; };
if (input.count % 2) { for (int i = 0; i < 3; i++) { output.n = i; emit(); } }
return input.count % 2;";

/// Installs a handler on a timer with this period.
fn favouring(ext: &Ext, aim: &Aim, period: &str, text: &str) -> Installed {
    let kernel = Kernel::open().unwrap();
    let input = Some(kernel.service("timer").unwrap().format.clone());
    let program = compile(text, &Environment { input, ..Environment::default() }).unwrap();
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
    let installed = favouring(servers.ext, &aim, "100ms", EVERY_SECOND);
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
    let _installed = favouring(servers.ext, &aim, "1ms", EVERY_SECOND);
    sleep_ms(400);
    let did = servers.stats(id);
    assert_eq!((did.missed, did.boosts, servers.ext.exit_reason()), (0, [0; 5], None), "{did:?}");
    assert!(did.served >= 7 && did.service == ms(5));
}

#[test]
fn several_events_between_two_decisions_are_answered_one_by_one() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let (id, _hog) = servers.hog(&server(400, 5));
    let aim = Aim::new().unwrap();
    aim.at([at(servers.ext, id)]);
    let installed = favouring(servers.ext, &aim, "100ms", FOUR_AT_ONCE);
    assert!(installed.kicks(), "the kernel lets a timer's handler interrupt a CPU");
    let (passed, before) = (installed.counters().passed, servers.stats(id));
    sleep_ms(1_000);
    aim.at(None);
    sleep_ms(60);
    let (passed, after) = (installed.counters().passed - passed, servers.stats(id));
    let boosts: u64 = after.boosts.iter().zip(before.boosts).map(|(after, before)| after - before).sum();
    assert!(passed >= 4, "every second event passes: {passed}");
    assert!((4 * (passed - 1)..=4 * passed).contains(&boosts), "four boosts for each: {boosts} of {passed}");
    assert_eq!(after.missed, before.missed);
}

/// The handler runs when this thread goes to sleep, before the scheduler decides who runs next.
#[test]
fn a_value_deferred_to_the_next_decision_favours_a_server_there() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(2);
    let (id, _hog) = servers.hog(&server(400, 5));
    let aim = Aim::new().unwrap();
    aim.at([at(servers.ext, id)]);
    let (kernel, down) = (Kernel::open().unwrap(), DownMemory::new().unwrap());
    let input = Some(kernel.service("app.deferred").unwrap().format.clone());
    let program = compile("return 1;", &Environment { input, ..Environment::default() }).unwrap();
    let steps = [Step::Handler(&program), Step::Favour { raised: servers.ext.raised(), aim: &aim }];
    let install = Install {
        service: "app.deferred",
        options: &BTreeMap::from([("when".to_owned(), "before_schedule".to_owned())]),
        only_pid: Some(std::process::id() as i32),
        steps: &steps,
        limits: Limits::default(),
        down: Some(&down),
        deadline: Some(Nanos::from_millis(150)),
        fault_passes: true,
        measured: false,
    };
    let installed = kernel.install(&install).unwrap();
    let before = servers.stats(id);
    for value in 1..=10 {
        down.down().defer(value).unwrap();
        sleep_ms(100);
    }
    let (passed, after) = (installed.counters().passed, servers.stats(id));
    let boosts: u64 = after.boosts.iter().zip(before.boosts).map(|(after, before)| after - before).sum();
    assert_eq!((passed, down.down().deferred()), (10, 0), "each value is handled by itself");
    assert!((5..=10).contains(&boosts), "{boosts}: {after:?}");
    assert_eq!((after.missed, servers.ext.exit_reason()), (before.missed, None));
}

/// In the test machine's time, which counts instructions.
#[test]
fn an_event_interrupts_its_cpu_without_waiting_for_the_tick() {
    const EVENTS: usize = 40;
    let Some(mut ext) = loaded() else { return };
    let _hogs = hogs(4);
    let kernel = Kernel::open().unwrap();
    let plan = Plan { events: EVENTS, cpu: 0, ..Plan::new() };
    let way = &mut Way::Server { ext: &mut ext, favoured: true };
    let mut delays = measure::delays(&kernel, &plan, Receiver::Computes, way).unwrap();
    delays.sort_unstable();
    eprintln!("delays in ns: {delays:?}");
    let most = delays[EVENTS * 7 / 10];
    assert!(most < 200_000, "seven of ten events are answered within 0.2 ms, far less than a tick: {delays:?}");
}
