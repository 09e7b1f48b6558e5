//! Limits the CPU time of each user's handlers, and chooses the handler to remove if it is exceeded.
//!
//! The instruction limit bounds one event, but the number of events is not known in advance. So run time is
//! measured: in the kernel with its statistics of BPF programs, in the daemon with the thread's CPU clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qfabric_types::api::ecalls::SubscriptionId;
use qfabric_types::{Instant, Nanos, Share};

use super::subscription::Subscription;

/// Time over which shares are measured.
const WINDOW: Nanos = Nanos::from_millis(1_000);

/// Run times at the begin of the window.
#[derive(Debug, Default)]
pub(crate) struct RunTimes {
    began: Option<Instant>,
    before: HashMap<SubscriptionId, u64>,
}

/// The run time of a subscription since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    id: SubscriptionId,
    uid: u32,
    run_ns: u64,
}

impl RunTimes {
    /// At the end of a window: for each user whose handlers took more than `most`, returns the subscription that
    /// took most, with the reason for its removal. If that is not enough, the next one follows a window later. Root
    /// has no such limit.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        all: &[Arc<Subscription>],
        most: Share,
    ) -> Vec<(Arc<Subscription>, String)> {
        if now.since(*self.began.get_or_insert(now)) < WINDOW {
            return Vec::new();
        }
        let active = all.iter().filter(|subscription| subscription.terms.owner.uid != 0 && subscription.is_active());
        let reading = |s: &Arc<Subscription>| Reading { id: s.id, uid: s.terms.owner.uid, run_ns: s.counters().run_ns };
        let readings: Vec<Reading> = active.map(reading).collect();
        let shares = self.shares(now, &readings);
        for subscription in all {
            let used = shares.get(&subscription.terms.owner.uid).map_or(0, |share| share.ppm());
            subscription.tally.used_by_owner.store(used, Ordering::Relaxed);
        }
        let found = self.over(now, &readings, most).into_iter();
        let named = found.filter_map(|(id, why)| Some((all.iter().find(|one| one.id == id)?.clone(), why)));
        named.collect()
    }

    /// The share of a CPU that each user's handlers took since the window began.
    fn shares(&self, now: Instant, readings: &[Reading]) -> BTreeMap<u32, Share> {
        let window = self.began.map_or(Nanos::ZERO, |began| now.since(began)).get().max(1);
        let mut taken: BTreeMap<u32, u64> = BTreeMap::new();
        for Reading { id, uid, run_ns } in readings {
            *taken.entry(*uid).or_default() += run_ns.saturating_sub(self.before.get(id).copied().unwrap_or(0));
        }
        let share = |ns: u64| Share::from_ppm((u128::from(ns) * 1_000_000 / u128::from(window)).min(1 << 31) as u32);
        taken.into_iter().map(|(uid, ns)| (uid, share(ns))).collect()
    }

    fn over(&mut self, now: Instant, readings: &[Reading], most: Share) -> Vec<(SubscriptionId, String)> {
        let window = self.began.replace(now).map_or(Nanos::ZERO, |began| now.since(began));
        let now_ns = readings.iter().map(|reading| (reading.id, reading.run_ns)).collect();
        let before = std::mem::replace(&mut self.before, now_ns);
        let mut by_user: BTreeMap<u32, Vec<(u64, SubscriptionId)>> = BTreeMap::new();
        for Reading { id, uid, run_ns } in readings {
            let took = run_ns.saturating_sub(before.get(id).copied().unwrap_or(0));
            by_user.entry(*uid).or_default().push((took, *id));
        }
        by_user.values().filter_map(|taken| too_much(taken, window, most)).collect()
    }
}

/// The subscription that took most, if all together took more than `most` of the window.
fn too_much(taken: &[(u64, SubscriptionId)], window: Nanos, most: Share) -> Option<(SubscriptionId, String)> {
    let sum = Nanos::new(taken.iter().map(|(took, _)| took).sum());
    let (_, id) = taken.iter().max()?;
    let why = || {
        format!(
            "the handlers of this user took {sum} of CPU time in {window}, this one most of it; {most} is the limit \
             (ecalls.max_cpu_per_user)"
        )
    };
    (sum > most.budget_in(window)).then(|| (*id, why()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Share = Share::from_ppm(100_000);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    fn reading(id: u64, uid: u32, ms: u64) -> Reading {
        Reading { id, uid, run_ns: ms * 1_000_000 }
    }

    #[test]
    fn the_handler_that_took_most_of_a_user_above_the_limit_is_removed() {
        let mut times = RunTimes::default();
        let ids = |over: Vec<(SubscriptionId, String)>| over.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        times.over(at(0), &[reading(1, 7, 500), reading(2, 7, 900)], MOST);
        let quiet = [reading(1, 7, 540), reading(2, 7, 960), reading(3, 8, 100)];
        assert_eq!(ids(times.over(at(1_000), &quiet, MOST)), [0; 0], "a tenth of a CPU is allowed");
        let busy = [reading(1, 7, 601), reading(2, 7, 1_000), reading(3, 8, 300), reading(4, 8, 0)];
        let over = times.over(at(2_000), &busy, MOST);
        assert!(over[0].1.contains("101 ms") && over[0].1.contains("0.1 CPU"), "{over:?}");
        assert_eq!(ids(over), [1, 3], "each user for itself");
        assert_eq!(ids(times.over(at(4_000), &[reading(1, 7, 800)], MOST)), [0; 0], "a longer window allows more");
    }
}
