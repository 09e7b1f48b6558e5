//! Whether this host can protect the memory of a program: the memory controller of control groups, version 2.

use std::path::PathBuf;

use qfabric_types::api::Problem;

use crate::cgroup::Mounts;
use crate::files;

/// The reason why this host cannot protect the memory of a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum MemoryLack {
    Version1,
    NotListed { root: PathBuf },
    NotMounted,
}

impl MemoryLack {
    /// The reason with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            MemoryLack::Version1 => (
                "memory.min needs the memory controller in cgroup v2, and this host has it in version 1".to_owned(),
                "boot with cgroup_no_v1=memory, or with systemd.unified_cgroup_hierarchy=1",
            ),
            MemoryLack::NotListed { root } => (
                format!("memory.min needs the memory controller in cgroup v2; {} does not list it", root.display()),
                "boot without cgroup_disable=memory, or enable the controller in cgroup.subtree_control above this \
                 root",
            ),
            MemoryLack::NotMounted => (
                "memory.min needs cgroup v2, which is not mounted on this host".to_owned(),
                "mount it: mount -t cgroup2 none /sys/fs/cgroup",
            ),
        };
        Problem::new("no_memory_groups", message, next_step)
    }
}

/// The root of the version 2 hierarchy, if it has the memory controller.
pub fn memory_root(mounts: &Mounts) -> Result<PathBuf, MemoryLack> {
    let listed = |root: &PathBuf| {
        let text = files::text(root.join("cgroup.controllers")).unwrap_or_default();
        text.split_whitespace().any(|name| name == "memory")
    };
    match &mounts.v2 {
        Some(root) if listed(root) => Ok(root.clone()),
        _ if mounts.v1_of("memory").is_some() => Err(MemoryLack::Version1),
        Some(root) => Err(MemoryLack::NotListed { root: root.join("cgroup.controllers") }),
        None => Err(MemoryLack::NotMounted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_part_is_named_with_the_next_step() {
        let v1 = Mounts::parse("c /sys/fs/cgroup/memory cgroup rw,memory 0 0\nc2 /none cgroup2 rw 0 0\n");
        let lack = memory_root(&v1).unwrap_err();
        assert_eq!(lack, MemoryLack::Version1);
        let Problem { message, next_step, .. } = lack.problem();
        assert!(message.ends_with("this host has it in version 1") && next_step.contains("cgroup_no_v1"), "{lack}");
        assert_eq!(memory_root(&Mounts::default()), Err(MemoryLack::NotMounted));

        let root = tempfile::tempdir().unwrap();
        let v2 = Mounts { v2: Some(root.path().to_owned()), v1: Vec::new() };
        std::fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io\n").unwrap();
        assert!(matches!(memory_root(&v2), Err(MemoryLack::NotListed { .. })));
        std::fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        assert_eq!(memory_root(&v2), Ok(root.path().to_owned()));
    }
}
