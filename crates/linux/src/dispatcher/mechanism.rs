//! Applies settings: groups of threads, each on one CPU.
//!
//! | setting | effect |
//! |---|---|
//! | the first setting of a group or thread | admits a group on its CPU; the first group starts the thread of the CPU |
//! | another thread of the group | the thread joins the group |
//! | another budget or period | another table from the next frame on |
//! | another CPU | admits the group there, moves its threads, and removes it here |
//! | none | the thread leaves; the group ends with its last thread, the thread of the CPU with its last group |

use std::collections::{BTreeMap, HashMap};

use qfabric_sched::dispatch::{Demand, GroupId, Refusal};
use qfabric_types::{
    AppId, DispatchRules, InvalidDispatchRules, MechanismFeatures, MechanismName, Reservation, ServerCounts,
    ServerTerms, Setting, Share, ThreadId,
};

use super::affinity;
use super::cpu::CpuTable;
use super::guardian::Guardian;
use super::latency::DispatchCost;
use super::member::{self, Member};
use crate::cpus::CpuList;
use crate::deadline::{denied, not_recorded};
use crate::journal::{self, Dispatched, Journal, Touched, put_slack_back};
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use crate::threads;

/// Largest number of threads; the next one is refused.
const MAX_THREADS: usize = 4_096;

/// Gives threads the slots of dispatch tables. Dropping it puts every thread back.
#[derive(Debug)]
pub struct DispatcherMechanism {
    rules: DispatchRules,
    journal: Option<Journal>,
    /// CPUs with groups. Before `guardian`, so that the threads end while it still watches.
    tables: BTreeMap<u32, CpuTable>,
    guardian: Option<Guardian>,
    groups: HashMap<Key, Group>,
    threads: HashMap<ThreadId, Held>,
    next_group: u64,
}

/// Owner of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Thread(ThreadId),
    Application(AppId),
}

#[derive(Clone, Debug)]
struct Group {
    id: GroupId,
    cpu: u32,
    reservation: Reservation,
    members: Vec<ThreadId>,
}

#[derive(Clone, Debug)]
struct Held {
    key: Key,
    process: Option<i32>,
    before: Dispatched,
}

impl DispatcherMechanism {
    /// Works without a journal: after a crash, only the guardian puts the threads back.
    ///
    /// # Errors
    /// A rule is out of range.
    pub fn new(rules: DispatchRules) -> Result<DispatcherMechanism, InvalidDispatchRules> {
        rules.check()?;
        let (tables, groups, threads) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        Ok(DispatcherMechanism { rules, journal: None, tables, guardian: None, groups, threads, next_group: 1 })
    }

    /// Records every thread in the journal before the first change to it.
    pub fn with_journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// CPUs that have groups, and therefore a thread that dispatches.
    pub fn cpus_in_use(&self) -> CpuList {
        self.tables.keys().copied().collect()
    }

    /// Dispatch latencies and the cost of the dispatcher of a CPU; `None` if no group is on that CPU.
    pub fn cost(&self, cpu: u32) -> Option<DispatchCost> {
        self.tables.get(&cpu).map(CpuTable::cost)
    }

    fn reserve(&mut self, thread: ThreadId, reservation: Reservation, terms: ServerTerms) -> Result<(), ApplyError> {
        let key = terms.group.map_or(Key::Thread(thread), Key::Application);
        let same = |group: &Group| group.reservation == reservation && terms.cpu.is_none_or(|cpu| cpu == group.cpu);
        let is_member = self.threads.get(&thread).is_some_and(|held| held.key == key);
        if is_member && self.is_same_thread(thread) && self.groups.get(&key).is_some_and(same) {
            return Ok(());
        }
        let before = self.former_state(thread)?;
        let cpu = self.cpu_for(key, terms.cpu, &before)?;
        self.admit(key, cpu, reservation, thread)?;
        if !is_member && let Err(error) = self.join(key, before) {
            self.end_if_empty(key);
            return Err(error);
        }
        Ok(())
    }

