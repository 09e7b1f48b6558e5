//! An admitted set keeps its guarantees, also with events; sets that were not admitted can violate windows.

use proptest::prelude::*;
use qfabric_sched::dwcs::{
    Guarantee, Machine, Policy, RefusalReason, Rule, Task, TaskIndex, Utilization, Wake, Window, admit,
    admit_with_task_server,
};
use qfabric_types::{Instant, Share};

use crate::sets::{Numbers, numbers, tasks, unit};

fn task(period: u64, service: u64, x: u64, y: u64) -> Task {
    Task::new(period, service, Window::new(x, y).unwrap()).unwrap()
}

fn violations(machine: &Machine) -> u64 {
    (0..machine.len()).map(|k| machine.statistics(TaskIndex(k)).violations).sum()
}

fn run(machine: &mut Machine, ticks: u64) {
    for _ in 0..ticks {
        machine.step();
    }
}

/// Runs the machine; before each tick an event is raised for the sink in `sinks`, if there is one.
fn run_with_events(machine: &mut Machine, sinks: &[Option<usize>]) {
    for sink in sinks {
        if let Some(sink) = sink {
            machine.raise(TaskIndex(sink % machine.len()), Instant::NEVER).unwrap();
        }
        machine.step();
    }
}

fn sinks() -> impl Strategy<Value = Vec<Option<usize>>> {
    let often = prop_oneof![Just(0.1), Just(0.3), Just(0.7)];
    often.prop_flat_map(|often| prop::collection::vec(prop::option::weighted(often, 0usize..6), 400))
}

