//! Runs thousands of departures of all kinds of threads from SCHED_DEADLINE, and counts lost bandwidth and stuck
//! threads.
//!
//! A round reserves all kinds, lets them run for some milliseconds, decreases some reservations while their threads
//! sleep, and releases all. In some rounds a service in another process does this; it is killed at a random moment, and
//! its journal is restored. In some rounds a reserved process is killed, and its reservation is changed or released
//! before its parent reaps it. The next round then finds threads that no longer run, and the kernel's books show lost
//! bandwidth.
//!
//! The kernel itself loses the bandwidth of a thread that dies in the call that reserves it (docs/design/0007). Lost
//! bandwidth counts as this kind if it is a multiple of the reservation and no more reservations are lost than threads
//! were gone immediately after being reserved. All other lost bandwidth counts as leaked.
//!
//! A rebuild of the root domain by another process would hide earlier losses. Therefore a trial may leave a few booked
//! units with no owner as a marker. If the marker disappears, the departures since the last look prove nothing.

use std::fmt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use qfabric_types::{Nanos, Reclaiming, Reservation, Setting, ThreadId};

use super::crowd::{BLOCKED, BRIEF, Crowd, KINDS, Random};
use super::losses::book_for_nobody;
use crate::journal::{self, Journal};
use crate::sched_attr::{Policy, SchedAttr};
use crate::{ApplyError, Deadline, Mechanism, books, capacity, clock, hrtick, threads};

/// A reserved thread that makes no progress for this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Longest time until pending departures are over. The 0-lag time of a thread in debt is later by the debt times
/// period/budget. An emulated CPU may stand still for a second, which is charged to its thread.
const WHILE_PENDING: Duration = Duration::from_secs(60);
/// Units of 2⁻²⁰ CPU that a marker leaves booked with no owner.
const MARKER: i64 = 7;

/// Parameters of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Least number of departures.
    pub departures: u64,
    /// No round begins after this time.
    pub time: Duration,
    /// Reservation of every thread.
    pub reservation: Reservation,
    /// A killed service runs one round in this many; 0: none.
    pub kill_every: u64,
    /// Number of rounds between two looks at the kernel's books. A look waits for pending departures.
    pub look_every: u64,
    /// True if the trial leaves a marker to detect rebuilds by other processes; the caller rebuilds afterwards.
    pub marked: bool,
    /// Seed of all random decisions.
    pub seed: u64,
}

/// Result of a trial.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Threads that left the class.
    pub departures: u64,
    /// Threads among `departures` that were put back from the journal of a killed service.
    pub from_journals: u64,
    /// Threads among `departures` whose reservation was decreased while they slept.
    pub gave_back: u64,
    /// Processes among `departures` that were killed, and changed or released before they were reaped.
    pub unreaped: u64,
    /// Killed services.
    pub killed: u64,
    /// Departures between two looks of which the second found that another process had rebuilt the root domain.
    pub disturbed: u64,
    /// Units of 2⁻²⁰ CPU that are now booked with no owner, without those of `died_in_calls`.
    pub leaked: i64,
    /// Whole reservations now booked with no owner, of threads that were gone immediately after the call that reserved
    /// them.
    pub died_in_calls: u64,
    /// Units that were subtracted twice.
    pub twice: i64,
    /// Threads that no longer ran under a reservation.
    pub stuck: u64,
    /// Refused reservations: the thread must rest, or there was not enough bandwidth.
    pub refused: u64,
    /// Threads that could not be put back.
    pub failed: u64,
    /// Durations of the calls that released a thread, in nanoseconds.
    pub took_ns: Vec<u64>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { departures, from_journals, gave_back, unreaped, killed, .. } = self;
        let Outcome { disturbed, leaked, died_in_calls, twice, stuck, refused, failed, .. } = self;
        let mut took = self.took_ns.clone();
        took.sort_unstable();
        let at = |part: usize| took.get(took.len().saturating_sub(1) * part / 100).map_or(0, |ns| ns / 1_000);
        write!(
            f,
            "{departures} departures ({gave_back} after giving back, {unreaped} of unreaped processes, {from_journals} \
             from the journals of {killed} killed services, {disturbed} beside a rebuild by others): leaked {leaked} \
             units, lost by the kernel {died_in_calls} reservations of threads that died while they were reserved, \
             subtracted twice {twice}, stuck {stuck}, not put back {failed}; {refused} reservations refused; \
             release took {} / {} / {} µs (median / p90 / p99)",
            at(50),
            at(90),
            at(99)
        )
    }
}

