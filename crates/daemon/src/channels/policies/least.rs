//! Load balancing: an event of one type goes to the least loaded sinks of other hosts.
//!
//! A built-in OUT-filter, named [`SPOT`], reads the attribute `load` of each sink. A sink without this attribute
//! receives no event. The filter allocates no memory: it walks over the sinks once for each copy.

use qfabric_channel::{Candidates, Choose, Direction, Error, Event, FilterError, FilterId};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::BalancePolicy;
use qfabric_types::channel::{ChannelId, Name};

use super::super::{Fabric, Network, lock};
use super::Scoped;

/// Filters run in the order of their names: this one chooses among the sinks that other filters have left.
const SPOT: &str = "zz.least";

/// The attribute of a sink.
const LOAD: &str = "load";

/// Largest number of copies of one request.
pub(super) const MOST_COPIES: u32 = 16;

/// Number of sinks for the events of a type.
#[derive(Clone, Debug)]
pub(super) struct Least {
    copies: usize,
    event_type: String,
}

fn filter_id(channel: &Name) -> FilterId {
    let name = SPOT.parse().expect("is a name");
    FilterId { channel: ChannelId::data(channel.clone()), direction: Direction::Out, name }
}

fn filter(here: Name, copies: usize) -> Choose {
    Box::new(move |_: &Event<'_>, sinks: Candidates<'_>, chosen: &mut [bool]| {
        let load = |at: usize| sinks.attribute(at, LOAD).filter(|_| sinks.member(at).host != here);
        keep_least(load, copies, chosen);
    })
}

/// Keeps the `copies` chosen sinks with the smallest load; among equal loads, the first.
fn keep_least(load: impl Fn(usize) -> Option<i64>, copies: usize, chosen: &mut [bool]) {
    // The last sink that was kept. All kept sinks precede it in the order of loads and places.
    let mut last: Option<(i64, usize)> = None;
    for _ in 0..copies {
        let behind = |key: &(i64, usize)| last.is_none_or(|last| *key > last);
        let keys = (0..chosen.len()).filter(|at| chosen[*at]).filter_map(|at| Some((load(at)?, at)));
        match keys.filter(behind).min() {
            Some(next) => last = Some(next),
            None => break,
        }
    }
    for (at, chosen) in chosen.iter_mut().enumerate() {
        *chosen &= load(at).is_some_and(|load| last.is_some_and(|last| (load, at) <= last));
    }
}

impl Fabric {
    /// From now on events of the policy's type go to the least loaded sinks, also if the channel is opened later.
    pub(super) fn balance(&self, policy: &BalancePolicy, user: Option<u32>) -> Result<(), Problem> {
        let BalancePolicy { channel, copies, event_type, .. } = policy;
        let what = Least { copies: *copies as usize, event_type: event_type.clone() };
        let least = Scoped { what, user };
        match self.network.put_least(channel, &least) {
            Ok(()) | Err(FilterError::Channel(Error::NotOpen(_))) => {}
            Err(error) => return Err(error.problem()),
        }
        lock(&self.policies.least).insert(channel.clone(), least);
        Ok(())
    }

    /// Installs the filter when the channel is opened here.
    pub(super) fn install_least(&self, channel: &Name) {
        let found = lock(&self.policies.least).get(channel).cloned();
        let Some(least) = found else { return };
        if let Err(error) = self.network.put_least(channel, &least) {
            tracing::warn!(%channel, %error, "requests are not balanced");
        }
    }

    /// From now on events go to all sinks again.
    pub(super) fn unbalance(&self, channel: &Name) {
        lock(&self.policies.least).remove(channel);
        // If the channel was closed, the filter was removed with it.
        let _ = self.network.look(|node| node.remove_filter(&filter_id(channel)));
    }
}

impl Network {
    fn put_least(&self, channel: &Name, least: &Scoped<Least>) -> Result<(), FilterError> {
        let Scoped { what: Least { copies, event_type }, user } = least;
        let (choose, types) = (filter(self.host.clone(), *copies), std::slice::from_ref(event_type));
        self.look(|node| node.install_own(filter_id(channel), *user, types, choose))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_says_no_load_serves_nobody() {
        let loads = [Some(3), None, Some(1), Some(1), Some(9)];
        let mut chosen = [true; 5];
        keep_least(|at| loads[at], 2, &mut chosen);
        assert_eq!(chosen, [false, false, true, true, false]);
        keep_least(|at| loads[at], 1, &mut chosen);
        assert_eq!(chosen, [false, false, true, false, false], "of equals the first");
        keep_least(|_| None, 1, &mut chosen);
        assert_eq!(chosen, [false; 5]);
    }

    proptest! {
        #[test]
        fn nobody_who_is_left_out_has_less_to_do(
            sinks in proptest::collection::vec((proptest::option::of(0i64..20), any::<bool>()), 0..30),
            copies in 1usize..6,
        ) {
            let mut chosen: Vec<bool> = sinks.iter().map(|(_, chosen)| *chosen).collect();
            let able = sinks.iter().filter(|(load, chosen)| *chosen && load.is_some()).count();
            keep_least(|at| sinks[at].0, copies, &mut chosen);
            let kept = sinks.iter().zip(&chosen).filter(|(_, kept)| **kept).map(|((load, _), _)| load.unwrap());
            let kept: Vec<i64> = kept.collect();
            prop_assert_eq!(kept.len(), able.min(copies));
            let out = sinks.iter().zip(&chosen).filter(|((load, wanted), kept)| *wanted && !**kept && load.is_some());
            for ((load, _), _) in out {
                prop_assert!(kept.iter().all(|kept| Some(*kept) <= *load));
            }
        }
    }
}
