//! The clocks of the CPUs during a calibration: set to one frequency after the other, and put back at the end.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use qfabric_daemon::pin_clock;
use qfabric_linux::journal::{Journal, JournalError};
use qfabric_linux::power::{self, Clock, KnobName};

use crate::exit::{Advice, Failure};
use crate::output;

/// Largest number of frequencies below the highest one.
const MOST: u64 = 5;

/// The clocks of this host, which this program sets until the value is dropped.
#[derive(Debug)]
pub(super) struct Clocks {
    journal: Journal,
    clocks: Vec<Clock>,
}

impl Clocks {
    /// Locks the journal of knobs in the daemon's run folder `directory`, so that no application saves energy
    /// meanwhile. If this program is killed, the daemon's next start puts the clocks back, or `qfabric restore` without
    /// a daemon.
    ///
    /// # Errors
    /// No clock can be set lower (exit code 4); another program manages power, applications save energy, or another
    /// calibration runs (3); the journal cannot be opened (1).
    pub(super) fn take(sys: &Path, root: &Path, directory: &Path) -> Result<Clocks, Failure> {
        let clocks = power::clocks(sys);
        if lower(&clocks).is_empty() {
            let why = "no clock of this host can be set lower\ntry: leave --clocks out; `qfabric doctor` says more";
            return Err(Failure::unavailable(why));
        }
        if let Some(manager) = power::power_manager(root) {
            return Err(Failure::refused(format!("{manager}\ntry: {}", manager.stop)));
        }
        let folder = directory.join(power::FOLDER);
        // The daemon refuses a run folder that others may write to.
        let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        let made = made.and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(&folder));
        made.map_err(|error| Failure::fault(format!("cannot make {}: {error}\ntry: run as root", folder.display())))?;
        let journal = Journal::open(&folder).map_err(|error| match error {
            JournalError::Held { .. } => Failure::refused(
                "the clocks are in use: applications save energy, or another calibration runs\ntry: end them; `qfabric \
                 status`",
            ),
            other => Failure::fault(Advice(&other.problem())),
        })?;
        Ok(Clocks { journal, clocks })
    }

    /// Parts of the highest clock at which the host can be measured, rising, without the highest one.
    pub(super) fn lower(&self) -> Vec<f64> {
        lower(&self.clocks)
    }

    /// Sets all clocks to this part of their highest frequencies.
    ///
    /// # Errors
    /// A clock that does not obey, with its file; a limit of the user under the governor `userspace`, which keeps the
    /// clock below this part (3).
    pub(super) fn pin(&mut self, part: f64) -> Result<(), Failure> {
        for clock in &self.clocks {
            let Some(lack) = pin_clock(&mut self.journal, clock, part).map_err(Failure::fault)? else { continue };
            if clock.knob(KnobName::SetFrequency).value().is_some() {
                return Err(Failure::refused(lack));
            }
            output::note(format_args!("qfabric: {lack}"));
        }
        Ok(())
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        for failure in self.journal.turn_back() {
            let next = "the daemon's next start tries again, or `qfabric restore` without a daemon";
            output::note(format_args!("qfabric: not restored: {failure}; {next}"));
        }
    }
}

/// At most [`MOST`] parts of the highest clock, evenly from the lowest one on.
fn lower(clocks: &[Clock]) -> Vec<f64> {
    let Some(highest) = clocks.iter().max_by_key(|clock| clock.range.1) else { return Vec::new() };
    let (least, most) = highest.range;
    let wanted = (0..MOST).map(|step| least + (most - least) / MOST * step);
    let possible = wanted.map(|khz| highest.at_least(khz as f64 / most as f64)).filter(|khz| *khz < most);
    let mut possible: Vec<u64> = possible.collect();
    possible.dedup();
    possible.into_iter().map(|khz| khz as f64 / most as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_linux::testing::power::PowerTree;

    const CPUFREQ: &str = "devices/system/cpu/cpufreq/policy0";

    fn tree() -> (tempfile::TempDir, PowerTree) {
        let folder = tempfile::tempdir().unwrap();
        let tree = PowerTree::new(folder.path());
        tree.clock("policy0", 1_000_000, (1_000_000, 4_000_000));
        (folder, tree)
    }

    fn take(tree: &PowerTree) -> Result<Clocks, Failure> {
        Clocks::take(tree.root(), tree.root(), &tree.root().join("run/qfabric"))
    }

    fn limits(tree: &PowerTree) -> [String; 2] {
        ["scaling_min_freq", "scaling_max_freq"].map(|file| tree.get(&format!("{CPUFREQ}/{file}")))
    }

    #[test]
    fn clocks_are_set_on_both_sides_and_are_back_at_the_end() {
        let (_folder, tree) = tree();
        let mut clocks = take(&tree).unwrap();
        assert_eq!(clocks.lower(), [0.25, 0.4, 0.55, 0.7, 0.85]);
        for (part, khz) in [(0.4, "1600000"), (0.85, "3400000"), (0.25, "1000000")] {
            clocks.pin(part).unwrap();
            assert_eq!(limits(&tree), [khz, khz]);
        }
        let second = format!("{:?}", take(&tree).unwrap_err());
        assert!(second.contains("code: 3") && second.contains("save energy"), "{second}");
        drop(clocks);
        assert_eq!(limits(&tree), ["1000000", "4000000"]);
    }

    #[test]
    fn under_the_governor_userspace_a_limit_of_the_user_is_refused_instead_of_a_wrong_level() {
        let (_folder, tree) = tree();
        tree.set(&format!("{CPUFREQ}/scaling_governor"), "userspace");
        tree.set(&format!("{CPUFREQ}/scaling_setspeed"), 1_000_000);
        let mut clocks = take(&tree).unwrap();
        clocks.pin(1.0).unwrap();
        assert_eq!(tree.get(&format!("{CPUFREQ}/scaling_setspeed")), "4000000");
        drop(clocks);
        assert_eq!(tree.get(&format!("{CPUFREQ}/scaling_setspeed")), "1000000");
        tree.set(&format!("{CPUFREQ}/scaling_max_freq"), 2_000_000);
        let refusal = format!("{:?}", take(&tree).unwrap().pin(1.0).unwrap_err());
        assert!(refusal.contains("code: 3") && refusal.contains("scaling_max_freq"), "{refusal}");
        assert_eq!(tree.get(&format!("{CPUFREQ}/scaling_setspeed")), "1000000");
    }

    #[test]
    fn the_frequencies_of_the_driver_are_taken_once_each() {
        let (_folder, tree) = tree();
        tree.set(&format!("{CPUFREQ}/scaling_available_frequencies"), "4000000 2000000 1000000");
        assert_eq!(take(&tree).unwrap().lower(), [0.25, 0.5]);
    }

    #[test]
    fn a_host_without_clocks_or_with_another_manager_is_refused() {
        let (_folder, tree) = tree();
        tree.set("proc/812/comm", "auto-cpufreq");
        let refusal = format!("{:?}", take(&tree).unwrap_err());
        assert!(refusal.contains("code: 3") && refusal.contains("systemctl stop auto-cpufreq"), "{refusal}");
        tree.remove("devices");
        let refusal = format!("{:?}", take(&tree).unwrap_err());
        assert!(refusal.contains("code: 4") && refusal.contains("--clocks"), "{refusal}");
        assert!(!tree.root().join("run").exists(), "nothing was made");
    }
}
