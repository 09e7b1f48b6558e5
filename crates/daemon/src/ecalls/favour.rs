//! Events that favour the servers of the receiving process. The handler raises them itself if it runs in the kernel
//! and the scheduler has memory for that; otherwise they go through the control thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use qfabric_linux::ecalls::{Aim, Step};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::memory::Stamp;

use super::Ecalls;
use super::subscription::{Subscription, count};
use crate::control::Requests;
use crate::problem;

/// The two ways to the scheduler.
pub(crate) struct Favours {
    control: Requests,
    /// Memory in which handlers in the kernel raise events, if the mechanism has it.
    raised: Option<OwnedFd>,
}

impl Favours {
    /// The step with which a chain in the kernel favours the servers of `aim`.
    pub(super) fn step<'a>(&'a self, aim: &'a Aim) -> Option<Step<'a>> {
        Some(Step::Favour { raised: self.raised.as_ref()?.as_fd(), aim })
    }
}

impl Ecalls {
    /// From now on events can favour servers.
    pub(crate) fn favour_through(&self, control: Requests, raised: Option<OwnedFd>) {
        // Called once, when the service is assembled.
        let _ = self.favours.set(Favours { control, raised });
    }

    /// The target of a chain at a hook, still without servers; `None` if the chain cannot favour servers.
    pub(super) fn new_aim(&self, wanted: bool) -> Result<Option<Arc<Aim>>, Problem> {
        if !wanted || self.favours.get().is_none_or(|favours| favours.raised.is_none()) {
            return Ok(None);
        }
        let aim = Aim::new()
            .map_err(|error| problem::internal(format!("cannot create the target list of a handler: {error}")))?;
        Ok(Some(Arc::new(aim)))
    }

    /// From now on the control thread updates the target with the servers of the receiving process.
    pub(super) fn follow(&self, subscription: &Subscription) -> Result<(), Problem> {
        match (&subscription.chain.aim, self.favours.get()) {
            (Some(aim), Some(favours)) => favours.control.aim(subscription.terms.process_id, aim),
            _ => Ok(()),
        }
    }

    /// Favours the servers of the receiving process before the event is delivered, so that the process waits only
    /// for the delivery, not for a CPU. If the control thread's queue is full, this is dropped and counted.
    pub(super) fn favour(&self, to: &Subscription, wanted: bool, stamp: Stamp) {
        let Some(favours) = self.favours.get().filter(|_| wanted) else { return };
        let deadline = (stamp.deadline_ns > 0).then(|| Instant::new(stamp.deadline_ns));
        if !favours.control.favour(to.terms.process_id, deadline) {
            count(&self.totals.favours_dropped);
        }
    }
}
