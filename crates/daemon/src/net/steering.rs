//! Carries out the decisions of policies about streams.

use qfabric_linux::clock;
use qfabric_types::api::Problem;
use qfabric_types::api::net::{StreamChange, StreamId, StreamSpec, StreamTerms};
use qfabric_types::monitor::Reading;

use super::board::{Counted, Decided};
use super::interface::Interface;
use super::rights::Caller;
use super::{Net, State, check_owner, problems};

impl Net {
    /// Carries out the decisions that wait, as far as the link and the rights of their users allow.
    pub(super) fn steer(&self, state: &mut State) {
        for (interface, id, decided) in self.board.take() {
            if let Err(problem) = state.steer(&interface, id, decided) {
                tracing::info!(interface, stream = id, ?decided, "a policy's decision is not carried out: {problem}");
            }
        }
    }

    /// Reads the counters of all streams, if it is time; returns the readings for policies.
    pub(super) fn count(&self, state: &State) -> Vec<Reading> {
        let now = clock::now();
        if !self.board.is_due(now) {
            return Vec::new();
        }
        let of = |(name, entry): (&String, &Interface)| {
            let counted = entry.attachment.all_counters();
            let stream = |(id, counters)| {
                let spec = entry.attachment.spec(id).ok()?.clone();
                Some(Counted { interface: name.clone(), id, spec, counters })
            };
            counted.into_iter().filter_map(stream).collect::<Vec<_>>()
        };
        let counted: Vec<Counted> = state.attached.iter().flat_map(of).collect();
        self.board.publish(&counted, now)
    }
}

impl State {
    fn steer(&mut self, interface: &str, id: StreamId, decided: Decided) -> Result<(), Problem> {
        let Decided { peer, attribute, amount } = decided;
        // The process may have ended, and another one may have its number: only the user counts.
        let caller = Caller { peer, is_privileged: peer.owner.uid == 0 };
        let entry = self.open_to(interface, caller)?;
        check_owner(entry, interface, id, caller)?;
        let now = entry.attachment.spec(id).map_err(|error| error.problem())?;
        let refused = || problems::invalid(format!("{attribute:?} is {amount}"), "decide an amount within the range");
        let change = attribute.change(now, amount).ok_or_else(refused)?;
        entry.steer(id, &change)
    }
}

