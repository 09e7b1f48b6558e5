//! Channels, sources and sinks that belong to a connection.

use std::collections::BTreeMap;

use qfabric_channel::{
    Attributes, EventType, Key, Limits, Node, Origin, Pressure, SinkId, SinkSpec, SourceId, SourceSpec, Spec,
};
use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{
    self as api, AttributeChanges, ChannelInfo, ChannelRequest, Joined, LeaseId, SinkRequest, SourceRequest,
};
use qfabric_types::channel::{ChannelId, Plane};
use qfabric_types::format::{Format, Kind};

use super::registry::{Credit, Lease, Registry};
use super::rules::Right;
use super::{Fabric, Network, openings, problems};
use crate::auth::{Peer, places_for};

/// Places that a channel takes, with its Q-channel.
const PLACES: usize = 2;
/// Channels that one user may hold: a quarter of the host's.
const CHANNELS_PER_USER: usize = Limits::CHANNELS / PLACES / 4;

impl Fabric {
    /// Creates a channel, which the connection then holds.
    pub(crate) fn create(&self, peer: Peer, request: &ChannelRequest) -> Result<ChannelInfo, Problem> {
        let (channel, spec) = (ChannelId::data(request.name.clone()), spec(request)?);
        self.settings.permit(peer, Right::Create, &channel)?;
        let mut registry = self.registry();
        check_openings(registry.lease(peer, request.lease)?)?;
        self.network.check_room_for_channel(&registry, peer, &channel)?;
        let payer = self.network.payer_of_opening(&registry, peer, &channel)?;
        let created = self.network.with(|node, now| node.create(&channel, spec, now));
        created.map_err(|error| error.problem())?;
        registry.openings.charge(payer, clock::now());
        registry.lease(peer, request.lease)?.opened.push(channel.clone());
        self.network.look(|node| {
            let origin = node.channel(&channel).map(|view| view.origin);
            let by = origin.map(|origin| (origin, peer.owner.uid));
            by.into_iter().for_each(|by| registry.created(channel.clone(), by, |id, origin| stands(node, id, origin)));
        });
        drop(registry);
        self.ask_for_renewal();
        self.show(&channel)
    }

    /// Opens a channel, which the connection then holds once more.
    pub(crate) fn open(&self, peer: Peer, channel: &ChannelId, id: LeaseId) -> Result<ChannelInfo, Problem> {
        self.settings.permit(peer, Right::Open, channel)?;
        let mut registry = self.registry();
        check_openings(registry.lease(peer, id)?)?;
        let (is_hidden, mut payer) = (channel.plane == Plane::Quality, None);
        if !is_hidden {
            self.network.check_room_for_channel(&registry, peer, channel)?;
            payer = self.network.payer_of_opening(&registry, peer, channel)?;
        }
        let opened = self.network.with(|node, now| match is_hidden && node.is_open(channel) {
            // It is open as long as its data channel or its group: the connection holds nothing of its own.
            true => Ok(()),
            false => node.open(channel, now),
        });
        opened.map_err(|error| error.problem())?;
        registry.openings.charge(payer, clock::now());
        if !is_hidden {
            registry.lease(peer, id)?.opened.push(channel.clone());
        }
        drop(registry);
        self.ask_for_renewal();
        self.show(channel)
    }

    /// Undoes one creation or opening by this connection.
    pub(crate) fn close(&self, peer: Peer, channel: &ChannelId, id: LeaseId) -> Result<(), Problem> {
        let mut registry = self.registry();
        let lease = registry.lease(peer, id)?;
        if channel.plane == Plane::Quality {
            return Ok(());
        }
        let at = lease.opened.iter().position(|opened| opened == channel);
        let at = at.ok_or_else(|| qfabric_channel::Error::NotOpen(channel.clone()).problem())?;
        lease.opened.remove(at);
        self.network.with(|node, now| node.close(channel, now)).map_err(|error| error.problem())
    }

    pub(crate) fn source(&self, peer: Peer, channel: &ChannelId, request: SourceRequest) -> Result<Joined, Problem> {
        self.settings.permit(peer, Right::Send, channel)?;
        let (application, attributes) = (request.application, attributes(&request.attributes)?);
        let spec = SourceSpec { application, user: Some(peer.owner.uid), attributes };
        let mut registry = self.registry();
        registry.lease(peer, request.lease)?;
        self.check_room_for_member(&registry, peer, channel)?;
        let joined = self.network.with(|node, now| node.source_subscribe(channel, spec, now));
        let source = joined.map_err(|error| error.problem())?;
        registry.sources.insert(source, request.lease);
        registry.lease(peer, request.lease)?.sources.insert(source);
        Ok(Joined { number: source.0 })
    }

