//! The clock that the scheduler asks for when a thread begins to run (`qf_checkpoint` in `bpf/sched/dispatch.h`).

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::mm::ProtFlags;

use crate::bpf::Mapping;
use crate::power::{Clock, KnobName};

/// SCX_CPUPERF_ONE: the highest clock.
const ONE: f64 = 1024.0;
/// Name of the scheduler in `/sys/kernel/sched_ext/root/ops`.
const NAME: &str = "qfabric";

/// The word by which user space sets the clock that all reservations need. The scheduler asks for more when the service
/// of a server no longer fits into the time until its deadline. When the scheduler ends, the kernel forgets both.
#[derive(Debug)]
pub struct SchedulerClock(Mapping);

impl SchedulerClock {
    /// Maps the memory of [`crate::mechanism::Mechanism::clock_memory`].
    ///
    /// # Errors
    /// The kernel does not map it.
    pub fn map(memory: &OwnedFd) -> io::Result<SchedulerClock> {
        Ok(SchedulerClock(Mapping::new(memory, 8, 0, ProtFlags::READ | ProtFlags::WRITE)?))
    }

    /// From its next thread on, each CPU asks for this part (0 to 1) of the highest clock, rounded up. Without a call
    /// the scheduler asks for no clock.
    pub fn set(&self, part: f64) {
        let part = (part * ONE - 1e-6).ceil().clamp(1.0, ONE) as u64;
        self.0.copy_from(0, &part.to_le_bytes());
    }

    /// Whether the clock follows: its governor is schedutil, and the kernel has not ended the scheduler. `sys`: the
    /// root of sysfs.
    pub fn governs(sys: &Path, clock: &Clock) -> bool {
        let in_force = std::fs::read_to_string(sys.join("kernel/sched_ext/root/ops"));
        let follows = clock.knob(KnobName::Governor).value().is_some_and(|governor| governor == "schedutil");
        follows && in_force.is_ok_and(|name| name.trim_end() == NAME)
    }
}
