//! Six players near capacity whose load shifts half-way: static reservations compared with Q-Fabric.

mod common;

use common::*;
use qfabric_sim::world::Policy;
use qfabric_types::{Nanos, Reclaiming};

const SECONDS: u64 = 20;
const P: Nanos = Nanos::from_millis(10);
/// The tick at which a kernel without HRTICK_DL enforces budgets.
const TICK: Nanos = Nanos::from_millis(4);

fn line(name: &str, row: Row) -> String {
    let Row { misses, in_target, reserved, settings_per_job } = row;
    let (misses, in_target) = (100.0 * misses, 100.0 * in_target);
    format!("{name:<34}{misses:>9.2} %{in_target:>9.1} %{reserved:>9.2} CPU{settings_per_job:>9.2}\n")
}

fn table(tick: Nanos, p: Nanos) -> String {
    let mut table = format!("{:<34}{:>11}{:>11}{:>13}{:>9}\n", "policy", "misses", "in target", "reserved", "set/job");
    let mut add = |name: &str, policy: Scheduled| table.push_str(&line(name, measure(policy, p, tick, SECONDS)));
    add("best effort", &|_| Policy::BestEffort);
    add("static equal shares, hard", &|p| equal_shares(p, Reclaiming::Hard));
    add("static equal shares, GRUB", &|p| equal_shares(p, Reclaiming::Grub));
    for (predictor, rho) in
        [("ma:12", 0.0), ("ma:12", 1.0), ("mma:3,12", 0.0), ("mma:3,12", 1.0), ("hint:24", 0.0), ("hint:24", 1.0)]
    {
        for (kind, reclaiming) in [("hard", Reclaiming::Hard), ("GRUB", Reclaiming::Grub)] {
            add(&format!("Q-Fabric {predictor} rho {rho}, {kind}"), &|p| {
                Policy::Fabric(Box::new(contract(p, predictor, rho, reclaiming)))
            });
        }
    }
    table
}

#[test]
fn the_table_with_exact_enforcement_equals_the_stored_table() {
    compare_with_stored("load_shift_exact", &table(Nanos::ZERO, P));
}

#[test]
fn the_table_with_enforcement_at_the_tick_equals_the_stored_table() {
    compare_with_stored("load_shift_tick", &table(TICK, P));
}

/// Expected: the same work with less reserved bandwidth, because budgets follow the load, and fewer misses,
/// because heavy frames get their budget instead of depending on unused time. Accepted: half the misses, 15 % less
/// reserved.
#[test]
fn under_grub_qfabric_misses_half_as_often_as_static_grub_with_less_reserved() {
    for tick in [Nanos::ZERO, TICK] {
        let rival = measure(&|p| equal_shares(p, Reclaiming::Grub), P, tick, 2 * SECONDS);
        let ours =
            measure(&|p| Policy::Fabric(Box::new(contract(p, "hint:24", 0.0, Reclaiming::Grub))), P, tick, 2 * SECONDS);
        assert!(ours.misses <= 0.5 * rival.misses, "{ours:?} against {rival:?}, tick {tick}");
        assert!(ours.reserved <= 0.85 * rival.reserved, "{ours:?} against {rival:?}, tick {tick}");
    }
}
