//! Energy of this host: meters that read it, and knobs that change it.
//!
//! | file | contents |
//! |---|---|
//! | `battery.rs` | stored energy of batteries (`class/power_supply`) |
//! | `clamp.rs` | the highest clock that a thread may ask for (uclamp) |
//! | `clocks.rs` | frequencies, governors and preferences of the CPUs (cpufreq) |
//! | `load.rs` | CPU time of the host, its clock and its network traffic: the inputs of a power model |
//! | `manager.rs` | other programs that manage the power of this host |
//! | `meters.rs` | all meters of a host, and their readings |
//! | `radio.rs` | power save of wireless cards (nl80211) |
//! | `rapl.rs` | energy counters of the processor (`class/powercap`) |
//! | `sensor.rs` | power and energy sensors of boards (`class/hwmon`) |
//!
//! Every function takes the root of sysfs as a folder ([`SYS`] on a live host), so that tests use a tree of files. The
//! kernel's files are not trusted: a file that vanishes, holds no number, or makes an impossible jump becomes a
//! [`MeterFault`], and the amount of that period is not counted.

mod battery;
mod clamp;
mod clocks;
mod load;
mod manager;
mod meters;
mod radio;
mod rapl;
mod sensor;

use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};

use qfabric_types::api::Problem;

use crate::{files, journal};

#[cfg(test)]
mod tests;

pub use clamp::{FULL, clamp_of, has_clamps, set_clamp};
pub use clocks::{Clock, Knob, KnobName, clocks};
pub use load::{MeanClock, Traffic, busy_time, traffic};
pub use manager::{PowerManager, power_manager};
pub use meters::{Meters, Reading};
pub use radio::{Radio, radios};

/// Mount point of sysfs.
pub const SYS: &str = "/sys";
/// Longest text of a file in sysfs, in bytes.
const MOST_BYTES: u64 = 4_096;
/// Largest number of entries of a folder that are read.
const MOST_ENTRIES: usize = 256;
/// Largest number of characters of a file that an error shows.
const SHOWN: usize = 32;

/// Folder of the journal of knobs, in the run folder of a service.
pub const FOLDER: &str = "energy";

/// Puts back the knobs that a killed service turned; `directory` is its run folder.
///
/// # Errors
/// As [`journal::restore`].
pub fn restore(directory: &Path) -> Result<journal::Restored, journal::JournalError> {
    journal::restore(&directory.join(FOLDER))
}

/// The reason why a meter counted nothing since its last reading. The next reading begins anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum MeterFault {
    /// The file cannot be read: the device was removed, or only root may read it.
    Unreadable { path: PathBuf, why: String },
    /// The file holds no number.
    Garbage { path: PathBuf, text: String },
    /// The counter went back, and its range does not explain this as a wrap.
    Backwards { path: PathBuf, before: u64, now: u64, range: Option<u64> },
    /// The stored energy fell faster than a battery can give.
    Jump { path: PathBuf, fell_mwh: u64, most_mwh: u64 },
}

impl MeterFault {
    pub fn problem(&self) -> Problem {
        match self {
            MeterFault::Unreadable { path, why } => Problem::new(
                "meter_unreadable",
                format!("{}: {why}", path.display()),
                "run the daemon as root; if the device was removed, nothing is to do",
            ),
            MeterFault::Garbage { path, text } => Problem::new(
                "meter_garbage",
                format!("{} holds {text:?}, which is no number", path.display()),
                "look at the kernel's log for errors of this driver",
            ),
            // Every user may read this text, so it has whole joules: fine readings tell about other programs.
            MeterFault::Backwards { path, before, now, range } => {
                let joules = |uj: u64| uj / 1_000_000;
                let range = range.map_or("unknown".to_owned(), |range| format!("{} J", joules(range)));
                let (before, now) = (joules(*before), joules(*now));
                Problem::new(
                    "meter_backwards",
                    format!("{} went from {before} to {now} J; its range is {range}", path.display()),
                    "nothing: the counter was reset, and the next reading counts again",
                )
            }
            MeterFault::Jump { path, fell_mwh, most_mwh } => Problem::new(
                "meter_jump",
                format!("{} fell by {fell_mwh} mWh; at most {most_mwh} mWh are possible", path.display()),
                "nothing: the battery was changed or calibrated, and the next reading counts again",
            ),
        }
    }
}

/// The number in a file.
fn number(path: &Path) -> Result<u64, MeterFault> {
    let text = text(path)?;
    text.parse().map_err(|_| garbage(path, &text))
}

/// The text of a file without surrounding white space.
fn text(path: &Path) -> Result<String, MeterFault> {
    let failed = |error: io::Error| MeterFault::Unreadable { path: path.to_owned(), why: error.to_string() };
    Ok(files::short_text(path, MOST_BYTES).map_err(failed)?.trim().to_owned())
}

fn garbage(path: &Path, text: &str) -> MeterFault {
    MeterFault::Garbage { path: path.to_owned(), text: text.chars().take(SHOWN).collect() }
}

/// The names in a folder, sorted; empty if there is no such folder.
fn entries(folder: &Path) -> Vec<String> {
    let name = |entry: io::Result<DirEntry>| entry.ok()?.file_name().into_string().ok();
    let mut names: Vec<String> =
        files::folder(folder).into_iter().flatten().take(MOST_ENTRIES).filter_map(name).collect();
    names.sort();
    names
}
