//! Ends of channels for chains of ECalls (000 §3.4): a chain submits events through an [`Outlet`], and a service whose
//! events are those of a channel takes them through an [`Inlet`].
//!
//! ```text
//! chain ── Outlet ──> node ──> nodes of this and other hosts ──> Inlet ── Bell ──> dispatcher of ECalls
//! ```
//! They belong to a user, like the members of a connection, and count against the same limits.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qfabric_channel::{Action, Error, EventType, SinkId, SinkSpec, SourceId, SourceSpec, Spec, Submission, Taken};
use qfabric_linux::clock;
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::Format;
use qfabric_types::memory::Stamp;

use super::registry::Registry;
use super::rules::Right;
use super::{Fabric, Network, problems};
use crate::auth::Peer;
use crate::control::wake;

/// The application that these members name in lists of members.
const APPLICATION: &str = "ecalls";
/// Events that an inlet holds until the dispatcher takes them; then the channel's rule of back-pressure decides.
const WAITING: u32 = 1024;
/// Largest number of events taken from an inlet at a time.
const TAKEN_AT_ONCE: usize = 64;

/// An opening of a channel for a chain, until it is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub channel: ChannelId,
    /// The user against whose limits it counts.
    pub uid: u32,
}

/// All openings for chains, by number.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub open: BTreeMap<u64, End>,
    last: u64,
    /// The bell of each inlet.
    bells: BTreeMap<SinkId, Arc<Bell>>,
}

impl Ends {
    fn add(&mut self, channel: &ChannelId, uid: u32) -> u64 {
        self.last += 1;
        self.open.insert(self.last, End { channel: channel.clone(), uid });
        self.last
    }

    /// Number of openings of a user; with a channel, of this channel.
    pub(super) fn of_user(&self, uid: u32, channel: Option<&ChannelId>) -> usize {
        let own = self.open.values().filter(|end| end.uid == uid);
        own.filter(|end| channel.is_none_or(|channel| end.channel == *channel)).count()
    }

    /// The channels that a user's chains hold.
    pub(super) fn channels_of(&self, uid: u32) -> impl Iterator<Item = &ChannelId> {
        self.open.values().filter(move |end| end.uid == uid).map(|end| &end.channel)
    }

    /// The channel was closed here: nothing has to be closed later.
    pub(super) fn forget(&mut self, channel: &ChannelId) {
        self.open.retain(|_, end| end.channel != *channel);
    }

    /// Members were removed: every inlet looks whether it still exists.
    pub(super) fn ring_all(&self) {
        self.bells.values().for_each(|bell| bell.ring());
    }

    /// The inlet has events. Returns false if the sink is no inlet.
    pub(super) fn ring(&self, sink: SinkId) -> bool {
        self.bells.get(&sink).map(|bell| bell.ring()).is_some()
    }

    pub(super) fn sinks(&self) -> impl Iterator<Item = &SinkId> {
        self.bells.keys()
    }
}

/// Tells the dispatcher of ECalls that an inlet has events.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicBool,
    /// Whether any bell was rung.
    any: Arc<AtomicBool>,
    dispatcher: Arc<OwnedFd>,
}

impl Bell {
    /// A silent bell; `any` is set whenever it rings.
    pub(crate) fn new(any: Arc<AtomicBool>, dispatcher: Arc<OwnedFd>) -> Bell {
        Bell { rung: AtomicBool::new(false), any, dispatcher }
    }

    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.any.store(true, Ordering::Release);
        wake(&*self.dispatcher);
    }
}

/// A source of a chain.
pub(crate) struct Outlet {
    fabric: Arc<Fabric>,
    number: u64,
    source: SourceId,
    event_type: u16,
    left: AtomicBool,
}

/// A sink whose events are those of a service.
pub(crate) struct Inlet {
    fabric: Arc<Fabric>,
    number: u64,
    sink: SinkId,
    bell: Arc<Bell>,
    /// The events' format: longer events are cut.
    pub format: Format,
    left: AtomicBool,
}

/// The events that an inlet had.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub events: Vec<(Vec<u8>, Stamp)>,
    /// The sink no longer exists: the channel was closed here, or this host may not join it any more.
    pub is_over: bool,
}

