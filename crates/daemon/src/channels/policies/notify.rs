//! Notifies applications of decisions, on `channels.sock`, so that a source can send less instead of having its events
//! held back.

use std::collections::BTreeSet;

use qfabric_channel::Registration;
use qfabric_host::manager::policies::{
    ARRIVED, BEGUN, CPU_GRANTED, CPU_GUARANTEED, CPU_MOST, CPU_OWN, CPU_WEIGHT, DECODED, DELAY, DROP, FORWARD,
    GENERATED, LEAST_DELAY, LEVEL, MISSES, NEED, PLACE, POSITION, RATE, RECEIVER_COST, SATURATED, SENT, SHOW, SHOWN,
    SKIP, SPEED, TEQ_RECEIVER, TEQ_SENDER,
};
use qfabric_types::AppId;
use qfabric_types::api::channel::LeaseId;
use qfabric_types::channel::ChannelId;
use qfabric_types::channel_wire::{Decision, FromDaemon};
use qfabric_types::monitor::{AttributeId, METRICS};

use super::super::mailbox::{Audience, Notification};
use super::super::registry::Registry;
use super::super::{Fabric, Network, count};
use super::cpu::{CPU_SERVICE, CPU_WINDOW};
use super::group::number_of;

/// Largest number of notifications that wait for a slow reader; the next one is dropped and counted.
const WAITING: usize = 64;

/// Attributes in messages to and from applications.
const OF_APPLICATIONS: [&str; 30] = [
    RATE,
    LEAST_DELAY,
    DELAY,
    CPU_MOST,
    CPU_WEIGHT,
    LEVEL,
    NEED,
    SHOW,
    POSITION,
    SPEED,
    SKIP,
    FORWARD,
    DROP,
    BEGUN,
    GENERATED,
    DECODED,
    SHOWN,
    PLACE,
    TEQ_SENDER,
    TEQ_RECEIVER,
    RECEIVER_COST,
    CPU_GUARANTEED,
    CPU_OWN,
    CPU_GRANTED,
    CPU_SERVICE,
    CPU_WINDOW,
    SENT,
    ARRIVED,
    MISSES,
    SATURATED,
];

/// Name of an attribute; its number if this host has no name for it.
pub(super) fn attribute_name(attribute: AttributeId) -> String {
    let known = METRICS.iter().map(|metric| metric.name).chain(OF_APPLICATIONS);
    let name = known.into_iter().find(|name| AttributeId::of(name) == attribute);
    name.map_or_else(|| attribute.to_string(), str::to_owned)
}

impl Fabric {
    /// Notifies an application of this host of an amount that no mechanism here enforces. The number is the one that
    /// the application's group and name have.
    pub(in crate::channels) fn tell_applied(
        &self,
        registry: &mut Registry,
        application: AppId,
        attribute: AttributeId,
        amount: i64,
    ) {
        let told = self.network.look(|node| {
            let own = &node.directory().host(node.host())?.registrations;
            let one = own.values().find(|one| number_of(&one.group, &one.application) == application)?;
            let (subject, audience) = (one.application.to_string(), Audience::Member(one.application.clone()));
            Some(Notification {
                channel: one.channel()?,
                attribute,
                subject,
                amount: Some(amount),
                audience,
                user: None,
            })
        });
        match told {
            Some(told) => self.tell_decided(registry, &told),
            None => {
                tracing::debug!(%application, %attribute, amount, "a decision is about an application that is not on this host")
            }
        }
    }

    /// Notifies the applications that a decision concerns.
    pub(in crate::channels) fn tell_decided(&self, registry: &mut Registry, told: &Notification) {
        let (channel, attribute) = (told.channel.to_string(), attribute_name(told.attribute));
        let (amount, subject) = (told.amount, told.subject.as_str());
        let decided = Decision { channel: &channel, attribute: &attribute, subject, amount };
        for id in self.network.concerned(registry, &told.channel, &told.audience) {
            let Some(lease) = registry.leases.get(&id) else { continue };
            if told.user.is_some_and(|uid| uid != lease.peer.owner.uid) {
                continue;
            }
            let waiting = lease.outbox.len();
            match waiting < WAITING {
                true => self.tell(registry, id, &FromDaemon::Decided(decided)),
                false => count(&self.totals.notices_dropped),
            }
        }
    }
}

impl Network {
    /// The connections of the applications of this audience on a channel.
    pub(super) fn concerned(&self, registry: &Registry, channel: &ChannelId, audience: &Audience) -> BTreeSet<LeaseId> {
        let channel = Some(channel);
        self.look(|node| match audience {
            Audience::Sinks => {
                let of = registry.sinks.iter().filter(|(sink, _)| node.channel_of_sink(**sink) == channel);
                of.map(|(_, lease)| *lease).collect()
            }
            Audience::Sources => {
                let of = registry.sources.iter().filter(|(source, _)| node.channel_of_source(**source) == channel);
                of.map(|(_, lease)| *lease).collect()
            }
            Audience::Member(name) => {
                let known = node.directory().host(node.host()).map(|record| &record.registrations);
                let own = known.into_iter().flatten();
                let is_it = |one: &Registration| one.application == *name && one.channel().as_ref() == channel;
                let of = own.filter(|(_, one)| is_it(one));
                of.filter_map(|(id, _)| registry.registrations.get(id).copied()).collect()
            }
        })
    }
}
