//! The observers on real threads and programs.

use std::collections::HashMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant as Clock};

use qfabric_linux::launch::Held;
use qfabric_linux::observe::{self, Observation, Observer, PollObserver, SwitchObserver};
use qfabric_linux::testing::{self, Worker, live_lock};
use qfabric_types::{Nanos, Sample, ThreadId};

fn watch(observer: &mut dyn Observer, length: Duration) -> Vec<Observation> {
    let (end, mut told) = (Clock::now() + length, Vec::new());
    while Clock::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        observer.poll(&mut |o| told.push(o));
    }
    told
}

fn until(observer: &mut dyn Observer, told: &mut Vec<Observation>, enough: impl Fn(&[Observation]) -> bool) {
    for _ in 0..24_000 {
        observer.poll(&mut |o| told.push(o));
        if enough(told) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not in 120 s; so far {told:?}");
}

fn perf() -> Option<SwitchObserver> {
    SwitchObserver::new().map_err(|e| testing::skip(format!("perf is refused here: {e}"))).ok()
}

fn shell(script: &str) -> Held {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Held::spawn(command).unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// CPU time between sleeps: what activations cost.
fn activations(told: &[Observation], thread: ThreadId) -> Vec<Nanos> {
    let (mut jobs, mut sum) = (Vec::new(), Nanos::ZERO);
    for observation in told {
        if let Observation::Ran(sample) = observation
            && sample.thread == thread
        {
            sum += sample.used;
            if sample.slept {
                jobs.push(std::mem::take(&mut sum));
            }
        }
    }
    jobs
}

/// What was seen between switches is the CPU time, and what the hypervisor took since `stolen` (counted in ticks).
fn adds_up(seen: Nanos, used: Nanos, stolen: Nanos) {
    let taken = testing::stolen() - stolen;
    let most = used.as_f64() * 1.2 + (taken + Nanos::from_millis(20)).as_f64();
    assert!((used.as_f64() * 0.8..=most).contains(&seen.as_f64()), "saw {seen} of {used}, stolen {taken}");
}

#[test]
fn the_activations_of_a_periodic_thread_are_seen_with_their_cost() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    // It sleeps after each turn, however late that ends.
    let worker = Worker::start(|| {
        testing::burn(Nanos::from_millis(2));
        std::thread::sleep(Duration::from_millis(18));
    });
    observer.attach_thread(worker.thread).unwrap();
    observer.poll(&mut |_| {});
    let (turns, used, stolen, mut told) = (worker.turns(), worker.used(), testing::stolen(), Vec::new());
    until(&mut observer, &mut told, |_| worker.turns() >= turns + 60);
    let jobs = activations(&told, worker.thread);
    let (turns, used) = (worker.turns() - turns, worker.used() - used);
    assert!(turns.abs_diff(jobs.len() as u64) <= 2, "{} activations in {turns} turns", jobs.len());
    adds_up(jobs.iter().copied().fold(Nanos::ZERO, |a, b| a + b), used, stolen);
}

#[test]
fn a_program_held_before_its_exec_is_followed_with_all_it_makes() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    let held = shell("sleep 0.2 & sleep 0.1; (sleep 0.1; true); wait");
    let pid = held.pid();
    assert_eq!(observer.attach(pid).unwrap(), [ThreadId(pid)]);
    let (mut child, mut told) = (held.go().unwrap(), Vec::new());
    until(&mut observer, &mut told, |told| told.contains(&Observation::Gone { tid: ThreadId(pid) }));
    child.wait().unwrap();
    let count = |f: fn(&Observation) -> bool| told.iter().filter(|o| f(o)).count();
    let born = count(|o| matches!(o, Observation::Born { .. }));
    assert!(born >= 3, "{told:?}");
    assert_eq!(count(|o| matches!(o, Observation::Gone { .. })), born + 1, "{told:?}");
    assert!(count(|o| matches!(o, Observation::Exec { .. })) >= 3, "{told:?}");
    let mut last: HashMap<ThreadId, u64> = HashMap::new();
    for observation in &told {
        if let Observation::Ran(Sample { thread, from, to, .. }) = observation {
            assert!(last.insert(*thread, to.get()).unwrap_or(0) <= from.get() && from <= to, "{told:?}");
        }
    }
}

