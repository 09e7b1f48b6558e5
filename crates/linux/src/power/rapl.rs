//! Energy counters of the processor: Running Average Power Limit, through `class/powercap`.

use std::path::{Path, PathBuf};

use super::{MeterFault, entries, number, text};

/// Largest power by which a counter wraps, W. A counter that needs more for its wrap was reset: suspend to memory takes
/// the power of its registers.
const MOST_W: f64 = 2_000.0;

/// A counter of microjoules that restarts at zero after its range.
#[derive(Debug)]
pub(super) struct Counter {
    path: PathBuf,
    /// `max_energy_range_uj`; absent for counters of 64 bits.
    range: Option<u64>,
    before: Option<u64>,
}

/// A zone of the processor.
#[derive(Debug)]
pub(super) struct Zone {
    /// The kernel's name with the number of the zone, such as `package-0-0`; several zones may have one name.
    pub name: String,
    /// A whole processor, of which all other zones with a longer number are parts.
    pub package: bool,
    pub counter: Counter,
}

impl Counter {
    pub(super) fn new(path: PathBuf, range: Option<u64>) -> Counter {
        Counter { path, range: range.filter(|range| *range > 0), before: None }
    }

    /// Microjoules in the `seconds` since the last call; `None` at the first one. Call it more often than the counter
    /// wraps: a counter of 32 bits in units of 61 uJ wraps after 1310 s at 200 W.
    pub(super) fn take(&mut self, seconds: f64) -> Result<Option<u64>, MeterFault> {
        let now = number(&self.path).inspect_err(|_| self.before = None)?;
        let Some(before) = self.before.replace(now) else { return Ok(None) };
        let is_possible = |used: &u64| *used as f64 <= MOST_W * 1e6 * seconds.max(1.0);
        let to_range = self.range.and_then(|range| range.checked_sub(before));
        let wrapped = to_range.map(|left| left.saturating_add(now)).filter(is_possible);
        let used = now.checked_sub(before).or(wrapped);
        let backwards = || MeterFault::Backwards { path: self.path.clone(), before, now, range: self.range };
        used.map(Some).ok_or_else(backwards)
    }
}

/// The zones below `sys`. A zone whose name cannot be read is left out.
pub(super) fn zones(sys: &Path) -> Vec<Zone> {
    let folder = sys.join("class/powercap");
    let zone = |entry: String| {
        let at = folder.join(&entry);
        let kernel = text(&at.join("name")).ok()?;
        let number = entry.split(':').skip(1).collect::<Vec<_>>().join("-");
        let counter = Counter::new(at.join("energy_uj"), self::number(&at.join("max_energy_range_uj")).ok());
        Some(Zone { package: kernel.starts_with("package"), name: format!("{kernel}-{number}"), counter })
    };
    // A control type, such as `intel-rapl`, has no colon and no counter.
    entries(&folder).into_iter().filter(|entry| entry.contains(':')).filter_map(zone).collect()
}
