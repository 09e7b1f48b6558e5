//! The state of a group between two slot boundaries.

use qfabric_types::Nanos;

use super::Slotted;

/// How the threads of a group are scheduled now (004 §3.3 and Table 3).
///
/// ```text
///              its slot begins                       all its slots passed without a yield (overrun)
///   Waiting ─────────────────────> Running ──────────────────────────────> Demoted
///      ^ ^ <────────────────────────  │  its slot ends, others follow          │
///      │ └────────────────────────────┘  yield (underrun: the slots left over are free)
///      └────────────────────────────────────── its next period begins ─────────┘
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The lowest priority: its slots in this period are still to come, or it has yielded.
    #[default]
    Waiting,
    /// The running priority: this slot belongs to the group.
    Running,
    /// Its former policy among time-sharing work, until its next period begins.
    Demoted,
}

/// CPU time and counts of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// CPU time in the current period so far.
    pub current: Nanos,
    /// CPU time in the previous period.
    pub previous: Nanos,
    /// Periods in which the group was offered all its slots.
    pub served: u64,
    /// Periods in which the dispatcher came too late for a slot.
    pub missed: u64,
    /// Periods in which the group used all its slots and did not yield.
    pub overruns: u64,
    /// Periods in which the group yielded, or used less than its slots.
    pub underruns: u64,
    /// Slots that the group was given in time, including lent ones.
    pub slots: u64,
}

/// Part of the reserved time that an overrun may lack: 5 %, because the dispatcher itself runs in the slot.
const MARGIN: u64 = 20;

#[derive(Clone, Debug)]
pub(super) struct GroupState {
    pub terms: Slotted,
    /// Terms from its next period on.
    pub next_terms: Option<Slotted>,
    /// Slot in the frame at which the first period of the group begins.
    pub origin: u32,
    /// Runs in slots that another table lends, until the group's own table is in force.
    pub is_lent: bool,
    pub standing: Standing,
    yielded: bool,
    /// Slots of this period that the group was offered, and that came too late.
    had: u32,
    late: u32,
    /// CPU time of the group when the period and the slot began, and what it used in slots of this period.
    at_period: Nanos,
    at_slot: Nanos,
    in_slots: Nanos,
    began: bool,
    usage: GroupUsage,
}

impl GroupState {
    pub(super) fn new(terms: Slotted, cpu: Nanos) -> Self {
        GroupState {
            terms,
            next_terms: None,
            origin: 0,
            is_lent: false,
            standing: Standing::Demoted,
            yielded: false,
            had: 0,
            late: 0,
            at_period: cpu,
            at_slot: cpu,
            in_slots: Nanos::ZERO,
            began: false,
            usage: GroupUsage::default(),
        }
    }

    pub(super) fn begins_period_at(&self, slot: u32) -> bool {
        slot >= self.origin && (slot - self.origin).is_multiple_of(self.terms.period)
    }

    /// The slot in the frame at which the period of a slot begins. `None`: before the first period.
    pub(super) fn period_of(&self, slot: u32) -> Option<u32> {
        let passed = slot.checked_sub(self.origin)?;
        Some(slot - passed % self.terms.period)
    }

    /// Ends the period and begins the next one. `cpu` is the CPU time of the group until now.
    pub(super) fn begin_period(&mut self, cpu: Nanos, slot: Nanos) {
        self.pause(cpu);
        if self.began {
            self.count_period(slot);
        }
        self.terms = self.next_terms.take().unwrap_or(self.terms);
        self.usage.previous = cpu.saturating_sub(self.at_period);
        (self.at_period, self.in_slots, self.had, self.late) = (cpu, Nanos::ZERO, 0, 0);
        (self.yielded, self.began) = (false, true);
    }

    fn count_period(&mut self, slot: Nanos) {
        let complete = self.had >= self.terms.service;
        let usage = &mut self.usage;
        *(if complete { &mut usage.served } else { &mut usage.missed }) += u64::from(!self.is_lent);
        let offered = slot.get() * u64::from(self.had);
        let is_used = self.in_slots.get() + offered / MARGIN >= offered;
        usage.overruns += u64::from(complete && is_used && !self.yielded);
        usage.underruns += u64::from(complete && (!is_used || self.yielded));
    }

    /// Begins to count time in a slot.
    pub(super) fn enter(&mut self, cpu: Nanos) {
        self.at_slot = cpu;
    }

    /// Adds the time used in the slot until now.
    pub(super) fn pause(&mut self, cpu: Nanos) {
        if self.standing == Standing::Running {
            self.in_slots += cpu.saturating_sub(self.at_slot);
            self.at_slot = cpu;
        }
    }

    pub(super) fn offer(&mut self, in_time: bool) {
        *(if in_time { &mut self.had } else { &mut self.late }) += 1;
        self.usage.slots += u64::from(in_time);
    }

    /// Gives back the slots of this period that are left. Returns false if the group has yielded already.
    pub(super) fn give_back(&mut self, cpu: Nanos) -> bool {
        self.pause(cpu);
        // Slots that are still to come count as offered: the group does not want them.
        self.had = self.terms.service.saturating_sub(self.late).max(self.had);
        !std::mem::replace(&mut self.yielded, true)
    }

    pub(super) fn has_yielded(&self) -> bool {
        self.yielded
    }

    /// The standing between two boundaries; `owner`: the slot belongs to the group.
    pub(super) fn standing_in(&self, owner: bool) -> Standing {
        match (owner, self.yielded) {
            (true, false) => Standing::Running,
            (_, true) => Standing::Waiting,
            (false, false) if !self.began || self.is_lent => Standing::Demoted,
            (false, false) if self.had + self.late >= self.terms.service => Standing::Demoted,
            (false, false) => Standing::Waiting,
        }
    }

    pub(super) fn usage(&self, cpu: Nanos) -> GroupUsage {
        GroupUsage { current: cpu.saturating_sub(self.at_period), ..self.usage }
    }
}
