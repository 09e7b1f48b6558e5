//! The board between streams, monitors and policies: what streams count, and what policies decided about streams.
//!
//! ```text
//!   streams ── qf-net, twice a second ──> Board ──> monitors: net.INTERFACE.streamID.missed, …
//!                                          │  └──> policies of this host, with app.misses_milli
//!   streams <── qf-net, within 100 ms ── Board <── decisions about …rate, …period, …window
//! ```
//! A policy never waits for the kernel: its decision lies here until the thread of streams carries it out. A later
//! decision about the same attribute replaces it, so the board is as large as the list of streams. Loans that need a
//! rate wait here, too (`lent.rs`).

use std::collections::BTreeMap;

use qfabric_host::manager::policies::MISSES;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::net::{StreamAttribute, StreamCounters, StreamId, StreamSpec};
use qfabric_types::monitor::{Attribute, AttributeId, Cause, HOST, Reading};
use qfabric_types::{Instant, Nanos};

use super::lent::LentRates;
use crate::auth::Peer;

/// Time between two looks at the counters.
pub(super) const PERIOD: Nanos = Nanos::from_millis(500);

/// A stream as it is now.
pub(super) struct Counted {
    pub interface: String,
    pub id: StreamId,
    pub spec: StreamSpec,
    pub counters: StreamCounters,
}

impl Counted {
    fn value(&self, attribute: StreamAttribute) -> i64 {
        let StreamCounters { sent, sent_bytes, sent_late, waiting, late, overflow, missed, violations, .. } =
            self.counters;
        let value = match attribute {
            StreamAttribute::Rate => self.spec.rate().get(),
            StreamAttribute::Period => self.spec.period.get(),
            StreamAttribute::Window => u64::from(self.spec.window.x()) << 8 | u64::from(self.spec.window.y()),
            StreamAttribute::Sent => sent_bytes,
            StreamAttribute::Waiting => waiting,
            StreamAttribute::Dropped => late + overflow,
            StreamAttribute::Missed => missed,
            StreamAttribute::Violations => violations,
            StreamAttribute::Packets => sent + late + overflow,
            StreamAttribute::Late => sent_late + late + overflow,
        };
        i64::try_from(value).unwrap_or(i64::MAX)
    }
}

/// A decision of a policy, and the user who answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub peer: Peer,
    pub attribute: StreamAttribute,
    pub amount: i64,
}

#[derive(Default)]
pub(crate) struct Board(Lock<State, { rank::STREAM_BOARD }>, LentRates);

#[derive(Default)]
struct State {
    streams: BTreeMap<AttributeId, Entry>,
    /// When the counters were read.
    at: Option<Instant>,
    /// Counts the changes of the list of attributes.
    version: u64,
    /// By interface and stream, in the order of attributes.
    decided: BTreeMap<(String, StreamId, StreamAttribute), Decided>,
}

struct Entry {
    interface: String,
    id: StreamId,
    what: StreamAttribute,
    attribute: Attribute,
    /// The level, or the total.
    raw: i64,
}

impl Board {
    /// Takes the counters of all streams; returns the readings for policies of this host.
    pub(super) fn publish(&self, counted: &[Counted], now: Instant) -> Vec<Reading> {
        let mut state = self.0.lock();
        let over = state.at.replace(now).map_or(PERIOD, |at| now.since(at));
        let old = std::mem::take(&mut state.streams);
        let (mut readings, mut misses) = (Vec::new(), None);
        for stream in counted {
            for what in StreamAttribute::ALL {
                let attribute = what.of(&stream.interface, stream.id);
                let (id, raw) = (attribute.id(), stream.value(what));
                // A stream with the number of an ended one counts from 0 again.
                let before = old.get(&id).map_or(raw, |entry| entry.raw.min(raw));
                if what == StreamAttribute::Missed {
                    misses = Some(misses.unwrap_or(0) + (raw - before));
                }
                readings.push(reading(&attribute, value(what, raw, raw - before, over), now, over));
                let (interface, stream) = (stream.interface.clone(), stream.id);
                state.streams.insert(id, Entry { interface, id: stream, what, attribute, raw });
            }
        }
        if !old.keys().eq(state.streams.keys()) {
            state.version += 1;
        }
        readings.extend(misses.map(|missed| of_host(missed, now, over)));
        readings
    }

