//! Windows and events while the kernel schedules. Run with one CPU and time by instructions.

mod ext_shared;

use std::time::Duration;

use ext_shared::{Servers, hogs, loaded, ms, server, sleep_ms, window};
use qfabric_linux::clock;
use qfabric_linux::ext::{ServerId, ServerSpec};
use qfabric_linux::testing::{Worker, burn};
use qfabric_types::{Instant, Nanos};
use rand::RngExt as _;

/// A whole multiple of `period` on the clock, two to three periods ahead: the common phase of aligned periods.
fn grid(period: Nanos) -> Instant {
    Instant::new((clock::now().get() / period.get() + 3) * period.get())
}

#[test]
fn windows_hold_in_overload_that_only_losses_make_possible() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let phase = Some(grid(ms(12)));
    let spec = |x, y| ServerSpec { window: window(x, y), phase, ..server(12, 4) };
    let all: Vec<_> = [spec(1, 2), spec(1, 2), spec(1, 2), spec(2, 3)].map(|spec| servers.hog(&spec)).into();
    sleep_ms(1_500);
    let did: Vec<_> = all.iter().map(|(id, _)| servers.stats(*id)).collect();
    let counts: Vec<_> = did.iter().map(|d| (d.served, d.missed, d.violations)).collect();
    eprintln!("4 tasks of 4/12 ms, windows 1/2 1/2 1/2 2/3: (served, missed, violations) {counts:?}");
    assert!(counts.iter().map(|c| c.1).sum::<u64>() > 50, "the demand exceeds the time: {counts:?}");
    assert!(counts.iter().all(|c| c.2 == 0), "{counts:?}");
}

/// Random sets with ΣC/T within the capacity. Under EDF no period may be missed, whatever best effort does.
#[test]
fn random_sets_within_the_capacity_miss_nothing() {
    use rand::SeedableRng as _;
    let Some(mut ext) = loaded() else { return };
    let seeds = std::env::var("QFABRIC_SETS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let _hogs = hogs(3);
    for seed in 0..seeds {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
        let mut servers = Servers::of(&mut ext);
        let mut all: Vec<(ServerId, Worker)> = Vec::new();
        let mut left = servers.ext.config().capacity().as_f64();
        while all.len() < 8 && left > 0.05 {
            let period = random.random_range(5..50u64) * 1_000_000;
            let service = (period as f64 * random.random_range(0.03..0.3f64).min(left)) as u64;
            left -= service as f64 / period as f64 + 0.001;
            let (x, y) = (random.random_range(0..3u64), random.random_range(3..9u64));
            let spec = ServerSpec { cpu: Some(0), ..ServerSpec::new(Nanos::new(period), Nanos::new(service)) };
            all.push(servers.hog(&ServerSpec { window: window(x, y), ..spec }));
        }
        sleep_ms(400);
        for (id, _) in &all {
            let did = servers.stats(*id);
            assert_eq!((did.missed, did.violations), (0, 0), "seed {seed}, {} servers: {did:?}", all.len());
            assert!(did.served > 5, "seed {seed}: {did:?}");
        }
    }
}

#[test]
fn an_event_is_answered_within_a_service_time_where_only_best_effort_runs() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let _hogs = hogs(4);
    let (id, hog) = servers.hog(&server(200, 5));
    while servers.stats(id).throttles == 0 {
        sleep_ms(1);
    }
    sleep_ms(20);
    let (before, used) = (servers.stats(id), hog.used());
    servers.ext.raise(id, None).unwrap();
    sleep_ms(20);
    let (after, more) = (servers.stats(id), hog.used() - used);
    eprintln!("raised while throttled: {more} more, {:?}", after.boosts);
    assert_eq!(after.boosts[1] - before.boosts[1], 1, "rule 2: {after:?}");
    assert!((ms(4)..=ms(6)).contains(&(after.extra - before.extra)), "one service time: {after:?}");
}

#[test]
fn an_event_that_is_late_is_dropped_and_counted() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (other, _hog) = servers.hog(&server(100, 90));
    let (id, _sink) = servers.hog(&server(200, 1));
    while servers.stats(id).throttles == 0 {
        sleep_ms(1);
    }
    servers.ext.raise(id, Some(clock::now() + Nanos::from_micros(1))).unwrap();
    sleep_ms(150);
    let did = servers.stats(id);
    assert_eq!((did.expired, did.boosts.iter().sum::<u64>()), (1, 0), "{did:?}");
    assert_eq!(servers.stats(other).missed, 0);
}

#[test]
fn a_server_that_does_not_run_leaves_room_for_events_of_others() {
    let Some(mut ext) = loaded() else { return };
    let mut servers = Servers::of(&mut ext);
    let (idle, other) = (servers.create(&server(20, 2)), servers.create(&server(20, 2)));
    let waiting = (0..300).filter(|_| servers.ext.raise(idle, None).is_ok()).count();
    assert!((1..100).contains(&waiting), "{waiting}");
    servers.ext.raise(other, None).unwrap();
}

/// Compares two threads that sleep between frames, with the same reservation: with and without events for wake-ups.
#[test]
fn a_sleeper_whose_wake_ups_raise_events_waits_less_than_one_without() {
    let Some(mut ext) = loaded() else { return };
    let delay = |events: bool, ext: &mut _| {
        let mut servers = Servers::of(ext);
        let _hogs: Vec<_> =
            (0..3).map(|_| servers.hog(&ServerSpec { work_conserving: true, ..server(40, 8) })).collect();
        let worker = Worker::start(|| {
            burn(Nanos::from_micros(300));
            std::thread::sleep(Duration::from_millis(9));
        });
        let spec = ServerSpec { wake_events: events, ..server(40, 8) };
        let id = servers.create(&spec);
        servers.ext.join(id, worker.thread, false).unwrap();
        sleep_ms(600);
        let did = servers.stats(id);
        (did.run_queue_delay_sum.get() / did.wakeups.max(1), did.run_queue_delay_max, did.boosts)
    };
    let (without, with) = (delay(false, &mut ext), delay(true, &mut ext));
    eprintln!("run-queue delay (mean ns, longest, boosts): without events {without:?}, with {with:?}");
    assert!(with.2.iter().sum::<u64>() > 10, "{with:?}");
    assert!(with.0 <= without.0, "{with:?} against {without:?}");
}
