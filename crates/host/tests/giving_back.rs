//! Giving back: between its jobs a thread keeps a part of its share, and it has the rest again before the next
//! release.

mod common;

use common::{Bench, at, marked, share};
use qfabric_host::{HostConfig, HostEvent, Input, Limits, Outcome};
use qfabric_types::api::ApplicationScope;
use qfabric_types::ring::JobEvent;
use qfabric_types::{
    AppId, Class, Contract, Foresight, JobRecord, JobSource, MechanismFeatures, Nanos, Reclaiming, Sample, ThreadId,
};

fn bench(capacity: u32) -> Bench {
    let features = MechanismFeatures { gives_back: true, ..MechanismFeatures::default() };
    let limits = Limits::of_capacity(share(capacity));
    Bench::with_config(HostConfig { limits, features, max_threads: 8, ..HostConfig::default() })
}

/// Ends job `k` of `cost_ms`, `after_ms` after its release.
fn job(bench: &mut Bench, app: AppId, k: u64, cost_ms: u64, after_ms: u64) {
    let release = at(1_000 + 40 * k);
    let finish = release + Nanos::from_millis(after_ms);
    bench.wait_until(finish);
    let job = JobRecord { k, release, finish, cost: Nanos::from_millis(cost_ms), next: Foresight::Nothing };
    bench.input(qfabric_host::Input::Job { app, event: JobEvent::End(job) });
}

/// Two players with equal shares of 0.9 CPU; both have ended jobs of 18 ms, which need that share. (The host does not
/// compare costs with the time since the release.)
fn two_players() -> (Bench, AppId, AppId) {
    let mut bench = bench(90);
    let first = bench.join_thread(&marked(), 1).unwrap();
    let second = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..3 {
        job(&mut bench, first, k, 18, 15);
        job(&mut bench, second, k, 18, 16);
    }
    bench.wait_until(at(1_130));
    (bench, first, second)
}

#[test]
fn a_sleeping_thread_keeps_a_part_of_its_share_and_has_all_before_the_release() {
    let (mut bench, first, _) = two_players();
    job(&mut bench, first, 3, 18, 15);
    assert_eq!(bench.budget_us(1), 1_350, "30 % of half of 0.9 CPU");
    bench.wait_until(at(1_157));
    assert_eq!(bench.budget_us(1), 1_350);
    bench.wait_until(at(1_158));
    assert_eq!(bench.budget_us(1), 4_500, "2 ms before the release: what 18 ms in 40 ms need");
}

#[test]
fn bandwidth_given_back_or_lost_to_others_is_free_at_once() {
    let (mut bench, first, second) = two_players();
    job(&mut bench, first, 3, 18, 15);
    // 30 ms in 40 ms need 0.75 CPU, and 0.765 CPU is left beside 30 % of the other's share.
    job(&mut bench, second, 3, 30, 39);
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500), "both run now");
    job(&mut bench, first, 4, 18, 15);
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (1_350, 7_500), "at once, not a period later");
    assert_eq!(bench.host.held(), bench.in_force());
    bench.wait_until(at(1_198));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500), "both have their share when the job begins");
    assert_eq!(bench.host.held(), bench.in_force());
}

#[test]
fn bandwidth_lost_by_a_hard_reservation_is_free_a_period_later() {
    let mut bench = bench(90);
    let first = bench.join_thread(&marked().reclaimed_as(Reclaiming::Hard), 1).unwrap();
    for k in 0..4 {
        job(&mut bench, first, k, 28, 35);
    }
    assert_eq!(bench.budget_us(1), 7_000);
    bench.join_thread(&marked().reclaimed_as(Reclaiming::Hard), 2).unwrap();
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 2_000), "only what was free before");
    bench.wait_until(bench.now + common::P);
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500));
}

