//! Threads change their affinity, join, leave and end while CPUs go offline and online, on a machine with four CPUs.
//! The BPF scheduler waits between each verdict and the insertion that it orders, so that other events happen in
//! between. The tests need no time limit: if the scheduler loses a thread, the kernel's watchdog ejects the scheduler.

mod ext_shared;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ext_shared::{Servers, load_lingering, server, sleep_ms};
use qfabric_linux::clock;
use qfabric_linux::ext::{Ext, ServerId, ServerSpec};
use qfabric_linux::testing::crowd::Random;
use qfabric_linux::testing::{Worker, burn};
use qfabric_types::{Nanos, ThreadId};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

const CPUS: u64 = 4;

fn lingering() -> Option<MutexGuard<'static, Ext>> {
    static SHARED: OnceLock<Option<Mutex<Ext>>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| load_lingering(1_000).map(Mutex::new)).as_ref()?;
    let ext = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert_eq!(ext.exit_reason(), None);
    Some(ext)
}

/// Fails if all the CPUs are offline or the thread has ended.
fn confine(thread: ThreadId, cpus: &[usize]) -> bool {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(Pid::from_raw(thread.0), &set).is_ok()
}

fn confine_me(cpus: &[usize]) {
    assert!(confine(ThreadId(rustix::thread::gettid().as_raw_nonzero().get()), cpus));
}

fn switch(cpu: u64, on: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(path, if on { "1" } else { "0" }).unwrap();
}

/// Returns after every worker has done another turn; fails if the kernel has ejected the scheduler.
#[track_caller]
fn assert_all_progress<'a>(ext: &Ext, workers: impl Iterator<Item = &'a Worker>) {
    let before: Vec<_> = workers.map(|worker| (worker, worker.turns())).collect();
    while before.iter().any(|(worker, turns)| worker.turns() < turns + 2) {
        assert_eq!(ext.exit_reason(), None);
        sleep_ms(1);
    }
}

/// Waits for each number that `gate` reaches, then calls `play` and reports it as done.
struct Player {
    worker: Worker,
    done: Arc<AtomicU64>,
}

impl Player {
    fn new(gate: &Arc<AtomicU64>, cpus: &[usize], play: impl Fn(u64) + Send + 'static) -> Player {
        let (done, gate) = (Arc::new(AtomicU64::new(0)), gate.clone());
        let done_in_thread = done.clone();
        let worker = Worker::start(move || {
            let (round, done) = (gate.load(Ordering::Acquire), done_in_thread.load(Ordering::Relaxed));
            if round > done {
                play(round);
                done_in_thread.store(round, Ordering::Release);
            } else {
                std::thread::park_timeout(std::time::Duration::from_micros(700));
            }
        });
        assert!(confine(worker.thread, cpus));
        Player { worker, done }
    }

    fn has_done(&self, round: u64) -> bool {
        self.done.load(Ordering::Acquire) >= round
    }
}

