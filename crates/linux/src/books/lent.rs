//! Measures and corrects reserved bandwidth that GRUB lends to other threads by mistake.
//!
//! The kernel also sums the reservations per CPU (`this_bw` of a run queue). The part of that sum that belongs to no
//! running thread counts as inactive, and GRUB lends it to other threads. No file shows the sum, and rebuilding the
//! root domain does not correct it. Two causes make the sum too large: a reservation given to a dead thread that is not
//! reaped, and an increased reservation given to a thread whose wake-up is queued (`shift.rs`). From then on, threads
//! that reclaim run on a small budget for a whole period, and the threads that wait for them miss their deadlines.
//!
//! This file measures the excess, and can remove it ([`stop_lending`]). A thread under GRUB is charged for each
//! nanosecond that it runs beside threads that use almost all of the CPU. The rate is (`grub_reclaim` of
//! kernel/sched/deadline.c, with U the sum over all m CPUs):
//! ```text
//!   rate = max(u, U_max − U_inact − U_extra) / U_max,  U_extra = U_max − U/m
//!   U_inact = U/m − rate·U_max
//! ```
//! No other thread is reserved during the measurement, so U_inact is bandwidth with no owner. At most `U/m − u` of it
//! is visible.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_types::api::Problem;
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
/// Budget and period of each measuring thread: 25 ms in 500 ms.
const SMALL: (Nanos, Nanos) = (Nanos::from_millis(25), Nanos::from_millis(500));
/// Period of the threads that use the remaining bandwidth.
const FILLER_PERIOD: Nanos = Nanos::from_millis(10);
/// Bandwidth left free on each CPU.
const SPARE: Share = Share::from_ppm(30_000);
/// Least charged time from which the rate of a CPU is computed. Budgets are charged at ticks, of at most 10 ms.
const ENOUGH: Nanos = Nanos::from_millis(40);
/// Longest measurement. A CPU with less than [`ENOUGH`] charged time by then is left out.
const LONGEST: Nanos = Nanos::from_millis(3_000);
/// Lent bandwidth below this value is measurement error, or belongs to sleeping servers of the kernel.
pub const TOLERANCE: Share = Share::from_ppm(100_000);

/// Excess that a correction leaves in a sum, because of the measurement error. A sum that is too small also lends.
const LEFT: Share = Share::from_ppm(30_000);
/// Largest correction in one step: this bandwidth must be free.
const STEP: Share = Share::from_ppm(300_000);
/// Largest number of corrections, each followed by a measurement. One measurement sees at most 0.9 of a CPU, and a
/// correction may fail.
const ROUNDS: usize = 12;

/// Why the lent bandwidth could not be measured. No reservation is held any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum LentError {
    /// The kernel's own sums are wrong from the start, so the measured rate does not show wrongly lent bandwidth.
    Miscounted,
    /// GRUB may lend the bandwidth of a reserved thread while the thread sleeps.
    Reserved { threads: usize },
    #[error(transparent)]
    Books(#[from] BooksError),
    /// The measuring threads got no reservation.
    #[error(transparent)]
    Refused(#[from] ApplyError),
}

impl LentError {
    /// The error with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            LentError::Miscounted => (
                "Linux 6.12 to 6.16 count their own servers twice when GRUB computes the free bandwidth, so wrongly \
                 lent bandwidth cannot be measured"
                    .to_owned(),
                "use Linux 6.17 or later",
            ),
            LentError::Reserved { threads } => (
                format!("{threads} threads hold reservations, and GRUB may lend their bandwidth while they sleep"),
                "stop them first",
            ),
            LentError::Books(error) => return error.problem(),
            LentError::Refused(error) => return error.problem(),
        };
        Problem::new("lent", message, next_step)
    }
}

/// Bandwidth of each CPU that is reserved and that GRUB lends nevertheless. CPUs with less than [`TOLERANCE`] are left
/// out.
///
/// Uses all free bandwidth for one or two seconds. Fails if any thread is reserved.
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

