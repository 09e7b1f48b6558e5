//! Messages about handlers that a host has at services of other hosts (000 §3.4): control events of the managers
//! ([`QualityEvent`]) with the attribute [`ECALL`], followed by a tail that only the ECalls of both hosts read.
//!
//! A manager that does not know the attribute does not answer.

use qfabric_types::Instant;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText};

/// Name of the attribute of all these messages.
pub const ECALL: &str = "ecall";

/// Version of the tail.
const VERSION: i64 = 1;

/// Largest number of bytes of a tail: an event of a Q-channel goes in one frame.
pub const MAX_TAIL: usize = qfabric_channel::Limits::WHOLE - QualityEvent::SIZE;

/// The group of the hosts that take part in ECalls of other hosts.
pub fn group() -> Name {
    "ecalls".parse().expect("is a name")
}

/// The Q-channel of the group: the only one that carries these messages. Its access list decides which hosts may send
/// and receive them.
pub fn channel() -> ChannelId {
    ChannelId { plane: Plane::Quality, name: "group.ecalls".parse().expect("is a name") }
}

/// The bytes of the event; `now` is this host's clock.
pub(super) fn encode(tail: &[u8], now: Instant) -> Vec<u8> {
    let ecall = AttributeId::of(ECALL);
    let event = QualityEvent {
        controller: ecall,
        kind: QualityKind::Request,
        value: VERSION,
        other: 0,
        request: 0,
        at: now,
        application: HOST,
        attribute: ecall,
        subject: QualityText::NONE,
    };
    [&event.encode()[..], tail].concat()
}

/// The tail; `None`: another event, or another version.
pub(super) fn decode(bytes: &[u8]) -> Option<&[u8]> {
    let event = QualityEvent::decode(bytes).ok()?;
    let tail = bytes.get(QualityEvent::SIZE..).filter(|tail| !tail.is_empty())?;
    (event.attribute == AttributeId::of(ECALL) && event.value == VERSION).then_some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_comes_back_and_other_events_have_none() {
        let bytes = encode(b"{}", Instant::ZERO);
        assert_eq!(decode(&bytes), Some(&b"{}"[..]));
        assert_eq!(decode(&bytes[..QualityEvent::SIZE]), None);
        assert_eq!(decode(b"{}"), None);
        let mut other = bytes;
        other[8] = 2;
        assert_eq!(decode(&other), None, "another version");
    }
}
