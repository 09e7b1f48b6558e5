//! Memory that is never waited for, and the limits that matter for it.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;

use crate::capability;

/// Locks all memory of this process, also what comes later, as it is first touched (`MCL_ONFAULT`: what is
/// never used is not kept). Needs CAP_IPC_LOCK or a large enough RLIMIT_MEMLOCK; where only that limit is
/// there, later allocations fail once it is reached, so callers without the right should not lock.
pub fn lock_all() -> io::Result<()> {
    if !may_lock() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// Whether any amount of memory may be locked.
pub fn may_lock() -> bool {
    capability::held(CapabilitySet::IPC_LOCK) || getrlimit(Resource::Memlock).current.is_none()
}

/// How many bytes may be locked without CAP_IPC_LOCK.
pub fn lock_limit() -> u64 {
    getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// Touches the next 128 KiB of the calling thread's stack, so that it is there when it is needed.
#[inline(never)]
pub fn prefault_stack() {
    let mut pages = [0u8; 128 * 1024];
    for page in pages.chunks_mut(4096) {
        page[0] = 1;
    }
    std::hint::black_box(&mut pages);
}

/// How many files may be open, once [`raise_open_files`] was called.
pub fn open_files_limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Raises the soft limit of open files to the hard one: observers need a descriptor per thread and CPU.
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
    fn without_the_right_nothing_is_locked() {
        let refused = std::thread::spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::IPC_LOCK);
            rustix::thread::set_capabilities(None, sets).unwrap();
            may_lock() || lock_all().is_err()
        });
        assert!(refused.join().unwrap());
    }
}