#[test]
fn taking_back_gets_the_free_part_while_another_application_still_holds_the_rest() {
    let (mut bench, first, second) = two_players();
    job(&mut bench, first, 3, 18, 15);
    let known = Foresight::Interval { low: Nanos::from_millis(30), high: Nanos::from_millis(30) };
    bench.input(qfabric_host::Input::Job { app: second, event: JobEvent::Begin { k: 3, known } });
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (1_350, 7_500));
    bench.outcomes = [Outcome::Busy, Outcome::Done].into();
    bench.wait_until(at(1_158));
    assert_eq!(bench.budget_us(1), 1_500, "more than it kept: 0.15 CPU is free beside the other's 0.75 CPU");
    bench.wait_until(at(1_170));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500));
}

#[test]
fn a_small_need_leaves_the_rest_of_the_share_until_a_job_costs_far_more_than_foreseen() {
    let (mut bench, first, _) = two_players();
    job(&mut bench, first, 3, 8, 15);
    bench.wait_until(at(1_158));
    assert_eq!(bench.budget_us(1), 2_000, "8 ms in 40 ms");
    job(&mut bench, first, 4, 11, 20);
    job(&mut bench, first, 5, 8, 15);
    bench.wait_until(at(1_238));
    assert_eq!(bench.budget_us(1), 4_500, "11 ms instead of the foreseen 8 ms: its share");
    (6..28).for_each(|k| job(&mut bench, first, k, 8, 15));
    bench.wait_until(at(2_118));
    assert_eq!(bench.budget_us(1), 4_500, "before the last of 24 jobs");
    job(&mut bench, first, 28, 8, 15);
    bench.wait_until(at(2_158));
    assert_eq!(bench.budget_us(1), 2_000);
}

#[test]
fn a_late_job_gives_nothing_back() {
    let (mut bench, first, _) = two_players();
    let settings = bench.settings.len();
    job(&mut bench, first, 3, 18, 39);
    assert!(bench.settings.len() <= settings + 1 && bench.budget_us(1) >= 4_500);
}

#[test]
fn a_thread_that_is_awake_is_tried_again_until_it_sleeps() {
    let (mut bench, first, _) = two_players();
    let before = bench.settings.len();
    bench.outcomes = [Outcome::Awake, Outcome::Awake].into();
    job(&mut bench, first, 3, 18, 15);
    assert_eq!((bench.budget_us(1), bench.settings.len() - before), (4_500, 1));
    bench.wait_until(at(1_137));
    assert_eq!((bench.budget_us(1), bench.settings.len() - before), (1_350, 3), "after 0.5 ms and another 1 ms");
}

#[test]
fn a_thread_that_never_sleeps_keeps_its_budget_and_attempts_are_bounded() {
    let (mut bench, first, _) = two_players();
    let before = bench.settings.len();
    bench.outcomes = vec![Outcome::Awake; 100].into();
    job(&mut bench, first, 3, 18, 15);
    bench.wait_until(at(1_157));
    assert!(bench.settings.len() - before <= 6, "{} attempts", bench.settings.len() - before);
    bench.outcomes.clear();
    bench.wait_until(at(1_300));
    assert_eq!(bench.budget_us(1), 4_500, "it gave nothing back");
}

#[test]
fn taking_back_is_tried_again_soon_if_the_mechanism_has_no_room() {
    let (mut bench, first, _) = two_players();
    job(&mut bench, first, 3, 18, 15);
    bench.outcomes = [Outcome::Busy].into();
    bench.wait_until(at(1_158));
    assert_eq!(bench.budget_us(1), 1_350);
    bench.wait_until(at(1_159));
    let taken = bench.budget_us(1);
    assert!(taken > 1_350, "1 ms later at least a part: {taken} us");
    bench.wait_until(at(1_170));
    assert_eq!(bench.budget_us(1), 4_500);
}

