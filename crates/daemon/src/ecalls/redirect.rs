//! Events to and from channels (000 §3.4): a chain submits its events to a channel, and a service `channel:NAME` raises
//! the events of a channel, or of several, whichever host they come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{Origin, ServiceId, ServiceInfo};

use super::inputs::{self, Input, Inputs};
use super::raise::Event;
use super::registry::Service;
use super::{Ecalls, drop_aside, problems};
use crate::auth::Peer;
use crate::channels::{Bell, Channels, Fabric};

/// The channels of this host, and the bell of all inlets.
pub(crate) struct Redirects {
    channels: Arc<Channels>,
    rung: Arc<AtomicBool>,
}

impl Ecalls {
    /// From now on chains can submit events to channels, and get events from them.
    pub(crate) fn redirect_through(&self, channels: Arc<Channels>) {
        // Called once, when the service is assembled.
        let _ = self.redirects.set(Redirects { channels, rung: Arc::default() });
    }

    pub(super) fn fabric(&self) -> Result<&Arc<Fabric>, Problem> {
        let none = || problems::chain("the service is not complete yet", "try again");
        self.redirects.get().ok_or_else(none)?.channels.on()
    }

    /// The service of channels that `peer` may join, created for its first subscription.
    pub(super) fn service_of_channels(&self, peer: Peer, name: &str) -> Result<ServiceInfo, Problem> {
        let (fabric, named) = (self.fabric()?, inputs::named(name)?);
        named.iter().try_for_each(|input| fabric.may_join(peer, &input.channel))?;
        let known = self.registry().service(name).map(|(id, service)| service.snapshot(id));
        if let Ok(known) = known {
            return Ok(known.info());
        }
        let wake = self.hub.sources.wake().clone();
        let rung = self.redirects.get().map(|redirects| redirects.rung.clone()).unwrap_or_default();
        let inlet = |input: &Input<'_>| {
            let bell = Arc::new(Bell::new(rung.clone(), wake.clone()));
            fabric.inlet(peer, &input.channel, input.event_type, bell)
        };
        let inlets = named.iter().map(inlet).collect::<Result<Vec<_>, Problem>>()?;
        let joined = Arc::new(Inputs::new(&named, inlets)?);
        let about = match &named[..] {
            [only] => format!("events of the channel {}, from all hosts", only.channel),
            all => format!("events of {} channels, from all hosts", all.len()),
        };
        let fresh = Service::new(name, &about, Origin::Channel, "the sources of the channel", joined.format.clone());
        let (max_instructions, _) = self.config().instructions_at(name, Origin::Channel);
        // Process ids in the events may be those of other hosts.
        let service = Service { concerns_process: false, max_instructions, inputs: Some(joined.clone()), ..fresh };
        let mut registry = self.registry();
        let id = registry.add_service(service)?;
        let snapshot = registry.services[&id].snapshot(id);
        drop(registry);
        // An event that arrived before this rang for a service that the dispatcher did not know, and the sink rings again
        // only when it has been empty.
        joined.ring();
        Ok(snapshot.info())
    }

    /// Removes the services of channels that have no subscription; the caller drops them without a lock.
    #[must_use]
    pub(super) fn unused_services(&self) -> Vec<Service> {
        let mut registry = self.registry();
        let all: Vec<_> = registry.services.keys().copied().collect();
        all.into_iter().filter_map(|id| registry.remove_unused(id)).collect()
    }

    /// In the dispatcher: raises the events that arrived on channels, at most some dozens of each channel.
    pub(super) fn take_from_channels(&self) {
        let Some(redirects) = self.redirects.get() else { return };
        if !redirects.rung.swap(false, Ordering::AcqRel) {
            return;
        }
        for (id, name, inputs) in self.inputs() {
            let arrivals = inputs.take();
            for (data, stamp) in &arrivals.events {
                self.raise_own(&name, &Event { pid: -1, data, stamp: *stamp, cpu: false });
            }
            if arrivals.is_over {
                drop_aside(self.end_service(id));
            }
        }
    }

    fn inputs(&self) -> Vec<(ServiceId, String, Arc<Inputs>)> {
        let registry = self.registry();
        let of = |(id, service): (&ServiceId, &Service)| Some((*id, service.name.clone(), service.inputs.clone()?));
        registry.services.iter().filter_map(of).collect()
    }
}