impl Fabric {
    /// A source of the user on the channel, for events of this format. Creates the channel if it does not exist.
    pub(crate) fn outlet(self: &Arc<Self>, peer: Peer, name: &Name, format: &Format) -> Result<Outlet, Problem> {
        let channel = ChannelId::data(name.clone());
        self.settings.permit(peer, Right::Send, &channel)?;
        let mut registry = self.registry();
        self.network.check_room_for_channel(&registry, peer, &channel)?;
        self.check_room_for_member(&registry, peer, &channel)?;
        let payer = self.network.payer_of_opening(&registry, peer, &channel)?;
        self.enter(peer, &channel, format)?;
        registry.openings.charge(payer, clock::now());
        let number = registry.ends.add(&channel, peer.owner.uid);
        let joined = self.network.event_type(&channel, format).and_then(|event_type| {
            let spec = SourceSpec { application: application(), user: Some(peer.owner.uid), ..SourceSpec::default() };
            let joined = self.network.with(|node, now| node.source_subscribe(&channel, spec, now));
            Ok((joined.map_err(|error| error.problem())?, event_type))
        });
        match joined {
            Ok((source, event_type)) => {
                Ok(Outlet { fabric: self.clone(), number, source, event_type, left: AtomicBool::new(false) })
            }
            Err(problem) => {
                self.network.shut(&mut registry, number);
                Err(problem)
            }
        }
    }

    /// A sink on an existing channel for one type of its events; without a type, the channel has to have only one.
    pub(crate) fn inlet(
        self: &Arc<Self>,
        peer: Peer,
        channel: &ChannelId,
        event_type: Option<&str>,
        bell: Arc<Bell>,
    ) -> Result<Inlet, Problem> {
        self.may_join(peer, channel)?;
        let mut registry = self.registry();
        self.network.check_room_for_channel(&registry, peer, channel)?;
        self.check_room_for_member(&registry, peer, channel)?;
        let payer = self.network.payer_of_first_sink(&registry, peer, channel)?;
        let opened = self.network.with(|node, now| node.open(channel, now));
        opened.map_err(|error| error.problem())?;
        let number = registry.ends.add(channel, peer.owner.uid);
        let joined = self.network.only_type(channel, event_type).and_then(|format| {
            let (types, capacity) = (vec![format.name.clone()], WAITING);
            let spec = SinkSpec { application: application(), types, capacity, ..SinkSpec::default() };
            let joined = self.network.with(|node, now| node.sink_subscribe(channel, spec, now));
            Ok((joined.map_err(|error| error.problem())?, format))
        });
        match joined {
            Ok((sink, format)) => {
                registry.openings.charge(payer, clock::now());
                registry.ends.bells.insert(sink, bell.clone());
                drop(registry);
                self.ask_for_renewal();
                Ok(Inlet { fabric: self.clone(), number, sink, bell, format, left: AtomicBool::new(false) })
            }
            Err(problem) => {
                self.network.shut(&mut registry, number);
                Err(problem)
            }
        }
    }

    /// Whether the user may read the channel's events here.
    pub(crate) fn may_join(&self, peer: Peer, channel: &ChannelId) -> Result<(), Problem> {
        self.settings.permit(peer, Right::Join, channel)
    }

    /// Opens the channel, or creates it with one type of events.
    fn enter(&self, peer: Peer, channel: &ChannelId, format: &Format) -> Result<(), Problem> {
        match self.network.with(|node, now| node.open(channel, now)) {
            Err(Error::Unknown(_)) => {}
            opened => return opened.map_err(|error| error.problem()),
        }
        self.settings.permit(peer, Right::Create, channel)?;
        let spec = Spec { types: vec![EventType { format: format.clone() }], ..Spec::default() };
        self.network.with(|node, now| node.create(channel, spec, now)).map_err(|error| error.problem())
    }

    /// Refuses the channel to chains of another host that may not send on it itself, or may not create it.
    pub(crate) fn host_may_send(&self, host: &Name, name: &Name) -> Result<(), Problem> {
        let channel = ChannelId::data(name.clone());
        let refused = self.network.look(|node| {
            let action = if node.channel(&channel).is_some() { Action::Send } else { Action::Create };
            let first = node.refusal(host, action, &channel).map(|why| (action, why));
            first.or_else(|| node.refusal(host, Action::Send, &channel).map(|why| (Action::Send, why)))
        });
        let Some((action, why)) = refused else { return Ok(()) };
        Err(Error::Forbidden { host: host.clone(), action, channel, why }.problem())
    }
}

