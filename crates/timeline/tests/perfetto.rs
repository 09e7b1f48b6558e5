//! Traces, read by an independent decoder.

mod walker;

use proptest::prelude::*;
use qfabric_timeline::{ClockReading, CpuSlice, TraceWriter};
use qfabric_types::api::timeline::{EndedJob, Timeline, TimelineApplication, TimelineEvent, TimelineRecord};
use qfabric_types::{AppId, Instant, Nanos, Owner, Share, ThreadId};
use walker::{Event, Message, events};

const APP: AppId = AppId(3);
const MS: u64 = 1_000_000;

fn clocks() -> ClockReading {
    ClockReading { monotonic_ns: 5, realtime_ns: 9 }
}

fn page(records: Vec<(u64, TimelineEvent)>) -> Timeline {
    let owner = Owner { uid: 1, gid: 1 };
    let records =
        records.into_iter().map(|(ms, event)| TimelineRecord { at_ns: Instant::new(ms * MS), event }).collect();
    let applications = vec![TimelineApplication { id: APP, name: "mpv".to_owned(), pid: 42, owner }];
    Timeline { applications, records, ..Timeline::default() }
}

/// A job that is released at `release`, has 40 ms, and takes `took`, in milliseconds.
fn job(number: u64, release: u64, took: u64) -> (u64, TimelineEvent) {
    let ns = |ms: u64| Instant::new(ms * MS);
    let error_ns = (took as i64 - 40) * MS as i64;
    let job = EndedJob {
        number,
        release_ns: ns(release),
        deadline_ns: ns(release + 40),
        finish_ns: ns(release + took),
        cost_ns: Nanos::from_millis(7),
        error_ns,
        missed: took > 40,
    };
    (release + took, TimelineEvent::Job { app: APP, job })
}

fn written(host: &str, records: Vec<(u64, TimelineEvent)>) -> (Vec<Event>, TraceWriter) {
    let mut writer = TraceWriter::new(host, clocks());
    writer.add(&page(records));
    (events(&writer.take()), writer)
}

fn on<'e>(events: &'e [Event], track: &str) -> Vec<&'e Event> {
    events.iter().filter(|event| event.track.ends_with(track)).collect()
}

#[test]
fn a_job_is_a_slice_from_release_to_finish_and_a_late_one_is_a_miss_at_its_deadline() {
    let (events, writer) = written("a", vec![job(1, 100, 30), job(2, 140, 50)]);
    let slices: Vec<_> = on(&events, "/jobs").iter().map(|e| (e.kind, e.at / MS, e.name.as_str())).collect();
    assert_eq!(slices, [(1, 100, "job"), (2, 130, ""), (1, 140, "late job"), (2, 190, "")]);
    let misses: Vec<_> = on(&events, "/misses").iter().map(|e| (e.kind, e.at / MS)).collect();
    assert_eq!(misses, [(3, 180)]);
    let errors: Vec<_> = on(&events, "/error").iter().map(|e| (e.kind, e.counter)).collect();
    assert_eq!(errors, [(4, Some(-10.0)), (4, Some(10.0))]);
    assert_eq!((writer.counts().jobs, writer.counts().misses, writer.counts().applications), (2, 1, 1));
}

#[test]
fn every_track_is_inside_its_application_and_its_host() {
    let budget =
        TimelineEvent::Budget { app: APP, thread: ThreadId(43), reservation: None, reserved: Share::from_ppm(250_000) };
    let decision = TimelineEvent::Decision { app: APP, text: "period 40 ms found".to_owned() };
    let (events, _) = written("alpha", vec![(1, budget), (2, decision), (3, TimelineEvent::Left { app: APP })]);
    let outer = "Q-Fabric on alpha/mpv (application 3, pid 42)/";
    assert!(events.iter().all(|event| event.track.starts_with(outer)), "{events:?}");
    let budgets: Vec<_> = on(&events, "/budget").iter().map(|event| event.counter).collect();
    assert_eq!(budgets, [Some(25.0), Some(0.0)], "a contract that ended reserves nothing");
    let decisions: Vec<_> = on(&events, "/decisions").iter().map(|event| event.name.as_str()).collect();
    assert_eq!(decisions, ["period 40 ms found", "contract ended"]);
}

#[test]
fn an_event_of_a_channel_has_the_same_arrow_on_both_hosts() {
    let event = |received| TimelineEvent::Channel { channel: "video".to_owned(), received, flow: 77, pid: 1, bytes: 5 };
    let (source, sink) = (written("a", vec![(1, event(false))]).0, written("b", vec![(2, event(true))]).0);
    assert_eq!((source[0].flows.as_slice(), sink[0].flows.as_slice()), (&[77][..], &[77][..]));
    assert_ne!(source[0].track, sink[0].track);
}

