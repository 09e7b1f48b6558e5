//! Raises events: finds the subscriptions that receive an event and queues it for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{EventData, EventRequest, RaiseOutcome, ServiceId};
use qfabric_types::event_json;
use qfabric_types::format::Format;
use qfabric_types::memory::Stamp;

use super::hub::ToOne;
use super::registry::{GroupKey, Registry, Service, Tail};
use super::subscription::{Place, Subscription, count};
use super::{Ecalls, problems};
use crate::auth::Peer;

/// An event on its way to one subscription.
#[derive(Clone)]
pub(crate) struct Queued {
    pub to: Arc<Subscription>,
    /// The stage of its chain at which it continues; 0 at first, later if it was held.
    pub stage: usize,
    pub data: Arc<[u8]>,
    pub stamp: Stamp,
}

impl ToOne for Queued {
    fn waiting(&self) -> &AtomicUsize {
        &self.to.waiting
    }

    fn user(&self) -> u32 {
        self.to.terms.owner.uid
    }

    fn priority(&self) -> i32 {
        self.to.priority()
    }
}

/// An event that is being raised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    /// The process that receives it; −1: all processes.
    pub pid: i32,
    pub data: &'a [u8],
    pub stamp: Stamp,
    pub cpu: bool,
}

impl<'a> Event<'a> {
    /// An event that happens now.
    pub(super) fn now(pid: i32, data: &'a [u8], deadline_us: u64, cpu: bool) -> Event<'a> {
        let time_ns = clock::now().get();
        let deadline_ns = match deadline_us {
            0 => 0,
            us => time_ns.saturating_add(us.saturating_mul(1_000)),
        };
        Event { pid, data, stamp: Stamp { time_ns, deadline_ns }, cpu }
    }
}

/// The place of the integer `field` in events of this format.
pub(crate) fn place(format: &Format, field: &str) -> Option<Place> {
    let found = format.field(field).filter(|field| field.dims.is_empty())?;
    match found.kind {
        qfabric_types::format::Kind::Scalar(ty) if !ty.float => Some(Place { offset: found.offset as usize, ty }),
        _ => None,
    }
}

/// The process to which an event belongs.
fn concerns(service: &Service, data: &[u8]) -> Option<i32> {
    service.concerns_process.then(|| place(&service.format, "pid")).flatten().map(|place| place.of(data) as i32)
}

impl Ecalls {
    /// Raises an event that `peer` sent over HTTP.
    pub(crate) fn raise_by_name(
        &self,
        peer: Peer,
        name: &str,
        request: &EventRequest,
    ) -> Result<RaiseOutcome, Problem> {
        let raised: Result<_, Problem> = self.hub.raise(|registry| {
            let (id, service) = registry.service(name)?;
            check_owner(service, name, peer)?;
            let data = data(&service.format, &request.data)?;
            Ok(self.raise(registry, id, &Event::now(request.pid, &data, request.deadline_us, request.cpu)))
        });
        Ok(raised?.unwrap_or_default())
    }

    /// Raises an event that `peer` sent through its connection. `None`: the size is wrong, or the service is not
    /// the peer's.
    pub(super) fn raise_by_lease(&self, peer: Peer, id: ServiceId, event: &Event<'_>) -> Option<RaiseOutcome> {
        let mut registry = self.registry();
        let service = registry.services.get(&id)?;
        let fits = event.data.len() == service.format.size as usize;
        let own = service.owner.is_some_and(|owner| peer.may_touch(owner.peer.owner));
        if fits && own { self.raise(&mut registry, id, event) } else { None }
    }

    /// Raises an event of the daemon.
    pub(super) fn raise_own(&self, name: &str, event: &Event<'_>) {
        let mut registry = self.registry();
        if let Ok((id, _)) = registry.service(name) {
            self.raise(&mut registry, id, event);
        }
    }

    /// Raises an event of the daemon for a process, from a thread that is not the dispatcher.
    pub(crate) fn announce(&self, name: &str, pid: i32, data: &[u8]) {
        self.raise_own(name, &Event::now(pid, data, 0, false));
        self.nudge();
    }

