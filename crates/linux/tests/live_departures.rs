//! Threads of all kinds leave SCHED_DEADLINE: no bandwidth is lost, and no thread gets stuck.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::testing::departures::{self, Plan};
use qfabric_linux::testing::losses::book_for_nobody;
use qfabric_linux::testing::{Worker, live_lock, may_reserve, settled_room, skip};
use qfabric_linux::{ApplyError, Deadline, Mechanism, books, clock, threads};
use qfabric_types::{Nanos, Reclaiming, Reservation, Setting, ThreadId};

const PERIOD: Nanos = Nanos::from_millis(10);

fn reservation(budget_us: u64) -> Reservation {
    Reservation::new(Nanos::from_micros(budget_us), PERIOD).unwrap()
}

/// Starts this program again as the service that is killed.
fn service(folder: &Path, threads: &[ThreadId], budget_us: u64, seed: u64) -> Command {
    let threads: Vec<_> = threads.iter().map(ThreadId::to_string).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "a_service_that_is_killed"]);
    command.env("FOLDER", folder).env("THREADS", threads.join(",")).env("SEED", seed.to_string());
    command.env("BUDGET", budget_us.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
#[ignore = "run by departures_of_all_kinds_lose_no_bandwidth_and_leave_no_stuck_thread, which kills it"]
fn a_service_that_is_killed() {
    let given = |name: &str| std::env::var(name).expect("given by the test that runs this");
    let threads: Vec<_> = given("THREADS").split(',').map(|n| ThreadId(n.parse().unwrap())).collect();
    departures::serve(
        Path::new(&given("FOLDER")),
        &threads,
        reservation(given("BUDGET").parse().unwrap()),
        given("SEED").parse().unwrap(),
    );
}

#[test]
fn departures_of_all_kinds_lose_no_bandwidth_and_leave_no_stuck_thread() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    // The budget leaves some free bandwidth beside thirteen such reservations.
    let budget_us = 1_300.min(settled_room().ppm() as u64 * 9 / 10 / 13 / 100);
    if budget_us < 300 {
        return skip("less than 0.4 CPU is free for thirteen reservations");
    }
    let plan = Plan {
        departures: 250,
        time: Duration::from_secs(20),
        reservation: reservation(budget_us),
        kill_every: 4,
        look_every: 8,
        marked: false,
        seed: 11,
    };
    let outcome = departures::run(&plan, &|folder, threads, seed| service(folder, threads, budget_us, seed));
    println!("{outcome}");
    assert!(
        outcome.departures > 0 && outcome.from_journals > 0 && outcome.gave_back > 0 && outcome.unreaped > 0,
        "{outcome}"
    );
    assert_eq!((outcome.leaked, outcome.twice, outcome.stuck, outcome.failed), (0, 0, 0, 0), "{outcome}");
}

/// The exit decreased the cpuset's number of reserved threads. A second decrease would make it 0 beside one living
/// thread, and a rebuild would then count no thread.
#[test]
fn a_rebuild_counts_the_living_threads_after_a_reserved_process_died() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let debugfs = Path::new(DEBUGFS);
    let small = SchedAttr::deadline(reservation(500), false);
    let (mut dead, living) = (Command::new("sleep").arg("60").spawn().unwrap(), Worker::sleeping());
    let thread = ThreadId(dead.id() as i32);
    small.give(thread).unwrap();
    dead.kill().unwrap();
    while threads::start_time(thread).is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let left = SchedAttr::fair(0).give_leaving(thread);
    small.give(living.thread).unwrap();
    // The bandwidth with no owner that this leaves makes the rebuild necessary.
    drop(book_for_nobody(1_000));
    let books = books::lost(debugfs);
    SchedAttr::fair(0).give_leaving(living.thread).unwrap();
    dead.wait().unwrap();
    assert!(left.is_err(), "a dead thread cannot be taken out");
    match books {
        // Other programs of the machine may have reserved threads, too.
        Ok(books) => assert!(books.without_owner() == 0 && books.threads >= 1, "{books:?}"),
        Err(error) => skip(error),
    }
}

/// The deadline of a thread under reservation, or of its server. None if this kernel does not show it.
fn deadline_of(thread: ThreadId) -> Option<Nanos> {
    let sched = std::fs::read_to_string(format!("/proc/{thread}/sched")).unwrap_or_default();
    let line = sched.lines().find(|line| line.starts_with("dl.deadline"))?;
    Some(Nanos::new(line.rsplit(':').next()?.trim().parse().ok()?))
}

