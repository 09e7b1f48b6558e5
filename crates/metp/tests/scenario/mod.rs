//! Runs a script of steps over a link, and checks what must hold for every script.

use std::collections::BTreeMap;

use qfabric_metp::testing::{LinkSettings, Pair, Side, report, tpdu};
use qfabric_metp::{CarrierId, Config, EndReason, FrameKind, Mode, Outcome, Outgoing};
use qfabric_types::{Instant, Nanos};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send {
        kind: FrameKind,
        bytes: usize,
        deadline_ms: u64,
    },
    Wait {
        ms: u64,
    },
    SetMode(Mode),
    /// A new path takes over; the old one disappears together with the datagrams on it.
    SwitchCarrier {
        max_datagram: u16,
    },
    /// The path drops larger datagrams from now on; the session is told a little later.
    Shrink {
        mtu: u16,
    },
    SetTpduSize(u16),
    /// The application stops reading, and begins again.
    Pause {
        ms: u64,
    },
}

/// A message as it was sent.
#[derive(Clone, Debug)]
struct Sent {
    mode: Mode,
    deadline: Instant,
    data: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) pair: Pair,
    config: Config,
    link: LinkSettings,
    seed: u64,
    mode: Mode,
    carrier: CarrierId,
    sent: BTreeMap<u64, Sent>,
}

