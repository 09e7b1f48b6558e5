//! Random players come and go on a real host with a kernel that refuses some settings. For every seed, the
//! reserved bandwidth never exceeds the capacity, all jobs end, and no bandwidth stays reserved.

mod common;

use common::*;
use qfabric_host::Limits;
use qfabric_sched::MachineConfig;
use qfabric_sim::video::Video;
use qfabric_sim::world::{Outcomes, Player, Policy, Scenario, Skip, World};
use qfabric_types::{Choice, Class, Contract, Instant, Nanos, Reclaiming, Share};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn any_contract(random: &mut ChaCha8Rng, period: Nanos) -> Contract {
    let predictors = ["ma:12", "mma:3,12", "pct:24,90", "hint:24", "ol:6,20"];
    let periods = [1, 2, 4, 8][random.random_range(0..4)];
    let mut contract = contract(
        Nanos::new(period.get() / periods),
        predictors[random.random_range(0..predictors.len())],
        random.random_range(0.0..2.0),
        [Reclaiming::Hard, Reclaiming::Grub][random.random_range(0..2)],
    );
    contract.period = period;
    contract.weight = random.random_range(1..10);
    contract.priority = random.random_range(0..10);
    contract.choice =
        [Choice::Left, Choice::Middle, Choice::Right, Choice::Zero, Choice::Cost][random.random_range(0..5)];
    contract.max_bandwidth = Share::from_f64(random.random_range(0.1..1.0));
    if random.random_range(0..4) == 0 {
        (contract.class, contract.guaranteed) = (Class::B, Some(Share::from_ppm(90_000)));
    }
    contract
}

fn any_player(random: &mut ChaCha8Rng, seed: u64, i: u64) -> Player {
    let period = [T, Nanos::from_millis(20), Nanos::from_millis(32)][random.random_range(0..3)];
    let contract = any_contract(random, period);
    let start = Instant::new(random.random_range(0..4_000_000_000));
    let mean = random.random_range(0.02..0.3);
    let shift = start + Nanos::from_millis(random.random_range(100..3_000));
    let video = Video { period, mean, mean_after: random.random_range(0.02..0.3), shift, noise: 0.2 };
    let jobs = video.jobs(random.random_range(1..120), start, seed, i);
    let (server_period, policy) = (contract.server_period, Policy::Fabric(Box::new(contract)));
    Player { period, server_period, start, jobs, policy, skip: Skip::None, oracle: false }
}

fn run(seed: u64) -> (Vec<usize>, Outcomes) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let players: Vec<Player> = (0..random.random_range(1..14)).map(|i| any_player(&mut random, seed, i)).collect();
    let jobs = players.iter().map(|player| player.jobs.len()).collect();
    let scenario = Scenario {
        // Without hogs, so that a player without a reservation still ends its jobs.
        machine: MachineConfig { cpus: 2, hogs: 0, bound: Share::from_ppm(900_000), ..MachineConfig::default() },
        limits: Limits::of_capacity(CAPACITY),
        players,
        until: Instant::new(120_000_000_000),
        faults: Some((seed, random.random_range(2..20))),
        death: None,
        control: None,
    };
    (jobs, World::new(scenario).run())
}

#[test]
fn for_every_seed_the_capacity_is_kept_and_all_reservations_are_undone() {
    for seed in 0..60 {
        let (jobs, outcomes) = run(seed);
        assert!(outcomes.most_reserved <= CAPACITY, "seed {seed}: {} reserved", outcomes.most_reserved);
        let ended: Vec<usize> = outcomes.rows.iter().map(|row| row.jobs as usize).collect();
        assert_eq!(ended, jobs, "seed {seed}: some jobs never ended");
        assert_eq!(outcomes.still_reserved, Share::ZERO, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let ((_, first), (_, again)) = (run(11), run(11));
    assert_eq!((first.rows, first.settings, first.wakeups), (again.rows, again.settings, again.wakeups));
}
