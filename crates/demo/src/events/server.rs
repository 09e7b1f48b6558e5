//! A server of short requests: it takes connections as they come, and its workers answer them in this order.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use qfabric_client::ecalls::Attribute;
use qfabric_linux::clock;
use qfabric_types::{Nanos, ThreadId};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::hosts::{Hosts, SERVERS};
use super::load::random_time;

/// How long a server waits for a connection before it looks whether it shall end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Only ends a connection that hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a request costs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// A random time of this mean, without a CPU.
    Waits(Duration),
    /// CPU time, on this CPU.
    Computes(Nanos, usize),
}

/// A running server. Dropping it ends its threads.
pub(super) struct Server {
    pub address: SocketAddr,
    /// The threads that answer.
    pub workers: Vec<ThreadId>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a server at `port` on the servers' host. `open` is the number of its requests that are not answered yet:
    /// handlers read it.
    pub(super) fn start(hosts: &Hosts, port: u16, workers: usize, work: Work, open: &Attribute) -> Result<Server> {
        let address = SocketAddr::from((hosts.address(SERVERS), port));
        let listener = hosts.inside(SERVERS, || TcpListener::bind(address))?.context("a server cannot listen")?;
        let stop = Arc::<AtomicBool>::default();
        let (queue, waiting) = channel();
        let (waiting, (sender, ids)) = (Arc::new(Mutex::new(waiting)), channel());
        let mut threads = Vec::new();
        for number in 0..workers {
            let worker = Worker { waiting: waiting.clone(), work, open: open.clone(), stop: stop.clone() };
            let (sender, seed) = (sender.clone(), (u64::from(port) << 8) + number as u64);
            threads.push(std::thread::spawn(move || worker.run(&sender, seed)));
        }
        let (open, is_over) = (open.clone(), stop.clone());
        threads.push(std::thread::spawn(move || accept(&listener, &queue, &open, &is_over)));
        Ok(Server { address, workers: ids.iter().take(workers).collect(), stop, threads })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has printed its message.
            drop(thread.join());
        }
    }
}

/// Takes connections until the server ends.
fn accept(listener: &TcpListener, queue: &Sender<TcpStream>, open: &Attribute, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&LOOK)).unwrap_or(0);
        if ready == 0 {
            continue;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        open.add(1);
        if queue.send(stream).is_err() {
            return;
        }
    }
}

/// A thread that answers requests.
struct Worker {
    waiting: Arc<Mutex<Receiver<TcpStream>>>,
    work: Work,
    open: Attribute,
    stop: Arc<AtomicBool>,
}

impl Worker {
    /// Sends the id of its thread first.
    fn run(&self, sender: &Sender<ThreadId>, seed: u64) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        if let Work::Computes(_, cpu) = self.work {
            let mut one = rustix::thread::CpuSet::new();
            one.set(cpu);
            // Without it the figure shows less contention, which is visible in its times.
            let _ = rustix::thread::sched_setaffinity(None, &one);
        }
        let _ = sender.send(ThreadId(rustix::thread::gettid().as_raw_nonzero().get()));
        while let Some(stream) = self.next() {
            if !self.stop.load(Ordering::Relaxed) {
                self.answer(stream, &mut random);
            }
            self.open.add(-1);
        }
    }

    /// The next connection; `None`: the server ends.
    fn next(&self) -> Option<TcpStream> {
        let waiting = self.waiting.lock().expect("no worker panics while it waits");
        waiting.recv().ok()
    }

    /// A client that gave up gets no answer, but its request costs the same.
    fn answer(&self, mut stream: TcpStream, random: &mut ChaCha8Rng) {
        let is_read = stream.set_read_timeout(Some(PATIENCE)).is_ok() && stream.read_exact(&mut [0]).is_ok();
        match self.work {
            Work::Waits(mean) => std::thread::sleep(random_time(random, mean)),
            Work::Computes(time, _) => {
                let begin = clock::thread_cpu();
                while clock::thread_cpu() - begin < time {
                    std::hint::black_box((0..1_000_u64).fold(0, |a, b| a ^ b.wrapping_mul(b)));
                }
            }
        }
        if is_read {
            let _ = stream.write_all(b"!");
        }
    }
}