#[test]
fn shares_follow_weights_guarantees_and_the_present_applications() {
    let mut bench = bench(90);
    let heavy = bench.join_thread(&Contract { weight: 2, ..marked() }, 1).unwrap();
    let light = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..4 {
        job(&mut bench, heavy, k, 30, 3);
        job(&mut bench, light, k, 30, 4);
    }
    bench.wait_until(at(1_159));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (6_000, 3_000), "two thirds and one third of 0.9 CPU");
    bench.input(qfabric_host::Input::Leave { app: heavy });
    job(&mut bench, light, 4, 30, 3);
    bench.wait_until(at(1_199));
    assert_eq!(bench.budget_us(2), 7_500, "a lone application has what it needs");
    let guaranteed = Contract { class: Class::A, guaranteed: Some(share(60)), ..marked() };
    bench.join_thread(&guaranteed, 3).unwrap();
    job(&mut bench, light, 5, 30, 3);
    bench.wait_until(at(1_249));
    assert_eq!(bench.budget_us(2), 1_500, "half of what the guarantee leaves");
}

#[test]
fn a_job_that_cannot_be_in_time_gets_no_more_than_the_share_while_the_costs_fill_the_capacity() {
    let (mut bench, first, second) = two_players();
    job(&mut bench, first, 3, 18, 15);
    job(&mut bench, first, 4, 18, 15);
    // The next job has 5 ms for 38 ms.
    job(&mut bench, second, 3, 38, 75);
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (1_350, 4_500), "0.765 CPU is free, and not granted");
}

#[test]
fn a_job_that_cannot_be_in_time_gets_what_it_needs_while_all_needs_fit() {
    let mut bench = bench(180);
    let first = bench.join_thread(&marked(), 1).unwrap();
    let second = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..3 {
        job(&mut bench, first, k, 4, 15);
        job(&mut bench, second, k, 18, 16);
    }
    // The next job has 5 ms for 38 ms; the needs are 0.95 CPU and 0.1 CPU of 1.8 CPUs, and the share is 0.9 CPU.
    job(&mut bench, second, 3, 38, 75);
    assert_eq!(bench.budget_us(2), 9_500);
}

/// Otherwise its lateness would keep the host full, and the limit would keep it late.
#[test]
fn one_long_job_does_not_limit_a_player_whose_mean_cost_fits() {
    let mut bench = bench(90);
    let first = bench.join_thread(&marked(), 1).unwrap();
    let second = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..24 {
        job(&mut bench, first, k, 8, 5);
        job(&mut bench, second, k, 24, 30);
    }
    // It has 5 ms left for a job of 24 ms or more. 0.2 and 0.6 of 0.9 CPU fit; the share is 0.45 CPU.
    job(&mut bench, first, 24, 8, 5);
    job(&mut bench, second, 24, 48, 75);
    assert!(bench.budget_us(2) > 6_000, "{} us of 10 ms", bench.budget_us(2));
}

#[test]
fn a_job_that_is_limited_to_its_share_is_short_of_what_it_needs() {
    let (mut bench, first, second) = two_players();
    (3..5).for_each(|k| job(&mut bench, first, k, 18, 15));
    for k in 3..33 {
        job(&mut bench, second, k, 38, 75);
        job(&mut bench, first, k + 2, 18, 15);
    }
    assert_eq!(bench.budget_us(2), 4_500);
    let overload = bench.host.grant(second).unwrap().overload.expect("more than half of the last jobs were short");
    assert_eq!((overload.wanted, overload.granted), (share(95), share(45)));
    let satisfied = |event: &HostEvent| matches!(event, HostEvent::Satisfied { app, .. } if *app == second);
    assert!(!bench.events.iter().any(satisfied), "{:?}", bench.events);
}

#[test]
fn a_late_job_without_a_share_keeps_a_reservation_to_which_grub_lends() {
    let mut bench = bench(90);
    let first = bench.join_thread(&Contract { priority: 6, ..marked() }, 1).unwrap();
    let second = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..3 {
        job(&mut bench, first, k, 18, 15);
        job(&mut bench, second, k, 18, 16);
    }
    (3..5).for_each(|k| job(&mut bench, first, k, 18, 15));
    job(&mut bench, second, 3, 38, 75);
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (2_700, 10), "30 % of 0.9 CPU, and 0.001 CPU");
}

