//! The metrics of `/metrics`: each with its name, its unit and a description, from one report of the control thread.
//!
//! This module does not count. A scrape asks the control thread for a copy of its counters, so that the control
//! thread increments plain integers and takes no lock.

mod channels;
mod classic;
mod config;
mod contracts;
mod ecalls;
mod energy;
mod memory;
mod net;
#[cfg(test)]
mod rules;
mod slots;
mod web;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use qfabric_linux::books;
use qfabric_types::ServerCounts;
use qfabric_types::api::energy::EnergyStatus;
use qfabric_types::api::net::InterfaceInfo;
use qfabric_types::api::{Application, HostStatus};

use crate::api::refused_connections;
use crate::channels::ChannelsReport;
use crate::contracts::ContractsReport;
use crate::control::{Counters, HANDLING_BUCKETS_NS, Report, RingCounters};
use crate::ecalls::EcallsReport;
use crate::{logging, web as page};

pub use config::MetricsConfig;

/// The content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One metric: its name (which ends in the unit), its description, and a function that returns its value.
struct Metric<T> {
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Value,
}

#[derive(Clone, Copy)]
enum Value {
    Counter(u64),
    /// A counter of amounts that are no whole numbers.
    Amount(f64),
    Gauge(f64),
}

const fn of<T>(name: &'static str, help: &'static str, value: fn(&T) -> Value) -> Metric<T> {
    Metric { name, help, value }
}

use Value::{Amount, Counter, Gauge};

const STATUS: [Metric<HostStatus>; 6] = [
    of("capacity_cpus", "capacity: bandwidth that may be promised in total, in CPUs", |s| Gauge(s.capacity.as_f64())),
    of("guaranteed_cpus", "bandwidth guaranteed to applications of classes A and B, in CPUs", |s| {
        Gauge(s.guaranteed.as_f64())
    }),
    of("granted_cpus", "bandwidth granted to all applications at present, in CPUs", |s| Gauge(s.granted.as_f64())),
    of("lent_cpus", "bandwidth of loans: kept for applications that other hosts refused, in CPUs", |s| {
        Gauge(s.loans.iter().map(|loan| loan.share.as_f64()).sum())
    }),
    of("lent_memory_bytes", "resident memory of loans: kept for applications that other hosts refused", |s| {
        Gauge(s.loans.iter().map(|loan| loan.memory.as_f64()).sum())
    }),
    of("applications", "number of applications under contract", |s| Gauge(s.applications.len() as f64)),
];

