//! Tests of the mechanism `deadline` on the real scheduler. Each test holds the lock that all live tests share, so that
//! no two run at once.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use qfabric_linux::books::{self, BooksError};
use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::sched_attr::{Policy, RECLAIM, SchedAttr};
use qfabric_linux::testing::{Worker, live_lock, may_reserve, settled_room, skip};
use qfabric_linux::{ApplyError, Deadline, Mechanism, clock};
use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Setting, ThreadId};

fn setting(thread: ThreadId, budget_us: u64, period_us: u64) -> Setting {
    let reservation = Reservation::new(Nanos::from_micros(budget_us), Nanos::from_micros(period_us)).unwrap();
    Setting { thread, reservation: Some(reservation), reclaiming: Reclaiming::Hard, terms: Default::default() }
}

fn none(thread: ThreadId) -> Setting {
    Setting { thread, reservation: None, reclaiming: Reclaiming::Hard, terms: Default::default() }
}

/// Puts a thread back and waits until this is complete: a thread that sleeps in an overrun is put back only after its
/// next replenishment.
fn put_back(mechanism: &mut Deadline, thread: ThreadId) {
    mechanism.apply(&none(thread)).unwrap();
    assert_eq!(mechanism.settle(), []);
}

fn attr(thread: ThreadId) -> SchedAttr {
    SchedAttr::of(thread).unwrap()
}

macro_rules! live {
    () => {
        let _alone = live_lock();
        if !may_reserve() {
            return;
        }
    };
}

#[test]
fn a_burning_thread_gets_its_share_and_no_more() {
    live!();
    let (worker, mut mechanism) = (Worker::burning(), Deadline::new());
    assert!(soon(&mut mechanism, setting(worker.thread, 20_000, 100_000)));
    let share = worker.share_over(Duration::from_secs(2));
    assert!((0.17..=0.23).contains(&share), "got {share}");
}

#[test]
fn a_thread_is_put_back_with_its_nice_value() {
    live!();
    let (worker, mut mechanism) = (Worker::sleeping(), Deadline::new());
    SchedAttr::fair(5).give(worker.thread).unwrap();
    let before = attr(worker.thread);
    mechanism.apply(&setting(worker.thread, 1_000, 10_000)).unwrap();
    mechanism.apply(&setting(worker.thread, 2_000, 10_000)).unwrap();
    assert_eq!(attr(worker.thread).policy, Policy::DEADLINE);
    put_back(&mut mechanism, worker.thread);
    assert_eq!(attr(worker.thread), before);
    assert!(mechanism.is_empty());
}

#[test]
fn a_real_time_thread_is_left_alone_unless_asked_for_and_then_put_back_exactly() {
    live!();
    let worker = Worker::sleeping();
    let before = SchedAttr::fifo(7);
    before.give(worker.thread).unwrap();
    let refused = Deadline::new().apply(&setting(worker.thread, 1_000, 10_000)).unwrap_err();
    assert!(matches!(refused, ApplyError::Foreign { policy: "SCHED_FIFO", .. }), "{refused}");
    let mut mechanism = Deadline::new().take_over(true);
    mechanism.apply(&setting(worker.thread, 1_000, 10_000)).unwrap();
    assert_eq!(attr(worker.thread).policy, Policy::DEADLINE);
    put_back(&mut mechanism, worker.thread);
    assert_eq!(attr(worker.thread), before);
}

/// What GLib does to each thread of a pool: `sched_getattr` on the thread that creates it, `sched_setattr` on the new
/// one.
#[test]
fn a_reservation_that_a_library_copied_is_taken_over_and_ends_under_the_normal_scheduler() {
    live!();
    let (maker, pooled, mut mechanism) = (Worker::sleeping(), Worker::sleeping(), Deadline::new());
    mechanism.apply(&setting(maker.thread, 1_000, 10_000)).unwrap();
    attr(maker.thread).give(pooled.thread).unwrap();
    mechanism.apply(&setting(pooled.thread, 500, 10_000)).unwrap();
    assert_eq!(attr(pooled.thread).runtime_ns, 500_000);
    put_back(&mut mechanism, pooled.thread);
    assert_eq!(attr(pooled.thread).policy, Policy::OTHER);
}

