//! The table in force on one CPU, and the steps at each slot boundary.
//!
//! Changes never take a promised slot from a group that stays:
//!
//! | change | until the frame ends | from the next frame on |
//! |---|---|---|
//! | a group leaves | its slots are free at once, all others keep theirs | a table without it |
//! | a group joins | it borrows slots that are free beyond the minimum | a table with it |
//! | a group changes its demand | it keeps its former slots | a table with the new demand |
//!
//! At the beginning of a frame every period begins, so the next table has no past to respect. Its frame begins there.

use qfabric_types::{DispatchRules, Instant, Nanos};

use super::standing::GroupState;
use super::{Demand, GroupId, GroupUsage, Refusal, Slotted, Standing, Table, admit};

/// The threads of a group get another standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub group: GroupId,
    pub to: Standing,
}

/// Demands, and the table that serves them. Computed without the runner, so that no lock is held meanwhile.
#[derive(Clone, Debug)]
pub struct Plan {
    demands: Vec<Demand>,
    table: Table,
}

impl Plan {
    /// The `present` demands with another one, which replaces a present demand of the same group.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub fn with(rules: &DispatchRules, present: &[Demand], demand: Demand) -> Result<Plan, Refusal> {
        let others = present.iter().filter(|other| other.group != demand.group).copied();
        let demands: Vec<Demand> = others.chain([demand]).collect();
        let table = admit(rules, &demands)?;
        Ok(Plan { demands, table })
    }

    /// The `present` demands without a group.
    pub fn without(rules: &DispatchRules, present: &[Demand], group: GroupId) -> Plan {
        let demands: Vec<Demand> = present.iter().filter(|other| other.group != group).copied().collect();
        let table = admit(rules, &demands);
        debug_assert!(table.is_ok(), "fewer groups always fit");
        Plan { demands, table: table.unwrap_or_default() }
    }
}

/// The groups of one CPU. The caller reads the clock and moves the threads.
#[derive(Clone, Debug)]
pub struct Runner {
    rules: DispatchRules,
    /// Beginning of slot 0 of the current frame.
    frame_start: Instant,
    table: Table,
    /// The table of the next frame, if it is another one.
    next: Option<Table>,
    /// The former table; another thread frees its memory at the next change.
    former: Table,
    /// Number of the current slot; `None` before the first boundary of a table.
    slot: Option<u32>,
    /// Present demands, in the order of admission.
    demands: Vec<Demand>,
    states: Vec<GroupState>,
}

impl Runner {
    pub fn new(rules: DispatchRules) -> Runner {
        let (table, former, demands, states) = (Table::default(), Table::default(), Vec::new(), Vec::new());
        Runner { rules, frame_start: Instant::ZERO, table, next: None, former, slot: None, demands, states }
    }

    pub fn is_empty(&self) -> bool {
        self.demands.is_empty()
    }

    pub fn rules(&self) -> &DispatchRules {
        &self.rules
    }

    /// The table in force.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Present demands, in the order of admission.
    pub fn demands(&self) -> &[Demand] {
        &self.demands
    }

    /// Installs a plan with other demands. `cpu` returns the CPU time that a group has used before.
    pub fn install(&mut self, plan: Plan, mut cpu: impl FnMut(GroupId) -> Nanos, now: Instant) {
        let is_known = |states: &[GroupState], id| states.iter().any(|state| state.terms.group == id);
        for terms in plan.table.groups() {
            if !is_known(&self.states, terms.group) {
                self.join(*terms, cpu(terms.group), now);
            }
        }
        let gone = |state: &GroupState| plan.demands.iter().all(|demand| demand.group != state.terms.group);
        for group in self.states.iter().filter(|state| gone(state)).map(|state| state.terms.group) {
            self.table.withdraw(group);
        }
        self.states.retain(|state| !gone(state));
        (self.demands, self.former) = (plan.demands, Table::default());
        if self.demands.is_empty() {
            (self.table, self.next, self.slot) = (Table::default(), None, None);
        } else {
            self.next = Some(plan.table);
        }
    }

    /// Admits a group, or another demand of a present group: [`Plan::with`] and [`Runner::install`].
    ///
    /// # Errors
    /// A [`Refusal`]; nothing is changed.
    pub fn admit(&mut self, demand: Demand, cpu: Nanos, now: Instant) -> Result<(), Refusal> {
        let plan = Plan::with(&self.rules, &self.demands, demand)?;
        self.install(plan, |_| cpu, now);
        Ok(())
    }

    /// Adds the state of a new group. If other groups run, their table lends it slots.
    fn join(&mut self, terms: Slotted, cpu: Nanos, now: Instant) {
        let mut state = GroupState::new(terms, cpu);
        if self.table.frame() == 0 {
            self.frame_start = now;
        } else {
            state.is_lent = true;
            state.origin = self.slot.map_or(0, |slot| slot + 1);
            self.table.lend(terms, state.origin, &self.rules);
        }
        self.states.push(state);
    }

    /// Removes a group; its slots are free at once: [`Plan::without`] and [`Runner::install`].
    pub fn release(&mut self, group: GroupId, now: Instant) {
        self.install(Plan::without(&self.rules, &self.demands, group), |_| Nanos::ZERO, now);
    }

