//! Locks memory, and raises the limits of a process.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;

use qfabric_types::Bytes;

use crate::{capability, files};

/// Locks all memory of this process, including later allocations. A page is locked when it is first used
/// (`MCL_ONFAULT`), so unused memory is not kept. Needs CAP_IPC_LOCK or a large RLIMIT_MEMLOCK. With only a limited
/// RLIMIT_MEMLOCK, later allocations fail when the limit is reached, so a caller without the capability should not
/// lock.
pub fn lock_all() -> io::Result<()> {
    if !may_lock() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// True if the process may lock any amount of memory.
pub fn may_lock() -> bool {
    capability::held(CapabilitySet::IPC_LOCK) || getrlimit(Resource::Memlock).current.is_none()
}

/// Number of bytes that may be locked without CAP_IPC_LOCK.
pub fn lock_limit() -> u64 {
    getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// The memory of this host (`MemTotal`).
pub fn total() -> Option<Bytes> {
    kib(&files::text("/proc/meminfo").ok()?, "MemTotal:")
}

/// The amount in a line of a file such as `/proc/meminfo`.
fn kib(text: &str, key: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::new(kib << 10))
}

/// The huge pages of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// The size of one.
    pub size: Bytes,
    /// The number that no mapping has taken.
    pub free: u64,
}

/// The huge pages of the default size; `None`: this kernel has none.
pub fn huge_pages() -> Option<HugePages> {
    let text = files::text("/proc/meminfo").ok()?;
    let count = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    let free = count("HugePages_Free:")?.saturating_sub(count("HugePages_Rsvd:").unwrap_or(0));
    Some(HugePages { size: kib(&text, "Hugepagesize:")?, free })
}

/// The resident memory of a process.
pub fn resident(pid: i32) -> Option<Bytes> {
    let text = files::text(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(Bytes::new(pages * rustix::param::page_size() as u64))
}

/// The memory of a process now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    pub resident: Bytes,
    pub swapped: Bytes,
    /// Locked by the process itself.
    pub locked: Bytes,
    /// Page faults that waited for a device, since the start of the process.
    pub major_faults: u64,
}

/// The memory of a process; `None`: it has ended.
pub fn of_process(pid: i32) -> Option<ProcessMemory> {
    let status = files::text(format!("/proc/{pid}/status")).ok()?;
    // A process that ends, and a thread of the kernel, have no such lines.
    let [resident, swapped, locked] = ["VmRSS:", "VmSwap:", "VmLck:"].map(|key| kib(&status, key).unwrap_or_default());
    Some(ProcessMemory { resident, swapped, locked, major_faults: major_faults(pid)? })
}

/// Field 12 of `/proc/PID/stat`; field 2 is the name, which may contain anything.
fn major_faults(pid: i32) -> Option<u64> {
    let stat = files::text(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(9)?.parse().ok()
}

/// Touches the next 128 KiB of the calling thread's stack, so that later use of the stack causes no page fault.
#[inline(never)]
pub fn prefault_stack() {
    let mut pages = [0u8; 128 * 1024];
    for page in pages.chunks_mut(4096) {
        page[0] = 1;
    }
    std::hint::black_box(&mut pages);
}

/// Largest number of open files after a call of [`raise_open_files`].
pub fn open_files_limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open files to the hard limit, because observers need one descriptor per thread and CPU.
pub fn raise_open_files() -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_can_be_touched_and_the_limit_raised() {
        prefault_stack();
        raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
    }

    #[test]
    fn the_memory_of_the_host_and_of_a_process_is_read() {
        let (total, own) = (total().unwrap(), resident(std::process::id() as i32).unwrap());
        assert!(own > Bytes::from_mib(1) && own < total);
        assert_eq!(resident(-1), None);
        let own = of_process(std::process::id() as i32).unwrap();
        assert!(own.resident > Bytes::from_mib(1) && own.resident < total && own.locked <= own.resident, "{own:?}");
        assert_eq!(of_process(-1), None);
        assert!(huge_pages().is_none_or(|huge| huge.size.get().is_power_of_two()));
    }

    #[test]
    fn without_the_capability_no_memory_is_locked() {
        let refused = std::thread::spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::IPC_LOCK);
            rustix::thread::set_capabilities(None, sets).unwrap();
            may_lock() || lock_all().is_err()
        });
        assert!(refused.join().unwrap());
    }
}
