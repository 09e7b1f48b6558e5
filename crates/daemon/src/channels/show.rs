//! Channels in the form that the API returns.

use std::collections::BTreeMap;

use qfabric_channel::{Attributes, FilterCounts, FilterId, Held, Node, Pressure, Spec};
use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{self as api, ChannelInfo, FilterInfo, Holding, SinkInfo, SourceInfo, TypeInfo};
use qfabric_types::channel::{ChannelId, Name};

use super::policies::is_reserved;
use super::{Fabric, Network, problems};

impl Fabric {
    /// All channels, of both planes.
    pub(crate) fn list(&self) -> Vec<ChannelInfo> {
        self.network.look(|node| {
            let all = node.directory().channels();
            all.into_iter().filter_map(|channel| self.info(node, channel)).collect()
        })
    }

    pub(crate) fn show(&self, channel: &ChannelId) -> Result<ChannelInfo, Problem> {
        let shown = self.network.look(|node| self.info(node, channel));
        shown.ok_or_else(|| problems::unheld(channel))
    }

    fn info(&self, node: &Node, channel: &ChannelId) -> Option<ChannelInfo> {
        let view = node.channel(channel)?;
        let holders: Vec<_> = node.directory().holders(channel).collect();
        let (pressure, patience_ns) = match view.spec.pressure {
            Pressure::DropOldest => (api::Pressure::DropOldest, None),
            Pressure::DropNewest => (api::Pressure::DropNewest, None),
            Pressure::Block { patience } => (api::Pressure::Block, Some(patience)),
        };
        Some(ChannelInfo {
            name: channel.name.clone(),
            plane: channel.plane,
            types: types(&view.spec),
            order: view.spec.order,
            pressure,
            patience_ns,
            creator: view.origin.creator.clone(),
            created_unix_ns: view.origin.created_unix_ns,
            open_here: holders.iter().any(|(host, _)| **host == self.network.host),
            hosts: holders.into_iter().map(|(host, held)| self.network.holding(node, host, held)).collect(),
            filters: node.filters(channel).into_iter().filter(is_theirs).map(|one| filter(node, one)).collect(),
            paced: self.policies.paced(channel),
        })
    }
}

impl Network {
    fn holding(&self, node: &Node, host: &Name, held: &Held) -> Holding {
        let here = *host == self.host;
        let source = |(id, info): (&qfabric_channel::SourceId, &qfabric_channel::SourceInfo)| SourceInfo {
            number: id.0,
            application: info.application.clone(),
            attributes: listed(&info.attributes),
            counts: here.then(|| node.source_counts(*id).ok()).flatten(),
        };
        let sink = |(id, info): (&qfabric_channel::SinkId, &qfabric_channel::SinkInfo)| SinkInfo {
            number: id.0,
            application: info.application.clone(),
            types: wanted(&held.spec, info),
            capacity: info.capacity,
            attributes: listed(&info.attributes),
            counts: here.then(|| node.sink_counts(*id).ok()).flatten(),
        };
        Holding {
            host: host.clone(),
            sources: held.sources.iter().map(source).collect(),
            sinks: held.sinks.iter().map(sink).collect(),
        }
    }
}

/// Whether an application installed the filter; the daemon's own filters are shown by their effects.
fn is_theirs((id, _): &(FilterId, FilterCounts)) -> bool {
    !is_reserved(&id.name)
}

fn types(spec: &Spec) -> Vec<TypeInfo> {
    let info = |known: &qfabric_channel::EventType| TypeInfo {
        declaration: qfabric_ecode::format_text(&known.format),
        format: known.format.clone(),
    };
    spec.types.iter().map(info).collect()
}

fn wanted(spec: &Spec, sink: &qfabric_channel::SinkInfo) -> Vec<String> {
    let numbered = (0..).zip(&spec.types).filter(|(number, _)| sink.wants(*number));
    numbered.map(|(_, known)| known.name().to_owned()).collect()
}

fn listed(attributes: &Attributes) -> BTreeMap<String, i64> {
    attributes.iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn filter(node: &Node, (id, counts): (FilterId, FilterCounts)) -> FilterInfo {
    FilterInfo {
        author: node.filter_author(&id).cloned(),
        followed: node.followed(&id).into_iter().collect(),
        suspended: node.filter_suspended_until(&id).is_some_and(|until| until > clock::now()),
        name: id.name,
        direction: id.direction,
        calls: counts.calls,
        blocked: counts.blocked,
        faults: counts.faults,
        beyond: counts.beyond,
        skipped: counts.skipped,
    }
}