impl Interface {
    /// Changes a stream by a decision. If the link has less than the decided C, the stream gets as much as there is,
    /// and keeps at least what it has.
    fn steer(&mut self, id: StreamId, change: &StreamChange) -> Result<(), Problem> {
        let now = self.attachment.spec(id).map_err(|error| error.problem())?.clone();
        let terms = self.holders.get(&id).map(|holder| holder.terms.clone()).unwrap_or_default();
        let asked = now.changed(change);
        let least = Some(now.size.min(asked.size));
        let partial = StreamSpec { terms: StreamTerms { least, ..terms.clone() }, ..asked };
        let outcome = self.set(id, &partial);
        self.holders.entry(id).and_modify(|holder| holder.terms = terms);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use qfabric_control::adapt::tokens::{Facts, Terms, TokenLaw};
    use qfabric_linux::net::testing::{Frames, frame};
    use qfabric_types::api::net::{NetMechanism, StreamAttribute};
    use qfabric_types::{BitRate, Bytes, Instant, Nanos};

    use super::super::site::{ROOT, Site, site, stream};
    use super::*;
    use crate::auth::Peer;

    const MARK: u32 = 7;
    /// Events of a window, and frames of an event.
    const EVENTS: usize = 5;
    const FRAMES: usize = 4;

    impl Site {
        /// Lets a policy decide a rate, and carries it out as the thread of streams does.
        fn decide(&self, peer: Peer, amount: i64) {
            let state = &mut *self.net.state();
            let counted = state.attached["qf5"].attachment.all_counters();
            let spec = stream(MARK, BitRate::new(1));
            let streams = counted.into_iter().map(|(id, counters)| Counted {
                interface: "qf5".into(),
                id,
                spec: spec.clone(),
                counters,
            });
            self.net.board.publish(&streams.collect::<Vec<_>>(), clock::now());
            assert!(self.net.board.decide(peer, StreamAttribute::Rate.id("qf5", 0), amount));
            self.net.steer(state);
        }

        fn granted(&self) -> f64 {
            self.net.show("qf5").unwrap().streams[0].promise.rate_bps.as_f64()
        }
    }

    /// A video source behind a stream's class, and its sink at the other end of the link.
    struct Video {
        source: Frames,
        sink: Frames,
        packet: Vec<u8>,
        sent: u64,
    }

    impl Video {
        fn new() -> Video {
            let at = |name, mark| Frames::at(qfabric_linux::net::index(name).unwrap(), mark).unwrap();
            let packet = frame(&"udp,10.0.0.1:5000,10.0.0.2:6000".parse().unwrap(), &[7; 1_000]);
            Video { source: at("qf5", MARK), sink: at("qf5-far", 0), packet, sent: 0 }
        }

        /// A window of 20 events per second; the facts of the stream. The rate that arrives is counted by events, so a
        /// slow machine only makes the bucket look larger.
        fn window(&mut self, site: &Site) -> Facts {
            let mut arrived = 0;
            for _ in 0..EVENTS {
                // A full queue drops the frame, as for every sender.
                (0..FRAMES).for_each(|_| drop(self.source.send(&self.packet)));
                sleep(Duration::from_millis(50));
                let mut buffer = [0; 2_048];
                while let Ok(length) = self.sink.receive(&mut buffer) {
                    arrived += usize::from(length == self.packet.len());
                }
            }
            let counters = site.net.show("qf5").unwrap().streams[0].counters;
            let sent = counters.sent_bytes - std::mem::replace(&mut self.sent, counters.sent_bytes);
            let achieved = 20.0 * arrived as f64 / (EVENTS * FRAMES) as f64;
            Facts { achieved, granted: site.granted(), sent: sent as f64 * 32.0, is_full: counters.waiting > 0 }
        }
    }

    /// The controller of Figure 34 over a class of HTB and real packets; only its clock is a made-up one.
    #[test]
    fn the_rate_of_a_class_grows_until_a_stream_arrives_whole() {
        let Some(site) = site() else { return };
        site.net.begin(ROOT, "qf5", &stream(MARK, BitRate::new(20_000))).unwrap();
        assert_eq!(site.net.show("qf5").unwrap().mechanism, NetMechanism::Htb);
        let (mut video, mut law) = (Video::new(), TokenLaw::new(Terms::new(20.0, 20e3, 10e6)));
        let (mut achieved, mut rates) = (0.0, vec![site.granted()]);
        for second in 1..200 {
            let facts = video.window(&site);
            achieved = facts.achieved;
            let Some(rate) = law.on_report(&facts, Instant::new(second * 1_000_000_000)) else {
                // The queue of the time before drains: the rate is then above the wanted one.
                if achieved >= 18.4 {
                    break;
                }
                continue;
            };
            site.decide(ROOT, rate as i64);
            rates.push(site.granted());
        }
        assert!(achieved >= 18.4, "{achieved} of 20 events/s arrive with {rates:?} bit/s");
        assert!(rates.len() > 2 && rates.is_sorted(), "{rates:?}");
    }

    #[test]
    fn a_decision_gets_as_much_as_the_link_has_and_only_its_owner_decides() {
        let Some(site) = site() else { return };
        site.net.begin(ROOT, "qf5", &stream(MARK, BitRate::new(1_000_000))).unwrap();
        site.net.begin(ROOT, "qf5", &stream(9, BitRate::new(6_000_000))).unwrap();
        site.decide(ROOT, 8_000_000);
        // 10 Mbit/s are 50,000 bytes in 40 ms. Admission leaves room for one more packet of each stream.
        let rest = BitRate::of(Bytes::new(50_000 - 30_000 - 2 * 1_514), Nanos::from_millis(40)).as_f64();
        assert_eq!(site.granted(), rest, "the rest of 10 Mbit/s");
        let stranger = Peer { pid: 1, owner: qfabric_types::Owner { uid: 54_321, gid: 54_321 } };
        site.decide(stranger, 1_000_000);
        assert_eq!(site.granted(), rest);
        site.decide(ROOT, 500_000);
        assert_eq!(site.granted(), 5e5);
        let period = StreamAttribute::Period.id("qf5", 0);
        assert!(site.net.board.decide(ROOT, period, 80_000_000));
        site.net.steer(&mut site.net.state());
        let spec = site.net.show("qf5").unwrap().streams[0].spec.clone();
        assert_eq!((spec.period, spec.rate()), (Nanos::from_millis(80), BitRate::new(250_000)));
    }
}
