//! From the begin of a slot to the first instruction of the thread that the slot belongs to: the end of the dispatcher's
//! work, the switch, and the way back to user space. The thread itself reads CLOCK_MONOTONIC. SCHED_DEADLINE runs the same
//! program in the same rounds.
//!
//! | program | does | time |
//! |---|---|---|
//! | busy | three threads in two groups read the clock without a pause | from a boundary to the first reading after it |
//! | released | sleeps until its slot begins (SCHED_DEADLINE: its period), then works 4 ms | from there to its first reading |

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qfabric_linux::dispatcher::{DispatchCost, DispatchTimes};
use qfabric_linux::testing::{Worker, burn, stolen};
use qfabric_linux::{Deadline, DispatcherMechanism, Mechanism, clock};
use qfabric_types::{AppId, Instant, Nanos, ServerTerms};
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute, set_current_timer_slack};

use super::{MOST_STEAL, ROUNDS, WINDOW, dispatcher, parts, setting};

const WINDOWS: usize = 4;
const PERIOD: Nanos = Nanos::from_millis(20);
const WORK: Nanos = Nanos::from_millis(4);
/// A busy thread notes pauses of this length. A dispatch takes longer: two switches and some system calls.
const PAUSE: Nanos = Nanos::from_micros(2);

#[derive(Clone, Copy)]
enum Case {
    Busy,
    Released,
    Deadline,
}

/// Name, program, and number of hogs.
const CASES: [(&str, Case, usize); 6] = [
    ("busy, no hog", Case::Busy, 0),
    ("busy, four hogs", Case::Busy, 4),
    ("released, no hog", Case::Released, 0),
    ("released, four hogs", Case::Released, 4),
    ("deadline, no hog", Case::Deadline, 0),
    ("deadline, four hogs", Case::Deadline, 4),
];

/// What happened in one window.
#[derive(Default)]
struct Window {
    late: Vec<Nanos>,
    is_disturbed: bool,
}

/// Two moments each: the end and the begin of running, or the release and the begin of running.
type Notes = Arc<Mutex<Vec<(Instant, Instant)>>>;

pub(super) fn compare(cpu: u32) {
    println!("\nfrom the begin of the slot to the first instruction of its thread; times in µs");
    println!("{:<36} {:>7}     p50     p99     max  disturbed windows", "program", "samples");
    let mut undisturbed: [Vec<Window>; CASES.len()] = Default::default();
    for round in 1..=ROUNDS {
        for ((name, case, hogs), calm) in CASES.iter().zip(&mut undisturbed) {
            let windows = measure(*case, cpu, *hogs);
            row(&format!("round {round}: {name}"), &windows);
            calm.extend(windows.into_iter().filter(|window| !window.is_disturbed));
        }
    }
    CASES.iter().zip(&undisturbed).for_each(|((name, ..), calm)| row(&format!("undisturbed: {name}"), calm));
}

fn row(name: &str, windows: &[Window]) {
    let late: Vec<Nanos> = windows.iter().flat_map(|window| window.late.iter().copied()).collect();
    let disturbed = windows.iter().filter(|window| window.is_disturbed).count();
    println!("{name:<36} {:>7} {} {disturbed:>5} of {}", late.len(), parts(late.clone()), windows.len());
}

/// Windows of one round.
fn measure(case: Case, cpu: u32, hogs: usize) -> Vec<Window> {
    let _hogs: Vec<Worker> = (0..hogs).map(|_| Worker::burning()).collect();
    let mut subject = match case {
        Case::Busy => Subject::busy(cpu),
        Case::Released => Subject::released(cpu),
        Case::Deadline => Subject::deadline(),
    };
    std::thread::sleep(WINDOW / 4);
    subject.take();
    let mut window = || {
        let before = stolen();
        std::thread::sleep(WINDOW);
        let taken = stolen() - before;
        Window { late: subject.take(), is_disturbed: taken.as_secs_f64() > MOST_STEAL * WINDOW.as_secs_f64() }
    };
    (0..WINDOWS).map(|_| window()).collect()
}

/// The measured program. The threads end before their reservation.
struct Subject {
    notes: Notes,
    _threads: Vec<Worker>,
    source: Source,
}

enum Source {
    /// The notes are pauses; the slots are known to the mechanism.
    Slots { mechanism: Box<DispatcherMechanism>, cpu: u32, seen: u64, waiting: Vec<DispatchTimes> },
    /// The notes have the release.
    Releases { _mechanism: Box<dyn Mechanism> },
}