#[test]
fn a_reservation_that_a_program_gave_itself_is_left_alone() {
    live!();
    let (reserved, own, mut mechanism) = (Worker::sleeping(), Worker::sleeping(), Deadline::new());
    mechanism.apply(&setting(reserved.thread, 1_000, 10_000)).unwrap();
    let chosen =
        SchedAttr { runtime_ns: 2_000_000, period_ns: 30_000_000, deadline_ns: 30_000_000, ..attr(reserved.thread) };
    chosen.give(own.thread).unwrap();
    let refused = mechanism.apply(&setting(own.thread, 500, 10_000)).unwrap_err();
    assert!(matches!(refused, ApplyError::Foreign { policy: "SCHED_DEADLINE", .. }), "{refused}");
    assert_eq!(attr(own.thread), chosen);
}

#[test]
fn a_thread_keeps_its_timer_slack() {
    live!();
    let (worker, mut mechanism) = (Worker::sleeping(), Deadline::new());
    let file = format!("/proc/{}/timerslack_ns", worker.thread);
    std::fs::write(&file, "12345").unwrap();
    mechanism.apply(&setting(worker.thread, 1_000, 10_000)).unwrap();
    put_back(&mut mechanism, worker.thread);
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "12345");
}

#[test]
fn dropping_the_mechanism_puts_every_thread_back() {
    live!();
    let workers: Vec<_> = (0..5).map(|_| Worker::sleeping()).collect();
    let mut mechanism = Deadline::new();
    for worker in &workers {
        mechanism.apply(&setting(worker.thread, 1_000, 10_000)).unwrap();
    }
    drop(mechanism);
    assert!(workers.iter().all(|w| attr(w.thread).policy == Policy::OTHER));
}

#[test]
fn a_refused_reservation_leaves_the_old_one_in_force() {
    live!();
    let room = settled_room();
    let workers: Vec<_> = (0..room.ppm().div_ceil(900_000) + 1).map(|_| Worker::sleeping()).collect();
    let (last, first) = workers.split_last().unwrap();
    let mut mechanism = Deadline::new();
    mechanism.apply(&setting(last.thread, 100, 10_000)).unwrap();
    let refused = first.iter().find_map(|w| mechanism.apply(&setting(w.thread, 9_900, 10_000)).err());
    let last_refused = mechanism.apply(&setting(last.thread, 10_000, 10_000)).unwrap_err();
    assert!(matches!(last_refused, ApplyError::Busy { .. }), "{last_refused}, {refused:?}");
    assert_eq!(attr(last.thread).runtime_ns, 100_000);
}

#[test]
fn bandwidth_released_by_one_thread_can_be_reserved_for_another() {
    live!();
    let room = settled_room().as_f64();
    let nearly_all = ((room / 2.0).min(1.0) * 9_900.0) as u64;
    let (a, b, c) = (Worker::sleeping(), Worker::sleeping(), Worker::sleeping());
    let mut mechanism = Deadline::new();
    mechanism.apply(&setting(a.thread, nearly_all, 10_000)).unwrap();
    mechanism.apply(&setting(b.thread, nearly_all, 10_000)).unwrap();
    let grown = setting(c.thread, 4_000, 10_000);
    assert!(matches!(mechanism.apply(&grown), Err(ApplyError::Busy { .. })));
    mechanism.apply(&setting(a.thread, nearly_all - 4_000, 10_000)).unwrap();
    mechanism.apply(&grown).unwrap();
}

