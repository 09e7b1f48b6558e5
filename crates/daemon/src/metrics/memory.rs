//! The metrics of memory: of the host, and of each application with a promise.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use qfabric_types::Bytes;
use qfabric_types::api::HostStatus;
use qfabric_types::api::memory::{HostMemory, MemoryStatus};

use super::Value::{Counter, Gauge};
use super::{Metric, family, labels, of, one};

pub(super) const HOST: [Metric<HostMemory>; 7] = [
    of("memory_reserve_bytes", "largest amount of memory that may be promised in total", |m| bytes(m.global_reserve)),
    of("memory_promised_bytes", "memory promised to stay resident", |m| bytes(m.promised)),
    of("memory_used_bytes", "promised memory in use; of each reserve at most its promise", |m| bytes(m.used)),
    of("memory_locked_bytes", "memory that the service has locked for programs that link the library", |m| {
        bytes(m.pools.iter().map(|pool| pool.used).sum())
    }),
    of("memory_pools", "number of reserves of programs that link the library", |m| Gauge(m.pools.len() as f64)),
    of("memory_pressure_notices", "notices that programs of a reserved group waited for memory", |m| {
        Counter(m.pressure_notices)
    }),
    of("memory_prefaulted_bytes", "memory of programs fetched before they needed it", |m| Counter(m.prefaulted.get())),
];

pub(super) const APPLICATION: [Metric<MemoryStatus>; 7] = [
    of("app_memory_promised_bytes", "memory promised to the application", |m| bytes(m.promised)),
    of("app_memory_used_bytes", "resident memory of the application's process", |m| bytes(m.used)),
    of("app_memory_swapped_bytes", "memory of the application's process that is swapped out", |m| bytes(m.swapped)),
    of("app_memory_locked_bytes", "memory that the application's process has locked itself", |m| bytes(m.locked)),
    of("app_major_faults", "page faults of the application's process that waited for a device", |m| {
        Counter(m.major_faults)
    }),
    of("app_memory_pressure_notices", "notices that programs of the application's group waited for memory", |m| {
        Counter(m.pressure.map_or(0, |pressure| pressure.notices))
    }),
    of("app_memory_prefaulted_bytes", "memory of the application fetched before it needed it", |m| {
        Counter(m.prefaulted.get())
    }),
];

fn bytes(amount: Bytes) -> super::Value {
    Gauge(amount.as_f64())
}

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, status: &HostStatus) -> fmt::Result {
    let host = status.memory.clone().unwrap_or_default();
    HOST.iter().try_for_each(|metric| one(encoder, metric, &host))?;
    for metric in &APPLICATION {
        let rows =
            status.applications.iter().filter_map(|app| Some((labels(app), (metric.value)(app.memory.as_ref()?))));
        family(encoder, metric.name, metric.help, rows)?;
    }
    Ok(())
}
