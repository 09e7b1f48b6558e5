//! Power and energy sensors of boards, such as INA219 and INA3221, through `class/hwmon`.

use std::path::{Path, PathBuf};

use super::rapl::Counter;
use super::{MeterFault, entries, number, text};

/// A sensor of microwatts, which this program integrates.
#[derive(Debug)]
pub(super) struct Sensor {
    path: PathBuf,
    before_uw: Option<u64>,
}

/// One input of a chip.
#[derive(Debug)]
pub(super) enum Input {
    /// `energyN_input`, uJ.
    Energy(Counter),
    /// `powerN_input` or `powerN_average`, uW.
    Power(Sensor),
}

impl Sensor {
    /// Power now, W, and microjoules of the last `seconds`: the mean of the powers at both ends × the time.
    pub(super) fn take(&mut self, seconds: f64) -> Result<(f64, Option<f64>), MeterFault> {
        let now = number(&self.path).inspect_err(|_| self.before_uw = None)?;
        let before = self.before_uw.replace(now);
        Ok((now as f64 / 1e6, before.map(|before| (before as f64 + now as f64) / 2.0 * seconds)))
    }
}

/// The inputs below `sys`, each with its name, and whether its chip is the processor itself.
pub(super) fn inputs(sys: &Path) -> Vec<(String, bool, Input)> {
    let folder = sys.join("class/hwmon");
    entries(&folder).iter().flat_map(|chip| of_chip(&folder.join(chip), chip)).collect()
}

/// A number of a chip that has an energy counter and a power sensor counts once, by the counter.
fn of_chip(at: &Path, chip: &str) -> Vec<(String, bool, Input)> {
    let Ok(kind) = text(&at.join("name")) else { return Vec::new() };
    let files = entries(at);
    let numbers = |prefix: &str, suffix: &str| -> Vec<u32> {
        let number = |file: &String| file.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok();
        files.iter().filter_map(number).collect()
    };
    let name = |prefix: &str, number: u32| {
        let label = text(&at.join(format!("{prefix}{number}_label"))).ok().filter(|label| !label.is_empty());
        format!("{kind}-{chip}-{}", label.unwrap_or_else(|| number.to_string()))
    };
    let is_processor = kind == "amd_energy";
    let energy = numbers("energy", "_input");
    let powers = [numbers("power", "_input"), numbers("power", "_average")].concat();
    let mut found: Vec<(String, bool, Input)> = Vec::new();
    for &number in &energy {
        let counter = Counter::new(at.join(format!("energy{number}_input")), None);
        found.push((name("energy", number), is_processor, Input::Energy(counter)));
    }
    let mut done = energy;
    for number in powers {
        if done.contains(&number) {
            continue;
        }
        done.push(number);
        let (input, average) = (at.join(format!("power{number}_input")), at.join(format!("power{number}_average")));
        let path = if input.exists() { input } else { average };
        found.push((name("power", number), is_processor, Input::Power(Sensor { path, before_uw: None })));
    }
    found
}
