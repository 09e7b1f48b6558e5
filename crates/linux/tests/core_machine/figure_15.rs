//! Figure 15 of the thesis in the kernel: each of its rules runs T1 for the event, as in the theory.

use qfabric_linux::abi::*;
use qfabric_sched::dwcs::{Choice, Machine, Policy, TaskIndex};
use qfabric_types::{Instant, Share};

use crate::draw::{self, Drawn};
use crate::kernel::{self, config};

fn task(period: u64, y: u16, work_conserving: bool) -> Drawn {
    Drawn { period, service: 1, x: 1, y, arrival: 0, work_conserving, network: 0, aligned: false }
}

/// Runs both tasks for twelve ticks with an event for the first one, raised before tick `event`. Returns the tick and
/// the rule of the delivery.
fn delivered(drawn: [Drawn; 2], event: u64, task_server: bool) -> (u64, u32) {
    let mut kernel = kernel::fresh();
    let mut theory = Machine::new(&drawn.map(|task| task.theory()), Policy::Dwcs);
    for (index, task) in drawn.iter().enumerate() {
        kernel.add(0, index as u32 + 1, task.kernel()).unwrap();
    }
    if task_server {
        theory = theory.with_task_server(Share::ONE);
        let (rest_num, rest_den) = draw::rest(&drawn).unwrap();
        let ask = QF_ASK_READY | QF_ASK_TASK_SERVER;
        kernel.add(0, 3, qf_config { ask, rest_num, rest_den, ..config(1, 1, 0, 5) }).unwrap();
    }
    let mut found = Vec::new();
    for now in 0..12 {
        if now == event {
            theory.raise(TaskIndex(0), Instant::NEVER).unwrap();
            kernel.command(QF_TEST_RAISE, 0, 1, now, QF_NEVER).unwrap();
        }
        let (theory_step, done) = (theory.step(), kernel.decide(0, now, 0).decision);
        kernel.account(0, now + 1, 1);
        let slot = match theory_step.run {
            Choice::Regular(task) | Choice::Extra(task) => task.0 as u32 + 1,
            Choice::BestEffort | Choice::TaskServer => 0,
        };
        let rule = theory_step.event.map_or(0, |(rule, _)| rule.number());
        assert_eq!((slot, rule), (done.slot, done.rule as u8), "at {now}");
        found.extend((done.rule != 0).then_some((now, done.rule)));
    }
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

#[test]
fn figure_15_a_rule_2_runs_the_sink_instead_of_best_effort() {
    assert_eq!(delivered([task(4, 2, false), task(2, 4, false)], 3, false), (3, 2));
}

#[test]
fn figure_15_b_rule_3_runs_the_sink_instead_of_extra_service() {
    assert_eq!(delivered([task(4, 2, true), task(2, 4, true)], 3, false), (3, 3));
}

#[test]
fn figure_15_c_rule_4_runs_the_sink_before_tasks_that_can_wait() {
    assert_eq!(delivered([task(3, 2, true), task(3, 4, true)], 3, false), (3, 4));
}

#[test]
fn figure_15_d_rule_5_runs_the_sink_in_the_time_of_the_task_server() {
    assert_eq!(delivered([task(3, 2, true), task(3, 4, true)], 5, true).1, 5);
}