/// Runs the plan. `service` returns the command of a process that calls [`serve`] with these arguments.
pub fn run(plan: &Plan, service: &dyn Fn(&Path, &[ThreadId], u64) -> Command) -> Outcome {
    let mut trial = Trial::begin(*plan);
    let end = Instant::now() + plan.time;
    for round in 1_u64.. {
        if trial.outcome.departures >= plan.departures || Instant::now() >= end {
            break;
        }
        match plan.kill_every > 0 && round.is_multiple_of(plan.kill_every) {
            true => trial.killed_service_round(service),
            false => trial.round(),
        }
        if round.is_multiple_of(3) {
            trial.kill_a_process();
        }
        if round.is_multiple_of(plan.look_every) {
            trial.check_books();
        }
    }
    trial.end()
}

struct Trial {
    plan: Plan,
    crowd: Crowd,
    mechanism: Deadline,
    random: Random,
    /// Units booked with no owner at the start.
    base: i64,
    /// Departures at the last look.
    looked_at: u64,
    /// Value of `given_to_the_gone` at the last look.
    gone: u64,
    outcome: Outcome,
}

impl Trial {
    fn begin(plan: Plan) -> Trial {
        let base = settled_books(0).expect("a process that may reserve can read the books") + leave_marker(plan.marked);
        let (crowd, mechanism) = (Crowd::start(), Deadline::new());
        let (random, outcome) = (Random::new(plan.seed), Outcome::default());
        Trial { plan, crowd, mechanism, random, base, looked_at: 0, gone: 0, outcome }
    }

    /// Reserves, waits, decreases, releases. Every thread must make progress in between.
    fn round(&mut self) {
        let entered = self.enter_all();
        nap(self.random.below(30_000));
        let first = self.random.below(KINDS as u64) as usize;
        for kind in (0..KINDS).map(|i| (first + 5 * i) % KINDS) {
            let Some((thread, beats)) = entered[kind] else { continue };
            if kind < BRIEF && !self.progresses(kind, beats) {
                self.replace_stuck(kind, thread);
                continue;
            }
            if self.random.below(3) == 0 {
                nap(self.random.below(3_000));
            }
            self.give_back_and_release(thread);
        }
        self.outcome.failed += failures(self.mechanism.settle());
    }

    fn enter_all(&mut self) -> [Option<(ThreadId, u64)>; KINDS] {
        std::array::from_fn(|kind| {
            let (thread, beats) = (self.crowd.thread(kind)?, self.crowd.beats(kind));
            match self.mechanism.apply(&setting(thread, self.plan.reservation, self.random.below(2) == 0)) {
                Ok(()) => Some((thread, beats)),
                Err(ApplyError::Gone { .. }) => None,
                Err(_) => {
                    self.outcome.refused += 1;
                    if self.outcome.refused.is_multiple_of(4) {
                        self.crowd.renew(kind);
                    }
                    None
                }
            }
        })
    }

    /// True if the thread of `kind` makes progress. Acts like a service meanwhile: advances departures and checks of
    /// suspicious threads, and checks all threads every second, which clears stale throttled marks.
    fn progresses(&mut self, kind: usize, beats: u64) -> bool {
        let (begin, mut looked) = (Instant::now(), Instant::now());
        while self.crowd.beats(kind) == beats && begin.elapsed() < STUCK_AFTER {
            nap(1_000);
            self.outcome.failed += failures(self.mechanism.advance(clock::now()));
            if looked.elapsed() > Duration::from_secs(1) {
                self.mechanism.tend();
                looked = Instant::now();
            }
        }
        self.crowd.beats(kind) != beats
    }

    /// Takes a stuck thread out of the class, so that it runs again, and starts another one of its kind.
    fn replace_stuck(&mut self, kind: usize, thread: ThreadId) {
        self.outcome.stuck += 1;
        let sched = std::fs::read_to_string(threads::file(thread, "sched")).unwrap_or_default();
        let server: Vec<_> =
            sched.lines().filter(|line| line.starts_with("dl.") || line.contains("switches")).collect();
        let (has, asleep) = (SchedAttr::of(thread), threads::is_asleep(thread));
        eprintln!("stuck: kind {kind} at {:?} ns, asleep {asleep}, has {has:?}: {server:?}", clock::now());
        let _ = self.mechanism.apply(&release(thread));
        self.mechanism.settle();
        self.crowd.renew(kind);
    }

