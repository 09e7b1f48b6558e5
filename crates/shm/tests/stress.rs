//! Stress test of the ring: a million records between two processes and between two threads. No record is lost,
//! reordered or torn while the producer waits for room, and a consumer that sleeps on its promise is always woken.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use std::{env, thread};

use qfabric_shm::{SharedRing, fds};
use qfabric_types::ring::{Consumer, JobEvent, JobRing, Producer, PushOutcome};
use qfabric_types::{Foresight, Instant, JobRecord, Nanos};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

const RECORDS: u64 = 1_000_000;
/// Number of records that are sent with pauses between them.
const GAPPED: u64 = 20_000;

/// Every word holds `k`, so a record with words of two jobs is recognised.
fn job(k: u64) -> JobEvent {
    let (release, finish, cost) = (Instant::new(k), Instant::new(k + 1), Nanos::new(k));
    JobEvent::End(JobRecord { k, release, finish, cost, next: Foresight::Hint(k as f64) })
}

fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant::new(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Pushes all records; waits if the ring is full, and wakes the consumer if the ring asks for it. Returns the
/// number of wake-ups.
fn produce(ring: &JobRing, wake: &OwnedFd, records: u64, pause: impl Fn(u64)) -> u64 {
    let (mut producer, mut wakes) = (Producer::default(), 0);
    for k in 0..records {
        pause(k);
        loop {
            match producer.push(ring, job(k), now()) {
                PushOutcome::Quiet => break,
                PushOutcome::Dropped => thread::yield_now(),
                PushOutcome::Wake => {
                    wakes += 1;
                    rustix::io::write(wake, &1u64.to_ne_bytes()).unwrap();
                    break;
                }
            }
        }
    }
    wakes
}

/// Takes all records as a daemon does: promise a look, look, sleep until the promise or a wake-up. The test fails
/// if a record is neither covered by the promise nor comes with a wake-up, because the consumer then sleeps on.
fn consume(ring: &JobRing, wake: &OwnedFd, records: u64, promise: impl Fn() -> Instant) {
    let (mut consumer, mut expected) = (Consumer::default(), 0);
    while expected < records {
        let promised = promise();
        ring.promise_look(promised);
        while let Some(event) = consumer.take(ring) {
            assert_eq!(event, job(expected), "after {expected} records");
            expected += 1;
        }
        if expected < records {
            sleep(wake, promised, expected);
        }
    }
    assert_eq!((consumer.take(ring), consumer.rejected), (None, 0));
}

fn sleep(wake: &OwnedFd, promised: Instant, expected: u64) {
    let bounded = promised > Instant::ZERO;
    let patience = if bounded { Duration::from_nanos(promised.since(now()).get()) } else { Duration::from_secs(120) };
    let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    let woken = poll(&mut [PollFd::new(wake, PollFlags::IN)], Some(&patience)).unwrap();
    assert!(woken > 0 || bounded, "asleep for 120 s after {expected} records: a wake-up was lost");
    if woken > 0 {
        rustix::io::read(wake, &mut [0; 8]).unwrap();
    }
}

/// Pauses in no order, from no pause to long after the consumer has fallen asleep.
fn pause(k: u64) {
    (0..k * 7_919 % 4_096).for_each(|_| std::hint::spin_loop());
}

fn pair() -> (SharedRing, SharedRing, OwnedFd) {
    let (daemon, memory) = SharedRing::create().unwrap();
    (daemon, SharedRing::map(memory).unwrap(), eventfd(0, EventfdFlags::CLOEXEC).unwrap())
}

#[test]
fn a_million_records_arrive_whole_and_in_order_across_threads() {
    let (daemon, application, wake) = pair();
    thread::scope(|scope| {
        scope.spawn(|| produce(&application, &wake, RECORDS, |_| ()));
        consume(&daemon, &wake, RECORDS, || Instant::ZERO);
    });
}

#[test]
fn a_sleeping_consumer_without_a_promise_is_always_woken() {
    let (daemon, application, wake) = pair();
    thread::scope(|scope| {
        scope.spawn(|| produce(&application, &wake, GAPPED, pause));
        consume(&daemon, &wake, GAPPED, || Instant::ZERO);
    });
}

#[test]
fn a_promise_saves_wake_up_calls_and_loses_no_record() {
    let (daemon, application, wake) = pair();
    thread::scope(|scope| {
        let producing = scope.spawn(|| produce(&application, &wake, GAPPED, pause));
        consume(&daemon, &wake, GAPPED, || now() + Nanos::from_micros(200));
        let wakes = producing.join().unwrap();
        // On a loaded machine the daemon is often later than it promised; on a quiet one this is nearly zero.
        assert!(wakes < GAPPED, "{wakes} wake-up calls for {GAPPED} records");
    });
}

/// Tells the other process of the test below which socket to connect to.
const SOCKET: &str = "QFABRIC_STRESS_SOCKET";

/// The other process of the test below; in a normal run it returns at once.
#[test]
fn the_other_process() {
    let Some(path) = env::var_os(SOCKET) else { return };
    let daemon = fds::connect(path.as_ref(), Duration::from_secs(120)).unwrap();
    let mut received = fds::recv(&daemon, &mut [0; 8]).unwrap();
    let (wake, memory) = (received.fds.pop().unwrap(), received.fds.pop().unwrap());
    produce(&SharedRing::map(memory).unwrap(), &wake, RECORDS, |_| ());
}

fn other_process(socket: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--quiet"]).env(SOCKET, socket).spawn().unwrap()
}

#[test]
fn a_million_records_arrive_whole_and_in_order_across_processes() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ring.sock");
    let listener = fds::listen(&socket, 1).unwrap();
    let mut application = other_process(&socket);

    let connection = rustix::net::accept(&listener).unwrap();
    let (ring, memory) = SharedRing::create().unwrap();
    let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    fds::send(&connection, b"ok", &[memory.as_fd(), wake.as_fd()]).unwrap();
    consume(&ring, &wake, RECORDS, || Instant::ZERO);
    assert!(application.wait().unwrap().success());
}
