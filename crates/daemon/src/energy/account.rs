//! The account of energy, as arithmetic: one look after the other gives joules for each device and application.
//!
//! ```text
//! meters ─ ΔE ───────────────┬──────────────────▶ device (rapl, battery, ina)
//!                            └ · Δt_app / Δt_busy ▶ application (rapl)
//! CPU time ─ Δt_app · (P(f) − P_idle) ──────────▶ application (model)
//! ```
//! P(f) is the power of a busy CPU at the present clock. The package's energy contains the idle power of its CPUs, so an
//! application's part by RAPL contains a part of it; the amount by the model does not.

use std::collections::BTreeMap;

use qfabric_energy::{Cpu, Model};
use qfabric_linux::power::{Reading, Traffic};
use qfabric_types::api::energy::{ApplicationEnergy, DeviceEnergy, EnergyModel};
use qfabric_types::{AppId, Energy, EnergySource, Instant, Nanos};

/// Everything that one look reads.
pub(super) struct Look {
    pub now: Instant,
    /// CPU time of the whole host since the boot, if it can be read.
    pub busy: Option<Nanos>,
    pub cpus: usize,
    /// Clock as a part of the highest one, if the kernel reports it.
    pub clock_part: Option<f64>,
    pub readings: Vec<Reading>,
    pub traffic: Option<Traffic>,
    pub apps: Vec<AppLook>,
}

/// One application.
pub(super) struct AppLook {
    pub app: AppId,
    pub name: String,
    pub pid: i32,
    /// CPU time of its processes since their start.
    pub cpu: Nanos,
    /// The process started after the last look, so all its CPU time counts.
    pub fresh: bool,
}

/// An application's totals.
struct Row {
    name: String,
    pid: i32,
    /// CPU time at the last look. Never decreases: a process that ends takes its time along.
    last: Nanos,
    counted: Nanos,
    model_j: f64,
    rapl_j: Option<f64>,
}

/// A part of the machine in the model.
#[derive(Clone, Copy, Default)]
struct Part {
    joules: f64,
    /// Mean power since the reading before, W.
    power_w: Option<f64>,
}

impl Part {
    fn add(&mut self, joules: f64, seconds: f64) {
        self.joules += joules;
        self.power_w = (seconds > 0.0).then(|| joules / seconds);
    }
}

pub(super) struct Account {
    model: Model,
    last: Option<(Instant, Nanos, Option<Traffic>)>,
    over: Nanos,
    clock_part: Option<f64>,
    /// Parts of the machine in the model.
    processor: Part,
    rest: Part,
    network: Option<Part>,
    meters: Vec<DeviceEnergy>,
    rows: BTreeMap<AppId, Row>,
    ended_model_j: f64,
    ended_rapl_j: Option<f64>,
    any_ended: bool,
}

impl Account {
    pub(super) fn new(model: Model) -> Account {
        Account {
            model,
            last: None,
            over: Nanos::ZERO,
            clock_part: None,
            processor: Part::default(),
            rest: Part::default(),
            network: None,
            meters: Vec::new(),
            rows: BTreeMap::new(),
            ended_model_j: 0.0,
            ended_rapl_j: None,
            any_ended: false,
        }
    }

    /// The time of the last look.
    pub(super) fn looked(&self) -> Option<Instant> {
        self.last.map(|(at, ..)| at)
    }

    pub(super) fn add(&mut self, look: &Look) {
        let busy_w = self.model.cpu.busy_w(level(&self.model.cpu, look.clock_part));
        let total = look.busy.or(self.last.map(|(_, busy, _)| busy)).unwrap_or_default();
        let before = self.last.replace((look.now, total, look.traffic));
        self.clock_part = look.clock_part;
        let (elapsed, busy) =
            before.map_or((Nanos::ZERO, Nanos::ZERO), |(at, busy, _)| (look.now.since(at), total.saturating_sub(busy)));
        self.over += elapsed;
        let seconds = elapsed.as_f64() / 1e9;
        let cpu = &self.model.cpu;
        let idle_j = look.cpus as f64 * cpu.idle_w * seconds;
        self.processor.add(idle_j + busy.as_f64() / 1e9 * busy_w, seconds);
        // The powers of the processor are those of one CPU; the rest of the device exists once.
        self.rest.add(cpu.rest_w * seconds, seconds);
        self.add_network(before.and_then(|(.., traffic)| traffic), look.traffic, seconds);
        self.add_meters(&look.readings);
        self.add_apps(look, busy, busy_w);
    }

