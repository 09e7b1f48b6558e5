//! Where the control group of a unit, or a control group by its path, is, and in which folders it can appear.
//!
//! systemd puts a unit below its slices: `system.slice/mpd.service`, `system.slice/system-getty.slice/getty@tty1.service`.
//! Only slices are searched. Folders below services and scopes may belong to users and containers, which can give them
//! any name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use qfabric_types::text::is_plain;

use super::{TargetError, invalid};
use crate::cgroup::Mounts;
use crate::files;

/// Slices that are searched.
const SLICES: usize = 1_024;
/// Ends of the names of units that have processes.
const UNITS: [&str; 5] = [".service", ".scope", ".slice", ".socket", ".mount"];
/// Folders in which the names of units are; an alias is a symbolic link in one of them.
const UNIT_FILES: [&str; 3] = ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"];
const PROCESSES: &str = "cgroup.procs";

/// A unit of systemd or a control group, whether it exists or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The full name of a unit, such as `mpd.service`.
    Unit(String),
    /// The path of a control group, with or without its mount point.
    Group(PathBuf),
}

impl Place {
    /// A unit by its name; without an end, a service.
    ///
    /// # Errors
    /// No unit can have this name.
    pub fn unit(text: &str) -> Result<Place, TargetError> {
        let is_name = !text.is_empty() && text.len() <= 255 && text.chars().all(is_plain);
        if !is_name || text.starts_with('-') || text.contains('/') {
            return Err(invalid(format!("{text:?} is not the name of a unit"), "give a name such as mpd.service"));
        }
        let has_end = UNITS.iter().any(|end| text.ends_with(end));
        Ok(Place::Unit(if has_end { text.to_owned() } else { format!("{text}.service") }))
    }

    /// A control group by its path, such as `machine.slice/web` or `/sys/fs/cgroup/machine.slice/web`.
    ///
    /// # Errors
    /// The path has `..`, control characters, or no part.
    pub fn group(text: &str) -> Result<Place, TargetError> {
        let path = Path::new(text);
        let names = path.components().filter(|part| matches!(part, Component::Normal(_))).count();
        let is_path = text.len() <= 4_096 && text.chars().all(is_plain);
        if !is_path || names == 0 || path.components().any(|part| part == Component::ParentDir) {
            let next = "give a path such as machine.slice/web, without `..`";
            return Err(invalid(format!("{text:?} is not a control group"), next));
        }
        Ok(Place::Group(path.to_owned()))
    }

    /// The folder of the group, if it exists.
    pub fn folder(&self) -> Option<PathBuf> {
        self.folder_in(&Mounts::here())
    }

    /// Existing folders in which the group, or one above it, appears and vanishes.
    pub fn watched(&self) -> BTreeSet<PathBuf> {
        self.watched_in(&Mounts::here())
    }

    fn folder_in(&self, mounts: &Mounts) -> Option<PathBuf> {
        let is_group = |folder: &PathBuf| folder.join(PROCESSES).is_file();
        match self {
            Place::Group(path) => groups(mounts, path).into_iter().find(is_group),
            Place::Unit(name) => {
                let slices: Vec<PathBuf> = tops(mounts).iter().flat_map(|top| slices(top)).collect();
                // systemd puts `_` before a name that could be a file of the kernel.
                let folders = |name: &str| {
                    slices.iter().flat_map(|slice| [slice.join(name), slice.join(format!("_{name}"))]).find(is_group)
                };
                folders(name).or_else(|| folders(&real_name(name)?))
            }
        }
    }

