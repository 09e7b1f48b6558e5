//! The competitors: how a task is put under each scheduler, with the same budget where it takes one.

use anyhow::{Context, Result};
use qfabric_linux::sched_attr::{Policy, RESET_ON_FORK, SchedAttr};
use qfabric_types::{Instant, Nanos, Reservation, ThreadId, Window};
use serde::{Deserialize, Serialize};

/// A competitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Competitor {
    /// The kernel's fair scheduler, as programs get it.
    Default,
    /// SCHED_RR at priority 1: what the papers ran their players under.
    Rr,
    /// SCHED_DEADLINE with static budgets.
    Deadline,
}

impl Competitor {
    /// All of them, in the order of tables.
    pub const ALL: [Competitor; 3] = [Competitor::Default, Competitor::Rr, Competitor::Deadline];

    /// As tables and plots say it.
    pub fn name(self) -> &'static str {
        match self {
            Competitor::Default => "default",
            Competitor::Rr => "round robin",
            Competitor::Deadline => "SCHED_DEADLINE",
        }
    }
}

/// What a task needs of its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// T.
    pub period: Nanos,
    /// C.
    pub budget: Nanos,
    /// x/y.
    pub window: Window,
    /// When its first period begins.
    pub first: Instant,
    /// Gets time beyond its service.
    pub work_conserving: bool,
}

/// A competitor in charge. Dropping it puts the host back.
pub struct Regime {
    competitor: Competitor,
}

impl Regime {
    /// Puts it in charge.
    pub fn begin(competitor: Competitor) -> Result<Regime> {
        Ok(Regime { competitor })
    }

    /// Puts a task under it. A refusal of its admission is an error that says so.
    pub fn place(&mut self, thread: ThreadId, claim: Claim) -> Result<()> {
        match self.competitor {
            Competitor::Default => Ok(()),
            Competitor::Rr => round_robin().give(thread).context("SCHED_RR"),
            Competitor::Deadline => {
                let reservation = Reservation::new(claim.budget, claim.period)?;
                SchedAttr::deadline(reservation, false).give(thread).context("SCHED_DEADLINE refuses the task")
            }
        }
    }
}

fn round_robin() -> SchedAttr {
    SchedAttr { policy: Policy::RR, priority: 1, flags: RESET_ON_FORK, ..SchedAttr::fair(0) }
}

/// Puts a thread above all competitors: what stands for other machines, and the conductor itself. Its children
/// start as ordinary tasks.
pub fn elevate(thread: ThreadId, priority: u32) -> Result<()> {
    SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(priority) }
        .give(thread)
        .context("cannot run above the contest: SCHED_FIFO needs CAP_SYS_NICE; run it as root")
}
