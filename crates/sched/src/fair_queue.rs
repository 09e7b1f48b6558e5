//! A queue for the events of several users: the users take turns, and the events of a user leave by deadline, then by
//! priority.
//!
//! Problem: in one queue in the order of deadlines, a user who claims early deadlines delays the events of all others,
//! and a user who fills the queue has the events of all others refused. Approach: one [`EventQueue`] for each user with
//! waiting events, and round robin among these. A user other than root has at most a quarter of the places, and all of
//! them together leave an eighth to root.

use std::collections::{BTreeMap, VecDeque};

use qfabric_types::Instant;

use crate::{EventQueue, Full};

/// Of the `capacity` of a queue, the places for the events of `user`, and those for the events of all users before it
/// is full for this one.
pub(crate) fn places(user: u32, capacity: usize) -> (usize, usize) {
    match user {
        0 => (capacity, capacity),
        _ => (capacity.div_ceil(4), capacity - capacity / 8),
    }
}

/// A bounded queue that serves users in turn. User 0 is root.
#[derive(Debug)]
pub struct FairQueue<T> {
    users: BTreeMap<u32, EventQueue<T>>,
    /// The users with waiting events; the first one is next.
    turns: VecDeque<u32>,
    waiting: usize,
    capacity: usize,
}

impl<T> FairQueue<T> {
    /// A queue for at most `capacity` events.
    pub fn new(capacity: usize) -> Self {
        FairQueue { users: BTreeMap::new(), turns: VecDeque::new(), waiting: 0, capacity }
    }

    /// Adds an event of a user that is of use until `deadline`. Among the user's events with equal deadlines, those
    /// with the smallest `priority` are first; it has no effect on other users.
    ///
    /// # Errors
    /// [`Full`] with the event if the user or the queue has no place.
    pub fn push(&mut self, user: u32, deadline: Instant, priority: i32, event: T) -> Result<(), Full<T>> {
        let (most, of_all) = places(user, self.capacity);
        if self.waiting >= of_all {
            return Err(Full(event));
        }
        let turns = &mut self.turns;
        let queue = self.users.entry(user).or_insert_with(|| {
            turns.push_back(user);
            EventQueue::new(most)
        });
        queue.push_prioritized(deadline, priority, event)?;
        self.waiting += 1;
        Ok(())
    }

    /// The event to deliver at `now`: of the next user, the one with the earliest deadline. Late events before it are
    /// dropped and passed to `late`.
    pub fn take(&mut self, now: Instant, mut late: impl FnMut(T)) -> Option<T> {
        while let Some(user) = self.turns.pop_front() {
            let Some(queue) = self.users.get_mut(&user) else { continue };
            let before = queue.len();
            let taken = queue.take(now, &mut late);
            self.waiting -= before - queue.len();
            match queue.is_empty() {
                true => drop(self.users.remove(&user)),
                false => self.turns.push_back(user),
            }
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(queue: &mut FairQueue<(u32, u64)>, now: u64) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| queue.take(Instant::new(now), drop)).collect()
    }

    #[test]
    fn early_deadlines_of_one_user_do_not_delay_another_by_more_than_a_turn() {
        let mut queue = FairQueue::new(64);
        (1..=6).for_each(|at| queue.push(7, Instant::new(at), 0, (7, at)).unwrap());
        [90, 80].into_iter().for_each(|at| queue.push(8, Instant::new(at), 0, (8, at)).unwrap());
        queue.push(9, Instant::NEVER, 0, (9, 0)).unwrap();
        let order = drained(&mut queue, 0);
        assert_eq!(order, [(7, 1), (8, 80), (9, 0), (7, 2), (8, 90), (7, 3), (7, 4), (7, 5), (7, 6)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_priority_orders_the_events_of_one_user_and_takes_no_turn_of_another() {
        let mut queue = FairQueue::new(64);
        queue.push(7, Instant::NEVER, 20, (7, 1)).unwrap();
        queue.push(8, Instant::NEVER, 39, (8, 1)).unwrap();
        (2..=3).for_each(|at| queue.push(7, Instant::NEVER, -101, (7, at)).unwrap());
        assert_eq!(drained(&mut queue, 0), [(7, 2), (8, 1), (7, 3), (7, 1)]);
    }

    #[test]
    fn a_user_has_a_quarter_of_the_places_and_all_users_leave_an_eighth_to_root() {
        let mut queue = FairQueue::new(16);
        let room = |queue: &mut FairQueue<u32>, user| {
            (0..100).take_while(|_| queue.push(user, Instant::NEVER, 0, user).is_ok()).count()
        };
        assert_eq!([1, 2, 3, 4, 5].map(|user| room(&mut queue, user)), [4, 4, 4, 2, 0]);
        assert_eq!((room(&mut queue, 0), queue.len()), (2, 16));
        assert!(queue.take(Instant::ZERO, drop).is_some());
        assert_eq!((room(&mut queue, 5), room(&mut queue, 0)), (0, 1), "the place goes to root");
    }

    #[test]
    fn late_events_take_no_turn_and_give_their_places_back() {
        let mut queue = FairQueue::new(8);
        queue.push(7, Instant::new(3), 0, (7, 3)).unwrap();
        queue.push(7, Instant::new(4), 0, (7, 4)).unwrap();
        queue.push(8, Instant::new(9), 0, (8, 9)).unwrap();
        let mut late = Vec::new();
        assert_eq!(queue.take(Instant::new(5), |event| late.push(event)), Some((8, 9)));
        assert_eq!((late, queue.len()), (vec![(7, 3), (7, 4)], 0));
    }
}
