//! The state of a battery as hosts tell each other, and this host's own battery.
//!
//! What other hosts say is hostile until parsed: every number has a bound, and a state that contradicts the one before is
//! marked, because a host may lie to make others spare it.

use qfabric_energy::{Battery, EnergySource};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText};
use qfabric_types::{Instant, Nanos};

/// Name of the attribute for the energy in this host's battery, in µJ; of control events between hosts, in mJ.
pub const BATTERY: &str = "host.battery";

/// Name of the attribute for the power that this host draws from its battery, in µW.
pub const BATTERY_POWER: &str = "host.battery_power";

/// Largest capacity, in mJ: a gigajoule, the battery of a lorry.
const MOST_MJ: u64 = 1_000_000_000_000;
/// Largest drain, in µW: a megawatt.
const MOST_UW: u64 = 1_000_000_000_000;

/// Voltage by which energy becomes charge, for the printed rule of the directives only.
const VOLTS: f64 = 3.7;

/// The state of a host's battery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatteryState {
    pub left_mj: u64,
    pub capacity_mj: u64,
    /// Mean power that the host draws from it. Zero on mains.
    pub drain_uw: u64,
    /// The host runs on mains: its time to empty has no end.
    pub is_on_mains: bool,
    pub source: EnergySource,
}

/// Another host reports an impossible battery.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBattery {
    #[error(
        "a battery of {capacity_mj} mJ with {left_mj} mJ left; a capacity is 1 to 10^12 mJ, and no less is left than 0 and no more than the capacity"
    )]
    Energy { left_mj: i64, capacity_mj: i64 },
    #[error("a drain of {0} µW; at most 10^12 µW is possible")]
    Drain(u64),
    #[error("a battery from {0:?}; known are model, rapl, battery and ina, each with ` mains` if the host is on mains")]
    Source(String),
}

const SOURCES: [EnergySource; 4] = [EnergySource::Model, EnergySource::Rapl, EnergySource::Battery, EnergySource::Ina];

/// The word after the source for a host on mains.
const MAINS: &str = " mains";

impl BatteryState {
    /// A host without a battery, or with a charger.
    pub const MAINS: BatteryState =
        BatteryState { left_mj: 1, capacity_mj: 1, drain_uw: 0, is_on_mains: true, source: EnergySource::Model };

    /// The control event that reports it. Controllers read it; applications do not receive it.
    pub fn event(&self, controller: &str, at: Instant) -> QualityEvent {
        let mains = if self.is_on_mains { MAINS } else { "" };
        QualityEvent {
            controller: AttributeId::of(controller),
            kind: QualityKind::Own,
            value: self.left_mj.min(MOST_MJ) as i64,
            other: self.capacity_mj.min(MOST_MJ) as i64,
            request: self.drain_uw.min(MOST_UW),
            at,
            application: HOST,
            attribute: AttributeId::of(BATTERY),
            subject: QualityText::new(&format!("{}{mains}", self.source.name())),
        }
    }

    /// Reads another host's report.
    ///
    /// # Errors
    /// [`InvalidBattery`], with the impossible numbers.
    pub fn parse(event: &QualityEvent) -> Result<BatteryState, InvalidBattery> {
        let (left, capacity) = (event.value, event.other);
        let most = MOST_MJ as i64;
        if !(1..=most).contains(&capacity) || !(0..=capacity).contains(&left) {
            return Err(InvalidBattery::Energy { left_mj: left, capacity_mj: capacity });
        }
        if event.request > MOST_UW {
            return Err(InvalidBattery::Drain(event.request));
        }
        let text = event.subject.as_str();
        let (word, is_on_mains) = text.strip_suffix(MAINS).map_or((text, false), |word| (word, true));
        let known = SOURCES.into_iter().find(|source| source.name() == word);
        let source = known.ok_or_else(|| InvalidBattery::Source(text.to_owned()))?;
        let (left_mj, capacity_mj) = (left.unsigned_abs(), capacity.unsigned_abs());
        Ok(BatteryState { left_mj, capacity_mj, drain_uw: event.request, is_on_mains, source })
    }

    /// For the directives. A host on mains lasts longer than every battery.
    pub fn battery(&self) -> Battery {
        let joules = self.left_mj as f64 / 1e3;
        let (joules, load_w) = match self.is_on_mains {
            true => (1e12, 0.0),
            false => (joules, self.drain_uw as f64 / 1e6),
        };
        Battery { joules, load_w, charge_mah: joules / 3.6 / VOLTS }
    }

    /// Whether `now`, `elapsed` after this state, contradicts it: the difference of the energies is not the drain over the
    /// time, give or take a twentieth of the capacity and the drain once more. A host on mains may charge or discharge.
    pub fn contradicts(&self, now: &BatteryState, elapsed: Nanos) -> bool {
        if self.is_on_mains || now.is_on_mains {
            return false;
        }
        let used_mj = self.drain_uw.max(now.drain_uw) as f64 / 1e3 * elapsed.as_secs_f64();
        let margin_mj = used_mj + self.capacity_mj as f64 / 20.0;
        let lost_mj = self.left_mj as f64 - now.left_mj as f64;
        (lost_mj - used_mj).abs() > margin_mj || self.capacity_mj.abs_diff(now.capacity_mj) > self.capacity_mj / 5
    }

    /// Parts of the whole that are left, 0 to 1.
    pub fn level(&self) -> f64 {
        if self.is_on_mains { 1.0 } else { self.left_mj as f64 / self.capacity_mj.max(1) as f64 }
    }