/// Sets in which the windows fit, but not all periods: only these leave DWCS a decision.
fn is_tight(tasks: &[Task]) -> bool {
    !Utilization::of_windows(tasks).exceeds(Share::ONE) && !Utilization::of_services(tasks).fits(Share::ONE)
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::with_cases(100) })]

    /// 000 §2.4.1 (b), with one n for all.
    #[test]
    fn equal_services_and_periods_up_to_u_of_one_violate_nothing(
        k in 1u64..5, n in 1u64..8, windows in prop::collection::vec(crate::sets::window(), 1..12),
    ) {
        let tasks: Vec<Task> = windows.iter().map(|&(x, y)| task(n * k, k, x, y)).collect();
        prop_assume!(!Utilization::of_windows(&tasks).exceeds(Share::ONE));
        let mut machine = Machine::new(&tasks, Policy::Dwcs);
        run(&mut machine, 3_000);
        prop_assert_eq!(violations(&machine), 0);
    }

    #[test]
    fn an_admitted_set_violates_nothing(numbers in prop::collection::vec(numbers(8), 1..6)) {
        let tasks = tasks(&numbers);
        prop_assume!(admit(&tasks, Share::ONE).is_ok());
        let mut machine = Machine::new(&tasks, Policy::Dwcs);
        run(&mut machine, 3_000);
        prop_assert_eq!(violations(&machine), 0);
    }

    #[test]
    fn events_by_rules_1_to_4_violate_no_admitted_window(
        numbers in prop::collection::vec(numbers(6), 2..6), sinks in sinks(),
    ) {
        let tasks = tasks(&numbers);
        prop_assume!(is_tight(&tasks) && admit(&tasks, Share::ONE).is_ok());
        let mut machine = Machine::new(&tasks, Policy::Dwcs);
        run_with_events(&mut machine, &sinks);
        prop_assert_eq!(violations(&machine), 0);
    }

    /// Stronger: the state at each common release is the same as without events.
    #[test]
    fn rule_4_does_not_change_the_service_in_a_hyper_period(
        numbers in prop::collection::vec(numbers(6), 2..6), sinks in sinks(),
    ) {
        let tasks = tasks(&numbers);
        let (mut with, mut without) = (Machine::new(&tasks, Policy::Dwcs), Machine::new(&tasks, Policy::Dwcs));
        for (t, sink) in (0u64..).zip(&sinks) {
            run_with_events(&mut with, &[*sink]);
            without.step();
            let common = tasks.iter().all(|task| (t + 1 - task.arrival().min(t + 1)) % task.period() == 0);
            for k in (0..tasks.len()).map(TaskIndex).filter(|_| common) {
                prop_assert_eq!((with.progress(k), with.deadline(k)), (without.progress(k), without.deadline(k)));
            }
        }
    }

    #[test]
    fn rule_5_violates_no_window_admitted_with_the_task_server(
        numbers in prop::collection::vec(unit(), 2..6), sinks in sinks(),
    ) {
        let tasks = tasks(&numbers);
        prop_assume!(admit_with_task_server(&tasks, Share::ONE).is_ok());
        let mut machine = Machine::new(&tasks, Policy::Dwcs).with_task_server(Share::ONE);
        run_with_events(&mut machine, &sinks);
        prop_assert_eq!(violations(&machine), 0);
    }

    /// If ΣC/T fits, tasks may block and wake at any time, on the grid of their periods or off it.
    #[test]
    fn tasks_whose_services_fit_miss_no_period_requested_in_time(
        numbers in prop::collection::vec(numbers(12), 1..6),
        acts in prop::collection::vec(prop::option::weighted(0.2, (0usize..6, any::<bool>())), 600),
    ) {
        let tasks = tasks(&numbers);
        prop_assume!(Utilization::of_services(&tasks).fits(Share::ONE));
        let mut machine = Machine::new(&tasks, Policy::Dwcs);
        for act in acts {
            if let Some((task, aligned)) = act {
                let (task, now) = (TaskIndex(task % machine.len()), machine.now());
                if machine.is_ready(task) {
                    machine.block(task, now);
                } else {
                    machine.wake(task, now, if aligned { Wake::Aligned } else { Wake::Now });
                }
            }
            machine.step();
        }
        let missed: u64 = (0..machine.len()).map(|k| machine.statistics(TaskIndex(k)).missed).sum();
        prop_assert_eq!(missed, 0);
    }

    #[test]
    fn a_set_with_u_above_one_is_refused_and_violates_a_window(numbers in prop::collection::vec(numbers(5), 2..6)) {
        let mut tasks = tasks(&numbers);
        prop_assume!(Utilization::of_windows(&tasks).exceeds(Share::from_ppm(1_100_000)));
        tasks.sort_by_key(Task::arrival);
        let refusal = admit(&tasks, Share::ONE).unwrap_err();
        prop_assert_eq!(refusal.reason, RefusalReason::OverCommitted);
        let mut machine = Machine::new(&tasks, Policy::Dwcs);
        run(&mut machine, 3_000);
        prop_assert!(violations(&machine) > 0);
    }
}

/// The thesis says «C_i = k and T_i = nk ∀ i»: with one n for all it is a theorem, with an n per task it is not. T1
/// wants every tick and may lose one of five, T2 wants one of four and may lose one of five: U = 4/5 + 1/5 = 1. By
/// its deadline T1 always comes first, so T2 gets only the ticks that T1 may lose: no order by deadline helps.
#[test]
fn equal_services_in_unequal_periods_may_violate_at_u_of_one() {
    let tasks = [task(1, 1, 1, 5), task(4, 1, 1, 5)];
    assert!((Utilization::of_windows(&tasks).as_f64() - 1.0).abs() < 1e-9);
    let mut machine = Machine::new(&tasks, Policy::Dwcs);
    run(&mut machine, 40);
    assert!(machine.statistics(TaskIndex(1)).violations > 0);
    let refusal = admit(&tasks, Share::ONE).unwrap_err();
    assert!(matches!(refusal.reason, RefusalReason::Violated { task: TaskIndex(1), .. }), "{refusal}");
}

