//! Datagrams of a delay measurement, which everybody sends who reaches the port of `qfabric net answer`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use qfabric_daemon::answer::{Answerer, MessageId, Part};

/// The input is a sequence of datagrams, each with its sender in one byte and its length in two bytes before it. A part
/// or an acknowledgment that is read is written again as the same bytes. An answer follows only a part, acknowledges
/// the message of this part, of which all parts have arrived, and is not longer than the datagram. The senders are
/// bounded.
pub fn answer(bytes: &[u8]) {
    let (mut rest, mut now) = (bytes, Instant::now());
    let (mut answerer, mut arrived) = (Answerer::default(), BTreeMap::new());
    while let Some(([sender, low, high], more)) = rest.split_first_chunk::<3>() {
        let datagram;
        (datagram, rest) = more.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(more.len()));
        now += Duration::from_millis(1);
        let from = SocketAddr::from(([127, 0, 0, 1], 1_000 + u16::from(*sender)));
        let answer = answerer.take(from, datagram, now);
        assert!(answerer.senders() <= Answerer::MOST_SENDERS, "{} senders are kept", answerer.senders());
        if let Some(message) = MessageId::acknowledged_by(datagram) {
            assert_eq!(message.acknowledgment()[..], datagram[..12]);
        }
        let Some(part) = Part::read(datagram) else {
            assert_eq!(answer, None, "no part was answered");
            continue;
        };
        let mut again = datagram.to_vec();
        part.write(&mut again);
        assert_eq!(again, datagram);
        // The answerer may have forgotten the sender, so here are at least its parts.
        let (message, parts) = arrived.entry(*sender).or_insert_with(|| ((part.of, part.parts), BTreeSet::new()));
        if *message != (part.of, part.parts) {
            (*message, *parts) = ((part.of, part.parts), BTreeSet::new());
        }
        parts.insert(part.index);
        if let Some(answer) = answer {
            assert!(answer.len() <= datagram.len(), "{} bytes were answered by {}", datagram.len(), answer.len());
            assert_eq!(MessageId::acknowledged_by(&answer), Some(part.of));
            assert_eq!(parts.len(), usize::from(part.parts), "parts are missing");
        }
    }
}
