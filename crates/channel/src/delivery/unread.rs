//! The sums of the events under way to each sink of another host, over this host's sources. A source asks for the sum
//! of each seat before it submits, and all waiting sources ask when one event was read. Adding up all sources each time
//! would cost sources² · sinks.
//!
//! Sums are kept on a channel that blocks, for seats of other hosts; all others stay zero. They change where an event
//! is sent, where a report arrives, where a source's largest event grows, where a source that has left is forgotten,
//! and with the seats.

use super::channel::{Channel, Roster, Source};
use crate::wire::Reported;

/// The events under way to one seat. The sums cannot overflow: only events that were submitted here count, and each has
/// at most [`crate::Limits::EVENT`] bytes and some attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    pub events: u64,
    /// Each event counts as many bytes as the largest event of its source.
    pub bytes: u64,
}

impl Unread {
    fn add(&mut self, events: u64, largest: usize) {
        self.events += events;
        self.bytes += events * largest as u64;
    }

    fn remove(&mut self, events: u64, largest: usize) {
        self.events -= events;
        self.bytes -= events * largest as u64;
    }
}

/// A source of this host, also one that has left, with the sums that change with its tallies.
pub(crate) struct SourceMut<'a> {
    pub source: &'a mut Source,
    pub roster: &'a Roster,
    unread: &'a mut [Unread],
    blocks: bool,
}

impl SourceMut<'_> {
    /// The source submits an event of this size: sets the size of its largest event. Only on a channel that blocks.
    pub(crate) fn grow(&mut self, bytes: usize) {
        let idle = self.source.tallies.iter().all(|tally| tally.outstanding() == 0);
        let before = self.source.largest;
        self.source.largest = if idle { bytes } else { before.max(bytes) };
        if idle || self.source.largest == before || !self.blocks {
            return;
        }
        for at in self.roster.elsewhere() {
            let events = self.source.tallies[at].outstanding();
            self.unread[at].remove(events, before);
            self.unread[at].add(events, self.source.largest);
        }
    }

    /// The source sends an event to the seats `chosen`.
    pub(crate) fn sent(&mut self, chosen: &[bool]) {
        for (tally, chosen) in self.source.tallies.iter_mut().zip(chosen) {
            tally.sent += u64::from(*chosen);
        }
        if self.blocks {
            for at in self.roster.elsewhere().filter(|at| chosen[*at]) {
                self.unread[at].add(1, self.source.largest);
            }
        }
    }

    /// The host of the seat `at`, which is another host, reports the outcomes. Ignores a report that contradicts
    /// earlier ones.
    pub(crate) fn settle(&mut self, at: usize, reported: &Reported) {
        let tally = &mut self.source.tallies[at];
        let Reported { from, fates, lost, .. } = *reported;
        let adds_up = fates.sum().saturating_add(lost) <= tally.sent;
        if tally.from != from || !fates.has_grown_from(&tally.fates) || !adds_up {
            return;
        }
        let before = tally.outstanding();
        (tally.fates, tally.lost) = (fates, lost);
        if self.blocks {
            self.unread[at].remove(before, self.source.largest);
            self.unread[at].add(tally.outstanding(), self.source.largest);
        }
    }
}

