//! Observes threads from outside, without their help: when they run, sleep, start and end.
//!
//! [`SwitchObserver`] (perf events) is exact: it reports the begin and end of every stretch on a CPU, and every new
//! thread. It costs a covered thread about one microsecond per context switch. If perf is refused, [`PollObserver`]
//! compares `/proc` from poll to poll. A stretch is then as long as the time between two polls, and a new thread is
//! seen one poll late.
//!
//! | file | contents |
//! |---|---|
//! | `ring.rs` | one CPU's records in shared memory (all `unsafe` of this module) |
//! | `record.rs` | bytes → records, pure |
//! | `stretches.rs` | records → observations, pure |
//! | `perf.rs` | attaching, and merging the rings of all CPUs by time |
//! | `occupancy.rs` | which thread runs on which CPU, for all threads of the host |
//! | `poll.rs` | the fallback |

mod occupancy;
mod perf;
mod poll;
mod record;
mod ring;
mod stretches;

use std::io;
use std::os::fd::BorrowedFd;

use qfabric_types::{Sample, ThreadId};

pub use occupancy::{CpuObserver, CpuStretch};
pub use perf::SwitchObserver;
pub use poll::PollObserver;

/// One event of a covered thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The thread ran on a CPU without interruption. From [`SwitchObserver`] the used time includes the time that the
    /// hypervisor took from it.
    Ran(Sample),
    /// A new thread of a covered program; it is observed from its start.
    Born {
        tid: ThreadId,
        pid: i32,
        parent: ThreadId,
    },
    Gone {
        tid: ThreadId,
    },
    /// A process executed another program. A [`Observation::Gone`] for each of its other threads comes first.
    Exec {
        /// The only remaining thread.
        tid: ThreadId,
    },
}

/// The result of one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Number of observations that were delivered.
    pub observations: usize,
    /// Records that the kernel dropped since the last poll because the ring was full. Poll more often.
    pub lost: u64,
    /// The limit of one poll was reached; more records wait.
    pub more: bool,
}

pub trait Observer: Send {
    /// `perf` or `poll`.
    fn name(&self) -> &'static str;

    /// Covers every thread of a process, and from now on each new thread and child process of these. Returns the
    /// present threads. Also works for a child that is held before its exec. Errors: `ESRCH`: the process has ended;
    /// `EACCES`/`EPERM`: it belongs to another user; `EMFILE`: raise the limit of open files (perf needs one per
    /// present thread and CPU).
    fn attach(&mut self, pid: i32) -> io::Result<Vec<ThreadId>>;

    /// Covers one thread, without the threads that it starts.
    fn attach_thread(&mut self, thread: ThreadId) -> io::Result<()>;

    /// Ends the observation that was begun under this id (the pid of [`Observer::attach`] or the thread of
    /// [`Observer::attach_thread`]), including all threads that it added later.
    fn detach(&mut self, id: i32);

    /// Whether the thread is observed, under any id.
    fn follows(&self, thread: ThreadId) -> bool;

    /// Delivers the events since the last poll in the order of their time, from at most [`POLL_LIMIT`] records.
    fn poll(&mut self, sink: &mut dyn FnMut(Observation)) -> Polled;

    /// For each thread that was on a CPU at the last poll, delivers the stretch up to that poll as an
    /// [`Observation::Ran`] with `slept: false`; the rest of the stretch follows later. Used to measure consumption in
    /// a window of time.
    fn cut(&mut self, sink: &mut dyn FnMut(Observation));

    /// Descriptors that become readable before records are lost; call `poll` then.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// Largest number of records that one poll handles. Limits its duration to a few milliseconds.
pub const POLL_LIMIT: usize = 16_384;

/// Largest number of followed threads; further threads are counted and left out.
pub const MAX_FOLLOWED: usize = 16_384;

/// The best observer that this host allows: perf events, or polling if perf is refused.
pub fn open() -> Box<dyn Observer> {
    match SwitchObserver::new() {
        Ok(perf) => Box::new(perf),
        Err(error) => {
            tracing::warn!(%error, "perf events are refused, so threads are observed by polling /proc; grant CAP_PERFMON");
            Box::new(PollObserver::new())
        }
    }
}
