//! The life of a dispatching thread: it sleeps until shortly before the next boundary, gives all threads the priorities
//! of the next slot, and holds the CPU until the boundary.
//!
//! No member of a group runs while it prepares: all of them are bound to its CPU, and it has the highest priority there.
//! So they begin and end their slots at the boundary, although their priorities change before it.

use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use qfabric_sched::dispatch::{GroupId, Move, Standing};
use qfabric_types::{Instant, Nanos, ThreadId};
use rustix::thread::futex::Timespec;

use super::{Group, Shared, State};
use crate::dispatcher::latency::DispatchTimes;
use crate::dispatcher::lead::Lead;
use crate::dispatcher::member::Member;
use crate::dispatcher::{DISPATCHING, affinity};
use crate::sched_attr::{RESET_ON_FORK, SchedAttr};
use crate::{clock, memory};

/// What one look at the table found.
struct Look {
    /// The boundary for which threads were placed; it may be still to come.
    placed: Option<Instant>,
    /// The group that begins to run there.
    group: Option<GroupId>,
    next: Option<Instant>,
}

impl Shared {
    pub(super) fn run(&self, cpu: u32, report: &SyncSender<io::Result<()>>) {
        let prepared = prepare(cpu);
        let may_run = prepared.is_ok();
        let _ = report.send(prepared);
        if may_run {
            self.dispatch_until_the_end();
        }
    }

    fn dispatch_until_the_end(&self) {
        let mut lead = Lead::new(self.state.lock().runner.rules().slot);
        while let Some(heard) = self.bell.listen() {
            let woke = clock::now();
            let Look { placed, group, next } = self.state.lock().dispatch(woke + lead.time());
            if let Some(boundary) = placed {
                self.hold_until(boundary, woke, group, &mut lead);
            }
            self.used_ns.store(clock::thread_cpu().get(), Ordering::Relaxed);
            self.pulse.expect(next);
            // A change, a signal and the timeout all end the sleep; the next round looks at the time.
            self.bell.sleep(heard, next.map(|boundary| timespec(lead.before(boundary))));
        }
        self.pulse.expect(None);
    }

    /// Holds the CPU until the boundary, without the lock, and records the times of this dispatch. It ran since `woke`.
    fn hold_until(&self, boundary: Instant, woke: Instant, group: Option<GroupId>, lead: &mut Lead) {
        let placed = clock::now();
        while clock::now() < boundary {
            std::hint::spin_loop();
        }
        let late = clock::now().since(boundary);
        let (wake, work) = (woke.since(lead.before(boundary)), placed.since(woke));
        lead.learn(wake + work);
        self.state.lock().latencies.add(DispatchTimes { boundary, group, wake, work, late });
    }
}

/// Binds the calling thread to its CPU and gives it the highest used priority. Its memory is locked, so that a page
/// fault never delays a slot; without the right to lock memory it runs unlocked.
fn prepare(cpu: u32) -> io::Result<()> {
    let me = ThreadId(0);
    affinity::give(me, &affinity::only(cpu))?;
    // Before Linux 6.12 a timer of a real-time thread too is late by its slack, 50 µs.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
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
    /// Moves the threads if the next boundary is not after `until`.
    fn dispatch(&mut self, until: Instant) -> Look {
        let due = self.runner.next_boundary().filter(|boundary| *boundary <= until);
        self.moves.clear();
        if let Some(boundary) = due {
            let State { runner, groups, moves, .. } = self;
            groups.iter_mut().flat_map(|group| &mut group.members).for_each(Member::forget_reading);
            let used = |id| groups.iter_mut().find(|group| group.id == id).map_or(Nanos::ZERO, Group::used);
            runner.on_boundary(clock::now().max(boundary), used, moves);
            for at in 0..self.moves.len() {
                self.place(self.moves[at]);
            }
        }
        let begins = self.moves.iter().find(|step| step.to == Standing::Running);
        Look { placed: due, group: begins.map(|step| step.group), next: self.runner.next_boundary() }
    }

    pub(super) fn place(&mut self, step: Move) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.id == step.group) {
            group.members.iter_mut().for_each(|member| member.place(step.to));
        }
    }

    pub(super) fn used(&mut self, group: GroupId) -> Nanos {
        self.groups.iter_mut().find(|other| other.id == group).map_or(Nanos::ZERO, Group::used)
    }
}