#[test]
fn traces_of_two_hosts_in_one_file_keep_their_tracks_apart() {
    let trace = |host| {
        let mut writer = TraceWriter::new(host, clocks());
        writer.add(&page(vec![job(1, 100, 30)]));
        writer.take()
    };
    let both = events(&[trace("a"), trace("b")].concat());
    assert_eq!(on(&both, "a/mpv (application 3, pid 42)/jobs").len(), 2);
    assert_eq!(on(&both, "b/mpv (application 3, pid 42)/jobs").len(), 2);
}

/// The times of all events on the clock that the first snapshot names. A number below 64 is one clock of the whole file.
fn on_one_clock(bytes: &[u8]) -> Vec<u64> {
    let trace = Message::of(bytes);
    let packets: Vec<_> = trace.messages(1).collect();
    let snapshots: Vec<_> = packets.iter().filter_map(|packet| Some((packet.number(10), packet.message(6)?))).collect();
    let primary = snapshots[0].1.number(2);
    let at = |packet: &Message<'_>| {
        let (clock, sequence) = (packet.number(58), packet.number(10));
        let mut own = snapshots.iter().filter(|(of, _)| clock < Some(64) || *of == sequence);
        let snapshot = &own.next().unwrap().1;
        let reading = |clock| snapshot.messages(1).find(|one| one.number(1) == clock).unwrap().number(2).unwrap();
        Some(packet.number(8)? - reading(clock) + reading(primary))
    };
    packets.iter().filter_map(at).collect()
}

#[test]
fn events_of_hosts_with_different_uptimes_lie_on_one_line() {
    let trace = |host, monotonic_ns, ms| {
        let mut writer = TraceWriter::new(host, ClockReading { monotonic_ns, realtime_ns: 5_000 * MS });
        writer.add(&page(vec![(ms, TimelineEvent::Ecall { service: "net.rx".to_owned(), pid: 1 })]));
        writer.take()
    };
    let both = [trace("a", 100 * MS, 130), trace("b", 900 * MS, 940)].concat();
    assert_eq!(on_one_clock(&both), [5_030 * MS, 5_040 * MS]);
}

#[test]
fn each_cpu_is_a_track_with_a_slice_for_each_thread_that_ran_and_names_its_application() {
    let mut writer = TraceWriter::new("a", clocks());
    writer.add(&page(Vec::new()));
    let slice = |cpu, pid: i32, name, from: u64, to: u64| {
        let (from, to) = (Instant::new(from * MS), Instant::new(to * MS));
        CpuSlice { cpu, pid, tid: pid + 1, name, from, to }
    };
    for slice in [slice(0, 42, "vo", 10, 12), slice(1, 7, "", 11, 15), slice(0, 8, "make", 12, 14)] {
        writer.add_cpu(&slice);
    }
    writer.add_lost_switches(5);
    assert_eq!((writer.counts().cpu_slices, writer.counts().lost_switches), (3, 5));
    let bytes = writer.take();
    let events = events(&bytes);
    let of = |cpu: &str| {
        let slices = on(&events, cpu).into_iter();
        slices.map(|e| (e.kind, e.at / MS, e.name.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(of("a/CPUs/CPU 0"), [(1, 10, "vo"), (2, 12, ""), (1, 12, "make"), (2, 14, "")]);
    assert_eq!(of("a/CPUs/CPU 1"), [(1, 11, "thread 8"), (2, 15, "")]);
    let begins: Vec<_> = Message::of(&bytes).messages(1).filter_map(|packet| packet.message(11)).collect();
    let application = |event: &Message<'_>| {
        let mut named = event.messages(4).filter(|annotation| annotation.text(10) == Some("application"));
        named.next().and_then(|annotation| annotation.text(6).map(str::to_owned))
    };
    let applications: Vec<_> = begins.iter().filter(|event| event.number(9) == Some(1)).map(application).collect();
    assert_eq!(applications, [Some("mpv".to_owned()), None, None]);
}

proptest! {
    /// However late jobs are, the slices of a track follow each other, and every job is one slice.
    #[test]
    fn slices_never_overlap(took in proptest::collection::vec(1_u64..400, 1..60)) {
        let mut end = 0;
        let mut records = Vec::new();
        for (k, took) in (0_u64..).zip(&took) {
            let release = 40 * k;
            end = end.max(release) + took;
            records.push(job(k + 1, release, end - release));
        }
        let (events, writer) = written("a", records);
        let slices = on(&events, "/jobs");
        prop_assert_eq!(slices.len(), 2 * took.len());
        prop_assert!(slices.windows(2).all(|pair| pair[0].at <= pair[1].at && pair[0].kind != pair[1].kind));
        prop_assert_eq!(writer.counts().jobs, took.len() as u64);
    }
}
