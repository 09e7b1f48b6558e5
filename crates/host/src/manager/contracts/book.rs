//! Carries out a participant's orders on a book in memory.

use qfabric_broker::Holds;
use qfabric_types::Instant;

use super::{Answer, Order, Reason};

/// Carries out an order. Returns the answer for [`super::Participant::answered`].
pub fn carry_out(holds: &mut Holds, order: Order, now: Instant) -> Option<Answer> {
    holds.expire(now);
    match order {
        Order::Hold { round, request } => {
            let id = request.id.clone();
            Some(Answer::Held { id, round, result: holds.hold(request).map_err(Reason::Short) })
        }
        Order::Commit { id, round, step, accepted, until } => {
            let result = holds.commit(&id, &accepted, until, now);
            Some(Answer::Committed { id, round, step, result })
        }
        Order::Grow { id, round, until } => {
            let whole = holds.grow(&id, until, now);
            Some(Answer::Grown { id, round, whole })
        }
        Order::Release { id } => {
            holds.release(&id);
            None
        }
    }
}
