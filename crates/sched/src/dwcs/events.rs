//! Rules 1 to 5: how the sink of an event gets the processor before DWCS would give it (000 §3.3.1).
//!
//! With i chosen by DWCS and j the sink of the first event (earliest deadline, then first come; late ones dropped),
//! j runs instead of i
//!
//! 1. where i = j;
//! 2. where i is best effort;
//! 3. where i is beside its periods;
//! 4. where i and j are both released with the same deadline, and *everything that precedes j up to that deadline
//!    fits before it together with j*;
//! 5. where i is the task server.
//!
//! In each case the event has been delivered and leaves the queue.
//!
//! Time that rules 2, 3 and 5 give is *extra*: it moves neither the window nor the deadline of the sink, so that what
//! DWCS does later is what it does without events. In rule 5 that is a choice: were the task server's time to count as
//! the sink's own service, other tasks' windows could be violated that were proven to hold (0010).
//!
//! Departure in rule 4: the thesis asks only whether i fits. Then a third task of the same deadline can be made to
//! miss; with the sum over all that precede j, what is served before d is the same as without the event (0010).

use qfabric_types::Instant;

use crate::{EventQueue, Full};

use super::machine::{Choice, Decision, Machine};
use super::task::TaskIndex;

/// Events that may wait for one processor; the next one is refused and counted.
pub(super) const MAX_EVENTS: usize = 1 << 16;

/// Which rule brought an event to its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// 1: DWCS had chosen it anyway.
    Chosen,
    /// 2: instead of best effort.
    BestEffort,
    /// 3: instead of a task beside its periods.
    Surplus,
    /// 4: before a task that has the time to wait.
    Slack,
    /// 5: in the time of the task server.
    TaskServer,
}

impl Rule {
    /// Its number in the thesis.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// What waits for a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Who is to run.
    pub sink: TaskIndex,
    /// How many were raised before it.
    pub number: u64,
}

/// The events of a machine.
#[derive(Debug)]
pub(super) struct Events {
    queue: EventQueue<(u32, Event)>,
    raised: u64,
    /// Parts of the unit of time that deadlines are given in.
    pub parts: u64,
}

impl Default for Events {
    fn default() -> Self {
        Events { queue: EventQueue::new(MAX_EVENTS), raised: 0, parts: 1 }
    }
}

impl Events {
    /// Rank of the sink of the first event.
    pub fn first_sink(&self) -> Option<usize> {
        self.queue.first().map(|(rank, _)| *rank as usize)
    }
}

impl Machine {
    /// Raises an event for `sink` that is of use until `deadline`, and returns its number.
    ///
    /// # Errors
    /// Where 65,536 wait already.
    pub fn raise(&mut self, sink: TaskIndex, deadline: Instant) -> Result<u64, Full<Event>> {
        let event = Event { sink, number: self.events.raised };
        let rank = self.rank(sink) as u32;
        self.events.queue.push(deadline, (rank, event)).map_err(|_| Full(event))?;
        self.events.raised += 1;
        Ok(event.number)
    }

    /// Events that wait.
    pub fn pending(&self) -> usize {
        self.events.queue.len()
    }

    /// Events that were dropped because their deadline had passed.
    pub fn expired(&self) -> u64 {
        self.events.queue.late()
    }

    /// What runs instead of what DWCS chose.
    pub(super) fn revise(&mut self, dwcs: Choice) -> Decision {
        let run = if dwcs == Choice::TaskServer { Choice::BestEffort } else { dwcs };
        let as_chosen = Decision { at: self.now(), dwcs, run, event: None };
        if self.events.queue.is_empty() {
            return as_chosen;
        }
        self.first_event().and_then(|event| self.deliver(dwcs, event)).unwrap_or(as_chosen)
    }

    /// The first event whose sink could run. Those of blocked sinks wait, and nobody waits for them.
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

    /// Rule 4: whether serving j now leaves all that precede it their time before the common deadline.
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
