//! Between its jobs a thread keeps a part of its share; it has the rest back before the next release.

mod common;

use common::{Bench, at, marked, share};
use qfabric_host::{HostConfig, Input, Limits, Outcome};
use qfabric_types::api::Covers;
use qfabric_types::ring::JobEvent;
use qfabric_types::{
    Abilities, AppId, Class, Contract, Foresight, JobRecord, JobSource, Nanos, Reclaiming, Sample, ThreadId,
};

fn bench(capacity: u32) -> Bench {
    let abilities = Abilities { gives_back: true, ..Abilities::default() };
    let limits = Limits::of_capacity(share(capacity));
    Bench::with_config(HostConfig { limits, abilities, max_threads: 8, ..HostConfig::default() })
}

/// Job `k` of `cost_ms` ends `after_ms` after its release.
fn job(bench: &mut Bench, app: AppId, k: u64, cost_ms: u64, after_ms: u64) {
    let release = at(1_000 + 40 * k);
    let finish = release + Nanos::from_millis(after_ms);
    bench.wait_until(finish);
    let job = JobRecord { k, release, finish, cost: Nanos::from_millis(cost_ms), next: Foresight::Nothing };
    bench.input(qfabric_host::Input::Job { app, event: JobEvent::End(job) });
}

/// Two players with equal shares of 0.9 CPUs; both have ended jobs of 14 ms.
fn two_players() -> (Bench, AppId, AppId) {
    let mut bench = bench(90);
    let first = bench.join_thread(&marked(), 1).unwrap();
    let second = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..3 {
        job(&mut bench, first, k, 14, 15);
        job(&mut bench, second, k, 14, 16);
    }
    bench.wait_until(at(1_130));
    (bench, first, second)
}

#[test]
fn a_sleeper_keeps_a_part_of_its_share_and_has_all_back_before_the_release() {
    let (mut bench, first, _) = two_players();
    job(&mut bench, first, 3, 14, 15);
    assert_eq!(bench.budget_us(1), 1_350, "30 % of half of 0.9 CPUs");
    bench.wait_until(at(1_157));
    assert_eq!(bench.budget_us(1), 1_350);
    bench.wait_until(at(1_158));
    assert_eq!(bench.budget_us(1), 4_500, "2 ms before the release: its share, though 14 ms in 40 want less");
}

#[test]
fn what_is_given_back_or_lost_to_others_is_free_at_once() {
    let (mut bench, first, second) = two_players();
    job(&mut bench, first, 3, 14, 15);
    // 30 ms in 40 want 0.75 CPUs, and 0.765 are left beside 30 % of the other's share.
    job(&mut bench, second, 3, 30, 39);
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500), "both run now");
    job(&mut bench, first, 4, 14, 15);
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (1_350, 7_500), "at once, not a period later");
    assert_eq!(bench.host.held(), bench.in_force());
    bench.wait_until(at(1_198));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500), "both have their share when the job begins");
    assert_eq!(bench.host.held(), bench.in_force());
}

#[test]
fn what_a_hard_reservation_loses_is_free_a_period_later() {
    let mut bench = bench(90);
    let first = bench.join_thread(&marked().reclaimed_as(Reclaiming::Hard), 1).unwrap();
    for k in 0..4 {
        job(&mut bench, first, k, 28, 35);
    }
    assert_eq!(bench.budget_us(1), 7_000);
    bench.join_thread(&marked().reclaimed_as(Reclaiming::Hard), 2).unwrap();
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 2_000), "what was free before");
    bench.wait_until(bench.now + common::P);
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500));
}

#[test]
fn who_takes_back_gets_what_there_is_while_another_has_not_let_go() {
    let (mut bench, first, second) = two_players();
    job(&mut bench, first, 3, 14, 15);
    let known = Foresight::Interval { low: Nanos::from_millis(30), high: Nanos::from_millis(30) };
    bench.input(qfabric_host::Input::Job { app: second, event: JobEvent::Begin { k: 3, known } });
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (1_350, 7_500));
    bench.outcomes = [Outcome::Busy, Outcome::Done].into();
    bench.wait_until(at(1_158));
    assert_eq!(bench.budget_us(1), 1_500, "not what it kept: 0.15 CPUs are beside the other's 0.75");
    bench.wait_until(at(1_170));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500));
}

