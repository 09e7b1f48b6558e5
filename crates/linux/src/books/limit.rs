//! How much of each CPU admission control may give to reservations: `sched_rt_runtime_us` of `sched_rt_period_us`.
//!
//! Those two files are never read here. Since Linux 6.17 (and in stable releases of older series) their handler ends
//! with `rebuild_sched_domains()`, also where somebody only reads: the kernel adds up the living threads' reservations
//! again, and each departure that is pending at that moment is subtracted once more at its 0-lag time. The sum may
//! fall below zero, and then everybody is refused. So the limit comes from debugfs; where that is closed, the kernel's
//! default is assumed.

use std::path::Path;

use crate::capacity::units_of;
use crate::files;

/// What the kernel is built with, in microseconds.
const DEFAULT: (u64, u64) = (950_000, 1_000_000);

/// The part of a CPU that may be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `kernel.sched_rt_runtime_us` is −1: the kernel books, and refuses nobody.
    None,
    /// Units of 2⁻²⁰ CPU per CPU.
    Units(u64),
}

impl Limit {
    /// The limit in force on the first CPU's root domain; `None` where debugfs is closed.
    pub fn of_host(debugfs: &Path) -> Option<Limit> {
        limit_in(&files::text(debugfs.join("sched/debug")).ok()?)
    }

    /// As [`Limit::of_host`]; the kernel's default where debugfs is closed.
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