#[test]
fn a_reserved_program_may_fork_and_its_children_are_ordinary() {
    live!();
    let mut command = Command::new("sh");
    command.args(["-c", "read x; sleep 30 & echo $!; wait"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut mechanism = Deadline::new();
    mechanism.apply(&setting(ThreadId(child.id() as i32), 5_000, 10_000)).unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
    let grandchild = ThreadId(line.trim().parse().unwrap());
    assert_eq!(attr(grandchild).policy, Policy::OTHER);
    Command::new("kill").arg(grandchild.to_string()).status().unwrap();
    child.wait().unwrap();
    let gone = mechanism.apply(&setting(ThreadId(child.id() as i32), 4_000, 10_000)).unwrap_err();
    assert!(matches!(gone, ApplyError::Gone { .. }), "{gone}");
    assert!(mechanism.is_empty());
}

#[test]
fn a_pinned_thread_is_refused_and_the_error_names_its_cpus_and_taskset() {
    live!();
    let online = qfabric_linux::cpus::CpuList::online();
    if online.len() < 2 {
        return; // with a single CPU no thread can be pinned to fewer than all
    }
    let worker = Worker::start(|| {
        let mut one = rustix::thread::CpuSet::new();
        one.set(0);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    });
    while worker.turns() == 0 {
        std::thread::yield_now();
    }
    let refused = Deadline::new().apply(&setting(worker.thread, 1_000, 10_000)).unwrap_err();
    let ApplyError::Affinity { mask, needed, .. } = &refused else { panic!("{refused}") };
    assert_eq!((mask.to_string().as_str(), needed), ("0", &online));
    assert!(refused.to_string().contains("taskset"), "{refused}");
}

#[test]
fn a_refusal_for_want_of_cap_sys_nice_names_setcap() {
    live!();
    let worker = Worker::sleeping();
    let thread = worker.thread;
    let refused = std::thread::spawn(move || {
        // Capabilities belong to threads: only this one loses the capability.
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective.remove(rustix::thread::CapabilitySet::SYS_NICE);
        rustix::thread::set_capabilities(None, sets).unwrap();
        Deadline::new().apply(&setting(thread, 1_000, 10_000)).unwrap_err()
    });
    let refused = refused.join().unwrap();
    assert!(matches!(&refused, ApplyError::Denied { errno: libc::EPERM, .. }), "{refused}");
    assert!(refused.to_string().contains("setcap cap_sys_nice"), "{refused}");
}

#[test]
fn soft_and_iris_are_refused_by_name_and_the_thread_is_unchanged() {
    live!();
    let (worker, mut mechanism) = (Worker::sleeping(), Deadline::new());
    let before = SchedAttr::of(worker.thread).unwrap();
    for (reclaiming, named) in [(Reclaiming::Soft, "cannot give soft"), (Reclaiming::Iris, "cannot give IRIS")] {
        let asked = Setting { reclaiming, ..setting(worker.thread, 1_000, 10_000) };
        let refused = mechanism.apply(&asked).unwrap_err();
        assert!(refused.to_string().contains(named) && refused.to_string().contains("--mechanism ext"), "{refused}");
        assert_eq!(SchedAttr::of(worker.thread).unwrap(), before);
    }
    for (reclaiming, reclaims) in [(Reclaiming::Grub, true), (Reclaiming::Hard, false)] {
        mechanism.apply(&Setting { reclaiming, ..setting(worker.thread, 1_000, 10_000) }).unwrap();
        assert_eq!(SchedAttr::of(worker.thread).unwrap().flags & RECLAIM != 0, reclaims);
    }
}

#[test]
fn a_zombie_gets_no_reservation() {
    live!();
    let mut child = Command::new("true").spawn().unwrap();
    let thread = ThreadId(child.id() as i32);
    while qfabric_linux::threads::start_time(thread).is_some() {
        std::thread::yield_now();
    }
    let refused = Deadline::new().apply(&setting(thread, 1_000, 10_000)).unwrap_err();
    child.wait().unwrap();
    assert!(matches!(refused, ApplyError::Gone { .. }), "{refused}");
}

/// The kernel reports the policy of a dead thread until it is reaped.
#[test]
fn a_zombie_with_a_reservation_is_gone_and_chose_no_policy_itself() {
    live!();
    let mut child = Command::new("sleep").arg("30").spawn().unwrap();
    let (thread, mut mechanism) = (ThreadId(child.id() as i32), Deadline::new());
    mechanism.apply(&setting(thread, 1_000, 10_000)).unwrap();
    child.kill().unwrap();
    while qfabric_linux::threads::start_time(thread).is_some() {
        std::thread::yield_now();
    }
    let refused = Deadline::new().apply(&setting(thread, 1_000, 10_000)).unwrap_err();
    child.wait().unwrap();
    assert!(matches!(refused, ApplyError::Gone { .. }), "{refused}");
}

#[test]
fn a_program_that_dies_before_its_reservation_changes_leaves_nothing_booked() {
    live!();
    let books = || books::lost(Path::new(DEBUGFS)).unwrap();
    let before = books().without_owner();
    for turn in 0..10 {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let thread = ThreadId(child.id() as i32);
        let mut mechanism = Deadline::new();
        assert!(soon(&mut mechanism, setting(thread, 1_000, 10_000)));
        std::thread::sleep(Duration::from_millis(3 + turn));
        child.kill().unwrap();
        while qfabric_linux::threads::start_time(thread).is_some() {
            std::thread::yield_now(); // until the child is a zombie
        }
        let gone = mechanism.apply(&setting(thread, 600, 10_000)).unwrap_err();
        assert!(matches!(gone, ApplyError::Gone { .. }), "{gone}");
        child.wait().unwrap();
    }
    assert_eq!(books().without_owner(), before);
}

#[test]
fn a_policy_that_a_program_changed_itself_is_kept() {
    live!();
    let (worker, mut mechanism) = (Worker::sleeping(), Deadline::new());
    mechanism.apply(&setting(worker.thread, 1_000, 10_000)).unwrap();
    SchedAttr::fifo(3).give_leaving(worker.thread).unwrap();
    let refused = mechanism.apply(&setting(worker.thread, 2_000, 10_000)).unwrap_err();
    assert!(matches!(refused, ApplyError::Foreign { .. }), "{refused}");
    mechanism.apply(&none(worker.thread)).unwrap();
    assert_eq!(attr(worker.thread).policy, Policy::FIFO);
}

/// Other programs may reserve and release meanwhile, so only bandwidth that no living thread holds counts.
#[test]
fn threads_that_leave_in_their_sleep_leave_no_bandwidth_booked() {
    live!();
    let without_owner = || match books::lost(Path::new(DEBUGFS)) {
        Err(BooksError::Restless) => None,
        books => Some(books.expect("a process that may reserve can read the books").without_owner()),
    };
    let (before, mut mechanism, mut departures) = (without_owner(), Deadline::new(), 0);
    for _ in 0..20 {
        let worker = Worker::sleeping();
        if !soon(&mut mechanism, setting(worker.thread, 2_000, 10_000)) {
            break; // other programs hold the bandwidth, or it is lost
        }
        std::thread::sleep(Duration::from_millis(3));
        put_back(&mut mechanism, worker.thread);
        departures += 1;
    }
    match (before, without_owner()) {
        (Some(before), Some(after)) if departures > 0 => {
            assert_eq!(after, before, "units of 2^-20 CPU with no owner after {departures} departures");
        }
        _ => skip("other programs reserve and release without a pause, or hold all bandwidth"),
    }
}

#[test]
fn a_child_gets_the_nice_value_its_parent_had_before_it_was_reserved() {
    live!();
    let (parent, mut mechanism) = (Worker::sleeping(), Deadline::new());
    let own = attr(parent.thread).nice;
    SchedAttr::fair(5).give(parent.thread).unwrap();
    assert!(soon(&mut mechanism, setting(parent.thread, 1_000, 10_000)));
    let (child, stranger) = (Worker::sleeping(), Worker::sleeping());
    mechanism.born(child.thread, parent.thread);
    mechanism.born(stranger.thread, child.thread);
    assert_eq!((attr(child.thread).nice, attr(stranger.thread).nice), (5, own));
}

#[test]
fn a_reservation_given_before_exec_holds_for_the_program() {
    live!();
    let mut command = Command::new("sleep");
    command.arg("30");
    let held = qfabric_linux::launch::Held::spawn(command).unwrap();
    let (thread, mut mechanism) = (ThreadId(held.pid()), Deadline::new());
    mechanism.apply(&setting(thread, 1_000, 10_000)).unwrap();
    let mut child = held.go().unwrap();
    assert_eq!(attr(thread).policy, Policy::DEADLINE);
    mechanism.apply(&setting(thread, 2_000, 10_000)).unwrap();
    drop(mechanism);
    assert_eq!(attr(thread).policy, Policy::OTHER);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Applies the setting as soon as the thread is no longer busy. `false`: it stays busy for more than 3 s, as a thread
/// does whose state was not certain when it departed (docs/design/0007).
#[must_use]
fn soon(mechanism: &mut Deadline, setting: Setting) -> bool {
    for _ in 0..300 {
        match mechanism.apply(&setting) {
            Err(ApplyError::Busy { .. }) => std::thread::sleep(Duration::from_millis(10)),
            other => return other.map(|()| true).unwrap(),
        }
    }
    false
}

/// Whether the thread runs at all within 3 s, in which a stale throttled mark is cleared.
fn runs(mechanism: &mut Deadline, worker: &Worker) -> bool {
    let used = worker.used();
    (0..300).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        mechanism.advance(qfabric_linux::clock::now());
        worker.used() > used
    })
}

#[test]
fn a_throttled_thread_that_leaves_and_comes_back_runs() {
    live!();
    let (mut mechanism, mut came_back) = (Deadline::new(), 0);
    for turn in 0..8 {
        let worker = Worker::burning();
        // An emulated machine takes milliseconds for a departure, and the thread must not spend its budget in that
        // time.
        mechanism.apply(&setting(worker.thread, 40_000, 200_000)).unwrap();
        std::thread::sleep(Duration::from_millis(60 + turn));
        put_back(&mut mechanism, worker.thread);
        std::thread::sleep(Duration::from_millis(2 * turn));
        if soon(&mut mechanism, setting(worker.thread, 5_000, 10_000)) {
            assert!(runs(&mut mechanism, &worker), "turn {turn}");
            put_back(&mut mechanism, worker.thread);
            came_back += 1;
        }
    }
    assert!(came_back > 0, "all 8 threads stayed busy");
}

/// Ends a reservation the way some other tools do, which leaves the thread marked as throttled.
fn leave_marked(thread: ThreadId) {
    let slight = Reservation::new(Nanos::new(1_024), Nanos::from_millis(1_100)).unwrap();
    SchedAttr::deadline(slight, false).give(thread).unwrap();
    SchedAttr::fair(0).give(thread).unwrap();
}

#[test]
fn a_stale_throttle_mark_is_cleared_when_a_thread_is_reserved() {
    live!();
    for turn in 0..6 {
        let (worker, mut mechanism) = (Worker::burning(), Deadline::new());
        mechanism.apply(&setting(worker.thread, 2_000, 10_000)).unwrap();
        std::thread::sleep(Duration::from_millis(50 + turn));
        leave_marked(worker.thread);
        let mut mechanism = Deadline::new();
        mechanism.apply(&setting(worker.thread, 2_000, 10_000)).unwrap();
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(mechanism.advance(qfabric_linux::clock::now()), []);
        }
        assert!(runs(&mut mechanism, &worker), "turn {turn}");
    }
}

