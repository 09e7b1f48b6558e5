//! Tasks with a fixed priority run after reservations and before tasks that share by weight.

use qfabric_sched::{Machine, MachineConfig, TaskId};
use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Share};

fn at(ms: u64) -> Instant {
    Instant::new(ms * 1_000_000)
}

/// One CPU beside four hogs, and `tasks` tasks with a fixed priority.
fn machine(tasks: usize) -> (Machine, Vec<TaskId>) {
    let bound = Share::from_ppm(950_000);
    let mut machine = Machine::new(MachineConfig { hogs: 4, bound, ..MachineConfig::default() });
    let tasks: Vec<TaskId> = (0..tasks).map(|_| machine.spawn()).collect();
    tasks.iter().for_each(|&task| machine.set_fixed_priority(task));
    (machine, tasks)
}

/// Ends of jobs in ms until `to`.
fn ends(machine: &mut Machine, to: u64) -> Vec<(TaskId, u64)> {
    let finished = std::iter::from_fn(|| machine.run_until(at(to)));
    finished.map(|finished| (finished.task, finished.finish.get() / 1_000_000)).collect()
}

#[test]
fn hogs_take_nothing_from_a_fixed_priority() {
    let (mut machine, tasks) = machine(1);
    machine.release(tasks[0], Nanos::from_millis(10));
    assert_eq!(ends(&mut machine, 100), [(tasks[0], 10)]);
}

#[test]
fn the_task_that_woke_first_keeps_the_cpu_until_its_work_ends() {
    let (mut machine, tasks) = machine(2);
    machine.release(tasks[1], Nanos::from_millis(10));
    assert_eq!(ends(&mut machine, 1), []);
    machine.release(tasks[0], Nanos::from_millis(5));
    machine.release(tasks[1], Nanos::from_millis(10));
    assert_eq!(ends(&mut machine, 100), [(tasks[1], 10), (tasks[1], 20), (tasks[0], 25)]);
}

#[test]
fn a_reservation_runs_before_a_fixed_priority() {
    let (mut machine, tasks) = machine(2);
    let reservation = Reservation::new(Nanos::from_millis(5), Nanos::from_millis(10)).unwrap();
    machine.reserve(tasks[1], Some((reservation, Reclaiming::Hard))).unwrap();
    machine.release(tasks[0], Nanos::from_millis(10));
    machine.release(tasks[1], Nanos::from_millis(5));
    assert_eq!(ends(&mut machine, 100), [(tasks[1], 5), (tasks[0], 15)]);
}

#[test]
fn a_task_that_slept_waits_behind_the_others() {
    let (mut machine, tasks) = machine(2);
    machine.release(tasks[0], Nanos::from_millis(2));
    assert_eq!(ends(&mut machine, 3), [(tasks[0], 2)]);
    machine.release(tasks[1], Nanos::from_millis(4));
    assert_eq!(ends(&mut machine, 4), []);
    machine.release(tasks[0], Nanos::from_millis(2));
    assert_eq!(ends(&mut machine, 100), [(tasks[1], 7), (tasks[0], 9)]);
}
