//! The event queue of ECalls (003 §3.1, 000 §3.2.2): earliest deadline first, late events dropped.
//!
//! Problem: events of many services, some with deadlines, wait for one dispatcher. Approach: a heap ordered by
//! deadline, then by priority, then by arrival; events without a deadline come last. An event is late if its
//! deadline has passed when it is taken; it is then counted and not delivered. The queue is bounded: an event that
//! finds it full is refused and counted, so that a flood costs the newest events of the flooding source, not
//! memory. Source: 000 §3.2.1 («events that miss their deadline are discarded from the event queue»).

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use qfabric_types::Instant;

/// A bounded queue in the order of deadlines.
#[derive(Debug)]
pub struct EventQueue<T> {
    heap: BinaryHeap<Entry<T>>,
    capacity: usize,
    /// Number of the next arrival; events with equal deadlines and priorities leave first in, first out.
    next: u64,
    refused: u64,
    late: u64,
}

/// The queue is full; contains the refused event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> EventQueue<T> {
    /// A queue for at most `capacity` events.
    pub fn new(capacity: usize) -> Self {
        EventQueue { heap: BinaryHeap::new(), capacity, next: 0, refused: 0, late: 0 }
    }

    /// Adds an event that is of use until `deadline`; use [`Instant::NEVER`] if it has no deadline.
    ///
    /// # Errors
    /// [`Full`] with the event if the queue has no room.
    pub fn push(&mut self, deadline: Instant, event: T) -> Result<(), Full<T>> {
        self.push_prioritized(deadline, 0, event)
    }

    /// As [`EventQueue::push`]; among events with equal deadlines, those with the smallest priority are first.
    ///
    /// # Errors
    /// [`Full`] with the event if the queue has no room.
    pub fn push_prioritized(&mut self, deadline: Instant, priority: i32, event: T) -> Result<(), Full<T>> {
        if self.heap.len() >= self.capacity {
            self.refused += 1;
            return Err(Full(event));
        }
        self.heap.push(Entry { deadline, priority, arrival: self.next, event });
        self.next += 1;
        Ok(())
    }

    /// The event to deliver at `now`. Late events before it are dropped and passed to `late`.
    pub fn take(&mut self, now: Instant, mut late: impl FnMut(T)) -> Option<T> {
        while let Some(entry) = self.heap.pop() {
            if entry.deadline >= now {
                return Some(entry.event);
            }
            self.late += 1;
            late(entry.event);
        }
        None
    }

    /// The first waiting event, late or not.
    pub fn first(&self) -> Option<&T> {
        self.heap.peek().map(|entry| &entry.event)
    }

    /// The first event for which `fits` holds. O(1) if it is the first of all, else O(n).
    pub fn first_where(&self, fits: impl Fn(&T) -> bool) -> Option<&T> {
        match self.first() {
            Some(event) if fits(event) => Some(event),
            _ => self.heap.iter().filter(|entry| fits(&entry.event)).max().map(|entry| &entry.event),
        }
    }

    /// Removes the first event if `fits` holds for it, else all events for which it holds.
    pub fn remove_where(&mut self, fits: impl Fn(&T) -> bool) {
        match self.first() {
            Some(event) if fits(event) => drop(self.heap.pop()),
            _ => self.heap.retain(|entry| !fits(&entry.event)),
        }
    }

    /// Drops the events whose deadline is before `now`, and passes each to `late`.
    pub fn drop_late(&mut self, now: Instant, mut late: impl FnMut(T)) {
        while self.next_deadline().is_some_and(|deadline| deadline < now) {
            self.late += 1;
            self.heap.pop().into_iter().for_each(|entry| late(entry.event));
        }
    }

    /// The earliest deadline of the waiting events.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.deadline)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Number of events that were refused because the queue was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Number of events that were dropped because they were late.
    pub fn late(&self) -> u64 {
        self.late
    }
}

#[derive(Debug)]
struct Entry<T> {
    deadline: Instant,
    priority: i32,
    arrival: u64,
    event: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (Instant, i32, u64) {
        (self.deadline, self.priority, self.arrival)
    }
}

