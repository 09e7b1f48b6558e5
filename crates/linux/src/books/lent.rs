//! How much GRUB hands out of what is reserved.
//!
//! The kernel adds up reservations per CPU, too (`this_bw` of a run queue), and takes for inactive, so free to be used by
//! others, what of that sum belongs to no running thread. No file shows the sum, and rebuilding the root domain does not
//! correct it. Two things make it too large: a reservation given to a thread that is dead but not reaped, and a larger one
//! given to a thread whose wake-up is queued (`shift.rs`). From then on, threads that reclaim run on a small budget for a
//! whole period, and those that wait for them miss their deadlines.
//!
//! So it is measured, and taken out again ([`stop_lending`]). A thread under GRUB, beside threads that use almost all there
//! is, is charged for each nanosecond that it runs (`grub_reclaim` of kernel/sched/deadline.c, with U the sum over all m
//! CPUs):
//! ```text
//!   rate = max(u, U_max − U_inact − U_extra) / U_max,  U_extra = U_max − U/m
//!   U_inact = U/m − rate·U_max
//! ```
//! Nobody else is reserved, so U_inact is what nobody holds. More than `U/m − u` of it is not seen.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_types::{Nanos, Reservation, Share, ThreadId};

use super::shift::{LEAST, shift};
use super::{Books, BooksError, Limit, read};
use crate::capacity::{self, CPU};
use crate::clock;
use crate::cpus::CpuList;
use crate::deadline::refusal;
use crate::leaving::Reading;
use crate::mechanism::ApplyError;
use crate::release;
use crate::sched_attr::SchedAttr;

const SELF: ThreadId = ThreadId(0);
/// Of each thread that measures: 25 ms in 500 ms.
const SMALL: (Nanos, Nanos) = (Nanos::from_millis(25), Nanos::from_millis(500));
/// Period of the threads that use the rest.
const FILLER_PERIOD: Nanos = Nanos::from_millis(10);
/// What is left free of each CPU.
const SPARE: Share = Share::from_ppm(30_000);
/// Charged time that a CPU's rate is worked out from, at least: budgets are charged at ticks, of 10 ms at most.
const ENOUGH: Nanos = Nanos::from_millis(40);
/// A CPU on which the threads that measure did not run for that long by then is left out.
const LONGEST: Nanos = Nanos::from_millis(3_000);
/// Less than this is the error of the measurement, and the kernel's own servers that sleep.
pub const TOLERANCE: Share = Share::from_ppm(100_000);

/// What is left in a sum when it was corrected: the error of the measurement. A sum that is too small lends, too.
const LEFT: Share = Share::from_ppm(30_000);
/// Taken out at once, at most: there must be room to reserve it.
const STEP: Share = Share::from_ppm(300_000);
/// So often it is measured while it is corrected. No more than 0.9 of a CPU is seen at a time, and a try may fail.
const ROUNDS: usize = 12;

