//! Budgets under the scheduler in the kernel: enforced, changed, given up, shared by groups. Run with one CPU in the
//! test machine: several emulated CPUs run by turns there, and the clock continues meanwhile.

mod ext_shared;

use ext_shared::{Servers, about, hogs, loaded, ms, server, sleep_ms};
use qfabric_linux::clock;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::ext::{Change, ExtError, ServerId, ServerSpec};
use qfabric_linux::testing::{Worker, at_one_moment, burn};
use qfabric_types::{Nanos, Reclaiming, ThreadId};

#[test]
fn a_hard_server_gets_its_budget_in_every_period_and_not_more() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let (id, _hog) = servers.hog(&server(10, 3));
    sleep_ms(50);
    let (used, extra) = servers.share_over(id, 500);
    let did = servers.stats(id);
    eprintln!("hard 3/10 ms: {:.1} µs in each period", used * 10_000.0);
    about(used, 0.3, 0.01);
    assert_eq!((did.missed, did.violations, extra), (0, 0, 0.0), "{did:?}");
    assert!(did.throttles > 40, "{did:?}");
}

#[test]
fn a_work_conserving_server_gets_unreserved_time_but_best_effort_keeps_its_part() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (id, _hog) = servers.hog(&ServerSpec { work_conserving: true, ..server(10, 2) });
    let (other, _second) = servers.hog(&server(20, 6));
    let _hogs = hogs(4);
    let before = servers.ext.cpu_statistics(0).unwrap();
    let (used, extra) = servers.share_over(id, 500);
    let rest = servers.ext.cpu_statistics(0).unwrap().best_effort - before.best_effort;
    let (rest, did) = (rest.as_f64() / 5e8, servers.stats(id));
    eprintln!("work-conserving 2/10 ms: {used:.3} within, {extra:.3} beyond; best effort {rest:.3}; {did:?}");
    about(used, 0.2, 0.02);
    assert!(extra > 0.4, "{extra}");
    assert!(rest > 0.045, "best effort is guaranteed 0.05");
    assert_eq!(servers.stats(other).missed, 0);
}

#[test]
fn a_server_takes_the_place_of_a_large_one_for_which_there_is_no_second_room() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (old, hog) = servers.hog(&server(10, 6));
    let aligned = ServerSpec { phase: Some(clock::now()), ..server(10, 6) };
    assert!(matches!(servers.ext.create(&aligned), Err(ExtError::NoRoom { .. })));
    let new = servers.ext.create_instead(&aligned, old).unwrap();
    servers.ext.join(new, hog.thread, false).unwrap();
    servers.ext.destroy(old).unwrap();
    sleep_ms(50);
    let (used, _) = servers.share_over(new, 200);
    servers.ext.destroy(new).unwrap();
    about(used, 0.6, 0.02);
}

/// A timer begins each service, on an idle CPU. The worker hardly reads its clock: each reading corrects the kernel's
/// account.
#[test]
fn the_kernels_clock_shows_what_a_server_uses_on_an_otherwise_idle_cpu() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let worker = Worker::start(|| {
        std::hint::black_box((0..2_000_000u64).fold(0, |a, b| a ^ b.wrapping_mul(b)));
    });
    let id = servers.create(&server(10, 3));
    servers.ext.join(id, worker.thread, false).unwrap();
    sleep_ms(50);
    let read = || (clock::process_cpu(std::process::id() as i32).unwrap(), servers.stats(id));
    let (from, (clock, charged)) = at_one_moment(read);
    sleep_ms(500);
    let (to, (clock_after, charged_after)) = at_one_moment(read);
    let share = |used: Nanos| used.as_f64() / to.since(from).as_f64();
    let (clock, charged) = (share(clock_after - clock), share(charged_after.used - charged.used));
    eprintln!("alone, 3/10 ms: {charged:.4} of a CPU charged, {clock:.4} by the kernel's clock");
    about(charged, 0.3, 0.01);
    about(clock, 0.3, 0.03);
}

