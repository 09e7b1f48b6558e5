//! What threads did, seen from outside and without their help: which stretches they ran, who was born, who
//! died.

use std::io;

use qfabric_types::{Instant, Nanos, ThreadId};

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
        /// CPU time of the stretch.
        used: Nanos,
        /// It left to sleep; otherwise it was preempted or its budget was used up.
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
    /// A process became another program; its other threads are gone.
    Exec {
        /// The thread that did it.
        tid: ThreadId,
    },
}

/// What one poll came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Facts handed out.
    pub observations: usize,
    /// Records the kernel dropped since the last poll: poll more often, or with larger rings.
    pub lost: u64,
    /// The bound was reached; there is more to fetch.
    pub more: bool,
}

/// Watches programs.
pub trait Observer: Send {
    /// Its name: `perf` or `poll`.
    fn name(&self) -> &'static str;

    /// Covers every thread of a process, and from now on each new thread and child process of them. Answers
    /// the threads there are. A child held before its exec works too.
    fn attach(&mut self, pid: i32) -> io::Result<Vec<ThreadId>>;

    /// Covers one thread alone.
    fn attach_thread(&mut self, thread: ThreadId) -> io::Result<()>;

    /// Stops watching what was attached under this number ([`Observer::attach`]'s pid or
    /// [`Observer::attach_thread`]'s thread).
    fn detach(&mut self, id: i32);

    /// Hands out what happened since, in order of time, at most [`POLL_LIMIT`] records.
    fn poll(&mut self, sink: &mut dyn FnMut(Observation)) -> Polled;

    /// Hands out, for each thread on a CPU at this moment, the stretch so far as a [`Observation::Ran`] that
    /// did not sleep; the rest follows later. For windows of consumption.
    fn cut(&mut self, sink: &mut dyn FnMut(Observation));
}

/// How many records one poll handles: bounds the time it takes to a few milliseconds.
pub const POLL_LIMIT: usize = 16_384;

/// The best observer this host allows: perf events, or polling where those are refused.
pub fn open() -> Box<dyn Observer> {
    unimplemented!()
}
