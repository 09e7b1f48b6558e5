//! A thread of an unmodified program with a known period: its jobs, and beside them its mean consumption.
//!
//! The budget for its jobs covers peaks: a film that is read in bursts of three frames has one job with the work of
//! three frames in three periods, and two thirds of that budget stay unused. If the thread reclaims and few others
//! compete for the unused time, its mean consumption is enough, as for programs without a period; late jobs show
//! that it is not. Reasons: docs/design/0024.

use qfabric_types::{Contract, Instant, JobRecord, Nanos, Reclaiming, Reservation, Sample};

use crate::activation::Activations;
use crate::consumption::Consumption;

/// Number of jobs after a late one for which the thread requests what its jobs need.
const WARY_JOBS: u32 = 16;

/// The jobs and the consumption found in the stretches of one thread.
pub(crate) struct Found {
    pub activations: Activations,
    /// Only for a thread that reclaims by GRUB, because the other kinds lend nothing.
    consumption: Option<Consumption>,
    /// Remaining jobs for which the mean consumption is not relied on.
    wary: u32,
}

impl Found {
    /// For a new thread: the mean is not relied on before [`WARY_JOBS`] jobs have ended in time.
    pub(crate) fn new(contract: &Contract, lead: Nanos) -> Self {
        Found {
            activations: Activations::new(contract.period, contract.server_period, lead),
            consumption: (contract.reclaiming == Reclaiming::Grub).then(|| Consumption::new(contract, true)),
            wary: WARY_JOBS,
        }
    }

    /// Takes over the consumption that governed the thread so far; it was enough.
    pub(crate) fn rely_on(&mut self, seen: Consumption) {
        if self.consumption.is_some() {
            (self.consumption, self.wary) = (Some(seen), 0);
        }
    }

    pub(crate) fn into_consumption(self) -> Option<Consumption> {
        self.consumption
    }

    /// Adds a stretch on the CPU. Returns the job that it ended.
    pub(crate) fn ran(&mut self, sample: &Sample) -> Option<JobRecord> {
        if let Some(consumption) = &mut self.consumption {
            consumption.ran(sample);
        }
        self.activations.ran(sample)
    }

    /// Returns the job that has ended, and whether a window of consumption was closed.
    pub(crate) fn on_time(&mut self, now: Instant, granted: Option<Reservation>) -> (Option<JobRecord>, bool) {
        let counted = self.consumption.as_mut().and_then(|consumption| consumption.on_time(now, granted)).is_some();
        (self.activations.on_time(now), counted)
    }

    /// Counts a job that ended.
    pub(crate) fn count(&mut self, missed: bool) {
        self.wary = if missed { WARY_JOBS } else { self.wary.saturating_sub(1) };
    }

    /// Mean consumption per server period with a margin; `floor` at rest. `None` while jobs end late with it.
    pub(crate) fn mean(&self, floor: Nanos) -> Option<Nanos> {
        let consumption = self.consumption.as_ref().filter(|_| self.wary == 0)?;
        Some(consumption.budget(floor))
    }

    pub(crate) fn due(&self) -> Instant {
        self.activations.due().min(self.consumption.as_ref().map_or(Instant::NEVER, Consumption::due))
    }
}
