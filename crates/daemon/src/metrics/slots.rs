//! The metrics of dispatch tables, and of the applications that have slots in them.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use qfabric_types::ServerCounts;
use qfabric_types::api::{DispatchTableStatus, HostStatus};

use super::Value::{Counter, Gauge};
use super::{Metric, family, of};

pub(super) const TABLE: [Metric<DispatchTableStatus>; 8] = [
    of("dispatch_groups", "number of groups of threads that have slots of the CPU", |t| Gauge(f64::from(t.groups))),
    of("dispatch_frame_slots", "number of slots after which the dispatch table of the CPU repeats", |t| {
        Gauge(f64::from(t.frame))
    }),
    of("dispatch_free_slots", "slots of the frame that no group has", |t| Gauge(f64::from(t.free))),
    of("dispatch_cost_ratio", "CPU time of the thread that dispatches, divided by the time since it started", |t| {
        Gauge(t.cost.as_f64())
    }),
    of("dispatch_boundaries", "slot boundaries at which a priority could change", |t| Counter(t.dispatches)),
    of("dispatch_boundaries_late", "boundaries after which the next threads could run later than 50 µs", |t| {
        Counter(t.late)
    }),
    of("dispatch_late_mean_seconds", "mean time from a boundary until the next threads could run", |t| {
        Gauge(t.late_total.as_secs_f64() / t.dispatches.max(1) as f64)
    }),
    of("dispatch_late_largest_seconds", "longest time from a boundary until the next threads could run", |t| {
        Gauge(t.late_most.as_secs_f64())
    }),
];

pub(super) const GROUP: [Metric<ServerCounts>; 3] = [
    of("app_slots", "slots that the application was given in time", |s| Counter(s.slots)),
    of("app_slot_overruns", "periods in which the application used all its slots and wanted to run on", |s| {
        Counter(s.throttles)
    }),
    of("app_slot_underruns", "periods in which the application used less than its slots", |s| Counter(s.underruns)),
];

/// Nothing without a dispatch table.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, status: &HostStatus) -> fmt::Result {
    for metric in &TABLE {
        let rows = status.tables.iter().map(|table| (labels(table), (metric.value)(table)));
        family(encoder, metric.name, metric.help, rows)?;
    }
    let applications = if status.tables.is_empty() { &[] } else { &status.applications[..] };
    for metric in &GROUP {
        let rows =
            applications.iter().filter_map(|app| Some((super::labels(app), (metric.value)(app.server.as_ref()?))));
        family(encoder, metric.name, metric.help, rows)?;
    }
    Ok(())
}

fn labels(table: &DispatchTableStatus) -> [(&'static str, String); 1] {
    [("cpu", table.cpu.to_string())]
}
