//! One source, many sinks in roles: the best rate for each role, the least important degraded first.
//!
//! Sinks report at what rate events arrive; the source learns from the sum how much the way to them carries
//! ([`Capacity`]) and divides it: streams of a role alike, roles by importance ([`Group`]). Low falls to its minimum,
//! then medium, then high; below the minima they stop in that order, and all come back in reverse.
//! Source: thesis §5.1.3 (Figure 35), Q-channels paper §4.2.
//!
//! All streams pass the link of the source, each one then a link of its own, to its sink. The reports of one round say
//! which of them is too narrow. A stream that is short while another one is whole is judged by its own [`Capacity`] if
//!
//! * less than half of it arrives, and no more than of the one that is whole: no shared link serves two so differently;
//! * or it has been the only one that is short for some rounds, and a cut of what all share did not help it: just
//!   as much arrives as before, and nothing of what the others gave up;
//! * or its own link is known to be narrow, and it is trying for more.
//!
//! Everything else is taken for the link of the source: what is missing there the least important gives up. One round
//! says little: reports count a few events, and where all lose alike one is short by chance and another one is not.

use std::collections::BTreeMap;

use qfabric_types::{Instant, Nanos};

use super::capacity::{Capacity, Terms};
use super::group::{Division, Group, Want};

/// A sink whose last report is older says nothing about now; that it is gone, its channel tells.
const SILENCE: Nanos = Nanos::from_millis(3_000);

/// Where nobody reports, time is looked at so often.
const LOOK: Nanos = Nanos::from_millis(500);

/// Changes of a rate below this part of it are not worth an event.
const GRAIN: f64 = 0.01;

/// A little more than is needed to run again: rounding must not stop it.
const ENOUGH: f64 = 1.01;

/// Less than this part arriving, where another stream is whole, is the fault of the sink's own link.
const FAR_BELOW: f64 = 0.5;

/// Rounds of reports in which a stream has to be short alone, before its own link is blamed for a little.
const ALONE: u32 = 4;

/// What a role promises, in events per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Role {
    /// Below this rate it is stopped; mostly the minimum.
    pub least: f64,
    /// Its minimum.
    pub min: f64,
    /// Its maximum.
    pub max: f64,
    /// Who keeps its quality longest: the greatest.
    pub importance: u32,
}

impl Role {
    /// The three roles of the papers, by importance: low 10–15, medium 15–20, high 20–25 per second.
    pub const SEEDS: [Role; 3] = [Role::range(10.0, 15.0, 0), Role::range(15.0, 20.0, 1), Role::range(20.0, 25.0, 2)];

    /// A range; stopped below its minimum.
    pub const fn range(min: f64, max: f64, importance: u32) -> Role {
        Role { least: min, min, max, importance }
    }

    /// The role of a stream that two share: it runs as long as one of them can use it, and has what the more demanding
    /// one needs.
    pub fn with(self, other: Role) -> Role {
        Role {
            least: self.least.min(other.least),
            min: self.min.max(other.min),
            max: self.max.max(other.max),
            importance: self.importance.max(other.importance),
        }
    }

    /// What a stream of that role wants, where an event takes so many bits.
    pub fn want(self, bits: f64) -> Want {
        let Role { least, min, max, importance } = self;
        Want { least: least * bits, floor: min * bits, ceiling: max * bits, importance, weight: 1.0 }
    }
}

#[derive(Clone, Debug)]
struct Stream {
    role: Role,
    bits: f64,
    rate: f64,
    report: Option<(f64, Instant)>,
    /// What the sink's own link carries.
    link: Capacity,
    /// What arrived when what all share was cut the last time, if it alone was short then, and has been ever since.
    at_cut: Option<f64>,
    /// Rounds in a row in which it was short, and all others together were not.
    alone: u32,
}

impl Stream {
    /// What it can use of what its own link carries.
    fn want(&self) -> Want {
        self.role.want(self.bits).within(self.link.estimate())
    }

    fn asked(&self) -> f64 {
        self.rate * self.bits
    }

    fn is_narrow(&self) -> bool {
        self.link.estimate() < self.role.want(self.bits).ceiling
    }

    /// A try for more of its own link: a twentieth of what its role wants, or what lets it run again. None: the link is
    /// not what limits it.
    fn worth_a_try(&self) -> Option<f64> {
        let (wanted, have) = (self.role.want(self.bits), self.link.estimate());
        if !self.is_narrow() || self.asked() < self.want().ceiling * (1.0 - GRAIN) {
            return None;
        }
        let needed = wanted.least * ENOUGH - have;
        Some(needed.max(wanted.ceiling / 20.0).min(wanted.ceiling - have))
    }

