//! The promises of a host, as plans.

mod common;

use common::*;
use qfabric_host::{HostEvent, Input, Limits, Outcome};
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::ring::{Checkpoint, JobEvent};
use qfabric_types::{AppId, Class, Contract, Instant, JobSource, Nanos, Owner, Sample, Share, ThreadId};

#[test]
fn an_admitted_thread_starts_with_its_maximum_and_follows_its_jobs() {
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&marked(), 7).unwrap();
    assert_eq!(bench.budget_us(7), 9_000, "without a prediction: the whole capacity");
    bench.job(app, 0, 12, 0);
    assert_eq!(bench.budget_us(7), 3_000, "12 ms in four periods");
    bench.job(app, 1, 16, 0);
    assert_eq!(bench.budget_us(7), 4_000);
    bench.job(app, 2, 12, 5);
    assert_eq!(bench.budget_us(7), 4_000, "late by one server period: 12 ms in three periods");
    let seen = bench.host.application(app).unwrap();
    assert_eq!((seen.quality.jobs, seen.quality.misses), (3, 1));
    assert_eq!((seen.wanted, seen.granted), (share(40), share(40)));
    assert_eq!(seen.used, Share::from_ppm(333_334));
}

#[test]
fn a_job_whose_clock_changes_at_a_checkpoint_is_not_learned() {
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&marked(), 7).unwrap();
    bench.job(app, 0, 12, 0);
    let (left_run, left_time) = (Nanos::from_millis(9), Nanos::from_millis(5));
    let late = Checkpoint { k: 1, left_run, left_time, levels: 0 };
    bench.input(Input::Job { app, event: JobEvent::Checkpoint(late) });
    bench.job(app, 1, 8, 0);
    assert_eq!(bench.budget_us(7), 3_000, "12 ms in four periods, as before");
    bench.job(app, 2, 8, 0);
    assert_eq!(bench.budget_us(7), 2_000);
    assert_eq!(bench.host.application(app).unwrap().quality.jobs, 3, "it counts as a job");
}

#[test]
fn a_constant_job_changes_no_setting() {
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&marked(), 7).unwrap();
    bench.job(app, 0, 12, 0);
    let before = bench.settings.len();
    for k in 1..100 {
        bench.job(app, k, 12, 0);
    }
    assert_eq!(bench.settings.len(), before);
}

#[test]
fn the_next_decision_is_due_before_its_release() {
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&marked(), 7).unwrap();
    assert_eq!(bench.host.look_at(app), Instant::ZERO, "no job has ended yet");
    bench.job(app, 0, 12, 0);
    assert_eq!(bench.host.look_at(app), at(1_078), "job 1 ends before 1080, 2 ms before job 2");
    assert_eq!(bench.host.next_wakeup(), Some(at(1_050)), "before that, the room of the old budget becomes free");
    bench.wait_until(at(1_079));
    assert_eq!(bench.host.look_at(app), Instant::ZERO, "job 1 is overdue: the application must wake the daemon");
    assert_eq!(bench.host.next_wakeup(), None);
    assert_eq!(bench.host.grant(app).map(|g| (g.budget, g.jobs)), Some((Nanos::from_millis(3), 1)));
}

#[test]
fn reservations_never_exceed_the_capacity_and_increases_wait_for_decreases() {
    let mut bench = Bench::new(share(90));
    let first = bench.join_thread(&marked(), 1).unwrap();
    let second = bench.join_thread(&marked(), 2).unwrap();
    assert_eq!(
        (bench.budget_us(1), bench.budget_us(2)),
        (4_500, 0),
        "the first one shrinks, but its room is not free yet"
    );
    bench.wait_until(at(1_010));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (4_500, 4_500));
    bench.job(first, 0, 12, 0);
    bench.wait_until(at(1_050));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (3_000, 6_000));
    let told = |event: &HostEvent| matches!(event, HostEvent::Saturated { app, .. } if *app == second);
    assert!(bench.events.iter().any(told), "{:?}", bench.events);
}

