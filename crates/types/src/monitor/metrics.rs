//! The standard attributes in one table, which readers, the guide, the CLI and E-code's constants use.

use super::{AttributeId, Shape, Unit};

/// A kind of attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name; `*` stands for an interface, a disk or a zone, of which a host may have several.
    pub name: &'static str,
    pub unit: Unit,
    pub shape: Shape,
    /// A description in one line.
    pub about: &'static str,
}

impl Metric {
    /// The name for one interface, disk or zone. Characters that are not allowed in a name become `_`.
    pub fn name_of(&self, instance: &str) -> String {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
        self.name.replace('*', &instance.chars().map(plain).collect::<String>())
    }

    /// The metric of the table with this name.
    pub fn find(name: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.name == name)
    }
}

/// Constants for E-code that uses readings: `CPU_RUN_QUEUE` is the number of `cpu.run_queue`, and so on for every
/// metric without `*`.
pub fn constants() -> impl Iterator<Item = (String, i64)> {
    let single = METRICS.iter().filter(|metric| !metric.name.contains('*'));
    single.map(|metric| (metric.name.replace('.', "_").to_uppercase(), i64::from(AttributeId::of(metric.name).0)))
}

const fn level(name: &'static str, unit: Unit, about: &'static str) -> Metric {
    Metric { name, unit, shape: Shape::Level, about }
}

const fn sum(name: &'static str, unit: Unit, about: &'static str) -> Metric {
    Metric { name, unit, shape: Shape::Sum, about }
}

const fn rate(name: &'static str, unit: Unit, about: &'static str) -> Metric {
    Metric { name, unit, shape: Shape::PerSecond, about }
}

const fn part(name: &'static str, about: &'static str) -> Metric {
    Metric { name, unit: Unit::Millionths, shape: Shape::Part, about }
}

