//! Departures of all kinds of threads from SCHED_DEADLINE, by thousands: what is lost, and who is stuck.
//!
//! A round reserves for all kinds, lets them run for some milliseconds, gives some reservations back while their
//! threads sleep, and releases. Some rounds are done by a service in a process of its own, which is killed at any
//! moment, and whose journal is replayed. In some, a reserved process is killed, and changed or released while its
//! parent has not reaped it. Then the next round shows who does not run any more, and the kernel's books what is lost.
//!
//! The kernel itself loses what it books for a thread that dies in the very call that reserves it (docs/design/0007). Whole
//! reservations are counted apart where as many threads were gone right after they were reserved; anything else is leaked.
//!
//! A rebuild of the root domain by another process would hide what was lost before. So a trial may leave a few units
//! booked for nobody itself, as a marker: where they are gone, the departures since the last look prove nothing.

use std::fmt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use qfabric_types::{Nanos, Reclaiming, Reservation, Setting, ThreadId};

use super::crowd::{BLOCKED, BRIEF, Crowd, Dice, KINDS};
use super::losses::book_for_nobody;
use crate::journal::{self, Journal};
use crate::sched_attr::{Policy, SchedAttr};
use crate::{ApplyError, Deadline, Mechanism, books, capacity, clock, hrtick, threads};

/// A thread that has not come further for this long under its reservation is stuck.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Pending departures are over after this long: the 0-lag time of a thread in debt lies as much later as its period is
/// longer than its budget. An emulated CPU may stand still for a second, which its thread is charged for.
const WHILE_PENDING: Duration = Duration::from_secs(60);
/// What a marker leaves booked for nobody, in units of 2⁻²⁰ CPU.
const MARKER: i64 = 7;

/// How many departures, and of what.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// At least so many threads leave.
    pub departures: u64,
    /// No round begins later.
    pub time: Duration,
    /// What every thread gets.
    pub reservation: Reservation,
    /// One round in this many is done by a service that is killed; 0: none.
    pub kill_every: u64,
    /// Rounds between two looks into the kernel's books. A look waits for the departures that are pending.
    pub look_every: u64,
    /// Whether the trial leaves a marker, to notice rebuilds by others; the caller rebuilds afterwards.
    pub marked: bool,
    /// Where it all begins.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Threads that left the class.
    pub departures: u64,
    /// Of these, threads put back from the journal of a service that was killed.
    pub from_journals: u64,
    /// Of all, threads that had given their reservation back while they slept.
    pub gave_back: u64,
    /// Of all, processes that were killed, and changed or released before they were reaped.
    pub unreaped: u64,
    /// Services killed.
    pub killed: u64,
    /// Of all, those between two looks of which the second found that somebody had rebuilt the root domain.
    pub disturbed: u64,
    /// Units of 2⁻²⁰ CPU that are booked for nobody since, without those of `died_in_calls`.
    pub leaked: i64,
    /// Whole reservations booked for nobody since, of threads that were gone right after the call that reserved them.
    pub died_in_calls: u64,
    /// Units that were subtracted twice.
    pub twice: i64,
    /// Threads that did not run any more under a reservation.
    pub stuck: u64,
    /// Reservations refused, because the thread must rest or another one held the room.
    pub refused: u64,
    /// Threads that could not be put back.
    pub failed: u64,
    /// What one call of release took, in nanoseconds.
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

/// Carries the plan out. `service` makes the command of a process that calls [`serve`] with these arguments.
pub fn run(plan: &Plan, service: &dyn Fn(&Path, &[ThreadId], u64) -> Command) -> Outcome {
    let mut trial = Trial::begin(*plan);
    let end = Instant::now() + plan.time;
    for round in 1_u64.. {
        if trial.outcome.departures >= plan.departures || Instant::now() >= end {
            break;
        }
        match plan.kill_every > 0 && round.is_multiple_of(plan.kill_every) {
            true => trial.round_of_a_killed_service(service),
            false => trial.round(),
        }
        if round.is_multiple_of(3) {
            trial.kill_a_process();
        }
        if round.is_multiple_of(plan.look_every) {
            trial.look_into_the_books();
        }
    }
    trial.end()
}

struct Trial {
    plan: Plan,
    crowd: Crowd,
    mechanism: Deadline,
    dice: Dice,
    /// What was booked for nobody before, by others.
    base: i64,
    /// Departures before the last look.
    looked_at: u64,
    /// What `given_to_the_gone` was then.
    gone: u64,
    outcome: Outcome,
}

