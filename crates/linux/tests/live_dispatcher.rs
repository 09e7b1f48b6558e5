//! The mechanism `dispatcher` on the real scheduler: pinned threads get their slots beside time-sharing work.

use std::process::{Command, Stdio};
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::journal::{self, Journal};
use qfabric_linux::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use qfabric_linux::testing::{Worker, burn, live_lock, may_reserve, skip};
use qfabric_linux::{ApplyError, DispatcherMechanism, Mechanism, threads};
use qfabric_types::{
    AppId, DispatchRules, Nanos, Reclaiming, Reservation, ServerCounts, ServerTerms, Setting, ThreadId, Window,
};

/// The last CPU of this host, on which the tests pin their threads.
fn last_cpu() -> u32 {
    CpuList::online().iter().last().unwrap()
}

fn pin(thread: ThreadId, cpu: u32) {
    let mut taskset = Command::new("taskset");
    taskset.args(["-cp", &cpu.to_string(), &thread.to_string()]).stdout(Stdio::null());
    assert!(taskset.status().expect("taskset is installed").success());
}

fn pinned(worker: Worker) -> Worker {
    pin(worker.thread, last_cpu());
    worker
}

fn reserve(thread: ThreadId, service_ms: u64, period_ms: u64) -> Setting {
    let reservation = Reservation::new(Nanos::from_millis(service_ms), Nanos::from_millis(period_ms)).ok();
    Setting { thread, reservation, reclaiming: Reclaiming::Hard, terms: ServerTerms::default() }
}

fn release(thread: ThreadId) -> Setting {
    Setting { reservation: None, ..reserve(thread, 1, 2) }
}

fn mechanism() -> DispatcherMechanism {
    DispatcherMechanism::new(DispatchRules::default()).unwrap()
}

/// Waits until `enough` is true for the counts of the thread's group.
fn counts_when(mechanism: &DispatcherMechanism, thread: ThreadId, enough: fn(&ServerCounts) -> bool) -> ServerCounts {
    loop {
        let counts = mechanism.counts(thread).expect("the thread is in a group");
        if enough(&counts) {
            return counts;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn state_of(thread: ThreadId) -> (SchedAttr, CpuList) {
    (SchedAttr::of(thread).unwrap(), CpuList::allowed(thread.0).unwrap())
}

#[test]
fn three_pinned_players_beside_hogs_end_more_jobs_than_without_slots() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let (period, work) = (Nanos::from_millis(100), Nanos::from_millis(14));
    let _hogs: Vec<Worker> = (0..9).map(|_| pinned(Worker::burning())).collect();
    let players: Vec<Worker> = (0..3).map(|_| pinned(Worker::periodic(period, work))).collect();
    let jobs_in_two_seconds = || {
        let before: Vec<u64> = players.iter().map(Worker::turns).collect();
        std::thread::sleep(Duration::from_secs(2));
        players.iter().zip(before).map(|(player, before)| player.turns() - before).collect::<Vec<u64>>()
    };
    let plain = jobs_in_two_seconds();
    let mut mechanism = mechanism();
    players.iter().for_each(|player| mechanism.apply(&reserve(player.thread, 20, 100)).unwrap());
    std::thread::sleep(Duration::from_millis(300)); // the frame that lends slots
    let slotted = jobs_in_two_seconds();
    println!("jobs of 14 ms in 2 s beside nine hogs: {plain:?} plain, {slotted:?} with slots");
    let sum = |jobs: &[u64]| jobs.iter().sum::<u64>();
    assert!(sum(&slotted) > sum(&plain), "{slotted:?} against {plain:?}");
    assert!(slotted.iter().all(|jobs| *jobs >= 17), "{slotted:?} of 20 each");
}

#[test]
fn a_thread_has_its_policy_and_cpus_back_and_nothing_remains() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let worker = Worker::burning();
    SchedAttr::fair(5).give(worker.thread).unwrap();
    let before = state_of(worker.thread);
    let mut mechanism = mechanism();
    assert!(mechanism.cpus_in_use().is_empty(), "no thread dispatches before the first reservation");
    mechanism.apply(&reserve(worker.thread, 10, 40)).unwrap();
    counts_when(&mechanism, worker.thread, |counts| counts.served >= 3);
    assert_eq!(state_of(worker.thread).1.len(), 1, "bound to the CPU of its table");
    mechanism.apply(&release(worker.thread)).unwrap();
    assert_eq!(state_of(worker.thread), before);
    assert!(mechanism.cpus_in_use().is_empty() && mechanism.counts(worker.thread).is_none());
    // No thread dispatches any more. One that was joined is listed until the kernel has taken it down.
    while parts_of_the_dispatcher().0 > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether this process asks the kernel for short sleeps of idle CPUs.
fn asks_for_short_sleeps() -> bool {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|path| path.ends_with("cpu_dma_latency"))
}

#[test]
fn idle_cpus_sleep_shortly_only_while_a_table_has_groups() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    if let Err(error) = std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency") {
        return skip(format_args!("/dev/cpu_dma_latency cannot be opened: {error}"));
    }
    let worker = Worker::burning();
    let mut mechanism = mechanism().with_idle_latency(Some(Nanos::from_micros(20)));
    assert!(!asks_for_short_sleeps());
    mechanism.apply(&reserve(worker.thread, 10, 40)).unwrap();
    assert!(asks_for_short_sleeps());
    mechanism.apply(&release(worker.thread)).unwrap();
    assert!(!asks_for_short_sleeps());
}

