//! Rules 1 to 5: decide when the sink of an event gets the processor before DWCS would choose it (000 §3.3.1).
//!
//! Let i be the choice of DWCS and j the sink of the first event (earliest deadline, then first come; late events
//! are dropped). Then j runs instead of i
//!
//! 1. if i = j;
//! 2. if i is best effort;
//! 3. if i runs beside its periods;
//! 4. if i and j are both released with the same deadline, and *all tasks that precede j up to that deadline fit
//!    before the deadline together with j*;
//! 5. if i is the task server.
//!
//! In each case the event has been delivered and leaves the queue.
//!
//! Time that rules 2, 3 and 5 give is *extra*: it moves neither the window nor the deadline of the sink, so that
//! DWCS makes the same decisions later as it would make without events. In rule 5 this is a choice: if the time of
//! the task server counted as the sink's own service, windows of other tasks with a proven guarantee could be
//! violated (0010).
//!
//! Departure in rule 4: the thesis only asks whether i fits. Then a third task with the same deadline could miss
//! it. With the sum over all tasks that precede j, the service before d is the same as without the event (0010).

use qfabric_types::Instant;

use crate::{EventQueue, Full};

use super::machine::{Choice, Decision, Machine};
use super::task::TaskIndex;

/// Largest number of events that wait for one processor; the next event is refused and counted.
pub(super) const MAX_EVENTS: usize = 1 << 16;

/// The rule that gave the processor to the sink of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Rule 1: DWCS had chosen the sink anyway.
    Chosen,
    /// Rule 2: instead of best effort.
    BestEffort,
    /// Rule 3: instead of a task beside its periods.
    Surplus,
    /// Rule 4: before a task that has time to wait.
    Slack,
    /// Rule 5: in the time of the task server.
    TaskServer,
}

impl Rule {
    /// The number of the rule in the thesis, from 1.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// An event that waits for its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub sink: TaskIndex,
    /// Number of events that were raised before this one.
    pub number: u64,
}

#[derive(Debug)]
pub(super) struct Events {
    queue: EventQueue<(u32, Event)>,
    raised: u64,
    /// Parts of the time unit in which deadlines are given.
    pub parts: u64,
}

impl Default for Events {
    fn default() -> Self {
        Events { queue: EventQueue::new(MAX_EVENTS), raised: 0, parts: 1 }
    }
}

impl Events {
    /// The rank of the sink of the first event.
    pub(crate) fn first_sink(&self) -> Option<usize> {
        self.queue.first().map(|(rank, _)| *rank as usize)
    }
}

impl Machine {
    /// Raises an event for `sink` that is of use until `deadline`, and returns its number.
    ///
    /// # Errors
    /// [`Full`] if 65,536 events already wait.
    pub fn raise(&mut self, sink: TaskIndex, deadline: Instant) -> Result<u64, Full<Event>> {
        let event = Event { sink, number: self.events.raised };
        let rank = self.rank(sink) as u32;
        self.events.queue.push(deadline, (rank, event)).map_err(|_| Full(event))?;
        self.events.raised += 1;
        Ok(event.number)
    }

    /// Number of events that wait.
    pub fn pending(&self) -> usize {
        self.events.queue.len()
    }

    /// Number of events that were dropped because their deadline had passed.
    pub fn expired(&self) -> u64 {
        self.events.queue.late()
    }

    /// Applies rules 1 to 5 to the choice of DWCS.
    pub(super) fn revise(&mut self, dwcs: Choice) -> Decision {
        let run = if dwcs == Choice::TaskServer { Choice::BestEffort } else { dwcs };
        let as_chosen = Decision { at: self.now(), dwcs, run, event: None };
        if self.events.queue.is_empty() {
            return as_chosen;
        }
        self.first_event().and_then(|event| self.deliver(dwcs, event)).unwrap_or(as_chosen)
    }

    /// The first event whose sink can run. Events for blocked sinks stay in the queue and do not delay others.
    fn first_event(&mut self) -> Option<Event> {
        let (now, slots) = (self.now(), &self.slots);
        let instant = Instant::new(now.saturating_mul(self.events.parts));
        let able = |(rank, _): &(u32, Event)| {
            let slot = &slots[*rank as usize];
            slot.ready && slot.task.arrival <= now
        };
        self.events.queue.drop_late(instant, drop);
        self.events.queue.first_where(able).map(|(_, event)| *event)
    }

    fn deliver(&mut self, dwcs: Choice, event: Event) -> Option<Decision> {
        let rule = self.rule(dwcs, event.sink)?;
        self.events.queue.remove_where(|(_, waiting)| waiting.number == event.number);
        let rank = self.rank(event.sink);
        let slot = &mut self.slots[rank];
        slot.statistics.events[rule as usize] += 1;
        let now = self.now();
        let regular = rule != Rule::TaskServer && self.slots[rank].released(now);
        let run = if regular { Choice::Regular(event.sink) } else { Choice::Extra(event.sink) };
        Some(Decision { at: now, dwcs, run, event: Some((rule, event.number)) })
    }

    fn rule(&self, dwcs: Choice, sink: TaskIndex) -> Option<Rule> {
        match dwcs {
            Choice::Regular(task) | Choice::Extra(task) if task == sink => Some(Rule::Chosen),
            Choice::BestEffort => Some(Rule::BestEffort),
            Choice::Extra(_) => Some(Rule::Surplus),
            Choice::TaskServer => Some(Rule::TaskServer),
            Choice::Regular(chosen) => self.may_go_first(sink, chosen).then_some(Rule::Slack),
        }
    }

    /// Rule 4: whether all tasks that precede j still get their time before the common deadline if j runs now.
    fn may_go_first(&self, sink: TaskIndex, chosen: TaskIndex) -> bool {
        let now = self.now();
        let j = &self.slots[self.rank(sink)];
        if !j.released(now) || j.deadline != self.slots[self.rank(chosen)].deadline {
            return false;
        }
        let place = self.order.key(j);
        let before = self.slots.iter().filter(|k| self.order.key(k) < place);
        let demand = before.map(|k| k.demand(now, j.deadline)).fold(j.left, u64::saturating_add);
        demand < j.deadline - now
    }
}