#[test]
fn unanswered_settings_count_with_the_larger_of_old_and_new() {
    let mut bench = Bench::new(share(90));
    bench.join_thread(&marked(), 1).unwrap();
    bench.hold_back = true;
    bench.join_thread(&marked(), 2).unwrap();
    bench.wait_until(at(2_000));
    assert_eq!(bench.unanswered.len(), 1, "only the decrease of thread 1; no room is free yet");
    bench.hold_back = false;
    bench.catch_up();
    assert_eq!(bench.budget_us(2), 0);
    bench.wait_until(at(2_010));
    assert_eq!(bench.budget_us(2), 4_500);
}

#[test]
fn a_busy_mechanism_receives_smaller_settings() {
    let mut bench = Bench::new(share(90));
    bench.outcomes = [Outcome::Busy, Outcome::Busy].into();
    bench.join_thread(&marked(), 7).unwrap();
    assert_eq!(bench.budget_us(7), 0);
    bench.wait_until(at(1_100));
    let asked: Vec<_> = bench.settings.iter().map(|s| s.reservation.unwrap().budget().get() / 1_000).collect();
    assert_eq!(asked, [9_000, 4_500, 2_250, 9_000], "after it obeyed, the rest is requested again");
    let busy = |event: &&HostEvent| matches!(event, HostEvent::Busy { .. });
    assert_eq!(bench.events.iter().filter(busy).count(), 2);
}

#[test]
fn a_denied_thread_goes_back_and_is_left_alone_until_the_contract_changes() {
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&marked(), 7).unwrap();
    bench.outcomes = [Outcome::Denied(1)].into();
    bench.job(app, 0, 12, 0);
    assert_eq!(bench.budget_us(7), 0, "returned to the normal scheduler");
    assert!(bench.events.contains(&HostEvent::Denied { app, thread: ThreadId(7), errno: 1 }));
    let before = bench.settings.len();
    bench.job(app, 1, 20, 0);
    assert_eq!(bench.settings.len(), before);
    assert_eq!(bench.host.application(app).unwrap().granted, Share::ZERO);
    bench.change(app, &marked()).unwrap();
    assert_eq!(bench.budget_us(7), 5_000);
}

#[test]
fn a_thread_that_is_gone_frees_its_room() {
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&marked(), 1).unwrap();
    bench.outcomes = [Outcome::Gone].into();
    bench.job(app, 0, 12, 0);
    assert!(bench.events.contains(&HostEvent::Empty { app }));
    assert_eq!(bench.host.held(), Share::ZERO);
    assert_eq!(bench.host.covering(ThreadId(1)), None);
}

#[test]
fn leaving_restores_every_thread_and_is_then_reported() {
    let mut bench = Bench::new(share(90));
    let app = bench.join(&marked(), ApplicationScope::Program, &[1, 2, 3]).unwrap();
    bench.wait_until(at(2_000));
    assert!(bench.kernel.len() >= 2, "{:?}", bench.kernel);
    bench.hold_back = true;
    bench.input(Input::Leave { app });
    assert!(!bench.events.contains(&HostEvent::Left { app }));
    bench.hold_back = false;
    bench.catch_up();
    assert!(bench.kernel.is_empty());
    assert!(bench.events.contains(&HostEvent::Left { app }));
    bench.wait_until(at(3_000));
    assert_eq!(bench.host.held(), Share::ZERO);
    assert!(bench.host.status().applications.is_empty());
}

