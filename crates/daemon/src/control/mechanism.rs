//! Which mechanism carries settings out, and what takes its place when the kernel ends it.
//!
//! ```text
//! auto ──> deadline works here ──> deadline            ext ──(the kernel ends it)──> deadline, or none as configured
//!   └────> it does not, ext does ─> ext                 └──(it cannot be loaded)──> refused with its reason
//! ```

use std::path::Path;

use qfabric_linux::ext::{Ext, ExtConfig, ExtMechanism};
use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::journal::Journal;
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::{ApplyError, Deadline, Mechanism, books, capacity};
use qfabric_types::{MechanismName, Nanos, Reservation, Setting, Share, ThreadId, Window};

use super::room::Room;
use super::thread::StartError;
use crate::config::{Config, Fallback};

/// A mechanism ready for use.
pub(super) struct Opened {
    pub mechanism: Box<dyn Mechanism + Send>,
    /// What may be promised in all.
    pub room: Room,
    /// What it guarantees best effort on each CPU, where it is it that decides that.
    pub best_effort: Option<Reservation>,
    /// Kept for the one that takes its place.
    pub journal: Option<Journal>,
}

impl Opened {
    /// What may be promised on one CPU, where servers are bound to CPUs.
    pub fn cpu_capacity(&self) -> Share {
        let (capacity, cpus) = (self.mechanism.capacity(), self.mechanism.abilities().cpus.len().max(1));
        Share::from_ppm(capacity.unwrap_or_default().ppm() / cpus as u32)
    }
}

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Deadline,
    Ext,
}

/// The one that is configured; where that is left open, `deadline` unless only `ext` works here: it needs nothing
/// loaded, and threads keep their reservations if the service dies.
pub(super) fn choose(config: &Config) -> Which {
    match config.mechanism.name {
        MechanismName::Ext => Which::Ext,
        MechanismName::Deadline => Which::Deadline,
        MechanismName::Auto if Ext::supported().is_ok() && capacity::probe().is_err() => Which::Ext,
        MechanismName::Auto => Which::Deadline,
    }
}

/// Opens it.
pub(super) fn open(which: Which, config: &Config, journal: Journal) -> Result<Opened, StartError> {
    match which {
        Which::Deadline => open_deadline(config, journal),
        Which::Ext => open_ext(config, journal),
    }
}

fn open_deadline(config: &Config, journal: Journal) -> Result<Opened, StartError> {
    let room = match config.limits.capacity {
        Some(configured) => {
            let ceiling = books::ceiling(Path::new(DEBUGFS)).unwrap_or(configured);
            Room::under(ceiling.saturating_sub(held_by_ourselves()), configured)
        }
        None => {
            let free = capacity::probe()?;
            // Where the kernel's sum is negative, it grants the probes whole CPUs.
            Room::probed(books::ceiling(Path::new(DEBUGFS)).map_or(free, |ceiling| free.min(ceiling)))
        }
    };
    let mechanism = Box::new(Deadline::with_journal(journal));
    Ok(Opened { mechanism, room, best_effort: None, journal: None })
}

/// What the kernel has booked for the calling thread.
fn held_by_ourselves() -> Share {
    match SchedAttr::of(ThreadId(0)) {
        Ok(SchedAttr { policy: Policy::DEADLINE, runtime_ns, period_ns, .. }) => {
            Share::of_budget(Nanos::new(runtime_ns), Nanos::new(period_ns))
        }
        _ => Share::ZERO,
    }
}

fn open_ext(config: &Config, journal: Journal) -> Result<Opened, StartError> {
    let (service, period) = (config.mechanism.best_effort, config.mechanism.best_effort_period);
    let asked = ExtConfig {
        best_effort_service: service,
        best_effort_period: period,
        best_effort_window: Window::NONE,
        ..ExtConfig::default()
    };
    let mechanism = ExtMechanism::load(&asked).map_err(|why| StartError::Mechanism(why.to_string()))?;
    let all = mechanism.capacity().unwrap_or_default();
    let own = config.control_reservation()?.map_or(Share::ZERO, Reservation::share);
    let room = Room::of_servers(all, config.limits.capacity, own);
    let best_effort = Reservation::new(service, period).ok();
    Ok(Opened { mechanism: Box::new(mechanism), room, best_effort, journal: Some(journal) })
}

/// What takes the place of one that the kernel ended, and what may be promised then; no capacity: nothing takes it.
pub(super) fn instead(fallback: Fallback, journal: Option<Journal>) -> (Box<dyn Mechanism + Send>, Option<Share>) {
    match (fallback, capacity::probe(), journal) {
        (Fallback::Deadline, Ok(capacity), Some(journal)) => {
            (Box::new(Deadline::with_journal(journal)), Some(capacity))
        }
        _ => (Box::new(Nothing), None),
    }
}

/// No mechanism: every thread stays under the normal scheduler.
struct Nothing;

impl Mechanism for Nothing {
    fn name(&self) -> &'static str {
        "none"
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError> {
        let what = "reservations";
        match setting.reservation {
            Some(_) => Err(ApplyError::Incapable { thread: setting.thread, mechanism: "none", what }),
            None => Ok(()),
        }
    }

    fn forget(&mut self, _thread: ThreadId) {}

    fn restore_all(&mut self) -> Vec<ApplyError> {
        Vec::new()
    }
}

/// Best effort's part may not be so small that the kernel's watchdog ends the scheduler, nor so large that nothing
/// is left.
pub(crate) fn best_effort_is_possible(service: Nanos, period: Nanos) -> bool {
    let share = Share::of_budget(service, period);
    Reservation::new(service, period).is_ok() && share >= Share::from_ppm(10_000) && share <= Share::from_ppm(900_000)
}

#[cfg(test)]
mod tests {
    use qfabric_types::Reclaiming;

    use super::*;

    #[test]
    fn nothing_gives_no_reservation_and_takes_every_one_back() {
        let (mut mechanism, capacity) = instead(Fallback::None, None);
        let reservation = Reservation::new(Nanos::from_millis(1), Nanos::from_millis(10)).ok();
        let give =
            Setting { thread: ThreadId(7), reservation, reclaiming: Reclaiming::Hard, terms: Default::default() };
        assert!(mechanism.apply(&give).unwrap_err().to_string().contains("none cannot give reservations"));
        assert_eq!(mechanism.apply(&Setting { reservation: None, ..give }), Ok(()));
        assert_eq!((mechanism.name(), capacity), ("none", None));
    }

    #[test]
    fn best_effort_has_between_a_hundredth_and_nine_tenths() {
        let possible = |ms: u64| best_effort_is_possible(Nanos::from_millis(ms), Nanos::from_millis(1_000));
        assert_eq!([0, 9, 10, 900, 901, 1_001].map(possible), [false, false, true, true, false, false]);
    }
}
