use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{Stream, StreamLink, TreeShare, connection_of};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::{TreeLink, TreePolicy, TreeStream};
use qfabric_types::channel::Name;
use qfabric_types::monitor::{AttributeId, HOST};

use super::{Fabric, Pacing, Runs, Shared, check_bits, quality, refused};

/// Largest number of streams of a tree.
const MOST_STREAMS: usize = 64;
/// Accepted weights of a tree's streams.
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.001..=1e3;

impl Runs for TreePolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let TreePolicy { capacity, streams, links, .. } = self;
        let is_first =
            |(at, stream): (usize, &TreeStream)| streams[..at].iter().all(|one| one.channel != stream.channel);
        if streams.is_empty() || !streams.iter().enumerate().all(is_first) {
            return Err(refused::no_streams());
        }
        if streams.len() > MOST_STREAMS {
            return Err(refused::out_of_range("the number of streams", streams.len(), "1 to 64"));
        }
        if !(1..=1 << 50).contains(capacity) {
            return Err(refused::out_of_range("capacity", capacity, "1 to 2^50 bit/s"));
        }
        let loose = |channel: &&Name| streams.iter().all(|stream| stream.channel != **channel);
        if let Some(channel) = links.iter().flat_map(|link| &link.channels).find(loose) {
            return Err(refused::loose_link(channel));
        }
        let streams = streams.iter().map(stream).collect::<Result<Vec<_>, _>>()?;
        let resource = AttributeId::of("net.bandwidth");
        let tree = TreeShare::new(HOST, resource, streams, links.iter().map(link).collect());
        Ok(Box::new(tree.with_grant(*capacity as f64)))
    }

    fn pacing(&self) -> Pacing {
        // A tree does not use reports, and has several streams to one host.
        Pacing { corrects: false, number: connection_of, ..Pacing::default() }
    }
}

fn stream(stream: &TreeStream) -> Result<Stream, Problem> {
    let TreeStream { channel, event_bits, weight } = stream;
    check_bits(*event_bits)?;
    if !WEIGHTS.contains(weight) {
        return Err(refused::out_of_range("weight", weight, "0.001 to 1000"));
    }
    Ok(Stream { channel: quality(channel), bits: *event_bits as f64, weight: *weight })
}

fn link(link: &TreeLink) -> StreamLink {
    let channels = link.channels.clone();
    if link.at_each_sink { StreamLink::AtEachSink(channels) } else { StreamLink::Streams(channels) }
}
