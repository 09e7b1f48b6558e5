//! Tests with clients that mark their jobs: correct clients, clients that die, and hostile clients.

mod common;

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use qfabric_client::{Client, Session};
use qfabric_linux::sched_attr::Policy;
use qfabric_linux::testing::live_lock;
use qfabric_shm::{SharedRing, fds};
use qfabric_types::api::{ApplicationRequest, ApplicationScope};
use qfabric_types::ring::{CAPACITY, JobEvent, Producer};
use qfabric_types::{AppId, Foresight, JobRecord, Nanos, ThreadId};

/// A metric of `/metrics`: of one application, or of the host.
fn metric(client: &Client, name: &str, app: Option<AppId>) -> f64 {
    let (_, text) = call(client.socket(), "GET", "/metrics", "");
    let start = match app {
        Some(app) => format!("qfabric_{name}{{app=\"{app}\""),
        None => format!("qfabric_{name} "),
    };
    let line = text.lines().find(|line| line.starts_with(&start));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {start} in\n{text}"))
}

/// The daemon's counters of one ring.
fn ring_lines(client: &Client, app: AppId) -> String {
    let (_, text) = call(client.socket(), "GET", "/metrics", "");
    let own = format!("{{app=\"{app}\"");
    let lines = text.lines().filter(|line| line.starts_with("qfabric_ring") && line.contains(&own));
    let host = text.lines().filter(|line| line.starts_with("qfabric_inputs") || line.starts_with("qfabric_looks"));
    lines.chain(host).collect::<Vec<_>>().join("\n")
}

/// A contract and its ring without the client library.
struct Raw {
    app: AppId,
    lease: OwnedFd,
    memory: OwnedFd,
    wake: OwnedFd,
    ring: SharedRing,
}

fn raw(client: &Client) -> Raw {
    let request = ApplicationRequest {
        pid: std::process::id() as i32,
        covers: ApplicationScope::Thread(own_thread()),
        contract: contract("raw", 20),
    };
    let app = client.admit(&request).unwrap().id;
    let lease = fds::connect(&client.ring_socket(), PATIENCE).unwrap();
    fds::send(&lease, app.to_string().as_bytes(), &[]).unwrap();
    let mut answer = fds::recv(&lease, &mut [0; 512]).unwrap();
    let (wake, memory) = (answer.fds.pop().unwrap(), answer.fds.pop().unwrap());
    let ring = SharedRing::map(memory.try_clone().unwrap()).unwrap();
    Raw { app, lease, memory, wake, ring }
}

fn wake(raw: &Raw) {
    let _ = rustix::io::write(&raw.wake, &1u64.to_ne_bytes());
}

