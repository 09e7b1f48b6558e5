//! Finds the SCHED_DEADLINE bandwidth that the kernel would admit now, by probing. It cannot be computed: some kernels
//! admit 95 % of each CPU, others subtract the servers of fair and sched_ext threads (180 % of 2 CPUs on 6.18), and
//! other programs may already hold some bandwidth. Exact values are in the kernel's unit of 2⁻²⁰ CPU.
//!
//! Approach: one sleeping helper thread per CPU. Each helper in turn gets the largest reservation that the kernel
//! accepts, found by bisection, until one helper gets less than a CPU. The helpers never run, so they delay no thread.
//! A change of a sleeping thread's reservation is booked at once; the helpers leave weightless, so no bandwidth stays
//! booked.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_types::{Nanos, Reservation, Share, ThreadId};

use crate::cpus::CpuList;
use crate::deadline::refusal;
use crate::files;
use crate::mechanism::ApplyError;
use crate::sched_attr::{Policy, SchedAttr};
use crate::{clock, threads};

/// One CPU in the kernel's units.
pub const CPU: u64 = 1 << 20;
/// With this period, a budget of `n · 2¹⁰` ns is exactly `n` of the kernel's units.
const PERIOD_NS: u64 = 1 << 30;
/// Largest number of CPUs that are probed; bounds the time to about 10 ms.
const MAX_HELPERS: usize = 256;
/// Longest wait for a new helper to sleep. A helper sleeps at once unless the machine is very busy.
const UNTIL_ASLEEP: Duration = Duration::from_secs(5);

