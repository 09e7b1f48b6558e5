//! A session on a ring of the test: the records that the daemon receives, and the behaviour towards the application.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use qfabric_client::{
    Connection, Contract, Controller, Cpu, Foresight, Instant, Interval, JobRecord, LatePolicy, Nanos, Overload,
    OverloadChange, Predictor, Session, Share, Usage, clock,
};
use qfabric_shm::SharedRing;
use qfabric_types::ring::{Checkpoint, Consumer, Grant, JobEvent};
use rustix::event::{EventfdFlags, eventfd};

const T: Nanos = Nanos::from_millis(8);

struct Daemon {
    ring: SharedRing,
    wake: OwnedFd,
    consumer: Consumer,
}

fn pair() -> (Session, Daemon) {
    let (ring, memory) = SharedRing::create().unwrap();
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let theirs = SharedRing::map(memory).unwrap();
    let session = Session::on_ring(Contract::new("test", T), theirs, wake.try_clone().unwrap()).unwrap();
    (session, Daemon { ring, wake, consumer: Consumer::default() })
}

impl Daemon {
    fn events(&mut self) -> Vec<JobEvent> {
        std::iter::from_fn(|| self.consumer.take(&self.ring)).collect()
    }
    fn ends(&mut self) -> Vec<JobRecord> {
        let end = |event| match event {
            JobEvent::End(job) => Some(job),
            JobEvent::Begin { .. } | JobEvent::Checkpoint(_) => None,
        };
        self.events().into_iter().filter_map(end).collect()
    }
    fn wake_ups(&self) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(&self.wake, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }
}

/// Uses about `time` of CPU time.
fn burn(time: Nanos) {
    let started = clock::thread_cpu();
    while clock::thread_cpu() - started < time {}
}

#[test]
fn jobs_are_reported_with_their_cost_on_the_grid_of_releases() {
    let (mut session, mut daemon) = pair();
    for _ in 0..4 {
        session.wait_for_next_job();
        burn(Nanos::from_millis(2));
        session.end_cycle(Foresight::Hint(2.5));
    }
    let jobs = daemon.ends();
    assert_eq!(jobs.len(), 4);
    for (k, job) in jobs.iter().enumerate() {
        assert_eq!((job.k, job.next), (k as u64, Foresight::Hint(2.5)));
        assert_eq!(job.release, jobs[0].release + T.saturating_mul(k as u64));
        assert!(job.finish > job.release && job.cost >= Nanos::from_millis(2), "{job:?}");
    }
    assert_eq!(session.quality().jobs, 4);
}

#[test]
fn the_begin_of_the_first_job_is_the_origin_of_the_grid() {
    let (mut session, mut daemon) = pair();
    let preparations = Nanos::from_millis(50);
    burn(preparations);
    let begun = clock::now();
    session.begin(Foresight::Nothing);
    let job = session.end_cycle(Foresight::Nothing);
    assert!(job.release >= begun && job.cost < preparations, "{job:?}");
    assert_eq!(daemon.events(), [JobEvent::End(job)]);
}

#[test]
fn a_first_job_that_had_to_wait_does_not_move_the_releases() {
    let (mut session, mut daemon) = pair();
    let start = clock::now();
    burn(Nanos::from_millis(5)); // as if the thread had waited for a CPU
    session.begin_at(start, Foresight::Nothing);
    let jobs = [session.end_cycle(Foresight::Nothing), session.end_cycle(Foresight::Nothing)];
    assert_eq!(jobs.map(|job| job.release), [start, start + T]);
    assert_eq!(daemon.ends(), jobs);
}

#[test]
fn foresight_given_at_the_begin_of_a_job_is_reported_then() {
    let (mut session, mut daemon) = pair();
    session.begin(Foresight::Hint(1.0));
    assert_eq!(daemon.events(), [JobEvent::Begin { k: 0, known: Foresight::Hint(1.0) }]);
}

#[test]
fn the_daemon_is_woken_only_if_it_announced_no_look() {
    let (mut session, mut daemon) = pair();
    session.end_cycle(Foresight::Nothing);
    assert_eq!((daemon.wake_ups(), session.counters().wake_ups), (1, 1));
    daemon.ring.promise_look(Instant::NEVER);
    session.end_cycle(Foresight::Nothing);
    assert_eq!((daemon.wake_ups(), daemon.ends().len()), (0, 2));
}

#[test]
fn a_daemon_that_does_not_read_loses_records_and_delays_no_job() {
    let (mut session, mut daemon) = pair();
    for _ in 0..300 {
        session.end_cycle(Foresight::Nothing);
    }
    assert_eq!((daemon.ends().len(), session.counters().dropped), (256, 44));
    session.end_cycle(Foresight::Nothing);
    assert_eq!(daemon.ends()[0].k, 300);
}

#[test]
fn late_jobs_are_caught_up_back_to_back() {
    let (mut session, mut daemon) = pair();
    session.begin(Foresight::Nothing);
    burn(T.saturating_mul(3));
    session.end_cycle(Foresight::Nothing);
    assert_eq!(session.wait_for_next_job().k, 1);
    session.end_cycle(Foresight::Nothing);
    let jobs = daemon.ends();
    assert_eq!((jobs[1].release, session.counters().skipped), (jobs[0].release + T, 0));
    assert_eq!(session.quality().misses, 2);
}