/// Since the fair server was added (6.12), the kernel subtracts the bandwidth of the server from U_extra of a run queue
/// each time the server is attached to a root domain, and never adds it again. Since 6.17, `dl_clear_root_domain`
/// resets U_extra. A negative U_extra is read as a huge number, and then the whole CPU is lent.
fn miscounts(release: (u32, u32)) -> bool {
    ((6, 12)..(6, 17)).contains(&release)
}

/// Wrongly lent bandwidth by CPU, before and after the correction ([`lent_too_much`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrected {
    pub before: BTreeMap<u32, Share>,
    /// Empty, or more than [`TOLERANCE`] for a CPU that was not idle when it had to be, or that is the only CPU.
    pub after: BTreeMap<u32, Share>,
}

/// Removes bandwidth with no owner from the sums of the run queues, so that GRUB lends only free bandwidth. Measures,
/// corrects by less than the measured excess, and measures again; takes 2 to 60 s. Fails if any thread is reserved.
/// Works best on an idle host. There is nothing to undo.
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

/// Removes `share` in steps until a step fails.
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

/// A thread under a reservation. It ends its reservation when `stop` is set or its function returns.
struct Reserved {
    stop: Arc<AtomicBool>,
    join: Option<JoinHandle<Charges>>,
}

impl Reserved {
    fn start(
        stop: &Arc<AtomicBool>,
        reservation: Reservation,
        reclaim: bool,
        work: fn(&AtomicBool) -> Charges,
    ) -> Result<Reserved, LentError> {
        let (entry_sender, entry_receiver) = std::sync::mpsc::channel();
        let stopped = stop.clone();
        let body = move || {
            let entered = SchedAttr::deadline(reservation, reclaim).give(SELF);
            let is_in = entered.is_ok();
            let _ = entry_sender.send(entered);
            let charges = if is_in { work(&stopped) } else { Charges::default() };
            let _ = SchedAttr::fair(0).give_leaving(SELF);
            charges
        };
        let join = std::thread::Builder::new().name("qf-lent".into()).spawn(body);
        let join = join.map_err(|error| refusal(SELF, reservation, &error))?;
        let reserved = Reserved { stop: stop.clone(), join: Some(join) };
        match entry_receiver.recv() {
            Ok(Ok(())) => Ok(reserved),
            Ok(Err(error)) => Err(refusal(SELF, reservation, &error).into()),
            Err(_) => Ok(reserved), // the thread has ended and charged nothing
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

/// Runs until enough time is charged on every CPU on which this thread ran.
fn charge(stop: &AtomicBool) -> Charges {
    let (mut charges, mut last) = (Charges::default(), None);
    while !stop.load(Ordering::Relaxed) && !charges.are_enough() {
        let now = Sample::take();
        match last {
            Some(Sample { left, .. }) if left == now.left => {} // no tick since the last sample
            Some(before) => {
                charges.add(before, now);
                last = Some(now);
            }
            None => last = Some(now),
        }
    }
    charges
}

/// Remaining budget, CPU time and CPU of the calling thread.
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

/// Charged budget and running time by CPU, both in ns.
#[derive(Clone, Debug, Default, PartialEq)]
struct Charges(BTreeMap<u32, (f64, f64)>);

impl Charges {
    /// Adds the difference of two samples. Ignores it if a refill or a move to another CPU lies between them.
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

    /// U_inact of each CPU; `most` is U_max in the kernel's units.
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
    fn a_charge_below_the_held_bandwidth_shows_lent_bandwidth() {
        let books = Books { total: 2 * 943_718, ..Books::default() };
        // A mean of 0.9 CPU is held: 0.947 ns are charged for each ns if no bandwidth is inactive.
        assert!(charges(0, 94.7e6, 100e6).lent(&books, 2, MOST).is_empty());
        let lent = charges(1, 50.1e6, 100e6).lent(&books, 2, MOST);
        assert!((lent[&1].as_f64() - 0.424).abs() < 0.001, "{lent:?}");
        assert!(charges(1, 5e6, 10e6).lent(&books, 2, MOST).is_empty(), "two ticks are too few");
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
