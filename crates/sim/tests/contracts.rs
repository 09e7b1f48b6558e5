//! The promises of joint contracts, under random requests, bad networks and crashes. [`World`] checks them after
//! every event.

use qfabric_sim::contracts::{Conditions, Crash, Report, Timing, Workload, World, compare};
use qfabric_types::{Nanos, RandomNumbers};

const HOLD: Nanos = Nanos::from_millis(3_000);

fn conditions(hosts: usize) -> Conditions {
    let (loss, duplicates, skew, consent, closings) = (0.0, 0.0, 0.0, 1.0, 0);
    let delay = Nanos::from_millis(5);
    Conditions { hosts, loss, duplicates, delay, skew, consent, closings, timing: Timing::default() }
}

/// Random conditions: up to a tenth of the messages is lost, and as many arrive twice.
fn bad_conditions(hosts: usize, random: &mut RandomNumbers) -> Conditions {
    let mut uniform = || random.uniform();
    Conditions {
        hosts,
        loss: uniform() * 0.1,
        duplicates: uniform() * 0.1,
        delay: Nanos::from_f64(uniform() * 1e8),
        skew: uniform() / 128.0,
        consent: 0.5 + uniform() / 2.0,
        closings: 0,
        timing: Timing { hold: HOLD, attempts: 1 + (uniform() * 8.0) as u32 },
    }
}

fn workload(hosts: usize, requests: usize, random: &mut RandomNumbers) -> Workload {
    Workload {
        hosts,
        requests,
        interval: Nanos::from_f64(random.uniform() * 5e8),
        lifetime: Nanos::from_f64(random.uniform() * 4e9),
        largest: 0.2 + 0.8 * random.uniform(),
        minimum: random.uniform(),
        consent: random.uniform() / 2.0,
        patience_ms: 0,
    }
}

/// 2 to `hosts` hosts and 1 to `requests` requests.
fn run(seed: u64, (hosts, requests): (usize, usize), crash: Option<Crash>) -> Report {
    let mut random = RandomNumbers::new(seed);
    let hosts = 2 + (random.uniform() * (hosts - 1) as f64) as usize;
    let requests = 1 + (random.uniform() * requests as f64) as usize;
    let (conditions, workload) = (bad_conditions(hosts, &mut random), workload(hosts, requests, &mut random));
    World::new(conditions, workload.arrivals(seed), crash, seed).run()
}

/// As [`run`] without a crash, and the requests are tried again for up to 10 s.
fn run_with_patience(seed: u64) -> Report {
    let mut random = RandomNumbers::new(seed);
    let hosts = 2 + (random.uniform() * 5.0) as usize;
    let (conditions, workload) = (bad_conditions(hosts, &mut random), workload(hosts, 12, &mut random));
    let workload = Workload { patience_ms: (random.uniform() * 1e4) as u64, ..workload };
    World::new(conditions, workload.arrivals(seed), None, seed).run()
}

#[test]
fn two_thousand_random_patterns_keep_every_promise() {
    let mut sum = Report::default();
    for seed in 0..2_000 {
        let report = run(seed, (6, 8), None);
        sum.requests += report.requests;
        sum.in_force += report.in_force;
        sum.partial += report.partial;
        sum.upgraded += report.upgraded;
        sum.refused += report.refused;
        sum.rounds = sum.rounds.max(report.rounds);
    }
    println!("{sum:?}");
    assert_eq!(sum.requests, sum.in_force + sum.refused);
    assert!(sum.in_force > 1_000 && sum.refused > 1_000, "both outcomes occur");
    assert!(sum.partial > 100 && sum.upgraded > 10 && sum.rounds > 4, "partial contracts, upgrades and many attempts");
}

#[test]
fn requests_with_patience_keep_every_promise() {
    let mut sum = Report::default();
    for seed in 0..400 {
        let report = run_with_patience(seed);
        sum.requests += report.requests;
        sum.in_force += report.in_force;
        sum.refused += report.refused;
        sum.rounds = sum.rounds.max(report.rounds);
    }
    println!("{sum:?}");
    assert_eq!(sum.requests, sum.in_force + sum.refused);
    assert!(sum.in_force > 1_000 && sum.refused > 100 && sum.rounds > 16, "both outcomes occur, after many attempts");
}

#[test]
fn links_that_are_closed_end_their_contracts_and_no_others() {
    let mut sum = Report::default();
    for seed in 0..400 {
        let mut random = RandomNumbers::new(seed);
        let conditions = Conditions { closings: 1 + (seed % 4) as u32, ..bad_conditions(3, &mut random) };
        let workload = workload(3, 8, &mut random);
        let report = World::new(conditions, workload.arrivals(seed), None, seed).run();
        sum.requests += report.requests;
        sum.in_force += report.in_force;
        sum.ended += report.ended;
    }
    println!("{sum:?}");
    assert!(sum.ended > 20 && sum.ended < sum.in_force / 2, "some contracts end, most do not");
}

/// The crash is placed at each output of each host: between any two messages, orders and effects.
fn crash_at_every_output(seed: u64) -> u64 {
    let outputs = run(seed, (3, 2), None).outputs;
    let mut crashes = 0;
    for (host, count) in outputs.into_iter().enumerate() {
        for at_output in 1..=count {
            for pause in [Nanos::ZERO, Nanos::new(HOLD.get() / 2)] {
                run(seed, (3, 2), Some(Crash { host, at_output, pause }));
                crashes += 1;
            }
        }
    }
    crashes
}

#[test]
fn a_crash_of_any_host_at_any_step_breaks_no_promise() {
    let crashes: u64 = (0..6).map(crash_at_every_output).sum();
    println!("{crashes} crashes");
    assert!(crashes > 500);
}

#[test]
fn without_loss_and_contention_a_contract_takes_two_round_trips() {
    let workload = Workload {
        hosts: 4,
        requests: 1,
        interval: Nanos::ZERO,
        lifetime: Nanos::ZERO,
        largest: 1.0,
        minimum: 1.0,
        consent: 0.0,
        patience_ms: 0,
    };
    for seed in 0..200 {
        let report = World::new(conditions(4), workload.arrivals(seed), None, seed).run();
        assert_eq!((report.in_force, report.rounds), (1, 1), "seed {seed}");
        assert!(report.setup[0] <= Nanos::from_millis(4 * 5), "seed {seed}: {}", report.setup[0]);
    }
}

#[test]
fn hold_and_wait_deadlocks_where_holds_that_expire_and_the_banker_do_not() {
    let workload = Workload {
        hosts: 3,
        requests: 40,
        interval: Nanos::from_millis(100),
        lifetime: Nanos::from_millis(1_000),
        largest: 0.9,
        minimum: 1.0,
        consent: 0.0,
        patience_ms: 0,
    };
    let comparison = compare(workload, 10, 10_000, 1);
    println!("{comparison}");
    let deadlocked: Vec<u64> = comparison.rows.iter().map(|row| row.deadlocked).collect();
    assert_eq!(deadlocked[..5], [0; 5]);
    assert!(deadlocked[5] > 0);
    assert!(comparison.rows.iter().all(|row| row.in_force > 0));
    let [without, with, banker] = [0, 2, 4].map(|row| comparison.rows[row].in_force);
    assert!(
        with > 2 * without && 4 * with > 3 * banker,
        "{without} without patience, {with} with it, {banker} of the banker"
    );
}
