//! Threads that join and leave groups, and what they get back.

use qfabric_types::ThreadId;

use super::{DispatcherMechanism, Held, Key};
use crate::deadline::{denied, not_recorded};
use crate::dispatcher::affinity;
use crate::dispatcher::member::{self, Member};
use crate::journal::{self, Dispatched, Touched, put_slack_back};
use crate::mechanism::{ApplyError, Mechanism};
use crate::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use crate::threads;

/// Largest number of threads; the next one is refused.
const MAX_THREADS: usize = 4_096;

impl DispatcherMechanism {
    pub(super) fn is_same_thread(&self, thread: ThreadId) -> bool {
        self.threads.get(&thread).is_some_and(|h| threads::start_time(thread) == Some(h.before.thread.start))
    }

    /// The attributes and CPUs of a thread before its reservation.
    pub(super) fn former_state(&mut self, thread: ThreadId) -> Result<Dispatched, ApplyError> {
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
    pub(super) fn relative(&self, thread: ThreadId) -> Option<&Held> {
        let process = threads::process_of(thread)?;
        self.threads.values().find(|held| held.process == Some(process))
    }

    pub(super) fn join(&mut self, key: Key, before: Dispatched) -> Result<(), ApplyError> {
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
    pub(super) fn enter(&mut self, key: Key, before: &Dispatched) -> Result<(), ApplyError> {
        let thread = before.thread.tid;
        let Some(group) = self.groups.get(&key) else { return Err(ApplyError::Gone { thread }) };
        let refused = |error: std::io::Error| match error.raw_os_error() {
            Some(libc::EINVAL) => {
                ApplyError::Affinity { thread, mask: before.cpus.clone(), needed: affinity::only(group.cpu) }
            }
            _ => denied(thread, &error),
        };
        // Before anything of the thread changes: this process may be killed after any instruction.
        if let Some(guardian) = &self.guardian {
            guardian.watch(before);
        }
        affinity::give(thread, &affinity::only(group.cpu)).map_err(refused)?;
        let member = Member::new(&before.thread).map_err(|error| denied(thread, &error))?;
        if let Some(table) = self.tables.get(&group.cpu) {
            table.join(group.id, member);
        }
        Ok(())
    }

    /// Removes a thread from its group; the group ends with its last thread.
    pub(super) fn leave_group(&mut self, thread: ThreadId) -> Option<Dispatched> {
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

    pub(super) fn release(&mut self, thread: ThreadId) -> Result<(), ApplyError> {
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

    pub(super) fn put_back(&mut self, before: &Dispatched) -> Result<(), ApplyError> {
        let thread = before.thread.tid;
        let policy = before.thread.was.give(thread);
        put_slack_back(&before.thread);
        let cpus = affinity::give(thread, &before.cpus);
        policy.and(cpus).map_err(|error| denied(thread, &error))?;
        self.settled(thread);
        Ok(())
    }

    /// The journal and the guardian need not put the thread back any more.
    pub(super) fn settled(&mut self, thread: ThreadId) {
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
    pub(super) fn follow_affinity(&mut self, thread: ThreadId) {
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
        if let Some(guardian) = &self.guardian {
            guardian.watch(&held.before);
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
