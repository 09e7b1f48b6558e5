//! Guarantees of a reservation, independent of other load.

use proptest::prelude::*;
use qfabric_sched::{Finished, Machine, MachineConfig, TaskId};
use qfabric_types::{Instant, Nanos, Reclaiming, Reservation, Share};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant::new(ms * MS)
}

fn reservation(budget_us: u64, period_ms: u64) -> Reservation {
    Reservation::new(Nanos::from_micros(budget_us), Nanos::from_millis(period_ms)).unwrap()
}

fn machine(cpus: usize, bound_percent: u32) -> Machine {
    Machine::new(MachineConfig {
        cpus,
        bound: Share::from_ppm(bound_percent * 10_000),
        hogs: 4,
        ..MachineConfig::default()
    })
}

/// A task with a reservation and jobs `(release in ms, cost in µs)`.
#[derive(Clone, Debug)]
struct Load {
    reservation: Reservation,
    mode: Reclaiming,
    jobs: Vec<(u64, u64)>,
}

fn run(machine: &mut Machine, loads: &[Load], until: Instant) -> Vec<Finished> {
    let tasks: Vec<TaskId> = loads.iter().map(|_| machine.spawn()).collect();
    for (load, &task) in loads.iter().zip(&tasks) {
        machine.reserve(task, Some((load.reservation, load.mode))).unwrap();
    }
    let mut releases: Vec<(u64, TaskId, u64)> = Vec::new();
    for (load, &task) in loads.iter().zip(&tasks) {
        releases.extend(load.jobs.iter().map(|&(release, cost)| (release, task, cost)));
    }
    releases.sort();
    let mut finished = Vec::new();
    for (release, task, cost_us) in releases {
        finished.extend(std::iter::from_fn(|| machine.run_until(at(release))));
        machine.release(task, Nanos::from_micros(cost_us));
    }
    finished.extend(std::iter::from_fn(|| machine.run_until(until)));
    finished
}

fn jobs() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0u64..400, 100u64..30_000), 1..12)
}

fn load() -> impl Strategy<Value = Load> {
    let mode = prop::sample::select(Reclaiming::ALL.to_vec());
    (500u64..4_000, 5u64..30, mode, jobs()).prop_map(|(budget_us, period_ms, mode, mut jobs)| {
        jobs.sort();
        Load { reservation: reservation(budget_us, period_ms), mode, jobs }
    })
}

/// Loads that fit together within the bound of one CPU.
fn loads(bound: f64) -> impl Strategy<Value = Vec<Load>> {
    prop::collection::vec(load(), 1..7).prop_map(move |mut loads| {
        let mut sum = 0.0;
        loads.retain(|load| {
            sum += load.reservation.share().as_f64();
            sum <= bound
        });
        loads
    })
}

#[test]
fn one_hard_server_alone_spends_its_budget_once_per_period() {
    let mut machine = machine(1, 100);
    let load = Load { reservation: reservation(2_000, 10), mode: Reclaiming::Hard, jobs: vec![(0, 7_000)] };
    let finished = run(&mut machine, &[load], at(100));
    assert_eq!(finished[0].finish, at(31), "2 ms at 0, 10, 20 and 1 ms at 30");
    assert_eq!(finished[0].virtual_finish, Some(at(40)));
}

#[test]
fn soft_and_reclaiming_servers_use_idle_time() {
    for (mode, done_by) in [(Reclaiming::Soft, at(7)), (Reclaiming::Grub, at(8)), (Reclaiming::Iris, at(7))] {
        let mut machine = machine(1, 95);
        let load = Load { reservation: reservation(2_000, 10), mode, jobs: vec![(0, 7_000)] };
        let finished = run(&mut machine, &[load], at(100));
        assert!(finished[0].finish <= done_by, "{mode:?}: {}", finished[0].finish.get());
    }
}

#[test]
fn a_lone_reclaiming_server_gets_the_bound_and_no_more() {
    let mut machine = machine(1, 95);
    let load = Load { reservation: reservation(1_000, 10), mode: Reclaiming::Grub, jobs: vec![(0, 950_000)] };
    let finish = run(&mut machine, &[load], at(2_000))[0].finish.get() / MS;
    assert!((990..=1_010).contains(&finish), "950 ms of work took {finish} ms");
}