    fn is_same_thread(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|h| threads::start_time(thread) == Some(h.before.thread.start))
    }

    /// The attributes and CPUs of a thread before its reservation.
    fn former_state(&mut self, thread: ThreadId) -> Result<Dispatched, ApplyError> {
        if self.is_same_thread(thread) {
            return Ok(self.threads[&thread].before.clone());
        }
        self.forget(thread);
        let failed = |error: &std::io::Error| denied(thread, error);
        let now = SchedAttr::of(thread).map_err(|error| failed(&error))?;
        let cpus = affinity::of(thread).map_err(|error| failed(&error))?;
        let start = threads::start_time(thread).ok_or(ApplyError::Gone { thread })?;
        let inherited = self.relative(thread).filter(|_| !now.policy.is_real_time() || member::is_ours(now));
        if now.policy.is_real_time() && inherited.is_none() {
            return Err(ApplyError::Foreign { thread, policy: now.policy.name() });
        }
        let relative = inherited.map(|held| &held.before);
        let was = relative.map_or(now, |other| former_policy(now, other.thread.was));
        let cpus = relative.filter(|_| cpus.len() == 1).map_or(cpus, |other| other.cpus.clone());
        let before = Touched { tid: thread, start, was, slack_ns: journal::timer_slack(thread) };
        Ok(Dispatched { thread: before, cpus })
    }

    /// A member of the same process, from which the thread may have inherited attributes of this mechanism.
    fn relative(&self, thread: ThreadId) -> Option<&Held> {
        let process = threads::process_of(thread)?;
        self.threads.values().find(|held| held.process == Some(process))
    }

    /// The asked CPU, otherwise that of the group, otherwise the allowed CPU with the most free slots.
    fn cpu_for(&self, key: Key, asked: Option<u32>, before: &Dispatched) -> Result<u32, ApplyError> {
        let thread = before.thread.tid;
        let home = asked.or(self.groups.get(&key).map(|group| group.cpu));
        let online = CpuList::online();
        let used = |cpu: &u32| -> Share {
            let groups = self.groups.values().filter(|group| group.cpu == *cpu);
            groups.map(|group| group.reservation.share()).sum()
        };
        let free = || online.iter().filter(|&cpu| before.cpus.contains(cpu)).min_by_key(used);
        match home.or_else(free) {
            Some(cpu) if before.cpus.contains(cpu) => Ok(cpu),
            Some(cpu) => {
                let (mask, needed) = (before.cpus.clone(), affinity::only(cpu));
                Err(ApplyError::Affinity { thread, mask, needed })
            }
            None => Err(ApplyError::Affinity { thread, mask: before.cpus.clone(), needed: online }),
        }
    }

    /// Admits the group on `cpu`, if it is not there with this reservation.
    fn admit(&mut self, key: Key, cpu: u32, reservation: Reservation, thread: ThreadId) -> Result<(), ApplyError> {
        let old = self.groups.get(&key).cloned();
        if old.as_ref().is_some_and(|group| group.cpu == cpu && group.reservation == reservation) {
            return Ok(());
        }
        let id = old.as_ref().map_or(GroupId(self.next_group), |group| group.id);
        let demand = Demand { group: id, service: reservation.budget(), period: reservation.period() };
        let admitted = self.table(cpu, thread)?.admit(demand);
        if let Err(refusal) = admitted {
            self.end_table_if_empty(cpu);
            return Err(no_slots(thread, refusal));
        }
        let members = old.as_ref().map_or(Vec::new(), |group| group.members.clone());
        self.groups.insert(key, Group { id, cpu, reservation, members });
        match old {
            None => self.next_group += 1,
            Some(old) if old.cpu != cpu => self.move_members(key, old.cpu),
            Some(_) => {}
        }
        Ok(())
    }

    /// Moves the members of a group from `old` to its CPU, and ends the group there.
    fn move_members(&mut self, key: Key, old: u32) {
        let Some(Group { id, members, .. }) = self.groups.get(&key).cloned() else { return };
        for thread in members {
            if let Some(table) = self.tables.get(&old) {
                table.leave(id, thread);
            }
            let Some(before) = self.threads.get(&thread).map(|held| held.before.clone()) else { continue };
            if let Err(error) = self.enter(key, &before)
                && !matches!(error, ApplyError::Gone { .. })
            {
                tracing::warn!(%error, "a thread could not follow its group to another CPU");
            }
        }
        if let Some(table) = self.tables.get(&old) {
            table.release(id);
        }
        self.end_table_if_empty(old);
    }

    fn table(&mut self, cpu: u32, thread: ThreadId) -> Result<&CpuTable, ApplyError> {
        let failed = |error: &std::io::Error| denied(thread, error);
        if self.guardian.is_none() {
            self.guardian = Some(Guardian::start().map_err(|error| failed(&error))?);
        }
        let guardian = self.guardian.as_ref().expect("started above");
        if !self.tables.contains_key(&cpu) {
            let table = CpuTable::start(cpu, self.rules, guardian.pulse(cpu)).map_err(|error| failed(&error))?;
            self.tables.insert(cpu, table);
        }
        Ok(&self.tables[&cpu])
    }

    fn join(&mut self, key: Key, before: Dispatched) -> Result<(), ApplyError> {
        let thread = before.thread.tid;
        if self.threads.len() >= MAX_THREADS {
            return Err(ApplyError::Full { thread, limit: MAX_THREADS });
        }
        self.leave_group(thread);
        if let Some(journal) = &mut self.journal {
            journal.dispatching(before.clone()).map_err(|error| not_recorded(thread, &error))?;
        }
        if let Err(error) = self.enter(key, &before) {
            self.put_back(&before)?;
            return Err(error);
        }
        if let Some(group) = self.groups.get_mut(&key) {
            group.members.push(thread);
        }
        self.threads.insert(thread, Held { key, process: threads::process_of(thread), before });
        Ok(())
    }

    /// Binds the thread to the CPU of the group and adds it to the group there.
    fn enter(&mut self, key: Key, before: &Dispatched) -> Result<(), ApplyError> {
        let thread = before.thread.tid;
        let Some(group) = self.groups.get(&key) else { return Err(ApplyError::Gone { thread }) };
        let refused = |error: std::io::Error| match error.raw_os_error() {
            Some(libc::EINVAL) => {
                ApplyError::Affinity { thread, mask: before.cpus.clone(), needed: affinity::only(group.cpu) }
            }
            _ => denied(thread, &error),
        };
        affinity::give(thread, &affinity::only(group.cpu)).map_err(refused)?;
        let member = Member::new(&before.thread).map_err(|error| denied(thread, &error))?;
        if let Some(guardian) = &self.guardian {
            guardian.watch(before);
        }
        if let Some(table) = self.tables.get(&group.cpu) {
            table.join(group.id, member);
        }
        Ok(())
    }

    /// Removes a thread from its group; the group ends with its last thread.
    fn leave_group(&mut self, thread: ThreadId) -> Option<Dispatched> {
        let Held { key, before, .. } = self.threads.remove(&thread)?;
        if let Some(group) = self.groups.get_mut(&key) {
            group.members.retain(|member| *member != thread);
            if let Some(table) = self.tables.get(&group.cpu) {
                table.leave(group.id, thread);
            }
        }
        self.end_if_empty(key);
        Some(before)
    }

    fn end_if_empty(&mut self, key: Key) {
        if self.groups.get(&key).is_none_or(|group| !group.members.is_empty()) {
            return;
        }
        let Some(group) = self.groups.remove(&key) else { return };
        if let Some(table) = self.tables.get(&group.cpu) {
            table.release(group.id);
        }
        self.end_table_if_empty(group.cpu);
    }

    /// Without groups there is no thread, no timer and no guardian.
    fn end_table_if_empty(&mut self, cpu: u32) {
        if self.tables.get(&cpu).is_some_and(CpuTable::is_empty) {
            self.tables.remove(&cpu);
        }
    }

    fn end_guardian_if_unused(&mut self) {
        if self.tables.is_empty() {
            self.guardian = None;
        }
    }

    fn release(&mut self, thread: ThreadId) -> Result<(), ApplyError> {
        if !self.is_same_thread(thread) {
            let known = self.threads.contains_key(&thread);
            self.forget(thread);
            return if known { Err(ApplyError::Gone { thread }) } else { Ok(()) };
        }
        let Some(before) = self.leave_group(thread) else { return Ok(()) };
        let done = self.put_back(&before);
        self.end_guardian_if_unused();
        done
    }

    fn put_back(&mut self, before: &Dispatched) -> Result<(), ApplyError> {
        let thread = before.thread.tid;
        let policy = before.thread.was.give(thread);
        put_slack_back(&before.thread);
        let cpus = affinity::give(thread, &before.cpus);
        policy.and(cpus).map_err(|error| denied(thread, &error))?;
        self.settled(thread);
        Ok(())
    }

    /// The journal and the guardian need not put the thread back any more.
    fn settled(&mut self, thread: ThreadId) {
        if let Some(guardian) = &self.guardian {
            guardian.unwatch(thread);
        }
        if let Some(journal) = &mut self.journal {
            // If this line is not written, a later restore reads /proc once more for a thread that was put back.
            let _ = journal.released(thread);
        }
    }

    /// Follows a program that changes the CPUs of its thread. The new CPUs are its own choice, to which it returns. If
    /// they include the CPU of the group, the thread is bound to that CPU again; otherwise it keeps its own policy.
    fn follow_affinity(&mut self, thread: ThreadId) {
        let Some(held) = self.threads.get_mut(&thread) else { return };
        let (Some(group), Ok(now)) = (self.groups.get(&held.key), affinity::of(thread)) else { return };
        let Some(table) = self.tables.get(&group.cpu) else { return };
        if now == affinity::only(group.cpu) {
            table.mark(group.id, thread, false);
            return;
        }
        held.before.cpus = now.clone();
        if let Some(journal) = &mut self.journal {
            let _ = journal.dispatching(held.before.clone()); // else a restore gives the former CPUs
        }
        let is_here = now.contains(group.cpu) && affinity::give(thread, &affinity::only(group.cpu)).is_ok();
        table.mark(group.id, thread, !is_here);
    }
}

