//! The clocks of the CPUs: cpufreq below `devices/system/cpu/cpufreq`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{entries, number, text};
use crate::files;

const FOLDER: &str = "devices/system/cpu/cpufreq";
/// Step of a clock whose driver lists no frequencies, kHz: the bus clock of x86 processors, which they round to.
const STEP: u64 = 100_000;
/// What the kernel shows in `scaling_setspeed` under a governor that takes no frequency.
const UNSUPPORTED: &str = "<unsupported>";

/// A file of a clock that this program may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnobName {
    /// The policy that chooses the frequency.
    Governor,
    /// The preference between speed and power of a processor that chooses its frequency itself (EPP).
    Preference,
    /// kHz.
    MinFrequency,
    /// kHz.
    MaxFrequency,
    /// kHz. The frequency that the governor `userspace` keeps; other governors have no such knob. Shows the present
    /// frequency.
    SetFrequency,
}

impl KnobName {
    /// The kernel's name of the file.
    pub fn file(self) -> &'static str {
        match self {
            KnobName::Governor => "scaling_governor",
            KnobName::Preference => "energy_performance_preference",
            KnobName::MinFrequency => "scaling_min_freq",
            KnobName::MaxFrequency => "scaling_max_freq",
            KnobName::SetFrequency => "scaling_setspeed",
        }
    }
}

/// A file of one clock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knob {
    /// The root of sysfs.
    pub(crate) sys: PathBuf,
    /// `policy0` and so on.
    pub(crate) policy: String,
    pub(crate) name: KnobName,
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path().display())
    }
}

impl Knob {
    fn path(&self) -> PathBuf {
        self.sys.join(FOLDER).join(&self.policy).join(self.name.file())
    }

    /// The present value; `None` if this clock has no such file, or its governor does not use it.
    pub fn value(&self) -> Option<String> {
        text(&self.path()).ok().filter(|value| value != UNSUPPORTED)
    }

    /// True if this clock has no such file, or its governor does not use it. The files of a clock whose CPUs are
    /// offline exist, and cannot be read.
    pub(crate) fn is_absent(&self) -> bool {
        let path = self.path();
        matches!(path.try_exists(), Ok(false)) || text(&path).is_ok_and(|value| value == UNSUPPORTED)
    }

    /// The value to put back later, if the file holds `now` before the first turn.
    ///
    /// `scaling_max_freq` shows the lowest of all limits: that of the user, those of the thermal driver and of the
    /// firmware. A limit of the others that became the user's would stay after the heat. So a value that one of them
    /// may explain stands for no limit of the user, which is the highest frequency of the hardware. The same holds for
    /// `scaling_setspeed`, which shows the frequency within these limits and not the one that the user set.
    pub(crate) fn former(&self, now: String) -> String {
        let is_within_limits = matches!(self.name, KnobName::MaxFrequency | KnobName::SetFrequency);
        if !is_within_limits || !(self.is_capped_by_heat() || self.is_limit_of_firmware(&now)) {
            return now;
        }
        self.of_policy("cpuinfo_max_freq").map_or(now, |most| most.to_string())
    }

    /// True if a cooling device of CPUs is in use. They are not told apart by CPU: in doubt no limit becomes the user's.
    fn is_capped_by_heat(&self) -> bool {
        let folder = self.sys.join("class/thermal");
        let slows_cpus = |name: &String| {
            let kind = text(&folder.join(name).join("type")).unwrap_or_default().to_ascii_lowercase();
            kind.contains("cpufreq") || kind.contains("processor")
        };
        let is_used = |name: &String| number(&folder.join(name).join("cur_state")).is_ok_and(|state| state > 0);
        let devices = entries(&folder).into_iter().filter(|name| name.starts_with("cooling_device"));
        devices.filter(slows_cpus).any(|name| is_used(&name))
    }

    /// True if the firmware limits this clock to the value (`_PPC`).
    fn is_limit_of_firmware(&self, now: &str) -> bool {
        let limit = self.of_policy("bios_limit");
        limit.is_some_and(|khz| now.parse() == Ok(khz)) && limit < self.of_policy("cpuinfo_max_freq")
    }

    fn of_policy(&self, file: &str) -> Option<u64> {
        number(&self.sys.join(FOLDER).join(&self.policy).join(file)).ok()
    }

    /// Writes the file without recording its former value; [`crate::journal::Journal::turn`] records it.
    pub(crate) fn write(&self, value: &str) -> io::Result<()> {
        files::write(self.path(), value).map_err(|error| io::Error::new(error.kind(), format!("{self}: {error}")))
    }

    /// True if this program could have written this record of the file.
    pub(crate) fn is_believable(&self, value: &str) -> bool {
        let number = self.policy.strip_prefix("policy");
        let plain = number.is_some_and(|n| (1..=6).contains(&n.len()) && n.bytes().all(|byte| byte.is_ascii_digit()));
        let up = self.sys.components().any(|part| part == std::path::Component::ParentDir);
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        plain && self.sys.is_absolute() && !up && (1..=32).contains(&value.len()) && value.bytes().all(word)
    }
}

/// One clock, which the CPUs of a policy share. Frequencies in kHz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    sys: PathBuf,
    policy: String,
    /// The range of the hardware.
    pub range: (u64, u64),
    /// The frequencies of the driver, rising; empty if it takes any of the range.
    steps: Vec<u64>,
}

impl Clock {
    /// The lowest frequency that is at least this part of the highest one, in kHz. A driver that takes any frequency
    /// gets a multiple of 100 MHz.
    pub fn at_least(&self, part: f64) -> u64 {
        let (least, most) = self.range;
        let khz = ((part * most as f64 - 1e-3).ceil() as u64).clamp(least, most);
        match self.steps.is_empty() {
            true => khz.checked_next_multiple_of(STEP).map_or(most, |khz| khz.min(most)),
            false => self.steps.iter().copied().find(|step| *step >= khz).unwrap_or(most),
        }
    }

    /// The lowest frequency within the limits (lowest, highest) that is at least `khz`, or else the highest one. It is
    /// one that the driver lists, if it lists any within the limits. All in kHz.
    pub fn within(&self, khz: u64, (least, most): (u64, u64)) -> u64 {
        if self.steps.is_empty() {
            return khz.max(least).min(most);
        }
        let possible: Vec<u64> = self.steps.iter().copied().filter(|step| (least..=most).contains(step)).collect();
        possible.iter().copied().find(|step| *step >= khz).or(possible.last().copied()).unwrap_or(khz)
    }

    pub fn knob(&self, name: KnobName) -> Knob {
        Knob { sys: self.sys.clone(), policy: self.policy.clone(), name }
    }
}

/// The clocks below `sys`; empty if the kernel scales none.
pub fn clocks(sys: &Path) -> Vec<Clock> {
    let folder = sys.join(FOLDER);
    let clock = |policy: String| {
        let khz = |file: &str| number(&folder.join(&policy).join(file)).ok();
        let range = (khz("cpuinfo_min_freq")?, khz("cpuinfo_max_freq")?);
        let is_possible = |khz: &u64| (range.0..=range.1).contains(khz);
        let listed = text(&folder.join(&policy).join("scaling_available_frequencies")).unwrap_or_default();
        let mut steps: Vec<u64> = listed.split_whitespace().filter_map(|khz| khz.parse().ok()).collect();
        steps.retain(is_possible);
        steps.sort_unstable();
        (0 < range.0 && range.0 <= range.1).then(|| Clock { sys: sys.to_owned(), policy, range, steps })
    };
    entries(&folder).into_iter().filter(|name| name.starts_with("policy")).filter_map(clock).collect()
}