    /// What loans to other hosts ask of the links.
    pub(crate) fn rates(&self) -> &LentRates {
        &self.1
    }

    /// Whether the counters are older than [`PERIOD`].
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.0.lock().at.is_none_or(|at| now.since(at) >= PERIOD)
    }

    /// Records a decision about a stream; returns whether the attribute is one that can be decided.
    pub(crate) fn decide(&self, peer: Peer, attribute: AttributeId, amount: i64) -> bool {
        let mut state = self.0.lock();
        let found = state.streams.get(&attribute).filter(|entry| entry.what.is_decidable());
        let Some(Entry { interface, id, what, .. }) = found else { return false };
        let (key, attribute) = ((interface.clone(), *id, *what), *what);
        state.decided.insert(key, Decided { peer, attribute, amount });
        true
    }

    /// Takes the decisions that are not carried out yet.
    pub(super) fn take(&self) -> Vec<(String, StreamId, Decided)> {
        let decided = std::mem::take(&mut self.0.lock().decided);
        decided.into_iter().map(|((interface, id, _), decided)| (interface, id, decided)).collect()
    }

    /// The name of an attribute of a stream.
    pub(crate) fn name(&self, attribute: AttributeId) -> Option<String> {
        self.0.lock().streams.get(&attribute).map(|entry| entry.attribute.name.to_string())
    }

    /// Number of the list of attributes; another number is another list.
    pub(crate) fn version(&self) -> u64 {
        self.0.lock().version
    }

    pub(crate) fn attributes(&self) -> Vec<Attribute> {
        self.0.lock().streams.values().map(|entry| entry.attribute.clone()).collect()
    }

    /// The level of an attribute, or its total.
    pub(crate) fn read(&self, attribute: AttributeId) -> Option<i64> {
        self.0.lock().streams.get(&attribute).map(|entry| entry.raw)
    }
}

/// The value of a reading: a level, a number per second, or the increase.
fn value(what: StreamAttribute, raw: i64, increase: i64, over: Nanos) -> i64 {
    match what {
        StreamAttribute::Sent => per_second(increase, over),
        StreamAttribute::Dropped
        | StreamAttribute::Missed
        | StreamAttribute::Violations
        | StreamAttribute::Packets
        | StreamAttribute::Late => increase,
        _ => raw,
    }
}

fn per_second(increase: i64, over: Nanos) -> i64 {
    (i128::from(increase) * 1_000_000_000 / i128::from(over.get().max(1))) as i64
}

fn reading(attribute: &Attribute, value: i64, at: Instant, over: Nanos) -> Reading {
    let (cause, unit) = (Cause::Poll, attribute.unit);
    Reading { attribute: attribute.id(), application: HOST, value, at, over, cause, unit }
}

/// The missed periods of all streams, in thousandths per second.
fn of_host(missed: i64, at: Instant, over: Nanos) -> Reading {
    let value = per_second(missed.saturating_mul(1_000), over);
    let (attribute, unit) = (AttributeId::of(MISSES), qfabric_types::monitor::Unit::Count);
    Reading { attribute, application: HOST, value, at, over, cause: Cause::Poll, unit }
}

#[cfg(test)]
mod tests {
    use qfabric_types::Owner;
    use qfabric_types::api::net::Selector;

    use super::*;

    const ROOT: Peer = Peer { pid: 1, owner: Owner { uid: 0, gid: 0 } };

