//! What the kernel has booked for SCHED_DEADLINE, and for whom: what is booked for nobody is lost until the root
//! domain is rebuilt. All sums in the kernel's units of 2⁻²⁰ CPU, exact to one unit.
//!
//! `total` is read from debugfs, or worked out from what admission control still grants ([`Probes::grantable`]);
//! from it the reservations of all living threads and the kernel's own servers (`servers.rs`) are subtracted. Threads
//! that left a moment ago stay booked until their 0-lag time, so only what stays is lost: see [`lost`].
//!
//! The sum may be too small, too, and even negative: where the root domain was rebuilt while departures were pending
//! (`limit.rs` says what does that), their timers subtracted once more.

mod lent;
mod limit;
mod rebuild;
mod servers;
mod shift;

use std::path::Path;
use std::time::{Duration, Instant};

use qfabric_types::Share;

use crate::capacity::{self, CPU, Probes};
use crate::cpus::CpuList;
use crate::files;
use crate::mechanism::ApplyError;
use crate::{cgroup, threads};

pub use lent::{Corrected, LentError, TOLERANCE as LENT_TOLERANCE, lent_too_much, stop_lending};
pub use limit::Limit;
pub(crate) use rebuild::REBUILDS_WHEN_READ;
pub use rebuild::{RebuildError, rebuild, repair_after_crash};
pub(crate) use shift::shift;

/// The kernel's first pid namespace: in another one, not all threads can be seen (`PROC_PID_INIT_INO`).
const FIRST_PIDS: &str = "pid:[4026531836]";
/// Looks until the sum holds still while the threads are counted.
const LOOKS: usize = 40;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// A thread that left is subtracted at its 0-lag time: within a period as a rule.
const WHILE_PENDING: Duration = Duration::from_millis(1_500);

/// The books of the first root domain at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Everything.
    pub total: i64,
    /// Of living threads.
    pub held: u64,
    /// How many these are.
    pub threads: usize,
    /// Of the kernel's servers for fair and sched_ext threads.
    pub servers: u64,
}

impl Books {
    /// What is booked for nobody, departures that are not over yet included. Negative where something was subtracted
    /// twice: then the kernel admits more than there is, or refuses everybody.
    pub fn of_nobody(&self) -> i64 {
        self.total - (self.held + self.servers) as i64
    }

    /// [`Books::of_nobody`] as a share.
    pub fn lost(&self) -> Share {
        capacity::share_of(self.of_nobody().max(0) as u64)
    }

    /// Whether the kernel's sum is negative: admission control takes it for a huge number and refuses everybody.
    pub fn refuses_everybody(&self) -> bool {
        self.total < 0
    }
}

/// Why the books cannot be read here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BooksError {
    /// A container, or a /proc that hides other users' processes.
    #[error("not all threads of this host can be seen from here; run as root outside of any container")]
    NotAllSeen,
    /// `kernel.sched_rt_runtime_us` is −1: the kernel books, and refuses nobody.
    #[error("kernel.sched_rt_runtime_us is -1, so nothing is refused; mount debugfs to see what is booked")]
    NoLimit,
    /// Others reserve and release without a pause.
    #[error("reservations changed during each of {LOOKS} looks; try again when the host is calmer")]
    Restless,
    /// Admission control cannot be asked.
    #[error(transparent)]
    Probe(#[from] ApplyError),
}

/// Reads the books now: from `debugfs` where that is open, else by asking admission control, which takes all free
/// bandwidth for some 40 µs per CPU.
pub fn read(debugfs: &Path) -> Result<Books, BooksError> {
    let mut probes = None;
    read_by(debugfs, &mut || {
        let probes = probes.get_or_insert_with(|| Probes::start(CpuList::online().len()));
        Ok(probes.grantable()?)
    })
}

/// As [`read`]; without debugfs `grantable` is asked what admission control grants, in units. A service asks where
/// nobody else asks for room at the same time.
pub fn read_by(debugfs: &Path, grantable: &mut dyn FnMut() -> Result<u64, BooksError>) -> Result<Books, BooksError> {
    check_view()?;
    let domain = cgroup::root_domain(std::process::id() as i32);
    let mut total = || -> Result<i64, BooksError> {
        match capacity::booked_units(debugfs) {
            Ok(units) => Ok(units as i64),
            Err(_) => Ok(limit(debugfs, &domain)? as i64 - grantable()? as i64),
        }
    };
    for _ in 0..LOOKS {
        let before = total()?;
        let holders = capacity::holders();
        if total()? == before {
            let held = holders.iter().map(|(_, units)| *units).sum();
            return Ok(Books {
                total: before,
                held,
                threads: holders.len(),
                servers: servers::booked(debugfs, &domain),
            });
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Err(BooksError::Restless)
}

/// The books when departures of this moment are over: reads again for up to 1.5 s while something is booked for
/// nobody.
pub fn lost(debugfs: &Path) -> Result<Books, BooksError> {
    let end = Instant::now() + WHILE_PENDING;
    loop {
        let books = read(debugfs)?;
        if books.of_nobody() == 0 || Instant::now() >= end {
            return Ok(books);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Others' threads are counted through /proc.
fn check_view() -> Result<(), BooksError> {
    let pids = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let sees_all = pids == Path::new(FIRST_PIDS) && threads::name(qfabric_types::ThreadId(1)).is_some();
    if sees_all { Ok(()) } else { Err(BooksError::NotAllSeen) }
}

/// What may be reserved in all where nobody has reserved anything and nothing is lost; `None` where that has no limit.
pub fn ceiling(debugfs: &Path) -> Option<Share> {
    let domain = cgroup::root_domain(std::process::id() as i32);
    Some(capacity::share_of(limit(debugfs, &domain).ok()?.saturating_sub(servers::booked(debugfs, &domain))))
}

/// What admission control grants in all on these CPUs: the part of each that real-time threads may use, scaled where
/// CPUs differ (`dl_bw_capacity`, `cap_scale` of kernel/sched/deadline.c).
fn limit(debugfs: &Path, domain: &CpuList) -> Result<u64, BooksError> {
    let Limit::Units(units) = Limit::of_host_or_default(debugfs) else { return Err(BooksError::NoLimit) };
    let of_cpu = |cpu: u32| files::number(format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity")).unwrap_or(1_024);
    Ok(scaled(units, domain.iter().map(of_cpu).sum::<u64>()))
}

fn scaled(units: u64, scale: u64) -> u64 {
    units * scale / 1_024
}

/// CPUs, for people: four digits, since one unit is a millionth.
pub fn cpus(units: i64) -> f64 {
    units as f64 / CPU as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_neither_threads_nor_servers_hold_is_booked_for_nobody() {
        let books = Books { total: 104_856 + 136_314 + 65_536, held: 136_314, threads: 1, servers: 104_856 };
        assert_eq!((books.of_nobody(), books.lost()), (65_536, Share::from_ppm(62_500)));
        let twice_subtracted = Books { total: 0, ..books };
        assert!(twice_subtracted.of_nobody() < 0 && twice_subtracted.lost() == Share::ZERO);
        assert!(!twice_subtracted.refuses_everybody() && Books { total: -1, ..books }.refuses_everybody());
    }

    #[test]
    fn the_limit_is_that_of_the_kernel() {
        assert_eq!(scaled(996_147, 2 * 1_024), 1_992_294);
    }
}
