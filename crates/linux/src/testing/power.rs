//! A tree of files in the form of `/sys`, with meters whose values a test sets.

use std::fs;
use std::path::{Path, PathBuf};

/// The tree. The folder belongs to the caller.
#[derive(Debug)]
pub struct PowerTree(PathBuf);

impl PowerTree {
    /// An empty tree in `folder`.
    pub fn new(folder: &Path) -> PowerTree {
        PowerTree(folder.to_owned())
    }

    /// The root, to be used instead of `/sys`.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Writes a file and makes its folders.
    pub fn set(&self, file: &str, text: impl ToString) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the tree can be written");
        fs::write(&path, text.to_string() + "\n").expect("the tree can be written");
    }

    /// The text of a file, without surrounding white space.
    pub fn get(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).expect("the file is in the tree").trim().to_owned()
    }

    /// Removes a file, or a folder with everything in it.
    pub fn remove(&self, at: &str) {
        let path = self.0.join(at);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("it was in the tree");
    }

    /// A zone of the processor, such as `intel-rapl:0`, with its counter in uJ.
    pub fn zone(&self, zone: &str, name: &str, uj: u64, range: Option<u64>) {
        let at = format!("class/powercap/{zone}");
        self.set(&format!("{at}/name"), name);
        self.set(&format!("{at}/energy_uj"), uj);
        range.iter().for_each(|range| self.set(&format!("{at}/max_energy_range_uj"), range));
    }

    /// A battery that reports stored energy in uWh and a full energy of 50 Wh.
    pub fn battery(&self, name: &str, status: &str, uwh: i64) {
        let at = format!("class/power_supply/{name}");
        self.set(&format!("{at}/type"), "Battery");
        let uevent = format!(
            "POWER_SUPPLY_NAME={name}\nPOWER_SUPPLY_STATUS={status}\nPOWER_SUPPLY_ENERGY_FULL=50000000\n\
             POWER_SUPPLY_ENERGY_NOW={uwh}\nPOWER_SUPPLY_POWER_NOW=9000000"
        );
        self.set(&format!("{at}/uevent"), uevent);
    }

    /// A policy of cpufreq with its frequencies in kHz.
    pub fn clock(&self, policy: &str, now: u64, (least, most): (u64, u64)) {
        let at = format!("devices/system/cpu/cpufreq/{policy}");
        for (file, khz) in [
            ("scaling_cur_freq", now),
            ("cpuinfo_min_freq", least),
            ("cpuinfo_max_freq", most),
            ("scaling_min_freq", least),
            ("scaling_max_freq", most),
        ] {
            self.set(&format!("{at}/{file}"), khz);
        }
        self.set(&format!("{at}/scaling_governor"), "schedutil");
        self.set(&format!("{at}/scaling_available_governors"), "performance schedutil powersave");
    }
}