impl Network {
    /// The number of the channel's type for events of this format: the type of its name, or the first with its layout.
    fn event_type(&self, channel: &ChannelId, format: &Format) -> Result<u16, Problem> {
        let types = self.types(channel);
        let fits = |known: &&Format| known.is_laid_out_as(format);
        let named = types.iter().position(|known| known.name == format.name && fits(&known));
        let number = named.or_else(|| types.iter().position(|known| fits(&known)));
        number.map(|number| number as u16).ok_or_else(|| problems::no_such_layout(channel, &format.name, &types))
    }

    fn only_type(&self, channel: &ChannelId, wanted: Option<&str>) -> Result<Format, Problem> {
        let types = self.types(channel);
        let chosen = match (wanted, &types[..]) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(name), all) => all.iter().find(|format| format.name == name),
        };
        let chosen = chosen.filter(|format| format.size > 0).cloned();
        chosen.ok_or_else(|| problems::name_a_type(channel, &types))
    }

    fn types(&self, channel: &ChannelId) -> Vec<Format> {
        let spec = self.look(|node| node.channel(channel).map(|view| view.spec));
        spec.iter().flat_map(|spec| &spec.types).map(|known| known.format.clone()).collect()
    }

    /// Closes the channel once, unless it was closed for another reason.
    fn shut(&self, registry: &mut Registry, number: u64) {
        if let Some(End { channel, .. }) = registry.ends.open.remove(&number) {
            // Fails if the channel was closed in the meantime.
            let _ = self.with(|node, now| node.close(&channel, now));
        }
    }
}

fn application() -> Option<Name> {
    APPLICATION.parse().ok()
}

impl Outlet {
    /// Submits an event. Never waits: false if the channel refuses it.
    pub(crate) fn submit(&self, payload: &[u8], deadline: Option<Instant>) -> bool {
        let event = Submission { event_type: self.event_type, deadline, payload, ..Submission::default() };
        self.fabric.network.with(|node, now| node.submit(self.source, &event, now)).is_ok()
    }

    /// Leaves the channel; later submissions are refused.
    pub(crate) fn leave(&self) {
        if self.left.swap(true, Ordering::AcqRel) || self.fabric.stopping.load(Ordering::Acquire) {
            return;
        }
        let mut registry = self.fabric.registry();
        // Fails if the source was removed in the meantime.
        let _ = self.fabric.network.with(|node, now| node.leave_source(self.source, now));
        self.fabric.network.shut(&mut registry, self.number);
    }
}

impl Inlet {
    /// Lets the dispatcher look for events.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Takes the events, if the bell has rung. If there are more, the bell rings again.
    pub(crate) fn take(&self) -> Option<Arrivals> {
        if !self.bell.rung.swap(false, Ordering::AcqRel) {
            return None;
        }
        let (mut arrivals, mut taken) = (Arrivals::default(), Taken::default());
        self.fabric.network.with(|node, now| {
            for _ in 0..TAKEN_AT_ONCE {
                match node.take(self.sink, &mut taken, now) {
                    Ok(true) => {}
                    over => {
                        arrivals.is_over = over.is_err();
                        return;
                    }
                }
                let Some(event) = taken.event() else { return };
                self.fabric.reports.handed(&event, now);
                let deadline_ns = event.deadline.map_or(0, Instant::get);
                let stamp = Stamp { time_ns: event.sent.get(), deadline_ns };
                let size = (self.format.size as usize).min(event.payload.len());
                arrivals.events.push((event.payload[..size].to_vec(), stamp));
            }
        });
        if arrivals.events.len() == TAKEN_AT_ONCE {
            self.bell.ring();
        }
        Some(arrivals)
    }

    /// Leaves the channel.
    pub(crate) fn leave(&self) {
        if self.left.swap(true, Ordering::AcqRel) || self.fabric.stopping.load(Ordering::Acquire) {
            return;
        }
        let mut registry = self.fabric.registry();
        registry.ends.bells.remove(&self.sink);
        // Fails if the sink was removed in the meantime.
        let _ = self.fabric.network.with(|node, now| node.leave_sink(self.sink, now));
        self.fabric.network.shut(&mut registry, self.number);
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.leave();
    }
}