/// Lets a thread overrun its weightless reservation once. Returns whether that moved its deadline by 15 s, or why this
/// cannot be tested here.
fn overran_far(hog: ThreadId) -> Result<bool, &'static str> {
    let weightless = Reservation::new(Nanos::new(1_024), Nanos::from_millis(1_100)).unwrap();
    if SchedAttr::deadline(reservation(500), false).give(hog).is_err() {
        return Err("other programs hold all bandwidth");
    }
    std::thread::sleep(Duration::from_millis(30));
    SchedAttr::deadline(weightless, false).give(hog).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    let deadline = deadline_of(hog).ok_or("this kernel does not show deadlines of servers")?;
    Ok(deadline.get() > clock::now().get() + 15_000_000_000)
}

/// An overrun of a few µs moves the deadline by as many periods. They must pass before the next try can move it further.
fn move_deadline_far_away(hog: ThreadId) -> Result<(), &'static str> {
    for _ in 0..1_000 {
        let is_far = overran_far(hog)?;
        SchedAttr::fair(0).give(hog).unwrap();
        if is_far {
            return Ok(());
        }
    }
    Err("no overrun moved the deadline by 15 s")
}

/// Each µs by which a weightless thread overruns moves its deadline by 1.1 s, and new parameters do not change the
/// deadline. With a reservation it would not run until then, and would hold its bandwidth as long.
#[test]
fn a_thread_whose_deadline_is_far_away_is_refused_and_holds_no_bandwidth() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let hog = Worker::burning();
    if let Err(why) = move_deadline_far_away(hog.thread) {
        return skip(why);
    }
    let asked = Setting {
        thread: hog.thread,
        reservation: Some(reservation(500)),
        reclaiming: Reclaiming::Hard,
        terms: Default::default(),
    };
    let mut mechanism = Deadline::new();
    let refused = mechanism.apply(&asked);
    let books = books::lost(Path::new(DEBUGFS));
    assert!(matches!(refused, Err(ApplyError::Busy { .. })), "{refused:?}");
    assert_ne!(SchedAttr::of(hog.thread).unwrap().policy, Policy::DEADLINE);
    match books {
        Ok(books) => assert_eq!(books.without_owner(), 0, "{books:?}"),
        Err(error) => skip(error),
    }
}

/// A throttled thread is refilled at its deadline. If a thread left at that moment, and had run and fallen asleep again
/// before the call, its bandwidth would stay booked: it sleeps past its 0-lag time, and nothing subtracts it. So each
/// thread here uses up its budget shortly before its deadline, begins to leave then, and sleeps as soon as it is
/// refilled.
#[test]
fn a_thread_that_is_refilled_while_it_leaves_loses_no_bandwidth() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let debugfs = Path::new(DEBUGFS);
    let before = books::lost(debugfs).expect("a process that may reserve can read the books").without_owner();
    let period = Nanos::from_millis(4);
    let mut departures = 0;
    for turn in 0..200_u64 {
        let armed = Arc::<AtomicBool>::default();
        let worker = sleeps_after_a_gap(armed.clone());
        // The time from the begin of a departure to its last call differs from build to build.
        let gap = 60 + turn / 4 % 32 * 10;
        let reservation = Some(Reservation::new(period - Nanos::from_micros(gap), period).unwrap());
        let setting =
            Setting { thread: worker.thread, reservation, reclaiming: Reclaiming::Hard, terms: Default::default() };
        let mut mechanism = Deadline::new();
        let at = clock::now() + period - Nanos::from_micros(gap - turn % 4 * 4);
        if mechanism.apply(&setting).is_err() {
            break; // the bandwidth is held by other programs, or lost
        }
        departures += 1;
        while clock::now() < at {
            std::hint::spin_loop();
        }
        armed.store(true, Ordering::Relaxed);
        mechanism.apply(&Setting { reservation: None, ..setting }).unwrap();
        assert!(mechanism.settle().is_empty());
    }
    std::thread::sleep(Duration::from_millis(100));
    let after = books::lost(debugfs).unwrap().without_owner();
    assert_eq!(after, before, "units of 2^-20 CPU booked with no owner after {departures} departures");
    assert!(departures > 0, "no thread could be reserved; does another process hold all bandwidth?");
}

/// Runs until, after it is armed, it finds a gap in its own running; then it sleeps.
fn sleeps_after_a_gap(armed: Arc<AtomicBool>) -> Worker {
    let mut last = clock::now();
    Worker::start(move || {
        let now = clock::now();
        if armed.load(Ordering::Relaxed) && now.since(last) > Nanos::from_micros(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        last = clock::now();
    })
}
