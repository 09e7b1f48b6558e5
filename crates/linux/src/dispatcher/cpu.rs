//! The dispatch table of one CPU, and the thread that changes priorities at slot boundaries.
//!
//! Other threads change the table under the lock and then ring the bell. The lock inherits priorities, and is held for
//! some system calls on threads, never for the computation of a table.

mod dispatching;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use qfabric_sched::dispatch::{Demand, GroupId, GroupUsage, Move, Plan, Refusal, Runner, Standing};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::DispatchTableStatus;
use qfabric_types::{DispatchRules, Instant, Nanos, Share, ThreadId};

use super::bell::Bell;
use super::guardian::Pulse;
use super::latency::{DispatchCost, LateSums, Latencies};
use super::member::Member;
use crate::clock;

/// The table and the dispatching thread of one CPU. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct CpuTable {
    shared: Arc<Shared>,
    started: Instant,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Lock<State, { rank::DISPATCH_TABLE }>,
    /// Rings when the table has changed; the thread sleeps on it.
    bell: Bell,
    used_ns: AtomicU64,
    pulse: Pulse,
}

#[derive(Debug)]
struct State {
    runner: Runner,
    groups: Vec<Group>,
    /// Reused, so that a boundary allocates nothing.
    moves: Vec<Move>,
    latencies: Latencies,
}

#[derive(Debug)]
struct Group {
    id: GroupId,
    members: Vec<Member>,
    /// CPU time of former members.
    left: Nanos,
}

impl Group {
    fn used(&mut self) -> Nanos {
        self.members.iter_mut().fold(self.left, |sum, member| sum + member.used())
    }
}

impl CpuTable {
    /// Starts the thread of a CPU without groups.
    pub(super) fn start(cpu: u32, rules: DispatchRules, pulse: Pulse) -> io::Result<CpuTable> {
        let (runner, groups) = (Runner::new(rules), Vec::with_capacity(8));
        let state = State { runner, groups, moves: Vec::with_capacity(128), latencies: Latencies::new() };
        let (bell, used_ns) = (Bell::default(), AtomicU64::new(0));
        let shared = Arc::new(Shared { state: Lock::new(state), bell, used_ns, pulse });
        let (theirs, (report, ready)) = (shared.clone(), sync_channel(1));
        let body = move || theirs.run(cpu, &report);
        let thread = std::thread::Builder::new().name(format!("qf-slots/{cpu}")).spawn(body)?;
        let table = CpuTable { shared, started: clock::now(), thread: Some(thread) };
        ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(table)
    }

    /// Admits a group, or another demand of a present group.
    pub(super) fn admit(&self, demand: Demand) -> Result<(), Refusal> {
        let (rules, present) = self.present();
        let plan = Plan::with(&rules, &present, demand)?;
        let new = Group { id: demand.group, members: Vec::with_capacity(4), left: Nanos::ZERO };
        let mut state = self.shared.state.lock();
        if state.groups.iter().all(|group| group.id != demand.group) {
            state.groups.push(new);
        }
        // A new group has no members yet, so it has used no time.
        state.runner.install(plan, |_| Nanos::ZERO, clock::now());
        drop(state);
        self.shared.bell.ring();
        Ok(())
    }

    /// The rules and demands from which the next plan is computed, without the lock. Only one thread makes plans.
    fn present(&self) -> (DispatchRules, Vec<Demand>) {
        let state = self.shared.state.lock();
        (*state.runner.rules(), state.runner.demands().to_vec())
    }

    /// Adds a thread, which gets the policy of the group's present standing.
    pub(super) fn join(&self, group: GroupId, mut member: Member) {
        let mut state = self.shared.state.lock();
        let standing = state.runner.standing(group).unwrap_or(Standing::Demoted);
        if standing != Standing::Demoted {
            member.forget_reading();
            member.place(standing);
        }
        if let Some(group) = state.groups.iter_mut().find(|other| other.id == group) {
            group.members.push(member);
        }
    }

    /// Removes a thread; its policy stays as it is.
    pub(super) fn leave(&self, group: GroupId, thread: ThreadId) {
        let mut state = self.shared.state.lock();
        let Some(group) = state.groups.iter_mut().find(|other| other.id == group) else { return };
        let Some(at) = group.members.iter().position(|member| member.thread == thread) else { return };
        let mut member = group.members.swap_remove(at);
        group.left += member.used();
    }

    pub(super) fn release(&self, group: GroupId) {
        let (rules, present) = self.present();
        let plan = Plan::without(&rules, &present, group);
        let mut state = self.shared.state.lock();
        state.runner.install(plan, |_| Nanos::ZERO, clock::now());
        state.groups.retain(|other| other.id != group);
        drop(state);
        self.shared.bell.ring();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shared.state.lock().runner.is_empty()
    }

    /// Marks whether the program moved a thread away from the CPU. A thread that is away has its own policy.
    pub(super) fn mark(&self, group: GroupId, thread: ThreadId, is_away: bool) {
        let mut state = self.shared.state.lock();
        let standing = state.runner.standing(group).unwrap_or(Standing::Demoted);
        let mut members = state.groups.iter_mut().filter(|other| other.id == group).flat_map(|g| &mut g.members);
        if let Some(member) = members.find(|member| member.thread == thread && member.is_away != is_away) {
            member.is_away = is_away;
            member.forget_reading();
            member.place(standing);
        }
    }

    /// The group has finished a job; see [`Runner::on_yield`].
    pub(super) fn on_yield(&self, group: GroupId, release: Instant) {
        let mut state = self.shared.state.lock();
        let used = state.used(group);
        if let Some(step) = state.runner.on_yield(group, release, used) {
            state.place(step);
        }
    }

    pub(super) fn usage(&self, group: GroupId) -> Option<(GroupUsage, Nanos)> {
        let mut state = self.shared.state.lock();
        let used = state.used(group);
        Some((state.runner.usage(group, used)?, used))
    }

    pub(super) fn cost(&self) -> DispatchCost {
        let state = self.shared.state.lock();
        let (count, latest) = (state.latencies.sums().count, state.latencies.all());
        DispatchCost { used: self.thread_time(), count, latest }
    }

    pub(super) fn status(&self, cpu: u32) -> DispatchTableStatus {
        let state = self.shared.state.lock();
        let LateSums { count, late, total, most } = state.latencies.sums();
        let (rules, table, groups) = (*state.runner.rules(), state.runner.table(), state.groups.len() as u32);
        let (frame, free) = (table.frame(), table.free());
        drop(state);
        let used = self.thread_time();
        let cost = Share::of_budget(used, clock::now().since(self.started));
        let (slot, dispatches, late_total, late_most) = (rules.slot, count, total, most);
        DispatchTableStatus { cpu, groups, slot, frame, free, dispatches, late, late_total, late_most, used, cost }
    }

    fn thread_time(&self) -> Nanos {
        Nanos::new(self.shared.used_ns.load(Ordering::Relaxed))
    }

    /// Gives every thread the policy of its standing again, because the guardian has put all threads back.
    pub(super) fn place_all(&self) {
        let mut state = self.shared.state.lock();
        let State { runner, groups, .. } = &mut *state;
        for group in groups {
            let standing = runner.standing(group.id).unwrap_or(Standing::Demoted);
            for member in &mut group.members {
                member.forget_reading();
                member.place(standing);
            }
        }
    }
}

impl Drop for CpuTable {
    fn drop(&mut self) {
        self.shared.bell.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
