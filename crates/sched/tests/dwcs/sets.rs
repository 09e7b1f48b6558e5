//! Random sets of tasks.

use proptest::prelude::*;
use qfabric_sched::dwcs::{Task, Window};

use crate::naive::NaiveTask;

/// The numbers of a task, from which both machines are created.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub arrival: u64,
    pub period: u64,
    pub service: u64,
    pub window: (u64, u64),
    pub work_conserving: bool,
    pub network: u8,
}

impl Numbers {
    pub(crate) fn task(&self) -> Task {
        let window = Window::new(self.window.0, self.window.1).unwrap();
        let task = Task::new(self.period, self.service, window).unwrap().arriving(self.arrival).unwrap();
        task.work_conserving(self.work_conserving).network(self.network).unwrap()
    }

    pub(crate) fn naive(&self) -> NaiveTask {
        let window = (self.window.0 as u16, self.window.1 as u16);
        let mut task = NaiveTask::new(self.arrival, self.period, self.service, window, self.work_conserving);
        task.network = self.network;
        task
    }
}

pub(crate) fn tasks(numbers: &[Numbers]) -> Vec<Task> {
    numbers.iter().map(Numbers::task).collect()
}

pub(crate) fn window() -> impl Strategy<Value = (u64, u64)> {
    (1u64..=6).prop_flat_map(|y| (0..y, Just(y)))
}

/// Any task with small numbers.
pub(crate) fn numbers(longest: u64) -> impl Strategy<Value = Numbers> {
    let times = (1..=longest).prop_flat_map(|period| (Just(period), 1..=period.min(4)));
    (prop_oneof![3 => Just(0), 1 => 0u64..10], times, window(), any::<bool>(), 0u8..=3).prop_map(
        |(arrival, (period, service), window, work_conserving, network)| Numbers {
            arrival,
            period,
            service,
            window,
            work_conserving,
            network: network * 33,
        },
    )
}

/// Tasks with C = 1 that arrive at time 0.
pub(crate) fn unit() -> impl Strategy<Value = Numbers> {
    (1u64..=6, window(), any::<bool>()).prop_map(|(period, window, work_conserving)| Numbers {
        arrival: 0,
        period,
        service: 1,
        window,
        work_conserving,
        network: 0,
    })
}
