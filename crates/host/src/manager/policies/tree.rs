//! At a host that feeds several data channels: divides the broker's grant for all of them over the four levels of
//! the QoS tree, and keeps links.
//!
//! ```text
//!   broker ── grant ──> system ── by weight ──> stream (a channel) ── by importance ──> role ── equally ──> connection
//! ```
//! Connections follow from registrations in groups of the channels' names, as for [`super::Roles`]; those of one
//! importance are a role. If all connections have a range of `utility`, marginal utility divides a role and the system.
//! A rate is applied to [`connection_of`] the channel and the sink's host, and sent to that host. Source: Q-channels
//! paper §3.3, Figure 2.

use std::collections::BTreeMap;

use qfabric_channel::Registration;
use qfabric_control::adapt::group::Want;
use qfabric_control::adapt::tree::{Level, NodeId, ROOT, Tree};
use qfabric_types::AppId;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::{AttributeId, QualityKind};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};
use super::viewers::Viewers;
use super::{RATE, told};

/// A stream of this host.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// The Q-channel of the stream.
    pub channel: ChannelId,
    /// Size of one event on the network, in the unit of the grant: bits.
    pub bits: f64,
    /// The stream's weight in the amount above all minima.
    pub weight: f64,
}

/// Streams or connections that are degraded equally and stop together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamLink {
    /// These streams as a whole.
    Streams(Vec<Name>),
    /// At every sink that has several of these streams, their connections: for example lips and voice.
    AtEachSink(Vec<Name>),
}

/// The number of a connection, from its channel and the sink's host: the same at both ends.
pub fn connection_of(channel: &Name, host: &Name) -> AppId {
    AppId(AttributeId::of(&format!("{channel}/{host}")).0.into())
}

#[derive(Debug)]
pub struct TreeShare {
    application: AppId,
    resource: AttributeId,
    streams: Vec<Stream>,
    links: Vec<StreamLink>,
    /// By stream and host.
    viewers: Viewers<(usize, Name)>,
    tree: Tree,
    /// The connection of each leaf of the tree.
    leaves: BTreeMap<NodeId, (usize, Name)>,
    granted: f64,
    told: BTreeMap<(usize, Name), i64>,
}

impl TreeShare {
    /// Divides what `application` is granted of a resource of this host.
    pub fn new(application: AppId, resource: AttributeId, streams: Vec<Stream>, links: Vec<StreamLink>) -> Self {
        let (viewers, leaves, told) = Default::default();
        TreeShare { application, resource, streams, links, viewers, tree: Tree::default(), leaves, granted: 0.0, told }
    }

    /// Sets the amount, if no broker grants one.
    pub fn with_grant(mut self, amount: f64) -> Self {
        self.granted = amount.max(0.0);
        self
    }

    fn stream(&self, viewer: &Registration) -> Option<usize> {
        self.streams.iter().position(|stream| stream.channel.name == viewer.group)
    }

    fn joined(&mut self, host: &Name, viewer: &Registration) {
        let Some(at) = self.stream(viewer) else { return };
        if self.viewers.join((at, host.clone()), viewer) {
            self.grow();
        }
    }

    fn left(&mut self, host: &Name, viewer: &Registration, decisions: &mut Decisions) {
        let Some(connection) = self.stream(viewer).map(|at| (at, host.clone())) else { return };
        if !self.viewers.leave(&connection, viewer) {
            return;
        }
        if self.viewers.role(&connection).is_none() {
            self.told.remove(&connection);
            let application = connection_of(&viewer.group, host);
            decisions.push(Decision::Release { application, attribute: AttributeId::of(RATE) });
        }
        self.grow();
    }

    fn gone(&mut self, host: &Name) {
        self.viewers.retain(|(_, of)| of != host);
        self.told.retain(|(_, of), _| of != host);
        self.grow();
    }