impl Subject {
    /// 10 ms in 20 ms, and 10 ms in 40 ms for two threads.
    fn busy(cpu: u32) -> Subject {
        let notes = Notes::default();
        let threads: Vec<Worker> = (0..3).map(|_| reader(notes.clone())).collect();
        let mut mechanism = dispatcher();
        for (thread, (app, period)) in threads.iter().zip([(1, 20), (2, 40), (2, 40)]) {
            let terms = ServerTerms { group: Some(AppId(app)), cpu: Some(cpu), ..ServerTerms::default() };
            mechanism.apply(&setting(thread.thread, period, terms)).expect("the table has room");
        }
        let source = Source::Slots { mechanism: Box::new(mechanism), cpu, seen: 0, waiting: Vec::new() };
        Subject { notes, _threads: threads, source }
    }

    fn released(cpu: u32) -> Subject {
        let (notes, first) = (Notes::default(), Arc::<AtomicU64>::default());
        let (thread, mut mechanism) = (sleeper(first.clone(), notes.clone()), dispatcher());
        let terms = ServerTerms { cpu: Some(cpu), ..ServerTerms::default() };
        mechanism.apply(&setting(thread.thread, 20, terms)).expect("the table has room");
        let begins = |cost: DispatchCost| cost.latest.iter().find(|times| times.group.is_some()).copied();
        let begin = loop {
            match mechanism.cost(cpu).and_then(begins) {
                Some(times) => break times.boundary,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        first.store((begin + PERIOD.saturating_mul(10)).get(), Ordering::Relaxed);
        Subject { notes, _threads: vec![thread], source: Source::Releases { _mechanism: Box::new(mechanism) } }
    }

    fn deadline() -> Subject {
        let (notes, first) = (Notes::default(), Arc::<AtomicU64>::default());
        let (thread, mut mechanism) = (sleeper(first.clone(), notes.clone()), Deadline::new());
        mechanism.apply(&setting(thread.thread, 20, ServerTerms::default())).expect("SCHED_DEADLINE has room");
        first.store((clock::now() + PERIOD).get(), Ordering::Relaxed);
        Subject { notes, _threads: vec![thread], source: Source::Releases { _mechanism: Box::new(mechanism) } }
    }

    /// The latencies since the last call.
    fn take(&mut self) -> Vec<Nanos> {
        let notes = std::mem::take(&mut *self.notes.lock().expect("no thread panics"));
        let Source::Slots { mechanism, cpu, seen, waiting } = &mut self.source else {
            return notes.iter().map(|(release, ran)| ran.since(*release)).collect();
        };
        let cost = mechanism.cost(*cpu).expect("the CPU has groups");
        let new = (cost.count - *seen).min(cost.latest.len() as u64) as usize;
        *seen = cost.count;
        waiting.extend(cost.latest[cost.latest.len() - new..].iter().filter(|times| times.group.is_some()));
        let (found, others): (Vec<_>, Vec<_>) = waiting
            .drain(..)
            .map(|times| (times, first_after(times.boundary, &notes)))
            .partition(|(_, at)| at.is_some());
        // Threads note the pause of the last dispatch when they run again.
        waiting.extend(others.into_iter().map(|(times, _)| times).next_back());
        found.into_iter().filter_map(|(times, at)| Some(at?.since(times.boundary))).collect()
    }
}

/// The end of the first pause that contains a moment.
fn first_after(boundary: Instant, notes: &[(Instant, Instant)]) -> Option<Instant> {
    let over = notes.iter().filter(|(end, begin)| *end < boundary && boundary <= *begin);
    over.map(|(_, begin)| *begin).min()
}

/// Reads the clock, and notes pauses.
fn reader(notes: Notes) -> Worker {
    let mut last = clock::now();
    Worker::start(move || {
        for _ in 0..10_000 {
            let now = clock::now();
            if now.since(last) > PAUSE {
                notes.lock().expect("no thread panics").push((last, now));
            }
            last = now;
        }
    })
}

/// From `first` on (0: not known yet), sleeps until a period begins, notes when it runs, and works.
fn sleeper(first: Arc<AtomicU64>, notes: Notes) -> Worker {
    let mut next = Instant::default();
    Worker::start(move || {
        let from = Instant::new(first.load(Ordering::Relaxed));
        if from == Instant::default() {
            set_current_timer_slack(NonZeroU64::new(1)).expect("a thread may set its slack");
            return std::thread::sleep(Duration::from_millis(1));
        }
        next = next.max(from);
        let (seconds, nanoseconds) = (next.get() / 1_000_000_000, next.get() % 1_000_000_000);
        let until = Timespec { tv_sec: seconds as _, tv_nsec: nanoseconds as _ };
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
        let ran = clock::now();
        notes.lock().expect("no thread panics").push((next, ran));
        burn(WORK);
        while next <= clock::now() {
            next = next + PERIOD;
        }
    })
}
