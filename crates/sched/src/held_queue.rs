//! Events that are delivered at a moment of their own, such as the display time of a frame.
//!
//! Problem: a notification that comes when a frame arrives wakes its player too early, and in the order of arrival.
//! Approach: the events wait here, ordered by their moments, and leave when these have come; events of one moment
//! leave in order of arrival. A user other than root has at most a quarter of the places, and all of them together
//! leave an eighth to root, as in [`crate::FairQueue`]. Source: 000 §3.5.2 («places the notification events into the
//! event queue ordered by the display time of the next frame»).

use std::collections::BTreeMap;

use qfabric_types::Instant;

use crate::Full;
use crate::fair_queue::places;

/// A bounded queue of events, each with the moment at which it leaves. User 0 is root.
#[derive(Debug)]
pub struct HeldQueue<T> {
    /// By moment, then by number of arrival.
    events: BTreeMap<(Instant, u64), (u32, T)>,
    /// Number of waiting events of each user that has some.
    users: BTreeMap<u32, usize>,
    arrived: u64,
    capacity: usize,
}

impl<T> HeldQueue<T> {
    /// A queue for at most `capacity` events.
    pub fn new(capacity: usize) -> Self {
        HeldQueue { events: BTreeMap::new(), users: BTreeMap::new(), arrived: 0, capacity }
    }

    /// Holds an event of a user until `moment`.
    ///
    /// # Errors
    /// [`Full`] with the event if the user or the queue has no place.
    pub fn hold(&mut self, user: u32, moment: Instant, event: T) -> Result<(), Full<T>> {
        let (most, of_all) = places(user, self.capacity);
        let own = self.users.get(&user).copied().unwrap_or_default();
        if own >= most || self.events.len() >= of_all {
            return Err(Full(event));
        }
        self.users.insert(user, own + 1);
        self.events.insert((moment, self.arrived), (user, event));
        self.arrived += 1;
        Ok(())
    }

    /// The first event whose moment has come at `now`.
    pub fn release(&mut self, now: Instant) -> Option<T> {
        let first = self.events.first_entry().filter(|first| first.key().0 <= now)?;
        let (user, event) = first.remove();
        if let Some(own) = self.users.get_mut(&user) {
            *own -= 1;
            if *own == 0 {
                self.users.remove(&user);
            }
        }
        Some(event)
    }

    /// The earliest moment of the waiting events.
    pub fn next_moment(&self) -> Option<Instant> {
        self.events.first_key_value().map(|((moment, _), _)| *moment)
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ns: u64) -> Instant {
        Instant::new(ns)
    }

    #[test]
    fn an_event_leaves_at_its_moment_and_not_before() {
        let mut queue = HeldQueue::new(8);
        for (moment, event) in [(9, 'c'), (5, 'a'), (9, 'd'), (7, 'b')] {
            queue.hold(0, at(moment), event).unwrap();
        }
        assert_eq!((queue.release(at(4)), queue.next_moment()), (None, Some(at(5))));
        assert_eq!([queue.release(at(5)), queue.release(at(5))], [Some('a'), None]);
        let rest: String = std::iter::from_fn(|| queue.release(at(9))).collect();
        assert_eq!((rest.as_str(), queue.is_empty()), ("bcd", true), "equal moments: in order of arrival");
    }

    #[test]
    fn a_user_has_a_quarter_of_the_places_and_gets_them_back() {
        let mut queue = HeldQueue::new(16);
        let room = |queue: &mut HeldQueue<u32>, user, moment| {
            (0..100).take_while(|_| queue.hold(user, at(moment), user).is_ok()).count()
        };
        assert_eq!([1, 2, 3, 4, 5].map(|user| room(&mut queue, user, 1)), [4, 4, 4, 2, 0]);
        assert_eq!((room(&mut queue, 0, 2), queue.len()), (2, 16));
        assert_eq!((0..4).map(|_| queue.release(at(1))).collect::<Vec<_>>(), [Some(1); 4]);
        assert_eq!((room(&mut queue, 1, 3), room(&mut queue, 0, 3)), (2, 2), "an eighth stays for root");
    }

    proptest! {
        /// Whatever the order of arrival, events leave in the order of a stable sort by moment.
        #[test]
        fn it_behaves_as_a_stable_sort(moments in prop::collection::vec(0u64..20, 0..50)) {
            let mut queue = HeldQueue::new(64);
            for (number, moment) in moments.iter().enumerate() {
                queue.hold(0, at(*moment), number).unwrap();
            }
            let mut expected: Vec<usize> = (0..moments.len()).collect();
            expected.sort_by_key(|number| moments[*number]);
            let mut left = Vec::new();
            for now in 0..20 {
                let first = expected.get(left.len()).map(|number| at(moments[*number]));
                prop_assert_eq!(queue.next_moment(), first);
                left.extend(std::iter::from_fn(|| queue.release(at(now))));
            }
            prop_assert_eq!(left, expected);
        }
    }
}
