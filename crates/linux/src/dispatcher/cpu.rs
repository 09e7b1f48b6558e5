//! The dispatch table of one CPU, and the thread that changes priorities at slot boundaries.
//!
//! The thread is bound to its CPU and sleeps on a futex with an absolute timeout, the next boundary at which a standing
//! may change. Other threads change the table under the lock and then ring the bell. The lock inherits priorities, and
//! is held for some system calls on threads, never for the computation of a table.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use qfabric_sched::dispatch::{Demand, GroupId, GroupUsage, Move, Plan, Refusal, Runner, Standing};
use qfabric_sync::{Lock, rank};
use qfabric_types::{DispatchRules, Instant, Nanos, ThreadId};
use rustix::thread::futex::{self, Timespec};

use super::guardian::Pulse;
use super::latency::{DispatchCost, Latencies};
use super::member::Member;
use super::{DISPATCHING, affinity};
use crate::clock;
use crate::memory;
use crate::sched_attr::{RESET_ON_FORK, SchedAttr};

/// The table and the dispatching thread of one CPU. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct CpuTable {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Lock<State, { rank::DISPATCH_TABLE }>,
    /// Counts changes of the table; the thread sleeps on it.
    bell: AtomicU32,
    ends: AtomicBool,
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
        let (bell, ends, used_ns) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
        let shared = Arc::new(Shared { state: Lock::new(state), bell, ends, used_ns, pulse });
        let (theirs, (report, ready)) = (shared.clone(), sync_channel(1));
        let body = move || theirs.run(cpu, &report);
        let thread = std::thread::Builder::new().name(format!("qf-slots/{cpu}")).spawn(body)?;
        let table = CpuTable { shared, thread: Some(thread) };
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
        self.shared.ring();
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
        self.shared.ring();
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

    /// The group has finished its work of this period.
    pub(super) fn on_yield(&self, group: GroupId) {
        let mut state = self.shared.state.lock();
        let used = state.used(group);
        if let Some(step) = state.runner.on_yield(group, used) {
            state.place(step);
        }
    }

    pub(super) fn usage(&self, group: GroupId) -> Option<(GroupUsage, Nanos)> {
        let mut state = self.shared.state.lock();
        let used = state.used(group);
        Some((state.runner.usage(group, used)?, used))
    }

    pub(super) fn cost(&self) -> DispatchCost {
        let latencies = self.shared.state.lock().latencies.all();
        DispatchCost { used: Nanos::new(self.shared.used_ns.load(Ordering::Relaxed)), latencies }
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
        self.shared.ends.store(true, Ordering::Release);
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.bell, futex::Flags::PRIVATE, 1);
    }

    fn run(&self, cpu: u32, report: &SyncSender<io::Result<()>>) {
        let prepared = prepare(cpu);
        let may_run = prepared.is_ok();
        let _ = report.send(prepared);
        if may_run {
            self.dispatch_until_the_end();
        }
    }

    fn dispatch_until_the_end(&self) {
        while !self.ends.load(Ordering::Acquire) {
            let bell = self.bell.load(Ordering::Acquire);
            let next = self.state.lock().dispatch();
            self.used_ns.store(clock::thread_cpu().get(), Ordering::Relaxed);
            self.pulse.expect(next);
            // A change, a signal and the timeout all end the sleep; the next round looks at the time.
            let until = next.map(timespec);
            let _ = futex::wait_bitset(&self.bell, futex::Flags::PRIVATE, bell, until.as_ref(), NonZeroU32::MAX);
        }
        self.pulse.expect(None);
    }
}

/// Binds the calling thread to its CPU and gives it the highest used priority. Its memory is locked, so that a page
/// fault never delays a slot; without the right to lock memory it runs unlocked.
fn prepare(cpu: u32) -> io::Result<()> {
    let me = ThreadId(0);
    affinity::give(me, &affinity::only(cpu))?;
    SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(DISPATCHING) }.give(me)?;
    memory::prefault_stack();
    if let Err(error) = memory::lock_all() {
        tracing::debug!(%error, cpu, "the memory of dispatch tables is not locked");
    }
    Ok(())
}

fn timespec(at: Instant) -> Timespec {
    let (seconds, nanoseconds) = (at.get() / 1_000_000_000, at.get() % 1_000_000_000);
    Timespec { tv_sec: seconds as _, tv_nsec: nanoseconds as _ }
}

impl State {
    /// Moves the threads if a boundary has passed. Returns the next boundary.
    fn dispatch(&mut self) -> Option<Instant> {
        let now = clock::now();
        if let Some(boundary) = self.runner.next_boundary().filter(|boundary| *boundary <= now) {
            let State { runner, groups, moves, .. } = self;
            moves.clear();
            groups.iter_mut().flat_map(|group| &mut group.members).for_each(Member::forget_reading);
            let used = |id| groups.iter_mut().find(|group| group.id == id).map_or(Nanos::ZERO, Group::used);
            runner.on_boundary(now, used, moves);
            for at in 0..self.moves.len() {
                self.place(self.moves[at]);
            }
            self.latencies.add(clock::now().since(boundary));
        }
        self.runner.next_boundary()
    }

    fn place(&mut self, step: Move) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.id == step.group) {
            group.members.iter_mut().for_each(|member| member.place(step.to));
        }
    }

    fn used(&mut self, group: GroupId) -> Nanos {
        self.groups.iter_mut().find(|other| other.id == group).map_or(Nanos::ZERO, Group::used)
    }
}