/// Converts units of 2⁻²⁰ CPU to a share, rounded down.
pub fn share_of(units: u64) -> Share {
    let ppm = u128::from(units) * 1_000_000 / u128::from(CPU);
    Share::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

/// Converts a reservation to the units that the kernel books for it.
pub fn units_of(budget_ns: u64, period_ns: u64) -> u64 {
    if period_ns == 0 { 0 } else { ((u128::from(budget_ns) << 20) / u128::from(period_ns)) as u64 }
}

/// Bandwidth that the kernel would admit now in addition to the booked bandwidth, over all CPUs of the caller's root
/// domain. Takes less than a millisecond plus the start of the threads, and leaves no bandwidth booked on any path.
/// During a probe the kernel may refuse increases of other programs, so probe at the start, before any admission.
pub fn probe() -> Result<Share, ApplyError> {
    Ok(share_of(Probes::start(CpuList::online().len()).grantable()?))
}

/// Sleeping threads for probing.
#[derive(Debug)]
pub struct Probes {
    helpers: Vec<Helper>,
}

impl Probes {
    /// Starts one thread for each of `cpus`; all threads sleep when this returns.
    pub fn start(cpus: usize) -> Probes {
        Probes { helpers: (0..cpus.min(MAX_HELPERS)).filter_map(|_| Helper::start()).collect() }
    }

    /// Bandwidth that admission control grants now, in units of 2⁻²⁰ CPU. Takes about 40 µs per CPU. The probes hold no
    /// bandwidth when this returns.
    pub fn grantable(&self) -> Result<u64, ApplyError> {
        let mut room = 0;
        for helper in &self.helpers {
            let taken = largest(helper.thread)?;
            room += taken;
            if taken < CPU {
                break; // the next helper could not get more
            }
        }
        self.give_back();
        Ok(room)
    }

    fn give_back(&self) {
        for helper in &self.helpers {
            if SchedAttr::of(helper.thread).is_ok_and(|a| a.policy == Policy::DEADLINE) {
                // They sleep, so their bandwidth is subtracted at once and no subtraction stays pending.
                let _ =
                    SchedAttr::weightless().give(helper.thread).and_then(|()| SchedAttr::fair(0).give(helper.thread));
            }
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Gives `thread` the largest bandwidth that the kernel accepts. Returns that bandwidth; zero if there is no room even
/// for the smallest reservation.
fn largest(thread: ThreadId) -> Result<u64, ApplyError> {
    let (mut accepted, mut refused) = (0, CPU + 1);
    let mut middle = CPU;
    while refused - accepted > 1 {
        match accepts(thread, middle)? {
            true => accepted = middle,
            false => refused = middle,
        }
        middle = accepted.midpoint(refused);
    }
    Ok(accepted)
}

fn accepts(thread: ThreadId, units: u64) -> Result<bool, ApplyError> {
    let asked = Reservation::new(Nanos::new(units << 10), Nanos::new(PERIOD_NS)).expect("1,024 ns to the period");
    match SchedAttr::deadline(asked, false).give(thread) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Ok(false),
        Err(e) => Err(refusal(thread, asked, &e)),
    }
}

/// A thread that sleeps until it is dropped.
#[derive(Debug)]
struct Helper {
    thread: ThreadId,
    hold: Option<Sender<()>>,
    join: Option<JoinHandle<()>>,
}

impl Helper {
    fn start() -> Option<Helper> {
        let (hold, held) = channel::<()>();
        let (id_sender, id_receiver) = channel();
        let sleep = move |held: Receiver<()>, id_sender: Sender<i32>| {
            let _ = id_sender.send(rustix::thread::gettid().as_raw_nonzero().get());
            let _ = held.recv(); // ends when `hold` is dropped
        };
        let builder = std::thread::Builder::new().name("qf-probe".into());
        let join = builder.spawn(move || sleep(held, id_sender)).ok()?;
        let thread = ThreadId(id_receiver.recv().ok()?);
        let helper = Helper { thread, hold: Some(hold), join: Some(join) };
        helper.falls_asleep().then_some(helper)
    }

    /// True if the thread sleeps for good. A receiving thread polls its channel a few times before it sleeps, so two
    /// looks must find it asleep without a context switch in between.
    fn falls_asleep(&self) -> bool {
        let start = std::time::Instant::now();
        let mut seen = None;
        while start.elapsed() < UNTIL_ASLEEP {
            let now = threads::is_asleep(self.thread).then(|| threads::switches(self.thread)).flatten();
            if now.is_some() && now == seen {
                return true;
            }
            seen = now;
            std::thread::sleep(Duration::from_micros(200));
        }
        false
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.hold.take();
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

/// The result of [`probe`] and its duration.
pub fn timed_probe() -> (Result<Share, ApplyError>, Nanos) {
    let start = clock::now();
    let room = probe();
    (room, clock::now().since(start))
}

/// All threads of this host that hold a reservation now, from whatever source, with the bandwidth that the kernel has
/// booked for each, in its units.
pub fn holders() -> Vec<(ThreadId, u64)> {
    threads::all().into_iter().filter_map(|thread| Some((thread, held_by(thread)?))).collect()
}

fn held_by(thread: ThreadId) -> Option<u64> {
    let attr = SchedAttr::of(thread).ok().filter(|a| a.policy == Policy::DEADLINE)?;
    // The frequency governor's threads have parameters, but the kernel books no bandwidth for them.
    let special = threads::name(thread).is_some_and(|name| name.starts_with("sugov:"));
    (!special && threads::start_time(thread).is_some()).then(|| units_of(attr.runtime_ns, attr.period_ns))
}

/// Bandwidth booked on the first CPU's root domain, including the kernel's own servers, in its units.
pub fn booked_units(debugfs: &Path) -> io::Result<u64> {
    let text = files::text(debugfs.join("sched/debug"))?;
    booked_in(&text).ok_or_else(|| io::Error::other("sched/debug has no dl_bw->total_bw"))
}

/// [`booked_units`] as a share; `None` if debugfs cannot be read.
pub fn booked(debugfs: &Path) -> Option<Share> {
    booked_units(debugfs).ok().map(share_of)
}

fn booked_in(text: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.contains("dl_bw->total_bw"))?;
    // A negative sum is printed with its sign; the kernel then refuses every reservation.
    line.split_whitespace().last()?.parse::<i64>().ok().map(|units| units as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booked_bandwidth_is_read_from_the_schedulers_debug_file() {
        let text = "dl_rq[0]:\n  .dl_bw->bw     : 996147\n  .dl_bw->total_bw    : 104857\n";
        assert_eq!(booked_in(text), Some(104_857));
        assert_eq!(booked_in(""), None);
        assert_eq!(booked_in("  .dl_bw->total_bw : x"), None);
    }

    #[test]
    fn bandwidth_is_counted_as_the_kernel_counts_it() {
        assert_eq!(units_of(50_000_000, 1_000_000_000), 52_428);
        assert_eq!((units_of(1_024, 1_100_000_000), units_of(7, 0)), (0, 0));
        assert_eq!(share_of(CPU + CPU / 2), Share::from_ppm(1_500_000));
    }
}