#[test]
fn refusals_have_stable_codes_and_change_nothing() {
    let mut bench = Bench::with_limits(Limits { users: [(8, Share::ZERO)].into(), ..Limits::of_capacity(share(90)) });
    let code = |answer: Result<AppId, qfabric_types::api::Problem>| answer.unwrap_err().code;
    let mut bad = marked();
    bad.weight = 0;
    assert_eq!(code(bench.join_thread(&bad, 1)), "invalid_contract");
    assert_eq!(code(bench.join(&marked(), ApplicationScope::Program, &[])), "not_found");
    assert_eq!(
        code(bench.join(&marked(), ApplicationScope::Program, &[1, 2, 3, 4, 5, 6, 7, 8, 9])),
        "too_many_threads"
    );
    let mut greedy = marked();
    (greedy.class, greedy.guaranteed) = (Class::A, Some(share(50)));
    let app = bench.join_thread(&greedy, 1).unwrap();
    let problem = bench.join_thread(&greedy, 2).unwrap_err();
    assert_eq!((problem.code.as_str(), problem.free), ("over_committed", Some(share(40))));
    assert_eq!(problem.holders.len(), 1);
    assert_eq!(code(bench.join_thread(&marked(), 1)), "already_covered");
    assert_eq!(code(bench.change(AppId(99), &marked())), "not_found");
    (greedy.guaranteed, greedy.max_bandwidth) = (Some(share(91)), share(95));
    assert_eq!(code(bench.change(app, &greedy)), "over_committed");
    assert_eq!(bench.host.application(app).unwrap().contract.guaranteed, Some(share(50)));
    let join = Input::Join {
        request: 1,
        pid: 5,
        owner: qfabric_types::Owner { uid: 8, gid: 8 },
        covers: ApplicationScope::Program,
        threads: vec![ThreadId(5)],
        contract: marked(),
        cpus: None,
    };
    assert_eq!(code(bench.input(join).unwrap()), "not_permitted");
}

#[test]
fn threads_above_the_bound_are_left_out_and_reported() {
    let mut bench = Bench::new(share(90));
    let app = bench.join(&marked(), ApplicationScope::Program, &[1]).unwrap();
    for thread in 2..1_000 {
        bench.input(Input::ThreadBorn { app, thread: ThreadId(thread) });
    }
    assert_eq!(bench.host.application(app).unwrap().threads.len(), 8);
    let told = bench.events.iter().filter(|e| matches!(e, HostEvent::TooManyThreads { limit: 8, .. })).count();
    assert!((1..=10).contains(&told), "{told} events for 991 births");
}

#[test]
fn new_threads_get_a_small_reservation_at_once() {
    let mut bench = Bench::new(share(90));
    let app = bench.join(&marked(), ApplicationScope::Program, &[1]).unwrap();
    bench.job(app, 0, 12, 0);
    bench.input(Input::ThreadBorn { app, thread: ThreadId(2) });
    bench.wait_until(at(1_060));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (3_000, 10));
}

#[test]
fn activations_of_an_unmarked_thread_are_its_jobs() {
    let mut contract = marked();
    contract.jobs = JobSource::Activations;
    let mut bench = Bench::new(share(90));
    let app = bench.join(&contract, ApplicationScope::Program, &[1]).unwrap();
    for k in 0..10 {
        bench.ran(app, 1, at(1_000 + 40 * k), Nanos::from_millis(12), true);
    }
    bench.wait_until(at(1_398));
    assert_eq!(bench.budget_us(1), 3_000);
    assert_eq!(bench.host.application(app).unwrap().quality.jobs, 10);
    bench.wait_until(at(10_000));
    assert_eq!(bench.host.next_wakeup(), None, "a quiet thread needs no timer");
    assert_eq!(bench.budget_us(1), 3_000, "its next job needs no less");
}

#[test]
fn the_busiest_thread_is_the_lead() {
    let mut contract = marked();
    contract.jobs = JobSource::Activations;
    let mut bench = Bench::new(share(90));
    let app = bench.join(&contract, ApplicationScope::Program, &[1, 2]).unwrap();
    for k in 0..60 {
        bench.ran(app, 1, at(1_000 + 40 * k), Nanos::from_millis(1), true);
        bench.ran(app, 2, at(1_005 + 40 * k), Nanos::from_millis(12), true);
    }
    bench.wait_until(at(3_500));
    assert_eq!(bench.budget_us(2), 3_000, "its jobs are measured exactly");
}

