//! Applies settings: groups of threads, each on one CPU.
//!
//! | file | contents |
//! |---|---|
//! | `groups.rs` | groups and their CPUs; the threads and the guardian that exist only while there is a group |
//! | `threads.rs` | threads that join and leave groups, and what they get back |
//!
//! | setting | effect |
//! |---|---|
//! | the first setting of a group or thread | admits a group on its CPU; the first group starts the thread of the CPU |
//! | another thread of the group | the thread joins the group |
//! | another budget or period | another table from the next frame on |
//! | another CPU | admits the group there, moves its threads, and removes it here |
//! | none | the thread leaves; the group ends with its last thread, the thread of the CPU with its last group |

mod groups;
mod threads;

use std::collections::{BTreeMap, HashMap};

use qfabric_sched::dispatch::GroupId;
use qfabric_types::api::DispatchTableStatus;
use qfabric_types::{
    AppId, DispatchRules, Instant, InvalidDispatchRules, MechanismFeatures, MechanismName, Nanos, Reservation,
    ServerCounts, ServerTerms, Setting, Share, ThreadId,
};

use super::affinity;
use super::cpu::CpuTable;
use super::guardian::Guardian;
use super::idle::ShortSleeps;
use super::latency::DispatchCost;
use crate::cpus::CpuList;
use crate::journal::{Dispatched, Journal};
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{RESET_ON_FORK, SchedAttr};

/// Gives threads the slots of dispatch tables. Dropping it puts every thread back.
#[derive(Debug)]
pub struct DispatcherMechanism {
    rules: DispatchRules,
    journal: Option<Journal>,
    /// CPUs with groups. Before `guardian`, so that the threads end while it still watches.
    tables: BTreeMap<u32, CpuTable>,
    guardian: Option<Guardian>,
    /// The longest time that an idle CPU may need to wake up, while there is a table; `None`: the kernel decides.
    idle_latency: Option<Nanos>,
    /// The request for it. No child keeps it: guards close all descriptors of this process.
    short_sleeps: Option<ShortSleeps>,
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
        Ok(DispatcherMechanism {
            rules,
            journal: None,
            tables,
            guardian: None,
            idle_latency: None,
            short_sleeps: None,
            groups,
            threads,
            next_group: 1,
        })
    }

    /// Records every thread in the journal before the first change to it.
    pub fn with_journal(mut self, journal: Journal) -> Self {
        self.journal = Some(journal);
        self
    }

    /// While a table has groups, idle CPUs of this host wake up within `most` (`/dev/cpu_dma_latency`); `None`, the
    /// default: the kernel decides. It costs energy on all CPUs. Where it is not possible, one warning is logged.
    pub fn with_idle_latency(mut self, most: Option<Nanos>) -> Self {
        self.idle_latency = most;
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

    fn yielded(&mut self, thread: ThreadId, release: Instant) {
        let group = self.threads.get(&thread).and_then(|held| self.groups.get(&held.key));
        if let Some(group) = group
            && let Some(table) = self.tables.get(&group.cpu)
        {
            table.on_yield(group.id, release);
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
            slots: usage.slots,
            underruns: usage.underruns,
            used_ns: used.get(),
            current_ns: usage.current.get(),
            previous_ns: usage.previous.get(),
            ..ServerCounts::default()
        })
    }

    fn dispatch_tables(&self) -> Vec<DispatchTableStatus> {
        self.tables.iter().map(|(&cpu, table)| table.status(cpu)).collect()
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