/// Threads of this process that dispatch, its guardians, and its timers.
fn parts_of_the_dispatcher() -> (usize, usize, usize) {
    let me = std::process::id() as i32;
    let named = |threads: Vec<ThreadId>, name: &str| {
        threads.into_iter().filter_map(threads::name).filter(|thread| thread.starts_with(name)).count()
    };
    let children = threads::descendants(me).into_iter().map(ThreadId).collect();
    let timers = std::fs::read_to_string("/proc/self/timers").map_or(0, |timers| timers.lines().count());
    (named(threads::list(me).unwrap(), "qf-slots"), named(children, "qf-guardian"), timers)
}

/// What a mechanism costs is done by its threads and processes. It has none, so it costs nothing.
#[test]
fn without_a_reservation_there_is_no_thread_no_process_and_no_timer() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let worker = Worker::sleeping();
    let mut mechanism = mechanism();
    assert_eq!((parts_of_the_dispatcher(), mechanism.dispatch_tables()), ((0, 0, 0), Vec::new()));
    mechanism.apply(&reserve(worker.thread, 10, 40)).unwrap();
    assert_eq!(parts_of_the_dispatcher(), (1, 1, 0), "a futex has the timeout");
    counts_when(&mechanism, worker.thread, |counts| counts.slots >= 3);
    let table = mechanism.dispatch_tables()[0];
    assert_eq!((table.groups, table.frame, table.free), (1, 4, 3), "{table:?}");
    assert!(
        table.dispatches >= 3
            && table.used > Nanos::ZERO
            && table.late_most.get() >= table.late_total.get() / table.dispatches
    );
    mechanism.apply(&release(worker.thread)).unwrap();
    assert_eq!(mechanism.dispatch_tables(), Vec::new());
    while parts_of_the_dispatcher() != (0, 0, 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_overrunning_neighbour_takes_no_slot_and_a_yield_counts_as_underrun() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let (greedy, modest) = (pinned(Worker::burning()), pinned(Worker::sleeping()));
    let mut mechanism = mechanism();
    mechanism.apply(&reserve(greedy.thread, 10, 50)).unwrap();
    mechanism.apply(&reserve(modest.thread, 10, 50)).unwrap();
    let counts = counts_when(&mechanism, greedy.thread, |counts| counts.throttles >= 5);
    assert!(counts.used_ns > 0 && counts.previous_ns > 0, "{counts:?}");
    for _ in 0..5 {
        mechanism.yielded(modest.thread, clock::now());
        std::thread::sleep(Duration::from_millis(60));
    }
    let counts = counts_when(&mechanism, modest.thread, |counts| counts.underruns >= 5);
    assert_eq!(counts.throttles, 0, "it never used a whole slot: {counts:?}");
}

#[test]
fn threads_of_one_application_share_their_slots() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let workers = [pinned(Worker::burning()), pinned(Worker::burning())];
    let mut mechanism = mechanism();
    for worker in &workers {
        let terms = ServerTerms { group: Some(AppId(3)), ..ServerTerms::default() };
        mechanism.apply(&Setting { terms, ..reserve(worker.thread, 20, 50) }).unwrap();
    }
    let counts = counts_when(&mechanism, workers[0].thread, |counts| counts.served >= 4);
    assert!(mechanism.counts(workers[1].thread).unwrap().served >= counts.served);
    mechanism.forget(workers[0].thread);
    assert!(
        mechanism.counts(workers[1].thread).unwrap().used_ns >= counts.used_ns,
        "the time of former threads counts"
    );
    SchedAttr::fair(0).give(workers[0].thread).unwrap();
}

