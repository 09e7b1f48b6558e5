//! Changes that wait for a policy. The threads that carry events record them; the number is bounded, and the oldest is
//! dropped: of readings the oldest of the same value, if one waits, so that a flood of one value displaces only itself.

use std::collections::VecDeque;

use qfabric_host::manager::{Change, ChangeKind};

/// Largest number of waiting readings. If a policy is too slow, later readings replace the dropped ones.
pub(super) const MOST_READINGS: usize = 256;
/// Largest number of other waiting changes: as many as one input of a manager may cause.
pub(super) const MOST_EVENTS: usize = 4_096;

/// Changes in order of arrival, in two queues, so that readings do not displace changes that are sent only once.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    readings: VecDeque<(u64, Change)>,
    events: VecDeque<(u64, Change)>,
    /// Number of the next change.
    next: u64,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.readings.is_empty() && self.events.is_empty()
    }

    /// Records a change. `true`: an older change of its sort was dropped.
    pub(super) fn push(&mut self, change: Change) -> bool {
        let (queue, most) = match change.what {
            ChangeKind::Reading(_) => (&mut self.readings, MOST_READINGS),
            _ => (&mut self.events, MOST_EVENTS),
        };
        let is_full = queue.len() >= most;
        if is_full {
            let oldest = match change.what {
                ChangeKind::Reading(_) => queue.iter().position(|(_, waiting)| is_same_value(waiting, &change)),
                // Not searched: the queue is long, and one input may push as many changes under the node's lock.
                _ => None,
            };
            queue.remove(oldest.unwrap_or(0));
        }
        queue.push_back((self.next, change));
        self.next += 1;
        is_full
    }

    /// The oldest change.
    pub(super) fn pop(&mut self) -> Option<Change> {
        let number = |queue: &VecDeque<(u64, Change)>| queue.front().map_or(u64::MAX, |(number, _)| *number);
        let is_reading = number(&self.readings) < number(&self.events);
        let queue = if is_reading { &mut self.readings } else { &mut self.events };
        queue.pop_front().map(|(_, change)| change)
    }
}

/// Whether both are readings of one attribute of one application.
fn is_same_value(one: &Change, other: &Change) -> bool {
    let (ChangeKind::Reading(first), ChangeKind::Reading(second)) = (&one.what, &other.what) else { return false };
    (first.attribute, first.application) == (second.attribute, second.application)
        && (&one.host, &one.channel) == (&other.host, &other.channel)
}

#[cfg(test)]
mod tests {
    use qfabric_types::Instant;
    use qfabric_types::monitor::{AttributeId, Cause, HOST, Reading, Unit};

    use super::*;

    fn reading(value: i64) -> Change {
        let (attribute, at) = (AttributeId::of("cpu.load"), Instant::ZERO);
        let reading = Reading {
            attribute,
            application: HOST,
            value,
            at,
            over: qfabric_types::Nanos::ZERO,
            cause: Cause::Poll,
            unit: Unit::Count,
        };
        Change { channel: None, host: "a".parse().unwrap(), what: ChangeKind::Reading(reading) }
    }

    fn gone() -> Change {
        Change { channel: None, host: "b".parse().unwrap(), what: ChangeKind::HostGone }
    }

    #[test]
    fn changes_come_out_in_their_order() {
        let mut inbox = Inbox::default();
        let all = [reading(1), gone(), reading(2)];
        assert!(all.iter().all(|change| !inbox.push(change.clone())));
        assert_eq!(std::iter::from_fn(|| inbox.pop()).collect::<Vec<_>>(), all);
        assert!(inbox.is_empty());
    }

    #[test]
    fn the_oldest_readings_go_and_what_is_said_once_stays() {
        let mut inbox = Inbox::default();
        inbox.push(gone());
        let dropped = (0..MOST_READINGS as i64 + 3).filter(|value| inbox.push(reading(*value))).count();
        assert_eq!(dropped, 3);
        assert_eq!((inbox.pop(), inbox.pop()), (Some(gone()), Some(reading(3))));
    }

    #[test]
    fn a_flood_of_one_value_displaces_only_itself() {
        let (mut inbox, other) = (Inbox::default(), Change { host: "c".parse().unwrap(), ..reading(7) });
        let flood = |inbox: &mut Inbox| (0..3 * MOST_READINGS as i64).for_each(|value| _ = inbox.push(reading(value)));
        flood(&mut inbox);
        inbox.push(other.clone());
        flood(&mut inbox);
        let waiting: Vec<Change> = std::iter::from_fn(|| inbox.pop()).collect();
        assert_eq!(waiting.len(), MOST_READINGS);
        assert_eq!(waiting.first(), Some(&other), "it waits longest");
    }
}