/// The daemon's answer to a first message on `ring.sock`.
fn asked(client: &Client, message: &[u8]) -> String {
    let lease = fds::connect(&client.ring_socket(), PATIENCE).unwrap();
    fds::send(&lease, message, &[]).unwrap();
    let mut buffer = [0; 512];
    let length = fds::recv(&lease, &mut buffer).unwrap().length;
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// Checks that a correct session works and all its jobs arrive. Uses another thread, because the caller's may have
/// a contract.
fn honest_jobs_arrive(client: &Client) {
    std::thread::scope(|scope| scope.spawn(|| honest_session(client)).join().unwrap());
}

fn honest_session(client: &Client) {
    let mut session = Session::start(client, contract("honest", 20)).unwrap();
    work(&mut session, 25, 1);
    let id = session.id().unwrap();
    let counted = || client.application(id).unwrap().quality.jobs;
    let until = Instant::now() + PATIENCE;
    while counted() < 25 {
        let (jobs, sent) = (counted(), session.counters());
        assert!(Instant::now() < until, "{jobs} of 25 jobs counted; {sent:?}; {}", ring_lines(client, id));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_marked_client_gets_a_reservation_that_follows_its_jobs() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let mut session = Session::start(&client, contract("marked", 20)).unwrap();
    let first = session.grant();
    work(&mut session, 60, 2);
    let look = || client.application(session.id().unwrap()).unwrap();
    eventually("its jobs are counted", || look().quality.jobs >= 59);
    let app = look();
    let reservation = app.threads[0].reservation.expect("a marked thread is under reservation");
    eventually("a marked thread is under reservation", || policy(own_thread()) == Some(Policy::DEADLINE));
    assert_eq!(session.grant().budget, reservation.budget(), "the ring shows the reservation in force");
    assert!(reservation.budget() < first.budget.max(Nanos::from_millis(4)), "{first:?} → {reservation:?}");
    assert!(app.granted > qfabric_types::Share::ZERO, "{app:?}");
    session.end().unwrap();
    eventually("the thread is back", || policy(own_thread()) == Some(Policy::OTHER));
}

#[test]
fn jobs_that_end_before_the_promised_look_send_no_wake_up() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let mut session = Session::start(&client, contract("quiet", 20)).unwrap();
    work(&mut session, 50, 1);
    let calls = metric(&client, "ring_wakeups_total", session.id());
    assert!(calls <= 10.0, "{calls} wake-up calls for 50 jobs");
}

#[test]
fn a_client_that_dies_in_the_middle_of_a_job_leaves() {
    let _lock = live_lock();
    let (service, client) = service(quiet());
    let mut process = role("dies_in_a_job", None, &[("SOCKET", service.socket().to_str().unwrap())]);
    eventually("it is under contract", || client.applications().unwrap().iter().any(|app| app.quality.jobs > 3));
    process.0.kill().unwrap();
    eventually("it has left", || client.applications().unwrap().is_empty());
    honest_jobs_arrive(&client);
}

#[test]
#[ignore = "run by a_client_that_dies_in_the_middle_of_a_job_leaves"]
fn dies_in_a_job() {
    let client = connected(given("SOCKET"));
    let mut session = Session::start(&client, contract("dies", 20)).unwrap();
    work(&mut session, 10_000, 5);
}

#[test]
fn a_closed_lease_puts_the_thread_back_after_the_grace_though_the_process_lives() {
    let _lock = live_lock();
    let mut config = quiet();
    config.control.lease_grace = Nanos::from_millis(50);
    let (_service, client) = service(config);
    let held = raw(&client);
    let thread = own_thread();
    assert_eq!(client.application(held.app).unwrap().threads[0].tid, thread);
    drop(held);
    eventually("it has left", || client.applications().unwrap().is_empty());
    // One that has used up its budget leaves the policy after its refill.
    eventually("the thread is back", || policy(thread) == Some(Policy::OTHER));
}

/// As a client that lost its connection and begins again: sixty times, within the grace time.
#[test]
fn a_closed_connection_makes_way_for_the_threads_next_contract() {
    let _lock = live_lock();
    let mut config = quiet();
    config.control.lease_grace = Nanos::from_millis(60_000);
    let (_service, client) = service(config);
    let mut last = raw(&client).app;
    for _ in 0..60 {
        let next = raw(&client).app;
        assert_eq!(client.applications().unwrap().iter().map(|app| app.id).collect::<Vec<_>>(), [next]);
        assert_ne!(next, last);
        last = next;
    }
}

#[test]
fn a_ring_is_handed_out_once_and_to_its_own_process_only() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let held = raw(&client);
    assert!(asked(&client, held.app.to_string().as_bytes()).starts_with("already_held"));
    assert!(asked(&client, b"4711").starts_with("not_found"));
    for nonsense in [&b"one"[..], b"-1", b"\xff\xff", b"1 or 1=1", &[b'9'; 60]] {
        assert!(asked(&client, nonsense).starts_with("invalid"), "{nonsense:?}");
    }
    let other = Process::shell("sleep 60");
    let request =
        ApplicationRequest { pid: other.pid(), covers: ApplicationScope::Program, contract: contract("other", 20) };
    let app = client.admit(&request).unwrap().id;
    assert!(asked(&client, app.to_string().as_bytes()).starts_with("not_yours"), "its process is another one");
}

#[test]
fn a_silent_ring_connection_is_closed() {
    let _lock = live_lock();
    let mut config = quiet();
    config.api.timeout = Nanos::from_millis(100);
    let (_service, client) = service(config);
    let silent = fds::connect(&client.ring_socket(), PATIENCE).unwrap();
    assert_eq!(fds::recv(&silent, &mut [0; 8]).unwrap().length, 0, "closed by the service");
}

