//! A thread of an unmodified program whose period is known: its jobs, and beside them what it consumes.
//!
//! The budget that its jobs need covers a peak: a film that is read in bursts of three frames has one job of three frames'
//! work in three periods, and two thirds of that budget are not used. Where the thread reclaims and hardly anybody competes
//! for what is lent, its mean consumption is enough, as for programs without a period; jobs that end late say that it is not.
//! Why: docs/design/0024.

use qfabric_types::{Contract, Instant, JobRecord, Nanos, Reclaiming, Reservation, Sample};

use crate::activation::Activations;
use crate::consumption::Consumption;

/// After a late job, for how many jobs the thread asks for what its jobs need.
const WARY: u32 = 16;

/// What is found in the stretches of one thread.
pub(crate) struct Found {
    pub activations: Activations,
    /// Of a thread that reclaims by GRUB: nobody lends to the others.
    consumption: Option<Consumption>,
    /// Jobs for which what is lent is not relied on.
    wary: u32,
}

impl Found {
    /// For a thread of which nothing is known yet: the mean is not relied on before [`WARY`] jobs have ended in time.
    pub(crate) fn new(contract: &Contract, lead: Nanos) -> Self {
        Found {
            activations: Activations::new(contract.period, contract.server_period, lead),
            consumption: (contract.reclaiming == Reclaiming::Grub).then(|| Consumption::new(contract, true)),
            wary: WARY,
        }
    }

    /// The thread was governed by this consumption, and has been well with it.
    pub(crate) fn rely_on(&mut self, seen: Consumption) {
        if self.consumption.is_some() {
            (self.consumption, self.wary) = (Some(seen), 0);
        }
    }

    pub(crate) fn into_consumption(self) -> Option<Consumption> {
        self.consumption
    }

    /// A stretch on the CPU. May end a job.
    pub(crate) fn ran(&mut self, sample: &Sample) -> Option<JobRecord> {
        if let Some(consumption) = &mut self.consumption {
            consumption.ran(sample);
        }
        self.activations.ran(sample)
    }

    /// Time has passed: the job that ended, and whether consumption was counted.
    pub(crate) fn on_time(&mut self, now: Instant, granted: Option<Reservation>) -> (Option<JobRecord>, bool) {
        let counted = self.consumption.as_mut().and_then(|consumption| consumption.on_time(now, granted)).is_some();
        (self.activations.on_time(now), counted)
    }

    /// A job ended, late or not.
    pub(crate) fn count(&mut self, missed: bool) {
        self.wary = if missed { WARY } else { self.wary.saturating_sub(1) };
    }

    /// Mean consumption per server period with a margin, where jobs end in time with it; `floor` at rest.
    pub(crate) fn mean(&self, floor: Nanos) -> Option<Nanos> {
        let consumption = self.consumption.as_ref().filter(|_| self.wary == 0)?;
        Some(consumption.budget(floor))
    }

    /// When it wants to be told the time.
    pub(crate) fn due(&self) -> Instant {
        self.activations.due().min(self.consumption.as_ref().map_or(Instant::NEVER, Consumption::due))
    }
}
