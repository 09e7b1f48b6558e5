//! Reports that programs in a group wait for memory, and reads what the kernel charges to the group.
//!
//! The kernel measures the time in which at least one task of the group waits for memory (PSI). A trigger is a file that
//! becomes ready for `POLLPRI` when this time exceeds a threshold within a window; at most once per window. In a group
//! whose promise is large enough, no task waits for long. Source: Linux, `Documentation/accounting/psi.rst`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use qfabric_types::Bytes;

use crate::files;

/// 100 ms of waiting within 2 s: windows of whole 2 s need no privilege.
const TRIGGER: &str = "some 100000 2000000\0";

/// The group of one reserve, to be read from any thread.
#[derive(Clone, Debug)]
pub struct ReserveGroup(pub(super) PathBuf);

impl ReserveGroup {
    /// The memory of the group now; `None`: the group has vanished.
    pub fn usage(&self) -> Option<GroupUsage> {
        GroupUsage::of(&self.0)
    }

    /// Watches the pressure on the memory of the group.
    ///
    /// # Errors
    /// The kernel does not measure pressure (`psi=0`, or built without PSI), or the group has vanished.
    pub fn pressure(&self) -> io::Result<PressureTrigger> {
        PressureTrigger::open(&self.0)
    }
}

/// A trigger on the pressure of one group; it ends when this is dropped.
#[derive(Debug)]
pub struct PressureTrigger(File);

impl PressureTrigger {
    fn open(group: &Path) -> io::Result<PressureTrigger> {
        let mut file = OpenOptions::new().read(true).write(true).open(group.join("memory.pressure"))?;
        file.write_all(TRIGGER.as_bytes())?;
        Ok(PressureTrigger(file))
    }
}

impl AsFd for PressureTrigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The memory of a group now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// Charged to the group: anonymous memory, page cache, and kernel memory.
    pub charged: Bytes,
    /// `charged` without page cache that was not used lately (`inactive_file`): what the programs need.
    pub working_set: Bytes,
    /// Page faults of the group's processes that waited for a device.
    pub major_faults: u64,
}

impl GroupUsage {
    /// `None`: the group has vanished.
    fn of(group: &Path) -> Option<GroupUsage> {
        let charged = Bytes::new(files::number(group.join("memory.current"))?);
        let stat = files::text(group.join("memory.stat")).unwrap_or_default();
        let value = |key: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        let working_set = charged - Bytes::new(value("inactive_file"));
        Some(GroupUsage { charged, working_set, major_faults: value("pgmajfault") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_a_group_is_read() {
        let group = tempfile::tempdir().unwrap();
        assert_eq!(GroupUsage::of(group.path()), None);
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        write("memory.current", "8192\n");
        write("memory.stat", "anon 4096\nfile 4096\ninactive_file 1024\npgfault 70\npgmajfault 7\n");
        let expected = GroupUsage { charged: Bytes::new(8192), working_set: Bytes::new(7168), major_faults: 7 };
        assert_eq!(GroupUsage::of(group.path()), Some(expected));
    }

    #[test]
    fn a_trigger_on_the_pressure_of_the_host_is_accepted() {
        let group = tempfile::tempdir().unwrap();
        assert!(PressureTrigger::open(group.path()).is_err(), "no group");
        // The same format, in a file that exists on every host with PSI.
        let Ok(mut file) = OpenOptions::new().read(true).write(true).open("/proc/pressure/memory") else { return };
        if let Err(error) = file.write_all(TRIGGER.as_bytes()) {
            assert_ne!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    }
}