#[test]
fn a_corrupted_ring_harms_only_its_own_application() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let held = raw(&client);
    let file = std::fs::File::from(held.memory.try_clone().unwrap());
    let size = file.metadata().unwrap().len() as usize;
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..size).map(|_| next(&mut random) as u8).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        wake(&held);
        std::thread::sleep(Duration::from_millis(1));
    }
    eventually("records are rejected", || metric(&client, "ring_rejected_total", Some(held.app)) > 0.0);
    honest_jobs_arrive(&client);
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Valid records with impossible values: the controller must stay within the contract.
#[test]
fn an_application_with_false_records_stays_within_its_contract() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let held = raw(&client);
    let now = qfabric_linux::clock::now();
    let mut producer = Producer::default();
    let times = [qfabric_types::Instant::ZERO, now, now + Nanos::from_millis(1_000_000)];
    let costs = [Nanos::ZERO, Nanos::from_millis(1), Nanos::from_millis(86_400_000)];
    let foresights = [
        Foresight::Nothing,
        Foresight::Hint(f64::MAX),
        Foresight::Hint(-1e300),
        Foresight::Interval { low: Nanos::ZERO, high: Nanos::from_millis(86_400_000) },
        Foresight::Budget(Nanos::from_millis(86_400_000)),
    ];
    for release in times {
        for finish in times {
            for (cost, next) in costs.iter().flat_map(|cost| foresights.map(|next| (*cost, next))) {
                let job = JobRecord { k: u64::MAX, release, finish, cost, next };
                producer.push(&held.ring, JobEvent::End(job), now);
                wake(&held);
            }
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    let app = client.application(held.app).unwrap();
    assert!(app.granted <= app.contract.max_bandwidth, "{app:?}");
    honest_jobs_arrive(&client);
}

#[test]
fn a_flooding_client_is_limited_and_counted_and_others_keep_their_pace() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let (begun, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&client, &begun, &stop));
        eventually("the ring is flooded", || begun.load(Ordering::Relaxed));
        honest_jobs_arrive(&client);
        stop.store(true, Ordering::Relaxed);
        let (app, flooded, silenced) = flood.join().unwrap();
        assert!(flooded > 0.0, "application {app}: {flooded} flooded, {silenced} silenced");
    });
}

/// Pushes and wakes as fast as possible, until the daemon has counted it. Returns the daemon's counters of the ring.
fn flood(client: &Client, begun: &AtomicBool, stop: &AtomicBool) -> (AppId, f64, f64) {
    let held = raw(client);
    let mut producer = Producer::default();
    let until = Instant::now() + PATIENCE;
    let event = JobEvent::Begin { k: 0, known: Foresight::Nothing };
    let count = |name| metric(client, name, Some(held.app));
    let is_over = || stop.load(Ordering::Relaxed) && count("ring_flooded_total") > 0.0;
    while !is_over() && Instant::now() < until {
        for _ in 0..CAPACITY {
            producer.push(&held.ring, event, qfabric_linux::clock::now());
        }
        wake(&held);
        begun.store(true, Ordering::Relaxed);
    }
    (held.app, count("ring_flooded_total"), count("ring_silenced_total"))
}

#[test]
fn data_on_a_lease_wakes_nothing() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    // The daemon wakes for other reasons, too, but not every time so often.
    let wakes = |_| {
        let held = raw(&client);
        let before = metric(&client, "control_wakeups_total", None);
        for _ in 0..100 {
            let _ = rustix::net::send(&held.lease, b"noise", rustix::net::SendFlags::DONTWAIT);
        }
        std::thread::sleep(Duration::from_millis(50));
        metric(&client, "control_wakeups_total", None) - before
    };
    assert!((0..10).map(wakes).any(|wakes| wakes < 50.0), "100 messages cause 50 wake-ups or more each time");
}

/// A program's contract and a contract of one of its threads: the thread's own contract applies while it lasts.
#[test]
fn a_thread_with_its_own_contract_returns_to_its_programs_afterwards() {
    let _lock = live_lock();
    let (service, client) = service(quiet());
    let mut command = role_command("has_a_session", &[("SOCKET", service.socket().to_str().unwrap())]);
    let mut process = Process(command.stdin(Stdio::piped()).spawn().unwrap());
    let request =
        ApplicationRequest { pid: process.pid(), covers: ApplicationScope::Program, contract: contract("program", 20) };
    let program = client.admit(&request).unwrap().id;
    let holds = |id: AppId, thread: ThreadId| {
        client.application(id).is_ok_and(|app| app.threads.iter().any(|t| t.tid == thread))
    };
    let own = || client.applications().unwrap().into_iter().find(|app| app.contract.name == "own");
    eventually("the session has begun", || own().is_some());
    let session = own().unwrap();
    let thread = session.threads[0].tid;
    assert!(!holds(program, thread), "one contract at a time");
    // At the end of its input, the program ends its session.
    drop(process.0.stdin.take());
    eventually("the session has ended", || own().is_none());
    assert!(holds(program, thread));
}

#[test]
#[ignore = "run by a_thread_with_its_own_contract_returns_to_its_programs_afterwards"]
fn has_a_session() {
    let client = connected(given("SOCKET"));
    eventually("the program is covered", || !client.applications().unwrap().is_empty());
    let mut session = Session::start(&client, contract("own", 20)).unwrap();
    work(&mut session, 20, 1);
    std::io::stdin().read_line(&mut String::new()).unwrap();
    session.end().unwrap();
    loop {
        std::thread::park();
    }
}