    /// Builds the tree of the present connections.
    fn grow(&mut self) {
        (self.tree, self.leaves) = (Tree::default(), BTreeMap::new());
        let mut nodes = BTreeMap::new();
        for at in 0..self.streams.len() {
            let own = Want { weight: self.streams[at].weight, ..Want::NOTHING };
            let stream = self.node(Level::Stream, ROOT, own, &mut nodes);
            let here = self.viewers.roles().filter(|((of, _), _)| *of == at);
            let bits = self.streams[at].bits;
            let connections: Vec<_> = here.map(|((_, host), role)| (host.clone(), role.want(bits))).collect();
            let mut roles = BTreeMap::new();
            for (host, want) in connections {
                let own = Want { importance: want.importance, ..Want::NOTHING };
                let role =
                    *roles.entry(want.importance).or_insert_with(|| self.node(Level::Role, stream, own, &mut nodes));
                let leaf = self.node(Level::Connection, role, want, &mut nodes);
                self.leaves.insert(leaf, (at, host));
            }
        }
        self.tie(&nodes);
    }

    fn node(&mut self, level: Level, parent: NodeId, own: Want, nodes: &mut BTreeMap<NodeId, Level>) -> NodeId {
        let number = nodes.len() as NodeId + 1;
        nodes.insert(number, level);
        let added = self.tree.add(number, level, parent, own);
        debug_assert!(added.is_ok(), "levels are built from the top");
        number
    }

    fn tie(&mut self, nodes: &BTreeMap<NodeId, Level>) {
        let streams: Vec<NodeId> =
            nodes.iter().filter(|(_, level)| **level == Level::Stream).map(|(id, _)| *id).collect();
        for link in &self.links {
            match link {
                StreamLink::Streams(names) => {
                    let ends = self.ends(names).into_iter().map(|at| streams[at]).collect::<Vec<_>>();
                    self.tree.link(&ends);
                }
                StreamLink::AtEachSink(names) => {
                    let ends = self.ends(names);
                    let mut sinks: BTreeMap<&Name, Vec<NodeId>> = BTreeMap::new();
                    let tied = self.leaves.iter().filter(|(_, (at, _))| ends.contains(at));
                    tied.for_each(|(leaf, (_, host))| sinks.entry(host).or_default().push(*leaf));
                    sinks.values().filter(|leaves| leaves.len() > 1).for_each(|leaves| self.tree.link(leaves));
                }
            }
        }
    }

    fn ends(&self, names: &[Name]) -> Vec<usize> {
        let named = |stream: &Stream| names.contains(&stream.channel.name);
        (0..self.streams.len()).filter(|at| named(&self.streams[*at])).collect()
    }

    fn decide(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let grants = self.tree.divide(self.granted);
        for (leaf, (at, host)) in &self.leaves {
            let stream = &self.streams[*at];
            // Handed out, so rounded down; the tolerance covers the last bit of a sum.
            let amount = (grants[leaf] / stream.bits * 1e3 + 1e-6).floor() as i64;
            if self.told.insert((*at, host.clone()), amount) == Some(amount) {
                continue;
            }
            let application = connection_of(&stream.channel.name, host);
            decisions.push(Decision::Apply { application, attribute: AttributeId::of(RATE), amount });
            let event = told("tree-share", QualityKind::Rate, RATE, amount, view.now);
            decisions.push(Decision::Tell {
                channel: stream.channel.clone(),
                to: Recipient::Host(host.clone()),
                event,
            });
        }
    }
}

impl Controller for TreeShare {
    fn name(&self) -> &str {
        "tree-share"
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::anywhere(Topic::Granted), Interest::anywhere(Topic::Members)]
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        match &change.what {
            ChangeKind::Granted { application, attribute, amount }
                if *application == self.application && *attribute == self.resource =>
            {
                self.granted = *amount as f64;
            }
            ChangeKind::Joined(viewer) => self.joined(&change.host, viewer),
            ChangeKind::Left(viewer) => self.left(&change.host, viewer, decisions),
            ChangeKind::HostGone => self.gone(&change.host),
            _ => return,
        }
        self.decide(view, decisions);
    }
}
