//! Cost of a page of the timeline: as JSON in the daemon, read by the command, and written as packets.

use divan::Bencher;
use divan::counter::ItemsCount;
use qfabric_timeline::{ClockReading, TraceWriter};
use qfabric_types::api::timeline::{EndedJob, Timeline, TimelineApplication, TimelineEvent, TimelineRecord};
use qfabric_types::{AppId, Instant, Nanos, Owner, Share, ThreadId};

fn main() {
    divan::main();
}

/// Records of a page: half jobs, half budgets, of ten applications.
const RECORDS: u64 = 1_024;

fn page() -> Timeline {
    let owner = Owner { uid: 1, gid: 1 };
    let application = |id| TimelineApplication { id: AppId(id), name: format!("player {id}"), pid: 4_711, owner };
    let job = |at: u64| EndedJob {
        number: at,
        release_ns: Instant::new(at * 40_000_000),
        deadline_ns: Instant::new(at * 40_000_000 + 40_000_000),
        finish_ns: Instant::new(at * 40_000_000 + 31_234_567),
        cost_ns: Nanos::new(7_654_321),
        error_ns: -8_765_433,
        missed: false,
    };
    let record = |at: u64| {
        let app = AppId(at % 10);
        let event = match at % 2 {
            0 => TimelineEvent::Job { app, job: job(at) },
            _ => TimelineEvent::Budget {
                app,
                thread: ThreadId(4_711),
                reservation: None,
                reserved: Share::from_ppm(250_000),
            },
        };
        TimelineRecord { at_ns: Instant::new(at * 40_000_000), event }
    };
    Timeline {
        applications: (0..10).map(application).collect(),
        records: (0..RECORDS).map(record).collect(),
        ..Timeline::default()
    }
}

#[divan::bench]
fn to_json(bencher: Bencher<'_, '_>) {
    let page = page();
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| serde_json::to_vec(&page).unwrap());
}

#[divan::bench]
fn from_json(bencher: Bencher<'_, '_>) {
    let json = serde_json::to_vec(&page()).unwrap();
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| serde_json::from_slice::<Timeline>(&json).unwrap());
}

#[divan::bench]
fn to_packets(bencher: Bencher<'_, '_>) {
    let page = page();
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| {
        let mut writer = TraceWriter::new("host", ClockReading::default());
        writer.add(&page);
        writer.take()
    });
}