/// In each round a thread wakes on a CPU that a hog is just taking, and the hog spins until the thread has run. The
/// thread may run on three of the four CPUs, and each of the three has such a hog.
#[test]
fn a_thread_that_wakes_while_a_hog_takes_its_cpu_runs() {
    let Some(ext) = lingering() else { return };
    confine_me(&[3]);
    let (gate, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let hogs: Vec<Player> = (0..3)
        .map(|cpu| {
            let seen = seen.clone();
            let play = move |round| {
                while seen.load(Ordering::Acquire) < round {
                    std::hint::spin_loop();
                }
            };
            Player::new(&gate, &[cpu], play)
        })
        .collect();
    let (wake, woken) = std::sync::mpsc::channel::<u64>();
    let seen_in_thread = seen.clone();
    let sleeper = std::thread::spawn(move || {
        confine_me(&[0, 1, 2]);
        woken.iter().for_each(|round| seen_in_thread.store(round, Ordering::Release));
    });
    let mut random = Random::new(1);
    for round in 1..=300 {
        gate.store(round, Ordering::Release);
        burn(Nanos::from_micros(random.below(900)));
        wake.send(round).unwrap();
        while seen.load(Ordering::Acquire) < round || !hogs.iter().all(|hog| hog.has_done(round)) {
            if let Some(reason) = ext.exit_reason() {
                panic!("round {round}: {reason}");
            }
            sleep_ms(1);
        }
    }
    drop(wake);
    sleeper.join().unwrap();
    assert_all_progress(&ext, hogs.iter().map(|hog| &hog.worker));
    confine_me(&[0, 1, 2, 3]);
}

/// The thread was preempted on CPU 0, so that no wake-up chooses a CPU for it.
#[test]
fn a_thread_that_may_run_on_two_cpus_moves_to_the_idle_one() {
    let Some(mut ext) = lingering() else { return };
    let mut servers = Servers::of(&mut ext);
    let worker = Worker::burning();
    assert!(confine(worker.thread, &[0]));
    let (_, _hog) = servers.hog(&server(20, 18));
    confine_me(&[3]);
    sleep_ms(100);
    assert!(confine(worker.thread, &[0, 1]));
    let (start, used) = (clock::now(), worker.used());
    sleep_ms(500);
    let share = (worker.used() - used).as_f64() / clock::now().since(start).as_f64();
    eprintln!("two CPUs, one of them idle, the other promised to 90 %: {share:.3}");
    confine_me(&[0, 1, 2, 3]);
    assert!(share > 0.3, "{share}: it stayed on the CPU with 5 % for best effort");
}

/// The objects that change during the test.
struct Storm {
    random: Random,
    servers: Vec<(ServerId, ServerSpec)>,
    workers: Vec<Worker>,
}

impl Storm {
    fn worker(&mut self) -> Worker {
        match self.random.below(4) {
            0 => Worker::burning(),
            1 => Worker::sleeping(),
            2 => Worker::periodic(Nanos::from_millis(3), Nanos::from_micros(300)),
            _ => Worker::start(|| std::thread::spawn(|| burn(Nanos::from_micros(50))).join().unwrap()),
        }
    }

    fn any(&mut self) -> usize {
        self.random.below(self.workers.len() as u64) as usize
    }

    fn mask(&mut self) -> Vec<usize> {
        let mask = 1 + self.random.below((1 << CPUS) - 1);
        (0..CPUS as usize).filter(|cpu| mask >> cpu & 1 == 1).collect()
    }

    /// Makes one random change. Refusals are correct, because CPUs are offline and affinities exclude servers.
    fn change_one(&mut self, servers: &mut Servers<'_>) {
        let worker = self.any();
        let thread = self.workers[worker].thread;
        let server = self.random.below(self.servers.len() as u64) as usize;
        match self.random.below(8) {
            0..3 => {
                let _ = servers.ext.join(self.servers[server].0, thread, self.random.below(2) == 0);
            }
            3 => {
                let _ = servers.ext.leave(thread);
            }
            4..6 => {
                let mask = self.mask();
                confine(thread, &mask);
            }
            6 => self.workers[worker] = self.worker(),
            _ => {
                let (id, spec) = self.servers[server].clone();
                servers.ext.destroy(id).unwrap();
                let elsewhere = ServerSpec { cpu: None, ..spec.clone() };
                self.servers[server].0 =
                    servers.ext.create(&spec).unwrap_or_else(|_| servers.ext.create(&elsewhere).unwrap());
            }
        }
    }
}

#[test]
fn storms_of_hotplug_affinity_joins_and_ends_leave_no_thread_behind() {
    let Some(mut ext) = lingering() else { return };
    let mut servers = Servers::of(&mut ext);
    let specs = (0..CPUS as u32).map(|cpu| ServerSpec { cpu: Some(cpu), ..server(10, 3) });
    let created = specs.map(|spec| (servers.create(&spec), spec)).collect();
    let mut storm = Storm { random: Random::new(7), servers: created, workers: Vec::new() };
    storm.workers = (0..12).map(|_| storm.worker()).collect();
    let over = Arc::new(AtomicBool::new(false));
    let (ends, cycles) = (over.clone(), Arc::new(AtomicU64::new(0)));
    let counted = cycles.clone();
    let plug = std::thread::spawn(move || {
        let mut random = Random::new(3);
        while !ends.load(Ordering::Relaxed) {
            let cpu = 1 + random.below(CPUS - 1);
            switch(cpu, false);
            sleep_ms(random.below(20));
            switch(cpu, true);
            sleep_ms(random.below(20));
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut changes = 0u64;
    while cycles.load(Ordering::Relaxed) < 40 {
        storm.change_one(&mut servers);
        changes += 1;
        assert_eq!(servers.ext.exit_reason(), None, "after {changes} changes");
        sleep_ms(storm.random.below(3));
    }
    over.store(true, Ordering::Relaxed);
    plug.join().unwrap();
    eprintln!("{} CPUs went offline and online, {changes} other changes", cycles.load(Ordering::Relaxed));
    assert_all_progress(servers.ext, storm.workers.iter());
    storm.servers.iter().for_each(|(id, _)| servers.ext.destroy(*id).unwrap());
    assert_all_progress(servers.ext, storm.workers.iter());
    assert_eq!(servers.ext.exit_reason(), None);
}
