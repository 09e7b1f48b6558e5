//! A subscription that is being created: its parts, in the order in which they are made.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize};

use qfabric_ecode::{Bound, Program};
use qfabric_linux::ecalls::{Aim, Installed, SignalTo};
use qfabric_linux::threads;
use qfabric_sync::{Lock, assert_may_block};
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{Author, Origin, ServiceInfo, State, Step, SubscriptionRequest};
use qfabric_types::format::Format;
use qfabric_types::memory::Geometry;
use qfabric_types::{Nanos, Owner, Share, ThreadId};

use super::checks::{no_such_field, numbered};
use super::handler::Handler;
use super::hub::Hub;
use super::memory::{Down, Up};
use super::plan::{Plan, is_handler};
use super::pool::Backlog;
use super::raise::{Queued, place};
use super::registry::{GroupKey, Registry};
use super::subscription::{Chain, Place, Stage, Subscription, Tally, Terms, Watched, priority_of};
use crate::auth::Target;
use crate::channels::Outlet;
use crate::problem;

/// Largest number of events that one call of a handler may emit.
pub(super) const EMISSIONS: u32 = 16;

/// A subscription that is being created.
pub(super) struct Draft {
    pub(super) request: SubscriptionRequest,
    pub(super) service: ServiceInfo,
    /// Who asks from another host.
    pub(super) author: Option<Author>,
    pub(super) owner: Owner,
    pub(super) target: Option<Target>,
    /// The process whose events it receives, if the subscription is limited to one process.
    pub(super) filtered: Option<Target>,
    pub(super) plan: Plan,
    pub(super) bound: Bound,
    /// Interrupts per second of its timer.
    pub(super) interrupts: u64,
    /// The program of each handler, in the order of the chain.
    pub(super) programs: Vec<Arc<Program>>,
    /// The session's attributes, including those of these handlers.
    pub(super) attributes: Vec<String>,
    pub(super) down: Arc<Down>,
    /// The format in memory_up; without memory, the format for the last step.
    pub(super) format: Format,
    pub(super) geometry: Option<Geometry>,
    /// Bytes of memory_up and of the handlers' queues.
    pub(super) memory_bytes: u64,
}

/// The parts created for a draft.
pub(super) struct Parts {
    pub(super) up: Option<Up>,
    pub(super) outlet: Option<Outlet>,
    pub(super) aim: Option<Arc<Aim>>,
    pub(super) stages: Vec<Stage>,
    pub(super) installed: Option<Installed>,
    pub(super) backlog: Backlog,
    pub(super) max_cpu: Share,
}

impl Draft {
    /// Whether a part of the chain runs in the kernel, or the events come from there.
    pub(super) fn is_at_hook(&self) -> bool {
        self.service.origin == Origin::Kernel && self.request.group.is_none()
    }

    /// The user whose records in the kernel's ring are bounded; root has no bound.
    pub(super) fn bounded_user(&self) -> Option<u32> {
        Some(self.owner.uid).filter(|uid| *uid != 0)
    }

    pub(super) fn make_memory(&self) -> Result<Option<Up>, Problem> {
        assert_may_block("making shared memory");
        let by_kernel = self.plan.in_kernel.contains(&Step::MemoryUp);
        let failed = |error: io::Error| problem::internal(format!("cannot create memory_up: {error}"));
        self.geometry.map(|geometry| Up::new(geometry, by_kernel)).transpose().map_err(failed)
    }

    /// The steps that run in the daemon.
    pub(super) fn stages(&self, up: &Option<Up>, hub: &Arc<Hub<Registry, Queued>>) -> Result<Vec<Stage>, Problem> {
        debug_assert_eq!(up.is_some(), self.request.memory_up.is_some());
        let in_kernel = self.plan.in_kernel.iter().filter(|step| is_handler(**step)).count();
        let mut programs = self.programs.iter().skip(in_kernel);
        let mut format = self.format_behind(in_kernel);
        let mut stages = Vec::new();
        for step in &self.plan.in_daemon {
            stages.push(match step {
                Step::KThread => Stage::Thread,
                Step::Hold => Stage::Hold(self.moment(&format)?, Arc::downgrade(hub)),
                Step::MemoryUp => Stage::Memory(self.position(&format)?),
                Step::Signal => self.signal(&format)?,
                Step::Channel => Stage::Channel,
                Step::KHandler | Step::KCode => {
                    let program = programs.next().expect("a program for every handler");
                    format = program.output.clone().unwrap_or(format);
                    Stage::Handler(Lock::new(Handler::new(program, self.bound.limits(EMISSIONS), self.down.clone())))
                }
            });
        }
        Ok(stages)
    }

