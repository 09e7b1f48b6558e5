//! Cost of ending a job, compared with a wake-up call and with a request per job.
//!
//! `cargo bench -p qfabric-client`; the ratios are printed first, measured in the same run.

use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant as Wall};

use divan::Bencher;
use qfabric_client::{Contract, Foresight, Instant, Nanos, Session, clock};
use qfabric_shm::SharedRing;
use qfabric_types::ring::{Consumer, JobEvent, Producer};
use qfabric_types::{JobRecord, ring};
use rustix::event::{EventfdFlags, eventfd};

fn main() {
    if !std::env::args().any(|argument| argument == "--list") {
        print_ratios();
    }
    divan::main();
}

/// A session, and the daemon's end of its ring.
fn pair() -> (Session, SharedRing) {
    let (daemon, memory) = SharedRing::create().expect("memfd");
    let ring = SharedRing::map(memory).expect("a ring just made");
    let session = Session::on_ring(Contract::new("bench", Nanos::from_millis(40)), ring, wake()).expect("eventfd");
    (session, daemon)
}

fn wake() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd")
}

fn job(k: u64) -> JobRecord {
    let (release, finish, cost) = (Instant::new(k), Instant::new(k + 1), Nanos::new(1));
    JobRecord { k, release, finish, cost, next: Foresight::Hint(1.0) }
}

/// The daemon's side: empties the ring now and then, so that it never fills.
struct Drain(Consumer, u64);

impl Drain {
    fn sometimes(&mut self, ring: &SharedRing) {
        self.1 += 1;
        if self.1.is_multiple_of(ring::CAPACITY as u64 / 2) {
            while self.0.take(ring).is_some() {}
        }
    }
}

#[divan::bench]
fn end_cycle_without_wake_up(bencher: Bencher) {
    let (mut session, daemon) = pair();
    let mut drain = Drain(Consumer::default(), 0);
    daemon.promise_look(Instant::NEVER);
    bencher.bench_local(|| {
        drain.sometimes(&daemon);
        black_box(session.end_cycle(Foresight::Hint(1.0)))
    });
    assert_eq!(session.counters().wake_ups + session.counters().dropped, 0);
}

#[divan::bench]
fn end_cycle_with_wake_up(bencher: Bencher) {
    let (mut session, daemon) = pair();
    let mut drain = Drain(Consumer::default(), 0);
    bencher.bench_local(|| {
        drain.sometimes(&daemon);
        black_box(session.end_cycle(Foresight::Hint(1.0)))
    });
}

#[divan::bench]
fn ring_push(bencher: Bencher) {
    let (daemon, memory) = SharedRing::create().expect("memfd");
    let ring = SharedRing::map(memory).expect("a ring just made");
    let (mut producer, mut drain) = (Producer::default(), Drain(Consumer::default(), 0));
    daemon.promise_look(Instant::NEVER);
    bencher.bench_local(|| {
        drain.sometimes(&daemon);
        producer.push(&ring, JobEvent::End(job(drain.1)), Instant::new(1))
    });
}

#[divan::bench]
fn ring_push_and_take(bencher: Bencher) {
    let (daemon, _memory) = SharedRing::create().expect("memfd");
    let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
    bencher.bench_local(|| {
        producer.push(&daemon, JobEvent::End(job(1)), Instant::new(1));
        consumer.take(&daemon)
    });
}

#[divan::bench]
fn thread_cpu_clock(bencher: Bencher) {
    bencher.bench_local(clock::thread_cpu);
}

#[divan::bench]
fn baseline_eventfd_write(bencher: Bencher) {
    let wake = wake();
    bencher.bench_local(|| rustix::io::write(&wake, &1u64.to_ne_bytes()));
}

#[divan::bench]
fn baseline_unix_socket_round_trip(bencher: Bencher) {
    let mut ours = echo();
    bencher.bench_local(|| round_trip(&mut ours));
}

/// A peer that returns every record; it ends when the other end closes.
fn echo() -> UnixStream {
    let (ours, mut theirs) = UnixStream::pair().expect("socket pair");
    thread::spawn(move || {
        let mut record = [0; 64];
        while theirs.read_exact(&mut record).and_then(|()| theirs.write_all(&record)).is_ok() {}
    });
    ours
}

fn round_trip(stream: &mut UnixStream) {
    let mut record = [7; 64];
    stream.write_all(&record).and_then(|()| stream.read_exact(&mut record)).expect("the echo lives");
}

/// Median over short rounds, so that single outliers of a busy machine do not count.
fn median_ns(mut act: impl FnMut()) -> f64 {
    const ROUNDS: usize = 51;
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (started, mut times) = (Wall::now(), 0u32);
            while started.elapsed() < Duration::from_millis(2) {
                (0..32).for_each(|_| act());
                times += 32;
            }
            started.elapsed().as_nanos() as f64 / f64::from(times)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn print_ratios() {
    let (mut session, daemon) = pair();
    let mut drain = Drain(Consumer::default(), 0);
    daemon.promise_look(Instant::NEVER);
    let end_cycle_ns = median_ns(|| {
        drain.sometimes(&daemon);
        black_box(session.end_cycle(Foresight::Hint(1.0)));
    });
    let (wake, mut stream) = (wake(), echo());
    let write_ns = median_ns(|| {
        let _ = black_box(rustix::io::write(&wake, &1u64.to_ne_bytes()));
    });
    let trip_ns = median_ns(|| round_trip(&mut stream));
    println!("end_cycle without wake-up   {end_cycle_ns:8.0} ns   promised: at most 1000 ns");
    println!("one eventfd write           {write_ns:8.0} ns   {:.2} x end_cycle", write_ns / end_cycle_ns);
    println!("Unix socket round trip      {trip_ns:8.0} ns   {:.1} x end_cycle", trip_ns / end_cycle_ns);
}
