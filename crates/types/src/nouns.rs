//! The values that pass between controller, broker and kernel. [`crate::Contract`] and [`crate::Quality`] are in
//! separate files.

use crate::{AppId, Instant, JobRecord, Nanos, Reclaiming, Reservation, ServerTerms, Share, ThreadId};

/// What the controllers of an application want now, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    pub app: AppId,
    /// Share of the processor, for all threads of the application together.
    pub share: Share,
}

/// An instruction to a mechanism: the reservation of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub thread: ThreadId,
    /// The reservation from the next replenishment on; `None` returns the thread to its former scheduler.
    pub reservation: Option<Reservation>,
    /// The kind of reclaiming.
    pub reclaiming: Reclaiming,
    /// Requests that not every mechanism supports; the default contains none.
    pub terms: ServerTerms,
}

/// One stretch of a thread on a CPU, as it was seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub thread: ThreadId,
    /// When it got the CPU.
    pub from: Instant,
    /// When it left the CPU.
    pub to: Instant,
    /// CPU time used in between.
    pub used: Nanos,
    /// Whether it left the CPU to sleep, or ended; otherwise it was preempted, or its budget was used up.
    pub slept: bool,
}

/// The cost of a job, with the reservation it ran under. A controller that has both does not wind up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub job: JobRecord,
    /// The reservation under which the job ran; `None` while the application has no reservation.
    pub granted: Option<Reservation>,
    /// s_k: the scheduling deadline of the thread's server when the job ended (AQuoSA's virtual finishing time), if
    /// the mechanism reports it.
    pub served: Option<Instant>,
}