    /// The format of events after the first `handlers` handlers.
    fn format_behind(&self, handlers: usize) -> Format {
        let mut outputs = self.programs.iter().take(handlers).filter_map(|program| program.output.as_ref());
        outputs.next_back().unwrap_or(&self.service.format).clone()
    }

    fn signal(&self, format: &Format) -> Result<Stage, Problem> {
        let number = self.request.signal.unwrap_or_default();
        let named = match &self.request.signal_value {
            Some(field) => Some(place(format, field).ok_or_else(|| no_such_field(format, field))?),
            None => format.fields.first().and_then(|field| place(format, &field.name)),
        };
        Ok(Stage::Signal { number, value: named })
    }

    /// The signal that the kernel is asked to send: the only step that follows those in the kernel.
    pub(super) fn signal_of_kernel(&self) -> Option<SignalTo> {
        let asked = self.request.signal_by_kernel && self.plan.in_daemon == [Step::Signal];
        let target = self.target.as_ref().filter(|_| asked)?;
        let started = threads::start_time(ThreadId(target.pid))?;
        if target.watch.ended() {
            // The number may belong to another process, and so may the start time.
            return None;
        }
        let in_kernel = self.plan.in_kernel.iter().filter(|step| is_handler(**step)).count();
        match self.signal(&self.format_behind(in_kernel)).ok()? {
            Stage::Signal { number, value } => {
                let value = value.map(|place| (place.offset as u32, place.ty));
                Some(SignalTo { number, pid: target.pid, started, value })
            }
            _ => None,
        }
    }

    /// The place of the moment until which events are held.
    fn moment(&self, format: &Format) -> Result<Place, Problem> {
        let field = self.request.hold_until.as_deref().unwrap_or_default();
        place(format, field).ok_or_else(|| no_such_field(format, field))
    }

    /// Whether its events are held, so that a deadline counts from their moments.
    pub(super) fn holds(&self) -> bool {
        self.request.hold_until.is_some()
    }

    fn position(&self, format: &Format) -> Result<Option<Place>, Problem> {
        let field = self.request.memory_up.as_ref().and_then(|memory| memory.position.as_ref());
        field.map(|field| place(format, field).ok_or_else(|| no_such_field(format, field))).transpose()
    }

    pub(super) fn group(&self) -> Option<GroupKey> {
        self.request.group.clone().map(|name| GroupKey { uid: self.owner.uid, name })
    }

    pub(super) fn finish(self, id: u64, parts: Parts, installed_in_us: u64) -> Subscription {
        let (Parts { up, outlet, aim, stages, installed, backlog, max_cpu }, group) = (parts, self.group());
        let Draft {
            request,
            service,
            author,
            owner,
            target,
            filtered,
            plan,
            bound,
            interrupts,
            attributes,
            down,
            format,
            memory_bytes,
            ..
        } = self;
        for (number, value) in numbered(&attributes, &request.attributes).unwrap_or_default() {
            down.words().set_attribute(number, value);
        }
        let terms = Terms {
            service: service.id,
            service_name: service.name,
            author,
            owner,
            lease: request.lease,
            process_id: request.process_id,
            only_pid: request.only_pid,
            group,
            plan,
            deadline: deadline(request.deadline_us),
            favour: request.favour,
            on_fault: request.on_fault,
            max_cpu,
            format,
            memory: request.memory_up,
            channel: request.channel,
            memory_bytes,
            attributes,
            instructions: bound.instructions,
            interrupts,
            installed_in_us,
        };
        let process_id = terms.process_id;
        let watch = |target: Option<Target>| target.map(|target| target.watch);
        Subscription {
            id,
            terms,
            chain: Chain { stages, down, up, outlet, aim },
            watched: Watched { target: watch(target), filtered: watch(filtered) },
            installed: installed.into(),
            state: State::Active.into(),
            waiting: AtomicUsize::new(0),
            priority: AtomicI32::new(priority_of(process_id)),
            backlog: backlog.into(),
            tally: Tally::default(),
            faults: Default::default(),
        }
    }
}

pub(super) fn deadline(us: u64) -> Option<Nanos> {
    (us > 0).then(|| Nanos::from_micros(us))
}
