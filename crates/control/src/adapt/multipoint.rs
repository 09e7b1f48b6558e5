//! One source, many sinks in roles: computes the best rate for each role, and degrades the least important role
//! first.
//!
//! Sinks report the rates at which events arrive. From the sum the source learns the capacity of the path
//! ([`Capacity`]) and divides it: equally among the streams of a role, and by importance among roles ([`Group`]).
//! Low falls to its minimum, then medium, then high; below the minima they stop in that order, and all come back in
//! reverse. Source: thesis §5.1.3 (Figure 35), Q-channels paper §4.2.
//!
//! All streams pass through the link of the source; each stream then passes through the separate link of its sink.
//! The reports of one round show which link is too narrow. A stream that is short while another one is whole is
//! judged by a [`Capacity`] of its own link if
//!
//! * less than half of it arrives, and no more than of the whole stream: a shared link would not treat two streams
//!   so differently;
//! * or it has been the only short stream for some rounds, and a cut of the shared capacity did not help it: the
//!   same amount arrives as before, and no part of the amount that the others gave up;
//! * or its own link is known to be narrow, and a try for more is under way.
//!
//! All other shortages are attributed to the link of the source, and the least important streams are cut. One round
//! is weak evidence: a report counts few events, and if all streams lose alike, one of them is short by chance and
//! another is not.

use std::collections::BTreeMap;

use qfabric_types::{Instant, Nanos};

use super::capacity::{Capacity, Terms};
use super::group::{Division, Group, Want, Worth};

/// A report older than this is ignored. The channel itself reports sinks that have left.
const SILENCE: Nanos = Nanos::from_millis(3_000);

/// Interval of checks while no sink reports.
const CHECK_INTERVAL: Nanos = Nanos::from_millis(500);

/// A change of a rate by less than this fraction is not worth an event.
const GRAIN: f64 = 0.01;

/// Factor on the amount needed to run again, so that rounding does not keep a stream stopped.
const ENOUGH: f64 = 1.01;

/// If less than this fraction arrives while another stream is whole, the sink's own link is too narrow.
const FAR_BELOW: f64 = 0.5;

/// Rounds in which a stream must be the only short one before a small shortage is attributed to its own link.
const ALONE: u32 = 4;

/// The rates that a role can use, in events per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Role {
    /// The stream is stopped below this rate; usually the minimum.
    pub least: f64,
    pub min: f64,
    pub max: f64,
    /// The role with the greatest importance keeps its quality longest.
    pub importance: u32,
    /// The utility at `min` and at `max`, if the viewer has registered it. It decides among streams of one importance.
    pub worth: Option<Worth>,
}

impl Role {
    /// The three roles of the papers, by importance: low 10–15, medium 15–20, high 20–25 per second.
    pub const SEEDS: [Role; 3] = [Role::range(10.0, 15.0, 0), Role::range(15.0, 20.0, 1), Role::range(20.0, 25.0, 2)];

    /// A range; the stream is stopped below its minimum.
    pub const fn range(min: f64, max: f64, importance: u32) -> Role {
        Role { least: min, min, max, importance, worth: None }
    }

    /// The role of a stream that two sinks share: it runs as long as one of them can use it, and satisfies the more
    /// demanding one. It is worth the sum, if both have registered it.
    pub fn with(self, other: Role) -> Role {
        Role {
            least: self.least.min(other.least),
            min: self.min.max(other.min),
            max: self.max.max(other.max),
            importance: self.importance.max(other.importance),
            worth: self.worth.zip(other.worth).map(|(a, b)| a + b),
        }
    }

    /// The want of a stream of this role whose events take `bits` bits.
    pub fn want(self, bits: f64) -> Want {
        let Role { least, min, max, importance, worth } = self;
        Want { least: least * bits, floor: min * bits, ceiling: max * bits, importance, weight: 1.0, worth }
    }
}