    fn give_back_and_release(&mut self, thread: ThreadId) {
        let gave_back = self.random.below(3) == 0 && give_back(&mut self.mechanism, thread, self.plan.reservation);
        let begin = clock::now();
        match self.mechanism.apply(&release(thread)) {
            Ok(()) => {
                self.outcome.took_ns.push(clock::now().since(begin).get());
                self.outcome.departures += 1;
                self.outcome.gave_back += u64::from(gave_back);
            }
            Err(ApplyError::Gone { .. }) => {}
            Err(_) => self.outcome.failed += 1,
        }
    }

    /// A service that reserves and releases the same threads is killed; then its journal is restored.
    fn killed_service_round(&mut self, service: &dyn Fn(&Path, &[ThreadId], u64) -> Command) {
        let folder = tempdir();
        let threads = self.crowd.threads();
        let mut child = service(&folder, &threads, self.random.below(u64::MAX)).spawn().expect("the service starts");
        wait_for_reservations(&mut child, &folder);
        nap(self.random.below(40_000));
        let _ = child.kill();
        let _ = child.wait();
        let restored = journal::restore(&folder).expect("a journal of our own");
        self.outcome.killed += 1;
        self.outcome.from_journals += restored.threads as u64;
        self.outcome.departures += restored.threads as u64;
        self.outcome.failed += restored.failed.len() as u64;
        let still = |thread: &&ThreadId| SchedAttr::of(**thread).is_ok_and(|a| a.policy == Policy::DEADLINE);
        self.outcome.failed += threads.iter().filter(still).count() as u64;
        let _ = std::fs::remove_dir_all(folder);
    }

    /// Kills a reserved process at a random moment, and changes or releases it before its parent reaps it.
    fn kill_a_process(&mut self) {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh can be started");
        let thread = ThreadId(child.id() as i32);
        if self.mechanism.apply(&setting(thread, self.plan.reservation, false)).is_ok() {
            nap(self.random.below(20_000));
            let _ = child.kill();
            nap([0, 300, 20_000][self.random.below(3) as usize]);
            if self.random.below(2) == 0 {
                let _ = self.mechanism.apply(&setting(thread, less(self.plan.reservation), false));
            }
            (self.outcome.departures, self.outcome.unreaped) = (self.outcome.departures + 1, self.outcome.unreaped + 1);
        } else {
            self.outcome.refused += 1;
        }
        let _ = self.mechanism.apply(&release(thread)); // returns `Gone`
        nap(self.random.below(5_000));
        let _ = (child.kill(), child.wait());
    }

    fn check_books(&mut self) {
        let now = settled_books(self.base).expect("they could be read at the start");
        let more = now - self.base;
        if more != 0 {
            let gone = self.mechanism.given_to_the_gone() - self.gone;
            let after = self.outcome.departures;
            eprintln!(
                "after {after} departures {more:+} units are booked with no owner, {gone} threads were gone when reserved"
            );
        }
        if self.plan.marked && more < 0 {
            self.outcome.disturbed += self.outcome.departures - self.looked_at;
            eprintln!("another process rebuilt the root domain: {more} units, of which the marker has {MARKER}");
            self.outcome.twice -= more + MARKER;
            self.base = now + leave_marker(true);
        } else {
            let gone = self.mechanism.given_to_the_gone() - self.gone;
            let died = died_in_calls(more, self.plan.reservation, gone);
            self.outcome.died_in_calls += died.unwrap_or(0);
            self.outcome.leaked += if died.is_some() { 0 } else { more.max(0) };
            self.outcome.twice -= more.min(0);
            self.base = now;
        }
        (self.looked_at, self.gone) = (self.outcome.departures, self.mechanism.given_to_the_gone());
    }

    fn end(mut self) -> Outcome {
        self.outcome.failed += failures(self.mechanism.restore_all());
        self.check_books();
        self.outcome
    }
}