/// `BinaryHeap` returns the greatest entry first, so an earlier entry is greater.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ns: u64) -> Instant {
        Instant::new(ns)
    }

    #[test]
    fn equal_deadlines_leave_in_order_of_arrival_and_no_deadline_comes_last() {
        let mut queue = EventQueue::new(8);
        for (deadline, event) in
            [(Instant::NEVER, 'x'), (at(9), 'a'), (at(5), 'b'), (at(9), 'c'), (Instant::NEVER, 'y')]
        {
            queue.push(deadline, event).unwrap();
        }
        let order: String = std::iter::from_fn(|| queue.take(at(1), |_| ())).collect();
        assert_eq!(order, "bacxy");
    }

    #[test]
    fn among_equal_deadlines_the_smallest_priority_is_first_and_no_priority_precedes_a_deadline() {
        let mut queue = EventQueue::new(8);
        let events = [
            (Instant::NEVER, 20, 'x'),
            (Instant::NEVER, -101, 'y'),
            (at(9), 20, 'a'),
            (at(9), -51, 'b'),
            (at(9), 20, 'c'),
            (at(8), 39, 'd'),
        ];
        for (deadline, priority, event) in events {
            queue.push_prioritized(deadline, priority, event).unwrap();
        }
        let order: String = std::iter::from_fn(|| queue.take(at(1), |_| ())).collect();
        assert_eq!(order, "dbacyx");
    }

    #[test]
    fn an_event_is_in_time_at_its_deadline_and_late_after_it() {
        let mut queue = EventQueue::new(2);
        queue.push(at(5), 'a').unwrap();
        queue.push(at(6), 'b').unwrap();
        let mut late = Vec::new();
        assert_eq!(queue.take(at(6), |event| late.push(event)), Some('b'));
        assert_eq!((late, queue.late()), (vec!['a'], 1));
    }

    #[test]
    fn a_full_queue_refuses_and_counts() {
        let mut queue = EventQueue::new(1);
        queue.push(at(5), 'a').unwrap();
        assert_eq!(queue.push(at(1), 'b'), Err(Full('b')));
        assert_eq!((queue.refused(), queue.len(), queue.next_deadline()), (1, 1, Some(at(5))));
    }

    #[test]
    fn the_first_fitting_event_is_found_and_removed_behind_others() {
        let mut queue = EventQueue::new(8);
        for (deadline, event) in [(at(9), 'a'), (at(5), 'b'), (at(7), 'c'), (at(2), 'd')] {
            queue.push(deadline, event).unwrap();
        }
        let mut late = Vec::new();
        queue.drop_late(at(3), |event| late.push(event));
        assert_eq!((late, queue.first(), queue.late()), (vec!['d'], Some(&'b'), 1));
        assert_eq!(queue.first_where(|event| *event != 'b'), Some(&'c'));
        queue.remove_where(|event| *event == 'c');
        assert_eq!((queue.first_where(|event| *event != 'b'), queue.len()), (Some(&'a'), 2));
    }

    #[derive(Clone, Debug)]
    enum Action {
        Push(Option<u8>),
        Take(u8),
    }

    fn action() -> impl Strategy<Value = Action> {
        let push = prop::option::of(0u8..20).prop_map(Action::Push);
        prop_oneof![3 => push, 2 => (0u8..20).prop_map(Action::Take)]
    }

    proptest! {
        /// Behaves like a list sorted by deadline with a stable sort.
        #[test]
        fn it_behaves_as_a_sorted_list(actions in prop::collection::vec(action(), 0..200), capacity in 0usize..12) {
            let mut queue = EventQueue::new(capacity);
            let mut model: Vec<(Instant, usize)> = Vec::new();
            let (mut refused, mut late) = (0, 0);
            for (number, action) in actions.into_iter().enumerate() {
                match action {
                    Action::Push(deadline) => {
                        let deadline = deadline.map_or(Instant::NEVER, |ns| at(ns.into()));
                        let fits = model.len() < capacity;
                        prop_assert_eq!(queue.push(deadline, number).is_ok(), fits);
                        if fits { model.push((deadline, number)) } else { refused += 1 }
                        model.sort_by_key(|(deadline, _)| *deadline);
                    }
                    Action::Take(now) => {
                        let now = at(now.into());
                        let expired = model.iter().take_while(|(deadline, _)| *deadline < now).count();
                        let dropped: Vec<_> = model.drain(..expired).map(|(_, number)| number).collect();
                        let expected = (!model.is_empty()).then(|| model.remove(0).1);
                        let mut seen = Vec::new();
                        prop_assert_eq!(queue.take(now, |event| seen.push(event)), expected);
                        prop_assert_eq!(&seen, &dropped);
                        late += dropped.len() as u64;
                    }
                }
                prop_assert_eq!((queue.len(), queue.refused(), queue.late()), (model.len(), refused, late));
                prop_assert_eq!(queue.next_deadline(), model.first().map(|(deadline, _)| *deadline));
            }
        }
    }
}