/// All metrics, ordered by resource.
pub const METRICS: &[Metric] = &[
    level("cpu.run_queue", Unit::Count, "threads that run or wait for a CPU"),
    level("cpu.blocked", Unit::Count, "threads that wait for a disk"),
    part("cpu.utilization", "time that CPUs were busy, of the time of all CPUs"),
    part("cpu.busiest", "time that the busiest CPU was busy"),
    part("cpu.stolen", "time that the hypervisor gave to other virtual machines, of the time of all CPUs"),
    part("cpu.pressure", "time in which a thread waited for a CPU"),
    rate("cpu.switches", Unit::PerSecond, "changes from one thread to another"),
    rate("cpu.forks", Unit::PerSecond, "threads and processes created"),
    level("memory.free", Unit::Bytes, "unused memory"),
    level("memory.available", Unit::Bytes, "memory available without swapping: free, or easy to reclaim"),
    level("memory.dirty", Unit::Bytes, "memory that waits to be written to a disk"),
    part("memory.pressure", "time in which a thread waited for memory"),
    part("memory.stalled", "time in which all threads that had work waited for memory"),
    rate("memory.faults", Unit::PerSecond, "pages that had to be mapped"),
    rate("memory.major_faults", Unit::PerSecond, "pages that had to be fetched from a disk"),
    rate("memory.swapped", Unit::PerSecond, "pages that went to swap space or came from it"),
    sum("memory.killed", Unit::Count, "processes killed because memory ran out"),
    sum("net.*.rx_bytes", Unit::Bytes, "bytes received"),
    sum("net.*.tx_bytes", Unit::Bytes, "bytes sent"),
    sum("net.*.rx_packets", Unit::Count, "packets received"),
    sum("net.*.tx_packets", Unit::Count, "packets sent"),
    sum("net.*.rx_drops", Unit::Count, "packets dropped, or broken, on their way in"),
    sum("net.*.tx_drops", Unit::Count, "packets dropped, or broken, on their way out"),
    rate("net.*.rx_bandwidth", Unit::BytesPerSecond, "bandwidth achieved on the way in"),
    rate("net.*.tx_bandwidth", Unit::BytesPerSecond, "bandwidth achieved on the way out"),
    level("net.*.queue", Unit::Bytes, "bytes that wait to be sent, in the queue of the interface"),
    level("net.*.queue_packets", Unit::Count, "packets that wait to be sent"),
    sum("net.*.queue_drops", Unit::Count, "packets that found no room in the queue"),
    level("socket.used", Unit::Count, "sockets open"),
    level("socket.tcp", Unit::Count, "TCP sockets in use"),
    level("socket.tcp_memory", Unit::Bytes, "memory in TCP buffers"),
    level("socket.udp", Unit::Count, "UDP sockets in use"),
    sum("socket.opened", Unit::Count, "TCP connections that this host opened"),
    sum("socket.accepted", Unit::Count, "TCP connections that others opened to this host"),
    level("socket.connected", Unit::Count, "established TCP connections"),
    sum("socket.retransmitted", Unit::Count, "TCP segments sent again"),
    sum("socket.refused", Unit::Count, "TCP connections that found the queue of the listening socket full"),
    sum("socket.udp_received", Unit::Count, "UDP datagrams received"),
    sum("socket.udp_dropped", Unit::Count, "UDP datagrams for which a socket had no room, or that were broken"),
    part("disk.pressure", "time in which a thread waited for a disk"),
    level("disk.free", Unit::Bytes, "free space on the file system of the daemon's folder"),
    rate("disk.*.read", Unit::BytesPerSecond, "bytes read"),
    rate("disk.*.written", Unit::BytesPerSecond, "bytes written"),
    part("disk.*.busy", "time in which the disk had requests to process"),
    level("disk.*.queue", Unit::Count, "requests under way"),
    sum("energy.*.used", Unit::Microjoules, "energy used in a power zone of the processor"),
    rate("energy.*.power", Unit::Microwatts, "power drawn by a power zone of the processor"),
    level("battery.*.charge", Unit::Millionths, "remaining charge of a battery"),
    level("battery.*.energy", Unit::Microjoules, "energy that a battery stores"),
    level("battery.*.power", Unit::Microwatts, "power that a battery delivers; zero while the mains feed the host"),
    level("thermal.*.temperature", Unit::Millidegrees, "temperature of a zone"),
    part("app.cpu", "processor time of the application's processes; a whole is one CPU"),
    sum("app.cpu_time", Unit::Nanoseconds, "processor time of the application's processes"),
    level("app.memory", Unit::Bytes, "memory that the application's processes occupy"),
    sum("app.faults", Unit::Count, "pages that had to be mapped, for the application's processes"),
    sum("app.major_faults", Unit::Count, "pages that had to be fetched from a disk, for the application's processes"),
    level("app.threads", Unit::Count, "threads of the application's processes"),
    sum("app.jobs", Unit::Count, "jobs that ended"),
    sum("app.misses", Unit::Count, "jobs that ended after their deadline"),
    level("app.budget", Unit::Nanoseconds, "budget per server period that the application holds"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::monitor::{Attribute, MAX_NAME};

    #[test]
    fn every_metric_gives_valid_and_distinct_names() {
        let names: Vec<_> = METRICS.iter().map(|metric| metric.name_of("enp0s31f6.4000")).collect();
        for (metric, name) in METRICS.iter().zip(&names) {
            Attribute::new(name, metric.unit, metric.shape).unwrap();
            assert!(name.len() <= MAX_NAME, "{name}");
            assert!(metric.shape != Shape::Part || metric.unit == Unit::Millionths, "{name}");
        }
        let ids: BTreeSet<_> = names.iter().map(|name| AttributeId::of(name)).collect();
        assert_eq!(ids.len(), METRICS.len());
    }

    #[test]
    fn disallowed_characters_of_an_interface_are_replaced() {
        assert_eq!(Metric::find("net.*.queue").unwrap().name_of("br:0@x"), "net.br_0_x.queue");
    }

    #[test]
    fn e_code_has_a_constant_for_every_single_metric() {
        let constants: Vec<_> = constants().collect();
        let run_queue = i64::from(AttributeId::of("cpu.run_queue").0);
        assert!(constants.contains(&("CPU_RUN_QUEUE".to_owned(), run_queue)));
        assert!(constants.iter().all(|(name, _)| !name.contains('*')));
    }
}
