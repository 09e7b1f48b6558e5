//! Reads and switches the scheduler features HRTICK and HRTICK_DL in debugfs `sched/features`. With them, a separate
//! timer enforces budgets; without them, only the scheduler's tick does. A budget of 0.2 ms then runs for up to a whole
//! tick (1 to 10 ms), but averages stay exact. Off by default before Linux 7.1. Kernel lockdown denies access to the
//! file.
//!
//! The file lists one word per feature, with the prefix `NO_` if the feature is off. Writing a word switches its
//! feature.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;

/// Mount point of the kernel's debug files: the argument `root` of the functions in this file.
pub const DEBUGFS: &str = "/sys/kernel/debug";

/// A scheduler feature that this program can switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Feature {
    /// A high-resolution tick for fair threads.
    Hrtick,
    /// A high-resolution tick for SCHED_DEADLINE threads.
    HrtickDl,
}

impl Feature {
    /// The kernel's word for the feature.
    pub fn word(self) -> &'static str {
        match self {
            Feature::Hrtick => "HRTICK",
            Feature::HrtickDl => "HRTICK_DL",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    On,
    Off,
    /// This kernel does not have the feature.
    Absent,
    /// The feature cannot be read or switched.
    Refused {
        /// Lockdown, debugfs not mounted, or no permission.
        why: String,
        /// Next step.
        fix: String,
    },
}

pub fn state(root: &Path, feature: Feature) -> State {
    match files::text(file(root)) {
        Ok(text) => state_in(&text, feature),
        Err(e) => refused(root, &e),
    }
}

/// Switches the feature. On failure returns the state that prevents it.
pub fn set(root: &Path, feature: Feature, on: bool) -> Result<(), State> {
    match (state(root, feature), on) {
        (State::On, true) | (State::Off, false) => Ok(()),
        (State::On | State::Off, _) => write(root, feature, on),
        (other, _) => Err(other),
    }
}

fn state_in(text: &str, feature: Feature) -> State {
    let word = feature.word();
    let is_off = |w: &str| w.strip_prefix("NO_") == Some(word);
    match text.split_whitespace().find(|w| *w == word || is_off(w)) {
        Some(w) if w == word => State::On,
        Some(_) => State::Off,
        None => State::Absent,
    }
}

fn write(root: &Path, feature: Feature, on: bool) -> Result<(), State> {
    let word = format!("{}{}", if on { "" } else { "NO_" }, feature.word());
    let mut open = fs::OpenOptions::new();
    let written = open.write(true).open(file(root)).and_then(|mut f| f.write_all(word.as_bytes()));
    written.map_err(|e| refused(root, &e))
}

/// `sched/features` since Linux 5.13, `sched_features` in older kernels.
fn file(root: &Path) -> PathBuf {
    let (new, old) = (root.join("sched/features"), root.join("sched_features"));
    if !new.exists() && old.exists() { old } else { new }
}

fn refused(debugfs: &Path, error: &io::Error) -> State {
    let lockdown = files::text("/sys/kernel/security/lockdown").ok().and_then(|t| lockdown_in(&t));
    refusal(debugfs, error, rustix::process::geteuid().is_root(), lockdown.as_deref())
}

/// Explains why access to the file of features is denied. On the host itself, file permissions never stop root, so for
/// root EPERM means kernel lockdown (`debugfs_locked_down`), even if securityfs is not mounted and cannot show the
/// level. EACCES for root comes from a container or a security module.
pub(crate) fn refusal(debugfs: &Path, error: &io::Error, to_root: bool, lockdown: Option<&str>) -> State {
    let file = file(debugfs);
    let (file, debugfs) = (file.display(), debugfs.display());
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let locked = lockdown.is_some() || (to_root && error.raw_os_error() == Some(libc::EPERM));
    let (why, fix) = match (error.kind(), to_root) {
        _ if denied && locked => (
            format!("kernel lockdown ({}) denies access to {file}, even to root", lockdown.unwrap_or("level unknown")),
            "boot without lockdown (no lockdown= on the kernel's command line; Secure Boot may enable it); there is no \
             other way"
                .to_owned(),
        ),
        (io::ErrorKind::PermissionDenied, false) => (format!("no permission for {file}"), "run it as root".to_owned()),
        (io::ErrorKind::PermissionDenied, true) => (
            format!("a container or a security module denies root access to {file}"),
            "run it on the host, outside any container".to_owned(),
        ),
        (io::ErrorKind::NotFound, _) => {
            (format!("{file} does not exist"), format!("mount debugfs: mount -t debugfs none {debugfs}"))
        }
        _ => (format!("{file}: {error}"), "resolve this error and try again".to_owned()),
    };
    State::Refused { why, fix }
}

/// The active level in a text such as `none [integrity] confidentiality`; `None` if the level is `none`.
pub(crate) fn lockdown_in(text: &str) -> Option<String> {
    let level = text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'))?;
    (level != "none").then(|| level.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL_6: &str = "PLACE_LAG NO_HRTICK NO_HRTICK_DL NO_DOUBLE_TICK UTIL_EST\n";

    fn tree(features: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("sched")).unwrap();
        fs::write(root.path().join("sched/features"), features).unwrap();
        root
    }

    #[test]
    fn a_feature_is_not_confused_with_one_that_has_a_longer_name() {
        assert_eq!(state_in("HRTICK NO_HRTICK_DL", Feature::HrtickDl), State::Off);
        assert_eq!(state_in("HRTICK NO_HRTICK_DL", Feature::Hrtick), State::On);
        assert_eq!(state_in("PLACE_LAG", Feature::HrtickDl), State::Absent);
    }

    #[test]
    fn switching_writes_the_kernels_word_only_if_the_state_differs() {
        let root = tree(KERNEL_6);
        assert_eq!(set(root.path(), Feature::HrtickDl, false), Ok(()));
        assert_eq!(fs::read_to_string(root.path().join("sched/features")).unwrap(), KERNEL_6);
        assert_eq!(set(root.path(), Feature::HrtickDl, true), Ok(()));
        assert!(fs::read_to_string(root.path().join("sched/features")).unwrap().starts_with("HRTICK_DL"));
    }

    #[test]
    fn a_refusal_names_its_cause_and_the_next_step() {
        let empty = tempfile::tempdir().unwrap();
        let State::Refused { fix, .. } = state(empty.path(), Feature::HrtickDl) else { panic!("not refused") };
        assert!(fix.contains("mount -t debugfs"), "{fix}");
        assert_eq!(set(tree("PLACE_LAG").path(), Feature::HrtickDl, true), Err(State::Absent));
    }

    #[test]
    fn root_is_never_told_to_become_root() {
        let of = |errno, to_root, lockdown| {
            let error = io::Error::from_raw_os_error(errno);
            match refusal(Path::new(DEBUGFS), &error, to_root, lockdown) {
                State::Refused { why, fix } => (why, fix),
                other => panic!("{other:?}"),
            }
        };
        for (errno, lockdown, named) in [
            (libc::EPERM, Some("integrity"), "kernel lockdown (integrity) denies access"),
            (libc::EPERM, None, "kernel lockdown (level unknown) denies access"),
            // The folder is closed to other users, so they get EACCES; root's rights would not help them.
            (libc::EACCES, Some("confidentiality"), "kernel lockdown (confidentiality) denies access"),
        ] {
            let (why, fix) = of(errno, true, lockdown);
            assert!(why.contains(named) && why.contains("even to root"), "{why}");
            assert!(fix.contains("boot without lockdown") && !fix.contains("as root"), "{fix}");
        }
        assert_eq!(of(libc::EACCES, false, Some("integrity")), of(libc::EPERM, true, Some("integrity")));
        assert_eq!(of(libc::EACCES, false, None).1, "run it as root");
        let (why, fix) = of(libc::EACCES, true, None);
        assert!(why.contains("denies root access") && fix.contains("outside any container"), "{why}; {fix}");
    }

    #[test]
    fn the_level_of_lockdown_is_read() {
        assert_eq!(lockdown_in("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(lockdown_in("[none] integrity confidentiality\n"), None);
        assert_eq!(lockdown_in(""), None);
    }

    #[test]
    fn the_state_of_this_host_can_be_read() {
        match state(Path::new(DEBUGFS), Feature::HrtickDl) {
            State::Refused { why, .. } => assert!(why.contains(DEBUGFS), "{why}"),
            State::On | State::Off | State::Absent => {}
        }
    }
}