/// GRUB divides U_max between the running server and the fair server in proportion to their bandwidths.
#[test]
fn a_reclaiming_server_leaves_the_part_of_the_fair_server() {
    let bound = Share::from_ppm(950_000);
    let fair_server = Share::from_ppm(50_000);
    let mut machine = Machine::new(MachineConfig { bound, hogs: 4, fair_server, ..MachineConfig::default() });
    // 950 ms x 0.1/(0.1 + 0.05) in a second.
    let load = Load { reservation: reservation(1_000, 10), mode: Reclaiming::Grub, jobs: vec![(0, 633_333)] };
    let finish = run(&mut machine, &[load], at(2_000))[0].finish.get() / MS;
    assert!((990..=1_010).contains(&finish), "633 ms of work took {finish} ms");
}

/// Two servers that always want more, and one that sleeps; its 40 % are the idle time.
#[test]
fn iris_shares_idle_time_in_proportion_to_bandwidth() {
    let mut machine = machine(1, 100);
    let load = |budget_us, mode, jobs| Load { reservation: reservation(budget_us, 10), mode, jobs };
    let iris = |budget_us| load(budget_us, Reclaiming::Iris, (0..3_000).map(|_| (0, 1_000)).collect());
    let sleeper = load(4_000, Reclaiming::Hard, vec![]);
    let finished = run(&mut machine, &[iris(4_000), iris(2_000), sleeper], at(900));
    let done = |task| finished.iter().filter(|job| job.task == TaskId(task)).count();
    assert!((598..=602).contains(&done(0)) && (298..=302).contains(&done(1)), "{} and {}", done(0), done(1));
}

#[test]
fn iris_takes_no_time_that_another_server_wants() {
    let mut machine = machine(1, 100);
    let load = |budget_us, mode| Load { reservation: reservation(budget_us, 10), mode, jobs: vec![(0, 500_000)] };
    let loads = [load(3_000, Reclaiming::Iris), load(7_000, Reclaiming::Hard)];
    let finished = run(&mut machine, &loads, at(2_000));
    let hard = finished.iter().find(|job| job.task == TaskId(1)).unwrap().finish;
    assert!(hard <= at(720), "500 ms at 7 in 10 ms took {} ms", hard.get() / MS);
}

#[test]
fn best_effort_gets_the_rest_in_equal_parts() {
    let mut machine = machine(2, 95);
    let task = machine.spawn();
    machine.release(task, Nanos::from_millis(10));
    let finished = machine.run_until(at(1_000)).unwrap();
    assert_eq!(finished.finish, at(25), "two CPUs for four hogs and the task: two fifths of one CPU");
    assert_eq!(finished.virtual_finish, None);
}

#[test]
fn a_spent_budget_is_noticed_at_the_tick() {
    let tick = Nanos::from_millis(4);
    let mut machine = Machine::new(MachineConfig { tick, ..MachineConfig::default() });
    let load = Load { reservation: reservation(2_000, 10), mode: Reclaiming::Hard, jobs: vec![(0, 400_000)] };
    let finish = run(&mut machine, &[load], at(5_000))[0].finish.get() / MS;
    assert!((1_980..=2_020).contains(&finish), "the average is exact: 400 ms at 20 % took {finish} ms");
}

#[test]
fn a_reservation_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let mut machine = machine(1, 90);
    let (first, second) = (machine.spawn(), machine.spawn());
    machine.reserve(first, Some((reservation(5_000, 10), Reclaiming::Hard))).unwrap();
    machine.reserve(second, Some((reservation(4_000, 10), Reclaiming::Hard))).unwrap();
    let refusal = machine.reserve(second, Some((reservation(4_001, 10), Reclaiming::Hard))).unwrap_err();
    assert_eq!(refusal.free, Share::from_ppm(400_000));
    assert_eq!(machine.server(second).unwrap().reservation(), reservation(4_000, 10));
}

