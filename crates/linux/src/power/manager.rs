//! Programs that manage power on this host. Two programs that write the same knobs undo each other's work, so Q-Fabric
//! leaves the knobs alone as long as another one runs.

use std::fmt;
use std::path::Path;

use super::{number, text};

/// A program that manages power.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerManager {
    pub name: &'static str,
    /// What shows that it is active.
    pub evidence: String,
    /// Command that ends it.
    pub stop: &'static str,
}

impl fmt::Display for PowerManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} manages the clocks of this host ({})", self.name, self.evidence)
    }
}

/// The names of processes, as `/proc/PID/comm` cuts them to 15 bytes.
const PROCESSES: [(&str, &str, &str); 2] = [
    ("power-profiles-", "power-profiles-daemon", "systemctl stop power-profiles-daemon"),
    ("auto-cpufreq", "auto-cpufreq", "systemctl stop auto-cpufreq"),
];

/// The active program, if there is one. `root` is the root of the file system: reads `proc` and `run` below it.
///
/// power-profiles-daemon and auto-cpufreq are found by their process, tuned by the process that its pid file names, and
/// TLP, which has no process, by its state in `run/tlp`.
pub fn power_manager(root: &Path) -> Option<PowerManager> {
    let proc = root.join("proc");
    let pid_file = root.join("run/tuned/tuned.pid");
    if let Ok(pid) = number(&pid_file)
        && proc.join(pid.to_string()).exists()
    {
        let evidence = format!("process {pid} of {}", pid_file.display());
        return Some(PowerManager { name: "tuned", evidence, stop: "systemctl stop tuned" });
    }
    let tlp = root.join("run/tlp");
    if tlp.is_dir() {
        let evidence = format!("{} exists", tlp.display());
        return Some(PowerManager { name: "TLP", evidence, stop: "systemctl stop tlp, and remove its folder" });
    }
    by_process(&proc)
}

fn by_process(proc: &Path) -> Option<PowerManager> {
    // A host has more processes than the entries of other folders.
    let pids = crate::files::folder(proc).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).find_map(|pid| {
        let comm = text(&proc.join(&pid).join("comm")).ok()?;
        let (_, name, stop) = PROCESSES.into_iter().find(|(known, ..)| comm == *known)?;
        Some(PowerManager { name, evidence: format!("process {pid}"), stop })
    })
}
