//! Dispatch latencies and the CPU time of the thread that dispatches.

use qfabric_types::Nanos;

/// Number of latencies that are kept.
const KEPT: usize = 4_096;

/// Latest dispatch latencies in a ring. A latency is the time from the boundary of a slot until the threads of the
/// next slot have their priorities (004 §3.3).
#[derive(Debug)]
pub(super) struct Latencies {
    ring: Vec<u32>,
    next: usize,
}

/// Costs of the dispatcher of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchCost {
    /// CPU time of its thread.
    pub used: Nanos,
    /// Latest latencies, at most 4,096, in no order.
    pub latencies: Vec<Nanos>,
}

impl Latencies {
    pub(super) fn new() -> Latencies {
        Latencies { ring: Vec::with_capacity(KEPT), next: 0 }
    }

    /// Allocates nothing.
    pub(super) fn add(&mut self, latency: Nanos) {
        let ns = u32::try_from(latency.get()).unwrap_or(u32::MAX);
        match self.ring.get_mut(self.next) {
            Some(old) => *old = ns,
            None => self.ring.push(ns),
        }
        self.next = (self.next + 1) % KEPT;
    }

    pub(super) fn all(&self) -> Vec<Nanos> {
        self.ring.iter().map(|ns| Nanos::new(u64::from(*ns))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_latency_gives_way() {
        let mut latencies = Latencies::new();
        (0..=KEPT as u64).for_each(|ns| latencies.add(Nanos::new(ns)));
        let all = latencies.all();
        assert_eq!((all.len(), all[0], all[1]), (KEPT, Nanos::new(KEPT as u64), Nanos::new(1)));
    }
}
