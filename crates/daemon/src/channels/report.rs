//! Values for the metrics of Q-channels.

use std::sync::atomic::{AtomicU64, Ordering};

use qfabric_channel::{NodeCounts, SuspensionCounts};
use qfabric_types::api::channel::{ChannelInfo, SinkCounts, SourceCounts};

use super::path::Path;
use super::policies::Usage;
use super::{Fabric, PathReport};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ChannelsReport {
    /// This host's name, and its realm.
    pub host: String,
    pub realm: String,
    pub node: NodeCounts,
    pub filters: SuspensionCounts,
    pub hosts: u64,
    pub channels_known: u64,
    pub connections: u64,
    pub submitted: u64,
    pub refused: u64,
    pub delivered: u64,
    pub nonsense: u64,
    pub reports_refused: u64,
    pub notices_dropped: u64,
    pub decisions: u64,
    pub policies: u64,
    /// Usage of all policies, including those that were stopped.
    pub policy_usage: Usage,
    /// Control events that could not be submitted; events of managers that could not be read.
    pub unsent: u64,
    pub unread: u64,
    /// Frames that the engine dropped or refused, and connections that it ended.
    pub engine: [u64; 3],
    /// Zero without a kernel path.
    pub path: PathReport,
    pub channels: Vec<ChannelReport>,
}

/// A channel that is open here, summed over its members on this host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ChannelReport {
    /// Name in its text form.
    pub channel: String,
    pub sources: SourceCounts,
    pub sinks: SinkCounts,
}

impl Fabric {
    pub(super) fn report(&self) -> ChannelsReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (node, hosts, filters) = self
            .network
            .look(|node| (*node.counts(), node.directory().hosts().count() as u64, node.suspension_counts()));
        let (unsent, unread) = self.network.lost();
        let list = self.list();
        let connections = self.registry().leases.len() as u64;
        ChannelsReport {
            host: self.network.host.to_string(),
            realm: self.config().realm.to_string(),
            node,
            filters,
            hosts,
            channels_known: list.len() as u64,
            connections,
            submitted: of(&self.totals.submitted),
            refused: of(&self.totals.refused),
            delivered: of(&self.totals.delivered),
            nonsense: of(&self.totals.nonsense),
            reports_refused: of(&self.totals.reports_refused),
            notices_dropped: of(&self.totals.notices_dropped),
            decisions: of(&self.totals.decisions),
            policies: self.policies.count(),
            policy_usage: self.policies.usage(),
            unsent,
            unread,
            engine: self.network.engine_counts(),
            path: self.path.as_ref().map(Path::report).unwrap_or_default(),
            channels: list.iter().filter(|channel| channel.open_here).map(one).collect(),
        }
    }
}

fn one(info: &ChannelInfo) -> ChannelReport {
    let channel = qfabric_types::channel::ChannelId { plane: info.plane, name: info.name.clone() }.to_string();
    let mut report = ChannelReport { channel, ..ChannelReport::default() };
    for host in &info.hosts {
        host.sources
            .iter()
            .filter_map(|source| source.counts)
            .for_each(|counts| add_source(&mut report.sources, counts));
        host.sinks.iter().filter_map(|sink| sink.counts).for_each(|counts| add_sink(&mut report.sinks, counts));
    }
    report
}

fn add_source(sum: &mut SourceCounts, more: SourceCounts) {
    sum.submitted += more.submitted;
    sum.expired += more.expired;
    sum.blocked += more.blocked;
    sum.sent += more.sent;
    sum.delivered += more.delivered;
    sum.filtered += more.filtered;
    sum.dropped += more.dropped;
    sum.late += more.late;
    sum.lost += more.lost;
}

fn add_sink(sum: &mut SinkCounts, more: SinkCounts) {
    sum.sent += more.sent;
    sum.delivered += more.delivered;
    sum.filtered += more.filtered;
    sum.dropped += more.dropped;
    sum.late += more.late;
    sum.lost += more.lost;
    sum.queued += more.queued;
}
