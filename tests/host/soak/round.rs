//! The soak itself: its rounds, the processes that they kill, and the table of results.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use qfabric_client::Client;
use qfabric_linux::testing::live_lock;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::client::Running;
use crate::daemon::{Daemon, End, PATIENCE};
use crate::kinds;
use crate::progress::Progress;
use crate::remains::{self, Machine};
use crate::{BOUND, Options};

/// Reloading the configuration, which is no client's work.
const RELOAD: &str = "reload";

/// After this, a configuration counts as not read.
const READ: Duration = Duration::from_secs(10);

/// Length of the soak as a test, in seconds.
const SHORT: u64 = 15;

/// Ends that count as ends, but are shown apart.
const FORCED: &str = "forced ends (a thread hung or got no CPU)";

pub(crate) struct Soak {
    options: Options,
    rng: ChaCha8Rng,
    progress: Arc<Progress>,
    /// Number of times that each disturbance happened.
    counts: BTreeMap<&'static str, u64>,
    /// Longest time from SIGTERM to the end of a daemon.
    longest_end: Duration,
    failures: Vec<String>,
    left: Vec<String>,
    soaked: Duration,
}

/// Two daemons and their clients.
struct Crowd {
    daemons: [Mutex<Daemon>; 2],
    clients: Vec<(&'static kinds::Kind, Running)>,
    folder: tempfile::TempDir,
}

impl Soak {
    pub(crate) fn new(options: Options) -> Soak {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = options.seed.unwrap_or(u64::from(now.subsec_nanos()));
        println!("seed {seed}");
        let names = kinds::ALL.iter().map(|kind| kind.name).chain([RELOAD]);
        Soak {
            options,
            rng: ChaCha8Rng::seed_from_u64(seed),
            progress: Progress::of(names),
            counts: BTreeMap::new(),
            longest_end: Duration::ZERO,
            failures: Vec::new(),
            left: Vec::new(),
            soaked: Duration::ZERO,
        }
    }