    pub(crate) fn sink(&self, peer: Peer, channel: &ChannelId, request: SinkRequest) -> Result<Joined, Problem> {
        self.settings.permit(peer, Right::Join, channel)?;
        let spec = SinkSpec {
            application: request.application,
            types: request.types,
            formats: formats(&request.formats)?,
            attributes: attributes(&request.attributes)?,
            capacity: request.capacity,
        };
        let mut registry = self.registry();
        registry.lease(peer, request.lease)?;
        self.check_room_for_member(&registry, peer, channel)?;
        let payer = self.network.payer_of_first_sink(&registry, peer, channel)?;
        let joined = self.network.with(|node, now| node.sink_subscribe(channel, spec, now));
        let sink = joined.map_err(|error| error.problem())?;
        registry.openings.charge(payer, clock::now());
        registry.sinks.insert(sink, request.lease);
        registry.lease(peer, request.lease)?.sinks.insert(sink, Credit::default());
        drop(registry);
        self.ask_for_renewal();
        Ok(Joined { number: sink.0 })
    }

    /// Refuses members above a user's limits on this host and on the channel, so that other users have room.
    pub(super) fn check_room_for_member(
        &self,
        registry: &Registry,
        peer: Peer,
        channel: &ChannelId,
    ) -> Result<(), Problem> {
        let (uid, most, most_there) = (peer.owner.uid, self.config().max_members_per_user, Limits::MEMBERS / 4);
        let own = registry.of_user(uid).map(Lease::members).sum::<usize>() + registry.ends.of_user(uid, None);
        if peer.administers() || own < most.min(most_there) {
            return Ok(());
        }
        if own >= most {
            let what = format!("user {uid} has {own} sources and sinks here");
            return Err(problems::limit(&what, most, "channels.max_members_per_user"));
        }
        let there = self.network.look(|node| {
            let own = || registry.of_user(uid);
            let sources = own().flat_map(|lease| &lease.sources).map(|source| node.channel_of_source(*source));
            let sinks = own().flat_map(|lease| lease.sinks.keys()).map(|sink| node.channel_of_sink(*sink));
            let of_connections = sources.chain(sinks).filter(|of| *of == Some(channel)).count();
            of_connections + registry.ends.of_user(uid, Some(channel))
        });
        match there < most_there {
            true => Ok(()),
            false => Err(problems::too_many_members(uid, channel, there, most_there)),
        }
    }

    pub(crate) fn leave_source(&self, peer: Peer, source: SourceId) -> Result<(), Problem> {
        let mut registry = self.registry();
        registry.source(peer, source)?;
        let lease = registry.sources[&source];
        registry.forget_source(lease, source);
        // Its kept events may have stopped the connection's other messages.
        self.mailbox.unread(lease);
        self.network.with(|node, now| node.leave_source(source, now)).map_err(|error| error.problem())
    }

    pub(crate) fn leave_sink(&self, peer: Peer, sink: SinkId) -> Result<(), Problem> {
        let mut registry = self.registry();
        registry.sink(peer, sink)?;
        let lease = registry.sinks[&sink];
        registry.forget_sink(lease, sink);
        self.network.with(|node, now| node.leave_sink(sink, now)).map_err(|error| error.problem())
    }

    pub(crate) fn change_source(
        &self,
        peer: Peer,
        source: SourceId,
        changes: &AttributeChanges,
    ) -> Result<(), Problem> {
        let changes = keyed(changes)?;
        self.registry().source(peer, source)?;
        self.network.with(|node, now| {
            let mut each = changes.into_iter();
            each.try_for_each(|(key, value)| node.set_source_attribute(source, key, value, now))
                .map_err(|error| error.problem())
        })
    }

    /// Changes attributes of a sink; OUT-filters at all sources see the new values.
    pub(crate) fn change_sink(&self, peer: Peer, sink: SinkId, changes: &AttributeChanges) -> Result<(), Problem> {
        let changes = keyed(changes)?;
        self.registry().sink(peer, sink)?;
        self.network.with(|node, now| {
            let mut each = changes.into_iter();
            each.try_for_each(|(key, value)| node.set_sink_attribute(sink, key, value, now))
                .map_err(|error| error.problem())
        })
    }
}

impl Network {
    /// The user whose account pays if a channel is opened that is not open here yet: the network's session uses up
    /// numbers for it. The caller charges the account after it has opened the channel, so a refused attempt costs
    /// nothing: a program may wait for a channel by trying again.
    pub(super) fn payer_of_opening(
        &self,
        registry: &Registry,
        peer: Peer,
        channel: &ChannelId,
    ) -> Result<Option<u32>, Problem> {
        payer(registry, peer, self.look(|node| node.is_open(channel)))
    }

    /// The same for the first sink of a channel: with it the session subscribes to the channel.
    pub(super) fn payer_of_first_sink(
        &self,
        registry: &Registry,
        peer: Peer,
        channel: &ChannelId,
    ) -> Result<Option<u32>, Problem> {
        payer(registry, peer, self.look(|node| node.has_sink(channel)))
    }