/// The server has a budget for most of a second, and a slice of best effort lasts 3 ms.
#[test]
fn a_thread_without_a_server_that_wakes_beside_a_busy_server_runs_at_once() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (id, _hog) = servers.hog(&server(1_000, 900));
    sleep_ms(20);
    let (late, used) = (Nanos::from_millis(7), servers.stats(id).throttles);
    let most = (0..60)
        .map(|_| {
            let due = clock::now() + late;
            std::thread::sleep(std::time::Duration::from_millis(7));
            clock::now().since(due)
        })
        .max();
    eprintln!("woken beside a server: late by {most:?} at most, {} throttles", servers.stats(id).throttles - used);
    assert!(most < Some(Nanos::from_micros(500)), "{most:?}");
}

#[test]
fn best_effort_has_its_share_while_servers_want_everything() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let cpus: Vec<u32> = CpuList::online().iter().collect();
    let all: Vec<_> = cpus.iter().map(|cpu| servers.hog(&ServerSpec { cpu: Some(*cpu), ..server(20, 18) })).collect();
    let hog = Worker::burning();
    sleep_ms(50);
    let share = hog.share_over(std::time::Duration::from_millis(800));
    let missed: u64 = all.iter().map(|(id, _)| servers.stats(*id).missed).sum();
    eprintln!("best effort beside 90 %: {share:.3}; {:?}", servers.ext.cpu_statistics(0).unwrap());
    assert!(share > 0.045, "{share}");
    assert_eq!(missed, 0);
}

#[test]
fn a_larger_budget_rescues_the_job_that_is_throttled() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let (id, _hog) = servers.hog(&server(400, 20));
    while servers.stats(id).throttles == 0 {
        sleep_ms(1);
    }
    sleep_ms(10);
    let before = servers.stats(id).used;
    servers.ext.change(id, &Change::service(ms(100))).unwrap();
    sleep_ms(90);
    let more = servers.stats(id).used - before;
    eprintln!("rescued within the period: {} more", more);
    assert!(more > ms(75) && more <= ms(81), "{more}: the new budget is larger by 80 ms");
    assert_eq!(servers.stats(id).missed, 0);
}

#[test]
fn a_smaller_budget_holds_at_once() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (id, _hog) = servers.hog(&server(400, 200));
    sleep_ms(20);
    servers.ext.change(id, &Change::service(ms(40))).unwrap();
    let before = servers.stats(id).used;
    sleep_ms(100);
    let more = servers.stats(id).used - before;
    assert!(more < ms(41), "{more} after the cut to 40 ms");
}

#[test]
fn threads_of_a_group_share_one_budget_in_turns() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(2);
    let id = servers.create(&server(20, 10));
    let group = hogs(8);
    group.iter().for_each(|hog| servers.ext.join(id, hog.thread, true).unwrap());
    sleep_ms(100);
    let before: Vec<_> = group.iter().map(Worker::used).collect();
    let (used, _) = servers.share_over(id, 1000);
    let each: Vec<_> = group.iter().zip(before).map(|(hog, was)| (hog.used() - was).as_f64() / 1e9).collect();
    eprintln!("group of 8 in 10/20 ms: {used:.3} together, each {each:.3?}");
    about(used, 0.5, 0.02);
    assert!(each.iter().all(|&share| (0.03..0.10).contains(&share)), "{each:?}");
    assert_eq!(servers.stats(id).threads, 8);
}

#[test]
fn a_yield_ends_the_job_and_the_next_one_begins_with_the_period() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let worker = Worker::start(|| {
        burn(Nanos::from_micros(500));
        std::thread::yield_now();
    });
    let id = servers.create(&server(10, 4));
    servers.ext.join(id, worker.thread, false).unwrap();
    sleep_ms(20);
    let (before, turns) = (servers.stats(id), worker.turns());
    sleep_ms(300);
    let (after, turns) = (servers.stats(id), worker.turns() - turns);
    eprintln!("yielding: {turns} turns in 30 periods, last job {}", after.last_job);
    assert!((28..=32).contains(&turns), "{turns} turns in 30 periods");
    assert!((28..=32).contains(&(after.jobs - before.jobs)), "{after:?}");
    assert_eq!((after.missed, after.throttles), (0, before.throttles), "{after:?}");
}