#[test]
fn a_request_during_a_departure_cancels_it() {
    live!();
    let fresh = || Worker::periodic(Nanos::from_millis(20), Nanos::from_millis(5));
    let (mut worker, mut mechanism) = (fresh(), Deadline::new());
    let mut asked = setting(worker.thread, 2_000, 20_000);
    mechanism.apply(&asked).unwrap();
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(7));
        mechanism.apply(&none(worker.thread)).unwrap();
        if mechanism.next_step().is_some() && mechanism.len() == 1 {
            mechanism.apply(&asked).unwrap();
            let now = attr(worker.thread);
            assert_eq!((now.policy, now.runtime_ns, now.period_ns), (Policy::DEADLINE, 2_000_000, 20_000_000));
            assert_eq!((mechanism.settle(), mechanism.len()), (vec![], 1));
            return put_back(&mut mechanism, worker.thread);
        }
        mechanism.settle();
        if !soon(&mut mechanism, asked) {
            worker = fresh();
            asked = setting(worker.thread, 2_000, 20_000);
            mechanism.apply(&asked).unwrap();
        }
    }
}

#[test]
fn a_stuck_thread_is_found_and_runs_again() {
    live!();
    let (worker, mut mechanism) = (Worker::burning(), Deadline::new());
    if !(0..60).any(|turn| is_stuck_when_reserved(&worker, &mut mechanism, turn)) {
        return skip("no thread kept its throttled mark");
    }
    let rescued = (0..4).any(|_| {
        std::thread::sleep(Duration::from_millis(300));
        !mechanism.tend().is_empty()
    });
    assert!(rescued, "not found as stuck");
    assert!(runs(&mut mechanism, &worker));
}