    /// From now on it has so many bits per second. None: that is what it had.
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

/// What a round of reports says of one stream, in bits per second.
#[derive(Clone, Copy, Debug)]
struct Heard {
    stream: u64,
    asked: f64,
    arrived: f64,
    is_short: bool,
}

/// A stream's new rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Which.
    pub stream: u64,
    /// Events per second; 0: stopped.
    pub rate: f64,
}

/// The policy at the source.
#[derive(Clone, Debug)]
pub struct Multipoint {
    streams: BTreeMap<u64, Stream>,
    terms: Terms,
    /// What the link of the source carries.
    capacity: Capacity,
    judged: Instant,
    looked: Instant,
}

impl Multipoint {
    /// Without streams. Hopes for the best: everybody begins at its maximum.
    pub fn new(terms: Terms, now: Instant) -> Self {
        let capacity = Capacity::new(f64::MAX, terms, now);
        Multipoint { streams: BTreeMap::new(), terms, capacity, judged: now, looked: now }
    }

    /// A sink joined, or has another role from now on; `bits` is what one event of its stream takes. Rates of all may
    /// change.
    pub fn join(&mut self, stream: u64, role: Role, bits: f64, now: Instant) -> Vec<Rate> {
        let (rate, link) = (f64::NAN, Capacity::new(f64::MAX, self.terms, now));
        let fresh = Stream { role, bits: bits.max(1.0), rate, report: None, link, at_cut: None, alone: 0 };
        self.streams.entry(stream).and_modify(|known| known.role = role).or_insert(fresh);
        self.divide()
    }

    /// A sink left: what it had goes to the others.
    pub fn leave(&mut self, stream: u64) -> Vec<Rate> {
        self.streams.remove(&stream);
        self.divide()
    }

    /// A sink says at what rate events arrived lately.
    pub fn on_report(&mut self, stream: u64, achieved: f64, now: Instant) -> Vec<Rate> {
        match self.streams.get_mut(&stream) {
            Some(stream) if achieved.is_finite() => stream.report = Some((achieved.max(0.0), now)),
            _ => return Vec::new(),
        }
        self.judge(now)
    }

    /// Time passed: where nothing runs, nobody reports, and the next try is due all the same.
    pub fn on_time(&mut self, now: Instant) -> Vec<Rate> {
        if now < self.next_wakeup() {
            return Vec::new();
        }
        self.looked = now;
        self.judge(now)
    }

    /// When [`Multipoint::on_time`] has to be called.
    pub fn next_wakeup(&self) -> Instant {
        let narrow = self.streams.values().filter(|stream| stream.is_narrow()).map(|stream| &stream.link);
        let tries = narrow.chain([&self.capacity]).map(Capacity::next_wakeup);
        tries.min().unwrap_or(Instant::NEVER).max(self.looked + LOOK)
    }

    /// The rate a stream has; 0 where it is stopped or unknown.
    pub fn rate(&self, stream: u64) -> f64 {
        self.streams.get(&stream).map_or(0.0, |stream| stream.rate)
    }

    /// What the way is believed to carry, in bits per second.
    pub fn capacity(&self) -> f64 {
        self.capacity.estimate()
    }

    /// Looks only when everybody who runs has spoken of what it is given now, or is silent.
    fn judge(&mut self, now: Instant) -> Vec<Rate> {
        let Some(heard) = self.heard(now) else { return Vec::new() };
        self.judged = now;
        // One judgement per round of reports: a report used twice would confirm itself.
        self.streams.values_mut().for_each(|stream| stream.report = None);
        self.count_alone(&heard);
        let (own, shared): (Vec<_>, Vec<_>) = heard.iter().copied().partition(|one| self.is_own_fault(one, &heard));
        let links_changed = self.judge_links(&own, &shared, now);
        let changed = self.judge_shared(&shared, now);
        if changed || links_changed { self.divide() } else { Vec::new() }
    }

    /// What each stream that runs has reported of what it is given now. None: not all have spoken yet.
    fn heard(&self, now: Instant) -> Option<Vec<Heard>> {
        let settled = self.settled_at();
        let waited = now.since(self.judged.max(settled));
        let mut heard = Vec::new();
        let mut running = self.streams.iter().filter(|(_, stream)| stream.rate > 0.0).peekable();
        let nobody_runs = running.peek().is_none();
        for (id, stream) in running {
            match stream.report {
                Some((rate, at)) if at >= settled && now.since(at) < SILENCE => {
                    let (asked, arrived) = (stream.asked(), rate.min(stream.rate) * stream.bits);
                    let is_short = arrived < asked * self.terms.tolerance;
                    heard.push(Heard { stream: *id, asked, arrived, is_short });
                }
                _ if waited < SILENCE => return None,
                _ => {}
            }
        }
        (nobody_runs || !heard.is_empty()).then_some(heard)
    }

