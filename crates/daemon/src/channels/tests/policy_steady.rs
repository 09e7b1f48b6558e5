//! How often policies change levels and contracts under a steady shortage. Virtual time: reports and calls of policies
//! have the times of a loop, so the machine's load decides nothing.

use qfabric_host::manager::policies::{CPU_GRANTED, CPU_OWN, CPU_USED, GENERATED, LEVEL};
use qfabric_types::monitor::{Cause, HOST, Reading, Unit};
use qfabric_types::{AppId, Instant};

use super::*;
use crate::control::Adjustment;

/// Time between two reports.
const STEP: Nanos = Nanos::from_millis(500);
/// Wanted events per second.
const WANTED: f64 = 20.0;
/// Seconds after which the shortage is steady.
const SETTLED: f64 = 60.0;

/// An encoder whose cost depends on its quality, on a busy processor that gives it its contract and nothing beside.
struct Encoder<'a> {
    host: &'a Host,
    application: AppId,
    end: End,
    now: Instant,
    begun: Instant,
    noise: u64,
    quality: i64,
    /// In CPUs.
    contract: f64,
    /// Seconds at which a level or the contract changed.
    changes: Vec<f64>,
}

impl<'a> Encoder<'a> {
    fn start(host: &'a Host, policy: serde_json::Value) -> Encoder<'a> {
        let (alice, end) = host.reader(ALICE);
        alice.create("video").unwrap();
        alice.source("video").unwrap();
        alice.register("camera", "video", [0, 20]);
        host.fabric.start_policy(Some(alice.peer), serde_json::from_value(policy).unwrap()).unwrap();
        let application = number_of(&"video".parse().unwrap(), &"camera".parse().unwrap());
        let (begun, noise, changes) = (clock::now(), 1, Vec::new());
        Encoder { host, application, end, now: begun, begun, noise, quality: 80, contract: 0.2, changes }
    }

    fn reports(&self, host: &str, application: AppId, attribute: &str, value: f64) {
        let (attribute, value, over) = (AttributeId::of(attribute), value.round() as i64, STEP);
        let reading =
            Reading { attribute, application, value, at: self.now, over, cause: Cause::Poll, unit: Unit::Count };
        let input = Input::Reading(Some("quality:video".parse().unwrap()), host.parse().unwrap(), reading);
        self.host.fabric.network.manager(|manager, _| manager.handle(input, self.now));
    }

    /// Between 0.96 and 1.04.
    fn noise(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        0.96 + 0.08 * (self.noise >> 40) as f64 / f64::from(1 << 24)
    }

    /// Half a second, at the cost of an event of the best quality.
    fn step(&mut self, cost: f64) {
        self.now = self.now + STEP;
        let cost = cost * self.quality as f64 / 80.0;
        let rate = (self.contract / cost).min(WANTED) * self.noise();
        self.reports("alpha", self.application, GENERATED, 1e3 * rate);
        self.reports("alpha", self.application, CPU_USED, 1e6 * rate * cost);
        self.reports("alpha", HOST, "cpu.pressure", 500_000.0);
        self.reports("viewer", HOST, RATE, 1e3 * rate);
        while self.host.fabric.call_next_policy(&|| self.now) {}
        self.host.turn();
        self.obeys();
    }

    fn obeys(&mut self) {
        let at = self.now.since(self.begun).as_secs_f64();
        let levels = decided(&mut self.end).into_iter().filter(|(attribute, ..)| attribute == LEVEL);
        for quality in
            levels.filter_map(|(.., amount)| amount).filter(|amount| *amount != self.quality).collect::<Vec<_>>()
        {
            self.quality = quality;
            self.changes.push(at);
        }
        for command in self.host._commands.try_iter().collect::<Vec<_>>() {
            let Command::Adjust(adjust) = command else { continue };
            let Adjustment::Guaranteed(share) = adjust.decision.adjustment else { continue };
            self.contract = share.as_f64();
            self.changes.push(at);
            self.reports("alpha", self.application, CPU_OWN, 0.0);
            self.reports("alpha", self.application, CPU_GRANTED, 1e6 * self.contract);
        }
    }

    /// The largest number of changes in a minute of a steady shortage.
    fn busiest_minute(&self) -> usize {
        let steady: Vec<f64> = self.changes.iter().copied().filter(|at| *at > SETTLED).collect();
        let within = |from: &f64| steady.iter().filter(|at| (*from..from + 60.0).contains(*at)).count();
        steady.iter().map(within).max().unwrap_or(0)
    }
}

#[test]
fn a_steady_shortage_causes_at_most_two_changes_of_level_or_contract_per_minute() {
    let (adapt, cpu, integrated) = ("adapt", "cpu", "integrated");
    let mut is_calm = true;
    // CPUs that the wanted rate takes in the best quality: more than any contract, hardly more, and less.
    for (kind, wanted) in [(adapt, 0.32), (adapt, 0.25), (cpu, 1.6), (cpu, 0.5), (integrated, 1.6), (integrated, 0.9)] {
        let host = Host::start(Vec::new());
        let mut policy = serde_json::json!({ "kind": kind, "channel": "video", "rate": WANTED });
        if kind != cpu {
            policy["ladder"] = serde_json::json!(["quality=80,70,60,50,40,30,20"]);
        }
        let mut encoder = Encoder::start(&host, policy);
        (0..1_200).for_each(|_| encoder.step(wanted / WANTED));
        let Encoder { quality, contract, changes, .. } = &encoder;
        let busiest = encoder.busiest_minute();
        println!("{kind} {wanted}: {busiest}; quality {quality}, contract {contract}; {changes:?}");
        is_calm &= !changes.is_empty() && busiest <= 2;
    }
    assert!(is_calm, "each shortage causes changes, and at most two in a minute");
}
