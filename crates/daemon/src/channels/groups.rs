//! Groups of applications, and the hosts of the realm.

use qfabric_channel::{Limits, QosRange, Registration, RegistrationId};
use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{self as api, GroupInfo, GroupMember, GroupRequest, HostInfo, Registered};
use qfabric_types::channel::ChannelId;

use super::members::key;
use super::registry::Registry;
use super::{Fabric, Network, problems};
use crate::auth::{Peer, places_for};

impl Fabric {
    /// Registers an application in a group; this host joins the group's Q-channel.
    pub(crate) fn register(&self, peer: Peer, request: GroupRequest) -> Result<Registered, Problem> {
        let range =
            |range: &api::QosRange| Ok(QosRange { metric: key(&range.metric)?, min: range.min, max: range.max });
        let registration = Registration {
            application: request.application,
            group: request.group,
            parent: request.parent,
            level: request.level,
            qos: request.qos.iter().map(range).collect::<Result<_, Problem>>()?,
        };
        let mut registry = self.registry();
        registry.lease(peer, request.lease)?;
        let channel = registration.channel();
        self.network.check_room_for_registration(&registry, peer, channel.as_ref())?;
        let payer =
            channel.as_ref().map(|channel| self.network.payer_of_opening(&registry, peer, channel)).transpose()?;
        let made = self.network.with(|node, now| node.register(registration, now));
        let id = made.map_err(|error| error.problem())?;
        registry.openings.charge(payer.flatten(), clock::now());
        registry.registrations.insert(id, request.lease);
        let text = channel.as_ref().map_or_else(String::new, ChannelId::to_string);
        registry.lease(peer, request.lease)?.registrations.extend(channel.map(|channel| (id, channel)));
        Ok(Registered { number: id.0, channel: text })
    }

    pub(crate) fn unregister(&self, peer: Peer, id: RegistrationId) -> Result<(), Problem> {
        let mut registry = self.registry();
        let lease = registry.registrations.get(&id).copied().unwrap_or(0);
        let none = |_| problems::not_your_member("registration", id.0);
        registry.lease(peer, lease).map_err(none)?.registrations.remove(&id);
        registry.registrations.remove(&id);
        self.network.with(|node, now| node.unregister(id, now)).map_err(|error| error.problem())
    }
}

impl Network {
    /// Refuses registrations above a user's share of this host's, and above the part of all users.
    fn check_room_for_registration(
        &self,
        registry: &Registry,
        peer: Peer,
        channel: Option<&ChannelId>,
    ) -> Result<(), Problem> {
        let (uid, most) = (peer.owner.uid, Limits::REGISTRATIONS / 4);
        let own: usize = registry.of_user(uid).map(|lease| lease.registrations.len()).sum();
        if peer.administers() {
            return Ok(());
        }
        if own >= most {
            return Err(problems::too_many_registrations(uid, own, most));
        }
        let (taken, most) = (registry.registrations.len(), places_for(uid, Limits::REGISTRATIONS));
        if taken >= most {
            return Err(problems::full("registrations", taken, most));
        }
        channel.map_or(Ok(()), |channel| self.check_room_for_channel(registry, peer, channel))
    }

    pub(super) fn groups(&self) -> Vec<GroupInfo> {
        self.look(|node| {
            let groups = node.directory().groups();
            let info = |(name, members): (_, Vec<_>)| GroupInfo {
                name: Clone::clone(name),
                members: members.into_iter().map(|(host, registration)| member(host, registration)).collect(),
            };
            groups.into_iter().map(info).collect()
        })
    }

    pub(super) fn hosts(&self) -> Vec<HostInfo> {
        self.look(|node| {
            let info = |(host, record): (&qfabric_types::channel::Name, &qfabric_channel::HostRecord)| {
                let clock = node.clock_offset(host);
                HostInfo {
                    here: *host == self.host,
                    host: host.clone(),
                    incarnation: record.incarnation.to_string(),
                    channels: record.channels.len() as u32,
                    registrations: record.registrations.len() as u32,
                    clock_offset_ns: clock.map(|(offset, _)| offset),
                    clock_error_ns: clock.map(|(_, error)| error),
                }
            };
            node.directory().hosts().map(info).collect()
        })
    }
}

fn member(host: &qfabric_types::channel::Name, registration: &Registration) -> GroupMember {
    let range = |range: &QosRange| api::QosRange { metric: range.metric.to_string(), min: range.min, max: range.max };
    GroupMember {
        host: host.clone(),
        application: registration.application.clone(),
        parent: registration.parent.clone(),
        level: registration.level,
        qos: registration.qos.iter().map(range).collect(),
    }
}
