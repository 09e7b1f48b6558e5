//! Reads the bandwidth that the kernel has booked for SCHED_DEADLINE and finds the part with no owner. That part is
//! lost until the root domain is rebuilt. All sums are in the kernel's unit of 2⁻²⁰ CPU, exact to one unit.
//!
//! `total` is read from debugfs, or computed from the bandwidth that admission control still grants
//! ([`Probes::grantable`]). The reservations of all living threads and of the kernel's own servers (`servers.rs`) are
//! subtracted from it. A thread that left stays booked until its 0-lag time, so only a remainder that does not go away
//! is lost: see [`lost`].
//!
//! The sum may also be too small, and even negative: if the root domain is rebuilt while departures are pending
//! (`limit.rs` names the cause), the timers of these departures subtract their bandwidth once more.

mod lent;
mod limit;
mod rebuild;
mod servers;
mod shift;

use std::path::Path;
use std::time::{Duration, Instant};

use qfabric_types::Share;
use qfabric_types::api::Problem;

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

/// The kernel's first pid namespace (`PROC_PID_INIT_INO`); in other pid namespaces some threads are invisible.
pub(crate) const FIRST_PIDS: &str = "pid:[4026531836]";
/// Largest number of attempts to count the threads while the sum stays the same.
const LOOKS: usize = 40;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// A thread that left is subtracted at its 0-lag time: usually within one period.
const WHILE_PENDING: Duration = Duration::from_millis(1_500);

/// The booked bandwidth of the first root domain at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// All booked bandwidth.
    pub total: i64,
    /// Bandwidth of living threads.
    pub held: u64,
    /// Number of living threads with a reservation.
    pub threads: usize,
    /// Bandwidth of the kernel's servers for fair and sched_ext threads.
    pub servers: u64,
}

impl Books {
    /// Booked bandwidth with no owner, including pending departures. Negative if some bandwidth was subtracted twice;
    /// the kernel then admits more than it has, or refuses every reservation.
    pub fn without_owner(&self) -> i64 {
        self.total - (self.held + self.servers) as i64
    }

    /// [`Books::without_owner`] as a share.
    pub fn lost(&self) -> Share {
        capacity::share_of(self.without_owner().max(0) as u64)
    }

    /// The later reading, unless more bandwidth is wrong in it.
    fn or_less(self, later: Books) -> Books {
        let is_more = later.without_owner().abs() > self.without_owner().abs();
        if is_more { self } else { later }
    }

    /// True if the kernel's sum is negative: admission control reads it as a huge number and refuses every reservation.
    pub fn refuses_everybody(&self) -> bool {
        self.total < 0
    }
}

/// Why the booked bandwidth cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum BooksError {
    /// The process runs in a container, or `/proc` hides the processes of other users.
    NotAllSeen,
    /// `kernel.sched_rt_runtime_us` is −1: the kernel books reservations and refuses none.
    NoLimit,
    /// Other programs reserve and release without a pause.
    Restless,
    #[error(transparent)]
    Probe(#[from] ApplyError),
}

impl BooksError {
    /// The error with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            BooksError::NotAllSeen => (
                "some threads of this host are invisible to this process".to_owned(),
                "run as root and outside any container",
            ),
            BooksError::NoLimit => (
                "kernel.sched_rt_runtime_us is -1, so the kernel refuses nothing".to_owned(),
                "mount debugfs to read the booked bandwidth",
            ),
            BooksError::Restless => (
                format!("reservations changed during each of {LOOKS} readings"),
                "try again when fewer programs start and stop",
            ),
            BooksError::Probe(error) => return error.problem(),
        };
        Problem::new("books", message, next_step)
    }
}

/// Reads the booked bandwidth: from `debugfs` if it can be read, otherwise by probing admission control, which takes
/// all free bandwidth for about 40 µs per CPU.
pub fn read(debugfs: &Path) -> Result<Books, BooksError> {
    let mut probes = None;
    read_by(debugfs, &mut || {
        let probes = probes.get_or_insert_with(|| Probes::start(CpuList::online().len()));
        Ok(probes.grantable()?)
    })
}

