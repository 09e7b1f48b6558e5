//! The numbers of interfaces under packet scheduling.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use qfabric_types::api::net::{InterfaceInfo, StreamInfo};

use super::Value::{Counter, Gauge};
use super::{Labels, Metric, family, of};

pub(super) const INTERFACE: [Metric<InterfaceInfo>; 5] = [
    of("net_utilization_ratio", "part of the link that its streams were promised", |i| Gauge(i.utilization)),
    of("net_rate_bits", "bits per second for which streams are admitted", |i| Gauge(i.rate_bps as f64)),
    of("net_best_effort_sent", "packets of no stream sent", |i| Counter(i.best_effort_counters.sent)),
    of("net_best_effort_owed", "packets of no stream sent before ready ones of streams", |i| {
        Counter(i.best_effort_counters.owed)
    }),
    of("net_best_effort_overflow", "packets of no stream that the queue had no room for", |i| {
        Counter(i.best_effort_counters.overflow)
    }),
];

pub(super) const STREAM: [Metric<StreamInfo>; 8] = [
    of("net_stream_sent", "packets of the stream sent", |s| Counter(s.counters.sent)),
    of("net_stream_sent_late", "of these, after the end of their period", |s| Counter(s.counters.sent_late)),
    of("net_stream_late", "packets dropped late, as the window allows", |s| Counter(s.counters.late)),
    of("net_stream_overflow", "packets its queue had no room for", |s| Counter(s.counters.overflow)),
    of("net_stream_served", "periods served", |s| Counter(s.counters.served)),
    of("net_stream_missed", "periods missed", |s| Counter(s.counters.missed)),
    of("net_stream_violations", "periods missed beyond the window", |s| Counter(s.counters.violations)),
    of("net_stream_waiting", "packets that wait", |s| Gauge(s.counters.waiting as f64)),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, interfaces: &[InterfaceInfo]) -> fmt::Result {
    for metric in &INTERFACE {
        let rows = interfaces.iter().map(|i| (labels(i, "", ""), (metric.value)(i)));
        family(encoder, metric.name, metric.help, rows)?;
    }
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

fn stream_labels(interface: &InterfaceInfo, stream: &StreamInfo) -> Labels {
    labels(interface, &stream.id.to_string(), &stream.spec.selector.to_string())
}
