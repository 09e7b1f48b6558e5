//! `energy.*`, `battery.*`, `thermal.*`: power, charge and temperature, if the machine reports them.
use qfabric_types::monitor::Attribute;

use super::text::{OpenFile, Scratch, raw, scaled};
use super::{Finder, MAX_INSTANCES, Meter, Total, attribute, entries};
use crate::files;

pub(super) fn find(finder: &mut Finder) {
    zones(finder);
    batteries(finder);
    temperatures(finder);
}

fn zones(finder: &mut Finder) {
    let folder = finder.roots.sys.join("class/powercap");
    let mut refused = None;
    let mut found = 0;
    for entry in entries(&folder).iter().filter(|entry| entry.contains(':')).take(MAX_INSTANCES) {
        let zone = folder.join(entry);
        let Some(name) = files::trimmed(zone.join("name")) else { continue };
        match OpenFile::open(&zone.join("energy_uj")) {
            Ok(file) => {
                let most = files::number(zone.join("max_energy_range_uj"));
                // Zones of two processors have the same names; the number distinguishes them.
                let number: String = entry.split(':').skip(1).collect::<Vec<_>>().join("-");
                let name = format!("{name}-{number}");
                finder.found(Zone { file, name, most, used: Total::default() });
                found += 1;
            }
            Err(error) => refused = Some(error),
        }
    }
    match (found, refused) {
        (0, Some(error)) => finder.missing("energy.*", format!("{error}; run the daemon as root")),
        (0, None) => finder.missing("energy.*", "the kernel knows no energy meter of the processor (powercap)"),
        _ => (),
    }
}

/// The counter of a zone; it restarts at zero when it exceeds its range.
struct Zone {
    file: OpenFile,
    name: String,
    most: Option<u64>,
    used: Total,
}

impl Zone {
    fn take(&mut self, now: u64) -> i64 {
        match (self.used.before, self.most) {
            (Some(before), Some(most)) if now < before && before <= most => {
                self.used.before = Some(now);
                self.used.add((most - before).saturating_add(now))
            }
            _ => self.used.take(now),
        }
    }
}

impl Meter for Zone {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        ["energy.*.used", "energy.*.power"].iter().map(|metric| attribute(metric, &self.name)).collect()
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(uj) = self.file.number(scratch) else { return };
        values.fill(Some(self.take(uj)));
    }
}

fn batteries(finder: &mut Finder) {
    let folder = finder.roots.sys.join("class/power_supply");
    let is_battery = |name: &&String| files::trimmed(folder.join(name).join("type")).as_deref() == Some("Battery");
    let names = entries(&folder);
    let batteries: Vec<_> = names.iter().filter(is_battery).take(MAX_INSTANCES).collect();
    if batteries.is_empty() {
        finder.missing("battery.*", "this host has no battery");
    }
    for name in batteries {
        let file = |file: &str| OpenFile::open(&folder.join(name).join(file)).ok();
        let nominal_uv = || files::number(folder.join(name).join("voltage_min_design")).filter(|uv| *uv > 0);
        finder.found(Battery {
            name: name.clone(),
            status: file("status"),
            percent: file("capacity"),
            power: file("power_now"),
            current: file("current_now"),
            voltage: file("voltage_now"),
            energy: file("energy_now"),
            charge: file("charge_now"),
            nominal_uv: nominal_uv(),
        });
    }
}

struct Battery {
    name: String,
    /// `Discharging`, or another word while the mains feed the host.
    status: Option<OpenFile>,
    percent: Option<OpenFile>,
    /// µW.
    power: Option<OpenFile>,
    /// µA and µV, used if the battery does not report its power.
    current: Option<OpenFile>,
    voltage: Option<OpenFile>,
    /// µWh that are stored.
    energy: Option<OpenFile>,
    /// µAh that are stored, and the nominal voltage in µV, used if the battery does not report its energy. The present
    /// voltage falls under load, so the product would move without any charge that moved.
    charge: Option<OpenFile>,
    nominal_uv: Option<u64>,
}

impl Battery {
    /// True unless the status says that the mains feed the host.
    fn may_discharge(&self, scratch: &mut Scratch) -> bool {
        let status = self.status.as_ref().and_then(|file| file.read(scratch)).unwrap_or_default().trim_ascii();
        ![&b"Charging"[..], b"Full", b"Not charging"].contains(&status)
    }
}

/// A product in millionths, such as µA × µV in µW.
fn millionths(one: u64, other: u64) -> Option<u64> {
    u64::try_from(u128::from(one) * u128::from(other) / 1_000_000).ok()
}

impl Meter for Battery {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        let metrics = ["battery.*.charge", "battery.*.power", "battery.*.energy"];
        metrics.iter().map(|metric| attribute(metric, &self.name)).collect()
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let may_discharge = self.may_discharge(scratch);
        let mut number = |file: &Option<OpenFile>| file.as_ref()?.magnitude(scratch);
        values[0] = number(&self.percent).and_then(|percent| scaled(percent, 10_000));
        let product = number(&self.current).zip(number(&self.voltage)).and_then(|(ua, uv)| millionths(ua, uv));
        let power = number(&self.power).or(product);
        values[1] = if may_discharge { power.and_then(raw) } else { Some(0) };
        let charge = number(&self.charge).zip(self.nominal_uv).and_then(|(uah, uv)| millionths(uah, uv));
        values[2] = number(&self.energy).or(charge).and_then(|uwh| scaled(uwh, 3_600));
    }
}

fn temperatures(finder: &mut Finder) {
    let folder = finder.roots.sys.join("class/thermal");
    let names = entries(&folder);
    let zones = names.iter().filter_map(|name| Some((name, name.strip_prefix("thermal_zone")?))).take(MAX_INSTANCES);
    let mut found = 0;
    for (name, number) in zones {
        let Ok(file) = OpenFile::open(&folder.join(name).join("temp")) else { continue };
        let kind = files::trimmed(folder.join(name).join("type")).unwrap_or_else(|| "zone".to_owned());
        finder.found(Temperature { file, name: format!("{kind}-{number}") });
        found += 1;
    }
    if found == 0 {
        finder.missing("thermal.*", "the kernel reports no temperature");
    }
}

struct Temperature {
    file: OpenFile,
    name: String,
}

impl Meter for Temperature {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        vec![attribute("thermal.*.temperature", &self.name)]
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        let text = text.trim_ascii();
        values[0] = match text.strip_prefix(b"-") {
            Some(below) => super::text::number(below).and_then(raw).map(|below| -below),
            None => super::text::number(text).and_then(raw),
        };
    }
}