#[test]
fn a_job_can_be_in_time_as_long_as_its_contract_tolerates_and_on_one_cpu() {
    let tolerant = Contract { late: 1.0, ..marked() };
    let wide = Contract { max_bandwidth: share(200), ..marked() };
    // The next job has 5 ms: for 38 ms, with 40 ms of tolerance; and for 8 ms, of which 2 CPUs would do 10 ms.
    for (contract, cost_ms, expected_us) in [(tolerant, 38, 7_650), (wide, 8, 4_500)] {
        let mut bench = bench(90);
        let first = bench.join_thread(&marked(), 1).unwrap();
        let second = bench.join_thread(&contract, 2).unwrap();
        for k in 0..3 {
            job(&mut bench, first, k, 18, 15);
            job(&mut bench, second, k, 18, 16);
        }
        (3..5).for_each(|k| job(&mut bench, first, k, 18, 15));
        job(&mut bench, second, 3, cost_ms, 75);
        assert_eq!((bench.budget_us(1), bench.budget_us(2)), (1_350, expected_us), "{cost_ms} ms");
    }
}

#[test]
fn a_player_that_has_skipped_is_not_taken_for_late() {
    // Job 3 was left out, with a gap or as a job that ended at once, so the next job may be a later one, too.
    for ends_at_once in [false, true] {
        let (mut bench, first, second) = two_players();
        (3..6).for_each(|k| job(&mut bench, first, k, 18, 15));
        if ends_at_once {
            job(&mut bench, second, 3, 1, 36);
        }
        job(&mut bench, second, 4, 38, 75);
        assert_eq!((bench.budget_us(1), bench.budget_us(2)), (1_350, 7_650), "{ends_at_once}");
    }
}

#[test]
fn sixty_four_jobs_after_it_has_skipped_a_player_is_taken_for_late_again() {
    for (last, is_limited) in [(67, false), (68, true)] {
        let (mut bench, first, second) = two_players();
        // It rests when the last job ends, so 0.765 CPU is free.
        (3..last + 2).for_each(|k| job(&mut bench, first, k, 18, 15));
        (4..last).for_each(|k| job(&mut bench, second, k, 18, 16));
        job(&mut bench, second, last, 38, 75);
        assert_eq!(bench.budget_us(2) < 7_650, is_limited, "job {last}: {}", bench.budget_us(2));
    }
}

#[test]
fn contracts_that_cannot_give_back_are_governed_as_before() {
    let contracts = [
        Contract { give_back: false, ..marked() },
        marked().reclaimed_as(Reclaiming::Hard),
        Contract { jobs: qfabric_types::JobSource::Activations, ..marked() },
        Contract { period: Nanos::from_millis(5), server_period: Nanos::from_millis(5), ..marked() },
    ];
    for contract in contracts {
        let mut bench = bench(90);
        let app = bench.join_thread(&contract, 1).unwrap();
        for k in 0..3 {
            job(&mut bench, app, k, 8, 20);
        }
        let before = bench.settings.len();
        bench.wait_until(at(1_118));
        assert_eq!(bench.settings.len(), before, "nothing is given back or taken: {contract:?}");
    }
    let mut program = bench(90);
    let app = program.join(&marked(), ApplicationScope::Program, &[1, 2]).unwrap();
    for k in 0..3 {
        job(&mut program, app, k, 8, 20);
    }
    assert_eq!(program.budget_us(1), 2_000, "8 ms in 40 ms: a program with several threads does not give back");
}

#[test]
fn a_job_that_begins_early_ends_the_rest() {
    let (mut bench, first, _) = two_players();
    job(&mut bench, first, 3, 18, 15);
    bench.wait_until(at(1_140));
    let known = Foresight::Interval { low: Nanos::from_millis(18), high: Nanos::from_millis(18) };
    bench.input(qfabric_host::Input::Job { app: first, event: JobEvent::Begin { k: 4, known } });
    assert_eq!(bench.budget_us(1), 4_500);
}

