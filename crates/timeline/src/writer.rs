//! Turns records of the timeline into packets of a trace.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use qfabric_types::api::Application;
use qfabric_types::api::timeline::{EndedJob, Timeline, TimelineApplication, TimelineEvent, TimelineRecord};
use qfabric_types::{AppId, Instant, Share};
use serde::Serialize;

use crate::proto::{
    BuiltinClock, Clock, ClockSnapshot, DebugAnnotation, EventType, Trace, TracePacket, TrackDescriptor, TrackEvent,
};
use crate::tracks::{Track, hash};

/// The clock of the events: CLOCK_MONOTONIC of the host, under a number (64 to 127) that Perfetto keeps apart for each
/// sequence of packets. So the uptimes of several hosts in one file are not taken for the same clock.
const OWN_CLOCK: u32 = 64;

/// The clocks of a host at one moment, in nanoseconds. They tie the trace to other traces of this host and of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    pub monotonic_ns: u64,
    pub realtime_ns: u64,
}

impl From<[u64; 2]> for ClockReading {
    /// From the readings in the order of the fields.
    fn from([monotonic_ns, realtime_ns]: [u64; 2]) -> ClockReading {
        ClockReading { monotonic_ns, realtime_ns }
    }
}

/// A thread that was on a CPU without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSlice<'a> {
    /// The kernel's number of the CPU.
    pub cpu: u32,
    /// The process of the thread.
    pub pid: i32,
    /// The kernel's number of the thread.
    pub tid: i32,
    /// The name of the thread; empty if it is not known.
    pub name: &'a str,
    /// When the thread got the CPU, on the clock of the records.
    pub from: Instant,
    /// When it left the CPU.
    pub to: Instant,
}

/// The numbers of records that a trace contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceCounts {
    pub applications: u64,
    pub jobs: u64,
    pub misses: u64,
    pub budgets: u64,
    /// Decisions about applications and of policies.
    pub decisions: u64,
    pub ecalls: u64,
    pub channel_events: u64,
    /// Slices of threads on CPUs.
    pub cpu_slices: u64,
    /// Records of switches between threads that the kernel dropped; where they are missing, a CPU is drawn as idle.
    pub lost_switches: u64,
    /// Records that the daemon discarded before they were read.
    pub lost: u64,
    /// Events of channels and ECalls that the daemon did not record, because there were too many in a second.
    pub skipped: u64,
}

/// Writes the trace of one host.
#[derive(Debug)]
pub struct TraceWriter {
    host: String,
    sequence: u32,
    /// Packets that were not taken yet.
    trace: Trace,
    described: BTreeSet<Track>,
    applications: BTreeMap<AppId, TimelineApplication>,
    /// When the last job of each application ended; its next job begins there at the earliest.
    busy_until: BTreeMap<AppId, Instant>,
    /// Applications of which the trace has a budget.
    budgeted: BTreeSet<AppId>,
    /// The daemon's count of skipped events at the first page.
    skipped_before: Option<u64>,
    counts: TraceCounts,
}

impl TraceWriter {
    /// A trace of `host` that begins with its clocks.
    pub fn new(host: &str, clocks: ClockReading) -> TraceWriter {
        let mut writer = TraceWriter {
            host: host.to_owned(),
            sequence: (hash(host) as u32).max(1),
            trace: Trace::default(),
            described: BTreeSet::new(),
            applications: BTreeMap::new(),
            busy_until: BTreeMap::new(),
            budgeted: BTreeSet::new(),
            skipped_before: None,
            counts: TraceCounts::default(),
        };
        writer.snapshot(clocks);
        writer
    }

    /// Adds a page of the timeline. Give the pages in their order.
    pub fn add(&mut self, page: &Timeline) {
        self.counts.lost += page.lost;
        let before = *self.skipped_before.get_or_insert(page.skipped);
        self.counts.skipped = page.skipped.saturating_sub(before);
        for application in &page.applications {
            self.applications.insert(application.id, application.clone());
        }
        self.counts.applications = self.applications.len() as u64;
        page.records.iter().for_each(|record| self.record(record));
    }

    /// Adds the present budgets of applications whose budget is not in the trace yet, as of `since`.
    pub fn add_budgets(&mut self, applications: &[Application], since: Instant) {
        for application in applications {
            let Application { id, pid, owner, ref contract, .. } = *application;
            if self.budgeted.contains(&id) {
                continue;
            }
            let name = contract.name.clone();
            self.applications.entry(id).or_insert(TimelineApplication { id, name, pid, owner });
            let shares = application.threads.iter().filter_map(|thread| thread.reservation);
            self.budget(id, since, shares.map(|reservation| reservation.share()).sum());
        }
        self.counts.applications = self.applications.len() as u64;
    }

