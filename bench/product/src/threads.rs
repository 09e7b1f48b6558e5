//! What the threads on an event's way cost: CPU time and sleeps.

use std::collections::BTreeMap;

use qfabric_linux::threads;
use serde::Serialize;

/// Threads below this CPU time for each event, in microseconds, are not on its way.
const LEAST_US: f64 = 0.02;

/// What the threads of one name cost for one event of a flow.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cost {
    pub round: usize,
    pub experiment: &'static str,
    pub contestant: &'static str,
    #[serde(flatten)]
    pub share: Share,
}

/// The cost of the threads of one name, divided by a number of events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Share {
    /// Process and thread.
    pub thread: String,
    /// CPU time in microseconds.
    pub cpu_us: f64,
    /// How often the thread went to sleep.
    pub sleeps: f64,
}

/// Sums since the start of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    cpu_ns: u64,
    sleeps: u64,
}

/// The threads of some processes at one moment, by process and name. Threads of one name count together.
#[derive(Debug, Default)]
pub(crate) struct Look(BTreeMap<String, Sums>);

impl Look {
    /// Looks at processes, each with its name and its id. A process that has ended has no threads.
    pub(crate) fn at(processes: &[(&'static str, u32)]) -> Look {
        let mut look = Look::default();
        for (process, id) in processes {
            for thread in threads::list(*id as i32).unwrap_or_default() {
                let Some(name) = threads::name(thread) else { continue };
                let cpu_ns = threads::cpu_time(thread).unwrap_or_default();
                let sleeps = threads::switches(thread).map_or(0, |(voluntary, _)| voluntary);
                look.add(format!("{process}: {name}"), Sums { cpu_ns, sleeps });
            }
        }
        look
    }

    fn add(&mut self, thread: String, one: Sums) {
        let sums = self.0.entry(thread).or_default();
        sums.cpu_ns += one.cpu_ns;
        sums.sleeps += one.sleeps;
    }

    /// The costs since an earlier look, for each of `events`.
    pub(crate) fn since(&self, earlier: &Look, events: f64) -> Vec<Share> {
        let share = |(thread, now): (&String, &Sums)| {
            let before = earlier.0.get(thread).copied().unwrap_or_default();
            let each = |now: u64, before: u64| now.saturating_sub(before) as f64 / events.max(1.0);
            let (cpu_us, sleeps) = (each(now.cpu_ns, before.cpu_ns) / 1e3, each(now.sleeps, before.sleeps));
            Share { thread: thread.clone(), cpu_us, sleeps }
        };
        self.0.iter().map(share).filter(|share| share.cpu_us >= LEAST_US).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_divided_by_events_and_threads_of_one_name_count_together() {
        let look = |cpu: [u64; 2], sleeps| {
            let mut look = Look::default();
            cpu.into_iter().for_each(|cpu_ns| look.add("daemon: rx-0".into(), Sums { cpu_ns, sleeps }));
            look.add("daemon: idle".into(), Sums { cpu_ns: 9, sleeps: 1 });
            look
        };
        let (before, after) = (look([1_000, 2_000], 10), look([401_000, 2_000], 30));
        let share = Share { thread: "daemon: rx-0".into(), cpu_us: 4.0, sleeps: 0.4 };
        assert_eq!(after.since(&before, 100.0), [share]);
    }

    #[test]
    fn the_threads_of_this_process_are_found() {
        let own = Look::at(&[("own", std::process::id())]);
        // The kernel may not have counted any CPU time of a young thread yet.
        assert!(own.0.keys().any(|thread| thread.starts_with("own: ")), "{own:?}");
    }
}
