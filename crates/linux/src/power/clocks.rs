//! The clocks of the CPUs: cpufreq below `devices/system/cpu/cpufreq`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{entries, number, text};
use crate::files;

const FOLDER: &str = "devices/system/cpu/cpufreq";

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
}

impl KnobName {
    /// The kernel's name of the file.
    pub fn file(self) -> &'static str {
        match self {
            KnobName::Governor => "scaling_governor",
            KnobName::Preference => "energy_performance_preference",
            KnobName::MinFrequency => "scaling_min_freq",
            KnobName::MaxFrequency => "scaling_max_freq",
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

    /// The present value; `None` if this clock has no such file.
    pub fn value(&self) -> Option<String> {
        text(&self.path()).ok()
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
}

impl Clock {
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
        (0 < range.0 && range.0 <= range.1).then(|| Clock { sys: sys.to_owned(), policy, range })
    };
    entries(&folder).into_iter().filter(|name| name.starts_with("policy")).filter_map(clock).collect()
}
