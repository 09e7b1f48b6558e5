//! Reads the part of each CPU that admission control may give to reservations: `sched_rt_runtime_us` of
//! `sched_rt_period_us`.
//!
//! This file never reads these two sysctl files. Since Linux 6.17, and in stable releases of older series, their
//! handler ends with `rebuild_sched_domains()`, even for a read. The kernel then sums the reservations of the living
//! threads again, and each departure that is pending at that moment is subtracted once more at its 0-lag time. The sum
//! may become negative, and then every reservation is refused. So the limit is read from debugfs; without debugfs, the
//! kernel's default is assumed.

use std::path::Path;

use crate::capacity::units_of;
use crate::files;

/// The kernel's default: runtime and period, in microseconds.
const DEFAULT: (u64, u64) = (950_000, 1_000_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `kernel.sched_rt_runtime_us` is −1: the kernel books reservations and refuses none.
    None,
    /// Units of 2⁻²⁰ CPU per CPU.
    Units(u64),
}

impl Limit {
    /// The limit of the first CPU's root domain; `None` if debugfs cannot be read.
    pub fn of_host(debugfs: &Path) -> Option<Limit> {
        limit_in(&files::text(debugfs.join("sched/debug")).ok()?)
    }

    /// Like [`Limit::of_host`], but returns the kernel's default if debugfs cannot be read.
    pub fn of_host_or_default(debugfs: &Path) -> Limit {
        Limit::of_host(debugfs).unwrap_or(Limit::Units(units_of(DEFAULT.0, DEFAULT.1)))
    }
}

fn limit_in(text: &str) -> Option<Limit> {
    let line = text.lines().find(|line| line.contains("dl_bw->bw"))?;
    match line.split_whitespace().last()?.parse::<i64>().ok()? {
        -1 => Some(Limit::None),
        units => u64::try_from(units).ok().map(Limit::Units),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_off_the_schedulers_debug_file() {
        let text = |bw: &str| format!("dl_rq[0]:\n  .dl_bw->bw    : {bw}\n  .dl_bw->total_bw    : -943720\n");
        assert_eq!(limit_in(&text("996147")), Some(Limit::Units(996_147)));
        assert_eq!(limit_in(&text("-1")), Some(Limit::None));
        assert_eq!(limit_in(&text("0")), Some(Limit::Units(0)));
        assert_eq!((limit_in(&text("x")), limit_in("")), (None, None));
    }

    #[test]
    fn without_debugfs_the_kernels_default_is_assumed() {
        let closed = Path::new("/no/such/folder");
        assert_eq!(Limit::of_host(closed), None);
        assert_eq!(Limit::of_host_or_default(closed), Limit::Units(996_147));
    }
}
