//! The metrics of ECalls.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use qfabric_types::api::ecalls::SubscriptionInfo;

use super::Value::{Counter, Gauge};
use super::{Labels, Metric, family, of, one};
use crate::ecalls::EcallsReport;

pub(super) const TOTALS: [Metric<EcallsReport>; 14] = [
    of("ecalls_services", "number of services that processes can subscribe to", |r| Gauge(r.services as f64)),
    of("ecalls_subscriptions", "number of subscriptions", |r| Gauge(r.subscriptions.len() as f64)),
    of("ecalls_connections", "number of connections to ecalls.sock", |r| Gauge(r.leases as f64)),
    of("ecalls_handler_threads", "number of handler threads", |r| Gauge(r.threads as f64)),
    of("ecalls_waiting", "number of events that wait for the dispatcher", |r| Gauge(r.waiting as f64)),
    of("ecalls_raised", "events raised by processes and by the daemon", |r| Counter(r.raised)),
    of("ecalls_delivered", "events that the dispatcher delivered to a subscription", |r| Counter(r.delivered)),
    of("ecalls_late", "events dropped because their deadline had passed", |r| Counter(r.late)),
    of("ecalls_dropped_queue", "events dropped because a queue was full", |r| Counter(r.dropped_queue)),
    of("ecalls_nonsense", "messages rejected because they were invalid or not allowed", |r| Counter(r.nonsense)),
    of("ecalls_taken_out", "handlers removed because of faults or too much CPU time", |r| Counter(r.taken_out)),
    of("ecalls_missed", "events that missed handlers because 15 before them were just being removed", |r| {
        Counter(r.missed)
    }),
    of("ecalls_favours_dropped", "events that favoured no server because the control thread's queue was full", |r| {
        Counter(r.favours_dropped)
    }),
    of("ecalls_cpu", "events that asked the CPU scheduler to favour their sink", |r| Counter(r.cpu)),
];

pub(super) const SUBSCRIPTION: [Metric<SubscriptionInfo>; 14] = [
    of("ecall_events", "events that reached the subscription", |s| Counter(s.counters.events)),
    of("ecall_passed", "events that the subscription's handlers let pass", |s| Counter(s.counters.passed)),
    of("ecall_blocked", "events that the subscription's handlers blocked", |s| Counter(s.counters.blocked)),
    of("ecall_faults", "calls of the subscription's handlers that ended with a fault", |s| Counter(s.counters.faults)),
    of("ecall_memory", "events written into the subscription's memory", |s| Counter(s.counters.memory)),
    of("ecall_signals", "signals sent for the subscription", |s| Counter(s.counters.signals)),
    of("ecall_channel", "events submitted to the subscription's channel", |s| Counter(s.counters.channel)),
    of("ecall_dropped_memory", "events dropped because the subscription's memory was full", |s| {
        Counter(s.counters.dropped_memory)
    }),
    of("ecall_dropped_ring", "events dropped on the way from the kernel to the daemon", |s| {
        Counter(s.counters.dropped_ring)
    }),
    of("ecall_dropped_queue", "events dropped because the subscription's queue was full", |s| {
        Counter(s.counters.dropped_queue)
    }),
    of("ecall_dropped_signals", "signals that the kernel refused", |s| Counter(s.counters.dropped_signals)),
    of("ecall_dropped_channel", "events that the subscription's channel refused", |s| {
        Counter(s.counters.dropped_channel)
    }),
    of("ecall_dropped_late", "events dropped because their deadline had passed", |s| Counter(s.counters.late)),
    of("ecall_dropped_contended", "events dropped because another CPU was in the handler", |s| {
        Counter(s.counters.contended)
    }),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, report: &EcallsReport) -> fmt::Result {
    TOTALS.iter().try_for_each(|metric| one(encoder, metric, report))?;
    let dropped =
        of("ecalls_misses_dropped", "deadline misses that were not reported to subscribers", |n: &u64| Counter(*n));
    one(encoder, &dropped, &report.misses_dropped)?;
    for metric in &SUBSCRIPTION {
        let rows = report.subscriptions.iter().map(|s| (labels(s), (metric.value)(s)));
        family(encoder, metric.name, metric.help, rows)?;
    }
    Ok(())
}

fn labels(subscription: &SubscriptionInfo) -> Labels {
    let SubscriptionInfo { id, service, process_id, owner, .. } = subscription;
    [
        ("subscription", id.to_string()),
        ("service", service.clone()),
        ("pid", process_id.to_string()),
        ("uid", owner.uid.to_string()),
    ]
}