/// Why it could not be measured. Nothing is held any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LentError {
    /// This kernel's own sums are wrong from the start, so what it lends says nothing of what it should not.
    #[error(
        "Linux 6.12 to 6.16 count their own servers twice where GRUB works out what is free, so it cannot be told what is \
         lent though it is reserved; it can on Linux 6.17 and later"
    )]
    Miscounted,
    /// Others hold reservations, and what of theirs sleeps may be lent.
    #[error(
        "{threads} threads hold reservations; stop them first, since GRUB may lend what is theirs while they sleep"
    )]
    Reserved {
        /// How many.
        threads: usize,
    },
    /// What is booked is not known.
    #[error(transparent)]
    Books(#[from] BooksError),
    /// No reservation could be had.
    #[error(transparent)]
    Refused(#[from] ApplyError),
}

/// What GRUB lends of each CPU though it is reserved, by CPU; those on which it is less than [`TOLERANCE`] are left out.
///
/// For a second or two all free bandwidth is used. Refused where threads are reserved.
pub fn lent_too_much(debugfs: &Path) -> Result<BTreeMap<u32, Share>, LentError> {
    if miscounts(release::version()) {
        return Err(LentError::Miscounted);
    }
    let free = super::lost(debugfs)?;
    if free.threads > 0 {
        return Err(LentError::Reserved { threads: free.threads });
    }
    let cpus = CpuList::online().len().max(1);
    let small = Reservation::new(SMALL.0, SMALL.1).expect("25 ms in 500 ms is one");
    let each = capacity::probe()?.as_f64() / cpus as f64 - small.share().as_f64() - SPARE.as_f64();
    let budget = Nanos::new((each.max(0.1) * FILLER_PERIOD.as_f64()) as u64);
    let filler = Reservation::new(budget, FILLER_PERIOD).expect("a tenth of a CPU or more is one");

    let stop = Arc::new(AtomicBool::new(false));
    let fillers: Vec<_> = (0..cpus).map(|_| Reserved::start(&stop, filler, false, fill)).collect::<Result<_, _>>()?;
    let probes: Vec<_> = (0..cpus).map(|_| Reserved::start(&stop, small, true, charge)).collect::<Result<_, _>>()?;
    let books = read(debugfs);
    let begin = clock::now();
    while clock::now().since(begin) < LONGEST && !probes.iter().all(Reserved::is_finished) {
        std::thread::sleep(Duration::from_millis(20));
    }
    stop.store(true, Ordering::Relaxed);
    let charges = probes.into_iter().map(Reserved::end).reduce(Charges::with).unwrap_or_default();
    fillers.into_iter().for_each(|filler| drop(filler.end()));
    let Limit::Units(most) = Limit::of_host_or_default(debugfs) else { return Err(BooksError::NoLimit.into()) };
    Ok(charges.lent(&books?, cpus, most))
}

/// Since its fair server (6.12) the kernel takes the server's bandwidth off U_extra of a run queue with each root domain that
/// it is attached to, and never puts it back; `dl_clear_root_domain` sets U_extra anew since 6.17. Below zero, it is read as
/// a huge number, and all of the CPU is lent.
fn miscounts(release: (u32, u32)) -> bool {
    ((6, 12)..(6, 17)).contains(&release)
}

/// What GRUB lends though it is reserved, before and after it was taken out of the kernel's sums, by CPU ([`lent_too_much`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrected {
    /// When it was first measured.
    pub before: BTreeMap<u32, Share>,
    /// What is left: nothing, or more than [`TOLERANCE`] where a CPU was never idle when it had to be, or is the only one.
    pub after: BTreeMap<u32, Share>,
}

/// Takes out of the sums of the run queues what nobody holds, so that GRUB lends what is free and no more: measures, corrects
/// by less than was measured, and measures again, for 2 to 60 s. Refused where threads are reserved. It is best done on an
/// idle host, and leaves nothing to put back.
pub fn stop_lending(debugfs: &Path) -> Result<Corrected, LentError> {
    let before = lent_too_much(debugfs)?;
    let mut after = before.clone();
    for _ in 0..ROUNDS {
        if after.is_empty() {
            break;
        }
        for (cpu, share) in &after {
            take_out(*cpu, *share - LEFT)?;
        }
        after = lent_too_much(debugfs)?;
    }
    Ok(Corrected { before, after })
}

/// In steps, as long as the kernel goes along.
fn take_out(cpu: u32, mut share: Share) -> Result<(), LentError> {
    while share > Share::ZERO {
        let step = share.min(STEP);
        if !shift(cpu, step + LEAST, LEAST)? {
            break;
        }
        share = share - step;
    }
    Ok(())
}

/// A thread under a reservation, which it leaves when `stop` is raised or its life is over.
struct Reserved {
    stop: Arc<AtomicBool>,
    join: Option<JoinHandle<Charges>>,
}

impl Reserved {
    fn start(
        stop: &Arc<AtomicBool>,
        reservation: Reservation,
        reclaim: bool,
        live: fn(&AtomicBool) -> Charges,
    ) -> Result<Reserved, LentError> {
        let (tell, told) = std::sync::mpsc::channel();
        let stopped = stop.clone();
        let life = move || {
            let entered = SchedAttr::deadline(reservation, reclaim).give(SELF);
            let is_in = entered.is_ok();
            let _ = tell.send(entered);
            let charges = if is_in { live(&stopped) } else { Charges::default() };
            let _ = SchedAttr::fair(0).give_leaving(SELF);
            charges
        };
        let join = std::thread::Builder::new().name("qf-lent".into()).spawn(life);
        let join = join.map_err(|error| refusal(SELF, reservation, &error))?;
        let reserved = Reserved { stop: stop.clone(), join: Some(join) };
        match told.recv() {
            Ok(Ok(())) => Ok(reserved),
            Ok(Err(error)) => Err(refusal(SELF, reservation, &error).into()),
            Err(_) => Ok(reserved), // it is over already, and charged nothing
        }
    }

