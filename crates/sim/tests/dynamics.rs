//! The modelled processor agrees with the dynamic model: on one CPU with a hard reservation, the virtual finishing
//! times follow equations (2) and (3), whatever else runs.

use proptest::prelude::*;
use qfabric_control::model::Dynamics;
use qfabric_sched::{Machine, MachineConfig, TaskId};
use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Share};

const P: Nanos = Nanos::from_millis(5);
const START: u64 = 7_000_000;

fn machine(others: usize) -> Machine {
    let bound = Share::ONE;
    let mut machine = Machine::new(MachineConfig { bound, hogs: 3, ..MachineConfig::default() });
    machine.spawn();
    for i in 0..others {
        let other = machine.spawn();
        let reservation = Reservation::new(Nanos::from_micros(900 + 100 * i as u64), Nanos::from_millis(7)).unwrap();
        machine.reserve(other, Some((reservation, Reclaiming::Hard))).unwrap();
        machine.release(other, Nanos::from_millis(100_000));
    }
    machine
}

/// The errors ε_{k+1} = s_k − d_k of the modelled processor, in ns. The budget of a job is set shortly before its
/// release, or when the previous job ends, whichever is later, as a controller does.
fn errors(machine: &mut Machine, periods: u64, jobs: &[(u64, u64)]) -> Vec<i64> {
    let (task, t) = (TaskId(0), P.saturating_mul(periods));
    let release = |k: usize| Instant::new(START) + t.saturating_mul(k as u64);
    let set = |machine: &mut Machine, k: usize| {
        if let Some(&(_, budget_us)) = jobs.get(k) {
            let reservation = Reservation::new(Nanos::from_micros(budget_us), P).unwrap();
            machine.reserve(task, Some((reservation, Reclaiming::Hard))).unwrap();
        }
    };
    let mut errors = Vec::new();
    let take = |machine: &mut Machine, errors: &mut Vec<i64>, until: Instant| {
        while let Some(finished) = machine.run_until(until) {
            if finished.task == task {
                let deadline = finished.release + t;
                errors.push(finished.virtual_finish.unwrap().signed_since(deadline));
                set(machine, errors.len());
            }
        }
    };
    set(machine, 0);
    for (k, &(cost_us, _)) in jobs.iter().enumerate() {
        take(machine, &mut errors, release(k));
        machine.release(task, Nanos::from_micros(cost_us));
    }
    let all = Nanos::from_micros(jobs.iter().map(|&(cost, _)| cost * 20).sum());
    take(machine, &mut errors, release(jobs.len()) + all);
    errors
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn virtual_finishing_times_follow_equations_2_and_3(
        periods in 1u64..9, others in 0usize..4,
        jobs in prop::collection::vec((50u64..12_000, 300u64..2_000), 1..40),
    ) {
        let mut model = Dynamics::new(P.as_f64() * periods as f64, P.as_f64());
        let expected: Vec<i64> =
            jobs.iter().map(|&(cost, budget)| model.step(cost as f64 * 1e3, budget as f64 * 1e3) as i64).collect();
        prop_assert_eq!(errors(&mut machine(others), periods, &jobs), expected);
    }
}
