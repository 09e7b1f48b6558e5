//! Events to and from channels (000 §3.4): a chain submits its events to a channel, and a service `channel:NAME` raises
//! the events of a channel, whichever host they come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{CHANNEL_SERVICE, Origin, ServiceId, ServiceInfo};
use qfabric_types::channel::ChannelId;

use super::raise::Event;
use super::registry::Service;
use super::{Ecalls, drop_aside, problems};
use crate::auth::Peer;
use crate::channels::{Bell, Channels, Fabric, Inlet};

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

    /// The service of a channel that `peer` may join, created for its first subscription.
    pub(super) fn service_of_channel(&self, peer: Peer, name: &str) -> Result<ServiceInfo, Problem> {
        let (fabric, (channel, event_type)) = (self.fabric()?, parts(name)?);
        fabric.may_join(peer, &channel)?;
        let known = self.registry().service(name).map(|(id, service)| service.snapshot(id));
        if let Ok(known) = known {
            return Ok(known.info());
        }
        let wake = self.hub.sources.wake().clone();
        let rung = self.redirects.get().map(|redirects| redirects.rung.clone()).unwrap_or_default();
        let inlet = Arc::new(fabric.inlet(peer, &channel, event_type, Arc::new(Bell::new(rung, wake)))?);
        let about = format!("events of the channel {channel}, from all hosts");
        let fresh = Service::new(name, &about, Origin::Channel, "the sources of the channel", inlet.format.clone());
        let (max_instructions, _) = self.config().instructions_at(name, Origin::Channel);
        // Process ids in the events may be those of other hosts.
        let service = Service { concerns_process: false, max_instructions, inlet: Some(inlet.clone()), ..fresh };
        let mut registry = self.registry();
        let id = registry.add_service(service)?;
        let snapshot = registry.services[&id].snapshot(id);
        drop(registry);
        // An event that arrived before this rang for a service that the dispatcher did not know, and the sink rings again
        // only when it has been empty.
        inlet.ring();
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
        for (id, name, inlet) in self.inlets() {
            let Some(arrivals) = inlet.take() else { continue };
            for (data, stamp) in &arrivals.events {
                self.raise_own(&name, &Event { pid: -1, data, stamp: *stamp, cpu: false });
            }
            if arrivals.is_over {
                drop_aside(self.end_service(id));
            }
        }
    }

    fn inlets(&self) -> Vec<(ServiceId, String, Arc<Inlet>)> {
        let registry = self.registry();
        let of = |(id, service): (&ServiceId, &Service)| Some((*id, service.name.clone(), service.inlet.clone()?));
        registry.services.iter().filter_map(of).collect()
    }
}

/// The channel and the type of events of a service `channel:NAME` or `channel:NAME/TYPE`.
fn parts(service: &str) -> Result<(ChannelId, Option<&str>), Problem> {
    let text = service.strip_prefix(CHANNEL_SERVICE).unwrap_or(service);
    let (name, event_type) = text.split_once('/').map_or((text, None), |(name, event_type)| (name, Some(event_type)));
    let wrong = |error| problems::chain(format!("{error}"), "name the service channel:NAME or channel:NAME/TYPE");
    let name: qfabric_types::channel::Name = name.parse().map_err(wrong)?;
    Ok((ChannelId::data(name), event_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_of_a_channel_may_name_one_of_its_types() {
        let (channel, event_type) = parts("channel:loads/load").unwrap();
        assert_eq!((channel.to_string().as_str(), event_type), ("loads", Some("load")));
        assert_eq!(parts("channel:loads").unwrap().1, None);
        assert_eq!(parts("channel:quality:loads").unwrap_err().code, "chain");
    }
}
