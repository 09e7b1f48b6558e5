//! A [`JobRing`] in a sealed memfd.

use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;

use qfabric_types::ring::JobRing;

use crate::mapping::Shared;
use crate::memfd::{Unshrinkable, refused};

const SIZE: usize = size_of::<JobRing>();

/// A job ring that two processes map. Unmapped when dropped.
#[derive(Debug)]
pub struct SharedRing(Shared<JobRing>);

impl SharedRing {
    /// Creates a new ring (daemon). Pass the file on with [`crate::fds::send`]: it can neither shrink nor grow,
    /// whatever its receiver does.
    pub fn create() -> io::Result<(SharedRing, OwnedFd)> {
        let (ring, file) = Shared::<JobRing>::create("qfabric-ring")?;
        ring.initialize();
        Ok((SharedRing(ring), file))
    }

    /// Maps a ring that the daemon created (application). Refused unless the file is sealed against shrinking, has
    /// the right size, and holds a ring of this version.
    pub fn map(file: OwnedFd) -> io::Result<SharedRing> {
        check_size(Unshrinkable::check(&file)?.size()?)?;
        let ring = Shared::<JobRing>::map(&file)?;
        if ring.is_valid() {
            Ok(SharedRing(ring))
        } else {
            Err(refused("the shared memory holds no job ring of this version; use a daemon of the same version"))
        }
    }
}

fn check_size(size: u64) -> io::Result<()> {
    if size == SIZE as u64 {
        return Ok(());
    }
    Err(refused(&format!(
        "the shared memory has {size} bytes, a job ring has {SIZE}; use a daemon of the same version"
    )))
}

impl Deref for SharedRing {
    type Target = JobRing;

    fn deref(&self) -> &JobRing {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::ring::{Consumer, Grant, JobEvent, Producer, PushOutcome};
    use qfabric_types::{Foresight, Instant, Nanos, Overload, Share};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    fn memfd(size: usize, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, size as u64).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn refusal(file: OwnedFd) -> String {
        SharedRing::map(file).unwrap_err().to_string()
    }

    #[test]
    fn two_mappings_see_each_other() {
        let (daemon, file) = SharedRing::create().unwrap();
        let application = SharedRing::map(file).unwrap();
        let event = JobEvent::Begin { k: 7, known: Foresight::Hint(1.5) };
        assert_eq!(Producer::default().push(&application, event, Instant::new(1)), PushOutcome::Wake);
        assert_eq!(Consumer::default().take(&daemon), Some(event));
        let overload = Some(Overload { wanted: Share::ONE, granted: Share::from_ppm(7) });
        let (budget, period, predicted) = (Nanos::new(5), Nanos::new(9), Nanos::new(4));
        let grant = Grant { budget, period, error_ns: -3, jobs: 1, overload, predicted };
        daemon.publish(grant);
        assert_eq!(application.grant(), grant);
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        assert!(refusal(memfd(SIZE, SealFlags::GROW)).contains("could shrink"));
        assert!(refusal(tempfile::tempfile().unwrap().into()).contains("not a memfd"));
    }

    #[test]
    fn memory_of_another_size_is_refused_with_both_numbers() {
        for size in [0, 64, SIZE - 1, SIZE + 4096] {
            let text = refusal(memfd(size, SealFlags::SHRINK));
            assert!(text.contains(&size.to_string()) && text.contains(&SIZE.to_string()), "{text}");
        }
    }

    #[test]
    fn memory_that_holds_no_ring_is_refused() {
        assert!(refusal(memfd(SIZE, SealFlags::SHRINK)).contains("holds no job ring"));
    }

    #[test]
    fn a_receiver_can_neither_shrink_nor_grow_the_ring_nor_unseal_it() {
        let (_ring, file) = SharedRing::create().unwrap();
        for size in [0, SIZE as u64 - 1, SIZE as u64 + 1] {
            assert_eq!(ftruncate(&file, size), Err(rustix::io::Errno::PERM));
        }
        assert_eq!(fcntl_add_seals(&file, SealFlags::WRITE), Err(rustix::io::Errno::PERM));
    }
}
