//! Chooses the mechanism that applies settings, and the one that takes over if the kernel ejects it.
//!
//! ```text
//! auto ──> deadline works here ──────> deadline       ext ──(the kernel ejects it)──> deadline, or none, as configured
//!   └────> only ext works here ──────> ext             └───(it cannot be loaded)────> refused with the reason
//! ```
//! `dispatcher` is used only if it is named: a fixed service in whole slots is less than `deadline` gives.

use std::path::Path;

use qfabric_linux::ext::{Ext, ExtConfig, ExtMechanism};
use qfabric_linux::hrtick::DEBUGFS;
use qfabric_linux::journal::Journal;
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_linux::{ApplyError, Deadline, DispatcherMechanism, Mechanism, books, capacity, dispatcher};
use qfabric_types::{MechanismName, Nanos, Reservation, Setting, Share, ThreadId, Window};

use super::room::Room;
use super::thread::StartError;
use crate::config::{Config, Fallback};

/// A mechanism ready for use.
pub(super) struct Opened {
    pub mechanism: Box<dyn Mechanism + Send>,
    /// The capacity that may be promised.
    pub room: Room,
    /// The reservation that the mechanism guarantees to best effort on each CPU, if it has one.
    pub best_effort: Option<Reservation>,
    /// Kept for the mechanism that takes over, if this one does not use it.
    pub journal: Option<Journal>,
}

impl Opened {
    /// The capacity of one CPU, if servers are bound to CPUs.
    pub(super) fn cpu_capacity(&self) -> Share {
        let (capacity, cpus) = (self.mechanism.capacity(), self.mechanism.features().cpus.len().max(1));
        Share::from_ppm(capacity.unwrap_or_default().ppm() / cpus as u32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Deadline,
    Ext,
    Dispatcher,
}

/// The configured mechanism. For `auto`: `deadline`, unless only `ext` works here. `deadline` needs no program in
/// the kernel, and threads keep their reservations if the service dies.
pub(super) fn choose(config: &Config) -> Kind {
    match config.mechanism.name {
        MechanismName::Ext => Kind::Ext,
        MechanismName::Deadline => Kind::Deadline,
        MechanismName::Dispatcher => Kind::Dispatcher,
        MechanismName::Auto if Ext::supported().is_ok() && capacity::probe().is_err() => Kind::Ext,
        MechanismName::Auto => Kind::Deadline,
    }
}

pub(super) fn open(which: Kind, config: &Config, journal: Journal) -> Result<Opened, StartError> {
    match which {
        Kind::Deadline => open_deadline(config, journal),
        Kind::Ext => open_ext(config, journal),
        Kind::Dispatcher => open_dispatcher(config, journal),
    }
}

fn open_dispatcher(config: &Config, journal: Journal) -> Result<Opened, StartError> {
    dispatcher::supported().map_err(StartError::Mechanism)?;
    let mechanism = DispatcherMechanism::new(config.mechanism.rules());
    let mechanism = mechanism.map_err(|why| StartError::Mechanism(why.problem()))?.with_journal(journal);
    let mechanism = mechanism.with_idle_latency(config.mechanism.idle_latency);
    let all = mechanism.capacity().unwrap_or_default();
    let room = Room::of_servers(all, config.limits.capacity, Share::ZERO);
    Ok(Opened { mechanism: Box::new(mechanism), room, best_effort: None, journal: None })
}

fn open_deadline(config: &Config, journal: Journal) -> Result<Opened, StartError> {
    let ceiling = books::ceiling(Path::new(DEBUGFS));
    // Bandwidth that a former service, or another program, lost is still booked. If the kernel's sum is negative, it grants
    // whole CPUs to the probes.
    let lost = || {
        let books = books::read(Path::new(DEBUGFS)).ok()?;
        Some(capacity::share_of(books.without_owner().max(0) as u64))
    };
    let room = match config.limits.capacity {
        Some(configured) => {
            let ceiling = ceiling.unwrap_or(configured).saturating_sub(held_by_ourselves());
            Room::under(ceiling, configured).without(lost().unwrap_or_default())
        }
        None => {
            let free = capacity::probe()?;
            Room::probed(ceiling.map_or(free, |ceiling| free.min(ceiling))).with_lost(lost())
        }
    };
    let mechanism = Box::new(Deadline::with_journal(journal));
    Ok(Opened { mechanism, room, best_effort: None, journal: None })
}

/// The bandwidth that the kernel has booked for the calling thread.
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
    let mechanism = ExtMechanism::load(&asked).map_err(|why| StartError::Mechanism(why.problem()))?;
    let all = mechanism.capacity().unwrap_or_default();
    let own = config.control_reservation()?.map_or(Share::ZERO, Reservation::share);
    let room = Room::of_servers(all, config.limits.capacity, own);
    let best_effort = Reservation::new(service, period).ok();
    Ok(Opened { mechanism: Box::new(mechanism), room, best_effort, journal: Some(journal) })
}

/// The mechanism that takes over after an ejection, and its capacity; `None` for the capacity: no mechanism takes
/// over.
pub(super) fn replacement(fallback: Fallback, journal: Option<Journal>) -> (Box<dyn Mechanism + Send>, Option<Share>) {
    match (fallback, capacity::probe(), journal) {
        (Fallback::Deadline, Ok(capacity), Some(journal)) => {
            (Box::new(Deadline::with_journal(journal)), Some(capacity))
        }
        _ => (Box::new(NoMechanism), None),
    }
}

/// No mechanism: every thread stays under the normal scheduler.
struct NoMechanism;

impl Mechanism for NoMechanism {
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

/// Whether the share of best effort is possible: a smaller one makes the kernel's watchdog end the scheduler, a
/// larger one leaves too little for servers.
pub(crate) fn best_effort_is_possible(service: Nanos, period: Nanos) -> bool {
    let share = Share::of_budget(service, period);
    Reservation::new(service, period).is_ok() && share >= Share::from_ppm(10_000) && share <= Share::from_ppm(900_000)
}

#[cfg(test)]
mod tests {
    use qfabric_types::Reclaiming;

    use super::*;

    #[test]
    fn without_a_mechanism_reservations_are_refused_and_their_end_succeeds() {
        let (mut mechanism, capacity) = replacement(Fallback::None, None);
        let reservation = Reservation::new(Nanos::from_millis(1), Nanos::from_millis(10)).ok();
        let give =
            Setting { thread: ThreadId(7), reservation, reclaiming: Reclaiming::Hard, terms: Default::default() };
        assert!(mechanism.apply(&give).unwrap_err().to_string().contains("none cannot give reservations"));
        assert_eq!(mechanism.apply(&Setting { reservation: None, ..give }), Ok(()));
        assert_eq!((mechanism.name(), capacity), ("none", None));
    }

    #[test]
    fn best_effort_may_have_1_to_90_percent_of_a_cpu() {
        let possible = |ms: u64| best_effort_is_possible(Nanos::from_millis(ms), Nanos::from_millis(1_000));
        assert_eq!([0, 9, 10, 900, 901, 1_001].map(possible), [false, false, true, true, false, false]);
    }
}