#[test]
fn a_main_thread_that_sleeps_while_another_works_holds_nothing() {
    for jobs in [JobSource::Consumption, JobSource::Auto] {
        let mut bench = Bench::new(share(90));
        let app = bench.join(&Contract { jobs, ..marked() }, ApplicationScope::Program, &[1, 2]).unwrap();
        for k in 0..100 {
            bench.ran(app, 2, at(1_000 + 40 * k), Nanos::from_millis(2), true);
        }
        bench.wait_until(at(5_200));
        assert!(bench.budget_us(1) <= 100, "{jobs:?}: {} µs", bench.budget_us(1));
        assert!((400..1_000).contains(&bench.budget_us(2)), "{jobs:?}: {} µs", bench.budget_us(2));
    }
}

#[test]
fn impossible_inputs_are_counted_and_change_nothing() {
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&marked(), 7).unwrap();
    let before = bench.settings.len();
    bench.events.clear();
    bench.ran(app, 7, at(1_000), Nanos::ZERO, true);
    let backwards = Sample { thread: ThreadId(7), from: at(9), to: at(3), used: Nanos::ZERO, slept: true };
    bench.input(Input::Ran { app, sample: backwards });
    bench.input(Input::Leave { app: AppId(77) });
    bench.input(Input::Applied { thread: ThreadId(7), outcome: Outcome::Done });
    bench.input(Input::ThreadGone { app, thread: ThreadId(99) });
    for (release, finish) in [(at(9_000), at(9_001)), (at(900), at(1)), (at(1), at(9_000))] {
        let job = qfabric_types::JobRecord {
            k: 0,
            release,
            finish,
            cost: Nanos::ZERO,
            next: qfabric_types::Foresight::Nothing,
        };
        bench.input(Input::Job { app, event: qfabric_types::ring::JobEvent::End(job) });
    }
    assert_eq!(bench.events, [1, 2, 4].map(|count| HostEvent::Ignored { count }));
    assert_eq!(bench.settings.len(), before);
}

#[test]
fn a_smaller_capacity_shrinks_reservations_in_force() {
    let mut bench = Bench::new(share(90));
    let mut contract = marked();
    (contract.class, contract.guaranteed) = (Class::A, Some(share(60)));
    bench.join_thread(&contract, 7).unwrap();
    bench.input(Input::Capacity(share(50)));
    assert_eq!(bench.budget_us(7), 5_000);
    assert!(bench.events.contains(&HostEvent::GuaranteesCut { capacity: share(50), guaranteed: share(60) }));
}

#[test]
fn a_lower_user_maximum_shrinks_reservations_down_to_the_guarantee() {
    let mut bench = Bench::new(share(90));
    let mut contract = marked();
    (contract.class, contract.guaranteed) = (Class::A, Some(share(30)));
    let app = bench.join_thread(&contract, 7).unwrap();
    assert_eq!(bench.budget_us(7), 9_000, "a controller without jobs requests the maximum");
    let lower = |percent| {
        let limits = Limits { users: [(ME.uid, share(percent))].into(), ..Limits::of_capacity(share(90)) };
        Input::Limits { limits, max_applications: 1, max_threads: 8 }
    };
    bench.input(lower(50));
    assert_eq!(bench.budget_us(7), 5_000);
    bench.input(lower(0));
    assert_eq!(bench.budget_us(7), 3_000);
    bench.change(app, &Contract { weight: 3, ..contract.clone() }).expect("its guarantee is not admitted again");
    assert!(bench.join_thread(&marked(), 8).unwrap_err().code == "too_many_applications");
    bench.input(lower(90));
    assert_eq!(bench.budget_us(7), 9_000);
}

#[test]
fn an_unmarked_program_gets_what_it_consumes_and_comes_to_rest() {
    let mut contract = marked();
    contract.jobs = JobSource::Consumption;
    let mut bench = Bench::new(share(90));
    let app = bench.join(&contract, ApplicationScope::Program, &[1, 2, 3]).unwrap();
    for k in 0..100 {
        bench.ran(app, 1, at(1_000 + 40 * k), Nanos::from_millis(8), true);
    }
    let budget = bench.budget_us(1);
    assert!((2_200..=2_500).contains(&budget), "8 ms in 40 and a margin: {budget} µs in 10 ms");
    let at_rest = 9..=10;
    assert!(at_rest.contains(&bench.budget_us(2)) && at_rest.contains(&bench.budget_us(3)));
    bench.wait_until(at(20_000));
    assert!(at_rest.contains(&bench.budget_us(1)));
    assert_eq!(bench.host.next_wakeup(), None, "a program at rest needs no timer");
}

