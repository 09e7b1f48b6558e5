//! The metrics of interfaces under packet scheduling.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use qfabric_types::api::net::{InterfaceInfo, LinkBook, LinkInfo, RateHolder, StreamInfo};

use super::Value::{Counter, Gauge};
use super::{Labels, Metric, family, of};

pub(super) const INTERFACE: [Metric<InterfaceInfo>; 5] = [
    of("net_utilization_ratio", "fraction of the link promised to streams", |i| Gauge(i.utilization)),
    of("net_bit_rate", "rate for which streams are admitted, in bits per second", |i| Gauge(i.rate_bps as f64)),
    of("net_best_effort_sent", "packets outside all streams that were sent", |i| Counter(i.best_effort_counters.sent)),
    of("net_best_effort_owed", "packets outside all streams that were sent before ready packets of streams", |i| {
        Counter(i.best_effort_counters.owed)
    }),
    of("net_best_effort_overflow", "packets outside all streams dropped because the queue was full", |i| {
        Counter(i.best_effort_counters.overflow)
    }),
];

/// Of links that are open to all users.
pub(super) const LINK: [Metric<LinkInfo>; 3] = [
    of("net_link_capacity_bit_rate", "largest sum of the rates that the open link promises, in bits per second", |l| {
        Gauge(l.capacity_bps.as_f64())
    }),
    of("net_link_promised_bit_rate", "sum of the rates that the open link promises, in bits per second", |l| {
        Gauge(l.promised_bps.as_f64())
    }),
    of("net_link_free_bit_rate", "rate that the open link can still promise, in bits per second", |l| {
        Gauge(l.free_bps.as_f64())
    }),
];

/// Of what the host receives through links that are open to all users.
pub(super) const INCOMING: [Metric<LinkBook>; 3] = [
    of(
        "net_link_in_capacity_bit_rate",
        "largest sum of the promised rates of arriving packets, in bits per second",
        |b| Gauge(b.capacity_bps.as_f64()),
    ),
    of("net_link_in_promised_bit_rate", "sum of the promised rates of arriving packets, in bits per second", |b| {
        Gauge(b.promised_bps.as_f64())
    }),
    of("net_link_in_free_bit_rate", "rate of arriving packets that can still be promised, in bits per second", |b| {
        Gauge(b.free_bps.as_f64())
    }),
];

/// A rate that is promised without a stream, in bits per second.
pub(super) const HELD: (&str, &str) =
    ("net_held_bit_rate", "rate that is promised without a stream, in bits per second");

/// The promised rate of a user, in bits per second.
pub(super) const USER: (&str, &str) =
    ("net_user_promised_bit_rate", "sum of the rates that the open link promises to the user, in bits per second");

pub(super) const STREAM: [Metric<StreamInfo>; 9] = [
    of("net_stream_promised_bit_rate", "rate promised to the stream, in bits per second", |s| {
        Gauge(s.promise.rate_bps.as_f64())
    }),
    of("net_stream_sent", "packets of the stream that were sent", |s| Counter(s.counters.sent)),
    of("net_stream_sent_late", "packets of the stream that were sent after the end of their period", |s| {
        Counter(s.counters.sent_late)
    }),
    of("net_stream_late", "packets of the stream dropped because they were late, within the window", |s| {
        Counter(s.counters.late)
    }),
    of("net_stream_overflow", "packets of the stream dropped because the queue was full", |s| {
        Counter(s.counters.overflow)
    }),
    of("net_stream_served", "periods in which the stream was served", |s| Counter(s.counters.served)),
    of("net_stream_missed", "periods in which the stream was not served", |s| Counter(s.counters.missed)),
    of("net_stream_violations", "missed periods beyond the stream's window", |s| Counter(s.counters.violations)),
    of("net_stream_waiting", "number of packets of the stream that wait to be sent", |s| {
        Gauge(s.counters.waiting as f64)
    }),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, interfaces: &[InterfaceInfo]) -> fmt::Result {
    for metric in &INTERFACE {
        let rows = interfaces.iter().map(|i| (labels(i, "", ""), (metric.value)(i)));
        family(encoder, metric.name, metric.help, rows)?;
    }
    let open = || interfaces.iter().filter_map(|i| Some((i, i.link.as_ref()?)));
    for metric in &LINK {
        family(encoder, metric.name, metric.help, open().map(|(i, link)| (labels(i, "", ""), (metric.value)(link))))?;
    }
    let incoming = || open().filter_map(|(i, link)| Some((i, link.incoming.as_ref()?)));
    for metric in &INCOMING {
        let rows = incoming().map(|(i, book)| (labels(i, "", ""), (metric.value)(book)));
        family(encoder, metric.name, metric.help, rows)?;
    }
    let out = open().map(|(i, link)| (i, "out", &link.users_bps, &link.holders));
    let both = out.chain(incoming().map(|(i, book)| (i, "in", &book.users_bps, &book.holders)));
    let both: Vec<_> = both.collect();
    let users = both.iter().flat_map(|(i, direction, users, _)| {
        users.iter().map(move |(uid, rate)| (user_labels(i, *uid, direction), Gauge(rate.as_f64())))
    });
    family(encoder, USER.0, USER.1, users)?;
    let held = both.iter().flat_map(|(i, direction, _, holders)| {
        holders
            .iter()
            .filter_map(move |holder| Some((held_labels(i, holder, direction)?, Gauge(holder.rate_bps.as_f64()))))
    });
    family(encoder, HELD.0, HELD.1, held)?;
    for metric in &STREAM {
        let rows = interfaces.iter().flat_map(|i| i.streams.iter().map(move |s| (i, s)));
        let rows = rows.map(|(i, s)| (stream_labels(i, s), (metric.value)(s)));
        family(encoder, metric.name, metric.help, rows)?;
    }
    Ok(())
}

fn labels(interface: &InterfaceInfo, stream: &str, packets: &str) -> Labels {
    let InterfaceInfo { interface, mechanism, .. } = interface;
    let (name, mechanism) = (interface.clone(), mechanism.to_string());
    [("interface", name), ("mechanism", mechanism), ("stream", stream.to_owned()), ("packets", packets.to_owned())]
}

fn held_labels(interface: &InterfaceInfo, holder: &RateHolder, direction: &str) -> Option<Labels> {
    let (name, id) = (interface.interface.clone(), holder.held_rate?.to_string());
    Some([("interface", name), ("held_rate", id), ("uid", holder.uid.to_string()), ("direction", direction.to_owned())])
}

fn user_labels(interface: &InterfaceInfo, uid: u32, direction: &str) -> Labels {
    let InterfaceInfo { interface, mechanism, .. } = interface;
    let (name, mechanism) = (interface.clone(), mechanism.to_string());
    [("interface", name), ("mechanism", mechanism), ("uid", uid.to_string()), ("direction", direction.to_owned())]
}

fn stream_labels(interface: &InterfaceInfo, stream: &StreamInfo) -> Labels {
    labels(interface, &stream.id.to_string(), &stream.spec.selector.to_string())
}