    /// Queues the event for each receiver. A caller that is not the dispatcher must nudge the dispatcher afterwards.
    fn raise(&self, registry: &mut Registry, id: ServiceId, event: &Event<'_>) -> Option<RaiseOutcome> {
        let service = registry.services.get_mut(&id)?;
        service.raised += 1;
        service.cpu += u64::from(event.cpu);
        count(&self.totals.raised);
        self.totals.cpu.fetch_add(event.cpu.into(), Ordering::Relaxed);
        let concerns = concerns(service, event.data);
        let receivers = service.receivers(event.pid, concerns);
        let data: Arc<[u8]> = event.data.into();
        let mut raised = RaiseOutcome::default();
        for to in receivers {
            count(&to.tally.events);
            self.favour(&to, event.cpu || to.favours_on_arrival(), event.stamp);
            match self.enqueue(Queued { to, stage: 0, data: data.clone(), stamp: event.stamp }) {
                true => raised.queued += 1,
                false => raised.dropped += 1,
            }
        }
        Some(raised)
    }

    /// Queues an event from the kernel; `tail` identifies its subscription or group.
    pub(super) fn take_from_kernel(&self, tail: u64, data: &[u8], stamp: Stamp) {
        let mut registry = self.registry();
        let Some(tail) = registry.tails.get(&tail).cloned() else { return };
        let to = match tail {
            Tail::Subscription(id) => registry.subscriptions.get(&id).cloned(),
            Tail::Group(service, group) => next_of_group(&mut registry, service, &group),
        };
        drop(registry);
        if let Some(to) = to {
            self.favour(&to, to.favours_on_arrival() && !to.favours_by_itself(), stamp);
            self.enqueue(Queued { to, stage: 0, data: data.into(), stamp });
        }
    }

    /// Queues the event if the subscription and the queue have room. `false`: dropped and counted.
    pub(super) fn enqueue(&self, event: Queued) -> bool {
        let deadline = event.to.deadline(event.stage, event.stamp);
        let refused = self.hub.enqueue(deadline, event).err();
        if let Some(event) = &refused {
            self.count_dropped(event);
        }
        refused.is_none()
    }

    /// Counts an event that was dropped for another reason than its deadline.
    pub(super) fn count_dropped(&self, event: &Queued) {
        count(&event.to.tally.dropped_queue);
        count(&self.totals.dropped_queue);
    }
}

fn next_of_group(registry: &mut Registry, service: ServiceId, group: &GroupKey) -> Option<Arc<Subscription>> {
    let Service { subscriptions, groups, .. } = registry.services.get_mut(&service)?;
    let is_member = |s: &&Arc<Subscription>| s.is_active() && s.terms.group.as_ref() == Some(group);
    let members: Vec<_> = subscriptions.iter().filter(is_member).collect();
    let chosen = groups.get_mut(group)?.next(&members)?;
    count(&chosen.tally.events);
    Some(chosen)
}

fn check_owner(service: &Service, name: &str, peer: Peer) -> Result<(), Problem> {
    match service.owner {
        Some(owner) if peer.may_touch(owner.peer.owner) => Ok(()),
        owner => {
            let theirs = owner.map_or(0, |owner| owner.peer.owner.uid);
            Err(problems::not_your_service(name, theirs, peer.owner.uid))
        }
    }
}

/// The bytes of an event of this format.
pub(crate) fn data(format: &Format, given: &EventData) -> Result<Vec<u8>, Problem> {
    let bytes = match given {
        EventData::Hex(digits) => event_json::from_hex(digits),
        EventData::Fields(fields) => event_json::encode(format, fields),
    };
    let bytes = bytes.map_err(crate::problem::invalid)?;
    let (has, needs) = (bytes.len(), format.size as usize);
    match has == needs {
        true => Ok(bytes),
        false => {
            let message = format!("the data have {has} bytes, struct {} has {needs}", format.name);
            Err(problems::chain(message, "send the whole structure"))
        }
    }
}