    fn count_alone(&mut self, heard: &[Heard]) {
        let sum = |part: fn(&Heard) -> f64| heard.iter().map(part).sum::<f64>();
        let (asked, arrived) = (sum(|one| one.asked), sum(|one| one.arrived));
        for one in heard {
            let Some(stream) = self.streams.get_mut(&one.stream) else { continue };
            let (asked, arrived) = (asked - one.asked, arrived - one.arrived);
            let are_others_whole = asked > 0.0 && arrived >= asked * self.terms.tolerance;
            stream.alone = if one.is_short && are_others_whole { stream.alone + 1 } else { 0 };
        }
    }

    /// From when on reports speak of what is asked now, on every link.
    fn settled_at(&self) -> Instant {
        let links = self.streams.values().map(|stream| stream.link.settled_at());
        links.fold(self.capacity.settled_at(), Instant::max)
    }

    /// Whether it is the sink's own link that is too narrow for a stream, and not the one that all share.
    fn is_own_fault(&self, one: &Heard, all: &[Heard]) -> bool {
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

    /// Sinks' own links; those of streams that are short by the fault of all say nothing. Says whether one changed.
    fn judge_links(&mut self, own: &[Heard], shared: &[Heard], now: Instant) -> bool {
        let mut changed = false;
        for (id, stream) in &mut self.streams {
            let of = |all: &[Heard]| all.iter().find(|one| one.stream == *id).copied();
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

    /// The link of the source, by the streams that their own links do not limit. Says whether it changed.
    fn judge_shared(&mut self, shared: &[Heard], now: Instant) -> bool {
        let sum = |part: fn(&Heard) -> f64| shared.iter().map(part).sum::<f64>();
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

    /// A twentieth of all that is wanted, or what brings the next stopped stream back.
    fn worth_a_try(&self) -> Option<f64> {
        let have = self.capacity.estimate();
        // Also of those whose own links are narrow: when they try for more, nobody else has to give it.
        let wanted: f64 = self.streams.values().map(|stream| stream.role.want(stream.bits).ceiling).sum();
        if have >= wanted {
            return None;
        }
        let stopped = self.streams.values().filter(|stream| stream.rate == 0.0 && stream.want().ceiling > 0.0);
        let next = stopped.max_by_key(|stream| stream.role.importance);
        let needed = next.map_or(0.0, |next| self.needed_for(next) - have);
        Some(needed.max(wanted / 20.0).min(wanted - have))
    }

    /// What has to be there before a stopped stream runs: its least, and the floors of all who come before it.
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

    /// Three sinks behind one link that carries `limit(second)` events per second in all, shared in proportion.
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
    fn all_have_their_maximum_where_it_fits() {
        assert_eq!(driven(|_| 100.0, 30).last(), Some(&[15.0, 20.0, 25.0]));
    }

    #[test]
    fn a_growing_disturber_costs_low_first_then_medium_then_high() {
        let seen = driven(|second| 62.0 - second as f64 / 4.0, 200);
        let below = |role: usize, rate: f64| seen.iter().position(|rates| rates[role] < rate).unwrap();
        assert!(below(0, 14.0) < below(1, 19.0) && below(1, 19.0) < below(2, 24.0), "{seen:?}");
        let stopped = |role: usize| seen.iter().position(|rates| rates[role] == 0.0).unwrap();
        assert!(stopped(0) < stopped(1) && stopped(1) < stopped(2));
    }

    #[test]
    fn they_come_back_in_reverse() {
        let seen = driven(|second| second as f64 / 4.0, 400);
        let runs = |role: usize| seen[40..].iter().position(|rates| rates[role] > 0.0).unwrap();
        assert!(runs(2) <= runs(1) && runs(1) <= runs(0), "{} {} {}", runs(2), runs(1), runs(0));
        assert_eq!(seen.last(), Some(&[15.0, 20.0, 25.0]));
    }

    #[test]
    fn under_a_limit_that_stays_rates_hardly_move() {
        let seen = driven(|_| 50.0, 600);
        let changes = seen[600..].windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 80, "{changes} changes in 300 s");
    }

    #[test]
    fn a_silent_sink_does_not_hold_up_the_others() {
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

    /// As [`driven`], but the link of the source is wide, and each sink's own carries so many events per second.
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
    fn a_bad_downlink_costs_no_other_sink_anything() {
        let seen = driven_by_links(|_| [100.0, 100.0, 5.0], 60);
        assert!(seen.iter().all(|rates| rates[..2] == [15.0, 20.0]), "{seen:?}");
        let stopped = seen.iter().filter(|rates| rates[2] == 0.0).count();
        assert!(stopped > seen.len() / 2, "below its minimum it is stopped: {seen:?}");
    }

    #[test]
    fn a_downlink_a_little_too_narrow_is_found_and_what_the_others_gave_comes_back() {
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
        fn every_rate_is_nothing_or_within_its_role(
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
