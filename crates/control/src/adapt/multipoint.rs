//! One source, many sinks in roles: the best rate for each role, the least important degraded first.
//!
//! Sinks report at what rate events arrive; the source learns from the sum how much the way to them carries
//! ([`Capacity`]) and divides it: streams of a role alike, roles by importance ([`Group`]). Low falls to its minimum,
//! then medium, then high; below the minima they stop in that order, and all come back in reverse.
//! Source: thesis §5.1.3 (Figure 35), Q-channels paper §4.2. Assumes that all streams pass one bottleneck, the link of
//! the source; where they do not, one value per bottleneck.

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
}

#[derive(Clone, Debug)]
struct Stream {
    role: Role,
    bits: f64,
    rate: f64,
    report: Option<(f64, Instant)>,
}

impl Stream {
    fn want(&self) -> Want {
        let Role { least, min, max, importance } = self.role;
        Want { least: least * self.bits, floor: min * self.bits, ceiling: max * self.bits, importance, weight: 1.0 }
    }
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
    capacity: Capacity,
    judged: Instant,
    looked: Instant,
}

impl Multipoint {
    /// Without streams. Hopes for the best: everybody begins at its maximum.
    pub fn new(terms: Terms, now: Instant) -> Self {
        Multipoint { streams: BTreeMap::new(), capacity: Capacity::new(f64::MAX, terms, now), judged: now, looked: now }
    }

    /// A sink joined; `bits` is what one event of its stream takes. Rates of all may change.
    pub fn join(&mut self, stream: u64, role: Role, bits: f64) -> Vec<Rate> {
        let rate = f64::NAN;
        self.streams.insert(stream, Stream { role, bits: bits.max(1.0), rate, report: None });
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
        self.capacity.next_wakeup().max(self.looked + LOOK)
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
        let Some((asked, part)) = self.heard(now) else { return Vec::new() };
        self.judged = now;
        let step = self.worth_a_try();
        let changed = self.capacity.on_report(asked, asked * part, step, now);
        // One judgement per round of reports: a report used twice would confirm itself.
        self.streams.values_mut().for_each(|stream| stream.report = None);
        if changed.is_some() { self.divide() } else { Vec::new() }
    }

    /// What is asked for in all, and which part of it arrives where one hears of it. None: not all have spoken yet.
    fn heard(&self, now: Instant) -> Option<(f64, f64)> {
        let settled = self.capacity.settled_at();
        let waited = now.since(self.judged.max(settled));
        let (mut asked, mut known, mut arrived) = (0.0, 0.0, 0.0);
        for stream in self.streams.values().filter(|stream| stream.rate > 0.0) {
            asked += stream.rate * stream.bits;
            match stream.report {
                Some((rate, at)) if at >= settled && now.since(at) < SILENCE => {
                    known += stream.rate * stream.bits;
                    arrived += rate.min(stream.rate) * stream.bits;
                }
                _ if waited < SILENCE => return None,
                _ => {}
            }
        }
        let part = if known > 0.0 { arrived / known } else { 1.0 };
        (known > 0.0 || asked == 0.0).then_some((asked, part))
    }

    /// A twentieth of all that is wanted, or what brings the next stopped stream back.
    fn worth_a_try(&self) -> Option<f64> {
        let have = self.capacity.estimate();
        let wanted: f64 = self.streams.values().map(|stream| stream.want().ceiling).sum();
        if self.streams.is_empty() || have >= wanted {
            return None;
        }
        let stopped = self.streams.values().filter(|stream| stream.rate == 0.0);
        let next = stopped.max_by_key(|stream| stream.role.importance);
        let needed = next.map_or(0.0, |next| self.needed_for(next) - have);
        Some(needed.max(wanted / 20.0).min(wanted - have))
    }

    /// What has to be there before a stopped stream runs: its least, and the floors of all who come before it.
    fn needed_for(&self, next: &Stream) -> f64 {
        let before = |stream: &&Stream| stream.rate > 0.0 && stream.role.importance >= next.role.importance;
        let floors: f64 = self.streams.values().filter(before).map(|stream| stream.want().floor).sum();
        (floors + next.want().least) * 1.01
    }

    fn divide(&mut self) -> Vec<Rate> {
        let mut roles: BTreeMap<u64, Group> = BTreeMap::new();
        for (id, stream) in &self.streams {
            let group = roles.entry(stream.role.importance.into()).or_insert_with(|| Group::new(Division::Equal));
            group.want(*id, stream.want());
        }
        let mut all = Group::new(Division::Importance);
        for (importance, role) in &roles {
            all.want(*importance, role.total(Want { importance: *importance as u32, ..Want::NOTHING }));
        }
        let grants = all.divide(self.capacity.estimate());
        let bits = roles.iter().flat_map(|(importance, role)| role.divide(grants[importance]));
        let bits: Vec<(u64, f64)> = bits.collect();
        bits.into_iter().filter_map(|(id, bits)| self.give(id, bits)).collect()
    }

    fn give(&mut self, id: u64, bits: f64) -> Option<Rate> {
        let stream = self.streams.get_mut(&id)?;
        let rate = bits / stream.bits;
        let same = (rate - stream.rate).abs() <= stream.rate * GRAIN && (rate > 0.0) == (stream.rate > 0.0);
        if same {
            return None;
        }
        stream.rate = rate;
        Some(Rate { stream: id, rate })
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
            policy.join(*id, Role::SEEDS[*id as usize], BITS);
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
        policy.join(0, Role::SEEDS[0], BITS);
        policy.join(1, Role::SEEDS[2], BITS);
        let mut now = Instant::ZERO;
        for _ in 0..40 {
            now = now + REPORT;
            policy.on_report(1, 15.0, now);
        }
        assert!(policy.capacity() < 40.0 * BITS, "{}", policy.capacity());
    }

    proptest! {
        #[test]
        fn every_rate_is_nothing_or_within_its_role(
            reports in proptest::collection::vec((0u64..6, 0.0f64..40.0), 1..200)
        ) {
            let mut policy = Multipoint::new(Terms::default(), Instant::ZERO);
            (0..6).for_each(|id| {
                policy.join(id, Role::SEEDS[id as usize / 2], BITS);
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
