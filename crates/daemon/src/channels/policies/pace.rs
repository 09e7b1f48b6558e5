//! Pacing: limits the rate at which events of this host's sources go to each other host, as policies have decided.
//!
//! A built-in OUT-filter, named [`SPOT`], lets an event pass to a host's sinks if there is credit for it. Credit grows
//! with time, by one event per interval of the decided rate, up to one interval and [`BURST`]. A source that sends
//! evenly at this rate loses no event.
//!
//! A policy paces all events, or those of its user's sources. An event passes the table of its user first, then the table
//! for all events, which so counts only the events that are sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use qfabric_channel::{Candidates, Choose, Direction, Event, FilterId};
use qfabric_host::manager::policies::RATE;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::channel::PaceInfo;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::AttributeId;
use qfabric_types::{Instant, Nanos};

use super::super::lock;
use super::super::mailbox::{Audience, Mailbox, Notification};
use super::rate::RateMeter;

/// Filters run in the order of their names: events that others have refused cost no credit.
const SPOT: &str = "zz.pace";

/// Credit beyond one interval, so that short bursts pass.
const BURST: Nanos = Nanos::from_millis(100);

/// Rates of one channel, shared by its filter, the policies that decide, and the API.
pub(in crate::channels) type Paces = Arc<Lock<PaceTables, { rank::PACE_TABLE }>>;

/// One table for each policy, by the user on whose sources' events alone it decides; `None`: on all events.
#[derive(Debug, Default)]
pub(in crate::channels) struct PaceTables(BTreeMap<Option<u32>, PaceTable>);

/// Hosts with a decided rate, in order of their names.
#[derive(Debug, Default)]
pub(super) struct PaceTable(Vec<Pace>);

#[derive(Debug)]
struct Pace {
    host: Name,
    rate_milli: i64,
    /// Time between two events; none: no event passes.
    interval: Option<Nanos>,
    credit: Nanos,
    at: Instant,
    passed: u64,
    held: u64,
    meter: RateMeter,
}

pub(super) fn filter_id(channel: &Name) -> FilterId {
    let name = SPOT.parse().expect("is a name");
    FilterId { channel: ChannelId::data(channel.clone()), direction: Direction::Out, name }
}

/// Whether the name is reserved for the daemon's own filters.
pub(in crate::channels) fn is_reserved(filter: &Name) -> bool {
    filter.as_str().starts_with("zz.")
}

