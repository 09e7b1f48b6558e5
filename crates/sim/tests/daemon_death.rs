//! If the daemon dies, all players continue to run, before and after its successor has undone their reservations.

mod common;

use common::*;
use qfabric_sim::world::{Policy, World};
use qfabric_types::{Instant, Nanos, Reclaiming};

const P: Nanos = Nanos::from_millis(10);

#[test]
fn players_of_a_dead_daemon_keep_running_with_and_without_their_last_reservation() {
    let policy = |p| Policy::Fabric(Box::new(contract(p, "ma:12", 1.0, Reclaiming::Grub)));
    let mut scenario = load_shift(&policy, P, Nanos::ZERO, 10, 5);
    scenario.machine.hogs = 0;
    scenario.death = Some((Instant::new(4_000_000_000), Instant::new(6_000_000_000)));
    let outcomes = World::new(scenario).run();
    for row in &outcomes.rows {
        assert!(row.jobs >= 245, "only {} of 248 jobs ended", row.jobs);
    }
}

#[test]
fn without_a_successor_all_players_keep_running() {
    let policy = |p| Policy::Fabric(Box::new(contract(p, "hint:24", 0.0, Reclaiming::Grub)));
    let mut scenario = load_shift(&policy, P, Nanos::ZERO, 10, 6);
    scenario.death = Some((Instant::new(3_000_000_000), Instant::NEVER));
    let outcomes = World::new(scenario).run();
    assert!(outcomes.rows.iter().all(|row| row.jobs > 150), "{:?}", outcomes.rows);
}
