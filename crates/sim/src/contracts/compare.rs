//! The protocol beside Banker's algorithm and hold-and-wait: the same requests, on a network without loss.

use std::fmt;

use qfabric_types::{Nanos, RandomNumbers};

use super::banker::{Bank, Outcome, Policy};
use super::{Conditions, Timing, Workload, World};

/// The results of one policy.
#[derive(Clone, Debug)]
pub struct Row {
    pub policy: &'static str,
    pub requests: u64,
    pub in_force: u64,
    /// Requests that were in a deadlock when their patience ended.
    pub deadlocked: u64,
    /// Messages until the contract is in force or refused, and at its end. Renewals count for the protocol.
    pub messages: u64,
    /// Time from request until in force.
    pub median: Nanos,
    pub p99: Nanos,
}

/// All policies with the same requests.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub rows: Vec<Row>,
}

/// The protocol's rows: the minimum as a part of the wanted amount, and whether the request has patience.
const PROTOCOL: [(&str, f64, bool); 4] = [
    ("holds, all of it", 1.0, false),
    ("holds, half is enough", 0.5, false),
    ("holds with patience, all of it", 1.0, true),
    ("holds with patience, half is enough", 0.5, true),
];

const RIVALS: [(&str, Policy); 2] = [("banker", Policy::Banker), ("hold and wait", Policy::HoldAndWait)];

/// Runs `runs` patterns of requests. After `patience_ms` a waiting process of the rivals gives up, and a request with
/// patience is refused.
pub fn compare(workload: Workload, runs: u64, patience_ms: u64, seed: u64) -> Comparison {
    let delay = Nanos::from_millis(5);
    let mut random = RandomNumbers::new(seed);
    let mut rows: Vec<Sum> = PROTOCOL.iter().map(|(policy, ..)| Sum::new(policy)).collect();
    rows.extend(RIVALS.map(|(policy, _)| Sum::new(policy)));
    for _ in 0..runs {
        let seed = random.draw();
        for (sum, (_, minimum, is_patient)) in rows.iter_mut().zip(PROTOCOL) {
            let patience_ms = if is_patient { patience_ms } else { 0 };
            let arrivals = Workload { minimum, patience_ms, ..workload }.arrivals(seed);
            sum.protocol(World::new(conditions(workload, delay), arrivals, None, seed));
        }
        let arrivals = Workload { minimum: 1.0, ..workload }.arrivals(seed);
        for (sum, (_, policy)) in rows[PROTOCOL.len()..].iter_mut().zip(RIVALS) {
            let limits = (delay, Nanos::from_millis(patience_ms));
            let outcome = Bank::run(policy, &arrivals, workload.hosts, limits, seed);
            sum.add(arrivals.len() as u64, outcome);
        }
    }
    Comparison { rows: rows.into_iter().map(Sum::row).collect() }
}

fn conditions(workload: Workload, delay: Nanos) -> Conditions {
    let (loss, duplicates, skew, consent, closings) = (0.0, 0.0, 0.0, 1.0, 0);
    Conditions { hosts: workload.hosts, loss, duplicates, delay, skew, consent, closings, timing: Timing::default() }
}

struct Sum {
    policy: &'static str,
    requests: u64,
    outcome: Outcome,
}

impl Sum {
    fn new(policy: &'static str) -> Sum {
        Sum { policy, requests: 0, outcome: Outcome::default() }
    }

    fn protocol(&mut self, world: World) {
        let report = world.run();
        let (in_force, messages, setup) = (report.in_force, report.messages, report.setup);
        self.add(report.requests, Outcome { in_force, messages, setup, deadlocked: 0 });
    }

    fn add(&mut self, requests: u64, outcome: Outcome) {
        self.requests += requests;
        self.outcome.in_force += outcome.in_force;
        self.outcome.messages += outcome.messages;
        self.outcome.deadlocked += outcome.deadlocked;
        self.outcome.setup.extend(outcome.setup);
    }

    fn row(mut self) -> Row {
        self.outcome.setup.sort();
        let quantile = |part: f64| {
            let setup = &self.outcome.setup;
            setup.get((setup.len() as f64 * part) as usize).copied().unwrap_or_default()
        };
        let (median, p99) = (quantile(0.5), quantile(0.99));
        let Outcome { in_force, deadlocked, messages, .. } = self.outcome;
        Row { policy: self.policy, requests: self.requests, in_force, deadlocked, messages, median, p99 }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| policy | requests | in force | deadlocked | messages per request | setup p50 | setup p99 |")?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let Row { policy, requests, in_force, deadlocked, messages, median, p99 } = row;
            let part = 100.0 * *in_force as f64 / (*requests).max(1) as f64;
            let each = *messages as f64 / (*requests).max(1) as f64;
            writeln!(
                f,
                "| {policy} | {requests} | {part:.1} % | {deadlocked} | {each:.1} | {:.1} ms | {:.1} ms |",
                median.as_f64() / 1e6,
                p99.as_f64() / 1e6
            )?;
        }
        Ok(())
    }
}