    fn watched_in(&self, mounts: &Mounts) -> BTreeSet<PathBuf> {
        match self {
            Place::Unit(_) => tops(mounts).iter().flat_map(|top| slices(top)).collect(),
            Place::Group(path) => {
                let nearest = |group: PathBuf| group.ancestors().skip(1).find(|at| at.is_dir()).map(Path::to_owned);
                groups(mounts, path).into_iter().filter_map(nearest).collect()
            }
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Unit(name) => f.write_str(name),
            Place::Group(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Hierarchies with the groups of systemd come first.
fn hierarchies(mounts: &Mounts) -> Vec<&Path> {
    let systemd = mounts.v1_of("name=systemd");
    let others = mounts.v1.iter().map(|(at, _)| at.as_path()).filter(|at| Some(*at) != systemd);
    mounts.v2.as_deref().into_iter().chain(systemd).chain(others).collect()
}

/// The folders that a path may mean: the path itself if it is in a hierarchy, else below each hierarchy.
fn groups(mounts: &Mounts, path: &Path) -> Vec<PathBuf> {
    let all = hierarchies(mounts);
    if all.iter().any(|at| path.starts_with(at)) {
        return vec![path.to_owned()];
    }
    let relative = path.strip_prefix("/").unwrap_or(path);
    all.into_iter().map(|at| at.join(relative)).collect()
}

/// Where systemd puts units: those of the system, and those of the own user unless this is root.
fn tops(mounts: &Mounts) -> Vec<PathBuf> {
    let of_systemd = mounts.v2.as_deref().into_iter().chain(mounts.v1_of("name=systemd"));
    let user = rustix::process::geteuid();
    let uid = user.as_raw();
    let own = format!("user.slice/user-{uid}.slice/user@{uid}.service");
    let below = |at: &Path| [Some(at.to_owned()), (!user.is_root()).then(|| at.join(&own))];
    of_systemd.flat_map(below).flatten().filter(|top| top.is_dir()).collect()
}

/// A folder and all slices below it.
fn slices(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let below = files::folder(&found[next]).into_iter().flatten().flatten();
        let is_slice = |entry: &fs::DirEntry| {
            entry.file_name().as_encoded_bytes().ends_with(b".slice")
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        let room = SLICES.saturating_sub(found.len());
        let below: Vec<PathBuf> = below.filter(is_slice).map(|entry| entry.path()).take(room).collect();
        found.extend(below);
        next += 1;
    }
    found
}

/// The name of the unit that an alias stands for.
fn real_name(alias: &str) -> Option<String> {
    let target = UNIT_FILES.iter().find_map(|folder| fs::read_link(Path::new(folder).join(alias)).ok())?;
    let name = target.file_name()?.to_str()?.to_owned();
    UNITS.iter().any(|end| name.ends_with(end)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(at: &Path) -> Mounts {
        Mounts { v2: Some(at.to_owned()), v1: Vec::new() }
    }

    fn make(top: &Path, group: &str) -> PathBuf {
        let folder = top.join(group);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(PROCESSES), "").unwrap();
        folder
    }

    #[test]
    fn a_unit_is_found_below_slices_only() {
        let top = tempfile::tempdir().unwrap();
        let here = mounts(top.path());
        let place = Place::unit("getty@tty1").unwrap();
        make(top.path(), "user.slice/user-7.slice/user@7.service/app.slice/getty@tty1.service");
        make(top.path(), "machine.slice/web.scope/getty@tty1.service");
        assert_eq!(place.folder_in(&here), None, "a user or a container gave this name");
        let own = make(top.path(), "system.slice/system-getty.slice/getty@tty1.service");
        assert_eq!(place.folder_in(&here), Some(own.clone()));
        assert!(place.watched_in(&here).contains(own.parent().unwrap()));
        let escaped = make(top.path(), "system.slice/_cpu.service");
        assert_eq!(Place::unit("cpu.service").unwrap().folder_in(&here), Some(escaped));
    }

    #[test]
    fn a_group_is_found_with_and_without_its_mount_point_and_its_nearest_folder_is_watched() {
        let top = tempfile::tempdir().unwrap();
        let here = mounts(top.path());
        let place = Place::group("machine.slice/web").unwrap();
        assert_eq!(place.watched_in(&here), BTreeSet::from([top.path().to_owned()]));
        let folder = make(top.path(), "machine.slice/web");
        for text in ["machine.slice/web", "/machine.slice/web", folder.to_str().unwrap()] {
            assert_eq!(Place::group(text).unwrap().folder_in(&here), Some(folder.clone()), "{text}");
        }
        assert_eq!(place.watched_in(&here), BTreeSet::from([top.path().join("machine.slice")]));
    }

    #[test]
    fn texts_that_can_be_no_unit_or_group_are_refused_with_an_example() {
        for text in ["", "-x", "a/b", "a\u{7}b"] {
            assert!(Place::unit(text).unwrap_err().to_string().contains("mpd.service"), "{text}");
        }
        for text in ["", "/", "a/../b", "a\u{7}/b"] {
            assert!(Place::group(text).unwrap_err().to_string().contains("machine.slice/web"), "{text}");
        }
    }
}