/// The policy before the reservation, of a thread that may have inherited it from a member with the policy `parent`.
fn former_policy(now: SchedAttr, parent: SchedAttr) -> SchedAttr {
    let is_inherited = member::is_ours(now) || now.policy == Policy::IDLE;
    if is_inherited { SchedAttr { flags: parent.flags & !RESET_ON_FORK, ..parent } } else { now }
}

fn no_slots(thread: ThreadId, refusal: Refusal) -> ApplyError {
    ApplyError::NoSlots { thread, why: refusal.message(), fix: refusal.next_step() }
}

impl Mechanism for DispatcherMechanism {
    fn name(&self) -> &'static str {
        MechanismName::Dispatcher.name()
    }

    fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError> {
        let Setting { thread, reservation, reclaiming, terms } = *setting;
        let Some(reservation) = reservation else { return self.release(thread) };
        let plain = ServerTerms { group: None, ..terms };
        if let Some(what) = plain.beyond_budgets().or(reclaiming.beyond_deadline()) {
            return Err(ApplyError::Incapable { thread, mechanism: self.name(), what });
        }
        let done = self.reserve(thread, reservation, terms);
        self.end_guardian_if_unused();
        done
    }

    fn forget(&mut self, thread: ThreadId) {
        if self.leave_group(thread).is_some() {
            self.settled(thread);
            self.end_guardian_if_unused();
        }
    }

    /// A child starts under SCHED_OTHER if its parent ran, under SCHED_IDLE if it waited, and on its parent's only CPU.
    fn born(&mut self, child: ThreadId, parent: ThreadId) {
        let Some(held) = self.threads.get(&parent) else { return };
        let Ok(now) = SchedAttr::of(child) else { return };
        let was = held.before.thread.was;
        if !now.policy.is_real_time() && was.flags & RESET_ON_FORK == 0 {
            // If the child is gone or the call is not allowed, the child keeps the policy that it has.
            let _ = was.give(child);
            let _ = affinity::give(child, &held.before.cpus);
        }
    }

    fn yielded(&mut self, thread: ThreadId) {
        let group = self.threads.get(&thread).and_then(|held| self.groups.get(&held.key));
        if let Some(group) = group
            && let Some(table) = self.tables.get(&group.cpu)
        {
            table.on_yield(group.id);
        }
    }

    /// One system call for each thread.
    fn tend(&mut self) -> Vec<ThreadId> {
        if self.guardian.as_ref().is_some_and(Guardian::take_alarm) {
            tracing::warn!(
                "a dispatcher was late by more than a second; all threads ran under their own policies meanwhile"
            );
            self.tables.values().for_each(CpuTable::place_all);
        }
        let threads: Vec<ThreadId> = self.threads.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.follow_affinity(thread));
        Vec::new()
    }

    fn features(&self) -> MechanismFeatures {
        let cpus = CpuList::online().iter().collect();
        MechanismFeatures { cpus, slots: Some(self.rules), ..MechanismFeatures::default() }
    }

    fn capacity(&self) -> Option<Share> {
        Some(CpuList::online().iter().map(|_| self.rules.capacity()).sum())
    }

    fn counts(&self, thread: ThreadId) -> Option<ServerCounts> {
        let group = self.groups.get(&self.threads.get(&thread)?.key)?;
        let (usage, used) = self.tables.get(&group.cpu)?.usage(group.id)?;
        Some(ServerCounts {
            served: usage.served,
            missed: usage.missed,
            violations: usage.missed,
            throttles: usage.overruns,
            underruns: usage.underruns,
            used_ns: used.get(),
            current_ns: usage.current.get(),
            previous_ns: usage.previous.get(),
            ..ServerCounts::default()
        })
    }

    fn restore_all(&mut self) -> Vec<ApplyError> {
        let threads: Vec<ThreadId> = self.threads.keys().copied().collect();
        let mut failed: Vec<ApplyError> = threads.into_iter().filter_map(|t| self.release(t).err()).collect();
        failed.retain(|error| !matches!(error, ApplyError::Gone { .. }));
        failed
    }
}

impl Drop for DispatcherMechanism {
    fn drop(&mut self) {
        for error in self.restore_all() {
            tracing::error!(%error, "a thread could not be put back; `qfabric restore` tries again");
        }
    }
}