#[derive(Clone, Debug)]
struct Stream {
    role: Role,
    bits: f64,
    rate: f64,
    report: Option<(f64, Instant)>,
    /// Capacity of the sink's own link.
    link: Capacity,
    /// The amount that arrived at the last cut of the shared capacity, if the stream was the only short one then
    /// and since.
    at_cut: Option<f64>,
    /// Consecutive rounds in which it was short while all other streams together were not.
    alone: u32,
}

impl Stream {
    /// The part of its want that its own link can carry.
    fn want(&self) -> Want {
        self.role.want(self.bits).within(self.link.estimate())
    }

    fn asked(&self) -> f64 {
        self.rate * self.bits
    }

    fn is_narrow(&self) -> bool {
        self.link.estimate() < self.role.want(self.bits).ceiling
    }

    /// The smallest increase worth a try on its own link: a twentieth of the role's want, or the amount that lets
    /// the stream run again. `None` if the link does not limit the stream.
    fn worth_a_try(&self) -> Option<f64> {
        let (wanted, have) = (self.role.want(self.bits), self.link.estimate());
        if !self.is_narrow() || self.asked() < self.want().ceiling * (1.0 - GRAIN) {
            return None;
        }
        let needed = wanted.least * ENOUGH - have;
        Some(needed.max(wanted.ceiling / 20.0).min(wanted.ceiling - have))
    }

    /// Sets the stream's bandwidth to `bits` per second. Returns the rate if it changed noticeably.
    fn give(&mut self, id: u64, bits: f64) -> Option<Rate> {
        let rate = bits / self.bits;
        let same = (rate - self.rate).abs() <= self.rate * GRAIN && (rate > 0.0) == (self.rate > 0.0);
        if same {
            return None;
        }
        self.rate = rate;
        Some(Rate { stream: id, rate })
    }
}

/// The result of a round of reports for one stream, in bits per second.
#[derive(Clone, Copy, Debug)]
struct RoundReport {
    stream: u64,
    asked: f64,
    arrived: f64,
    is_short: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub stream: u64,
    /// Events per second; 0 if the stream is stopped.
    pub rate: f64,
}

/// The policy of the source.
#[derive(Clone, Debug)]
pub struct Multipoint {
    streams: BTreeMap<u64, Stream>,
    terms: Terms,
    /// Capacity of the link of the source.
    capacity: Capacity,
    judged: Instant,
    looked: Instant,
}

impl Multipoint {
    /// No streams yet. The capacity starts unlimited, so all streams begin at their maximum.
    pub fn new(terms: Terms, now: Instant) -> Self {
        let capacity = Capacity::new(f64::MAX, terms, now);
        Multipoint { streams: BTreeMap::new(), terms, capacity, judged: now, looked: now }
    }

    /// A sink joins or changes its role; `bits` is the size of one event of its stream. Returns the rates that
    /// change.
    pub fn join(&mut self, stream: u64, role: Role, bits: f64, now: Instant) -> Vec<Rate> {
        let (rate, link) = (f64::NAN, Capacity::new(f64::MAX, self.terms, now));
        let fresh = Stream { role, bits: bits.max(1.0), rate, report: None, link, at_cut: None, alone: 0 };
        self.streams.entry(stream).and_modify(|known| known.role = role).or_insert(fresh);
        self.divide()
    }

    /// A sink left; its bandwidth goes to the others. Returns the rates that change.
    pub fn leave(&mut self, stream: u64) -> Vec<Rate> {
        self.streams.remove(&stream);
        self.divide()
    }

    /// Records the rate at which events arrived at a sink. Returns the rates that change.
    pub fn on_report(&mut self, stream: u64, achieved: f64, now: Instant) -> Vec<Rate> {
        match self.streams.get_mut(&stream) {
            Some(stream) if achieved.is_finite() => stream.report = Some((achieved.max(0.0), now)),
            _ => return Vec::new(),
        }
        self.judge(now)
    }

    /// Call this at [`Multipoint::next_wakeup`]: if no stream runs, no sink reports, but the next try is due.
    pub fn on_time(&mut self, now: Instant) -> Vec<Rate> {
        if now < self.next_wakeup() {
            return Vec::new();
        }
        self.looked = now;
        self.judge(now)
    }

