//! The cost of applying a setting and of observing: `cargo bench -p qfabric-linux`. Needs CAP_SYS_NICE. The benches of
//! `apply` reserve 10 to 20 % of one CPU while they run.

use std::cell::Cell;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Duration;

use divan::Bencher;
use qfabric_linux::observe::{Observer, SwitchObserver};
use qfabric_linux::testing::{Worker, live_lock};
use qfabric_linux::{Deadline, Mechanism, capacity, clock, threads};
use qfabric_types::{Nanos, Reclaiming, Reservation, Setting, ThreadId};

fn main() {
    let _alone = live_lock();
    divan::main();
}

fn setting(thread: ThreadId, budget_us: u64) -> Setting {
    let reservation = Reservation::new(Nanos::from_micros(budget_us), Nanos::from_millis(10)).unwrap();
    Setting { thread, reservation: Some(reservation), reclaiming: Reclaiming::Grub, terms: Default::default() }
}

#[divan::bench]
fn apply_unchanged(bencher: Bencher) {
    let (worker, mut mechanism) = (Worker::sleeping(), Deadline::new());
    mechanism.apply(&setting(worker.thread, 1_000)).unwrap();
    bencher.bench_local(|| mechanism.apply(&setting(worker.thread, 1_000)));
}

#[divan::bench]
fn apply_changed(bencher: Bencher) {
    let (worker, mut mechanism) = (Worker::sleeping(), Deadline::new());
    mechanism.apply(&setting(worker.thread, 1_000)).unwrap();
    let budget = Cell::new(1_000);
    bencher.bench_local(|| {
        budget.set(3_000 - budget.get());
        mechanism.apply(&setting(worker.thread, budget.get()))
    });
}

/// The first setting of a thread and the end of its reservation: two reads in /proc and five system calls. A thread
/// must wait after its departure before it is reserved again, so each round has a new thread, which ends before its
/// mechanism.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn reserve_and_put_back(bencher: Bencher) {
    bencher.with_inputs(|| (Worker::sleeping(), Deadline::new())).bench_local_refs(|(worker, mechanism)| {
        mechanism.apply(&setting(worker.thread, 1_000)).unwrap();
        mechanism.apply(&Setting { reservation: None, ..setting(worker.thread, 1_000) }).unwrap();
    });
}

#[divan::bench(sample_count = 20)]
fn probe_free_bandwidth() -> u32 {
    capacity::probe().unwrap().ppm()
}

#[divan::bench]
fn start_time(bencher: Bencher) {
    let worker = Worker::sleeping();
    bencher.bench_local(|| threads::start_time(worker.thread));
}

#[divan::bench]
fn poll_with_nothing_new(bencher: Bencher) {
    let mut observer = SwitchObserver::new().unwrap();
    bencher.bench_local(|| observer.poll(&mut |_| {}));
}

/// CPU time of all polls of one second, one every 5 ms, with `threads` threads that run 25 times a second: the cost of
/// observing so many applications.
#[divan::bench(args = [1, 50], sample_count = 3, sample_size = 1)]
fn poll_for_a_second(bencher: Bencher, threads: usize) {
    let mut observer = SwitchObserver::new().unwrap();
    let turn = || Worker::periodic(Nanos::from_millis(40), Nanos::from_micros(100));
    let workers: Vec<_> = (0..threads).map(|_| turn()).collect();
    workers.iter().for_each(|w| observer.attach_thread(w.thread).unwrap());
    bencher.bench_local(|| {
        let (mut seen, mut spent) = (0, Nanos::ZERO);
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(5));
            let start = clock::thread_cpu();
            seen += observer.poll(&mut |_| {}).observations;
            spent += clock::thread_cpu() - start;
        }
        println!("   {threads} threads: {seen} stretches, {spent} of CPU time in a second of polls");
    });
}

/// Two threads on one CPU wake each other in turn, unobserved and observed. A round makes four records; the difference
/// is what observation costs the observed threads.
#[divan::bench(args = [false, true], sample_count = 100, sample_size = 200)]
fn round_of_two_switches(bencher: Bencher, observed: bool) {
    let (there, mut ping) = pipe().unwrap();
    let (mut back, pong) = pipe().unwrap();
    pin();
    let echo = echo(there, pong);
    let mut observer = SwitchObserver::new().unwrap();
    if observed {
        let me = ThreadId(rustix::thread::gettid().as_raw_nonzero().get());
        observer.attach_thread(me).unwrap();
        observer.attach_thread(echo).unwrap();
    }
    bencher.bench_local(|| {
        ping.write_all(b"!").unwrap();
        back.read_exact(&mut [0]).unwrap();
    });
}

fn echo(mut there: PipeReader, mut pong: PipeWriter) -> ThreadId {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        pin();
        sender.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        while there.read_exact(&mut [0]).is_ok() && pong.write_all(b"!").is_ok() {}
    });
    ThreadId(receiver.recv().unwrap())
}

fn pin() {
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}