    /// The time to empty, for people.
    pub(super) fn lifetime(&self) -> String {
        match (self.is_on_mains, self.battery().time_to_empty()) {
            (true, _) => "is on mains".to_owned(),
            (false, time) => format!("empties in {time:.0} s ({})", self.source.name()),
        }
    }
}

/// The battery of this host, as its options and its meters describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct BatteryTerms {
    /// Energy at the beginning, and capacity, in joules; `None`: on mains.
    pub joules: Option<f64>,
    /// Drain until a meter reports another one, in watts.
    pub drain_w: f64,
    /// The name of the battery whose charge and power the monitor reads.
    pub supply: Option<String>,
}

/// A stored energy that was read longer ago is no longer measured: the battery may be gone.
const MEASURED: Nanos = Nanos::from_millis(180_000);

/// The battery of this host. Without a meter it loses its drain, by the model «power × time».
#[derive(Debug)]
pub(super) struct OwnBattery {
    state: BatteryState,
    at: Instant,
    /// The last reading of a stored energy.
    measured: Option<Instant>,
    /// The last charge that was read, in parts of the whole.
    part: Option<f64>,
    /// The battery reports its energy, so its charge in per cent does not count.
    has_energy: bool,
    /// Attributes of the monitor.
    supply: Option<Supply>,
}

/// Attributes of a battery that the monitor reads.
#[derive(Clone, Copy, Debug)]
struct Supply {
    charge: AttributeId,
    energy: AttributeId,
    power: AttributeId,
}

impl OwnBattery {
    pub(super) fn new(terms: &BatteryTerms, now: Instant) -> OwnBattery {
        let drain_uw = (terms.drain_w.max(0.0) * 1e6) as u64;
        let full = |joules: f64| {
            let capacity_mj = ((joules * 1e3) as u64).clamp(1, MOST_MJ);
            let source = EnergySource::Model;
            BatteryState { left_mj: capacity_mj, capacity_mj, drain_uw, is_on_mains: false, source }
        };
        let supply = terms.supply.as_ref().map(|name| {
            let of = |what: &str| AttributeId::of(&format!("battery.{name}.{what}"));
            Supply { charge: of("charge"), energy: of("energy"), power: of("power") }
        });
        let state = terms.joules.map_or(BatteryState::MAINS, full);
        OwnBattery { state, at: now, measured: None, part: None, has_energy: false, supply }
    }

    /// Attributes whose readings it follows.
    pub(super) fn attributes(&self) -> Vec<AttributeId> {
        let fixed = [BATTERY, BATTERY_POWER].map(AttributeId::of);
        let supply = self.supply.map(|Supply { charge, energy, power }| [charge, energy, power]);
        fixed.into_iter().chain(supply.into_iter().flatten()).collect()
    }

    /// The state at `now`.
    pub(super) fn state(&self, now: Instant) -> BatteryState {
        let drain_uw = if self.state.is_on_mains { 0 } else { self.state.drain_uw };
        let used_mj = drain_uw as f64 / 1e3 * now.since(self.at).as_secs_f64();
        let is_measured = self.measured.is_some_and(|at| now.since(at) <= MEASURED);
        let source = if is_measured { EnergySource::Battery } else { EnergySource::Model };
        BatteryState { left_mj: self.state.left_mj.saturating_sub(used_mj as u64), source, ..self.state }
    }

    /// A meter of this host was read. Returns whether the reading is about the battery.
    pub(super) fn on_reading(&mut self, attribute: AttributeId, value: i64, now: Instant) -> bool {
        let value_u = value.max(0).unsigned_abs();
        let before = self.state(now);
        let is = |of: fn(Supply) -> AttributeId| self.supply.map(of) == Some(attribute);
        if attribute == AttributeId::of(BATTERY) {
            let left_mj = (value_u / 1_000).min(MOST_MJ);
            let capacity_mj = before.capacity_mj.max(left_mj).max(1);
            self.store(BatteryState { left_mj, capacity_mj, is_on_mains: false, ..before }, now);
        } else if is(|supply| supply.energy) {
            self.has_energy = true;
            self.store(self.with_energy((value_u / 1_000).min(MOST_MJ), before), now);
        } else if is(|supply| supply.charge) {
            let part = value_u.min(1_000_000) as f64 / 1e6;
            self.part = Some(part);
            if self.has_energy {
                self.state = before;
            } else {
                let left_mj = (before.capacity_mj as f64 * part) as u64;
                self.store(BatteryState { left_mj, ..before }, now);
            }
        } else if is(|supply| supply.power) {
            // The monitor reports zero while the mains feed the host. The drain of before counts when they end.
            let drain_uw = if value_u == 0 { before.drain_uw } else { value_u.min(MOST_UW) };
            self.state = BatteryState { drain_uw, is_on_mains: value_u == 0, ..before };
        } else if attribute == AttributeId::of(BATTERY_POWER) {
            self.state = BatteryState { drain_uw: value_u.min(MOST_UW), ..before };
        } else {
            return false;
        }
        self.at = now;
        true
    }

    /// With a charge in per cent, the capacity is measured, too. Close to empty the per cent are too coarse.
    fn with_energy(&self, left_mj: u64, before: BatteryState) -> BatteryState {
        let measured = self.part.filter(|part| *part >= 0.05).map(|part| (left_mj as f64 / part) as u64);
        let capacity_mj = measured.unwrap_or(before.capacity_mj).max(left_mj).clamp(1, MOST_MJ);
        BatteryState { left_mj, capacity_mj, ..before }
    }

    fn store(&mut self, state: BatteryState, now: Instant) {
        self.state = state;
        self.measured = Some(now);
    }
}