    /// The next time at which [`Multipoint::on_time`] must be called.
    pub fn next_wakeup(&self) -> Instant {
        let narrow = self.streams.values().filter(|stream| stream.is_narrow()).map(|stream| &stream.link);
        let tries = narrow.chain([&self.capacity]).map(Capacity::next_wakeup);
        tries.min().unwrap_or(Instant::NEVER).max(self.looked + CHECK_INTERVAL)
    }

    /// The rate of a stream; 0 if it is stopped or unknown.
    pub fn rate(&self, stream: u64) -> f64 {
        self.streams.get(&stream).map_or(0.0, |stream| stream.rate)
    }

    /// The estimated capacity of the source's link, in bits per second.
    pub fn capacity(&self) -> f64 {
        self.capacity.estimate()
    }

    /// Judges only when every running stream has reported on its present rate or is silent.
    fn judge(&mut self, now: Instant) -> Vec<Rate> {
        let Some(reports) = self.reports(now) else { return Vec::new() };
        self.judged = now;
        // One judgement per round: a report that is used twice would confirm itself.
        self.streams.values_mut().for_each(|stream| stream.report = None);
        self.count_alone(&reports);
        let (own, shared): (Vec<_>, Vec<_>) = reports.iter().copied().partition(|one| self.is_own_fault(one, &reports));
        let links_changed = self.judge_links(&own, &shared, now);
        let changed = self.judge_shared(&shared, now);
        if changed || links_changed { self.divide() } else { Vec::new() }
    }

    /// The reports of the running streams about their present rates; `None` while some are missing.
    fn reports(&self, now: Instant) -> Option<Vec<RoundReport>> {
        let settled = self.settled_at();
        let waited = now.since(self.judged.max(settled));
        let mut reports = Vec::new();
        let mut running = self.streams.iter().filter(|(_, stream)| stream.rate > 0.0).peekable();
        let none_runs = running.peek().is_none();
        for (id, stream) in running {
            match stream.report {
                Some((rate, at)) if at >= settled && now.since(at) < SILENCE => {
                    let (asked, arrived) = (stream.asked(), rate.min(stream.rate) * stream.bits);
                    let is_short = arrived < asked * self.terms.tolerance;
                    reports.push(RoundReport { stream: *id, asked, arrived, is_short });
                }
                _ if waited < SILENCE => return None,
                _ => {}
            }
        }
        (none_runs || !reports.is_empty()).then_some(reports)
    }

    fn count_alone(&mut self, reports: &[RoundReport]) {
        let sum = |part: fn(&RoundReport) -> f64| reports.iter().map(part).sum::<f64>();
        let (asked, arrived) = (sum(|one| one.asked), sum(|one| one.arrived));
        for one in reports {
            let Some(stream) = self.streams.get_mut(&one.stream) else { continue };
            let (asked, arrived) = (asked - one.asked, arrived - one.arrived);
            let are_others_whole = asked > 0.0 && arrived >= asked * self.terms.tolerance;
            stream.alone = if one.is_short && are_others_whole { stream.alone + 1 } else { 0 };
        }
    }

    /// The time from which reports describe the present rates, on every link.
    fn settled_at(&self) -> Instant {
        let links = self.streams.values().map(|stream| stream.link.settled_at());
        links.fold(self.capacity.settled_at(), Instant::max)
    }

    /// Whether the sink's own link, not the shared one, is too narrow for a stream.
    fn is_own_fault(&self, one: &RoundReport, all: &[RoundReport]) -> bool {
        let best = all.iter().filter(|other| !other.is_short).map(|other| other.arrived).reduce(f64::max);
        let (Some(best), Some(stream)) = (best.filter(|_| one.is_short), self.streams.get(&one.stream)) else {
            return false;
        };
        let is_far_below = one.arrived < one.asked * FAR_BELOW && one.arrived <= best;
        let tolerance = self.terms.tolerance;
        let is_as_before = |before: f64| (before * tolerance..=before / tolerance).contains(&one.arrived);
        let no_cut_helped = stream.alone >= ALONE && stream.at_cut.is_some_and(is_as_before);
        is_far_below || no_cut_helped || stream.link.is_trying()
    }