    fn is_finished(&self) -> bool {
        self.join.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn end(mut self) -> Charges {
        self.join.take().and_then(|join| join.join().ok()).unwrap_or_default()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.join.take().map(JoinHandle::join);
    }
}

fn fill(stop: &AtomicBool) -> Charges {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    Charges::default()
}

/// Runs until enough is charged on every CPU that it comes to.
fn charge(stop: &AtomicBool) -> Charges {
    let (mut charges, mut last) = (Charges::default(), None);
    while !stop.load(Ordering::Relaxed) && !charges.are_enough() {
        let now = Sample::take();
        match last {
            Some(Sample { left, .. }) if left == now.left => {} // no tick since
            Some(before) => {
                charges.add(before, now);
                last = Some(now);
            }
            None => last = Some(now),
        }
    }
    charges
}

/// What is left of the calling thread's budget, what it ran, and where it is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    left: i64,
    ran: Nanos,
    cpu: u32,
}

impl Sample {
    fn take() -> Sample {
        let left = Reading::of(SELF).known().map_or(0, |account| account.runtime_ns);
        Sample { left, ran: clock::thread_cpu(), cpu: rustix::thread::sched_getcpu() as u32 }
    }
}

/// What was charged for which running time, in ns, by CPU.
#[derive(Clone, Debug, Default, PartialEq)]
struct Charges(BTreeMap<u32, (f64, f64)>);

impl Charges {
    /// Between two looks; a refill or a move to another CPU in between says nothing.
    fn add(&mut self, before: Sample, now: Sample) {
        let (charged, ran) = (before.left - now.left, now.ran - before.ran);
        if charged > 0 && before.cpu == now.cpu {
            let sum = self.0.entry(now.cpu).or_default();
            *sum = (sum.0 + charged as f64, sum.1 + ran.as_f64());
        }
    }

    fn are_enough(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|(_, ran)| *ran >= 2.0 * ENOUGH.as_f64())
    }

    fn with(mut self, others: Charges) -> Charges {
        for (cpu, (charged, ran)) in others.0 {
            let sum = self.0.entry(cpu).or_default();
            *sum = (sum.0 + charged, sum.1 + ran);
        }
        self
    }

    /// U_inact of each CPU, with U_max in the kernel's units.
    fn lent(&self, books: &Books, cpus: usize, most: u64) -> BTreeMap<u32, Share> {
        let mean = books.total as f64 / cpus as f64;
        let inactive = |(charged, ran): (f64, f64)| (mean - charged / ran * most as f64) / CPU as f64;
        let enough = self.0.iter().filter(|(_, (_, ran))| *ran >= ENOUGH.as_f64());
        let lent = enough.map(|(cpu, sums)| (*cpu, Share::from_f64(inactive(*sums).max(0.0))));
        lent.filter(|(_, share)| *share >= TOLERANCE).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 996_147;

    fn charges(cpu: u32, charged: f64, ran: f64) -> Charges {
        Charges([(cpu, (charged, ran))].into())
    }

    #[test]
    fn a_charge_below_what_is_held_is_lent() {
        let books = Books { total: 2 * 943_718, ..Books::default() };
        // 0.9 CPU are held on the mean: 0.947 ns are charged for each ns, where nothing is inactive.
        assert!(charges(0, 94.7e6, 100e6).lent(&books, 2, MOST).is_empty());
        let lent = charges(1, 50.1e6, 100e6).lent(&books, 2, MOST);
        assert!((lent[&1].as_f64() - 0.424).abs() < 0.001, "{lent:?}");
        assert!(charges(1, 5e6, 10e6).lent(&books, 2, MOST).is_empty(), "two ticks say nothing");
    }

    #[test]
    fn kernels_whose_own_sums_are_wrong_are_not_measured() {
        let of = |minor| miscounts((6, minor));
        assert!(!of(11) && of(12) && of(16) && !of(17) && !of(18) && !miscounts((7, 3)));
    }

    #[test]
    fn refills_and_moves_are_left_out() {
        let at = |left: i64, ran: u64, cpu: u32| Sample { left, ran: Nanos::new(ran), cpu };
        let mut sums = Charges::default();
        sums.add(at(9_000, 0, 0), at(5_000, 4_000, 0));
        sums.add(at(5_000, 4_000, 0), at(25_000, 8_000, 0));
        sums.add(at(25_000, 8_000, 0), at(20_000, 12_000, 1));
        assert_eq!(sums, charges(0, 4_000.0, 4_000.0));
        assert_eq!(sums.with(charges(1, 1.0, 2.0)).0.len(), 2);
    }
}
