//! Events that favour the servers of who is told: raised by the handler itself where that runs in the kernel and the
//! scheduler has memory for it, and through the control thread otherwise.

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
    /// Where handlers in the kernel raise events, where the mechanism has such a place.
    raised: Option<OwnedFd>,
}

impl Favours {
    /// The step by which a chain in the kernel favours whom `aim` names.
    pub fn step<'a>(&'a self, aim: &'a Aim) -> Option<Step<'a>> {
        Some(Step::Favour { raised: self.raised.as_ref()?.as_fd(), aim })
    }
}

impl Ecalls {
    /// From now on events can favour servers.
    pub fn favour_through(&self, control: Requests, raised: Option<OwnedFd>) {
        // Set once, when the service is put together.
        let _ = self.favours.set(Favours { control, raised });
    }

    /// Whom the chain at a hook is to favour: nobody yet; `None` where it cannot.
    pub(super) fn new_aim(&self, wanted: bool) -> Result<Option<Arc<Aim>>, Problem> {
        if !wanted || self.favours.get().is_none_or(|favours| favours.raised.is_none()) {
            return Ok(None);
        }
        let aim = Aim::new().map_err(|error| problem::internal(format!("cannot make a handler's aim: {error}")))?;
        Ok(Some(Arc::new(aim)))
    }

    /// The control thread aims it from now on at the servers of the process that is told.
    pub(super) fn follow(&self, subscription: &Subscription) -> Result<(), Problem> {
        match (&subscription.chain.aim, self.favours.get()) {
            (Some(aim), Some(favours)) => favours.control.aim(subscription.terms.process_id, aim),
            _ => Ok(()),
        }
    }

    /// The servers of the process that is told are favoured before the event is delivered: what it waits for then is
    /// the delivery, not the CPU. What finds the control thread's queue full is dropped, counted.
    pub(super) fn favour(&self, to: &Subscription, asked: bool, stamp: Stamp) {
        let Some(favours) = self.favours.get().filter(|_| asked || to.terms.favour) else { return };
        let deadline = (stamp.deadline_ns > 0).then(|| Instant::new(stamp.deadline_ns));
        if !favours.control.favour(to.terms.process_id, deadline) {
            count(&self.totals.favours_dropped);
        }
    }
}