impl Scenario {
    pub(crate) fn new(config: Config, link: LinkSettings, seed: u64) -> Scenario {
        let mut pair = Pair::over(config.clone(), config.clone(), link, seed);
        pair.keeps_sent = true;
        let mode = config.mode;
        Scenario { pair, config, link, seed, mode, carrier: CarrierId(0), sent: BTreeMap::new() }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Send { kind, bytes, deadline_ms } => self.send(kind, bytes, deadline_ms),
            Step::Wait { ms } => self.pair.run_for(Nanos::from_millis(ms)),
            Step::SetMode(mode) => {
                self.mode = mode;
                self.pair.with(Side::A, |session, now| session.set_mode(now, mode));
            }
            Step::SwitchCarrier { max_datagram } => self.switch(max_datagram),
            Step::Shrink { mtu } => self.shrink(mtu),
            Step::SetTpduSize(size) => {
                self.pair.with(Side::A, |session, now| session.set_tpdu_size(now, size)).expect("a valid size");
            }
            Step::Pause { ms } => {
                self.pair.with(Side::B, |session, now| session.set_receiving(now, false));
                self.pair.run_for(Nanos::from_millis(ms));
                self.pair.with(Side::B, |session, now| session.set_receiving(now, true));
            }
        }
    }

    /// Messages that the session refuses, because its queue is full, are not part of the script.
    fn send(&mut self, kind: FrameKind, bytes: usize, deadline_ms: u64) {
        let seed = self.sent.len();
        let data: Vec<u8> = (0..bytes).map(|at| ((at * 31 + seed * 17) % 255) as u8 + 1).collect();
        let deadline = Nanos::from_millis(deadline_ms);
        let outgoing = Outgoing { kind, deadline: Some(deadline), data: &data };
        let deadline = self.pair.now + deadline;
        if let Ok(number) = self.pair.with(Side::A, |session, now| session.send(now, outgoing)) {
            self.sent.insert(number.get(), Sent { mode: self.mode, deadline, data });
        }
    }

    fn switch(&mut self, max_datagram: u16) {
        let (old, new) = (self.carrier, CarrierId(self.carrier.0 + 1));
        self.seed += 1;
        self.carrier = new;
        self.pair.connect(new, [self.link; 2], self.seed, max_datagram);
        for side in [Side::A, Side::B] {
            self.pair.with(side, |session, now| session.select(now, new, new)).expect("both are attached");
        }
        self.pair.disconnect(old);
    }

    fn shrink(&mut self, mtu: u16) {
        self.pair.link(self.carrier, Side::A).settings.mtu = mtu;
        self.pair.run_for(Nanos::from_millis(30));
        let carrier = self.carrier;
        self.pair
            .with(Side::A, |session, now| session.carrier_changed(now, carrier, mtu, None))
            .expect("it is attached");
    }

    /// Both sides finish, and all messages get an outcome.
    pub(crate) fn finish(&mut self) {
        for side in [Side::A, Side::B] {
            self.pair.with(side, |session, now| session.finish(now));
        }
        self.pair.run_for(Nanos::from_millis(600_000));
        for side in [Side::A, Side::B] {
            assert_eq!(self.pair.end(side).ended, Some(EndReason::Finished), "{side:?}: {:#?}", self.state(side));
        }
    }

    fn state(&self, side: Side) -> qfabric_metp::Statistics {
        self.pair.end(side).session.statistics()
    }

    pub(crate) fn check(&self) {
        self.check_arrivals();
        self.check_outcomes();
        self.check_rate(Side::A);
        self.check_rate(Side::B);
        self.check_deadlines();
        self.check_reports();
    }

    /// Reliable messages are complete; others have zeros in their holes; all come in order.
    fn check_arrivals(&self) {
        let arrivals = &self.pair.end(Side::B).arrivals;
        assert!(arrivals.is_sorted_by(|one, next| one.received.number < next.received.number));
        for arrival in arrivals {
            let mut expected = self.sent[&arrival.received.number.get()].data.clone();
            let missing: usize = arrival.holes.iter().map(ExactSizeIterator::len).sum();
            assert_eq!(missing as u64, arrival.received.size.get() - arrival.received.arrived.get());
            arrival.holes.iter().for_each(|hole| expected[hole.clone()].fill(0));
            assert!(arrival.data == expected, "message {}", arrival.received.number);
        }
        let complete = |number: u64| {
            arrivals.iter().any(|arrival| arrival.received.number.get() == number && arrival.holes.is_empty())
        };
        let reliable = self.sent.iter().filter(|(_, sent)| sent.mode == Mode::TotallyReliable);
        reliable.for_each(|(number, _)| assert!(complete(*number), "reliable message {number} is not complete"));
    }

    /// Each message has one outcome, and was delivered or skipped once.
    fn check_outcomes(&self) {
        let end = self.pair.end(Side::B);
        let mut settled: Vec<u64> = end.arrivals.iter().map(|arrival| arrival.received.number.get()).collect();
        settled.extend(end.skipped.iter().flat_map(|(first, count)| first.get()..first.get() + count));
        settled.sort_unstable();
        assert!(settled.iter().copied().eq(0..self.sent.len() as u64) || self.has_paused(), "{settled:?}");
        let mut outcomes: Vec<u64> = self.pair.end(Side::A).outcomes.iter().map(|(number, _)| number.get()).collect();
        outcomes.sort_unstable();
        assert!(outcomes.iter().copied().eq(0..self.sent.len() as u64), "{outcomes:?}");
        for (number, outcome) in &self.pair.end(Side::A).outcomes {
            let arrival = end.arrivals.iter().find(|arrival| arrival.received.number == *number);
            let is_complete = arrival.is_some_and(|arrival| arrival.holes.is_empty());
            match outcome {
                Outcome::Delivered => assert!(is_complete || self.has_paused(), "{number}"),
                Outcome::Dropped(_) => assert!(arrival.is_none(), "{number}"),
                _ => {}
            }
        }
    }

    /// Messages that the application did not take are neither delivered nor skipped.
    fn has_paused(&self) -> bool {
        self.state(Side::B).not_taken > 0
    }

    /// No interval has more bytes than the bucket, its debt for reports, the kept tokens of late wake-ups, and the rate.
    fn check_rate(&self, side: Side) {
        let sent = &self.pair.end(side).sent;
        let kept = self.config.rate.as_f64() / 8.0 * self.config.lateness.as_secs_f64();
        let allowed = (self.config.bucket.get() + 1_024) as f64 + kept + 4.0;
        // With V(t) = bytes sent until t − rate · t, no later value may exceed the smallest earlier one by more.
        let (mut bytes, mut lowest) = (0.0, f64::MAX);
        for (at, _, datagram) in sent {
            let at = at.since(Instant::ZERO).as_secs_f64() * self.config.rate.as_f64() / 8.0;
            lowest = f64::min(lowest, bytes - at);
            bytes += datagram.len() as f64 + f64::from(self.link.overhead);
            assert!(bytes - at - lowest <= allowed, "{side:?}: {} bytes too many", bytes - at - lowest - allowed);
        }
    }

    /// No TPDU of a partially reliable message is sent after its deadline.
    fn check_deadlines(&self) {
        for (at, _, datagram) in &self.pair.end(Side::A).sent {
            let Some(tpdu) = tpdu(datagram, self.config.tag) else { continue };
            let sent = &self.sent[&u64::from(tpdu.number)];
            assert!(*at <= sent.deadline || sent.mode == Mode::TotallyReliable, "message {}", tpdu.number);
        }
    }

    /// Acknowledgments never go back.
    fn check_reports(&self) {
        let sent = self.pair.end(Side::B).sent.iter();
        let reports: Vec<_> = sent.filter_map(|(_, _, datagram)| report(datagram, self.config.tag)).collect();
        for (one, next) in reports.iter().zip(reports.iter().skip(1)) {
            assert!(one.settled <= next.settled && one.base <= next.base && one.window_end <= next.window_end);
            for run in one.received.iter().filter(|run| !run.is_empty()) {
                let is_missing = next.missing.iter().any(|gap| gap.start < run.end && run.start < gap.end);
                assert!(!is_missing, "{run:?} was received, and is missing now: {next:?}");
            }
        }
        for report in &reports {
            let ends = report.missing.iter().zip(&report.received).flat_map(|(gap, run)| [gap.end, run.end]);
            assert!(ends.is_sorted());
        }
    }
}