#[test]
fn impossible_settings_are_refused_and_change_nothing() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let (worker, other) = (pinned(Worker::sleeping()), pinned(Worker::sleeping()));
    let before = state_of(worker.thread);
    let mut mechanism = mechanism();
    mechanism.apply(&reserve(other.thread, 80, 100)).unwrap();
    let with = |terms| Setting { terms, ..reserve(worker.thread, 10, 100) };
    let elsewhere = ServerTerms { cpu: Some(0), ..ServerTerms::default() };
    let windowed = ServerTerms { window: Window::new(1, 2).ok(), ..ServerTerms::default() };
    for (setting, code, part) in [
        (reserve(worker.thread, 20, 100), "no_slots", "0.2 CPU in whole slots of 10 ms, but 0.1 CPU is free"),
        (reserve(worker.thread, 1, 9), "no_slots", "shorter than a slot"),
        (with(windowed), "unavailable", "a window"),
        (with(elsewhere), "affinity", "its server is on CPU 0"),
    ] {
        if code == "affinity" && last_cpu() == 0 {
            continue; // this host has one CPU
        }
        let problem = mechanism.apply(&setting).unwrap_err().problem();
        assert_eq!(problem.code, code, "{problem}");
        assert!(problem.to_string().contains(part), "{problem} lacks {part}");
        assert_eq!(state_of(worker.thread), before);
    }
    SchedAttr::fifo(3).give(worker.thread).unwrap();
    assert!(matches!(mechanism.apply(&reserve(worker.thread, 10, 100)), Err(ApplyError::Foreign { .. })));
}

#[test]
fn a_thread_that_a_waiting_thread_starts_has_the_former_policy() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let (parent, child) = (Worker::sleeping(), Worker::sleeping());
    SchedAttr::fair(3).give(parent.thread).unwrap();
    let before = state_of(parent.thread);
    let mut mechanism = mechanism();
    mechanism.apply(&reserve(parent.thread, 10, 100)).unwrap();
    // As the kernel starts the child of a waiting thread: same policy, same CPU.
    SchedAttr { policy: Policy::IDLE, ..SchedAttr::fair(3) }.give(child.thread).unwrap();
    pin(child.thread, mechanism.cpus_in_use().iter().next().unwrap());
    mechanism.apply(&reserve(child.thread, 10, 100)).unwrap();
    mechanism.apply(&release(child.thread)).unwrap();
    assert_eq!(state_of(child.thread), before);
}

#[test]
fn a_crashed_service_is_undone_from_its_journal() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let worker = Worker::burning();
    SchedAttr::fair(7).give(worker.thread).unwrap();
    let before = state_of(worker.thread);
    let run = tempfile::tempdir().unwrap();
    let mut mechanism = mechanism().with_journal(Journal::open(run.path()).unwrap());
    mechanism.apply(&reserve(worker.thread, 10, 40)).unwrap();
    let after = tempfile::tempdir().unwrap();
    std::fs::copy(run.path().join(journal::FILE), after.path().join(journal::FILE)).unwrap();
    drop(mechanism);
    // What a crash leaves while the slot of the thread runs.
    pin(worker.thread, last_cpu());
    SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(qfabric_linux::dispatcher::RUNNING) }
        .give(worker.thread)
        .unwrap();
    let restored = journal::restore(after.path()).unwrap();
    assert_eq!((restored.threads, restored.failed), (1, Vec::new()));
    assert_eq!(state_of(worker.thread), before);
    assert_eq!(journal::restore(after.path()).unwrap(), journal::Restored::default());
}

/// Not a test by itself: the process that `a_killed_process_leaves_no_thread_behind` kills.
#[test]
fn helper_that_holds_a_reservation() {
    let Some(thread) = std::env::var("QFABRIC_TEST_HOLD").ok().and_then(|id| id.parse().ok()) else { return };
    let mut mechanism = mechanism();
    mechanism.apply(&reserve(ThreadId(thread), 10, 40)).unwrap();
    println!("held");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_no_thread_behind() {
    let _alone = live_lock();
    if !may_reserve() {
        return;
    }
    let worker = Worker::start(|| burn(Nanos::from_millis(1)));
    SchedAttr::fair(2).give(worker.thread).unwrap();
    let before = state_of(worker.thread);
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_holds_a_reservation", "--nocapture"])
        .env("QFABRIC_TEST_HOLD", worker.thread.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while state_of(worker.thread).1.len() > 1 {
        std::thread::sleep(Duration::from_millis(10));
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    while state_of(worker.thread) != before {
        std::thread::sleep(Duration::from_millis(10)); // the guardian notices the end at once
    }
}