    /// Refuses a further channel above a user's share of the host's channels, and above the part of all users, so that
    /// other users and administrators have room.
    pub(super) fn check_room_for_channel(
        &self,
        registry: &Registry,
        peer: Peer,
        channel: &ChannelId,
    ) -> Result<(), Problem> {
        let (uid, most) = (peer.owner.uid, CHANNELS_PER_USER);
        let own = registry.channels_of(uid);
        if peer.administers() || own.contains(channel) {
            return Ok(());
        }
        if own.len() >= most {
            return Err(problems::too_many_channels(uid, own.len(), most));
        }
        let most = places_for(uid, Limits::CHANNELS);
        let (is_open, taken) = self.look(|node| {
            let record = node.directory().host(&self.host);
            (node.is_open(channel), record.map_or(0, |record| record.channels.len()))
        });
        match is_open || taken + PLACES <= most {
            true => Ok(()),
            false => Err(problems::full("channels and Q-channels", taken, most)),
        }
    }
}

impl Fabric {
    /// Whether the user may decide for all users of the channel: administrators, and the user that created the
    /// channel here.
    pub(super) fn governs(&self, peer: Peer, channel: &ChannelId) -> bool {
        let created = self.registry().creation(peer.owner.uid, channel);
        peer.administers() || created.is_some_and(|origin| self.network.look(|node| stands(node, channel, &origin)))
    }
}

/// `None`: nobody has to pay.
fn payer(registry: &Registry, peer: Peer, is_active: bool) -> Result<Option<u32>, Problem> {
    let uid = peer.owner.uid;
    match (is_active || peer.administers(), registry.openings.covers(uid, clock::now())) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(uid)),
        (false, false) => Err(problems::too_many_active(uid, openings::BURST)),
    }
}

/// Bounds the openings that one connection holds at the same time, repeated ones included.
fn check_openings(lease: &Lease) -> Result<(), Problem> {
    let (opened, most) = (lease.opened.len(), Limits::CHANNELS);
    if opened < most { Ok(()) } else { Err(problems::too_many_openings(opened, most)) }
}

/// Whether this creation of the channel is the one in force.
fn stands(node: &Node, channel: &ChannelId, origin: &Origin) -> bool {
    node.channel(channel).is_some_and(|view| view.origin == *origin)
}

fn spec(request: &ChannelRequest) -> Result<Spec, Problem> {
    let all = formats(&request.formats)?;
    let inner = |format: &Format| all.iter().any(|other| has(other, format));
    let types = all.iter().filter(|format| !inner(format)).map(|format| EventType { format: format.clone() });
    let pressure = match request.pressure {
        api::Pressure::DropOldest => Pressure::DropOldest,
        api::Pressure::DropNewest => Pressure::DropNewest,
        api::Pressure::Block => Pressure::Block { patience: request.patience_ns },
    };
    Ok(Spec { types: types.collect(), order: request.order, pressure })
}

/// Whether a structure is a member of another one.
fn has(outer: &Format, inner: &Format) -> bool {
    outer
        .fields
        .iter()
        .any(|field| matches!(&field.kind, Kind::Struct(format) if format == inner || has(format, inner)))
}

pub(super) fn formats(text: &str) -> Result<Vec<Format>, Problem> {
    match text.trim().is_empty() {
        true => Ok(Vec::new()),
        false => qfabric_ecode::parse_formats(text).map_err(|error| problems::formats(&error)),
    }
}

pub(super) fn attributes(values: &BTreeMap<String, i64>) -> Result<Attributes, Problem> {
    Ok(parameters(values)?.into_iter().collect())
}

pub(super) fn parameters(values: &BTreeMap<String, i64>) -> Result<Vec<(Key, i64)>, Problem> {
    values.iter().map(|(name, value)| Ok((key(name)?, *value))).collect()
}

pub(super) fn key(name: &str) -> Result<Key, Problem> {
    name.parse().map_err(|error| problems::key(&error))
}

fn keyed(changes: &AttributeChanges) -> Result<Vec<(Key, Option<i64>)>, Problem> {
    changes.attributes.iter().map(|(name, value)| Ok((key(name)?, *value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(formats: &str) -> ChannelRequest {
        ChannelRequest {
            lease: 1,
            name: "video".parse().unwrap(),
            formats: formats.to_owned(),
            order: api::Order::Time,
            pressure: api::Pressure::Block,
            patience_ns: qfabric_types::Nanos::from_millis(5),
        }
    }

    #[test]
    fn structures_that_are_members_of_others_are_no_types_of_their_own() {
        let spec = spec(&request(
            "struct point { int x; int y; }; struct line { struct point ends[2]; }; struct t { int v; };",
        ));
        let spec = spec.unwrap();
        let names: Vec<_> = spec.types.iter().map(EventType::name).collect();
        assert_eq!(names, ["line", "t"]);
        assert_eq!(spec.pressure, Pressure::Block { patience: qfabric_types::Nanos::from_millis(5) });
    }

    #[test]
    fn a_format_that_cannot_be_read_is_refused_with_its_place() {
        let problem = spec(&request("struct frame { int number }")).unwrap_err();
        assert_eq!(problem.code, "channel_invalid");
        assert!(problem.message.contains("line 1, column 27"), "{problem:?}");
        assert!(spec(&request(" ")).unwrap().types.is_empty());
    }
}
