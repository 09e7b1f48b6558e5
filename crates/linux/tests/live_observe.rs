//! Tests of the observers on real threads and programs.

use std::collections::HashMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant as Clock};

use qfabric_linux::launch::Held;
use qfabric_linux::observe::{self, CpuObserver, Observation, Observer, PollObserver, SwitchObserver};
use qfabric_linux::testing::{self, Worker, live_lock};
use qfabric_types::{Nanos, Sample, ThreadId};

fn watch(observer: &mut dyn Observer, length: Duration) -> Vec<Observation> {
    let (end, mut seen) = (Clock::now() + length, Vec::new());
    while Clock::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        observer.poll(&mut |o| seen.push(o));
    }
    seen
}

fn poll_until(observer: &mut dyn Observer, seen: &mut Vec<Observation>, enough: impl Fn(&[Observation]) -> bool) {
    for _ in 0..24_000 {
        observer.poll(&mut |o| seen.push(o));
        if enough(seen) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not within 120 s; observed so far: {seen:?}");
}

fn perf() -> Option<SwitchObserver> {
    SwitchObserver::new().map_err(|e| testing::skip(format!("the kernel refuses perf events here: {e}"))).ok()
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

/// The cost of each activation: the CPU time between two sleeps.
fn activations(seen: &[Observation], thread: ThreadId) -> Vec<Nanos> {
    let (mut jobs, mut sum) = (Vec::new(), Nanos::ZERO);
    for observation in seen {
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

/// Asserts that the observed time matches the CPU time plus what the hypervisor took since `stolen` (counted in ticks).
fn adds_up(seen: Nanos, used: Nanos, stolen: Nanos) {
    let taken = testing::stolen() - stolen;
    let most = used.as_f64() * 1.2 + (taken + Nanos::from_millis(20)).as_f64();
    assert!((used.as_f64() * 0.8..=most).contains(&seen.as_f64()), "saw {seen} of {used}, stolen {taken}");
}

#[test]
fn the_activations_of_a_periodic_thread_are_seen_with_their_cost() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    // It sleeps after each turn, however late the turn ends.
    let worker = Worker::start(|| {
        testing::burn(Nanos::from_millis(2));
        std::thread::sleep(Duration::from_millis(18));
    });
    observer.attach_thread(worker.thread).unwrap();
    observer.poll(&mut |_| {});
    let (turns, used, stolen, mut seen) = (worker.turns(), worker.used(), testing::stolen(), Vec::new());
    poll_until(&mut observer, &mut seen, |_| worker.turns() >= turns + 60);
    let jobs = activations(&seen, worker.thread);
    let (turns, used) = (worker.turns() - turns, worker.used() - used);
    assert!(turns.abs_diff(jobs.len() as u64) <= 2, "{} activations in {turns} turns", jobs.len());
    adds_up(jobs.iter().copied().fold(Nanos::ZERO, |a, b| a + b), used, stolen);
}

/// Without knowing the thread before: the observer covers the whole host.
#[test]
fn the_stretches_of_all_cpus_together_have_the_cpu_time_of_a_thread() {
    let _alone = live_lock();
    let refused = |e: std::io::Error| testing::skip(format!("the kernel refuses perf events here: {e}"));
    let Ok(mut observer) = CpuObserver::new().map_err(refused) else { return };
    let worker = Worker::start(|| {
        testing::burn(Nanos::from_millis(2));
        std::thread::sleep(Duration::from_millis(18));
    });
    observer.poll(&mut |_| {});
    let (turns, used, stolen, mut seen, mut lost) = (worker.turns(), worker.used(), testing::stolen(), Vec::new(), 0);
    while worker.turns() < turns + 60 {
        std::thread::sleep(Duration::from_millis(5));
        lost += observer.poll(&mut |stretch| seen.push(stretch));
    }
    let used = worker.used() - used;
    observer.finish(&mut |stretch| seen.push(stretch));
    if lost > 0 {
        return testing::skip(format!("other programs switched so often that {lost} records were lost"));
    }
    let own = seen.iter().filter(|stretch| stretch.thread == worker.thread);
    assert!(own.clone().all(|stretch| stretch.pid == std::process::id() as i32 && !stretch.name.is_empty()));
    adds_up(own.map(|stretch| stretch.to.since(stretch.from)).fold(Nanos::ZERO, |a, b| a + b), used, stolen);
    let mut until = HashMap::new();
    for stretch in &seen {
        let before = until.insert(stretch.cpu, stretch.to).unwrap_or(stretch.from);
        assert!(before <= stretch.from && stretch.from < stretch.to, "{stretch:?} overlaps the stretch before it");
    }
}

#[test]
fn a_program_held_before_exec_is_followed_with_its_children() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    let held = shell("sleep 0.2 & sleep 0.1; (sleep 0.1; true); wait");
    let pid = held.pid();
    assert_eq!(observer.attach(pid).unwrap(), [ThreadId(pid)]);
    let (mut child, mut seen) = (held.go().unwrap(), Vec::new());
    poll_until(&mut observer, &mut seen, |seen| seen.contains(&Observation::Gone { tid: ThreadId(pid) }));
    child.wait().unwrap();
    let count = |f: fn(&Observation) -> bool| seen.iter().filter(|o| f(o)).count();
    let born = count(|o| matches!(o, Observation::Born { .. }));
    assert!(born >= 3, "{seen:?}");
    assert_eq!(count(|o| matches!(o, Observation::Gone { .. })), born + 1, "{seen:?}");
    assert!(count(|o| matches!(o, Observation::Exec { .. })) >= 3, "{seen:?}");
    let mut last: HashMap<ThreadId, u64> = HashMap::new();
    for observation in &seen {
        if let Observation::Ran(Sample { thread, from, to, .. }) = observation {
            assert!(last.insert(*thread, to.get()).unwrap_or(0) <= from.get() && from <= to, "{seen:?}");
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
    let (child, mut seen) = (held.go().unwrap(), Vec::new());
    let stopped = |_: &[Observation]| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
    poll_until(&mut observer, &mut seen, stopped);
    observer.poll(&mut |o| seen.push(o));
    let used = qfabric_linux::clock::process_cpu(pid).unwrap();
    end(child);
    let seen = seen.iter().map(|o| if let Observation::Ran(sample) = o { sample.used } else { Nanos::ZERO });
    adds_up(seen.fold(Nanos::ZERO, |a, b| a + b), used, stolen);
}

#[test]
fn the_time_of_a_running_thread_is_known_before_it_leaves_the_cpu() {
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
    let mut seen = Vec::new();
    poll_until(&mut observer, &mut seen, |seen| {
        let born = seen.iter().any(|o| matches!(o, Observation::Born { tid, .. } if *tid == later.thread));
        born && seen.iter().any(|o| matches!(o, Observation::Ran(sample) if sample.thread == workers[9].thread))
    });
}

#[test]
fn a_detached_thread_causes_no_observations_and_frees_its_descriptors() {
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
fn an_ended_program_cannot_be_attached() {
    let _alone = live_lock();
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let refused = observe::open().attach(child.id() as i32).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ESRCH));
}

#[test]
fn switches_lost_in_a_flood_are_counted_and_observation_continues() {
    let _alone = live_lock();
    let Some(mut observer) = perf() else { return };
    let worker = Worker::start(|| std::thread::sleep(Duration::from_nanos(1)));
    observer.attach_thread(worker.thread).unwrap();
    let (mut lost, mut seen) = (0, Vec::new());
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        lost += observer.poll(&mut |o| seen.push(o)).lost;
        if lost > 0 {
            break;
        }
    }
    eprintln!("lost {lost}, observed {}", seen.len());
    let stretches = seen.len();
    poll_until(&mut observer, &mut seen, |seen| seen.len() > stretches + 10);
}

#[test]
fn polling_observes_starts_ends_and_consumption_too() {
    let _alone = live_lock();
    let mut observer = PollObserver::new();
    let held = shell("sleep 1 & while :; do :; done");
    let pid = held.pid();
    observer.attach(pid).unwrap();
    let (child, mut seen) = (held.go().unwrap(), Vec::new());
    poll_until(&mut observer, &mut seen, |seen| {
        let used = seen.iter().map(|o| if let Observation::Ran(sample) = o { sample.used.get() } else { 0 });
        let born = seen.iter().any(|o| matches!(o, Observation::Born { .. }));
        born && used.sum::<u64>() > 100_000_000
    });
    end(child);
    poll_until(&mut observer, &mut seen, |seen| seen.contains(&Observation::Gone { tid: ThreadId(pid) }));
}