impl Channel {
    /// The sources of this host, also those that have left and are remembered.
    pub(super) fn all_sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.values().chain(self.departed.values())
    }

    /// The sources of this host, also those that have left and are remembered. The caller keeps the sums.
    pub(super) fn all_sources_mut(&mut self) -> impl Iterator<Item = &mut Source> {
        self.sources.values_mut().chain(self.departed.values_mut())
    }

    /// The source of this number, also one that has left and is remembered.
    pub(super) fn source_mut(&mut self, number: u32) -> Option<SourceMut<'_>> {
        let blocks = self.blocks();
        let Channel { sources, departed, roster, unread, .. } = self;
        let source = sources.get_mut(&number).or_else(|| departed.get_mut(&number))?;
        Some(SourceMut { source, roster, unread, blocks })
    }

    /// Moves the tallies to a new roster; returns the roster before.
    pub(super) fn replace_roster(&mut self, roster: Roster) -> Roster {
        let before = std::mem::take(&mut self.roster);
        self.all_sources_mut().for_each(|source| source.reseat(&before, &roster));
        self.roster = roster;
        self.unread = self.added_up();
        before
    }

    /// A source that has left is forgotten: its events count no more.
    pub(super) fn write_off(unread: &mut [Unread], roster: &Roster, source: &Source) {
        for at in roster.elsewhere() {
            unread[at].remove(source.tallies[at].outstanding(), source.largest);
        }
    }

    /// The sums, added up from the tallies.
    pub(super) fn added_up(&self) -> Vec<Unread> {
        let mut sums = vec![Unread::default(); self.roster.seats.len()];
        for source in self.all_sources().filter(|_| self.blocks()) {
            for at in self.roster.elsewhere() {
                sums[at].add(source.tallies[at].outstanding(), source.largest);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use qfabric_types::channel::ChannelId;
    use qfabric_types::{Instant, Nanos};

    use super::*;
    use crate::counts::Fates;
    use crate::{Attributes, MemberId, Pressure, SinkInfo, Spec};

    /// The last one is this host.
    const HOSTS: [&str; 3] = ["a", "b", "here"];

    /// Sources are taken modulo the number of sources, and seats modulo the number of seats of other hosts.
    #[derive(Clone, Debug)]
    enum Op {
        Join,
        Leave(usize),
        /// A source sends an event of this size to the seats of these bits.
        Send(usize, u64, usize),
        /// A source's events at a seat: so many more were delivered, and so many were lost.
        Report(usize, usize, u64, u64),
        Seat(usize, u32),
        Unseat(usize, u32),
        /// All hosts leave at the same time.
        Clear,
        /// This number of milliseconds passes, and sources that have left are forgotten.
        Pass(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let (which, host) = (any::<usize>(), 0..HOSTS.len());
        prop_oneof![
            4 => Just(Op::Join),
            3 => which.prop_map(Op::Leave),
            9 => (which, any::<u64>(), 0..5_000_usize).prop_map(|(which, seats, bytes)| Op::Send(which, seats, bytes)),
            9 => (which, which, 0..4_u64, 0..3_u64).prop_map(|(of, at, more, lost)| Op::Report(of, at, more, lost)),
            4 => (host.clone(), 0..4_u32).prop_map(|(host, number)| Op::Seat(host, number)),
            2 => (host, 0..4_u32).prop_map(|(host, number)| Op::Unseat(host, number)),
            1 => Just(Op::Clear),
            1 => (0..60_000_u64).prop_map(Op::Pass),
        ]
    }

    struct Run {
        channel: Channel,
        now: Instant,
        /// The number of the last source.
        last: u32,
    }

    impl Run {
        fn new() -> Run {
            let pressure = Pressure::Block { patience: Nanos::from_millis(200) };
            let spec = Arc::new(Spec { pressure, ..Spec::default() });
            let id = ChannelId::data("c".parse().expect("a name"));
            Run { channel: Channel::new(id, spec), now: Instant::ZERO, last: 0 }
        }

        fn act(&mut self, op: &Op) {
            match *op {
                Op::Join => self.join(),
                Op::Leave(which) => self.leave(which),
                Op::Send(which, seats, bytes) => self.send(which, seats, bytes),
                Op::Report(which, at, more, lost) => self.report(which, at, more, lost),
                Op::Seat(host, number) => {
                    let member = MemberId { host: HOSTS[host].parse().expect("a name"), number };
                    let info = SinkInfo { application: None, types: 1, capacity: 8, attributes: Attributes::default() };
                    self.channel.seat(member, info, 1, host == 2);
                }
                Op::Unseat(host, number) => self.channel.unseat(&HOSTS[host].parse().expect("a name"), number),
                Op::Clear => drop(self.channel.replace_roster(Roster::default())),
                Op::Pass(ms) => {
                    self.now = self.now + Nanos::from_millis(ms);
                    self.channel.forget_departed(self.now);
                }
            }
        }

        fn join(&mut self) {
            self.last += 1;
            let mut source = Source::default();
            source.reseat(&Roster::default(), &self.channel.roster);
            self.channel.sources.insert(self.last, source);
        }

        fn leave(&mut self, which: usize) {
            let Some(number) = chosen(self.channel.sources.keys(), which) else { return };
            if let Some(source) = self.channel.sources.remove(&number) {
                self.channel.depart(number, source, self.now);
            }
        }

        fn send(&mut self, which: usize, seats: u64, bytes: usize) {
            let number = chosen(self.channel.sources.keys(), which);
            let Some(mut from) = number.and_then(|number| self.channel.source_mut(number)) else { return };
            let chosen: Vec<bool> = (0..from.roster.seats.len()).map(|at| seats >> at & 1 == 1).collect();
            from.grow(bytes);
            from.sent(&chosen);
        }

        /// Also a source that has left gets reports.
        fn report(&mut self, which: usize, at: usize, more: u64, lost: u64) {
            let Channel { sources, departed, .. } = &self.channel;
            let number = chosen(sources.keys().chain(departed.keys()), which);
            let Some(mut about) = number.and_then(|number| self.channel.source_mut(number)) else { return };
            let seats: Vec<usize> = about.roster.elsewhere().collect();
            let Some(at) = at.checked_rem(seats.len()).map(|at| seats[at]) else { return };
            let tally = about.source.tallies[at];
            let fates = Fates { delivered: tally.fates.delivered + more, ..tally.fates };
            about.settle(at, &Reported { sink: 0, from: tally.from, fates, lost });
        }
    }

    fn chosen<'a>(numbers: impl Iterator<Item = &'a u32>, which: usize) -> Option<u32> {
        let numbers: Vec<u32> = numbers.copied().collect();
        numbers.get(which.checked_rem(numbers.len())?).copied()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_kept_sums_are_those_of_the_tallies(ops in prop::collection::vec(op(), 1..150)) {
            let mut run = Run::new();
            for op in &ops {
                run.act(op);
                prop_assert_eq!(&run.channel.unread, &run.channel.added_up(), "after {:?}", op);
            }
        }
    }
}