#[test]
fn no_application_gives_back_if_that_costs_the_daemon_too_much() {
    let mut bench = bench(90);
    let apps: Vec<AppId> = (1..=10).map(|thread| bench.join_thread(&marked(), thread).unwrap()).collect();
    for k in 0..3 {
        apps.iter().for_each(|&app| job(&mut bench, app, k, 2, 10));
    }
    let before = bench.settings.len();
    bench.wait_until(at(1_117));
    assert_eq!(bench.settings.len(), before, "10 players with 25 jobs/s are above the limit of 240 jobs/s");
    bench.input(qfabric_host::Input::Leave { app: apps[9] });
    job(&mut bench, apps[0], 3, 2, 10);
    bench.wait_until(at(1_157));
    assert_eq!(bench.budget_us(1), 300, "30 % of a ninth of 0.9 CPU");
    bench.wait_until(at(1_159));
    assert_eq!(bench.budget_us(1), 500, "what 2 ms in 40 ms need");
}

/// Plays a film that is read in bursts: three frames of 5 ms each, every 120 ms.
fn bursts(bench: &mut Bench, app: AppId, thread: i32, from: u64, bursts: u64) -> u64 {
    for k in 0..bursts {
        bench.ran(app, thread, at(from + 120 * k), Nanos::from_millis(15), true);
    }
    bench.wait_until(at(from + 120 * bursts));
    from + 120 * bursts
}

fn unmarked() -> Contract {
    Contract { jobs: JobSource::Activations, reclaiming: Reclaiming::Grub, ..marked() }
}

#[test]
fn an_unmarked_program_reserves_its_mean_until_a_job_is_late_or_others_compete() {
    let mut bench = bench(90);
    let player = bench.join(&unmarked(), ApplicationScope::Program, &[1]).unwrap();
    let next = bursts(&mut bench, player, 1, 1_000, 10);
    assert!(bench.budget_us(1) >= 3_750, "15 ms within 40: {} µs in 10 ms", bench.budget_us(1));
    let next = bursts(&mut bench, player, 1, next, 60);
    let mean = 1_250.0 * 1.15;
    assert!((bench.budget_us(1) as f64 / mean - 1.0).abs() < 0.1, "15 ms in 120: {} µs in 10 ms", bench.budget_us(1));
    // A burst that has to wait until it is late.
    let (thread, used) = (ThreadId(1), Nanos::from_millis(15));
    bench.wait_until(at(next + 45));
    let (from, to) = (at(next), at(next + 45));
    bench.input(Input::Ran { app: player, sample: Sample { thread, from, to, used, slept: true } });
    bench.wait_until(at(next + 120));
    assert!(bench.budget_us(1) >= 3_750, "after a late job: {} µs in 10 ms", bench.budget_us(1));
    let next = bursts(&mut bench, player, 1, next + 120, 60);
    assert!(bench.budget_us(1) < 1_700, "the mean is relied on again: {} µs in 10 ms", bench.budget_us(1));
    // The jobs of others need half of the capacity, so little time is unused.
    let other = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..3 {
        let release = at(next + 40 * k);
        let job = JobRecord {
            k,
            release,
            finish: release + Nanos::from_millis(30),
            cost: Nanos::from_millis(26),
            next: Foresight::Nothing,
        };
        bench.wait_until(job.finish);
        bench.input(qfabric_host::Input::Job { app: other, event: JobEvent::End(job) });
    }
    assert!(bench.budget_us(1) >= 2_250, "beside others: {} µs in 10 ms", bench.budget_us(1));
}

#[test]
fn a_quiet_program_that_relies_on_unused_time_needs_no_timer() {
    let mut bench = bench(90);
    let player = bench.join(&unmarked(), ApplicationScope::Program, &[1]).unwrap();
    bursts(&mut bench, player, 1, 1_000, 60);
    bench.wait_until(at(60_000));
    assert_eq!(bench.host.next_wakeup(), None);
    assert!(bench.budget_us(1) <= 10, "at rest it keeps the floor: {} µs in 10 ms", bench.budget_us(1));
}
