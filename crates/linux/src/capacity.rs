//! How much SCHED_DEADLINE bandwidth the kernel would admit now: probed, never assumed. It is 95 % of each CPU
//! on some kernels, less the servers of fair and sched_ext threads on others (180 % of 2 CPUs on 6.18), and
//! others may hold some of it already.
//!
//! Approach: one sleeping helper thread per CPU; each in turn is given the largest reservation that is still
//! accepted, found by halving, until one gets less than a CPU. They never run, so nothing is delayed by them;
//! then they leave the class and end.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use qfabric_types::{MIN_BUDGET, Nanos, Reservation, Share, ThreadId};

use crate::cpus::CpuList;
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{Policy, SchedAttr};
use crate::{Deadline, clock, threads};

const PERIOD: Nanos = Nanos::from_millis(1);
/// Halving stops at this much of one CPU per helper: 0.1 %.
const RESOLUTION: Nanos = MIN_BUDGET;
/// Larger hosts are probed for this many CPUs' worth only; bounds the time to about 10 ms.
const MAX_HELPERS: usize = 256;

/// What the kernel would admit now beside what is booked already, over all CPUs of the caller's root domain, to
/// 0.1 % of a CPU. Takes a few milliseconds and leaves nothing behind, whatever happens. While it runs,
/// everybody else's increases may be refused: probe at the start, before admitting anything.
pub fn probe() -> Result<Share, ApplyError> {
    let helpers: Vec<_> = (0..CpuList::online().len().min(MAX_HELPERS)).filter_map(|_| Helper::start()).collect();
    let mut mechanism = Deadline::new(); // dropped before the helpers: they leave the class while they sleep
    let mut room = Nanos::ZERO;
    for helper in &helpers {
        let taken = largest(&mut mechanism, helper.thread)?;
        room += taken;
        if taken < PERIOD {
            break; // what this one could not get, the next one cannot get either
        }
    }
    Ok(Share::from_ppm((room.get() as u128 * 1_000_000 / PERIOD.get() as u128) as u32))
}

/// Gives `thread` the largest budget the kernel accepts and says how large; zero where even the smallest is
/// refused for want of room.
fn largest(mechanism: &mut Deadline, thread: ThreadId) -> Result<Nanos, ApplyError> {
    if accepts(mechanism, thread, PERIOD)? {
        return Ok(PERIOD);
    }
    let (mut accepted, mut refused) = (Nanos::ZERO, PERIOD);
    while refused - accepted > RESOLUTION {
        let middle = Nanos::new((accepted.get() + refused.get()) / 2);
        match middle >= MIN_BUDGET && accepts(mechanism, thread, middle)? {
            true => accepted = middle,
            false => refused = middle,
        }
    }
    Ok(accepted)
}

fn accepts(mechanism: &mut Deadline, thread: ThreadId, budget: Nanos) -> Result<bool, ApplyError> {
    let reservation = Reservation::new(budget, PERIOD).expect("between the smallest budget and the period");
    match mechanism.apply(&qfabric_types::Setting {
        thread,
        reservation: Some(reservation),
        reclaiming: qfabric_types::Reclaiming::Hard,
        terms: Default::default(),
    }) {
        Ok(()) => Ok(true),
        Err(ApplyError::Busy { .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

/// A thread that sleeps until it is dropped.
struct Helper {
    thread: ThreadId,
    hold: Option<Sender<()>>,
    join: Option<JoinHandle<()>>,
}

impl Helper {
    fn start() -> Option<Helper> {
        let (hold, held) = channel::<()>();
        let (tell, told) = channel();
        let sleep = move |held: Receiver<()>, tell: Sender<i32>| {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get());
            let _ = held.recv(); // ends when `hold` is dropped
        };
        let builder = std::thread::Builder::new().name("qf-probe".into());
        let join = builder.spawn(move || sleep(held, tell)).ok()?;
        let thread = ThreadId(told.recv().ok()?);
        Some(Helper { thread, hold: Some(hold), join: Some(join) })
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

/// What [`probe`] finds, and how long it took.
pub fn timed_probe() -> (Result<Share, ApplyError>, Nanos) {
    let start = clock::now();
    let room = probe();
    (room, clock::now().since(start))
}

/// The threads of this host that hold a reservation now, by whatever means they got it.
pub fn holders() -> Vec<(ThreadId, Share)> {
    threads::all().into_iter().filter_map(|thread| Some((thread, held_by(thread)?))).collect()
}

fn held_by(thread: ThreadId) -> Option<Share> {
    let attr = SchedAttr::of(thread).ok().filter(|a| a.policy == Policy::DEADLINE && a.period_ns > 0)?;
    Some(Share::of_budget(Nanos::new(attr.runtime_ns), Nanos::new(attr.period_ns)))
}

/// What the kernel has booked on the first CPU's root domain, its own servers included; `None` where debugfs
/// is closed.
pub fn booked(debugfs: &Path) -> Option<Share> {
    booked_in(&std::fs::read_to_string(debugfs.join("sched/debug")).ok()?)
}

/// The kernel counts in units of 2⁻²⁰ CPU.
fn booked_in(text: &str) -> Option<Share> {
    let line = text.lines().find(|l| l.contains("dl_bw->total_bw"))?;
    let units: u64 = line.split_whitespace().last()?.parse().ok()?;
    Some(Share::from_f64(units as f64 / f64::from(1 << 20)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_booked_is_read_off_the_schedulers_debug_file() {
        let text = "dl_rq[0]:\n  .dl_bw->bw     : 996147\n  .dl_bw->total_bw    : 104857\n";
        assert_eq!(booked_in(text).unwrap().to_string(), "0.1 CPU");
        assert_eq!(booked_in(""), None);
        assert_eq!(booked_in("  .dl_bw->total_bw : x"), None);
    }
}
