//! Reads the layout of this host's control groups and root domains, as far as it matters for real-time threads.
//!
//! SCHED_DEADLINE uses *root domains* (cpuset partitions), not groups: a thread must be allowed on every CPU of its
//! root domain. On a kernel with RT_GROUP_SCHED, `cpu.rt_runtime_us` of the group limits SCHED_FIFO and SCHED_RR; it
//! does not limit SCHED_DEADLINE.

use std::path::{Path, PathBuf};

use crate::cpus::CpuList;
use crate::files;

/// Versions of control groups that are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Only version 2, with its controllers.
    V2,
    /// Version 1 hierarchies, and a version 2 hierarchy without controllers.
    Hybrid,
    /// Only version 1.
    V1,
    None,
}

/// Mount points of the control groups, from a `/proc/self/mounts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    pub v2: Option<PathBuf>,
    /// Version 1 hierarchies with their options, which name the controllers.
    pub v1: Vec<(PathBuf, String)>,
}

impl Mounts {
    /// Mount points of this host.
    pub fn here() -> Mounts {
        Mounts::parse(&files::text("/proc/self/mounts").unwrap_or_default())
    }

    /// Mount points in the text of a mounts file.
    pub fn parse(text: &str) -> Mounts {
        let mut mounts = Mounts::default();
        for line in text.lines() {
            let mut words = line.split(' ').skip(1);
            let (Some(at), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else { continue };
            match kind {
                "cgroup2" => mounts.v2 = Some(at.into()),
                "cgroup" => mounts.v1.push((at.into(), options.to_owned())),
                _ => {}
            }
        }
        mounts
    }

    pub fn layout(&self) -> Layout {
        match (&self.v2, self.v1.is_empty()) {
            (Some(_), true) => Layout::V2,
            (Some(_), false) => Layout::Hybrid,
            (None, false) => Layout::V1,
            (None, true) => Layout::None,
        }
    }

    /// The version 1 hierarchy of a controller.
    pub fn v1_of(&self, controller: &str) -> Option<&Path> {
        let has = |options: &str| options.split(',').any(|o| o == controller);
        self.v1.iter().find(|(_, options)| has(options)).map(|(at, _)| at.as_path())
    }

    /// Folder of `pid`'s group in the hierarchy of a controller; in the version 2 hierarchy if `controller` is empty.
    /// In a control group namespace, the path of a group outside has `..`, and need not exist.
    pub fn group_of(&self, pid: i32, controller: &str) -> Option<PathBuf> {
        let text = files::text(format!("/proc/{pid}/cgroup")).ok()?;
        let group = group_in(&text, controller)?;
        let root = if controller.is_empty() { self.v2.as_deref() } else { self.v1_of(controller) };
        Some(root?.join(group.trim_start_matches('/')))
    }
}

/// Path of the group in the text of a `/proc/PID/cgroup`.
fn group_in(text: &str, controller: &str) -> Option<String> {
    let mut lines = text.lines().filter_map(|l| {
        let mut parts = l.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    lines.find(|(names, _)| names.split(',').any(|n| n == controller)).map(|(_, group)| group.to_owned())
}

/// The CPUs on which a thread must be allowed for SCHED_DEADLINE: the CPUs of its cpuset partition if it is in one,
/// otherwise all CPUs that are online and not isolated.
pub fn root_domain(pid: i32) -> CpuList {
    let group = Mounts::here().group_of(pid, "");
    let partition = group.as_deref().and_then(partition_of);
    partition.unwrap_or_else(|| {
        let isolated = CpuList::read("/sys/devices/system/cpu/isolated").unwrap_or_default();
        CpuList::online().without(&isolated)
    })
}

/// The CPUs of the nearest partition root at or above a version 2 group.
fn partition_of(group: &Path) -> Option<CpuList> {
    let is_root = |dir: &&Path| {
        let kind = files::text(dir.join("cpuset.cpus.partition")).unwrap_or_default();
        matches!(kind.trim(), "root" | "isolated")
    };
    let effective = |dir: &Path| CpuList::read(dir.join("cpuset.cpus.effective")).filter(|c| !c.is_empty());
    let nearest = group.ancestors().find(is_root).and_then(effective);
    // Without a partition root, use the top group: its list lacks the CPUs that partitions elsewhere took.
    nearest.or_else(|| group.ancestors().filter_map(effective).last())
}

/// Time in µs per period that the group of `pid` grants to SCHED_FIFO and SCHED_RR threads; `None` without
/// RT_GROUP_SCHED. If it is 0, the kernel refuses these policies to the threads of the group, but not SCHED_DEADLINE.
pub fn group_rt_runtime_us(pid: i32) -> Option<i64> {
    files::number(Mounts::here().group_of(pid, "cpu")?.join("cpu.rt_runtime_us"))
}

/// The range of periods that this kernel accepts, as text.
pub fn period_range() -> String {
    let us = |end: &str| files::number::<i64>(format!("/proc/sys/kernel/sched_deadline_period_{end}_us"));
    match (us("min"), us("max")) {
        (Some(min), Some(max)) => format!("{min} µs and {max} µs"),
        _ => "100 µs and 4 s".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HYBRID: &str = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
                          cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\nproc /proc proc rw 0 0\n";

    #[test]
    fn the_layout_follows_from_the_mounts() {
        assert_eq!(Mounts::parse(HYBRID).layout(), Layout::Hybrid);
        assert_eq!(Mounts::parse("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0").layout(), Layout::V2);
        assert_eq!(Mounts::parse("c /c cgroup rw,cpu 0 0").layout(), Layout::V1);
        assert_eq!(Mounts::parse("garbage\n\n").layout(), Layout::None);
        assert_eq!(Mounts::parse(HYBRID).v1_of("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
        assert_eq!(Mounts::parse(HYBRID).v1_of("cpuset"), None);
    }

    #[test]
    fn a_group_is_found_in_its_hierarchy() {
        let text = "5:cpu,cpuacct:/a:b\n0::/user.slice\n";
        assert_eq!(group_in(text, "cpuacct").as_deref(), Some("/a:b"));
        assert_eq!(group_in(text, "").as_deref(), Some("/user.slice"));
        assert_eq!(group_in(text, "memory"), None);
    }

    #[test]
    fn the_nearest_partition_names_the_cpus() {
        let root = tempfile::tempdir().unwrap();
        let write = |dir: &str, file: &str, text: &str| {
            fs::create_dir_all(root.path().join(dir)).unwrap();
            fs::write(root.path().join(dir).join(file), text).unwrap();
        };
        write("", "cpuset.cpus.effective", "0-5\n");
        write("rt", "cpuset.cpus.partition", "root\n");
        write("rt", "cpuset.cpus.effective", "6-7\n");
        write("rt/app", "cpuset.cpus.partition", "member\n");
        write("other", "cpuset.cpus.partition", "root invalid (no CPUs)\n");
        assert_eq!(partition_of(&root.path().join("rt/app")).unwrap().to_string(), "6-7");
        assert_eq!(partition_of(&root.path().join("other")).unwrap().to_string(), "0-5");
    }

    #[test]
    fn this_host_has_a_root_domain() {
        assert!(!root_domain(std::process::id() as i32).is_empty());
    }
}