const CONTROL: [Metric<Counters>; 25] = [
    of("control_wakeups", "wake-ups of the control thread", |c| Counter(c.wakeups)),
    of("control_ticks", "wake-ups of the control thread with a timer of the host due", |c| Counter(c.ticks)),
    of("control_looks_due", "wake-ups of the control thread with a promised look at a ring due", |c| {
        Counter(c.looks_due)
    }),
    of("control_requests", "requests from the API to the control thread", |c| Counter(c.requests)),
    of("settings_applied", "settings that the kernel carried out", |c| Counter(c.applied)),
    of("settings_given_back", "settings that decreased the reservation of a sleeping thread", |c| {
        Counter(c.given_back)
    }),
    of("settings_awake", "attempts to decrease a reservation that found the thread awake or in debt", |c| {
        Counter(c.awake)
    }),
    of("settings_busy", "settings that the kernel had no bandwidth for at that time", |c| Counter(c.busy)),
    of("settings_gone", "settings for threads that had ended", |c| Counter(c.gone)),
    of("settings_denied", "settings that the kernel refused permanently", |c| Counter(c.denied)),
    of("threads_left_out", "threads beyond the limit of their application (limits.max_threads)", |c| {
        Counter(c.threads_left_out)
    }),
    of("births_deferred", "new threads that were covered later, because of the rate limit", |c| {
        Counter(c.births_deferred)
    }),
    of("births_dropped", "new threads that were not covered, because of the rate limit", |c| Counter(c.births_dropped)),
    of("observations", "context switch records read from the kernel", |c| Counter(c.observations)),
    of("observations_lost", "context switch records that the kernel dropped", |c| Counter(c.observations_lost)),
    of("looks_cut_short", "looks at a ring that ended at their bound before the ring was empty", |c| {
        Counter(c.looks_cut_short)
    }),
    of("outputs_left", "drains of the host's outputs that ended at their bound", |c| Counter(c.outputs_left)),
    of("mechanism_ejections", "times that the kernel ejected the mechanism", |c| Counter(c.ejections)),
    of("rescues", "running jobs that received a larger budget", |c| Counter(c.rescues)),
    of("events_favoured", "events that favoured the server of their sink", |c| Counter(c.favoured)),
    of("events_not_favoured", "events that requested favour, but found no server to favour", |c| {
        Counter(c.not_favoured)
    }),
    of("own_threads_left_out", "failed attempts to put a thread of the daemon into the daemon's server", |c| {
        Counter(c.own_threads_left_out)
    }),
    of(
        "booked_for_nobody_cpus",
        "bandwidth that the kernel has booked for no thread, in CPUs; negative: subtracted twice",
        |c| Gauge(books::cpus(c.booked_for_nobody)),
    ),
    of(
        "given_to_the_gone",
        "reservations accepted for threads that were gone right after; an upper bound for those booked with no owner",
        |c| Counter(c.given_to_the_gone),
    ),
    of("inputs_ignored", "inputs that the host ignored because they were inconsistent", |c| Counter(c.inputs_ignored)),
];

const APPLICATION: [Metric<Application>; 10] = [
    of("app_guaranteed_cpus", "bandwidth guaranteed to the application, in CPUs", |a| Gauge(a.guaranteed.as_f64())),
    of("app_wanted_cpus", "bandwidth that the application's controller wants, in CPUs", |a| Gauge(a.wanted.as_f64())),
    of("app_granted_cpus", "bandwidth granted to the application, in CPUs", |a| Gauge(a.granted.as_f64())),
    of("app_used_cpus", "CPU time of the application's jobs divided by the time they had, in CPUs", |a| {
        Gauge(a.used.as_f64())
    }),
    of("app_bandwidth_bit_rate", "rate that links promise to the application's streams, in bits per second", |a| {
        Gauge(a.bandwidth.iter().map(|stream| stream.rate_bps.as_f64()).sum())
    }),
    of("app_threads", "number of the application's threads under reservation", |a| Gauge(reserved(a) as f64)),
    of("app_jobs", "jobs of the application that ended", |a| Counter(a.quality.jobs)),
    of("app_misses", "jobs of the application that ended after their deadline", |a| Counter(a.quality.misses)),
    of("app_error_mean_ratio", "mean scheduling error of the application's jobs, divided by the period", |a| {
        Gauge(a.quality.mean_error)
    }),
    of(
        "app_in_target_ratio",
        "fraction of the application's jobs with a scheduling error in the target interval",
        |a| Gauge(a.quality.in_target),
    ),
];

/// Metrics of applications under a mechanism whose servers have counters.
const SERVER: [Metric<ServerCounts>; 6] = [
    of("app_periods_served", "server periods in which the server got its service", |s| Counter(s.served)),
    of("app_periods_missed", "server periods in which the server did not get its service", |s| Counter(s.missed)),
    of("app_window_violations", "missed server periods beyond the window", |s| Counter(s.violations)),
    of("app_event_boosts", "times that a pending event put the server before others", |s| Counter(s.boosts)),
    of("app_events_pending", "events raised for the server", |s| Counter(s.events)),
    of("app_throttles", "times that the server used up its budget while it wanted to run on", |s| Counter(s.throttles)),
];

