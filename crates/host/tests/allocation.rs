//! Rules under test for dividing the capacity: off by default, and each changes what the applications hold in the way
//! that its name says.

mod common;

use common::{Bench, at, marked, share};
use qfabric_host::{Allocation, HostConfig, Input, Limits};
use qfabric_types::ring::JobEvent;
use qfabric_types::{AppId, Foresight, JobRecord, MechanismFeatures, Nanos};

/// Two players with equal shares of 0.9 CPU; both have ended three jobs of `cost_ms`.
fn two_players(rules: &str, cost_ms: u64) -> (Bench, AppId, AppId) {
    let features = MechanismFeatures { gives_back: true, ..MechanismFeatures::default() };
    let limits = Limits::of_capacity(share(90));
    let allocation: Allocation = rules.parse().unwrap();
    let mut bench = Bench::with_config(HostConfig { limits, features, allocation, ..HostConfig::default() });
    let first = bench.join_thread(&marked(), 1).unwrap();
    let second = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..3 {
        job(&mut bench, first, k, cost_ms, 15);
        job(&mut bench, second, k, cost_ms, 16);
    }
    bench.wait_until(at(1_130));
    (bench, first, second)
}

/// Ends job `k` of `cost_ms`, `after_ms` after its release.
fn job(bench: &mut Bench, app: AppId, k: u64, cost_ms: u64, after_ms: u64) {
    let release = at(1_000 + 40 * k);
    let finish = release + Nanos::from_millis(after_ms);
    bench.wait_until(finish);
    let job = JobRecord { k, release, finish, cost: Nanos::from_millis(cost_ms), next: Foresight::Nothing };
    bench.input(Input::Job { app, event: JobEvent::End(job) });
}

fn budgets_us(bench: &Bench) -> (u64, u64) {
    (bench.budget_us(1), bench.budget_us(2))
}

#[test]
fn bandwidth_is_taken_back_at_the_lead_before_the_release() {
    for (rules, ms) in [("default", 1_158), ("lead=4ms", 1_156), ("lead=1ms", 1_159), ("lead=30ms", 1_150)] {
        let (mut bench, first, _) = two_players(rules, 18);
        job(&mut bench, first, 3, 18, 15);
        bench.wait_until(at(ms) - Nanos::new(1));
        assert_eq!(bench.budget_us(1), 1_350, "{rules}");
        bench.wait_until(at(ms));
        assert_eq!(bench.budget_us(1), 4_500, "{rules}: at most one server period of 10 ms");
    }
}

#[test]
fn with_a_floor_a_small_need_keeps_its_share_while_the_needs_exceed_the_capacity() {
    for (rules, light_us, heavy_us) in [("default", 2_000, 7_000), ("floor", 4_500, 4_500)] {
        let (mut bench, first, second) = two_players(rules, 18);
        job(&mut bench, first, 3, 8, 15);
        // 8 and 30 ms in 40 ms need 0.95 CPU together.
        job(&mut bench, second, 3, 30, 39);
        assert_eq!(budgets_us(&bench), (light_us, heavy_us), "{rules}");
        job(&mut bench, first, 4, 8, 15);
        assert_eq!(budgets_us(&bench), (1_350, 7_500), "{rules}: giving back frees as before");
        // 8 and 20 ms need 0.7 CPU.
        job(&mut bench, second, 4, 20, 39);
        assert_eq!(budgets_us(&bench), (2_000, 5_000), "{rules}");
    }
}

#[test]
fn a_job_that_cannot_be_in_time_gets_no_more_than_the_share() {
    for (rules, late_us) in [("default", 7_650), ("in-time", 4_500)] {
        let (mut bench, first, second) = two_players(rules, 18);
        job(&mut bench, first, 3, 18, 15);
        job(&mut bench, first, 4, 18, 15);
        // The next job has 5 ms for 38 ms.
        job(&mut bench, second, 3, 38, 75);
        assert_eq!(budgets_us(&bench), (1_350, late_us), "{rules}");
    }
}

#[test]
fn a_player_that_skips_is_never_taken_for_late() {
    let (mut bench, first, second) = two_players("in-time", 18);
    for k in 3..6 {
        job(&mut bench, first, k, 18, 15);
    }
    // Job 3 was left out, so the next job may be a later one, too.
    job(&mut bench, second, 4, 38, 75);
    assert_eq!(budgets_us(&bench), (1_350, 7_650));
}

#[test]
fn in_overload_all_hold_their_shares_and_none_gives_back() {
    for rules in ["overload=costs", "overload=requests"] {
        let (mut bench, first, second) = two_players(rules, 19);
        assert_eq!(budgets_us(&bench), (4_500, 4_500), "{rules}");
        let settings = bench.settings.len();
        job(&mut bench, first, 3, 19, 15);
        job(&mut bench, second, 3, 12, 16);
        bench.wait_until(at(1_165));
        assert_eq!((budgets_us(&bench), bench.settings.len()), ((4_500, 4_500), settings), "{rules}: nothing moved");
    }
}

#[test]
fn an_overload_ends_when_the_mean_of_the_jobs_falls() {
    let (mut bench, first, second) = two_players("overload=costs", 19);
    job(&mut bench, first, 3, 4, 15);
    assert_eq!(budgets_us(&bench), (4_500, 4_500), "means of 0.381 and 0.475 CPU");
    job(&mut bench, second, 3, 4, 16);
    assert_eq!(budgets_us(&bench), (1_000, 1_000), "means of 0.381 CPU: both hold what they need");
}

#[test]
fn a_lone_application_is_never_in_overload() {
    let features = MechanismFeatures { gives_back: true, ..MechanismFeatures::default() };
    let (limits, allocation) = (Limits::of_capacity(share(40)), "floor,overload=costs".parse().unwrap());
    let mut bench = Bench::with_config(HostConfig { limits, features, allocation, ..HostConfig::default() });
    let app = bench.join_thread(&marked(), 1).unwrap();
    (0..3).for_each(|k| job(&mut bench, app, k, 30, 15));
    job(&mut bench, app, 3, 8, 15);
    assert_eq!(bench.budget_us(1), 2_000, "8 ms in 40 ms, not its whole share of 0.4 CPU");
}