/// Rule 4 as printed asks whether i fits beside j. Here i and j fit, but the two tasks between them do not: four
/// tasks with d = 4, of which the last may lose its period, and an event for the last.
#[test]
fn rule_4_counts_all_tasks_before_the_sink() {
    let tasks = [task(4, 2, 0, 1), task(4, 1, 0, 2), task(4, 1, 0, 2), task(4, 1, 1, 2)];
    let mut machine = Machine::new(&tasks, Policy::Dwcs);
    machine.raise(TaskIndex(3), Instant::NEVER).unwrap();
    run(&mut machine, 4);
    let counts: Vec<_> = (0..4).map(|k| machine.statistics(TaskIndex(k)).served).collect();
    assert_eq!((counts, machine.pending()), (vec![1, 1, 1, 0], 1));
}

#[test]
fn each_guarantee_is_found_with_its_reason() {
    let every = admit(&[task(2, 1, 0, 1), task(4, 2, 0, 1)], Share::ONE).unwrap();
    assert!(matches!(every, Guarantee::EveryPeriod { .. }), "{every:?}");
    let uniform = admit(&[task(2, 2, 1, 2), task(2, 2, 1, 2)], Share::ONE).unwrap();
    assert!(matches!(uniform, Guarantee::Uniform { .. }), "{uniform:?}");
    let simulated = admit(&[task(2, 1, 1, 2), task(3, 1, 1, 2), task(6, 2, 0, 1)], Share::ONE).unwrap();
    assert!(matches!(simulated, Guarantee::Simulated { .. }), "{simulated:?}");
}

#[test]
fn a_refusal_names_the_numbers_and_the_next_step() {
    let over = admit(&[task(2, 1, 0, 1), task(2, 2, 1, 4)], Share::ONE).unwrap_err().to_string();
    assert!(over.contains("= 1.2500 CPU") && over.contains("lengthen periods"), "{over}");
    let primes = [1_000_003, 999_983, 1_000_033].map(|prime| task(prime, 400_000, 4, 5));
    let unproven = admit(&primes, Share::ONE).unwrap_err();
    assert!(
        matches!(unproven.reason, RefusalReason::Unproven { .. }) && unproven.to_string().contains("divide each other")
    );
}

/// The admission test also works in nanoseconds: it jumps from decision to decision.
#[test]
fn real_periods_in_nanoseconds_are_simulated_in_a_few_steps() {
    let ms = 1_000_000;
    let tasks = [task(40 * ms, 20 * ms, 3, 5), task(20 * ms, 10 * ms, 3, 5), task(20 * ms, ms, 0, 1)];
    let guarantee = admit(&tasks, Share::ONE);
    assert!(guarantee.is_ok_and(|it| matches!(it, Guarantee::Simulated { .. })), "{guarantee:?}");
}

#[test]
fn an_event_uses_time_of_the_task_server_not_of_its_sink() {
    let mut machine = Machine::new(&[task(8, 2, 0, 1), task(8, 2, 0, 1)], Policy::Dwcs).with_task_server(Share::ONE);
    run(&mut machine, 1);
    machine.raise(TaskIndex(1), Instant::NEVER).unwrap();
    let rules: Vec<_> = (0..8).filter_map(|_| machine.step().event).map(|(rule, _)| rule).collect();
    assert_eq!(rules.len(), 1);
    assert!(rules[0] == Rule::TaskServer || rules[0] == Rule::Slack, "{rules:?}");
    assert_eq!(machine.statistics(TaskIndex(1)).missed, 0);
}

#[test]
fn capacity_below_one_is_a_slower_processor() {
    let tasks = [task(10, 5, 0, 1), task(10, 4, 0, 1)];
    assert!(admit(&tasks, Share::from_ppm(900_000)).is_ok());
    assert!(admit(&tasks, Share::from_ppm(899_999)).is_err());
    let numbers = Numbers { arrival: 0, period: 4, service: 3, window: (1, 2), work_conserving: false, network: 0 };
    let slow = admit(&[numbers.task(), numbers.task()], Share::from_ppm(760_000));
    assert!(slow.is_ok_and(|it| matches!(it, Guarantee::Simulated { .. })), "{slow:?}");
}
