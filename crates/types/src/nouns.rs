//! The nouns between controller, broker and kernel. [`crate::Contract`] and [`crate::Quality`] have files of
//! their own.

use crate::{AppId, Instant, JobRecord, Nanos, Reclaiming, Reservation, Share, Terms, ThreadId};

/// What the controllers of an application want now, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Whose.
    pub app: AppId,
    /// How much of the processor, over all its threads.
    pub share: Share,
}

/// What a mechanism is told: this thread, this reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which thread.
    pub thread: ThreadId,
    /// What it gets from its next replenishment on; `None` puts it back under the scheduler it came from.
    pub reservation: Option<Reservation>,
    /// What its server does at the end of the budget.
    pub reclaiming: Reclaiming,
    /// What only some mechanisms can carry out; the default asks for nothing of it.
    pub terms: Terms,
}

/// One stretch of a thread on a CPU, as it was seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Which thread.
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

/// What one job used, and what it had been granted: a controller that knows both never winds up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// What was used.
    pub job: JobRecord,
    /// What the job ran under; `None` while the application has no reservation.
    pub granted: Option<Reservation>,
    /// s_k: the scheduling deadline of the thread's server when the job ended (AQuoSA's virtual finishing time), where
    /// the mechanism tells it.
    pub served: Option<Instant>,
}