const RING: [Metric<RingCounters>; 6] = [
    of("ring_records", "records read from the application's ring", |r| Counter(r.taken)),
    of("ring_rejected", "invalid records in the application's ring", |r| Counter(r.rejected)),
    of(
        "ring_flooded",
        "times that the ring was not read for up to 100 ms, because it held more records than the limit",
        |r| Counter(r.flooded),
    ),
    of(
        "ring_dropped",
        "records that the application dropped because its ring was full, as the application reports",
        |r| Counter(r.dropped),
    ),
    of("ring_wakeups", "wake-ups that the application sent", |r| Counter(r.wakes)),
    of(
        "ring_silenced",
        "times that the application's wake-ups were ignored for up to 100 ms, because there were too many",
        |r| Counter(r.silenced),
    ),
];

fn reserved(application: &Application) -> usize {
    application.threads.iter().filter(|thread| thread.reservation.is_some()).count()
}

/// The content type and the text for a client with this Accept header, from OpenMetrics text.
pub(crate) fn answer(accept: Option<&str>, text: String) -> (&'static str, String) {
    match classic::wants_open_metrics(accept) {
        true => (OPEN_METRICS, text),
        false => (classic::CONTENT_TYPE, classic::from_open_metrics(&text)),
    }
}

/// The report as OpenMetrics text.
pub(crate) fn text(
    report: Report,
    ecalls: EcallsReport,
    interfaces: Vec<InterfaceInfo>,
    channels: Option<ChannelsReport>,
    contracts: ContractsReport,
    energy: Option<EnergyStatus>,
) -> String {
    let mut registry = Registry::with_prefix("qfabric");
    registry.register_collector(Box::new(Shown(report, ecalls, interfaces, channels, contracts, energy)));
    let mut out = String::with_capacity(16 << 10);
    text::encode(&mut out, &registry).expect("writing into a string does not fail");
    out
}

#[derive(Debug)]
struct Shown(Report, EcallsReport, Vec<InterfaceInfo>, Option<ChannelsReport>, ContractsReport, Option<EnergyStatus>);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Report { status, rings, counters, notes_dropped } = &self.0;
        STATUS.iter().try_for_each(|metric| one(&mut encoder, metric, status))?;
        memory::encode(&mut encoder, status)?;
        CONTROL.iter().try_for_each(|metric| one(&mut encoder, metric, counters))?;
        let dropped = of("notes_dropped", "log lines dropped because a queue was full", |n: &u64| Counter(*n));
        one(&mut encoder, &dropped, &(notes_dropped + logging::dropped()))?;
        let refused = of(
            "connections_refused",
            "connections refused because the user, or all users together, had too many",
            |n: &u64| Counter(*n),
        );
        one(&mut encoder, &refused, &refused_connections())?;
        handling(&mut encoder, counters)?;
        let labels = |app: &Application| labels(app);
        for metric in &APPLICATION {
            let rows = status.applications.iter().map(|app| (labels(app), (metric.value)(app)));
            family(&mut encoder, metric.name, metric.help, rows)?;
        }
        for metric in &SERVER {
            let counted = |app: &Application| Some((labels(app), (metric.value)(app.server.as_ref()?)));
            family(&mut encoder, metric.name, metric.help, status.applications.iter().filter_map(counted))?;
        }
        for metric in &RING {
            let named = |(id, ring)| Some((labels(status.applications.iter().find(|a| a.id == id)?), ring));
            let rows = rings.iter().copied().filter_map(named).map(|(labels, ring)| (labels, (metric.value)(&ring)));
            family(&mut encoder, metric.name, metric.help, rows)?;
        }
        slots::encode(&mut encoder, status)?;
        contracts::encode(&mut encoder, &self.4)?;
        web::encode(&mut encoder, &page::report())?;
        ecalls::encode(&mut encoder, &self.1)?;
        net::encode(&mut encoder, &self.2)?;
        channels::encode(&mut encoder, self.3.as_ref())?;
        self.5.as_ref().map_or(Ok(()), |status| energy::encode(&mut encoder, status))
    }
}