/// A program like stress-ng: the main thread sleeps, two workers use as much CPU time as they get.
#[test]
fn a_report_covers_all_threads_of_a_program_together() {
    let contract = Contract { jobs: JobSource::Consumption, max_bandwidth: share(80), ..marked() };
    let mut bench = Bench::new(share(90));
    let app = bench.join(&contract, ApplicationScope::Program, &[1, 2, 3]).unwrap();
    let mut held = Vec::new();
    for k in 0..200 {
        for thread in [2, 3] {
            bench.ran(app, thread, at(1_000 + 40 * k), Nanos::from_millis(16), false);
        }
        bench.wait_until(at(1_000 + 40 * (k + 1)));
        held.push(bench.in_force().as_f64());
    }
    let seen = bench.host.application(app).unwrap();
    let mean = held.iter().sum::<f64>() / held.len() as f64;
    assert!(
        mean > 0.5 && (seen.quality.mean_bandwidth - mean).abs() < 0.05,
        "{} of {mean}",
        seen.quality.mean_bandwidth
    );
    assert!((seen.used.as_f64() - 0.8).abs() < 0.02, "two threads with 16 of 40 ms: {}", seen.used);
    assert_eq!((seen.quality.jobs, seen.quality.misses), (0, 0), "without a period there are no jobs to count");
}

#[test]
fn many_threads_at_rest_leave_most_to_the_working_one() {
    let mut contract = marked();
    contract.max_bandwidth = share(10);
    let mut bench = Bench::new(share(90));
    let app = bench.join(&contract, ApplicationScope::Program, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    bench.job(app, 0, 12, 0);
    bench.wait_until(at(1_200));
    assert!(bench.budget_us(1) >= 750, "{} µs of the 1000 the contract allows", bench.budget_us(1));
}

#[test]
fn a_profile_determines_the_guarantee_of_class_a() {
    let mut contract = marked();
    contract.class = Class::A;
    contract.profile = Some(qfabric_types::Profile { costs: vec![Nanos::from_millis(8); 50], hints: vec![] });
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&contract, 1).unwrap();
    let guaranteed = bench.host.application(app).unwrap().guaranteed;
    assert!(guaranteed >= share(20) && guaranteed < share(60), "{guaranteed}");
    let invariance = bench.host.application(app).unwrap().invariance.expect("the contract has a profile");
    assert!(invariance.holds && invariance.alpha == 1.0, "{invariance:?}");
    let shown = [bench.host.application(app), bench.host.status().applications.pop()].map(Option::unwrap);
    assert!(shown.iter().all(|app| app.contract.profile.is_none()), "a long profile is not copied for each reader");
    let in_force = bench.host.contract(app).unwrap();
    assert_eq!(in_force.profile, contract.profile, "a decision about the contract must not lose it");
    contract.profile = None;
    let refused = bench.change(app, &contract).unwrap_err();
    assert_eq!(refused.code, "no_profile", "class A that needs a whole CPU by default");
    assert!(refused.next_step.contains("qfabric probe") && refused.next_step.contains("--max-bandwidth"));
    contract.max_bandwidth = share(40);
    bench.change(app, &contract).unwrap();
    assert_eq!(bench.host.application(app).unwrap().guaranteed, share(40), "the largest bandwidth of its own contract");
}

