//! Models the job ring between an application and its daemon.

use loom::sync::Arc;
use loom::thread;
use qfabric_models::ring::{Consumer, JobEvent, JobRing, Producer, PushOutcome};
use qfabric_models::{Foresight, Instant, JobRecord, Nanos, explore};

/// A job all words of which are `k`, so that a torn record shows.
fn job(k: u64) -> JobEvent {
    let (release, finish, cost) = (Instant::new(k), Instant::new(k), Nanos::new(k));
    JobEvent::End(JobRecord { k, release, finish, cost, next: Foresight::Budget(Nanos::new(k)) })
}

#[test]
fn a_daemon_never_sleeps_through_a_record_without_a_wake_up() {
    explore(3, || {
        let ring = Arc::new(JobRing::default());
        ring.promise_look(Instant::new(100));
        let shared = ring.clone();
        let pushing = thread::spawn(move || Producer::default().push(&shared, job(1), Instant::new(50)));
        // The daemon withdraws its promise to look, looks once more, and sleeps if it finds no record.
        ring.promise_look(Instant::ZERO);
        let seen = Consumer::default().take(&ring);
        let pushed = pushing.join().unwrap();
        assert!(seen.is_some() || pushed == PushOutcome::Wake, "{seen:?}, {pushed:?}");
    });
}

#[test]
fn records_that_found_space_arrive_whole_and_in_order() {
    explore(2, || {
        let ring = Arc::new(JobRing::default());
        let shared = ring.clone();
        let pushing = thread::spawn(move || {
            let mut producer = Producer::default();
            let mut pushed = Vec::new();
            for k in 1..=3 {
                if producer.push(&shared, job(k), Instant::new(1)) != PushOutcome::Dropped {
                    pushed.push(job(k));
                }
            }
            pushed
        });
        let mut consumer = Consumer::default();
        let mut taken: Vec<_> = (0..2).filter_map(|_| consumer.take(&ring)).collect();
        let pushed = pushing.join().unwrap();
        taken.extend(std::iter::from_fn(|| consumer.take(&ring)));
        assert_eq!((taken, consumer.rejected), (pushed.clone(), 0));
        assert_eq!(ring.dropped(), 3 - pushed.len() as u64);
    });
}