type Labels = [(&'static str, String); 4];

/// The labels of an application. Its number is one of them, because two applications may have the same name.
fn labels(app: &Application) -> Labels {
    let name = app.contract.name.clone();
    [("app", app.id.to_string()), ("name", name), ("pid", app.pid.to_string()), ("uid", app.owner.uid.to_string())]
}

fn kind(value: Value) -> MetricType {
    match value {
        Counter(_) | Amount(_) => MetricType::Counter,
        Gauge(_) => MetricType::Gauge,
    }
}

fn write(value: Value, encoder: MetricEncoder<'_>) -> fmt::Result {
    match value {
        Counter(count) => ConstCounter::new(count).encode(encoder),
        Amount(amount) => ConstCounter::new(amount + 0.0).encode(encoder),
        // An empty sum is -0.0.
        Gauge(level) => ConstGauge::new(level + 0.0).encode(encoder),
    }
}

fn one<T>(encoder: &mut DescriptorEncoder<'_>, metric: &Metric<T>, of: &T) -> fmt::Result {
    let value = (metric.value)(of);
    write(value, encoder.encode_descriptor(metric.name, metric.help, None, kind(value))?)
}

fn family<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl Iterator<Item = (L, Value)>,
) -> fmt::Result {
    let mut rows = rows.peekable();
    let Some((_, first)) = rows.peek() else { return Ok(()) };
    let mut metric = encoder.encode_descriptor(name, help, None, kind(*first))?;
    rows.try_for_each(|(labels, value)| write(value, metric.encode_family(&labels)?))
}

fn handling(encoder: &mut DescriptorEncoder<'_>, counters: &Counters) -> fmt::Result {
    let ends = HANDLING_BUCKETS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
    let buckets: Vec<_> = ends.zip(counters.handling.buckets).collect();
    let count = counters.handling.buckets.iter().sum();
    let help = "time that the control thread needs from a wake-up to the next sleep, in seconds";
    let mut metric =
        encoder.encode_descriptor("control_handling", help, Some(&Unit::Seconds), MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(counters.handling.sum.as_secs_f64(), count, &buckets, None)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use qfabric_types::api::DispatchTableStatus;
    use qfabric_types::api::energy::{ApplicationEnergy, DeviceEnergy, EnergyModel};
    use qfabric_types::api::memory::{HostMemory, MemoryPressure, MemoryProtection, MemoryStatus, ReserveId};
    use qfabric_types::{AppId, Bytes, Contract, Energy, EnergySource, Nanos, Owner, Share};

    pub(crate) fn application(id: u64) -> Application {
        Application {
            id: AppId(id),
            pid: 42,
            owner: Owner { uid: 1000, gid: 100 },
            contract: Contract::new("play\"er", Nanos::from_millis(40)),
            guaranteed: Share::ZERO,
            invariance: None,
            wanted: Share::from_ppm(250_000),
            granted: Share::from_ppm(200_000),
            overload: None,
            utility: None,
            threads: Vec::new(),
            quality: qfabric_types::Quality { jobs: 7, misses: 2, ..Default::default() },
            used: Share::ZERO,
            reserved: Default::default(),
            rhythm: None,
            server: None,
            cpus: Vec::new(),
            memory: None,
            bandwidth: Vec::new(),
            energy: None,
        }
    }

    fn report() -> Report {
        let mut counters = Counters { wakeups: 3, ..Counters::default() };
        counters.handling.count(Nanos::new(2_000));
        let mut player = application(1);
        player.memory = Some(MemoryStatus {
            reserve: ReserveId(1),
            promised: Bytes::from_mib(64),
            used: Bytes::from_mib(1),
            swapped: Bytes::ZERO,
            locked: Bytes::ZERO,
            major_faults: 12,
            prefaulted: Bytes::new(4096),
            pressure: Some(MemoryPressure { notices: 2, ..MemoryPressure::default() }),
            protection: MemoryProtection::Group,
            missing: None,
        });
        let status = HostStatus {
            version: "1".into(),
            mechanism: "deadline".into(),
            capacity: Share::from_ppm(1_800_000),
            guaranteed: Share::ZERO,
            granted: Share::ZERO,
            applications: vec![player, application(2)],
            cpus: Vec::new(),
            fallback: None,
            loans: Vec::new(),
            tables: Vec::new(),
            joint: Vec::new(),
            configured: Vec::new(),
            memory: Some(HostMemory { promised: Bytes::from_mib(64), ..HostMemory::default() }),
        };
        let ring = RingCounters { rejected: 5, ..RingCounters::default() };
        Report { status, rings: vec![(AppId(2), ring), (AppId(3), ring)], counters, notes_dropped: 4 }
    }

    #[test]
    fn a_scrape_has_applications_rings_and_dropped_lines() {
        let (ecalls, joint) = (EcallsReport { raised: 9, ..Default::default() }, ContractsReport::default());
        let text = text(report(), ecalls, Vec::new(), None, joint, None);
        for line in [
            "qfabric_ecalls_raised_total 9",
            "qfabric_capacity_cpus 1.8",
            "qfabric_memory_promised_bytes 67108864.0",
            "qfabric_memory_pressure_notices_total 0",
            "qfabric_app_memory_used_bytes{app=\"1\",name=\"play\\\"er\",pid=\"42\",uid=\"1000\"} 1048576.0",
            "qfabric_app_major_faults_total{app=\"1\",name=\"play\\\"er\",pid=\"42\",uid=\"1000\"} 12",
            "qfabric_app_memory_pressure_notices_total{app=\"1\",name=\"play\\\"er\",pid=\"42\",uid=\"1000\"} 2",
            "qfabric_control_wakeups_total 3",
            "qfabric_notes_dropped_total 4",
            "qfabric_control_handling_seconds_count 1",
            "qfabric_control_handling_seconds_bucket{le=\"0.000004\"} 1",
            "qfabric_app_misses_total{app=\"1\",name=\"play\\\"er\",pid=\"42\",uid=\"1000\"} 2",
            "qfabric_app_wanted_cpus{app=\"2\",name=\"play\\\"er\",pid=\"42\",uid=\"1000\"} 0.25",
            "qfabric_ring_rejected_total{app=\"2\",name=\"play\\\"er\",pid=\"42\",uid=\"1000\"} 5",
            "# EOF",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        assert!(
            !text.contains("qfabric_app_major_faults_total{app=\"2\""),
            "an application without a promise has no row"
        );
        assert!(!text.contains("app=\"3\""), "a ring without an application has no row");
    }

    #[test]
    fn an_empty_sum_is_a_zero_without_a_sign() {
        let text = text(report(), EcallsReport::default(), Vec::new(), None, ContractsReport::default(), None);
        assert!(text.lines().any(|line| line == "qfabric_lent_cpus 0.0") && !text.contains("-0.0"), "{text}");
    }

    /// The rules of `promtool check metrics` that apply to these metrics.
    #[test]
    fn the_classic_text_describes_every_sample_and_names_its_kind() {
        let open = text(report(), EcallsReport::default(), Vec::new(), None, ContractsReport::default(), None);
        let (kind, text) = answer(Some("*/*"), open);
        assert!(kind.starts_with("text/plain"));
        let named = |what: &str| -> std::collections::BTreeMap<String, String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(what)?.split_once(' '));
            lines.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect()
        };
        let (help, kinds) = (named("# HELP "), named("# TYPE "));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            let kind = kinds.get(family).or(kinds.get(name)).unwrap_or_else(|| panic!("{name} has no type"));
            assert!(help.contains_key(family) || help.contains_key(name), "{name} has no help");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        }
    }

    fn described<T>(table: &[Metric<T>]) -> Vec<(&'static str, &'static str)> {
        table.iter().map(|metric| (metric.name, metric.help)).collect()
    }

    /// Also those that have rows only with an interface, a channel, a subscription or a table.
    fn all_described() -> Vec<(&'static str, &'static str)> {
        let all = [
            described(&STATUS),
            described(&CONTROL),
            described(&APPLICATION),
            described(&SERVER),
            described(&RING),
            described(&memory::HOST),
            described(&memory::APPLICATION),
            described(&contracts::TOTALS),
            described(&web::TOTALS),
            described(&ecalls::TOTALS),
            described(&ecalls::SUBSCRIPTION),
            described(&slots::TABLE),
            described(&slots::GROUP),
            described(&channels::TOTALS),
            described(&channels::CHANNEL),
            described(&net::INTERFACE),
            described(&net::LINK),
            described(&net::INCOMING),
            described(&net::STREAM),
            vec![net::HELD, net::USER],
        ];
        all.concat()
    }

    #[test]
    fn every_name_and_description_fits_the_rules_of_promtool() {
        let all = all_described().into_iter();
        let wrong: Vec<_> = all.filter_map(|(name, help)| rules::complaint(name, help)).collect();
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn a_dispatch_table_is_shown_with_its_applications() {
        let mut report = report();
        report.status.applications[0].server = Some(ServerCounts { slots: 70, underruns: 3, ..Default::default() });
        let without = text(report.clone(), EcallsReport::default(), Vec::new(), None, ContractsReport::default(), None);
        assert!(!without.contains("qfabric_dispatch") && !without.contains("app_slot"), "{without}");
        report.status.tables = vec![DispatchTableStatus { cpu: 1, frame: 4, late: 2, ..Default::default() }];
        let text = text(report, EcallsReport::default(), Vec::new(), None, ContractsReport::default(), None);
        for line in [
            "qfabric_dispatch_frame_slots{cpu=\"1\"} 4.0",
            "qfabric_dispatch_boundaries_late_total{cpu=\"1\"} 2",
            "qfabric_app_slots_total{app=\"1\",name=\"play\\\"er\",pid=\"42\",uid=\"1000\"} 70",
            "qfabric_app_slot_underruns_total{app=\"1\",name=\"play\\\"er\",pid=\"42\",uid=\"1000\"} 3",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn every_amount_of_energy_has_its_source() {
        let energy = |joules, source| Energy::new(joules, source);
        let package = DeviceEnergy {
            name: "package-0-0".into(),
            energy: energy(12.5, EnergySource::Rapl),
            power_w: Some(3.25),
            left: None,
            fault: None,
            faults: 2,
        };
        let player = ApplicationEnergy {
            app: AppId(1),
            name: "player".into(),
            pid: 42,
            cpu_time: Nanos::ZERO,
            energy: vec![energy(1.5, EnergySource::Rapl), energy(0.5, EnergySource::Model)],
        };
        let status = EnergyStatus {
            model: EnergyModel { name: "x86-server".into(), printed: 0, derived: 0, assumed: 1 },
            over: Nanos::ZERO,
            clock_part: None,
            devices: vec![package],
            applications: vec![player],
            ended: Vec::new(),
            looks: 1,
            looks_cpu: Nanos::ZERO,
        };
        let text = text(report(), EcallsReport::default(), Vec::new(), None, ContractsReport::default(), Some(status));
        for line in [
            "qfabric_energy_device_joules_total{device=\"package-0-0\",source=\"rapl\"} 12.5",
            "qfabric_energy_device_watts{device=\"package-0-0\",source=\"rapl\"} 3.25",
            "qfabric_energy_meter_faults_total{device=\"package-0-0\",source=\"rapl\"} 2",
            "qfabric_energy_app_joules_total{app=\"1\",name=\"player\",pid=\"42\",source=\"model\"} 0.5",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        assert_eq!(rules::complaints(&text), [""; 0]);
    }

    /// The names of metrics in a text: `qfabric_…`, as rules and dashboards use them.
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        words.filter(|word| word.starts_with("qfabric_")).collect()
    }

    #[test]
    fn rules_and_dashboard_use_metrics_that_exist() {
        let (ecalls, joint) = (EcallsReport::default(), ContractsReport::default());
        let text = text(report(), ecalls, Vec::new(), Some(Default::default()), joint, None);
        let exported = names(&text);
        // These have rows only with an interface or a meter.
        let rare = net::INTERFACE.iter().map(|m| m.name).chain(net::STREAM.iter().map(|m| m.name));
        let rare: Vec<_> = rare.chain(["energy_device_watts"]).map(|name| format!("qfabric_{name}")).collect();
        for (file, used) in [
            ("qfabric.rules.yml", include_str!("../../../packaging/prometheus/qfabric.rules.yml")),
            ("qfabric.test.yml", include_str!("../../../packaging/prometheus/qfabric.test.yml")),
            ("qfabric.json", include_str!("../../../packaging/grafana/qfabric.json")),
        ] {
            for name in names(used) {
                let base = name.strip_suffix("_total").unwrap_or(name);
                assert!(exported.contains(name) || rare.iter().any(|rare| rare == base), "{file} uses {name}");
            }
            assert!(names(used).len() >= 5, "{file}");
        }
    }

    /// A page may name the beginning of several names, such as `qfabric_net_…`.
    #[test]
    fn the_guide_names_metrics_as_they_are_exported() {
        let (ecalls, joint) = (EcallsReport::default(), ContractsReport::default());
        let text = text(report(), ecalls, Vec::new(), Some(Default::default()), joint, None);
        let rows = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        let exported = names(&rows);
        // These have rows only with an interface, a server, a dispatch table or a meter.
        let energy = ["energy_device_joules", "energy_device_watts", "energy_meter_faults", "energy_app_joules"];
        let described: Vec<&str> = all_described().into_iter().map(|(name, _)| name).chain(energy).collect();
        let has_row = |name: &str| ["", "_total"].iter().any(|end| exported.contains(&*format!("qfabric_{name}{end}")));
        let rare: Vec<String> =
            described.iter().filter(|name| !has_row(name)).map(|name| format!("qfabric_{name}")).collect();
        let is_metric = |word: &str| match word.ends_with('_') {
            true => described.iter().any(|name| format!("qfabric_{name}").starts_with(word)),
            false => {
                exported.contains(word) || rare.iter().any(|rare| word.strip_suffix("_total").unwrap_or(word) == rare)
            }
        };
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        // A crate's name looks like that of a metric; the names of packages have capital letters.
        let is_other = |word: &str| {
            let room = word.trim_start_matches("qfabric_").replace('_', "-");
            room.contains(char::is_uppercase) || root.join("crates").join(room).exists()
        };
        for page in std::fs::read_dir(root.join("docs/guide/src")).unwrap().map(|entry| entry.unwrap().path()) {
            let Ok(text) = std::fs::read_to_string(&page) else { continue };
            let wrong: Vec<&str> =
                names(&text).into_iter().filter(|word| !is_metric(word) && !is_other(word)).collect();
            assert_eq!(wrong, [""; 0], "{}", page.display());
            let bare = described.iter().filter(|name| name.contains('_') && text.contains(&format!("`{name}`")));
            assert_eq!(bare.count(), 0, "{} names metrics without qfabric_", page.display());
        }
    }

    #[test]
    fn the_dashboard_is_json_with_a_query_in_every_panel() {
        let text = include_str!("../../../packaging/grafana/qfabric.json");
        let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
        let queries = panels.map(|panel| panel["targets"].as_array().unwrap().len());
        assert!(queries.inspect(|queries| assert!(*queries > 0)).count() >= 12);
    }

    #[test]
    fn every_metric_is_described_once() {
        let text = text(report(), EcallsReport::default(), Vec::new(), None, ContractsReport::default(), None);
        let mut described: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = described.len();
        described.sort();
        described.dedup();
        assert_eq!(described.len(), all);
        let own = STATUS.len() + CONTROL.len() + 3 + APPLICATION.len() + RING.len();
        let of_memory = memory::HOST.len() + memory::APPLICATION.len();
        assert_eq!(all, own + of_memory + contracts::TOTALS.len() + web::TOTALS.len() + ecalls::TOTALS.len() + 1);
    }
}