pub(super) fn filter(paces: &Paces) -> Choose {
    let paces = paces.clone();
    Box::new(move |event: &Event<'_>, sinks, chosen: &mut [bool]| lock(&paces).choose(event.sent, sinks, chosen))
}

/// Tells sources the rates in force to a host, from [`PaceTables::in_force`].
pub(super) fn tell(mailbox: &Mailbox, channel: &ChannelId, host: &Name, rates: Vec<(Option<u32>, Option<i64>)>) {
    for (user, amount) in rates {
        let (channel, subject) = (channel.clone(), host.to_string());
        let (attribute, audience) = (AttributeId::of(RATE), Audience::Sources);
        mailbox.tell(Notification { channel, attribute, subject, amount, audience, user });
    }
}

impl PaceTables {
    /// The table of a policy.
    pub(super) fn of(&mut self, user: Option<u32>) -> &mut PaceTable {
        self.0.entry(user).or_default()
    }

    /// Removes the table of a policy that has ended.
    pub(super) fn end(&mut self, user: Option<u32>) -> PaceTable {
        self.0.remove(&user).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Users with a table.
    #[cfg(test)]
    pub(super) fn users(&self) -> Vec<Option<u32>> {
        self.0.keys().copied().collect()
    }

    /// Users whose sources must learn that a decision of `user`'s policy about a host has changed, with the rate in force
    /// for them, which is the least one: all users first, so that a user with a table learns the own rate last.
    pub(super) fn in_force(&self, host: &Name, user: Option<u32>) -> Vec<(Option<u32>, Option<i64>)> {
        let rate = |user: Option<u32>| self.0.get(&user).and_then(|table| table.rate(host));
        let for_all = rate(None);
        let least = |own: Option<i64>| [own, for_all].into_iter().flatten().min();
        match user {
            Some(_) => vec![(user, least(rate(user)))],
            None => {
                let own = self.0.keys().filter(|user| user.is_some()).filter_map(|user| Some((*user, rate(*user)?)));
                let own = own.map(|(user, own)| (user, least(Some(own))));
                [(None, for_all)].into_iter().chain(own).collect()
            }
        }
    }

    /// Rates as the API shows them.
    pub(super) fn list(&self) -> Vec<PaceInfo> {
        self.0.iter().flat_map(|(user, table)| table.list(*user)).collect()
    }

    fn choose(&mut self, now: Instant, sinks: Candidates<'_>, chosen: &mut [bool]) {
        let own = sinks.user().and_then(|user| self.0.get_mut(&Some(user)));
        own.into_iter().for_each(|table| table.choose(now, sinks, chosen));
        if let Some(for_all) = self.0.get_mut(&None) {
            for_all.choose(now, sinks, chosen);
        }
    }
}

impl PaceTable {
    /// From now on events go to the host at this rate.
    pub(super) fn decide(&mut self, host: &Name, rate_milli: i64, now: Instant) {
        let interval = (rate_milli > 0).then(|| Nanos::new(1_000_000_000_000 / rate_milli as u64));
        match self.0.binary_search_by(|pace| pace.host.cmp(host)) {
            Ok(at) => {
                let pace = &mut self.0[at];
                pace.earn(now);
                (pace.rate_milli, pace.interval) = (rate_milli, interval);
            }
            Err(at) => {
                let (host, credit) = (host.clone(), interval.unwrap_or_default() + BURST);
                let (passed, held, meter) = (0, 0, RateMeter::new(now));
                self.0.insert(at, Pace { host, rate_milli, interval, credit, at: now, passed, held, meter });
            }
        }
    }

    /// Removes a host that is gone, or about which no policy decides any more.
    pub(super) fn forget(&mut self, host: &Name) {
        self.0.retain(|pace| pace.host != *host);
    }

    /// The decided rate of the host, and the rate at which events have passed since the last call.
    pub(super) fn sent(&mut self, host: &Name, now: Instant) -> Option<(i64, i64)> {
        let at = self.0.binary_search_by(|pace| pace.host.cmp(host)).ok()?;
        let pace = &mut self.0[at];
        Some((pace.rate_milli, pace.meter.report(now).0))
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().map(|pace| &pace.host)
    }

    fn rate(&self, host: &Name) -> Option<i64> {
        let at = self.0.binary_search_by(|pace| pace.host.cmp(host)).ok()?;
        Some(self.0[at].rate_milli)
    }

    fn list(&self, uid: Option<u32>) -> Vec<PaceInfo> {
        let info = |pace: &Pace| PaceInfo {
            host: pace.host.clone(),
            uid,
            rate_milli: pace.rate_milli,
            passed: pace.passed,
            held: pace.held,
        };
        self.0.iter().map(info).collect()
    }

    /// Sinks and table are in the order of hosts' names: one walk, with one comparison for each sink.
    fn choose(&mut self, now: Instant, sinks: Candidates<'_>, chosen: &mut [bool]) {
        let (mut from, mut paces) = (0, self.0.iter_mut().peekable());
        while from < sinks.len() {
            let host = &sinks.member(from).host;
            let to = (from..sinks.len()).find(|at| sinks.member(*at).host != *host).unwrap_or(sinks.len());
            while paces.next_if(|pace| pace.host < *host).is_some() {}
            if let Some(pace) = paces.next_if(|pace| pace.host == *host)
                && chosen[from..to].contains(&true)
                && !pace.lets_through(now)
            {
                chosen[from..to].fill(false);
            }
            from = to;
        }
    }
}

impl Pace {
    fn earn(&mut self, now: Instant) {
        let most = self.interval.unwrap_or_default() + BURST;
        self.credit = (self.credit + now.since(self.at)).min(most);
        self.at = self.at.max(now);
    }

    fn lets_through(&mut self, now: Instant) -> bool {
        self.earn(now);
        let Some(interval) = self.interval.filter(|interval| self.credit >= *interval) else {
            self.held += 1;
            return false;
        };
        self.credit -= interval;
        self.passed += 1;
        self.meter.hit(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pace(rate_milli: i64) -> Pace {
        let mut table = PaceTable::default();
        table.decide(&"a".parse().unwrap(), rate_milli, Instant::ZERO);
        table.0.remove(0)
    }

    fn at(ns: u64) -> Instant {
        Instant::new(ns)
    }

    #[test]
    fn a_source_at_its_rate_loses_nothing_and_a_stopped_one_everything() {
        let mut paced = pace(25_000);
        assert!((0..1_000).all(|n| paced.lets_through(at(n * 40_000_000 + n % 7 * 3_000_000))));
        let mut stopped = pace(0);
        assert!((0..100).all(|n| !stopped.lets_through(at(n * 1_000_000_000))));
        assert_eq!((stopped.passed, stopped.held), (0, 100));
    }

    #[test]
    fn a_decision_does_not_give_credit_anew() {
        let mut table = PaceTable::default();
        let host: Name = "a".parse().unwrap();
        let sent = (0..1_000u64).filter(|n| {
            let now = at(n * 10_000_000);
            table.decide(&host, 20_000, now);
            table.0[0].lets_through(now)
        });
        assert!((199..=203).contains(&sent.count()), "20 per second for 10 s");
    }

    proptest! {
        #[test]
        fn no_more_pass_than_the_rate_and_one_burst(
            rate_milli in 100i64..1_000_000,
            gaps in proptest::collection::vec(0u64..200_000_000, 1..400),
        ) {
            let (mut paced, mut now, mut passed) = (pace(rate_milli), 0, 0u64);
            for gap in gaps {
                now += gap;
                passed += u64::from(paced.lets_through(at(now)));
            }
            let most = (now as f64 / 1e9 + 0.1) * rate_milli as f64 / 1e3 + 1.0;
            prop_assert!(passed as f64 <= most + 1e-3, "{passed} of {most}");
        }
    }
}