#[test]
fn the_stretches_of_a_program_add_up_to_its_cpu_time() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    let held = shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; kill -STOP $$");
    let pid = held.pid();
    observer.attach(pid).unwrap();
    let stolen = testing::stolen();
    let (child, mut told) = (held.go().unwrap(), Vec::new());
    let stopped = |_: &[Observation]| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
    until(&mut observer, &mut told, stopped);
    observer.poll(&mut |o| told.push(o));
    let used = qfabric_linux::clock::process_cpu(pid).unwrap();
    end(child);
    let seen = told.iter().map(|o| if let Observation::Ran(sample) = o { sample.used } else { Nanos::ZERO });
    adds_up(seen.fold(Nanos::ZERO, |a, b| a + b), used, stolen);
}

#[test]
fn a_running_threads_time_is_known_before_it_leaves_the_cpu() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    let worker = Worker::burning();
    observer.attach_thread(worker.thread).unwrap();
    let mut seen = Nanos::ZERO;
    for _ in 0..2_000 {
        let mut add = |o| {
            if let Observation::Ran(sample) = o {
                seen += sample.used;
            }
        };
        observer.poll(&mut add);
        observer.cut(&mut add);
        if seen > Nanos::from_millis(50) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("saw {seen}");
}

#[test]
fn a_program_with_threads_is_attached_with_all_of_them() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    let workers: Vec<_> = (0..10).map(|_| Worker::sleeping()).collect();
    let threads = observer.attach(std::process::id() as i32).unwrap();
    assert!(workers.iter().all(|w| threads.contains(&w.thread)));
    let later = Worker::sleeping();
    let mut told = Vec::new();
    until(&mut observer, &mut told, |told| {
        let born = told.iter().any(|o| matches!(o, Observation::Born { tid, .. } if *tid == later.thread));
        born && told.iter().any(|o| matches!(o, Observation::Ran(sample) if sample.thread == workers[9].thread))
    });
}

#[test]
fn what_is_detached_is_silent_and_gives_its_descriptors_back() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    let before = observer.descriptors_used();
    let worker = Worker::sleeping();
    observer.attach_thread(worker.thread).unwrap();
    assert!(observer.descriptors_used() > before);
    observer.detach(worker.thread.0);
    assert_eq!(observer.descriptors_used(), before);
    assert_eq!(watch(&mut observer, Duration::from_millis(50)), []);
}

#[test]
fn a_program_that_is_gone_cannot_be_attached() {
    let _alone = live_lock();
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let refused = observe::open().attach(child.id() as i32).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ESRCH));
}

#[test]
fn a_flood_of_switches_is_lost_in_part_but_counted_and_survived() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    let worker = Worker::start(|| std::thread::sleep(Duration::from_nanos(1)));
    observer.attach_thread(worker.thread).unwrap();
    let (mut lost, mut told) = (0, Vec::new());
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        lost += observer.poll(&mut |o| told.push(o)).lost;
        if lost > 0 {
            break;
        }
    }
    eprintln!("lost {lost}, told {}", told.len());
    let stretches = told.len();
    until(&mut observer, &mut told, |told| told.len() > stretches + 10);
}

#[test]
fn polling_sees_births_deaths_and_consumption_too() {
    let _alone = live_lock();
    let mut observer = PollObserver::new();
    let held = shell("sleep 1 & while :; do :; done");
    let pid = held.pid();
    observer.attach(pid).unwrap();
    let (child, mut told) = (held.go().unwrap(), Vec::new());
    until(&mut observer, &mut told, |told| {
        let used = told.iter().map(|o| if let Observation::Ran(sample) = o { sample.used.get() } else { 0 });
        let born = told.iter().any(|o| matches!(o, Observation::Born { .. }));
        born && used.sum::<u64>() > 100_000_000
    });
    end(child);
    until(&mut observer, &mut told, |told| told.contains(&Observation::Gone { tid: ThreadId(pid) }));
}
