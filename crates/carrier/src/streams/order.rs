//! The order in which messages of the engine with streams are given out.

use std::collections::BTreeMap;
use std::time::Instant;

use qfabric_metp::{DeliveryOrder, Mode};

use super::receiving::Arrived;
use crate::handover::MESSAGE_COST;

/// Messages that wait for earlier ones, by number.
pub(super) struct Order {
    order: DeliveryOrder,
    next: u64,
    waiting: BTreeMap<u64, Arrived>,
    bytes: u64,
    /// The sender has ended all its streams: nothing earlier can come.
    is_complete: bool,
}

/// Messages that never came: the first one and their number.
pub(super) type Skipped = Option<(u64, u64)>;

impl Order {
    pub(super) fn new(order: DeliveryOrder) -> Order {
        Order { order, next: 0, waiting: BTreeMap::new(), bytes: 0, is_complete: false }
    }

    /// Returns false for a message whose turn has passed, or that has come before.
    pub(super) fn push(&mut self, arrived: Arrived) -> bool {
        let is_new = arrived.number >= self.next && !self.waiting.contains_key(&arrived.number);
        if is_new {
            self.bytes += arrived.cost();
            self.waiting.insert(arrived.number, arrived);
        }
        is_new
    }

    pub(super) fn release_all(&mut self) {
        self.is_complete = true;
    }

    /// The next message: the first one, when all earlier ones came or were dropped, or its own deadline has come.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Skipped, Arrived)> {
        let first = self.waiting.first_entry()?;
        let arrived = first.get();
        let is_next = *first.key() <= self.next.saturating_add(arrived.dropped_before.into());
        let is_due = arrived.release().is_some_and(|at| at <= now);
        if !(is_next || is_due || self.is_complete || self.order == DeliveryOrder::WhenComplete) {
            return None;
        }
        let (number, arrived) = first.remove_entry();
        self.bytes -= arrived.cost();
        let skipped = (number > self.next).then(|| (self.next, number - self.next));
        let skipped = skipped.filter(|_| self.order == DeliveryOrder::InOrder);
        self.next = if self.order == DeliveryOrder::InOrder { number + 1 } else { self.next };
        Some((skipped, arrived))
    }

    /// When the first message is given out although earlier ones are missing.
    pub(super) fn next_release(&self) -> Option<Instant> {
        self.waiting.values().next()?.release()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Memory of the messages that wait, also of those of which nothing came.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Arrived {
    fn cost(&self) -> u64 {
        self.data.len() as u64 + MESSAGE_COST
    }

    /// Only partially reliable messages overtake missing ones.
    fn release(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.mode == Mode::PartiallyReliable)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use qfabric_metp::FrameKind;

    use super::*;

    fn arrived(number: u64, mode: Mode, deadline: Option<Instant>, dropped_before: u32) -> Arrived {
        let data = vec![1; 10];
        let (at, delay) = (Instant::now(), Duration::ZERO);
        Arrived { number, kind: FrameKind::P, mode, size: 10, data, dropped_before, deadline, at, delay }
    }

    #[test]
    fn a_message_waits_for_earlier_ones_until_its_deadline() {
        let mut order = Order::new(DeliveryOrder::InOrder);
        let now = Instant::now();
        let later = now + Duration::from_millis(50);
        assert!(order.push(arrived(2, Mode::PartiallyReliable, Some(later), 0)));
        assert!(order.push(arrived(0, Mode::PartiallyReliable, Some(later), 0)));
        assert_eq!(order.pop(now).unwrap().1.number, 0);
        assert!(order.pop(now).is_none());
        assert_eq!(order.next_release(), Some(later));
        let (skipped, message) = order.pop(later).unwrap();
        assert_eq!((skipped, message.number), (Some((1, 1)), 2));
        assert!(!order.push(arrived(1, Mode::PartiallyReliable, Some(later), 0)), "its turn has passed");
    }

    #[test]
    fn messages_of_which_nothing_came_take_memory_while_they_wait() {
        let mut order = Order::new(DeliveryOrder::InOrder);
        for number in 1..=100 {
            order.push(Arrived { data: Vec::new(), ..arrived(number, Mode::TotallyReliable, None, 0) });
        }
        assert_eq!(order.bytes(), 100 * MESSAGE_COST, "the first one may never come");
        order.release_all();
        assert_eq!(std::iter::from_fn(|| order.pop(Instant::now())).count(), 100);
        assert_eq!(order.bytes(), 0);
    }

    #[test]
    fn dropped_messages_are_not_waited_for_and_reliable_ones_always() {
        let mut order = Order::new(DeliveryOrder::InOrder);
        let now = Instant::now();
        order.push(arrived(2, Mode::PartiallyReliable, Some(now + Duration::from_secs(9)), 2));
        assert_eq!(order.pop(now).unwrap().0, Some((0, 2)));
        order.push(arrived(4, Mode::TotallyReliable, Some(now), 0));
        assert!(order.pop(now + Duration::from_secs(1)).is_none());
        order.release_all();
        assert_eq!(order.pop(now).unwrap().0, Some((3, 1)));
    }
}
