//! What threads did, seen from outside and without their help: which stretches they ran, who was born, who
//! died.
//!
//! [`SwitchObserver`] (perf events) is exact: every stretch with its begin and end, every birth. It costs a
//! covered thread about a microsecond a switch. Where perf is refused, [`PollObserver`] compares `/proc` from
//! poll to poll: stretches are then as long as the time between polls, births are seen one poll late.
//!
//! | file | what |
//! |---|---|
//! | `ring.rs` | one CPU's records in shared memory (all `unsafe` of this module) |
//! | `record.rs` | bytes → records, pure |
//! | `stretches.rs` | records → observations, pure |
//! | `perf.rs` | attaching, merging the CPUs' rings by time |
//! | `poll.rs` | the fallback |

mod perf;
mod poll;
mod record;
mod ring;
mod stretches;

use std::io;
use std::os::fd::BorrowedFd;

use qfabric_types::{Instant, Nanos, ThreadId};

pub use perf::SwitchObserver;
pub use poll::PollObserver;

/// One fact about a covered thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// One stretch on a CPU.
    Ran {
        /// Which thread.
        tid: ThreadId,
        /// When it got the CPU.
        from: Instant,
        /// When it left it.
        to: Instant,
        /// CPU time of the stretch; seen by switches, also what the hypervisor took from it.
        used: Nanos,
        /// It left to sleep, or ended; otherwise it was preempted or its budget was used up.
        slept: bool,
    },
    /// A new thread of a covered program; it is observed from birth.
    Born {
        /// Its number.
        tid: ThreadId,
        /// Its process.
        pid: i32,
        /// Who made it.
        parent: ThreadId,
    },
    /// A thread ended.
    Gone {
        /// Which.
        tid: ThreadId,
    },
    /// A process became another program; a [`Observation::Gone`] for each of its other threads comes first.
    Exec {
        /// Its only thread.
        tid: ThreadId,
    },
}

/// What one poll came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Facts handed out.
    pub observations: usize,
    /// Records the kernel dropped since the last poll, for want of room: poll more often.
    pub lost: u64,
    /// The bound was reached; there is more to fetch.
    pub more: bool,
}

/// Watches programs.
pub trait Observer: Send {
    /// Its name: `perf` or `poll`.
    fn name(&self) -> &'static str;

    /// Covers every thread of a process, and from now on each new thread and child process of them. Answers
    /// the threads there are. A child held before its exec works too. `ESRCH`: gone; `EACCES`/`EPERM`: not
    /// one's own; `EMFILE`: raise the limit of open files (perf needs one per thread and CPU at this moment).
    fn attach(&mut self, pid: i32) -> io::Result<Vec<ThreadId>>;

    /// Covers one thread alone, not those it makes.
    fn attach_thread(&mut self, thread: ThreadId) -> io::Result<()>;

    /// Stops watching what was attached under this number ([`Observer::attach`]'s pid or
    /// [`Observer::attach_thread`]'s thread), with all that came of it.
    fn detach(&mut self, id: i32);

    /// Hands out what happened since, in order of time, at most [`POLL_LIMIT`] records.
    fn poll(&mut self, sink: &mut dyn FnMut(Observation)) -> Polled;

    /// Hands out, for each thread on a CPU at the last poll, the stretch up to then as a
    /// [`Observation::Ran`] that did not sleep; the rest follows later. For windows of consumption.
    fn cut(&mut self, sink: &mut dyn FnMut(Observation));

    /// Descriptors that become readable when records are about to be lost; poll then.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// How many records one poll handles: bounds the time it takes to a few milliseconds.
pub const POLL_LIMIT: usize = 16_384;

/// So many threads are followed; further ones are counted and left out.
pub const MAX_FOLLOWED: usize = 16_384;

/// The best observer this host allows: perf events, or polling where those are refused.
pub fn open() -> Box<dyn Observer> {
    match SwitchObserver::new() {
        Ok(perf) => Box::new(perf),
        Err(error) => {
            tracing::warn!(%error, "perf events are refused; threads are observed by polling /proc");
            Box::new(PollObserver::new())
        }
    }
}
