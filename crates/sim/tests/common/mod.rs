//! Six players on two CPUs near capacity, whose load shifts half-way; and tables of results stored as text.
#![allow(dead_code)]

use qfabric_host::Limits;
use qfabric_sched::MachineConfig;
use qfabric_sim::video::Video;
use qfabric_sim::world::{Outcomes, Player, Policy, Scenario, Skip, World};
use qfabric_types::{Contract, Instant, JobSource, Nanos, Reclaiming, Reservation, Share};

pub(crate) const T: Nanos = Nanos::from_millis(40);
/// Capacity of two CPUs if 90 % may be reserved.
pub(crate) const CAPACITY: Share = Share::from_ppm(1_800_000);
/// Each result is the mean over these seeds.
pub(crate) const SEEDS: [u64; 3] = [0, 1, 2];

/// A row of the comparison: the scheduling of all players.
pub(crate) type Scheduled<'a> = &'a dyn Fn(Nanos) -> Policy;

/// The whole capacity in fixed, equal shares.
pub(crate) fn equal_shares(p: Nanos, mode: Reclaiming) -> Policy {
    let budget = Share::from_ppm(CAPACITY.ppm() / 6).budget_in(p);
    Policy::Static(Reservation::new(budget, p).unwrap(), mode)
}

/// A contract like that of the demo's players.
pub(crate) fn contract(p: Nanos, predictor: &str, rho: f64, reclaiming: Reclaiming) -> Contract {
    let mut contract = Contract::new("player", T);
    (contract.jobs, contract.server_period) = (JobSource::Marked, p);
    (contract.predictor, contract.rho) = (predictor.parse().unwrap(), rho);
    (contract.early, contract.max_bandwidth, contract.reclaiming) = (0.25, Share::from_ppm(900_000), reclaiming);
    contract
}

/// Half of the players begin with a light load (16 % of a CPU) and become heavy (32 %), the other half the
/// reverse: 80 % of the capacity on average, and more than 100 % when heavy frames coincide.
pub(crate) fn load_shift(policy: Scheduled, p: Nanos, tick: Nanos, seconds: u64, seed: u64) -> Scenario {
    let shift = Instant::new(seconds * 500_000_000);
    let player = |i: u64| {
        let (mean, mean_after) = if i.is_multiple_of(2) { (0.16, 0.32) } else { (0.32, 0.16) };
        let start = Instant::new(1_000_000 + i * 6_700_000);
        let video = Video { period: T, mean, mean_after, shift, noise: 0.12 };
        let jobs = video.jobs(seconds as usize * 25 - 2, start, seed, i);
        Player { period: T, server_period: p, start, jobs, policy: policy(p), skip: Skip::None, oracle: false }
    };
    Scenario {
        machine: MachineConfig { cpus: 2, hogs: 12, bound: Share::from_ppm(900_000), tick, ..MachineConfig::default() },
        limits: Limits::of_capacity(CAPACITY),
        players: (0..6).map(player).collect(),
        until: Instant::new(seconds * 1_000_000_000),
        faults: None,
        death: None,
        control: None,
    }
}

/// One row of a table, the mean over [`SEEDS`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub misses: f64,
    pub in_target: f64,
    pub reserved: f64,
    pub settings_per_job: f64,
}

pub(crate) fn measure(policy: Scheduled, p: Nanos, tick: Nanos, seconds: u64) -> Row {
    let mut row = Row::default();
    let part = 1.0 / SEEDS.len() as f64;
    for seed in SEEDS {
        let outcomes = World::new(load_shift(policy, p, tick, seconds, seed)).run();
        check(&outcomes, tick, seed);
        let jobs: u64 = outcomes.rows.iter().map(|row| row.jobs).sum();
        row.misses += part * outcomes.misses();
        row.in_target += part * outcomes.in_target();
        row.reserved += part * outcomes.reserved;
        row.settings_per_job += part * outcomes.settings as f64 / jobs as f64;
    }
    row
}

/// Checks the invariants of every run.
fn check(outcomes: &Outcomes, tick: Nanos, seed: u64) {
    assert!(outcomes.most_reserved <= CAPACITY, "seed {seed}: {} reserved", outcomes.most_reserved);
    // With enforcement at the tick, budgets are overdrawn, and a removed reservation may stay booked for longer
    // than its period.
    if tick == Nanos::ZERO {
        assert_eq!(outcomes.refused, 0, "seed {seed}: the kernel refused a setting that the host considered possible");
    }
}

/// Compares the table with the stored one, or stores it if `QFABRIC_GRIDS=write` is set.
pub(crate) fn compare_with_stored(name: &str, table: &str) {
    let path = format!("{}/tests/grids/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("QFABRIC_GRIDS").as_deref() == Ok("write") {
        std::fs::write(&path, table).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(stored, table, "{path} differs; if the new numbers are intended, run again with QFABRIC_GRIDS=write");
}
