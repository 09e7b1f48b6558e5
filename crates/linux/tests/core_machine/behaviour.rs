//! Tests of the machine in the kernel beyond the theory: budgets that change at once, best effort's reservation,
//! servers that move, controllers at the ends of jobs.

use std::sync::MutexGuard;

use qfabric_linux::abi::*;

use crate::kernel::{self, Kernel, config};

/// A machine with these servers, from slot 1 on.
fn with(configs: &[qf_config]) -> MutexGuard<'static, Kernel> {
    let kernel = kernel::fresh();
    for (index, &config) in configs.iter().enumerate() {
        kernel.add(0, index as u32 + 1, config).unwrap();
    }
    kernel
}

/// The slot that runs at each moment from `from` to `to`.
fn line(kernel: &mut Kernel, from: u64, to: u64) -> Vec<u32> {
    (from..to)
        .map(|now| {
            let slot = kernel.decide(0, now, 0).decision.slot;
            kernel.account(0, now + 1, 1);
            slot
        })
        .collect()
}

#[test]
fn a_throttled_job_runs_on_at_once_with_a_larger_budget_and_its_period_counts_once() {
    let mut kernel = with(&[config(10, 2, 0, 1)]);
    assert_eq!(line(&mut kernel, 0, 4), [1, 1, 0, 0]);
    kernel.change(1, config(10, 5, 0, 1), 4).unwrap();
    assert_eq!(line(&mut kernel, 4, 10), [1, 1, 1, 0, 0, 0], "three more moments in the same period");
    assert_eq!(line(&mut kernel, 10, 20), [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
    let server = kernel.server(1);
    assert_eq!((server.served, server.missed, server.used_ns), (2, 0, 10));
}

#[test]
fn a_reopened_period_that_runs_out_is_not_lost() {
    let mut kernel = with(&[config(10, 2, 0, 1), config(10, 8, 0, 1)]);
    kernel.command(QF_TEST_BLOCK, 0, 2, 0, 0).unwrap();
    assert_eq!(line(&mut kernel, 0, 3), [1, 1, 0]);
    kernel.command(QF_TEST_BLOCK, 0, 1, 3, 0).unwrap();
    kernel.command(QF_TEST_WAKE, 0, 1, 3, 0).unwrap();
    assert_eq!(line(&mut kernel, 3, 11), [0, 0, 0, 0, 0, 0, 0, 1], "it waits for its period as before");
    kernel.change(1, config(10, 9, 0, 1), 11).unwrap();
    let rest = line(&mut kernel, 11, 20);
    assert_eq!(rest.iter().filter(|&&slot| slot == 1).count(), 8, "{rest:?}");
    kernel.decide(0, 25, 0);
    assert_eq!(kernel.server(1).missed, 0);
}

#[test]
fn a_smaller_budget_ends_the_service_of_a_server_that_used_more() {
    let mut kernel = with(&[config(10, 8, 0, 1)]);
    assert_eq!(line(&mut kernel, 0, 5), [1; 5]);
    kernel.change(1, config(10, 3, 0, 1), 5).unwrap();
    assert_eq!(line(&mut kernel, 5, 10), [0; 5]);
    assert_eq!(kernel.server(1).served, 1);
}

#[test]
fn a_period_changes_from_the_current_deadline_on() {
    let mut kernel = with(&[config(10, 1, 0, 1)]);
    line(&mut kernel, 0, 3);
    kernel.change(1, config(4, 1, 0, 1), 3).unwrap();
    assert_eq!(line(&mut kernel, 3, 20).iter().filter(|&&slot| slot == 1).count(), 3, "at 10, 14 and 18");
}

#[test]
fn an_overrun_of_the_budget_is_paid_back() {
    let mut kernel = with(&[config(10, 4, 0, 1)]);
    kernel.decide(0, 0, 0);
    kernel.account(0, 6, 6); // a timer that came 2 late
    assert_eq!(kernel.server(1).left_ns, 2, "of the next period");
    assert_eq!(line(&mut kernel, 6, 20)[4..], [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(line(&mut kernel, 20, 26), [1, 1, 1, 1, 0, 0]);
}

#[test]
fn an_overrun_of_many_periods_is_owed_only_in_the_next_period() {
    let mut kernel = with(&[config(10, 4, 0, 1)]);
    kernel.decide(0, 0, 0);
    kernel.account(0, 9, 1_000_000);
    assert_eq!(kernel.server(1).left_ns, 1);
    line(&mut kernel, 9, 21);
    assert!(kernel.server(1).debt_ns <= 1);
}

#[test]
fn best_effort_has_its_guaranteed_time_under_overload() {
    let best = qf_config { ask: QF_ASK_BEST_EFFORT, ..config(20, 1, 0, 255) };
    let mut kernel = with(&[config(10, 8, 1, 2), config(10, 8, 1, 2), best]);
    let kinds: Vec<u32> = (0..200u64)
        .map(|now| {
            let kind = kernel.decide(0, now, 0).decision.kind;
            kernel.account(0, now + 1, 1);
            kind
        })
        .collect();
    assert_eq!(kinds.iter().filter(|&&kind| kind == QF_KIND_BEST_EFFORT).count(), 10, "one in twenty");
    let server = kernel.server(3);
    assert_eq!((server.served, server.missed, server.used_ns), (10, 0, 10));
}

#[test]
fn a_peek_changes_no_state() {
    let mut kernel = with(&[config(10, 1, 0, 1), config(7, 1, 0, 1)]);
    line(&mut kernel, 0, 3);
    kernel.command(QF_TEST_RAISE, 0, 1, 3, QF_NEVER).unwrap();
    let before = kernel.server(1);
    let peeked = kernel.peek(0, 3);
    assert_eq!((peeked.decision.rule, peeked.pending), (2, 1));
    assert_eq!(kernel.server(1), before);
    let decided = kernel.decide(0, 3, 0);
    assert_eq!((decided.decision, decided.pending), (peeked.decision, 0));
}

#[test]
fn an_event_buys_one_service_time() {
    let mut kernel = with(&[config(100, 5, 0, 1)]);
    line(&mut kernel, 0, 10);
    kernel.command(QF_TEST_RAISE, 0, 1, 10, QF_NEVER).unwrap();
    let decision = kernel.decide(0, 10, 0).decision;
    assert_eq!((decision.slot, decision.kind, decision.rule, decision.until_ns), (1, QF_KIND_EXTRA, 2, 15));
}

#[test]
fn events_beyond_the_bound_are_refused_and_counted_and_all_others_delivered() {
    let mut kernel = with(&[config(1000, 1, 0, 1)]);
    line(&mut kernel, 0, 1);
    for deadline in (1..u64::from(QF_EVENTS)).rev() {
        kernel.command(QF_TEST_RAISE, 0, 1, 1, 1_000 + deadline).unwrap();
    }
    let refused = kernel.command(QF_TEST_RAISE, 0, 1, 1, 5).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(line(&mut kernel, 1, 256), [1; 255]);
    assert_eq!(line(&mut kernel, 256, 258), [0; 2]);
    let server = kernel.server(1);
    assert_eq!((server.events[1], server.events_refused, server.events_late), (255, 1, 0));
}

#[test]
fn a_server_moves_to_another_cpu_with_all_it_has() {
    let mut kernel = with(&[config(10, 2, 1, 2)]);
    line(&mut kernel, 0, 1);
    kernel.command(QF_TEST_RAISE, 0, 1, 1, QF_NEVER).unwrap();
    kernel.command(QF_TEST_LEAVE, 0, 1, 1, 0).unwrap();
    assert_eq!(kernel.decide(0, 1, 0).decision.slot, 0);
    kernel.command(QF_TEST_ENTER, 1, 1, 1, 0).unwrap();
    kernel.command(QF_TEST_WAKE, 1, 1, 1, 0).unwrap();
    assert_eq!(kernel.decide(1, 1, 0).decision.slot, 1);
    let server = kernel.server(1);
    assert_eq!((server.cpu, server.left_ns, server.events_late), (1, 1, 1));
}

#[test]
fn slots_may_be_used_again_and_in_any_order() {
    let mut kernel = with(&[]);
    for slot in [1023, 5, 700, 1] {
        kernel.add(0, slot, config(10, 1, 0, 1)).unwrap();
    }
    assert_eq!(line(&mut kernel, 0, 5), [1, 5, 700, 1023, 0]);
    kernel.command(QF_TEST_REMOVE, 0, 5, 5, 0).unwrap();
    assert_eq!(line(&mut kernel, 5, 14), [0, 0, 0, 0, 0, 1, 700, 1023, 0]);
    kernel.add(0, 5, qf_config { arrival_ns: 15, ..config(10, 1, 0, 1) }).unwrap();
    assert_eq!(line(&mut kernel, 14, 17), [0, 5, 0]);
}

fn control() -> qf_control_config {
    qf_control_config {
        samples: 2,
        lanes: 1,
        periods_per_job: 4,
        on: 1,
        min_budget_ns: 1,
        max_budget_ns: 80,
        ..Default::default()
    }
}

#[test]
fn a_controller_sets_the_budget_at_the_end_of_each_job() {
    let mut kernel = with(&[config(100, 80, 0, 1)]);
    kernel.control(1, control()).unwrap();
    for job in 0..3u64 {
        let release = job * 400;
        kernel.command(QF_TEST_WAKE, 0, 1, release, 0).unwrap();
        let mut left = 40;
        let mut now = release;
        while left > 0 {
            let decision = kernel.decide(0, now, 0).decision;
            let ran = if decision.slot == 1 { left.min(decision.until_ns - now) } else { 0 };
            let next = if ran > 0 { now + ran } else { decision.until_ns };
            kernel.account(0, next, ran);
            (left, now) = (left - ran, next);
        }
        kernel.command(QF_TEST_BLOCK, 0, 1, now, 1).unwrap();
    }
    let server = kernel.server(1);
    assert_eq!((server.jobs, server.last_job_ns, server.config.service_ns), (3, 40, 10), "40 in four periods");
}

#[test]
fn the_job_after_a_late_one_has_the_remaining_periods() {
    let mut kernel = with(&[config(100, 80, 0, 1)]);
    kernel.control(1, qf_control_config { samples: 1, ..control() }).unwrap();
    kernel.command(QF_TEST_BLOCK, 0, 1, 0, 0).unwrap();
    kernel.command(QF_TEST_WAKE, 0, 1, 0, 0).unwrap();
    kernel.decide(0, 0, 0);
    kernel.account(0, 60, 60);
    // The deadline is 400 and the job ends one server period late, so three of the next job's four periods remain.
    kernel.command(QF_TEST_JOB_END, 0, 1, 450, 0).unwrap();
    assert_eq!(kernel.server(1).config.service_ns, 20);
}