    /// Runs all rounds.
    pub(crate) fn run(mut self) -> Result<(), Vec<String>> {
        let all = Duration::from_secs(self.options.seconds.unwrap_or(SHORT));
        while self.soaked < all {
            let length = Duration::from_secs(self.options.round).min(all - self.soaked);
            self.round(length);
            self.print();
            // Other tests wait for the lock.
            std::thread::sleep(Duration::from_millis(500));
        }
        let failures = self.verdict();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    fn verdict(mut self) -> Vec<String> {
        let left = self.left.iter().map(|left| format!("left behind: {left}"));
        self.failures.extend(left);
        if self.options.seconds.is_none() {
            return self.failures;
        }
        for row in self.progress.rows().filter(|row| row.longest > BOUND) {
            self.failures.push(format!("{}: no progress for {:.1} s", row.kind, row.longest.as_secs_f64()));
        }
        if self.longest_end > BOUND {
            self.failures.push(format!("SIGTERM ended a daemon after {:.1} s", self.longest_end.as_secs_f64()));
        }
        self.failures
    }

    fn round(&mut self, length: Duration) {
        let _alone = live_lock();
        let before = Machine::look(&self.options.program);
        let mut crowd = match Crowd::start(self) {
            Ok(crowd) => crowd,
            Err(why) => return self.record_failed_start(why, length),
        };
        let (since, stop) = (Instant::now(), AtomicBool::new(false));
        self.progress.watch(true);
        std::thread::scope(|scope| {
            let (daemon, progress, stopped) = (&crowd.daemons[0], self.progress.clone(), &stop);
            scope.spawn(move || reload(daemon, &progress, stopped));
            while since.elapsed() < length {
                std::thread::sleep(Duration::from_millis(self.rng.random_range(100..1200)));
                disturb(self, &crowd.daemons, &mut crowd.clients, crowd.folder.path());
            }
            self.progress.watch(false);
            self.soaked += since.elapsed();
            self.wait_for_progress();
            stop.store(true, Relaxed);
        });
        self.end(crowd);
        self.left.extend(before.left(&self.options.program));
    }

    /// Records a failure to start; the next round tries again.
    fn record_failed_start(&mut self, why: String, length: Duration) {
        self.failures.push(why);
        self.soaked += length;
    }

    /// Waits until each kind of work has completed one more operation, without disturbances.
    fn wait_for_progress(&mut self) {
        let done = |progress: &Progress| progress.rows().map(|row| row.done).collect::<Vec<_>>();
        let (before, until) = (done(&self.progress), Instant::now() + PATIENCE);
        loop {
            let now = done(&self.progress);
            let stuck = self.progress.rows().zip(before.iter().zip(&now)).filter(|(_, (before, now))| before == now);
            let stuck: Vec<_> = stuck.map(|(row, _)| row.kind).collect();
            if stuck.is_empty() {
                return;
            }
            if Instant::now() > until {
                return self.failures.push(format!("no more {} within {PATIENCE:?}", stuck.join(", ")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends some clients, kills the others, then ends both daemons.
    fn end(&mut self, mut crowd: Crowd) {
        for (_, client) in &mut crowd.clients {
            if self.rng.random() {
                client.end();
            } else {
                client.kill();
            }
        }
        let until = Instant::now() + PATIENCE;
        for (kind, client) in &mut crowd.clients {
            while !client.has_ended() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            if !client.has_ended() {
                self.failures.push(format!("a client ({}) does not come to its end", kind.name));
            }
        }
        drop(std::mem::take(&mut crowd.clients));
        kinds::remove_interface();
        for daemon in &crowd.daemons {
            let mut daemon = held(daemon);
            let outcome = daemon.terminate();
            self.note_end(outcome);
            self.left.extend(remains::of_daemon(&daemon.folder));
            daemon.log_lines().into_iter().for_each(|line| println!("log: {line}"));
        }
        self.restore();
    }

    /// A `qfabric run` without a daemon has a service inside. If it was killed after the last daemon of the round had
    /// started, its journal is not restored yet: `qfabric restore` does that, and nothing may be left afterwards.
    fn restore(&mut self) {
        let output = Command::new(&self.options.program).arg("restore").output();
        match output {
            Ok(output) if output.status.success() => {}
            Ok(output) => self.failures.push(format!("qfabric restore: {}", String::from_utf8_lossy(&output.stderr))),
            Err(error) => self.failures.push(format!("qfabric restore: {error}")),
        }
    }

    fn note_end(&mut self, outcome: Result<End, String>) {
        self.count("SIGTERM to a daemon");
        match outcome {
            Ok(end) => {
                self.longest_end = self.longest_end.max(end.took);
                *self.counts.entry(FORCED).or_default() += u64::from(end.is_forced);
            }
            Err(why) => self.failures.push(why),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn print(&self) {
        println!("\nafter {} s:\n{:10} {:>10} {:>12}  errors", self.soaked.as_secs(), "work", "done", "longest gap");
        for row in self.progress.rows() {
            let errors: Vec<_> = row.errors.iter().map(|(class, count)| format!("{class} {count}")).collect();
            let gap = row.longest.as_secs_f64();
            println!("{:10} {:>10} {gap:>10.2} s  {}", row.kind, row.done, errors.join(", "));
        }
        let stillest = self.progress.stillest().as_secs_f64();
        println!("longest time that the machine kept the watching thread from running: {stillest:.3} s");
        self.counts.iter().for_each(|(what, count)| println!("{what}: {count}"));
        println!("longest time from SIGTERM to the end: {:.3} s", self.longest_end.as_secs_f64());
        println!("left behind: {}", if self.left.is_empty() { "nothing".into() } else { self.left.join("; ") });
        self.failures.iter().for_each(|failure| println!("failure: {failure}"));
    }
}

impl Crowd {
    fn start(soak: &mut Soak) -> Result<Crowd, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let of = |number, mechanism| Daemon::new(folder.path(), &soak.options.program, number, mechanism);
        let mut daemons = [of(0, &soak.options.mechanism), of(1, "deadline")];
        daemons.iter_mut().try_for_each(Daemon::start)?;
        let daemons = daemons.map(Mutex::new);
        let kinds = kinds::ALL.iter().flat_map(|kind| std::iter::repeat_n(kind, kind.clients));
        let clients = kinds.map(|kind| (kind, client(soak, kind, folder.path()))).collect();
        Ok(Crowd { daemons, clients, folder })
    }
}

fn held(daemon: &Mutex<Daemon>) -> MutexGuard<'_, Daemon> {
    daemon.lock().unwrap_or_else(PoisonError::into_inner)
}

fn client(soak: &mut Soak, kind: &'static kinds::Kind, folder: &Path) -> Running {
    let folders = [folder.join("h0"), folder.join("h1")];
    let folders = [folders[0].as_path(), folders[1].as_path()];
    Running::start(kind, folders, &soak.options.program, u64::from(soak.rng.random::<u32>()), &soak.progress)
}

/// One random disturbance of a daemon or a client.
fn disturb(
    soak: &mut Soak,
    daemons: &[Mutex<Daemon>; 2],
    clients: &mut [(&'static kinds::Kind, Running)],
    folder: &Path,
) {
    for (kind, client) in clients.iter_mut() {
        if client.has_ended() {
            soak.failures.push(format!("a client ({}) ended by itself", kind.name));
        }
    }
    let chance = soak.rng.random_range(0..100);
    if chance < 90 {
        soak.count("kill -9 of a client");
        let (kind, running) = &mut clients[soak.rng.random_range(0..clients.len())];
        running.kill();
        *running = client(soak, kind, folder);
        return;
    }
    let mut daemon = held(&daemons[soak.rng.random_range(0..2)]);
    if chance < 95 {
        soak.count("kill -9 of a daemon");
        if let Err(why) = daemon.check_running() {
            soak.failures.push(why);
        }
        daemon.kill();
    } else {
        let outcome = daemon.terminate();
        soak.note_end(outcome);
    }
    std::thread::sleep(Duration::from_millis(soak.rng.random_range(0..300)));
    if let Err(why) = daemon.start() {
        soak.failures.push(why);
    }
}

/// Makes the daemon read its configuration repeatedly; a limit shows when the daemon has read it.
fn reload(daemon: &Mutex<Daemon>, progress: &Progress, stop: &AtomicBool) {
    for number in (0..).take_while(|_| !stop.load(Relaxed)) {
        let threads = 300 + number % 1000;
        let socket = {
            let daemon = held(daemon);
            daemon.reload(threads);
            daemon.socket()
        };
        let until = Instant::now() + READ;
        let is_read = || {
            let limits = Client::connect_to(&socket).and_then(|client| client.limits());
            limits.is_ok_and(|limits| limits.max_threads == threads)
        };
        while !is_read() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        match Instant::now() < until {
            true => progress.done(RELOAD),
            false => progress.error(RELOAD, "not read in time"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