    /// Updates the estimates of the sinks' own links, except for streams that are short because of the shared link.
    /// Returns whether an estimate changed.
    fn judge_links(&mut self, own: &[RoundReport], shared: &[RoundReport], now: Instant) -> bool {
        let mut changed = false;
        for (id, stream) in &mut self.streams {
            let of = |all: &[RoundReport]| all.iter().find(|one| one.stream == *id).copied();
            let (asked, arrived) = match (of(own), of(shared)) {
                (Some(own), _) => (own.asked, own.arrived),
                (None, Some(shared)) if !shared.is_short => (shared.asked, shared.arrived),
                (None, None) if stream.rate == 0.0 => (0.0, 0.0),
                _ => continue,
            };
            let step = stream.worth_a_try();
            changed |= stream.link.on_report(asked, arrived, step, now).is_some();
        }
        changed
    }

    /// Updates the estimate of the source's link from the streams that their own links do not limit. Returns
    /// whether it changed.
    fn judge_shared(&mut self, shared: &[RoundReport], now: Instant) -> bool {
        let sum = |part: fn(&RoundReport) -> f64| shared.iter().map(part).sum::<f64>();
        let (known, arrived) = (sum(|one| one.asked), sum(|one| one.arrived));
        let asked: f64 = self.streams.values().filter(|stream| stream.rate > 0.0).map(Stream::asked).sum();
        let part = if known > 0.0 { arrived / known } else { 1.0 };
        let (before, step) = (self.capacity.estimate(), self.worth_a_try());
        let changed = self.capacity.on_report(asked, asked * part, step, now);
        let is_cut = changed.is_some_and(|estimate| estimate < before);
        for one in shared {
            let Some(stream) = self.streams.get_mut(&one.stream) else { continue };
            let at_cut = if is_cut { Some(one.arrived) } else { stream.at_cut };
            stream.at_cut = at_cut.filter(|_| stream.alone > 0);
        }
        changed.is_some()
    }

    /// The smallest increase worth a try: a twentieth of all wants, or the amount that brings the next stopped
    /// stream back.
    fn worth_a_try(&self) -> Option<f64> {
        let have = self.capacity.estimate();
        // Includes streams with narrow links of their own: when they try for more, the others need not give up
        // bandwidth.
        let wanted: f64 = self.streams.values().map(|stream| stream.role.want(stream.bits).ceiling).sum();
        if have >= wanted {
            return None;
        }
        let stopped = self.streams.values().filter(|stream| stream.rate == 0.0 && stream.want().ceiling > 0.0);
        let next = stopped.max_by_key(|stream| stream.role.importance);
        let needed = next.map_or(0.0, |next| self.needed_for(next) - have);
        Some(needed.max(wanted / 20.0).min(wanted - have))
    }

    /// The capacity needed to run a stopped stream: its least amount and the floors of all streams before it.
    fn needed_for(&self, next: &Stream) -> f64 {
        let before = |stream: &&Stream| stream.rate > 0.0 && stream.role.importance >= next.role.importance;
        let floors: f64 = self.streams.values().filter(before).map(|stream| stream.want().floor).sum();
        (floors + next.want().least) * ENOUGH
    }

