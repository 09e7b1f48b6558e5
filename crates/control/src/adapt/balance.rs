//! Load balancing: requests that have waited too long go to the least loaded of the other servers.
//!
//! ```text
//!   server        waits > bound ──> OUT-filter ──> the n least loaded   (their load comes as an attribute)
//!   others        serve it, answer; the first answer counts (IN-filter), or the first that begins cancels the rest
//! ```
//!
//! Source: thesis §4.2.3 and §4.5 (Figures 31, 32). Departure: the server does not drop the original when its
//! copies go out, but keeps it until an answer comes. So the request is served even if the host of a copy dies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use qfabric_types::{Instant, Nanos};

/// Requests that wait at one server, oldest first.
#[derive(Clone, Debug)]
pub struct Waiting {
    bound: Nanos,
    most: usize,
    queue: VecDeque<(u64, Instant)>,
}

impl Waiting {
    /// Forwards requests that have waited for `bound`. Holds at most `most` requests, so that a flood uses a
    /// bounded amount of memory.
    pub fn new(bound: Nanos, most: usize) -> Self {
        Waiting { bound, most, queue: VecDeque::new() }
    }

    /// Adds a request. Returns `false` if the queue is full.
    pub fn push(&mut self, request: u64, now: Instant) -> bool {
        let room = self.queue.len() < self.most;
        if room {
            self.queue.push_back((request, now));
        }
        room
    }

    /// Takes the next request to serve.
    pub fn pop(&mut self) -> Option<u64> {
        self.queue.pop_front().map(|(request, _)| request)
    }

    /// Takes the next request that has waited too long.
    pub fn overdue(&mut self, now: Instant) -> Option<u64> {
        let (_, since) = self.queue.front()?;
        if now.since(*since) < self.bound { None } else { self.pop() }
    }

    /// A copy of the request is served elsewhere. Returns whether the request was in this queue.
    pub fn cancel(&mut self, request: u64) -> bool {
        let before = self.queue.len();
        self.queue.retain(|(waiting, _)| *waiting != request);
        self.queue.len() < before
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The time at which the oldest request will have waited too long.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.queue.front().map(|(_, since)| *since + self.bound)
    }
}

/// The `n` least loaded sinks, least first; equal loads are ordered by number. This is the OUT-filter's rule, for
/// filters in Rust.
pub fn least_loaded(loads: impl IntoIterator<Item = (u64, i64)>, n: usize) -> Vec<u64> {
    let mut order: Vec<(i64, u64)> = loads.into_iter().map(|(sink, load)| (load, sink)).collect();
    order.sort_unstable();
    order.into_iter().take(n).map(|(_, sink)| sink).collect()
}

/// A server's claim to serve a request. The earliest claim wins; among equal times, the lowest number. Members that
/// see the same claims choose the same server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Time at which the server began, on the channel's common clock.
    pub at: Instant,
    pub server: u64,
}

/// The answers and claims seen for the most recent requests.
#[derive(Clone, Debug)]
pub struct Answers {
    most: usize,
    order: VecDeque<u64>,
    answered: BTreeSet<u64>,
    claims: BTreeMap<u64, Claim>,
}

impl Answers {
    /// Remembers the last `most` requests. Choose the number of requests under way times the copies of each.
    pub fn new(most: usize) -> Self {
        Answers { most, order: VecDeque::new(), answered: BTreeSet::new(), claims: BTreeMap::new() }
    }

    /// Records an answer; returns whether it is the first one for its request. The IN-filter lets only the first
    /// pass.
    pub fn first(&mut self, request: u64) -> bool {
        self.remember(request);
        self.answered.insert(request)
    }

    /// A server began a request. Returns whether its claim wins against those seen before.
    pub fn claim(&mut self, request: u64, claim: Claim) -> bool {
        self.remember(request);
        let standing = self.claims.entry(request).or_insert(claim);
        *standing = claim.min(*standing);
        *standing == claim
    }

    fn remember(&mut self, request: u64) {
        if self.answered.contains(&request) || self.claims.contains_key(&request) {
            return;
        }
        self.order.push_back(request);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.answered.remove(&oldest);
            self.claims.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: fn(u64) -> Instant = |ms| Instant::new(ms * 1_000_000);

    #[test]
    fn overdue_requests_leave_in_the_order_of_arrival() {
        let mut waiting = Waiting::new(Nanos::from_millis(2_500), 10);
        assert!(waiting.push(1, AT(0)) && waiting.push(2, AT(100)));
        assert_eq!((waiting.overdue(AT(2_499)), waiting.next_wakeup()), (None, Some(AT(2_500))));
        assert_eq!((waiting.overdue(AT(2_500)), waiting.overdue(AT(2_500))), (Some(1), None));
        assert_eq!(waiting.overdue(AT(9_000)), Some(2));
    }

    #[test]
    fn a_full_queue_refuses_a_request() {
        let mut waiting = Waiting::new(Nanos::from_millis(1), 1);
        assert!(waiting.push(1, AT(0)) && !waiting.push(2, AT(0)));
        assert!(waiting.cancel(1) && !waiting.cancel(1) && waiting.push(2, AT(0)));
    }

    #[test]
    fn the_first_answer_counts() {
        let mut answers = Answers::new(2);
        assert!(answers.first(7) && !answers.first(7));
        assert!(answers.first(8) && answers.first(9), "later requests push it out");
        assert!(answers.order.len() == 2 && answers.answered.len() == 2);
    }

    proptest! {
        #[test]
        fn members_that_see_the_same_claims_agree(mut claims in proptest::collection::vec((0u64..50, 0u64..9), 1..9)) {
            let winner = |claims: &[(u64, u64)]| {
                let mut answers = Answers::new(4);
                claims.iter().for_each(|(at, server)| {
                    answers.claim(1, Claim { at: AT(*at), server: *server });
                });
                answers.claims[&1]
            };
            let one = winner(&claims);
            claims.reverse();
            prop_assert_eq!(one, winner(&claims));
        }

        #[test]
        fn the_least_loaded_are_chosen(loads in proptest::collection::vec(0i64..100, 0..30), n in 0usize..8) {
            let chosen = least_loaded(loads.iter().enumerate().map(|(i, load)| (i as u64, *load)), n);
            let worst = chosen.iter().map(|i| loads[*i as usize]).max().unwrap_or(i64::MIN);
            prop_assert_eq!(chosen.len(), n.min(loads.len()));
            let better = (0..loads.len()).filter(|i| !chosen.contains(&(*i as u64)) && loads[*i] < worst).count();
            prop_assert_eq!(better, 0);
        }
    }
}