    fn counted(id: StreamId, missed: u64, sent_bytes: u64) -> Counted {
        let spec = StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40));
        let counters = StreamCounters { missed, sent_bytes, waiting: 3, ..StreamCounters::default() };
        Counted { interface: "eth0".into(), id, spec, counters }
    }

    fn at(ms: u64) -> Instant {
        Instant::new(ms * 1_000_000)
    }

    fn of(readings: &[Reading], attribute: AttributeId) -> Option<i64> {
        readings.iter().find(|reading| reading.attribute == attribute).map(|reading| reading.value)
    }

    #[test]
    fn totals_become_increases_and_missed_periods_of_all_streams_are_one_rate() {
        let board = Board::default();
        board.publish(&[counted(0, 10, 1_000), counted(1, 5, 0)], at(1_000));
        let readings = board.publish(&[counted(0, 12, 6_000), counted(1, 6, 0)], at(1_500));
        let id = |what: StreamAttribute, stream| what.id("eth0", stream);
        assert_eq!(of(&readings, id(StreamAttribute::Missed, 0)), Some(2));
        assert_eq!(of(&readings, id(StreamAttribute::Sent, 0)), Some(10_000), "bytes per second");
        assert_eq!(of(&readings, id(StreamAttribute::Waiting, 1)), Some(3));
        assert_eq!(of(&readings, AttributeId::of(MISSES)), Some(6_000), "three in half a second");
        assert_eq!(board.read(id(StreamAttribute::Missed, 0)), Some(12), "monitors get the total");
        let again = board.publish(&[counted(0, 1, 0)], at(2_000));
        assert_eq!(of(&again, id(StreamAttribute::Missed, 0)), Some(0), "another stream with this number");
        assert_eq!(of(&board.publish(&[], at(2_500)), AttributeId::of(MISSES)), None, "no stream, no number");
    }

    #[test]
    fn packets_sent_late_and_packets_dropped_are_late_without_a_missed_period() {
        let board = Board::default();
        let with = |sent, sent_late, overflow| {
            let one = counted(0, 0, 0);
            let counters = StreamCounters { sent, sent_late, overflow, ..one.counters };
            [Counted { counters, ..one }]
        };
        board.publish(&with(10, 0, 0), at(1_000));
        let readings = board.publish(&with(18, 5, 2), at(1_500));
        let of = |what: StreamAttribute| of(&readings, what.id("eth0", 0));
        assert_eq!([StreamAttribute::Packets, StreamAttribute::Late].map(of), [Some(10), Some(7)]);
        assert_eq!(of(StreamAttribute::Missed), Some(0));
    }

    #[test]
    fn the_last_decision_about_a_known_stream_counts() {
        let (board, rate) = (Board::default(), StreamAttribute::Rate.id("eth0", 0));
        assert!(!board.decide(ROOT, rate, 1), "no such stream");
        board.publish(&[counted(0, 0, 0)], at(0));
        assert!(board.decide(ROOT, rate, 1) && board.decide(ROOT, rate, 2));
        assert!(!board.decide(ROOT, StreamAttribute::Missed.id("eth0", 0), 2), "it is counted, not decided");
        let decided = Decided { peer: ROOT, attribute: StreamAttribute::Rate, amount: 2 };
        assert_eq!(board.take(), [("eth0".to_owned(), 0, decided)]);
        assert!(board.take().is_empty());
    }

    #[test]
    fn the_list_of_attributes_has_another_version_when_streams_come_and_go() {
        let board = Board::default();
        let before = board.version();
        board.publish(&[counted(0, 0, 0)], at(0));
        let one = (board.version(), board.attributes().len());
        assert!(one.0 > before && one.1 == StreamAttribute::ALL.len());
        board.publish(&[counted(0, 1, 0)], at(500));
        assert_eq!((board.version(), board.attributes().len()), one);
        board.publish(&[], at(1_000));
        assert!(board.version() > one.0 && board.attributes().is_empty());
    }
}