/// Like [`read`], but without debugfs it calls `grantable` for the bandwidth, in units, that admission control still
/// grants. A service passes a function that excludes simultaneous requests for bandwidth.
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

/// The booked bandwidth without pending departures: reads again for up to 1.5 s while some bandwidth has no owner, and
/// returns the reading with the least such bandwidth. The last reading may contain the departure of a program that
/// ended meanwhile.
pub fn lost(debugfs: &Path) -> Result<Books, BooksError> {
    let end = Instant::now() + WHILE_PENDING;
    let mut books = read(debugfs)?;
    while books.without_owner() != 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        books = books.or_less(read(debugfs)?);
    }
    Ok(books)
}

/// Fails if `/proc` does not show the threads of all users.
fn check_view() -> Result<(), BooksError> {
    let pids = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let sees_all = pids == Path::new(FIRST_PIDS) && threads::name(qfabric_types::ThreadId(1)).is_some();
    if sees_all { Ok(()) } else { Err(BooksError::NotAllSeen) }
}

/// Bandwidth that could be reserved in total if no thread were reserved and none were lost; `None` if the kernel has no
/// limit.
pub fn ceiling(debugfs: &Path) -> Option<Share> {
    let domain = cgroup::root_domain(std::process::id() as i32);
    Some(capacity::share_of(limit(debugfs, &domain).ok()?.saturating_sub(servers::booked(debugfs, &domain))))
}

/// Bandwidth that admission control grants in total on these CPUs: the part of each CPU that real-time threads may use,
/// scaled if CPUs differ (`dl_bw_capacity`, `cap_scale` of kernel/sched/deadline.c).
fn limit(debugfs: &Path, domain: &CpuList) -> Result<u64, BooksError> {
    let Limit::Units(units) = Limit::of_host_or_default(debugfs) else { return Err(BooksError::NoLimit) };
    let of_cpu = |cpu: u32| files::number(format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity")).unwrap_or(1_024);
    Ok(scaled(units, domain.iter().map(of_cpu).sum::<u64>()))
}

fn scaled(units: u64, scale: u64) -> u64 {
    units * scale / 1_024
}

/// Converts units to CPUs for output. Four decimal digits are enough, since one unit is a millionth.
pub fn cpus(units: i64) -> f64 {
    units as f64 / CPU as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_that_neither_threads_nor_servers_hold_has_no_owner() {
        let books = Books { total: 104_856 + 136_314 + 65_536, held: 136_314, threads: 1, servers: 104_856 };
        assert_eq!((books.without_owner(), books.lost()), (65_536, Share::from_ppm(62_500)));
        let twice_subtracted = Books { total: 0, ..books };
        assert!(twice_subtracted.without_owner() < 0 && twice_subtracted.lost() == Share::ZERO);
        assert!(!twice_subtracted.refuses_everybody() && Books { total: -1, ..books }.refuses_everybody());
    }

    #[test]
    fn a_departure_that_is_pending_in_one_reading_is_not_lost() {
        let lost = Books { total: 65_536, ..Books::default() };
        let pending = Books { total: 65_536 + 104_857, ..Books::default() };
        let later = Books { total: 65_536 + 104_857, held: 104_857, threads: 1, ..Books::default() };
        assert_eq!((lost.or_less(pending), pending.or_less(lost)), (lost, lost));
        assert_eq!(lost.or_less(later), later, "of equal readings the later one");
        let twice_subtracted = Books { total: -65_536, ..Books::default() };
        assert_eq!(Books { total: -170_393, ..Books::default() }.or_less(twice_subtracted), twice_subtracted);
    }

    #[test]
    fn the_limit_is_that_of_the_kernel() {
        assert_eq!(scaled(996_147, 2 * 1_024), 1_992_294);
    }
}