#[test]
fn jobs_whose_deadline_has_passed_are_skipped_under_late_skip() {
    let (mut session, _daemon) = pair();
    session.on_late(LatePolicy::Skip);
    session.begin(Foresight::Nothing);
    burn(T.saturating_mul(3));
    let first = session.end_cycle(Foresight::Nothing);
    let next = session.wait_for_next_job();
    assert!(next.k >= 3, "{next:?}");
    assert_eq!(next.release, first.release + T.saturating_mul(next.k));
    assert_eq!(session.counters().skipped, next.k - 1);
}

#[test]
fn the_iterator_ends_every_job_that_it_began() {
    let (mut session, mut daemon) = pair();
    let mut jobs = session.jobs();
    let mut seen = Vec::new();
    while let Some(job) = jobs.next() {
        seen.push(job.k);
        jobs.expect_next(Foresight::Hint(job.k as f64));
        if job.k == 2 {
            break;
        }
    }
    drop(jobs);
    assert_eq!(seen, [0, 1, 2]);
    let reported: Vec<_> = daemon.ends().iter().map(|job| (job.k, job.next.hint())).collect();
    assert_eq!(reported, [(0, Some(0.0)), (1, Some(1.0)), (2, Some(2.0))]);
}

#[test]
fn a_periodic_job_runs_until_it_breaks() {
    let (mut session, mut daemon) = pair();
    session.start_periodic(
        |job| if job.k < 3 { ControlFlow::Continue(Foresight::Nothing) } else { ControlFlow::Break(()) },
    );
    assert_eq!(daemon.ends().len(), 3);
}

#[test]
fn the_session_reads_the_grant_of_the_daemon() {
    let (session, daemon) = pair();
    let (budget, period) = (Nanos::from_millis(1), Nanos::from_millis(2));
    let grant = Grant { budget, period, error_ns: -5, jobs: 3, ..Grant::default() };
    daemon.ring.publish(grant);
    assert_eq!(session.grant(), grant);
}

#[test]
fn the_callback_runs_only_at_the_begin_and_the_end_of_an_overload() {
    let (mut session, daemon) = pair();
    let reported = Rc::new(RefCell::new(Vec::new()));
    let seen = reported.clone();
    session.on_overload(move |change| seen.borrow_mut().push(change));
    let overload = |percent: u32| Overload { wanted: Share::ONE, granted: Share::from_ppm(percent * 10_000) };
    for now in [None, Some(overload(50)), Some(overload(40)), None, None] {
        daemon.ring.publish(Grant { overload: now, ..Grant::default() });
        assert_eq!(session.overload(), now);
        session.wait_for_next_job();
        session.end_cycle(Foresight::Nothing);
    }
    assert_eq!(*reported.borrow(), [OverloadChange::Begins(overload(50)), OverloadChange::Ends]);
    daemon.ring.publish(Grant { overload: Some(overload(50)), ..Grant::default() });
    assert_eq!(
        session.overload_changed(),
        Some(OverloadChange::Begins(overload(50))),
        "an application that waits by other means calls overload_changed"
    );
    assert_eq!(session.overload_changed(), None);
}

#[test]
fn a_job_predicted_to_be_late_has_a_lateness_and_can_be_skipped() {
    let (mut session, mut daemon) = pair();
    session.wait_for_next_job();
    assert_eq!(session.predicted_lateness(), None, "there is no prediction yet");
    let hour = Nanos::from_millis(3_600_000);
    daemon.ring.publish(Grant { predicted: hour, ..Grant::default() });
    let late = session.predicted_lateness().unwrap();
    assert!(late >= hour - T, "an hour from its release on, or later, less its period: {late}");
    session.skip();
    session.end_cycle(Foresight::Nothing);
    assert_eq!((session.counters().skipped, daemon.ends()[0].k), (1, 1), "the daemon sees that number 0 is missing");
}