#[test]
fn a_reservation_given_up_counts_until_its_deadline() {
    let mut machine = machine(1, 90);
    let (first, second) = (machine.spawn(), machine.spawn());
    machine.reserve(first, Some((reservation(5_000, 10), Reclaiming::Hard))).unwrap();
    machine.release(first, Nanos::from_millis(3));
    while machine.run_until(at(4)).is_some() {}
    machine.reserve(first, None).unwrap();
    assert!(machine.reserve(second, Some((reservation(5_000, 10), Reclaiming::Hard))).is_err());
    machine.run_until(at(10));
    assert!(machine.reserve(second, Some((reservation(5_000, 10), Reclaiming::Hard))).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Theorem 1 and Corollary 1: on one CPU, with a sum of at most one CPU, no job ends after its virtual
    /// finishing time.
    #[test]
    fn no_job_ends_after_its_virtual_finishing_time(loads in loads(1.0)) {
        let mut machine = machine(1, 100);
        for finished in run(&mut machine, &loads, at(60_000)) {
            let bound = finished.virtual_finish.unwrap();
            prop_assert!(finished.finish <= bound, "{} after {}", finished.finish.get(), bound.get());
        }
        for task in 0..loads.len() {
            prop_assert_eq!(machine.backlog(TaskId(task)), 0, "work is lost");
        }
    }

    /// Temporal protection: other load does not change the virtual finishing times of a hard reservation whose jobs
    /// are released at whole server periods.
    #[test]
    fn a_hard_reservation_behaves_as_if_it_were_alone(mut loads in loads(1.0)) {
        let first = &mut loads[0];
        let period_ms = first.reservation.period().get() / MS;
        first.mode = Reclaiming::Hard;
        first.jobs.iter_mut().for_each(|job| job.0 = job.0 / period_ms * period_ms);
        let of_first = |loads: &[Load]| -> Vec<_> {
            let finished = run(&mut machine(1, 100), loads, at(60_000));
            finished.iter().filter(|f| f.task == TaskId(0)).map(|f| f.virtual_finish).collect()
        };
        prop_assert_eq!(of_first(&loads[..1]), of_first(&loads));
    }

    /// A job that starts in a fresh period and stays backlogged ends within ⌈c/Q⌉ periods, also among other load.
    #[test]
    fn a_backlogged_job_gets_its_budget_in_every_period(mut loads in loads(1.0), cost_us in 100u64..40_000) {
        (loads[0].mode, loads[0].jobs) = (Reclaiming::Hard, vec![(50, cost_us)]);
        let mut machine = machine(1, 100);
        let finished = run(&mut machine, &loads, at(60_000));
        let job = finished.iter().find(|f| f.task == TaskId(0)).unwrap();
        let (q, p) = (loads[0].reservation.budget(), loads[0].reservation.period());
        let periods = (cost_us * 1_000).div_ceil(q.get());
        prop_assert_eq!(job.virtual_finish, Some(at(50) + p.saturating_mul(periods)));
        prop_assert!(Some(job.finish) <= job.virtual_finish);
    }

    /// Reclaiming does not delay other reservations: their jobs still end in time.
    #[test]
    fn reclaiming_harms_no_reservation(mut loads in loads(0.95)) {
        loads.iter_mut().for_each(|load| load.mode = Reclaiming::Grub);
        let mut machine = machine(1, 95);
        for finished in run(&mut machine, &loads, at(60_000)) {
            prop_assert!(Some(finished.finish) <= finished.virtual_finish);
        }
    }

    /// On several CPUs no server spends more than its reservation: a hard server never gets more than Q in P.
    #[test]
    fn hard_servers_never_get_more_than_their_bandwidth(cpus in 1usize..4, work_ms in 50u64..300) {
        let mut machine = machine(cpus, 95);
        let load = |budget| Load { reservation: reservation(budget, 10), mode: Reclaiming::Hard, jobs: vec![(0, work_ms * 1_000)] };
        let loads: Vec<_> = (0..cpus * 3).map(|_| load(3_000)).collect();
        for finished in run(&mut machine, &loads, at(60_000)) {
            let full = work_ms.div_ceil(3) - 1;
            prop_assert!(finished.finish >= at(full * 10), "{} ms", finished.finish.get() / MS);
        }
    }
}
