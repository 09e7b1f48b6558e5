//! The time of the daemon's control thread: its settings need CPU time, and it decides again only after them.

mod common;

use common::*;
use qfabric_host::Limits;
use qfabric_sim::world::{ControlThread, Outcomes, Policy, World};
use qfabric_types::{Nanos, Reclaiming, Reservation};

const P: Nanos = Nanos::from_millis(10);
const SECONDS: u64 = 8;

/// Six players near capacity beside a control thread that needs `setting` for each setting.
fn run(setting: Nanos) -> Outcomes {
    let reservation = Reservation::new(Nanos::from_micros(100), Nanos::from_millis(2)).unwrap();
    let policy = |p| Policy::Fabric(Box::new(contract(p, "hint:24", 0.0, Reclaiming::Grub)));
    let mut scenario = load_shift(&policy, P, Nanos::ZERO, SECONDS, 0);
    scenario.limits = Limits::of_capacity(CAPACITY.saturating_sub(reservation.share()));
    scenario.control = Some(ControlThread { reservation, cost: Nanos::from_micros(30), setting });
    World::new(scenario).run()
}

#[test]
fn a_control_thread_whose_settings_take_long_makes_fewer() {
    let (fast, slow) = (run(Nanos::ZERO), run(Nanos::from_millis(20)));
    assert!(fast.settings > 800 && 2 * slow.settings < fast.settings, "{} and {}", fast.settings, slow.settings);
    assert!(slow.wakeups < fast.wakeups, "{} and {} turns", slow.wakeups, fast.wakeups);
}

#[test]
fn settings_of_threads_that_are_awake_and_attempts_are_counted() {
    let outcomes = run(Nanos::from_micros(40));
    let Outcomes { settings, settings_awake, tried, refused, .. } = outcomes;
    assert!(0 < settings_awake && settings_awake < settings, "{settings_awake} of {settings}");
    assert!(settings + refused <= tried, "{settings} and {refused} of {tried}");
}
