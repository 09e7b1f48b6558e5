//! Carries out a participant's orders on the book of its host.

use qfabric_broker::{Holds, JointBrokers};
use qfabric_types::Instant;

use super::{Answer, Order};

/// Carries out an order. Returns the answer for [`super::Participant::answered`].
pub fn carry_out<B: JointBrokers>(holds: &mut Holds<B>, order: Order, now: Instant) -> Option<Answer> {
    holds.expire(now);
    match order {
        Order::Hold { round, request } => {
            let id = request.id.clone();
            Some(Answer::Held { id, round, result: holds.hold(request).map_err(Into::into) })
        }
        Order::Commit { id, round, step, accepted, until } => {
            let result = holds.commit(&id, &accepted, until, now);
            Some(Answer::Committed { id, round, step, result })
        }
        Order::Grow { id, round, until } => {
            let whole = holds.grow(&id, until, now);
            Some(Answer::Grown { id, round, whole })
        }
        Order::FreeUpgrade { id } => {
            holds.free_upgrade(&id);
            None
        }
        Order::Release { id } => {
            holds.release(&id);
            None
        }
    }
}