    fn add_network(&mut self, before: Option<Traffic>, now: Option<Traffic>, seconds: f64) {
        let Some(now) = now else { return };
        let radio = &self.model.radio;
        let kilobytes = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1e3;
        let before = before.unwrap_or(now);
        let sent = kilobytes(now.sent, before.sent) * (radio.transmit_w - radio.idle_w);
        let received = kilobytes(now.received, before.received) * (radio.receive_w - radio.idle_w);
        let joules = radio.idle_w * seconds + (sent + received) * radio.air_s_per_kb;
        self.network.get_or_insert_default().add(joules, seconds);
    }

    fn add_meters(&mut self, readings: &[Reading]) {
        let faults: BTreeMap<String, u64> = self.meters.drain(..).map(|meter| (meter.name, meter.faults)).collect();
        self.meters.extend(readings.iter().map(|reading| DeviceEnergy {
            name: reading.name.clone(),
            energy: reading.energy,
            power_w: reading.power_w,
            left: reading.left,
            fault: reading.fault.as_ref().map(ToString::to_string),
            faults: faults.get(&reading.name).copied().unwrap_or(0) + u64::from(reading.fault.is_some()),
        }));
    }

    fn add_apps(&mut self, look: &Look, busy: Nanos, busy_w: f64) {
        let steps: Vec<Nanos> = look.apps.iter().map(|app| self.step(app)).collect();
        let all = steps.iter().fold(Nanos::ZERO, |sum, step| sum + *step);
        // The host's CPU time comes in ticks, so short times of applications may exceed it.
        let divisor = busy.max(all).as_f64();
        let packages: Vec<f64> =
            look.readings.iter().filter(|r| r.package).filter_map(|r| r.step).map(joules).collect();
        let measured = (!packages.is_empty() && divisor > 0.0).then(|| packages.iter().sum::<f64>() / divisor);
        for (app, step) in look.apps.iter().zip(steps) {
            let row = self.rows.get_mut(&app.app).expect("step() made it");
            row.counted += step;
            row.model_j += step.as_f64() / 1e9 * busy_w;
            if let Some(per_ns) = measured {
                *row.rapl_j.get_or_insert(0.0) += per_ns * step.as_f64();
            }
        }
        let present = |id: &AppId| look.apps.iter().any(|app| app.app == *id);
        let gone: Vec<AppId> = self.rows.keys().copied().filter(|id| !present(id)).collect();
        gone.iter().for_each(|id| self.end(*id));
    }

    /// CPU time of the application since the last look. Time before the first look of an older process does not count.
    fn step(&mut self, app: &AppLook) -> Nanos {
        let first = if app.fresh { Nanos::ZERO } else { app.cpu };
        let row = self.rows.entry(app.app).or_insert_with(|| Row {
            name: app.name.clone(),
            pid: app.pid,
            last: first,
            counted: Nanos::ZERO,
            model_j: 0.0,
            rapl_j: None,
        });
        let step = app.cpu.saturating_sub(row.last);
        row.last = row.last.max(app.cpu);
        step
    }

    fn end(&mut self, id: AppId) {
        let Some(row) = self.rows.remove(&id) else { return };
        self.any_ended = true;
        self.ended_model_j += row.model_j;
        if let Some(joules) = row.rapl_j {
            *self.ended_rapl_j.get_or_insert(0.0) += joules;
        }
    }

    pub(super) fn model(&self) -> EnergyModel {
        let Model { name, tally, .. } = &self.model;
        EnergyModel { name: name.clone(), printed: tally.printed, derived: tally.derived, assumed: tally.assumed }
    }

    pub(super) fn over(&self) -> Nanos {
        self.over
    }

    pub(super) fn clock_part(&self) -> Option<f64> {
        self.clock_part
    }

