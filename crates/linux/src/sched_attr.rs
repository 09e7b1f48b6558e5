//! Reads and sets the scheduling attributes of a thread: `sched_setattr(2)` and `sched_getattr(2)`. Times in
//! nanoseconds.

use std::io;

use qfabric_types::{Instant, Nanos, Reservation, ThreadId};
use serde::{Deserialize, Serialize};

use crate::leaving::Departure;
use crate::sys::{RawSchedAttr, sched_getattr, sched_setattr};

/// Children start under SCHED_OTHER and do not inherit the policy.
pub const RESET_ON_FORK: u64 = 0x01;
/// GRUB: the thread also uses bandwidth that other reservations leave over.
pub const RECLAIM: u64 = 0x02;
/// The kernel sends SIGXCPU when the thread overruns its budget.
pub const DL_OVERRUN: u64 = 0x04;
/// Flag of `sched_getattr` since Linux 7.1: return the remaining budget and the deadline instead of the parameters.
const GETATTR_DL_DYNAMIC: u32 = 0x01;

/// Number of a scheduling policy in the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Policy(pub u32);

#[allow(missing_docs)] // the kernel's names
impl Policy {
    pub const OTHER: Policy = Policy(0);
    pub const FIFO: Policy = Policy(1);
    pub const RR: Policy = Policy(2);
    pub const BATCH: Policy = Policy(3);
    pub const IDLE: Policy = Policy(5);
    pub const DEADLINE: Policy = Policy(6);
    pub const EXT: Policy = Policy(7);

