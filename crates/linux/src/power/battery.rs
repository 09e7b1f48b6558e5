//! Stored energy of batteries, through `class/power_supply`.
//!
//! A battery counts while it discharges: the fall of its stored energy is the energy that the host took. While it
//! charges, or stands at the mains, it counts nothing. Units of the kernel: uWh, uAh, uV, uW, uA.

use std::path::{Path, PathBuf};

use super::{MeterFault, entries, garbage, text};

/// Largest power that a battery of a computer gives, W.
const MOST_W: f64 = 500.0;
/// Part of a full battery by which the counter may fall in one step, because it is coarse.
const COARSE: f64 = 0.01;

#[derive(Debug)]
pub(super) struct Battery {
    folder: PathBuf,
    /// uWh at the last reading, if the battery discharged then.
    before_uwh: Option<f64>,
}

/// One reading of a battery.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BatteryReading {
    /// Microjoules that the host took since the last reading.
    pub used_uj: Option<f64>,
    /// Power that the battery gives now, W; zero while it charges.
    pub power_w: Option<f64>,
    /// Microjoules that are stored.
    pub left_uj: f64,
}

impl Battery {
    /// Reads the battery, `seconds` after the last reading.
    pub(super) fn take(&mut self, seconds: f64) -> Result<BatteryReading, MeterFault> {
        let before = self.before_uwh.take();
        let path = self.folder.join("uevent");
        let now = Properties::of(&self.folder, &path)?;
        let (Some(stored_uwh), full_uwh) = (now.stored_uwh(), now.full_uwh()) else {
            return Err(garbage(&path, "no ENERGY_NOW and no CHARGE_NOW with a voltage"));
        };
        let discharges = now.text("STATUS") == Some("Discharging");
        let left_uj = stored_uwh * 3_600.0;
        let power_w = if discharges { now.power_w() } else { Some(0.0) };
        if !discharges {
            return Ok(BatteryReading { used_uj: before.map(|_| 0.0), power_w, left_uj });
        }
        self.before_uwh = Some(stored_uwh);
        let Some(before) = before else { return Ok(BatteryReading { used_uj: None, power_w, left_uj }) };
        // A rise while it discharges is a correction of the battery's own estimate.
        let fell = (before - stored_uwh).max(0.0);
        let most = MOST_W * 1e6 * seconds / 3_600.0 + COARSE * full_uwh.unwrap_or(before);
        if fell > most {
            let (fell_mwh, most_mwh) = ((fell / 1e3) as u64, (most / 1e3) as u64);
            return Err(MeterFault::Jump { path, fell_mwh, most_mwh });
        }
        Ok(BatteryReading { used_uj: Some(fell * 3_600.0), power_w, left_uj })
    }
}

/// The batteries of the host below `sys`, without those of mice and other devices.
pub(super) fn batteries(sys: &Path) -> Vec<(String, Battery)> {
    let folder = sys.join("class/power_supply");
    let supplies = entries(&folder).into_iter().filter(|name| {
        let is = |file: &str, word: &str| text(&folder.join(name).join(file)).is_ok_and(|text| text == word);
        is("type", "Battery") && !is("scope", "Device")
    });
    supplies.map(|name| (name.clone(), Battery { folder: folder.join(&name), before_uwh: None })).collect()
}

/// The properties of a battery. `uevent` has all of them in one read, so they belong to one moment; the separate files
/// are the fallback.
struct Properties<'a> {
    folder: &'a Path,
    uevent: String,
}

impl<'a> Properties<'a> {
    fn of(folder: &'a Path, path: &Path) -> Result<Properties<'a>, MeterFault> {
        match text(path) {
            Ok(uevent) => Ok(Properties { folder, uevent }),
            // Without `uevent` and `type` the battery was removed.
            Err(_) => text(&folder.join("type")).map(|_| Properties { folder, uevent: String::new() }),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        let has = |line: &&str| {
            line.strip_prefix("POWER_SUPPLY_")
                .is_some_and(|line| line.split_once('=').is_some_and(|(key, _)| key == name))
        };
        let line = self.uevent.lines().find(has)?;
        line.split_once('=').map(|(_, value)| value.trim())
    }

    /// A property that is not negative. Some drivers report currents and powers of discharge as negative numbers.
    fn number(&self, name: &str) -> Option<f64> {
        let parse = |text: &str| text.trim().parse::<i64>().ok().map(|number| number.unsigned_abs() as f64);
        let file = || text(&self.folder.join(name.to_ascii_lowercase())).ok();
        self.text(name).and_then(parse).or_else(|| parse(&file()?))
    }

    fn volts(&self) -> Option<f64> {
        let volts = self.number("VOLTAGE_NOW").or_else(|| self.number("VOLTAGE_MIN_DESIGN"));
        volts.map(|uv| uv / 1e6).filter(|volts| *volts > 0.0)
    }

    /// The voltage for amounts of charge. It must not change between readings: the voltage of a load is lower.
    fn nominal_volts(&self) -> Option<f64> {
        let volts = self.number("VOLTAGE_MIN_DESIGN").filter(|uv| *uv > 0.0);
        volts.map(|uv| uv / 1e6).or_else(|| self.volts())
    }

    fn stored_uwh(&self) -> Option<f64> {
        self.number("ENERGY_NOW").or_else(|| Some(self.number("CHARGE_NOW")? * self.nominal_volts()?))
    }

    fn full_uwh(&self) -> Option<f64> {
        self.number("ENERGY_FULL").or_else(|| Some(self.number("CHARGE_FULL")? * self.nominal_volts()?))
    }

    fn power_w(&self) -> Option<f64> {
        let product = || Some(self.number("CURRENT_NOW")? / 1e6 * self.volts()?);
        self.number("POWER_NOW").map(|uw| uw / 1e6).or_else(product)
    }
}
