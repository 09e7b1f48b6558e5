//! Loads whose speed is compared between schedulers. Their work is counted in rounds of a loop, because CPU time would
//! be measured by the scheduler under test.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use qfabric_linux::clock;
use qfabric_linux::testing::{Worker, burn};
use qfabric_types::{Nanos, ThreadId};

use super::{hogs, sleep_ms};

/// Instructions since `at`, at 4 ns each.
fn instructions(at: qfabric_types::Instant) -> f64 {
    clock::now().since(at).as_f64() / 4.0
}

/// A fixed amount of work, about 15,000 instructions per round.
fn spin(rounds: u64) {
    (0..rounds).for_each(|_| {
        std::hint::black_box((0..200u64).fold(0, |a, b| a ^ b.wrapping_mul(b)));
    });
}

/// Instructions of one `sched_yield` while another thread also only yields, so that each call switches.
pub(crate) fn of_a_yield() -> f64 {
    let other = Worker::start(std::thread::yield_now);
    sleep_ms(5);
    let (turns, at) = (other.turns(), clock::now());
    let mut own = 0u64;
    while clock::now().since(at) < Nanos::from_millis(200) {
        std::thread::yield_now();
        own += 1;
    }
    instructions(at) / (own + other.turns() - turns) as f64
}

/// Instructions of a wake-up and back: a byte to a sleeping thread, and its answer. `prepare` receives the sleeping
/// thread before the measurement.
pub(crate) fn of_a_round(prepare: impl FnOnce(ThreadId)) -> f64 {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let echo = Worker::start(move || {
        let mut byte = [0];
        if there.read(&mut byte).is_ok_and(|n| n == 1) {
            let _ = there.write_all(&byte);
        }
    });
    prepare(echo.thread);
    let mut byte = [0];
    let at = clock::now();
    for _ in 0..500 {
        here.write_all(&[1]).unwrap();
        here.read_exact(&mut byte).unwrap();
    }
    let each = instructions(at) / 500.0;
    drop(here);
    each
}

/// Turns per millisecond of `count` threads together; each thread repeats `turn`.
fn turns_per_ms(count: usize, length: u64, turn: fn()) -> f64 {
    let workers: Vec<_> = (0..count).map(|_| Worker::start(turn)).collect();
    sleep_ms(20);
    let before: u64 = workers.iter().map(Worker::turns).sum();
    let at = clock::now();
    sleep_ms(length);
    let after: u64 = workers.iter().map(Worker::turns).sum();
    (after - before) as f64 / clock::now().since(at).as_f64() * 1e6
}

/// Eight threads that start others, which compute for about 0.4 ms.
pub(crate) fn of_threads() -> f64 {
    turns_per_ms(8, 1_500, || std::thread::spawn(|| spin(6)).join().unwrap())
}

/// Four threads that start programs, as a build does: fork, exec, exit.
pub(crate) fn of_programs() -> f64 {
    turns_per_ms(4, 1_500, || assert!(Command::new("true").status().unwrap().success()))
}

/// Messages per ms from sixteen threads to sixteen others, all at once.
pub(crate) fn of_messages() -> f64 {
    const EACH: u64 = 400;
    let at = clock::now();
    let ends: Vec<JoinHandle<()>> = (0..16)
        .flat_map(|_| {
            let (mut from, mut to) = UnixStream::pair().unwrap();
            let send = move || (0..EACH).for_each(|_| from.write_all(&[0; 100]).unwrap());
            let receive = move || (0..EACH).for_each(|_| to.read_exact(&mut [0; 100]).unwrap());
            [std::thread::spawn(send), std::thread::spawn(receive)]
        })
        .collect();
    ends.into_iter().for_each(|end| end.join().unwrap());
    16.0 * EACH as f64 / clock::now().since(at).as_f64() * 1e6
}

/// Delay of a thread that sleeps 7 ms and computes 0.3 ms beside four busy threads: p50 and p99, in µs.
pub(crate) fn of_an_interactive_thread() -> (u64, u64) {
    let _hogs = hogs(4);
    sleep_ms(50);
    let mut late: Vec<u64> = (0..200)
        .map(|_| {
            let due = clock::now() + Nanos::from_millis(7);
            std::thread::sleep(std::time::Duration::from_millis(7));
            let late = clock::now().since(due).get() / 1_000;
            spin(5);
            late
        })
        .collect();
    late.sort_unstable();
    (late[100], late[198])
}

/// Reserved threads that become ready at the same moment. From then on each waits behind all earlier deadlines.
pub(crate) struct Crowd {
    gate: Arc<Barrier>,
    pub threads: Vec<ThreadId>,
    ends: Vec<JoinHandle<()>>,
}

impl Crowd {
    pub(crate) fn new(count: usize) -> Crowd {
        let gate = Arc::new(Barrier::new(count + 1));
        let (id_sender, id_receiver) = std::sync::mpsc::channel();
        let body = |(gate, id_sender): (Arc<Barrier>, std::sync::mpsc::Sender<i32>)| {
            id_sender.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            gate.wait();
            burn(Nanos::from_micros(200));
        };
        let ends = (0..count)
            .map(|_| (gate.clone(), id_sender.clone()))
            .map(|x| std::thread::spawn(move || body(x)))
            .collect();
        let threads = (0..count).map(|_| ThreadId(id_receiver.recv().unwrap())).collect();
        sleep_ms(20);
        Crowd { gate, threads, ends }
    }

    /// Makes all threads ready.
    pub(crate) fn wake(&self) {
        self.gate.wait();
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ends.drain(..).for_each(|end| end.join().unwrap());
    }
}