    fn divide(&mut self) -> Vec<Rate> {
        let mut roles: BTreeMap<u64, Group> = BTreeMap::new();
        for (id, stream) in self.streams.iter().filter(|(_, stream)| stream.want().ceiling > 0.0) {
            let group = roles.entry(stream.role.importance.into()).or_insert_with(|| Group::new(Division::Equal));
            group.want(*id, stream.want());
        }
        let mut all = Group::new(Division::Importance);
        for (importance, role) in &roles {
            all.want(*importance, role.total(Want { importance: *importance as u32, ..Want::NOTHING }));
        }
        let grants = all.divide(self.capacity.estimate());
        let bits = roles.iter().flat_map(|(importance, role)| role.divide(grants[importance]));
        let bits: BTreeMap<u64, f64> = bits.collect();
        let given = |id: &u64| bits.get(id).copied().unwrap_or(0.0);
        self.streams.iter_mut().filter_map(|(id, stream)| stream.give(*id, given(id))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BITS: f64 = 8e3;
    const REPORT: Nanos = Nanos::from_millis(500);

    /// Three sinks behind one link that carries `limit(second)` events per second in total, shared in proportion.
    fn driven(limit: impl Fn(u64) -> f64, seconds: u64) -> Vec<[f64; 3]> {
        let mut policy = Multipoint::new(Terms::default(), Instant::ZERO);
        let ids = [0, 1, 2];
        ids.iter().for_each(|id| {
            policy.join(*id, Role::SEEDS[*id as usize], BITS, Instant::ZERO);
        });
        let mut now = Instant::ZERO;
        let mut seen = Vec::new();
        for half in 0..seconds * 2 {
            now = now + REPORT;
            let asked: f64 = ids.iter().map(|id| policy.rate(*id)).sum();
            let part = (limit(half / 2) / asked.max(1e-9)).min(1.0);
            let rates = ids.map(|id| policy.rate(id) * part);
            ids.iter().filter(|id| rates[**id as usize] > 0.0).for_each(|id| {
                policy.on_report(*id, rates[*id as usize], now);
            });
            policy.on_time(now);
            seen.push(ids.map(|id| policy.rate(id)));
        }
        seen
    }

    #[test]
    fn of_one_importance_the_viewer_who_gains_least_is_degraded_first() {
        let mut policy = Multipoint::new(Terms::default(), Instant::ZERO);
        let role = |ceiling| Role { worth: Some(Worth { floor: 5.0, ceiling }), ..Role::range(10.0, 20.0, 1) };
        policy.join(0, role(90.0), BITS, Instant::ZERO);
        policy.join(1, role(6.0), BITS, Instant::ZERO);
        let mut now = Instant::ZERO;
        for _ in 0..20 {
            now = now + REPORT;
            // The link carries 32 events per second.
            let part = 32.0 / (policy.rate(0) + policy.rate(1)).max(32.0);
            (0..2).for_each(|id| drop(policy.on_report(id, policy.rate(id) * part, now)));
        }
        assert!(policy.rate(0) == 20.0 && policy.rate(1) < 14.0, "{} {}", policy.rate(0), policy.rate(1));
    }

    #[test]
    fn all_have_their_maximum_if_it_fits() {
        assert_eq!(driven(|_| 100.0, 30).last(), Some(&[15.0, 20.0, 25.0]));
    }

    #[test]
    fn growing_cross_traffic_degrades_low_then_medium_then_high() {
        let seen = driven(|second| 62.0 - second as f64 / 4.0, 200);
        let below = |role: usize, rate: f64| seen.iter().position(|rates| rates[role] < rate).unwrap();
        assert!(below(0, 14.0) < below(1, 19.0) && below(1, 19.0) < below(2, 24.0), "{seen:?}");
        let stopped = |role: usize| seen.iter().position(|rates| rates[role] == 0.0).unwrap();
        assert!(stopped(0) < stopped(1) && stopped(1) < stopped(2));
    }

    #[test]
    fn roles_recover_in_reverse_order() {
        let seen = driven(|second| second as f64 / 4.0, 400);
        let runs = |role: usize| seen[40..].iter().position(|rates| rates[role] > 0.0).unwrap();
        assert!(runs(2) <= runs(1) && runs(1) <= runs(0), "{} {} {}", runs(2), runs(1), runs(0));
        assert_eq!(seen.last(), Some(&[15.0, 20.0, 25.0]));
    }

    #[test]
    fn rates_are_stable_under_a_constant_limit() {
        let seen = driven(|_| 50.0, 600);
        let changes = seen[600..].windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 80, "{changes} changes in 300 s");
    }

    #[test]
    fn a_silent_sink_does_not_delay_the_others() {
        let mut policy = Multipoint::new(Terms::default(), Instant::ZERO);
        policy.join(0, Role::SEEDS[0], BITS, Instant::ZERO);
        policy.join(1, Role::SEEDS[2], BITS, Instant::ZERO);
        let mut now = Instant::ZERO;
        for _ in 0..40 {
            now = now + REPORT;
            policy.on_report(1, 15.0, now);
        }
        assert!(policy.capacity() < 40.0 * BITS, "{}", policy.capacity());
    }

    /// Like [`driven`], but the link of the source is wide, and each sink's own link carries `links(second)` events
    /// per second.
    fn driven_by_links(links: impl Fn(u64) -> [f64; 3], seconds: u64) -> Vec<[f64; 3]> {
        let mut policy = Multipoint::new(Terms::default(), Instant::ZERO);
        let ids = [0, 1, 2];
        ids.iter().for_each(|id| drop(policy.join(*id, Role::SEEDS[*id as usize], BITS, Instant::ZERO)));
        let mut now = Instant::ZERO;
        let mut seen = Vec::new();
        for half in 0..seconds * 2 {
            now = now + REPORT;
            for id in ids.iter().filter(|id| policy.rate(**id) > 0.0).copied().collect::<Vec<_>>() {
                let arrives = policy.rate(id).min(links(half / 2)[id as usize]);
                policy.on_report(id, arrives, now);
            }
            policy.on_time(now);
            seen.push(ids.map(|id| policy.rate(id)));
        }
        seen
    }

    #[test]
    fn a_narrow_downlink_does_not_degrade_other_sinks() {
        let seen = driven_by_links(|_| [100.0, 100.0, 5.0], 60);
        assert!(seen.iter().all(|rates| rates[..2] == [15.0, 20.0]), "{seen:?}");
        let stopped = seen.iter().filter(|rates| rates[2] == 0.0).count();
        assert!(stopped > seen.len() / 2, "the sink is stopped below its minimum: {seen:?}");
    }

    #[test]
    fn a_slightly_narrow_downlink_is_found_and_the_others_recover() {
        let seen = driven_by_links(|_| [100.0, 100.0, 22.0], 120);
        let late = &seen[120..];
        assert!(late.iter().all(|rates| rates[0] > 14.8 && rates[1] > 19.8), "{late:?}");
        assert!(late.iter().all(|rates| (20.0..25.0).contains(&rates[2])), "{late:?}");
    }

    #[test]
    fn a_sink_whose_downlink_recovers_has_its_maximum_again() {
        let seen = driven_by_links(|second| if second < 30 { [100.0, 4.0, 100.0] } else { [100.0; 3] }, 120);
        assert_eq!(seen[50], [15.0, 0.0, 25.0], "{seen:?}");
        assert!(seen.last().is_some_and(|rates| rates[1] > 19.8), "{seen:?}");
    }

    proptest! {
        #[test]
        fn every_rate_is_zero_or_within_its_role(
            reports in proptest::collection::vec((0u64..6, 0.0f64..40.0), 1..200)
        ) {
            let mut policy = Multipoint::new(Terms::default(), Instant::ZERO);
            (0..6).for_each(|id| {
                policy.join(id, Role::SEEDS[id as usize / 2], BITS, Instant::ZERO);
            });
            let mut now = Instant::ZERO;
            for (stream, achieved) in reports {
                now = now + Nanos::from_millis(150);
                policy.on_report(stream, achieved, now);
                for id in 0..6 {
                    let (rate, role) = (policy.rate(id), Role::SEEDS[id as usize / 2]);
                    prop_assert!(rate == 0.0 || (role.min * 0.999..=role.max * 1.001).contains(&rate), "{rate}");
                }
            }
        }
    }
}