#[test]
fn who_needs_little_leaves_the_rest_of_its_share_until_a_job_costs_far_more_than_foreseen() {
    let (mut bench, first, _) = two_players();
    job(&mut bench, first, 3, 8, 15);
    bench.wait_until(at(1_158));
    assert_eq!(bench.budget_us(1), 2_600, "8 ms in 40, and 30 % more");
    job(&mut bench, first, 4, 11, 20);
    job(&mut bench, first, 5, 8, 15);
    bench.wait_until(at(1_238));
    assert_eq!(bench.budget_us(1), 4_500, "11 ms where 8 were foreseen: its share");
    (6..20).for_each(|k| job(&mut bench, first, k, 8, 15));
    bench.wait_until(at(1_798));
    assert_eq!(bench.budget_us(1), 4_500, "before the last of 16 jobs");
    job(&mut bench, first, 20, 8, 15);
    bench.wait_until(at(1_838));
    assert_eq!(bench.budget_us(1), 2_600);
}

#[test]
fn a_late_job_gives_nothing_back() {
    let (mut bench, first, _) = two_players();
    let settings = bench.settings.len();
    job(&mut bench, first, 3, 14, 39);
    assert!(bench.settings.len() <= settings + 1 && bench.budget_us(1) >= 4_500);
}

#[test]
fn a_thread_that_is_awake_is_tried_again_until_it_sleeps() {
    let (mut bench, first, _) = two_players();
    let before = bench.settings.len();
    bench.outcomes = [Outcome::Awake, Outcome::Awake].into();
    job(&mut bench, first, 3, 14, 15);
    assert_eq!((bench.budget_us(1), bench.settings.len() - before), (4_500, 1));
    bench.wait_until(at(1_137));
    assert_eq!((bench.budget_us(1), bench.settings.len() - before), (1_350, 3), "after 0.5 and 1 ms more");
}

#[test]
fn a_thread_that_never_sleeps_keeps_what_it_has_and_is_not_tried_for_ever() {
    let (mut bench, first, _) = two_players();
    let before = bench.settings.len();
    bench.outcomes = vec![Outcome::Awake; 100].into();
    job(&mut bench, first, 3, 14, 15);
    bench.wait_until(at(1_157));
    assert!(bench.settings.len() - before <= 6, "{} attempts", bench.settings.len() - before);
    bench.outcomes.clear();
    bench.wait_until(at(1_300));
    assert_eq!(bench.budget_us(1), 4_500, "it never gave anything back");
}

#[test]
fn taking_back_is_tried_again_soon_where_the_mechanism_has_no_room() {
    let (mut bench, first, _) = two_players();
    job(&mut bench, first, 3, 14, 15);
    bench.outcomes = [Outcome::Busy].into();
    bench.wait_until(at(1_158));
    assert_eq!(bench.budget_us(1), 1_350);
    bench.wait_until(at(1_159));
    let taken = bench.budget_us(1);
    assert!(taken > 1_350, "1 ms later, at least a part: {taken} us");
    bench.wait_until(at(1_170));
    assert_eq!(bench.budget_us(1), 4_500);
}

#[test]
fn shares_follow_weights_guarantees_and_who_is_there() {
    let mut bench = bench(90);
    let heavy = bench.join_thread(&Contract { weight: 2, ..marked() }, 1).unwrap();
    let light = bench.join_thread(&marked(), 2).unwrap();
    for k in 0..4 {
        job(&mut bench, heavy, k, 30, 3);
        job(&mut bench, light, k, 30, 4);
    }
    bench.wait_until(at(1_159));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (6_000, 3_000), "two thirds and one of 0.9 CPUs");
    bench.input(qfabric_host::Input::Leave { app: heavy });
    job(&mut bench, light, 4, 30, 3);
    bench.wait_until(at(1_199));
    assert_eq!(bench.budget_us(2), 9_000, "alone it has the whole capacity");
    let guaranteed = Contract { class: Class::A, guaranteed: Some(share(60)), ..marked() };
    bench.join_thread(&guaranteed, 3).unwrap();
    job(&mut bench, light, 5, 30, 3);
    bench.wait_until(at(1_249));
    assert_eq!(bench.budget_us(2), 1_500, "half of what the guarantee leaves");
}