    pub fn name(self) -> &'static str {
        match self {
            Policy::OTHER => "SCHED_OTHER",
            Policy::FIFO => "SCHED_FIFO",
            Policy::RR => "SCHED_RR",
            Policy::BATCH => "SCHED_BATCH",
            Policy::IDLE => "SCHED_IDLE",
            Policy::DEADLINE => "SCHED_DEADLINE",
            Policy::EXT => "SCHED_EXT",
            _ => "an unknown policy",
        }
    }

    /// True if threads under this policy run before all fair threads.
    pub fn is_real_time(self) -> bool {
        matches!(self, Policy::FIFO | Policy::RR | Policy::DEADLINE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedAttr {
    pub policy: Policy,
    /// [`RESET_ON_FORK`], [`RECLAIM`], [`DL_OVERRUN`].
    pub flags: u64,
    /// −20 to 19; used by fair policies.
    pub nice: i32,
    /// 1 to 99 under SCHED_FIFO and SCHED_RR, otherwise 0.
    pub priority: u32,
    /// Budget under SCHED_DEADLINE; since Linux 6.12 the slice under fair policies.
    pub runtime_ns: u64,
    /// Relative deadline under SCHED_DEADLINE.
    pub deadline_ns: u64,
    /// Period under SCHED_DEADLINE.
    pub period_ns: u64,
}

impl SchedAttr {
    /// Ordinary fair scheduling (SCHED_OTHER).
    pub const fn fair(nice: i32) -> Self {
        let (policy, flags, priority) = (Policy::OTHER, 0, 0);
        SchedAttr { policy, flags, nice, priority, runtime_ns: 0, deadline_ns: 0, period_ns: 0 }
    }

    /// SCHED_FIFO; `priority` is 1 to 99.
    pub const fn fifo(priority: u32) -> Self {
        SchedAttr { policy: Policy::FIFO, priority, ..SchedAttr::fair(0) }
    }

    /// A reservation. Children never inherit it; otherwise the kernel would refuse every fork of the thread.
    pub fn deadline(reservation: Reservation, reclaim: bool) -> Self {
        let period_ns = reservation.period().get();
        SchedAttr {
            policy: Policy::DEADLINE,
            flags: RESET_ON_FORK | if reclaim { RECLAIM } else { 0 },
            runtime_ns: reservation.budget().get(),
            deadline_ns: period_ns,
            period_ns,
            ..SchedAttr::fair(0)
        }
    }

    /// Takes `thread` out of SCHED_DEADLINE and gives it these attributes. Returns the time for which it must not be
    /// reserved again; zero if it was not reserved or certainly left with budget.
    ///
    /// The kernel gets the bandwidth back, whatever the thread does meanwhile; see [`crate::leaving`]. Waits for a
    /// thread that sleeps in an overrun: usually for one period, at most for 2 s or two periods.
    pub fn give_leaving(&self, thread: ThreadId) -> io::Result<Nanos> {
        let now = SchedAttr::of(thread)?;
        if self.policy == Policy::DEADLINE || now.policy != Policy::DEADLINE {
            return self.give(thread).map(|()| Nanos::ZERO);
        }
        Departure::begin(thread, now, *self, None).finish()
    }

    /// A reservation whose bandwidth the kernel counts as zero: budget/period is below 2⁻²⁰.
    pub(crate) fn weightless() -> Self {
        let (budget, period) = (qfabric_types::MIN_BUDGET, Nanos::from_millis(1_100));
        SchedAttr::deadline(Reservation::new(budget, period).expect("1 024 ns in 1.1 s is one"), false)
    }

    /// True if the kernel counts the bandwidth of this reservation as zero.
    pub(crate) fn is_weightless(&self) -> bool {
        self.policy == Policy::DEADLINE && (u128::from(self.runtime_ns) << 20) < u128::from(self.period_ns)
    }

    /// Place in the kernel's order of threads, smaller first: −101 under SCHED_DEADLINE, −100 to −2 for the real-time
    /// priorities 99 to 1, 0 to 39 for nice −20 to 19 (these as field 18 of proc_pid_stat(5)), and 40 under SCHED_IDLE.
    #[must_use]
    pub fn order(&self) -> i32 {
        match self.policy {
            Policy::DEADLINE => -101,
            Policy::FIFO | Policy::RR => -1 - self.priority.min(99) as i32,
            Policy::IDLE => 40,
            _ => 20 + self.nice,
        }
    }

    /// Reads the attributes of `thread` (0: the calling thread). `ESRCH` if the thread has ended.
    pub fn of(thread: ThreadId) -> io::Result<Self> {
        sched_getattr(thread.0, 0).map(SchedAttr::from)
    }

    /// Sets the attributes of `thread` (0: the calling thread). `EBUSY`: not enough bandwidth; `EPERM`: missing
    /// permission, or the thread may not run on all CPUs.
    pub fn give(&self, thread: ThreadId) -> io::Result<()> {
        sched_setattr(thread.0, &RawSchedAttr::from(*self))
    }

    /// True if a kernel could have returned these attributes. Used to check the content of a journal.
    pub fn is_believable(&self) -> bool {
        let flags_known = self.flags & !0x7f == 0;
        let policy_known = self.policy.name() != "an unknown policy";
        let rt = matches!(self.policy, Policy::FIFO | Policy::RR);
        let priority_fits = if rt { (1..=99).contains(&self.priority) } else { self.priority == 0 };
        flags_known && policy_known && priority_fits && (-20..=19).contains(&self.nice)
    }
}

/// Remaining budget of a thread's server in nanoseconds, negative after an overrun. `EINVAL` before Linux 7.1.
pub(crate) fn remaining_ns(thread: ThreadId) -> io::Result<i64> {
    Ok(sched_getattr(thread.0, GETATTR_DL_DYNAMIC)?.runtime_ns as i64)
}

/// Remaining budget of a thread's server, and its absolute deadline on CLOCK_MONOTONIC. The kernel converts the
/// deadline from the run queue's clock, so two answers for the same deadline may differ by some ns. `EINVAL` before
/// Linux 7.1, and if the thread is not under SCHED_DEADLINE.
pub fn remaining(thread: ThreadId) -> io::Result<(Nanos, Instant)> {
    let attr = sched_getattr(thread.0, GETATTR_DL_DYNAMIC)?;
    Ok((Nanos::new(attr.runtime_ns), Instant::new(attr.deadline_ns)))
}

impl From<RawSchedAttr> for SchedAttr {
    fn from(raw: RawSchedAttr) -> Self {
        let RawSchedAttr { policy, flags, nice, priority, runtime_ns, deadline_ns, period_ns, .. } = raw;
        SchedAttr { policy: Policy(policy), flags, nice, priority, runtime_ns, deadline_ns, period_ns }
    }
}

impl From<SchedAttr> for RawSchedAttr {
    fn from(attr: SchedAttr) -> Self {
        let SchedAttr { policy, flags, nice, priority, runtime_ns, deadline_ns, period_ns } = attr;
        let policy = policy.0;
        RawSchedAttr { policy, flags, nice, priority, runtime_ns, deadline_ns, period_ns, ..RawSchedAttr::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELF: ThreadId = ThreadId(0);

    #[test]
    fn a_thread_reads_back_the_nice_value_it_was_given() {
        std::thread::spawn(|| {
            SchedAttr::fair(7).give(SELF).unwrap();
            let now = SchedAttr::of(SELF).unwrap();
            assert_eq!((now.policy, now.nice), (Policy::OTHER, 7));
            assert!(now.is_believable());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn threads_are_ordered_by_their_policies_and_priorities() {
        let reservation = Reservation::new(Nanos::from_millis(2), Nanos::from_millis(10)).unwrap();
        let idle = SchedAttr { policy: Policy::IDLE, ..SchedAttr::fair(0) };
        let all = [
            SchedAttr::deadline(reservation, false),
            SchedAttr::fifo(99),
            SchedAttr::fifo(1),
            SchedAttr::fair(-20),
            SchedAttr::fair(19),
            idle,
        ];
        assert_eq!(all.map(|attributes| attributes.order()), [-101, -100, -2, 0, 39, 40]);
    }

    #[test]
    fn reading_an_ended_thread_fails_with_esrch() {
        assert_eq!(SchedAttr::of(ThreadId(i32::MAX)).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_reservation_becomes_an_implicit_deadline_that_children_do_not_inherit() {
        let reservation = Reservation::new(Nanos::from_millis(2), Nanos::from_millis(10)).unwrap();
        let attr = SchedAttr::deadline(reservation, true);
        assert_eq!((attr.runtime_ns, attr.deadline_ns, attr.period_ns), (2_000_000, 10_000_000, 10_000_000));
        assert_eq!(attr.flags, RESET_ON_FORK | RECLAIM);
    }

    #[test]
    fn attributes_that_no_kernel_returns_are_refused() {
        let nonsense = [
            SchedAttr { policy: Policy(4), ..SchedAttr::fair(0) },
            SchedAttr::fair(20),
            SchedAttr::fifo(0),
            SchedAttr::fifo(100),
            SchedAttr { flags: 1 << 40, ..SchedAttr::fair(0) },
        ];
        for attr in nonsense {
            assert!(!attr.is_believable(), "{attr:?}");
        }
    }
}