#[test]
fn a_checkpoint_asks_only_if_the_application_saves_energy_and_its_job_is_late() {
    let (mut session, mut daemon) = pair();
    let hour = Nanos::from_millis(3_600_000);
    session.wait_for_next_job();
    daemon.ring.publish(Grant { predicted: hour, ..Grant::default() });
    daemon.ring.promise_look(Instant::NEVER);
    assert!(!session.checkpoint(0.5, 3), "it does not save energy");
    daemon.ring.ask_for_checkpoints();
    assert!(session.checkpoint(0.5, 0));
    let [JobEvent::Checkpoint(asked)] = daemon.events()[..] else { panic!("one checkpoint is sent") };
    assert_eq!((asked.k, asked.levels, daemon.wake_ups()), (0, 0, 1));
    assert!(asked.left_run >= Nanos::from_millis(1_800_000) && asked.left_time <= T, "{asked:?}");
    // From here on nothing is left, so that no speed of this machine decides.
    assert!(session.checkpoint(1.0, 0), "a job that hurried says that it need not any more");
    assert!(!session.checkpoint(1.0, 0));
    assert!(session.checkpoint(1.0, u8::MAX), "it asks for levels itself");
    let levels = |event| if let JobEvent::Checkpoint(asked) = event { Some(asked.levels) } else { None };
    let asked: Vec<_> = daemon.events().into_iter().map(levels).collect();
    assert_eq!(asked, [Some(0), Some(Checkpoint::MAX_LEVELS)]);
    session.end_cycle(Foresight::Nothing);
    let [JobEvent::Checkpoint(ended), JobEvent::End(_)] = daemon.events()[..] else { panic!("the clock may fall") };
    assert_eq!((ended.k, ended.left_run, ended.levels), (0, Nanos::ZERO, 0));
    assert!(!session.checkpoint(1.0, 0), "another job");
    session.end_cycle(Foresight::Nothing);
    assert_eq!(daemon.events().len(), 1, "it did not hurry");
    assert!([f64::NAN, -0.1, 1.1].into_iter().all(|done| !session.checkpoint(done, 9)));
    assert_eq!(session.counters().nonsense, 3);
}

/// Predicts the last cost ± 10 ns; no prediction for jobs with the hint -1.
struct Last(Nanos);

impl Predictor for Last {
    fn observe(&mut self, cost: Nanos, _: Option<f64>) {
        self.0 = cost;
    }
    fn predict(&mut self, hint: Option<f64>) -> Option<Interval> {
        let ten = Nanos::new(10);
        (hint != Some(-1.0)).then_some(Interval { low: self.0 - ten, high: self.0 + ten })
    }
}

#[test]
fn the_applications_predictor_replaces_the_daemons() {
    let (mut session, mut daemon) = pair();
    session.use_predictor(Box::new(Last(Nanos::ZERO)));
    for next in [Foresight::Nothing, Foresight::Hint(-1.0), Foresight::Budget(Nanos::new(9))] {
        session.end_cycle(next);
    }
    let jobs = daemon.ends();
    let (low, high) = (jobs[0].cost - Nanos::new(10), jobs[0].cost + Nanos::new(10));
    let reported: Vec<_> = jobs.iter().map(|job| job.next).collect();
    let own = Foresight::Interval { low, high };
    assert_eq!(reported, [own, Foresight::Hint(-1.0), Foresight::Budget(Nanos::new(9))]);
}

/// Requests 1.5 times the predicted cost; an invalid budget without a grant.
struct Half;

impl Controller for Half {
    fn on_usage(&mut self, usage: &Usage, predicted: Option<Interval>) -> Option<Nanos> {
        let predicted = predicted?;
        usage.granted.map_or(Some(Nanos::MAX), |_| Some(Nanos::new(predicted.high.get() * 3 / 2)))
    }
}

#[test]
fn the_applications_controller_decides_from_usage_grant_and_prediction() {
    let (mut session, mut daemon) = pair();
    session.use_predictor(Box::new(Last(Nanos::ZERO)));
    session.use_controller(Box::new(Half));
    session.end_cycle(Foresight::Nothing);
    daemon.ring.publish(Grant { budget: Nanos::from_millis(1), period: Nanos::from_millis(2), ..Grant::default() });
    session.end_cycle(Foresight::Nothing);
    let jobs = daemon.ends();
    assert_eq!((jobs[0].next, session.counters().nonsense), (Foresight::Nothing, 1));
    assert_eq!(jobs[1].next, Foresight::Budget(Nanos::new((jobs[1].cost.get() + 10) * 3 / 2)));
}

#[test]
fn invalid_foresight_does_not_lose_the_record() {
    let (mut session, mut daemon) = pair();
    session.end_cycle(Foresight::Hint(f64::NAN));
    session.end_cycle(Foresight::Interval { low: Nanos::new(5), high: Nanos::new(4) });
    assert!(daemon.ends().iter().all(|job| job.next.is_nothing()));
    assert_eq!((session.counters().nonsense, daemon.consumer.rejected), (2, 0));
}

#[test]
fn a_session_without_a_daemon_paces_and_measures() {
    let mut session = Session::alone(Contract::new("alone", T)).unwrap();
    let started = clock::now();
    session.start_periodic(|job| match job.k {
        3 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(Foresight::Nothing),
    });
    assert!(clock::now().since(started) >= T.saturating_mul(3));
    assert_eq!((session.grant(), session.quality().jobs), (Grant::default(), 3));
    assert!(matches!(session.connection(), Connection::Alone { .. }));
    assert_eq!(session.end().map_err(|e| e.to_string()), Ok(()));
}

#[test]
fn probing_finds_the_utilisation() {
    let mut cpu = Cpu::new();
    cpu.probe_on(T);
    for _ in 0..5 {
        burn(Nanos::from_millis(2));
        cpu.yield_now();
    }
    let probe = cpu.probe_off();
    assert_eq!(probe.profile.costs.len(), 5);
    assert!((0.25..0.45).contains(&probe.utilisation.as_f64()), "{}", probe.utilisation);
    assert_eq!(cpu.probe_off(), Default::default());
}
