//! Random requests for joint contracts.

use qfabric_types::api::contracts::{JointPart, JointRequest};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos, RandomNumbers, Resource, Resources};

/// One request.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    /// Index of the initiator's host.
    pub initiator: usize,
    pub request: JointRequest,
    /// Time that the contract stays in force.
    pub lifetime: Nanos,
}

/// A pattern of requests that its seed determines.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub hosts: usize,
    pub requests: usize,
    /// Mean time between requests.
    pub interval: Nanos,
    pub lifetime: Nanos,
    /// Largest part of a host's capacity that one request wants.
    pub largest: f64,
    /// The minimum as a part of the wanted amount; 1: all or nothing per resource.
    pub minimum: f64,
    /// Part of the requests that need the consent of an application on each host.
    pub consent: f64,
    /// Time for which a refused request is tried again, in milliseconds.
    pub patience_ms: u64,
}

/// The capacity of every host: 1 CPU, 1 GiB, 1 Gbit/s out.
pub(super) fn capacity() -> Resources {
    vector([1_000_000, 1 << 30, 1_000_000_000])
}

pub(super) fn host_name(index: usize) -> Name {
    format!("host{index}").parse().expect("a name")
}

fn vector(units: [u64; 3]) -> Resources {
    let mut vector = Resources::default();
    for (name, units) in ["cpu", "memory", "network eth0 out"].into_iter().zip(units) {
        let resource: Resource = name.parse().expect("a resource");
        vector.put(&resource, units);
    }
    vector
}

impl Workload {
    /// The requests, by time.
    pub fn arrivals(&self, seed: u64) -> Vec<Arrival> {
        let mut random = RandomNumbers::new(seed);
        let mut at = Instant::ZERO;
        let mut arrival = || {
            // Exponential times between requests, so that bursts occur.
            at = at + Nanos::from_f64(-random.uniform().max(1e-9).ln() * self.interval.as_f64());
            let lifetime = Nanos::from_f64(-random.uniform().max(1e-9).ln() * self.lifetime.as_f64());
            let initiator = draw(&mut random, self.hosts);
            Arrival { at, initiator, request: self.request(initiator, &mut random), lifetime }
        };
        (0..self.requests).map(|_| arrival()).collect()
    }

    /// The initiator and at least one further host, in random order.
    fn request(&self, initiator: usize, random: &mut RandomNumbers) -> JointRequest {
        let mut others: Vec<usize> = (0..self.hosts).filter(|host| *host != initiator).collect();
        let count = 1 + draw(random, others.len());
        let mut chosen = vec![initiator];
        for _ in 0..count {
            chosen.push(others.swap_remove(draw(random, others.len())));
        }
        let first = draw(random, chosen.len());
        chosen.swap(0, first);
        let has_consent = random.uniform() < self.consent;
        let parts = chosen.into_iter().map(|host| self.part(host, has_consent && host != initiator, random));
        let request = JointRequest::new(parts.collect()).expect("a valid request");
        request.with_patience_ms(self.patience_ms).expect("a short patience")
    }

    fn part(&self, host: usize, has_consent: bool, random: &mut RandomNumbers) -> JointPart {
        let mut wanted = [1_000_000u64, 1 << 30, 1_000_000_000]
            .map(|all| (all as f64 * self.largest * random.uniform()) as u64 * u64::from(random.uniform() < 0.8));
        wanted[0] = wanted[0].max(1);
        let minimum = wanted.map(|units| (units as f64 * self.minimum).ceil() as u64);
        let application = has_consent.then(|| "viewer".parse().expect("a name"));
        JointPart { host: host_name(host), wanted: vector(wanted), minimum: Some(vector(minimum)), application }
    }
}

pub(super) fn draw(random: &mut RandomNumbers, below: usize) -> usize {
    ((random.uniform() * below as f64) as usize).min(below.saturating_sub(1))
}