/// The work of a service until it is killed: reserves and releases `threads` in turn, with a journal in `folder`.
pub fn serve(folder: &Path, threads: &[ThreadId], reservation: Reservation, seed: u64) -> ! {
    let journal = Journal::open(folder).expect("a folder of our own");
    let (mut mechanism, mut random) = (Deadline::with_journal(journal), Random::new(seed));
    loop {
        for thread in threads {
            let _ = mechanism.apply(&setting(*thread, reservation, random.below(2) == 0));
        }
        nap(random.below(8_000));
        for thread in threads {
            if random.below(3) == 0 {
                give_back(&mut mechanism, *thread, reservation);
            }
            if random.below(2) == 0 {
                let _ = mechanism.apply(&release(*thread));
            }
            mechanism.advance(clock::now());
        }
    }
}

/// Converts `more` units to whole reservations. `None` if this is not exact, or more than `gone`.
fn died_in_calls(more: i64, reservation: Reservation, gone: u64) -> Option<u64> {
    let each = capacity::units_of(reservation.budget().get(), reservation.period().get());
    let more = u64::try_from(more).ok().filter(|more| more.is_multiple_of(each))?;
    Some(more / each).filter(|lost| *lost <= gone)
}

/// Leaves a marker, which the caller removes by a rebuild.
fn leave_marker(marked: bool) -> i64 {
    if !marked {
        return 0;
    }
    std::mem::forget(book_for_nobody(MARKER as u64));
    MARKER
}

/// Waits until the units with no owner are `expected`, or for [`WHILE_PENDING`]; returns their number.
fn settled_books(expected: i64) -> Result<i64, books::BooksError> {
    let begin = Instant::now();
    loop {
        match books::read(Path::new(hrtick::DEBUGFS)) {
            Ok(now) if now.without_owner() == expected || begin.elapsed() > WHILE_PENDING => {
                return Ok(now.without_owner());
            }
            Err(error) if begin.elapsed() > WHILE_PENDING => return Err(error),
            _ => nap(50_000),
        }
    }
}

/// Decreases the budget to a sixteenth while the thread sleeps, like a controller that gives back unused budget.
fn give_back(mechanism: &mut Deadline, thread: ThreadId, reservation: Reservation) -> bool {
    threads::is_asleep(thread) && mechanism.apply(&setting(thread, less(reservation), true)).is_ok()
}

fn less(reservation: Reservation) -> Reservation {
    let little = Nanos::new((reservation.budget().get() / 16).max(qfabric_types::MIN_BUDGET.get()));
    Reservation::new(little, reservation.period()).expect("less of a valid one")
}

fn wait_for_reservations(child: &mut Child, folder: &Path) {
    let file = folder.join(journal::FILE);
    let lines = || std::fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    while lines() < 2 && child.try_wait().is_ok_and(|ended| ended.is_none()) {
        nap(500);
    }
}

fn tempdir() -> std::path::PathBuf {
    let name = format!("qfabric-departures-{}-{}", std::process::id(), clock::now().get());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).expect("the folder for temporary files can be written");
    folder
}

fn setting(thread: ThreadId, reservation: Reservation, grub: bool) -> Setting {
    let reclaiming = if grub { Reclaiming::Grub } else { Reclaiming::Hard };
    Setting { thread, reservation: Some(reservation), reclaiming, terms: Default::default() }
}

fn release(thread: ThreadId) -> Setting {
    Setting { thread, reservation: None, reclaiming: Reclaiming::Hard, terms: Default::default() }
}

fn failures(errors: Vec<ApplyError>) -> u64 {
    errors.iter().filter(|error| !matches!(error, ApplyError::Gone { .. })).count() as u64
}

fn nap(us: u64) {
    std::thread::sleep(Duration::from_micros(us));
}

// The blocked kind sleeps and never runs under its reservation.
const _: () = assert!(BLOCKED == KINDS - 1 && BRIEF < BLOCKED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_reservations_of_threads_that_were_gone_count_as_lost_by_the_kernel() {
        let of = |more, gone| {
            died_in_calls(more, Reservation::new(Nanos::from_millis(1), Nanos::from_millis(8)).unwrap(), gone)
        };
        let each = 131_072;
        assert_eq!((of(2 * each, 2), of(2 * each, 5), of(0, 0)), (Some(2), Some(2), Some(0)));
        assert_eq!((of(2 * each, 1), of(each + 1, 1), of(each / 16, 3), of(-each, 1)), (None, None, None, None));
    }
}