    pub(super) fn devices(&self) -> Vec<DeviceEnergy> {
        let modelled = |(name, part): (&str, Part)| DeviceEnergy {
            name: name.to_owned(),
            energy: Energy::modelled(part.joules),
            power_w: part.power_w,
            left: None,
            fault: None,
            faults: 0,
        };
        let parts = [("processor", self.processor), ("rest", self.rest)].into_iter();
        let parts = parts.chain(self.network.map(|part| ("network", part)));
        self.meters.iter().cloned().chain(parts.map(modelled)).collect()
    }

    pub(super) fn applications(&self) -> Vec<ApplicationEnergy> {
        let shown = |(app, row): (&AppId, &Row)| ApplicationEnergy {
            app: *app,
            name: row.name.clone(),
            pid: row.pid,
            cpu_time: row.counted,
            energy: amounts(row.model_j, row.rapl_j),
        };
        self.rows.iter().map(shown).collect()
    }

    pub(super) fn ended(&self) -> Vec<Energy> {
        if self.any_ended { amounts(self.ended_model_j, self.ended_rapl_j) } else { Vec::new() }
    }
}

fn amounts(model_j: f64, rapl_j: Option<f64>) -> Vec<Energy> {
    let measured = rapl_j.map(|joules| Energy::new(joules, EnergySource::Rapl));
    measured.into_iter().chain([Energy::modelled(model_j)]).collect()
}

/// The number of joules, for arithmetic whose result gets the source again.
pub(crate) fn joules(energy: Energy) -> f64 {
    energy.ratio(Energy::new(1.0, energy.source()))
}

