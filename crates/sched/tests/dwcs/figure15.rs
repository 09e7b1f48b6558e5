//! Figure 15 of the thesis (000 §3.3.1): one case per rule, each to the tick.

use qfabric_sched::dwcs::{Choice, Decision, Machine, Policy, Rule, Task, TaskIndex, Window};
use qfabric_types::{Instant, Share};

const T1: TaskIndex = TaskIndex(0);
const T2: TaskIndex = TaskIndex(1);
use Choice::{BestEffort, Extra, Regular, TaskServer};

fn task(period: u64, window: (u64, u64), work_conserving: bool) -> Task {
    Task::new(period, 1, Window::new(window.0, window.1).unwrap()).unwrap().work_conserving(work_conserving)
}

/// (a) and (b): T = 4 and 2, C = 1, windows 1/2 and 1/4.
fn fours_and_twos(work_conserving: bool) -> Machine {
    Machine::new(&[task(4, (1, 2), work_conserving), task(2, (1, 4), work_conserving)], Policy::Dwcs)
}

/// (c) and (d): T = 3, C = 1, windows 1/2 and 1/4, work-conserving.
fn threes() -> Machine {
    Machine::new(&[task(3, (1, 2), true), task(3, (1, 4), true)], Policy::Dwcs)
}

/// Runs `ticks` ticks; the event of T1 is raised between tick `after` and the next one.
fn run(mut machine: Machine, ticks: u64, after: u64) -> Vec<Decision> {
    let step = |tick| {
        if tick == after + 1 {
            machine.raise(T1, Instant::NEVER).unwrap();
        }
        machine.step()
    };
    (0..ticks).map(step).collect()
}

fn chosen(decisions: &[Decision]) -> Vec<Choice> {
    decisions.iter().map(|decision| decision.dwcs).collect()
}

fn delivery(decisions: &[Decision]) -> (u64, Rule, Choice) {
    let delivered: Vec<_> = decisions.iter().filter_map(|d| d.event.map(|(rule, _)| (d.at, rule, d.run))).collect();
    assert_eq!(delivered.len(), 1, "{delivered:?}");
    delivered[0]
}

/// t = 0: deadlines 4 and 2, so T2 (d = 4, window 1/3). t = 1: T2 is served, T1 (d = 8, 1/1). t = 2: T2 is released
/// again (d = 6). t = 3: both are served and neither is work-conserving: best effort, and by rule 2 T1 instead.
#[test]
fn a_the_sink_replaces_best_effort_at_3() {
    let decisions = run(fours_and_twos(false), 4, 2);
    assert_eq!(chosen(&decisions), [Regular(T2), Regular(T1), Regular(T2), BestEffort]);
    assert_eq!(delivery(&decisions), (3, Rule::BestEffort, Extra(T1)));
}

/// As (a) up to t = 2. t = 3: both are served and both are work-conserving; advanced deadlines are 8 and 6, so T2
/// would run beside its periods, and by rule 3 T1 instead.
#[test]
fn b_the_sink_replaces_a_served_work_conserving_task_at_3() {
    let decisions = run(fours_and_twos(true), 4, 2);
    assert_eq!(chosen(&decisions), [Regular(T2), Regular(T1), Regular(T2), Extra(T2)]);
    assert_eq!(delivery(&decisions), (3, Rule::Surplus, Extra(T1)));
}

/// t = 0: both d = 3; T2's 1/4 is tighter than T1's 1/2 (then d = 6, 1/3). t = 1: T1 (d = 6, 1/1). t = 2: both are
/// served; T2 beside its periods. t = 3: both are released with d = 6 and T2 is tighter; Δt − C_j − C_i = 3 − 1 − 1 > 0,
/// so by rule 4 T1 goes first. t = 4: T2 still has its service before 6.
#[test]
fn c_the_sink_goes_before_a_task_that_has_slack_at_3() {
    let decisions = run(threes(), 5, 2);
    assert_eq!(chosen(&decisions), [Regular(T2), Regular(T1), Extra(T2), Regular(T2), Regular(T2)]);
    assert_eq!(delivery(&decisions), (3, Rule::Slack, Regular(T1)));
}

/// U = 1/2·1/3 + 3/4·1/3 = 0.417, so the task server has U_r = 0.583, C = 1, T = ceil(1/0.583) = 2, window 0/5.
/// t = 0: d = 3, 3 and 2: the task server (then d = 4, 0/4). t = 1: T2 before T1 (1/4 < 1/2; then d = 6, 1/3).
/// t = 2: T1's d = 3 before the task server's 4 (T1: d = 6, 1/1). t = 3: the task server (d = 6, 0/3). t = 4: all have
/// d = 6; the task server's window is tightest (d = 8, 0/2). t = 5: T2's 1/3 before T1's 1/1; rule 4 does not let T1,
/// whose event was raised at 4.5, go first: Δt = 1. t = 6: T1 has missed (1/1 → 0/0 → 1/2, d = 9); the task server's
/// d = 8 is first, and by rule 5 T1 runs in its place.
#[test]
fn d_the_sink_runs_in_the_time_of_the_task_server_at_6() {
    let machine = threes().with_task_server(Share::ONE);
    let server = machine.task_server().unwrap();
    assert_eq!((server.period(), server.service(), server.window()), (2, 1, (0, 5)));
    let decisions = run(machine, 7, 4);
    let expected = [TaskServer, Regular(T2), Regular(T1), TaskServer, TaskServer, Regular(T2), TaskServer];
    assert_eq!(chosen(&decisions), expected);
    assert_eq!(delivery(&decisions), (6, Rule::TaskServer, Extra(T1)));
}

/// The same event as in (c), but here DWCS chooses the sink itself: rule 1.
#[test]
fn an_event_for_the_task_that_is_chosen_anyway_changes_nothing() {
    let mut machine = threes();
    machine.raise(T2, Instant::NEVER).unwrap();
    let decision = machine.step();
    assert_eq!((decision.dwcs, decision.run, decision.event), (Regular(T2), Regular(T2), Some((Rule::Chosen, 0))));
    assert_eq!(machine.pending(), 0);
}

#[test]
fn an_event_is_dropped_after_its_deadline_and_those_with_earlier_deadlines_go_first() {
    let mut machine = fours_and_twos(false);
    let late = machine.raise(T1, Instant::new(0)).unwrap();
    machine.step();
    let second = machine.raise(T1, Instant::new(9)).unwrap();
    let first = machine.raise(T1, Instant::new(8)).unwrap();
    let order: Vec<u64> = (1..8).filter_map(|_| machine.step().event.map(|(_, number)| number)).collect();
    assert_eq!((order, machine.expired()), (vec![late, first, second][1..].to_vec(), 1));
}
