//! Integrated control of a stream: contracts on processors first, then the levels of quality, then recovery in reverse.
//!
//! ```text
//!   reports ──> bottleneck ──> candidates ──predict──> the one with the highest total utility, if it gains
//!      source's CPU:  a larger contract ── no room: saturated ──> a lower rung, with the contract that it needs
//!      link, or the application itself:     a lower rung
//!      sink's CPU:    its own host acts ── it reports no room ──> a lower rung
//!   the rate is kept, and the cause is gone:  a higher rung ──> at the best rung, the contract is given back
//! ```
//! Each resource has one owner: the source's host decides the levels and the source's contract, a sink's host the sink's
//! contract. So no two loops move the same amount. [`plan`] compares candidates in the model of [`flow`];
//! [`Source`] turns reports of one stream into such a comparison, [`ShareLaw`] sizes a contract. Shares are in CPUs.
//! Source: thesis §5.4, §5.5. Departure: the paper's managers act at the same time and by steps of one; here the guilty
//! resource acts first, by the predicted amount.

mod share;
mod source;

pub use share::{ShareFacts, ShareLaw, ShareTerms};
pub use source::{Decided, SinkFacts, Source, SourceFacts, Terms};

use crate::flow::{self, Situation};

/// A gain of the total utility below this part is noise; such a candidate is not applied.
const GAIN: f64 = 0.01;

/// A change of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// Index of the stream.
    pub stream: usize,
    /// The new rung.
    pub rung: Option<usize>,
    /// The new guaranteed share of the source, in CPUs.
    pub source: Option<f64>,
    /// The new guaranteed share of a sink, by its index.
    pub sink: Option<(usize, f64)>,
}

impl Change {
    /// Keeps everything.
    pub const KEEP: Change = Change { stream: 0, rung: None, source: None, sink: None };

    /// Applies the change, and returns the change that takes it back; `None`: there is no such stream.
    fn apply(&self, situation: &mut Situation) -> Option<Change> {
        let stream = situation.streams.get_mut(self.stream)?;
        let mut back = Change { stream: self.stream, ..Change::KEEP };
        if let Some(rung) = self.rung {
            back.rung = Some(stream.rung);
            stream.rung = rung.min(stream.rungs.len() - 1);
        }
        if let Some(share) = self.source {
            back.source = Some(stream.reserved);
            stream.reserved = share;
        }
        if let Some((at, share)) = self.sink
            && let Some(sink) = stream.sinks.get_mut(at)
        {
            back.sink = Some((at, sink.reserved));
            sink.reserved = share;
        }
        Some(back)
    }
}

/// A change with its predicted effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub change: Change,
    /// The rate at the median sink of the changed stream, in events per second.
    pub rate: f64,
    /// The utility of all streams.
    pub utility: f64,
}

/// The candidates with their predictions, and the chosen one.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The first one keeps everything.
    pub candidates: Vec<Candidate>,
    /// Index of the candidate with the highest utility that gains over keeping; 0: none gains.
    pub chosen: usize,
}

/// Predicts the effect of every change on all streams. Of two with the same utility, the earlier is chosen.
pub fn plan(situation: &mut Situation, changes: &[Change]) -> Plan {
    let predicted = |change: &Change| {
        let Some(back) = change.apply(situation) else {
            return Candidate { change: Change::KEEP, rate: 0.0, utility: 0.0 };
        };
        let prediction = flow::predict(situation);
        back.apply(situation);
        Candidate { change: *change, rate: prediction.rates[change.stream].median(), utility: prediction.utility }
    };
    let stream = changes.first().map_or(0, |change| change.stream);
    let keep = Change { stream, ..Change::KEEP };
    let candidates: Vec<Candidate> = std::iter::once(&keep).chain(changes).map(predicted).collect();
    let mut chosen = 0;
    for (at, candidate) in candidates.iter().enumerate().skip(1) {
        let best = candidates[chosen].utility;
        let gain = if chosen == 0 { GAIN } else { 1e-6 };
        if candidate.utility > best * (1.0 + gain) + 1e-9 {
            chosen = at;
        }
    }
    Plan { candidates, chosen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Host, Processor, Rung, Sink, Stream};

    fn stream(source: usize, reserved: f64) -> Stream {
        let rung = |worth: f64, encode: f64| Rung { worth, encode, decode: 0.0, bits: 1.0 };
        let (rungs, sinks) =
            (vec![rung(1.0, 0.03), rung(0.8, 0.02)], vec![Sink { host: 1, reserved: 0.0, factor: 1.0 }]);
        Stream { weight: 1.0, wanted: 20.0, source, reserved, rung: 0, rungs, sinks }
    }

    fn busy() -> Host {
        Host { processor: Processor { others: 3.0, ..Processor::IDLE }, ..Host::IDLE }
    }

    #[test]
    fn a_contract_that_suffices_comes_before_a_lower_rung() {
        let mut now = Situation { hosts: vec![busy(), Host::IDLE], streams: vec![stream(0, 0.0)] };
        let contract = Change { source: Some(0.65), ..Change::KEEP };
        let lower = Change { rung: Some(1), ..Change::KEEP };
        let plan = plan(&mut now, &[lower, contract]);
        assert_eq!((plan.chosen, plan.candidates[2].rate), (2, 20.0));
        assert_eq!(now.streams[0], stream(0, 0.0), "the situation is as before");
    }

    #[test]
    fn a_contract_that_takes_more_from_another_stream_than_it_gives_is_not_applied() {
        let rich = Stream { weight: 3.0, ..stream(0, 0.0) };
        let mut now = Situation { hosts: vec![Host::IDLE, Host::IDLE], streams: vec![stream(0, 0.0), rich] };
        let plan = plan(&mut now, &[Change { source: Some(0.6), ..Change::KEEP }]);
        assert_eq!(plan.chosen, 0, "{plan:?}");
        assert!(plan.candidates[1].utility < plan.candidates[0].utility);
    }
}
