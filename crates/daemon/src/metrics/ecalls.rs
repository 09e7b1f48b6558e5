//! The numbers of ECalls.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use qfabric_types::api::ecalls::SubscriptionInfo;

use super::Value::{Counter, Gauge};
use super::{Labels, Metric, family, of, one};
use crate::ecalls::EcallsReport;

pub(super) const TOTALS: [Metric<EcallsReport>; 13] = [
    of("ecalls_services", "services one can subscribe to", |r| Gauge(r.services as f64)),
    of("ecalls_subscriptions", "subscriptions", |r| Gauge(r.subscriptions.len() as f64)),
    of("ecalls_connections", "connections to ecalls.sock", |r| Gauge(r.leases as f64)),
    of("ecalls_handler_threads", "handler threads", |r| Gauge(r.threads as f64)),
    of("ecalls_waiting", "events that wait for the dispatcher", |r| Gauge(r.waiting as f64)),
    of("ecalls_raised", "events raised by processes and the daemon", |r| Counter(r.raised)),
    of("ecalls_delivered", "events the dispatcher carried to a subscription", |r| Counter(r.delivered)),
    of("ecalls_late", "events dropped because their deadline had passed", |r| Counter(r.late)),
    of("ecalls_dropped_queue", "events dropped because a queue was full", |r| Counter(r.dropped_queue)),
    of("ecalls_nonsense", "messages that made no sense, or came from somebody who may not", |r| Counter(r.nonsense)),
    of("ecalls_taken_out", "handlers taken out because they faulted too often", |r| Counter(r.taken_out)),
    of("ecalls_favours_dropped", "events that favoured nobody since the control thread had too many requests", |r| {
        Counter(r.favours_dropped)
    }),
    of("ecalls_cpu", "events that asked for the CPU scheduler's cooperation", |r| Counter(r.cpu)),
];

pub(super) const SUBSCRIPTION: [Metric<SubscriptionInfo>; 12] = [
    of("ecall_events", "events that reached the subscription", |s| Counter(s.counters.events)),
    of("ecall_passed", "events its handlers let pass", |s| Counter(s.counters.passed)),
    of("ecall_blocked", "events its handlers blocked", |s| Counter(s.counters.blocked)),
    of("ecall_faults", "faults of its handlers", |s| Counter(s.counters.faults)),
    of("ecall_memory", "events written into its memory", |s| Counter(s.counters.memory)),
    of("ecall_signals", "signals sent", |s| Counter(s.counters.signals)),
    of("ecall_dropped_memory", "events its memory had no room for", |s| Counter(s.counters.dropped_memory)),
    of("ecall_dropped_ring", "events dropped on the way out of the kernel", |s| Counter(s.counters.dropped_ring)),
    of("ecall_dropped_queue", "events its queue had no room for", |s| Counter(s.counters.dropped_queue)),
    of("ecall_dropped_signals", "signals the kernel refused", |s| Counter(s.counters.dropped_signals)),
    of("ecall_dropped_late", "events dropped because their deadline had passed", |s| Counter(s.counters.late)),
    of("ecall_dropped_contended", "events dropped because another CPU was in the handler", |s| {
        Counter(s.counters.contended)
    }),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, report: &EcallsReport) -> fmt::Result {
    TOTALS.iter().try_for_each(|metric| one(encoder, metric, report))?;
    let dropped = of("ecalls_misses_dropped", "misses that were not told to subscribers", |n: &u64| Counter(*n));
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
