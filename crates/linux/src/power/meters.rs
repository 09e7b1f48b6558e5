//! All meters of a host.

use std::path::Path;

use qfabric_types::{Energy, EnergySource, Instant};

use super::MeterFault;
use super::battery::{self, Battery};
use super::rapl::{self, Counter};
use super::sensor::{self, Input, Sensor};

/// Largest number of meters that are read.
const MOST: usize = 64;

/// The meters that were found when this value was made, or at a [`Meters::rescan`].
#[derive(Debug, Default)]
pub struct Meters(Vec<Meter>);

#[derive(Debug)]
struct Meter {
    name: String,
    source: EnergySource,
    package: bool,
    device: Device,
    looked: Option<Instant>,
    used_uj: f64,
}

#[derive(Debug)]
enum Device {
    Counter(Counter),
    Sensor(Sensor),
    Battery(Battery),
}

/// One reading of a meter.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Unique on the host, such as `package-0-0` or `BAT0`.
    pub name: String,
    /// A whole processor: its energy may be divided among the threads that ran.
    pub package: bool,
    /// Energy since the meter was found.
    pub energy: Energy,
    /// Energy since the last reading; `None` if nothing was counted.
    pub step: Option<Energy>,
    /// Present power, or mean power since the last reading, W.
    pub power_w: Option<f64>,
    /// Energy that is stored in a battery.
    pub left: Option<Energy>,
    pub fault: Option<MeterFault>,
}

/// Found by one reading of a device.
#[derive(Default)]
struct Found {
    used_uj: Option<f64>,
    power_w: Option<f64>,
    left_uj: Option<f64>,
}

impl Meters {
    /// Finds the meters below `sys`, at most 64.
    pub fn find(sys: &Path) -> Meters {
        let zones = rapl::zones(sys).into_iter();
        let zones =
            zones.map(|zone| Meter::new(zone.name, EnergySource::Rapl, zone.package, Device::Counter(zone.counter)));
        let inputs = sensor::inputs(sys).into_iter().map(|(name, is_processor, input)| {
            let source = if is_processor { EnergySource::Rapl } else { EnergySource::Ina };
            let device = match input {
                Input::Energy(counter) => Device::Counter(counter),
                Input::Power(sensor) => Device::Sensor(sensor),
            };
            Meter::new(name, source, false, device)
        });
        let batteries = battery::batteries(sys).into_iter();
        let batteries = batteries.map(|(name, it)| Meter::new(name, EnergySource::Battery, false, Device::Battery(it)));
        Meters(batteries.chain(zones).chain(inputs).take(MOST).collect())
    }

    /// Adds the meters that appeared since the last search, such as a battery that was put in. A meter that is gone stays,
    /// with its sum and the fault that says so, and counts again when it returns.
    pub fn rescan(&mut self, sys: &Path) {
        let is_known =
            |meter: &Meter| self.0.iter().any(|known| known.name == meter.name && known.source == meter.source);
        let appeared: Vec<Meter> = Meters::find(sys).0.into_iter().filter(|meter| !is_known(meter)).collect();
        self.0.extend(appeared);
        self.0.truncate(MOST);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads all meters. `now` rises from call to call.
    pub fn look(&mut self, now: Instant) -> Vec<Reading> {
        self.0.iter_mut().map(|meter| meter.look(now)).collect()
    }
}

impl Meter {
    fn new(name: String, source: EnergySource, package: bool, device: Device) -> Meter {
        Meter { name, source, package, device, looked: None, used_uj: 0.0 }
    }

    fn look(&mut self, now: Instant) -> Reading {
        let seconds = self.looked.replace(now).map_or(0.0, |before| now.since(before).as_f64() / 1e9);
        let (found, fault) = match self.device.take(seconds) {
            Ok(found) => (found, None),
            Err(fault) => (Found::default(), Some(fault)),
        };
        self.used_uj += found.used_uj.unwrap_or(0.0);
        let energy = |uj: f64| Energy::new(uj / 1e6, self.source);
        Reading {
            name: self.name.clone(),
            package: self.package,
            energy: energy(self.used_uj),
            step: found.used_uj.map(energy),
            power_w: found.power_w,
            left: found.left_uj.map(energy),
            fault,
        }
    }
}

impl Device {
    fn take(&mut self, seconds: f64) -> Result<Found, MeterFault> {
        let mean = |uj: f64| (seconds > 0.0).then(|| uj / 1e6 / seconds);
        Ok(match self {
            Device::Counter(counter) => {
                let used_uj = counter.take(seconds)?.map(|uj| uj as f64);
                Found { used_uj, power_w: used_uj.and_then(mean), left_uj: None }
            }
            Device::Sensor(sensor) => {
                let (power_w, used_uj) = sensor.take(seconds)?;
                Found { used_uj, power_w: Some(power_w), left_uj: None }
            }
            Device::Battery(battery) => {
                let reading = battery.take(seconds)?;
                let power_w = reading.power_w.or_else(|| reading.used_uj.and_then(mean));
                Found { used_uj: reading.used_uj, power_w, left_uj: Some(reading.left_uj) }
            }
        })
    }
}