impl Trial {
    fn begin(plan: Plan) -> Trial {
        let base = settled_books(0).expect("who may reserve can read the books") + plant(plan.marked);
        let (crowd, mechanism) = (Crowd::start(), Deadline::new());
        let (dice, outcome) = (Dice::new(plan.seed), Outcome::default());
        Trial { plan, crowd, mechanism, dice, base, looked_at: 0, gone: 0, outcome }
    }

    /// Reserves, waits, gives back, releases; every thread has to come further in between.
    fn round(&mut self) {
        let entered = self.enter_all();
        nap(self.dice.below(30_000));
        let first = self.dice.below(KINDS as u64) as usize;
        for kind in (0..KINDS).map(|i| (first + 5 * i) % KINDS) {
            let Some((thread, beats)) = entered[kind] else { continue };
            if kind < BRIEF && !self.comes_further(kind, beats) {
                self.free(kind, thread);
                continue;
            }
            if self.dice.below(3) == 0 {
                nap(self.dice.below(3_000));
            }
            self.give_back_and_release(thread);
        }
        self.outcome.failed += failures(self.mechanism.settle());
    }

    fn enter_all(&mut self) -> [Option<(ThreadId, u64)>; KINDS] {
        std::array::from_fn(|kind| {
            let (thread, beats) = (self.crowd.thread(kind)?, self.crowd.beats(kind));
            match self.mechanism.apply(&setting(thread, self.plan.reservation, self.dice.below(2) == 0)) {
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

    /// As a service does, it goes on with suspicious threads meanwhile, and looks at all every second: one that entered
    /// with an old mark is washed.
    fn comes_further(&mut self, kind: usize, beats: u64) -> bool {
        let (begin, mut looked) = (Instant::now(), Instant::now());
        while self.crowd.beats(kind) == beats && begin.elapsed() < SIGN_OF_LIFE {
            nap(1_000);
            self.outcome.failed += failures(self.mechanism.advance(clock::now()));
            if looked.elapsed() > Duration::from_secs(1) {
                self.mechanism.tend();
                looked = Instant::now();
            }
        }
        self.crowd.beats(kind) != beats
    }

    /// A stuck thread runs again outside of the class; another one takes its place.
    fn free(&mut self, kind: usize, thread: ThreadId) {
        self.outcome.stuck += 1;
        let sched = std::fs::read_to_string(threads::file(thread, "sched")).unwrap_or_default();
        let server: Vec<_> =
            sched.lines().filter(|line| line.starts_with("dl.") || line.contains("switches")).collect();
        let (has, asleep) = (SchedAttr::of(thread), threads::is_asleep(thread));
        eprintln!("stuck: kind {kind} at {:?} ns, asleep {asleep}, has {has:?}: {server:?}", clock::now());
        let _ = self.mechanism.apply(&nothing(thread));
        self.mechanism.settle();
        self.crowd.renew(kind);
    }

    fn give_back_and_release(&mut self, thread: ThreadId) {
        let gave_back = self.dice.below(3) == 0 && give_back(&mut self.mechanism, thread, self.plan.reservation);
        let begin = clock::now();
        match self.mechanism.apply(&nothing(thread)) {
            Ok(()) => {
                self.outcome.took_ns.push(clock::now().since(begin).get());
                self.outcome.departures += 1;
                self.outcome.gave_back += u64::from(gave_back);
            }
            Err(ApplyError::Gone { .. }) => {}
            Err(_) => self.outcome.failed += 1,
        }
    }

    /// The service is killed while it reserves and releases for the same threads; then its journal is replayed.
    fn round_of_a_killed_service(&mut self, service: &dyn Fn(&Path, &[ThreadId], u64) -> Command) {
        let folder = tempdir();
        let threads = self.crowd.threads();
        let mut child = service(&folder, &threads, self.dice.below(u64::MAX)).spawn().expect("the service starts");
        wait_for_reservations(&mut child, &folder);
        nap(self.dice.below(40_000));
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

    /// A reserved process is killed at any moment, and changed or released before its parent reaps it.
    fn kill_a_process(&mut self) {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh can be started");
        let thread = ThreadId(child.id() as i32);
        if self.mechanism.apply(&setting(thread, self.plan.reservation, false)).is_ok() {
            nap(self.dice.below(20_000));
            let _ = child.kill();
            nap([0, 300, 20_000][self.dice.below(3) as usize]);
            if self.dice.below(2) == 0 {
                let _ = self.mechanism.apply(&setting(thread, less(self.plan.reservation), false));
            }
            (self.outcome.departures, self.outcome.unreaped) = (self.outcome.departures + 1, self.outcome.unreaped + 1);
        } else {
            self.outcome.refused += 1;
        }
        let _ = self.mechanism.apply(&nothing(thread)); // gone, as it should be
        nap(self.dice.below(5_000));
        let _ = (child.kill(), child.wait());
    }

    fn look_into_the_books(&mut self) {
        let now = settled_books(self.base).expect("they could be read at the start");
        let more = now - self.base;
        if more != 0 {
            let gone = self.mechanism.given_to_the_gone() - self.gone;
            let after = self.outcome.departures;
            eprintln!("after {after} departures {more:+} units are booked for nobody, {gone} were gone when reserved");
        }
        if self.plan.marked && more < 0 {
            self.outcome.disturbed += self.outcome.departures - self.looked_at;
            eprintln!("the root domain was rebuilt by another process: {more} units, {MARKER} of them the marker's");
            self.outcome.twice -= more + MARKER;
            self.base = now + plant(true);
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
        self.look_into_the_books();
        self.outcome
    }
}

/// What a service does until it is killed: reserves and releases for `threads` in turn, with a journal in `folder`.
pub fn serve(folder: &Path, threads: &[ThreadId], reservation: Reservation, seed: u64) -> ! {
    let journal = Journal::open(folder).expect("a folder of our own");
    let (mut mechanism, mut dice) = (Deadline::with_journal(journal), Dice::new(seed));
    loop {
        for thread in threads {
            let _ = mechanism.apply(&setting(*thread, reservation, dice.below(2) == 0));
        }
        nap(dice.below(8_000));
        for thread in threads {
            if dice.below(3) == 0 {
                give_back(&mut mechanism, *thread, reservation);
            }
            if dice.below(2) == 0 {
                let _ = mechanism.apply(&nothing(*thread));
            }
            mechanism.advance(clock::now());
        }
    }
}

/// How many reservations `more` units are, if no more than were given to threads that were gone right after.
fn died_in_calls(more: i64, reservation: Reservation, gone: u64) -> Option<u64> {
    let each = capacity::units_of(reservation.budget().get(), reservation.period().get());
    let more = u64::try_from(more).ok().filter(|more| more.is_multiple_of(each))?;
    Some(more / each).filter(|lost| *lost <= gone)
}

/// Leaves a marker, which the caller's rebuild takes away.
fn plant(marked: bool) -> i64 {
    if !marked {
        return 0;
    }
    std::mem::forget(book_for_nobody(MARKER as u64));
    MARKER
}

/// What is booked for nobody, as soon as that is `expected`; what it stays at otherwise.
fn settled_books(expected: i64) -> Result<i64, books::BooksError> {
    let begin = Instant::now();
    loop {
        match books::read(Path::new(hrtick::DEBUGFS)) {
            Ok(now) if now.of_nobody() == expected || begin.elapsed() > WHILE_PENDING => return Ok(now.of_nobody()),
            Err(error) if begin.elapsed() > WHILE_PENDING => return Err(error),
            _ => nap(50_000),
        }
    }
}

/// A sixteenth of the budget while the thread sleeps, as a controller gives back what a job did not need.
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

fn nothing(thread: ThreadId) -> Setting {
    Setting { thread, reservation: None, reclaiming: Reclaiming::Hard, terms: Default::default() }
}

fn failures(errors: Vec<ApplyError>) -> u64 {
    errors.iter().filter(|error| !matches!(error, ApplyError::Gone { .. })).count() as u64
}

fn nap(us: u64) {
    std::thread::sleep(Duration::from_micros(us));
}

/// The kind that is blocked is asleep, and never runs under its reservation.
const _: () = assert!(BLOCKED == KINDS - 1 && BRIEF < BLOCKED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_reservations_of_threads_that_were_gone_are_the_kernels_own_loss() {
        let of = |more, gone| {
            died_in_calls(more, Reservation::new(Nanos::from_millis(1), Nanos::from_millis(8)).unwrap(), gone)
        };
        let each = 131_072;
        assert_eq!((of(2 * each, 2), of(2 * each, 5), of(0, 0)), (Some(2), Some(2), Some(0)));
        assert_eq!((of(2 * each, 1), of(each + 1, 1), of(each / 16, 3), of(-each, 1)), (None, None, None, None));
    }
}