#[test]
fn others_keep_the_law_without_giving_back() {
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
        assert_eq!(bench.settings.len(), before, "nothing is given back, nothing taken: {contract:?}");
    }
    let mut program = bench(90);
    let app = program.join(&marked(), Covers::Program, &[1, 2]).unwrap();
    for k in 0..3 {
        job(&mut program, app, k, 8, 20);
    }
    assert_eq!(program.budget_us(1), 2_000, "8 ms in 40: of several threads none rests");
}

#[test]
fn a_job_that_begins_early_ends_the_rest() {
    let (mut bench, first, _) = two_players();
    job(&mut bench, first, 3, 14, 15);
    bench.wait_until(at(1_140));
    let known = Foresight::Interval { low: Nanos::from_millis(14), high: Nanos::from_millis(14) };
    bench.input(qfabric_host::Input::Job { app: first, event: JobEvent::Begin { k: 4, known } });
    assert_eq!(bench.budget_us(1), 4_500);
}

#[test]
fn nobody_gives_back_where_that_would_cost_the_daemon_too_much() {
    let mut bench = bench(90);
    let apps: Vec<AppId> = (1..=21).map(|thread| bench.join_thread(&marked(), thread).unwrap()).collect();
    for k in 0..3 {
        apps.iter().for_each(|&app| job(&mut bench, app, k, 2, 10));
    }
    let before = bench.settings.len();
    bench.wait_until(at(1_117));
    assert_eq!(bench.settings.len(), before, "21 players of 25 jobs a second are more than 500");
    bench.input(qfabric_host::Input::Leave { app: apps[20] });
    job(&mut bench, apps[0], 3, 2, 10);
    bench.wait_until(at(1_157));
    assert_eq!(bench.budget_us(1), 135, "30 % of a twentieth of 0.9 CPUs");
    bench.wait_until(at(1_159));
    assert_eq!(bench.budget_us(1), 450);
}

/// A film that is read in bursts: three frames of 5 ms each, every 120 ms.
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
fn an_unmarked_program_that_is_lent_the_rest_reserves_its_mean_until_a_job_is_late_or_others_compete() {
    let mut bench = bench(90);
    let player = bench.join(&unmarked(), Covers::Program, &[1]).unwrap();
    let next = bursts(&mut bench, player, 1, 1_000, 10);
    assert!(bench.budget_us(1) >= 3_750, "15 ms within 40: {} µs in 10 ms", bench.budget_us(1));
    let next = bursts(&mut bench, player, 1, next, 60);
    let mean = 1_250.0 * 1.15;
    assert!((bench.budget_us(1) as f64 / mean - 1.0).abs() < 0.1, "15 ms in 120: {} µs in 10 ms", bench.budget_us(1));
    // A burst that is kept waiting until it is late.
    let (thread, used) = (ThreadId(1), Nanos::from_millis(15));
    bench.wait_until(at(next + 45));
    let (from, to) = (at(next), at(next + 45));
    bench.input(Input::Ran { app: player, sample: Sample { thread, from, to, used, slept: true } });
    bench.wait_until(at(next + 120));
    assert!(bench.budget_us(1) >= 3_750, "after a late job: {} µs in 10 ms", bench.budget_us(1));
    let next = bursts(&mut bench, player, 1, next + 120, 60);
    assert!(bench.budget_us(1) < 1_700, "it is trusted again: {} µs in 10 ms", bench.budget_us(1));
    // Others whose jobs need half of the capacity, and nobody has to lend.
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
fn a_quiet_program_that_is_lent_to_costs_no_timer() {
    let mut bench = bench(90);
    let player = bench.join(&unmarked(), Covers::Program, &[1]).unwrap();
    bursts(&mut bench, player, 1, 1_000, 60);
    bench.wait_until(at(60_000));
    assert_eq!(bench.host.next_wakeup(), None);
    assert!(bench.budget_us(1) <= 10, "at rest it keeps the floor: {} µs in 10 ms", bench.budget_us(1));
}
