//! Media over METP: events of a connection.

use std::time::Duration;

use qfabric_carrier::{Error, Event, Mode, Outcome, Revocation};

use crate::metp::{act, qf_metp};
use crate::status::{put, qf_status};

/// What happened on a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum qf_metp_event_kind {
    /// Nothing within the time.
    #[default]
    QF_METP_EVENT_NONE = 0,
    /// The result of message `number` that this side sent; each accepted message has exactly one.
    QF_METP_EVENT_OUTCOME = 1,
    /// `count` messages from `number` on will not arrive.
    QF_METP_EVENT_SKIPPED = 2,
    /// From message `number` on, the other side sends in the other mode; `count` is 1 for deadlines first.
    QF_METP_EVENT_MODE_CHANGED = 3,
    /// The other side sends no more messages.
    QF_METP_EVENT_PEER_FINISHED = 4,
    /// Carrier `number` was attached.
    QF_METP_EVENT_CARRIER_ATTACHED = 5,
    /// Carrier `number` was lost.
    QF_METP_EVENT_CARRIER_LOST = 6,
    /// Sending at the granted rate stopped, for `reason`; congestion control decides from now on.
    QF_METP_EVENT_REVOKED = 7,
}

/// The result of a message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum qf_metp_outcome {
    /// All bytes arrived.
    #[default]
    QF_METP_OUTCOME_DELIVERED = 0,
    /// No byte was sent, because the message would have been late or had to make room for others; or the receiver
    /// refused the message as too large.
    QF_METP_OUTCOME_DROPPED = 1,
    /// The deadline passed, and no byte is known to have arrived.
    QF_METP_OUTCOME_EXPIRED = 2,
    /// The deadline passed, and `count` bytes arrived.
    QF_METP_OUTCOME_PARTLY = 3,
    /// The connection ended first.
    QF_METP_OUTCOME_UNKNOWN = 4,
}

/// Why a granted rate was revoked.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum qf_metp_reason {
    /// The reservation ended.
    #[default]
    QF_METP_REASON_RESERVATION = 0,
    /// The delay grew, or stayed long, by `count` milliseconds.
    QF_METP_REASON_DELAY = 1,
    /// `count` percent of the bytes were lost.
    QF_METP_REASON_LOSS = 2,
}

/// An event of a connection. `kind` says which of the other members are used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct qf_metp_event {
    pub kind: qf_metp_event_kind,
    pub outcome: qf_metp_outcome,
    pub reason: qf_metp_reason,
    pub number: u64,
    pub count: u64,
}

impl From<Event> for qf_metp_event {
    fn from(event: Event) -> qf_metp_event {
        use qf_metp_event_kind::*;
        let of = |kind, number, count| qf_metp_event { kind, number, count, ..qf_metp_event::default() };
        match event {
            Event::Outcome { number, outcome, .. } => {
                let (outcome, count) = result(outcome);
                qf_metp_event { outcome, ..of(QF_METP_EVENT_OUTCOME, number, count) }
            }
            Event::Skipped { first, count } => of(QF_METP_EVENT_SKIPPED, first, count),
            Event::ModeChanged { mode, from } => {
                of(QF_METP_EVENT_MODE_CHANGED, from, u64::from(mode == Mode::PartiallyReliable))
            }
            Event::PeerFinished => of(QF_METP_EVENT_PEER_FINISHED, 0, 0),
            Event::CarrierAttached { carrier } => of(QF_METP_EVENT_CARRIER_ATTACHED, carrier.into(), 0),
            Event::CarrierLost { carrier, .. } => of(QF_METP_EVENT_CARRIER_LOST, carrier.into(), 0),
            Event::Revoked(why) => {
                let (reason, count) = match why {
                    Revocation::ReservationEnded | Revocation::OtherAddresses => {
                        (qf_metp_reason::QF_METP_REASON_RESERVATION, 0)
                    }
                    Revocation::DelayGrows { by_ms } | Revocation::DelayStays { by_ms } => {
                        (qf_metp_reason::QF_METP_REASON_DELAY, by_ms)
                    }
                    Revocation::LossPersists { percent } => (qf_metp_reason::QF_METP_REASON_LOSS, percent),
                };
                qf_metp_event { reason, ..of(QF_METP_EVENT_REVOKED, 0, count) }
            }
        }
    }
}

/// A result, and the bytes that arrived of a message that arrived in part.
fn result(outcome: Outcome) -> (qf_metp_outcome, u64) {
    use qf_metp_outcome::*;
    match outcome {
        Outcome::Delivered => (QF_METP_OUTCOME_DELIVERED, 0),
        Outcome::Dropped(_) => (QF_METP_OUTCOME_DROPPED, 0),
        Outcome::Expired => (QF_METP_OUTCOME_EXPIRED, 0),
        Outcome::Partly { acknowledged } => (QF_METP_OUTCOME_PARTLY, acknowledged.get()),
        Outcome::Unknown => (QF_METP_OUTCOME_UNKNOWN, 0),
    }
}

/// Waits for the next event of a connection. `event->kind` is QF_METP_EVENT_NONE if none came. Of events that nobody
/// takes, the connection keeps the last 1,024.
///
/// # Safety
/// `metp` is a live handle, `event` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_next_event(
    metp: *const qf_metp,
    within_ns: u64,
    event: *mut qf_metp_event,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe {
        act(metp, |connection| {
            let found = match connection.event(Duration::from_nanos(within_ns)) {
                Ok(found) => found.into(),
                Err(Error::TimeOut { .. }) => qf_metp_event::default(),
                Err(error) => return Err(error.into()),
            };
            put("event", event, found)
        })
    }
}