#[test]
fn threads_join_and_leave_whatever_they_are_doing() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(6);
    let id = servers.create(&server(10, 2));
    let (running, sleeping, waiting) = (Worker::burning(), Worker::sleeping(), Worker::burning());
    for worker in [&running, &sleeping, &waiting] {
        servers.ext.join(id, worker.thread, false).unwrap();
    }
    assert_eq!(servers.stats(id).threads, 3);
    let (used, _) = servers.share_over(id, 300);
    about(used, 0.2, 0.02);
    servers.ext.leave(running.thread).unwrap();
    servers.ext.leave(waiting.thread).unwrap();
    sleep_ms(20);
    let (used, _) = servers.share_over(id, 200);
    assert!(used < 0.05, "{used}: only the sleeper is left; {:?}", servers.stats(id));
    let gone = running.thread;
    drop((running, waiting, sleeping));
    sleep_ms(20);
    assert_eq!(servers.stats(id).threads, 0);
    assert_eq!(servers.ext.join(id, gone, false), Err(ExtError::NoThread { thread: gone }));
    servers.ext.leave(gone).unwrap();
}

#[test]
fn invalid_requests_are_refused_with_their_numbers() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let refused = |ext: &mut Servers, spec: &ServerSpec| ext.ext.create(spec).unwrap_err().to_string();
    let named = |text: String, parts: &[&str]| parts.iter().for_each(|p| assert!(text.contains(p), "{text}: {p}"));
    named(refused(&mut servers, &server(10, 11)), &["11 ms", "10 ms"]);
    named(refused(&mut servers, &server(5_000, 1)), &["5 s", "period"]);
    named(refused(&mut servers, &server(20, 20)), &["CPU 0", "94"]);
    named(refused(&mut servers, &ServerSpec { cpu: Some(77), ..server(20, 2) }), &["CPU 77", "0"]);
    let id = servers.create(&server(20, 10));
    named(servers.ext.change(id, &Change::service(ms(20))).unwrap_err().to_string(), &["CPU 0"]);
    assert_eq!(servers.stats(id).service, ms(10));
    let missing = ServerId(900);
    assert_eq!(servers.ext.raise(missing, None), Err(ExtError::NoServer { id: missing }));
    let thread = ThreadId(0x3fff_fff0);
    assert_eq!(servers.ext.join(id, thread, false), Err(ExtError::NoThread { thread }));
}

#[test]
fn storms_of_threads_inside_and_outside_a_group_break_no_promise() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (promised, _hog) = servers.hog(&server(10, 4));
    let group = servers.create(&ServerSpec { reclaiming: Reclaiming::Grub, ..server(20, 6) });
    let storm = || {
        std::thread::spawn(|| burn(Nanos::from_micros(50))).join().unwrap();
    };
    let (inside, outside) = (Worker::start(storm), Worker::start(storm));
    servers.ext.join(group, inside.thread, true).unwrap();
    sleep_ms(20);
    let turns = (inside.turns(), outside.turns());
    let (used, _) = servers.share_over(promised, 800);
    let turns = (inside.turns() - turns.0, outside.turns() - turns.1);
    eprintln!("storms: {turns:?} threads started inside and outside; {:?}", servers.stats(group));
    about(used, 0.4, 0.02);
    assert!(turns.0 > 50 && turns.1 > 50, "{turns:?}");
    assert_eq!((servers.stats(promised).missed, servers.stats(group).violations), (0, 0));
    drop((inside, outside));
    sleep_ms(50);
    assert_eq!(servers.stats(group).threads, 0, "ended threads are not counted");
}

#[test]
fn sleepers_wake_into_their_period_and_idle_periods_are_no_misses() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let worker = Worker::periodic(ms(25), ms(2));
    let id = servers.create(&server(10, 3));
    servers.ext.join(id, worker.thread, false).unwrap();
    sleep_ms(20);
    let (before, at) = (servers.stats(id), clock::now());
    sleep_ms(800);
    let (did, periods) = (servers.stats(id), clock::now().since(at).as_f64() / 25e6);
    eprintln!("sleeper: {:?} delay at most, {did:?}", did.run_queue_delay_max);
    about((did.jobs - before.jobs) as f64, periods, 0.1);
    assert_eq!((did.missed, did.throttles), (0, before.throttles));
    assert!(did.run_queue_delay_max < ms(1), "{did:?}");
}