/// The level of the model that is nearest to this part of its highest clock; the highest one if the clock is unknown.
fn level(cpu: &Cpu, clock_part: Option<f64>) -> usize {
    let Some(part) = clock_part else { return cpu.highest() };
    let distance = |level: &usize| (1.0 / cpu.stretch(*level) - part).abs();
    (0..=cpu.highest()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(cpu.highest())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A look after `seconds`; each application is its CPU time in ms.
    fn look(seconds: u64, busy_ms: u64, apps: &[(u64, u64)]) -> Look {
        let app = |&(id, ms): &(u64, u64)| AppLook {
            app: AppId(id),
            name: "player".into(),
            pid: 40 + id as i32,
            cpu: Nanos::from_millis(ms),
            fresh: false,
        };
        Look {
            now: Instant::new(seconds * SECOND),
            busy: Some(Nanos::from_millis(busy_ms)),
            cpus: 2,
            clock_part: None,
            readings: Vec::new(),
            traffic: None,
            apps: apps.iter().map(app).collect(),
        }
    }

    fn package(step_j: Option<f64>) -> Reading {
        let energy = |joules| Energy::new(joules, EnergySource::Rapl);
        let step = step_j.map(energy);
        Reading {
            name: "package-0-0".into(),
            package: true,
            energy: energy(0.0),
            step,
            power_w: None,
            left: None,
            fault: None,
        }
    }

    fn account() -> Account {
        Account::new(Model::shipped("x86-server").unwrap())
    }

    #[test]
    fn an_application_costs_its_cpu_time_at_the_power_above_idle() {
        let mut account = account();
        account.add(&look(1, 0, &[(1, 500)]));
        account.add(&look(6, 2_000, &[(1, 1_500)]));
        let app = &account.applications()[0];
        assert_eq!((app.cpu_time, app.energy.len()), (Nanos::from_millis(1_000), 1));
        // 3.3 W busy at the highest clock − 0.5 W idle.
        assert!((joules(app.energy[0]) - 2.8).abs() < 1e-9, "{}", app.energy[0]);
        let processor = &account.devices()[0];
        // 2 CPUs · 0.5 W · 5 s + 2 s · 2.8 W.
        assert!((joules(processor.energy) - 10.6).abs() < 1e-9, "{}", processor.energy);
    }

    #[test]
    fn the_rest_of_the_device_counts_once_and_a_power_is_the_mean_since_the_reading_before() {
        let mut model = Model::shipped("x86-server").unwrap();
        model.cpu.rest_w = 20.0;
        let mut account = Account::new(model);
        account.add(&look(1, 0, &[]));
        account.add(&look(11, 0, &[]));
        assert!((joules(account.devices()[1].energy) - 200.0).abs() < 1e-9, "20 W · 10 s, not for each CPU");
        account.add(&look(12, 1_000, &[]));
        let [processor, rest] = [0, 1].map(|at| account.devices()[at].power_w.unwrap());
        // In the last second 2 CPUs · 0.5 W and one busy CPU · 2.8 W above idle; before that 1 W.
        assert!((processor - 3.8).abs() < 1e-9 && (rest - 20.0).abs() < 1e-9, "{processor} W, {rest} W");
    }

    #[test]
    fn a_lower_clock_costs_less() {
        let mut account = account();
        account.add(&look(1, 0, &[(1, 0)]));
        account.add(&Look { clock_part: Some(0.52), ..look(2, 1_000, &[(1, 1_000)]) });
        assert!((joules(account.applications()[0].energy[0]) - 0.6).abs() < 1e-9);
    }

    #[test]
    fn a_measured_package_is_divided_by_cpu_time_and_never_exceeded() {
        let mut account = account();
        account.add(&Look { readings: vec![package(None)], ..look(1, 0, &[(1, 0), (2, 0)]) });
        account.add(&Look { readings: vec![package(Some(10.0))], ..look(2, 2_000, &[(1, 1_000), (2, 500)]) });
        let rapl = |account: &Account, at: usize| account.applications()[at].energy[0];
        assert_eq!(
            (rapl(&account, 0), rapl(&account, 0).source()),
            (Energy::new(5.0, EnergySource::Rapl), EnergySource::Rapl)
        );
        assert_eq!(rapl(&account, 1), Energy::new(2.5, EnergySource::Rapl));
        // The host's ticks have not advanced, but the applications' clocks have.
        account.add(&Look { readings: vec![package(Some(8.0))], ..look(3, 2_000, &[(1, 1_003), (2, 501)]) });
        let sum = joules(rapl(&account, 0)) + joules(rapl(&account, 1));
        assert!((sum - 15.5).abs() < 1e-9, "{sum} J");
    }

    #[test]
    fn cpu_time_before_the_contract_does_not_count_and_a_fresh_process_counts_whole() {
        let mut account = account();
        account.add(&look(1, 0, &[(1, 9_000)]));
        assert_eq!(account.applications()[0].cpu_time, Nanos::ZERO);
        let mut fresh = look(2, 800, &[(1, 9_000), (2, 700)]);
        fresh.apps[1].fresh = true;
        account.add(&fresh);
        assert_eq!(account.applications()[1].cpu_time, Nanos::from_millis(700));
    }

    #[test]
    fn the_energy_of_an_application_that_left_stays_in_the_sum_of_the_ended() {
        let mut account = account();
        account.add(&look(1, 0, &[(1, 0)]));
        account.add(&look(2, 1_000, &[(1, 1_000)]));
        assert!(account.ended().is_empty());
        account.add(&look(3, 1_000, &[]));
        assert!(account.applications().is_empty());
        assert!((joules(account.ended()[0]) - 2.8).abs() < 1e-9);
    }

    #[test]
    fn a_process_that_seems_to_have_used_less_than_before_costs_nothing() {
        let mut account = account();
        account.add(&look(1, 0, &[(1, 1_000)]));
        account.add(&look(2, 100, &[(1, 400)]));
        account.add(&look(3, 200, &[(1, 1_100)]));
        assert_eq!(account.applications()[0].cpu_time, Nanos::from_millis(100));
    }

    #[test]
    fn traffic_costs_time_on_the_air() {
        let mut account = Account::new(Model::shipped("ipaq-h3870-orinoco").unwrap());
        let traffic = |sent| Some(Traffic { received: 0, sent });
        account.add(&Look { traffic: traffic(7), ..look(1, 0, &[]) });
        account.add(&Look { traffic: traffic(1_007), ..look(2, 0, &[]) });
        let radio = Model::shipped("ipaq-h3870-orinoco").unwrap().radio;
        let expected = radio.idle_w + (radio.transmit_w - radio.idle_w) * radio.air_s_per_kb;
        let network = account.devices().pop().unwrap();
        assert_eq!(network.name, "network");
        assert!((joules(network.energy) - expected).abs() < 1e-9);
    }
}