    /// Adds a slice to the track of its CPU. Give the slices of a CPU in their order. The slice names the application
    /// of its process, if a page with the application was added before.
    pub fn add_cpu(&mut self, slice: &CpuSlice<'_>) {
        let CpuSlice { cpu, pid, tid, name, from, to } = *slice;
        self.counts.cpu_slices += 1;
        let mut annotations =
            vec![DebugAnnotation::int("tid", i64::from(tid)), DebugAnnotation::int("pid", i64::from(pid))];
        let application = self.applications.values().find(|application| application.pid == pid);
        annotations.extend(application.map(|application| DebugAnnotation::text("application", &application.name)));
        let event = TrackEvent {
            name: Some(if name.is_empty() { format!("thread {tid}") } else { name.to_owned() }),
            categories: vec!["cpu".to_owned()],
            debug_annotations: annotations,
            ..TrackEvent::default()
        };
        self.event(Track::Cpu(cpu), EventType::SliceBegin, from, event);
        self.event(Track::Cpu(cpu), EventType::SliceEnd, to, TrackEvent::default());
    }

    /// Counts records of switches that the kernel dropped.
    pub fn add_lost_switches(&mut self, lost: u64) {
        self.counts.lost_switches += lost;
    }

    /// The bytes of the packets since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.trace).encode_to_vec()
    }

    /// The numbers of records added so far.
    pub fn counts(&self) -> TraceCounts {
        self.counts
    }

    fn record(&mut self, record: &TimelineRecord) {
        let at = record.at_ns;
        match &record.event {
            TimelineEvent::Joined { app } => self.decision(*app, at, "contract in force".to_owned()),
            TimelineEvent::Left { app } => {
                self.decision(*app, at, "contract ended".to_owned());
                self.budget(*app, at, Share::ZERO);
                self.busy_until.remove(app);
            }
            TimelineEvent::Job { app, job } => self.job(*app, job),
            TimelineEvent::Budget { app, reserved, .. } => {
                self.counts.budgets += 1;
                self.budget(*app, at, *reserved);
            }
            TimelineEvent::Granted { app, wanted, granted } if wanted > granted => {
                self.decision(*app, at, format!("granted {granted} of {wanted}"));
            }
            TimelineEvent::Granted { app, granted, .. } => {
                self.decision(*app, at, format!("granted {granted} as wanted"));
            }
            TimelineEvent::Decision { app, text } => self.decision(*app, at, text.clone()),
            TimelineEvent::Ecall { service, pid } => {
                self.counts.ecalls += 1;
                let annotations = vec![DebugAnnotation::int("pid", i64::from(*pid))];
                self.instant(Track::Ecalls, at, service.clone(), annotations);
            }
            TimelineEvent::Channel { .. } => self.channel(record),
            TimelineEvent::Policy { policy, channel, text } => {
                self.counts.decisions += 1;
                self.instant(Track::Policies, at, format!("{policy} on {channel}: {text}"), Vec::new());
            }
        }
    }

    /// The jobs of an application follow each other: a job that is released while the one before still runs begins
    /// at the end of that one.
    fn job(&mut self, app: AppId, job: &EndedJob) {
        let EndedJob { number, release_ns, deadline_ns, finish_ns, cost_ns, error_ns, missed } = *job;
        let before = self.busy_until.insert(app, finish_ns).unwrap_or(Instant::ZERO);
        let begin = release_ns.max(before).min(finish_ns);
        self.counts.jobs += 1;
        let from_release = |moment: Instant| moment.since(release_ns).as_f64() / 1e6;
        let annotations = vec![
            DebugAnnotation::int("number", number as i64),
            DebugAnnotation::int("release_ns", release_ns.get() as i64),
            DebugAnnotation::int("deadline_ns", deadline_ns.get() as i64),
            DebugAnnotation::double("response_ms", from_release(finish_ns)),
            DebugAnnotation::double("cpu_ms", cost_ns.as_f64() / 1e6),
            DebugAnnotation::double("error_ms", error_ns as f64 / 1e6),
        ];
        let name = if missed { "late job" } else { "job" };
        let category = vec!["job".to_owned()];
        let event = TrackEvent {
            name: Some(name.to_owned()),
            categories: category,
            debug_annotations: annotations,
            ..TrackEvent::default()
        };
        self.event(Track::Jobs(app), EventType::SliceBegin, begin, event);
        self.event(Track::Jobs(app), EventType::SliceEnd, finish_ns, TrackEvent::default());
        self.counter(Track::Error(app), finish_ns, error_ns as f64 / 1e6);
        if missed {
            self.counts.misses += 1;
            let late = finish_ns.since(deadline_ns).as_f64() / 1e6;
            let annotations =
                vec![DebugAnnotation::int("number", number as i64), DebugAnnotation::double("late_ms", late)];
            self.instant(Track::Misses(app), deadline_ns, "miss".to_owned(), annotations);
        }
    }

    fn budget(&mut self, app: AppId, at: Instant, reserved: Share) {
        self.budgeted.insert(app);
        self.counter(Track::Budget(app), at, 100.0 * reserved.as_f64());
    }

    fn decision(&mut self, app: AppId, at: Instant, text: String) {
        self.counts.decisions += 1;
        self.instant(Track::Decisions(app), at, text, Vec::new());
    }

    /// An arrow goes from the source to every sink; all its ends have the same number.
    fn channel(&mut self, record: &TimelineRecord) {
        let TimelineEvent::Channel { channel, received, flow, pid, bytes } = &record.event else { return };
        self.counts.channel_events += 1;
        let what = if *received { "received" } else { "submitted" };
        let event = TrackEvent {
            name: Some(what.to_owned()),
            categories: vec!["channel".to_owned()],
            debug_annotations: vec![
                DebugAnnotation::int("pid", i64::from(*pid)),
                DebugAnnotation::int("bytes", *bytes as i64),
            ],
            flow_ids: vec![*flow],
            ..TrackEvent::default()
        };
        self.event(Track::Channel(channel.clone()), EventType::Instant, record.at_ns, event);
    }

    fn instant(&mut self, track: Track, at: Instant, name: String, debug_annotations: Vec<DebugAnnotation>) {
        let event = TrackEvent { name: Some(name), debug_annotations, ..TrackEvent::default() };
        self.event(track, EventType::Instant, at, event);
    }

    fn counter(&mut self, track: Track, at: Instant, value: f64) {
        let event = TrackEvent { double_counter_value: Some(value), ..TrackEvent::default() };
        self.event(track, EventType::Counter, at, event);
    }

    fn event(&mut self, track: Track, kind: EventType, at: Instant, event: TrackEvent) {
        self.describe(&track);
        let track_uuid = Some(track.uuid(&self.host));
        let event = TrackEvent { r#type: Some(kind as i32), track_uuid, ..event };
        self.packet(TracePacket { timestamp: Some(at.get()), track_event: Some(event), ..TracePacket::default() });
    }

    /// Describes a track, and before it the tracks that contain it, unless that was done before.
    fn describe(&mut self, track: &Track) {
        if self.described.contains(track) {
            return;
        }
        if let Some(parent) = track.parent() {
            self.describe(&parent);
        }
        let named = match track {
            Track::App(app) => match self.applications.get(app) {
                Some(TimelineApplication { name, pid, .. }) => format!("{name} (application {app}, pid {pid})"),
                None => format!("application {app}"),
            },
            _ => format!("Q-Fabric on {}", self.host),
        };
        let descriptor: TrackDescriptor = track.describe(&self.host, &named);
        self.packet(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() });
        self.described.insert(track.clone());
    }

    fn snapshot(&mut self, clocks: ClockReading) {
        let clocks = vec![
            Clock { clock_id: Some(OWN_CLOCK), timestamp: Some(clocks.monotonic_ns) },
            Clock { clock_id: Some(BuiltinClock::Realtime as u32), timestamp: Some(clocks.realtime_ns) },
        ];
        let snapshot = ClockSnapshot { clocks, primary_trace_clock: Some(BuiltinClock::Realtime as i32) };
        self.packet(TracePacket { clock_snapshot: Some(snapshot), ..TracePacket::default() });
    }

    fn packet(&mut self, packet: TracePacket) {
        let clock = packet.timestamp.map(|_| OWN_CLOCK);
        let sequence = Some(self.sequence);
        self.trace.packet.push(TracePacket {
            trusted_packet_sequence_id: sequence,
            timestamp_clock_id: clock,
            ..packet
        });
    }
}