/// True if `worker` has a stale mark now: it got no CPU time during ten periods of its new reservation.
fn is_stuck_when_reserved(worker: &Worker, mechanism: &mut Deadline, turn: u64) -> bool {
    *mechanism = Deadline::new();
    mechanism.apply(&setting(worker.thread, 2_000, 10_000)).unwrap();
    std::thread::sleep(Duration::from_millis(50 + turn));
    leave_marked(worker.thread); // without a reservation for a moment
    std::thread::sleep(Duration::from_millis(100));
    mechanism.apply(&setting(worker.thread, 2_000, 10_000)).unwrap();
    let used = worker.used();
    std::thread::sleep(Duration::from_millis(100));
    worker.used() == used
}

/// Whether this is Linux 7.1 or newer.
fn reports_deadlines() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(7), Some(1))
}

/// Ten deadlines over two or three periods of 20 ms, each with the time before and after it was read.
fn deadlines(mechanism: &mut Deadline, thread: ThreadId) -> Vec<[Instant; 3]> {
    let read = |_| {
        std::thread::sleep(Duration::from_millis(5));
        let before = clock::now();
        let deadline = mechanism.server_deadline(thread).expect("the thread is reserved");
        [before, deadline, clock::now()]
    };
    (0..10).map(read).collect()
}