    /// Steps to the slot that `now` is in. Adds the groups whose standing changes to `moves`, those that stop first.
    /// `cpu` returns the CPU time that a group has used until now. Slots that passed unnoticed count as missed.
    pub fn on_boundary(&mut self, now: Instant, mut cpu: impl FnMut(GroupId) -> Nanos, moves: &mut Vec<Move>) {
        let passed = self.enter_frame(now, &mut cpu);
        let Some(slot) = self.slot_at(now) else { return };
        for number in passed..slot {
            self.step(number, false, &mut cpu);
        }
        if Some(slot) != self.slot {
            self.step(slot, true, &mut cpu);
            self.slot = Some(slot);
        }
        self.settle(slot, &mut cpu, moves);
    }

    /// Enters the frame that `now` is in. Returns the first slot of it that has not been stepped over.
    fn enter_frame(&mut self, now: Instant, cpu: &mut impl FnMut(GroupId) -> Nanos) -> u32 {
        let length = self.frame_length();
        if length > Nanos::ZERO && now.since(self.frame_start) < length {
            return self.slot.map_or(0, |slot| slot + 1);
        }
        for number in self.slot.map_or(0, |slot| slot + 1)..self.table.frame() {
            self.step(number, false, cpu);
        }
        self.frame_start = self.frame_start + length;
        self.slot = None;
        if let Some(table) = self.next.take() {
            self.change_table(table);
        }
        let (late, length) = (now.since(self.frame_start), self.frame_length());
        let whole = late.get().checked_div(length.get()).unwrap_or(0);
        self.frame_start = self.frame_start + length.saturating_mul(whole);
        0
    }

    fn change_table(&mut self, table: Table) {
        self.former = std::mem::replace(&mut self.table, table);
        for state in &mut self.states {
            if let Some(terms) = self.table.groups().iter().find(|terms| terms.group == state.terms.group) {
                (state.next_terms, state.origin) = (Some(*terms), 0);
            }
        }
    }

    fn frame_length(&self) -> Nanos {
        self.rules.slot.saturating_mul(u64::from(self.table.frame()))
    }

    fn slot_at(&self, now: Instant) -> Option<u32> {
        let slot = (now.since(self.frame_start).get() / self.rules.slot.get()) as u32;
        (slot < self.table.frame()).then_some(slot)
    }

    /// Enters a slot: periods begin, and its owner is offered it. A slot that passed unnoticed was offered only if its
    /// owner was running already.
    fn step(&mut self, slot: u32, in_time: bool, cpu: &mut impl FnMut(GroupId) -> Nanos) {
        let (owner, length) = (self.table.owner(slot), self.rules.slot);
        for state in &mut self.states {
            if state.begins_period_at(slot) {
                state.begin_period(cpu(state.terms.group), length);
                state.is_lent &= state.origin > 0;
            }
            if owner == Some(state.terms.group) {
                state.offer(in_time || state.standing == Standing::Running);
            }
        }
    }

    /// Compares every group's standing with the one that it has now.
    fn settle(&mut self, slot: u32, cpu: &mut impl FnMut(GroupId) -> Nanos, moves: &mut Vec<Move>) {
        let (owner, first) = (self.table.owner(slot), moves.len());
        for state in &mut self.states {
            let group = state.terms.group;
            let to = state.standing_in(owner == Some(group));
            if to == state.standing {
                continue;
            }
            match to {
                Standing::Running => state.enter(cpu(group)),
                Standing::Waiting | Standing::Demoted if state.standing == Standing::Running => state.pause(cpu(group)),
                Standing::Waiting | Standing::Demoted => {}
            }
            state.standing = to;
            moves.push(Move { group, to });
        }
        moves[first..].sort_unstable_by_key(|step| step.to == Standing::Running);
    }

    /// The group has finished the job that was released at `release`. If that was in the present period, the slots of
    /// this period that are left are free, and the group waits for its next period. A job of an earlier period frees
    /// nothing: the next job is released in the present period and needs its slots. Returns the move if the standing
    /// changes.
    pub fn on_yield(&mut self, group: GroupId, release: Instant, cpu: Nanos) -> Option<Move> {
        let (slot, length, start) = (self.slot?, self.rules.slot, self.frame_start);
        let state = self.states.iter_mut().find(|state| state.terms.group == group)?;
        let begin = start + length.saturating_mul(u64::from(state.period_of(slot)?));
        if release < begin || state.is_lent || !state.give_back(cpu) || state.standing == Standing::Waiting {
            return None;
        }
        state.standing = Standing::Waiting;
        Some(Move { group, to: Standing::Waiting })
    }

    /// The next boundary at which a standing may change. `None`: no group.
    pub fn next_boundary(&self) -> Option<Instant> {
        if self.demands.is_empty() {
            return None;
        }
        let (frame, slot) = (self.table.frame(), self.rules.slot);
        let Some(current) = self.slot else { return Some(self.frame_start + self.frame_length()) };
        let is_change = |&number: &u32| {
            self.table.owner(number) != self.table.owner(number - 1)
                || self.states.iter().any(|state| state.begins_period_at(number))
        };
        let number = (current + 1..frame).find(is_change).unwrap_or(frame);
        Some(self.frame_start + slot.saturating_mul(u64::from(number)))
    }

    pub fn standing(&self, group: GroupId) -> Option<Standing> {
        self.states.iter().find(|state| state.terms.group == group).map(|state| state.standing)
    }

    /// CPU time of the current and the previous period, and counts. `cpu` is the CPU time of the group until now.
    pub fn usage(&self, group: GroupId, cpu: Nanos) -> Option<GroupUsage> {
        self.states.iter().find(|state| state.terms.group == group).map(|state| state.usage(cpu))
    }

    /// True if the group has yielded in its current period.
    pub fn has_yielded(&self, group: GroupId) -> bool {
        self.states.iter().any(|state| state.terms.group == group && state.has_yielded())
    }
}