#[test]
fn class_a_is_refused_an_unattainable_target_and_other_classes_are_informed() {
    let costs = (0..100).map(|k| Nanos::from_millis(if k % 2 == 0 { 4 } else { 12 })).collect();
    let profile = Some(qfabric_types::Profile { costs, hints: vec![] });
    let predictor = "ma:3".parse().unwrap();
    let of = |class| qfabric_types::Contract { class, predictor, rho: 1.0, profile: profile.clone(), ..marked() };
    let mut bench = Bench::new(share(90));
    let refused = bench.join_thread(&of(Class::A), 1).unwrap_err();
    assert_eq!(refused.code, "not_attainable");
    for part in ["0.750", "α = 0.277", "class B"] {
        assert!(format!("{} {}", refused.message, refused.next_step).contains(part), "{refused:?}");
    }
    for (class, thread) in [(Class::B, 2), (Class::C, 3)] {
        let app = bench.join_thread(&of(class), thread).unwrap();
        let stated = bench.host.application(app).unwrap().invariance.expect("the answer contains it");
        assert!(!stated.holds && stated.alpha < stated.least_alpha, "{stated:?}");
    }
}

#[test]
fn a_mechanism_that_is_always_busy_receives_a_bounded_number_of_settings() {
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&marked(), 7).unwrap();
    bench.outcomes = vec![Outcome::Busy; 10_000].into();
    for k in 0..25 {
        // Decreases are refused as well, and increases within what is still booked.
        bench.job(app, k, if u64::is_multiple_of(k, 2) { 12 } else { 24 }, 0);
    }
    let asked = 10_000 - bench.outcomes.len();
    assert!(asked <= 60, "asked {asked} times in a second");
}

fn keep(bench: &mut Bench, percent: u32) -> Result<AppId, Problem> {
    let input = Input::Keep { request: 1, name: "for alpha".to_owned(), owner: Owner::NOBODY, share: share(percent) };
    bench.input(input).expect("every request is answered")
}

#[test]
fn a_kept_share_is_guaranteed_to_no_other_application_but_may_be_used() {
    let mut bench = Bench::new(share(90));
    let kept = keep(&mut bench, 60).unwrap();
    bench.join_thread(&marked(), 7).unwrap();
    assert_eq!(bench.budget_us(7), 9_000, "no application uses it yet");
    let wants = Contract { class: Class::A, guaranteed: Some(share(40)), max_bandwidth: share(40), ..marked() };
    let refused = bench.join_thread(&wants, 8).unwrap_err();
    assert_eq!((refused.code.as_str(), refused.free), ("over_committed", Some(share(30))));
    assert_eq!((refused.holders[0].name.as_str(), refused.holders[0].share), ("for alpha", share(60)));
    assert_eq!(keep(&mut bench, 31).unwrap_err().code, "over_committed");
    assert_eq!((bench.host.free(), bench.host.status().applications.len()), (share(30), 1));
    bench.input(Input::Leave { app: kept });
    bench.join_thread(&wants, 8).unwrap();
}

#[test]
fn kept_shares_count_against_the_maximum_of_user_nobody() {
    let users = [(65_534, share(30))].into();
    let mut bench = Bench::with_limits(Limits { users, ..Limits::of_capacity(share(90)) });
    keep(&mut bench, 30).unwrap();
    assert_eq!(keep(&mut bench, 1).unwrap_err().code, "user_cap");
}

#[test]
fn the_error_of_a_job_comes_from_its_servers_deadline_if_that_is_known() {
    let mut contract = marked();
    contract.server_period = Nanos::from_millis(10);
    let mut bench = Bench::new(share(90));
    let app = bench.join_thread(&contract, 7).unwrap();
    let error_us = |bench: &Bench| bench.host.grant(app).unwrap().error_ns / 1_000;
    bench.job(app, 0, 8, 2);
    assert_eq!(error_us(&bench), 10_000, "without a deadline: the end, 2 ms late, rounded up to the server period");
    let deadline = at(1_000 + 80 + 5);
    bench.input(Input::Served { app, thread: ThreadId(7), deadline });
    bench.job(app, 1, 8, 2);
    assert_eq!((error_us(&bench), bench.host.lead(app)), (5_000, Some(ThreadId(7))));
    bench.job(app, 2, 8, 2);
    assert_eq!(error_us(&bench), 10_000, "a deadline counts for one job only");
}