/// A thread that always wants more has a deadline within a period of the present, which moves by whole periods.
fn moves_by_periods(series: &[[Instant; 3]], period: Nanos) -> bool {
    let (whole, slack) = (period.get(), period.get() / 20);
    let is_near =
        |[before, deadline, after]: &[Instant; 3]| *deadline + period >= *before && *deadline <= *after + period;
    // Two answers for one deadline differ by up to a microsecond.
    let is_whole = |pair: &[[Instant; 3]]| {
        let (earlier, later) = (pair[0][1], pair[1][1] + Nanos::new(slack));
        later >= earlier && later.since(earlier).get() % whole <= 2 * slack
    };
    series.iter().all(is_near) && series.windows(2).all(is_whole) && series[9][1] > series[0][1]
}

#[test]
fn a_servers_deadline_is_reported_from_linux_7_1_on() {
    live!();
    let (worker, mut mechanism) = (Worker::burning(), Deadline::new());
    assert_eq!(mechanism.server_deadline(worker.thread), None, "no server yet");
    let period = Nanos::from_millis(20);
    mechanism.apply(&setting(worker.thread, 4_000, 20_000)).unwrap();
    if !reports_deadlines() {
        assert_eq!((0..3).find_map(|_| mechanism.server_deadline(worker.thread)), None);
        return;
    }
    // Where the kernel replenishes a budget late, the deadline lags, and then starts from the present time. So some of
    // many series has to be undisturbed.
    let mut series = Vec::new();
    let moves_by_periods = (0..40).any(|_| {
        series = deadlines(&mut mechanism, worker.thread);
        moves_by_periods(&series, period)
    });
    assert!(moves_by_periods, "{series:?}");
    put_back(&mut mechanism, worker.thread);
    assert_eq!(mechanism.server_deadline(worker.thread), None, "no server after the thread was put back");
}
