//! Reply implosion: spreads the reports of many sinks over time, so that no slot of 100 ms receives too many.
//!
//! ```text
//!   slot     0    1    2    3   …    9        r_i reports, n = N/10 expected, e_i = r_i − n in excess
//!   r_i     14    2   12    9   …   11        e_i senders, chosen at random, get a delay request
//! ```
//!
//! A sink that receives a delay request sends its next report later by the requested delay, and then continues in
//! its usual period. Source: thesis §5.1.3, Table 3; [`Rule::AsPrinted`] delays by one slot and counts again in
//! every period.
//!
//! Departure, [`Rule::Placed`]. The printed rule has four weaknesses: (a) excess moves from slot to slot like a
//! wave: 100 sinks that begin at once need ten periods, all of them too full; (b) requests under way are not taken
//! into account, so a sink may be moved twice; (c) a mean of N/10 that is not a whole number never comes to rest;
//! (d) a report near the border of two slots counts in one or the other by chance, and each time a random sink is
//! moved. Therefore an excess sender is moved to the next slot with room, however far away, to a free place in the
//! middle part of that slot; senders near a border are moved, too; the period after a request is not judged; and a
//! slot within [`SLACK`] stays as it is.

use qfabric_types::{Instant, Nanos, RandomNumbers};

/// A slot with up to this multiple of its share stays as it is.
pub const SLACK: f64 = 1.15;

/// A report nearer to a border of its slot than this fraction of half a slot may fall into the next slot by jitter.
const BORDER: f64 = 0.12;

/// The rule that chooses the moved sinks and their delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The papers' rule: moves every excess sender by one slot, after every period.
    AsPrinted,
    /// Moves a sender once, to the next slot with room.
    Placed,
}

/// Asks a sink to send its next report later by `delay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayRequest {
    pub sink: u64,
    pub delay: Nanos,
}

/// The policy of the host that receives the reports.
#[derive(Clone, Debug)]
pub struct Implosion {
    rule: Rule,
    slot: Nanos,
    slots: Vec<Vec<(u64, Nanos)>>,
    begun: Instant,
    /// Requests from the previous period are still under way.
    settling: bool,
    random: RandomNumbers,
}

impl Implosion {
    /// Every sink reports once per `period`, which is divided into `slots` slots.
    pub fn new(rule: Rule, period: Nanos, slots: usize, seed: u64, now: Instant) -> Self {
        let slots = slots.max(1);
        let slot = Nanos::new((period.get() / slots as u64).max(1));
        let random = RandomNumbers::new(seed);
        Implosion { rule, slot, slots: vec![Vec::new(); slots], begun: now, settling: false, random }
    }

    /// Records a report. The first report of a new period causes a judgement of the previous period.
    pub fn on_report(&mut self, sink: u64, now: Instant) -> Vec<DelayRequest> {
        let period = self.slot.saturating_mul(self.slots.len() as u64);
        let mut requests = Vec::new();
        if now.since(self.begun) >= period {
            requests = self.judge();
            let periods = now.since(self.begun).get() / period.get();
            self.begun = self.begun + period.saturating_mul(periods);
            self.slots.iter_mut().for_each(Vec::clear);
        }
        let into = now.since(self.begun).get();
        let (slot, within) = (into / self.slot.get(), into % self.slot.get());
        let slot = slot as usize % self.slots.len();
        self.slots[slot].push((sink, Nanos::new(within)));
        requests
    }

    /// Number of reports in each slot of the current period.
    pub fn counts(&self) -> Vec<usize> {
        self.slots.iter().map(Vec::len).collect()
    }

    fn judge(&mut self) -> Vec<DelayRequest> {
        let requests = match self.rule {
            Rule::AsPrinted => self.as_printed(),
            Rule::Placed if self.settling => Vec::new(),
            Rule::Placed => self.placed(),
        };
        self.settling = !requests.is_empty();
        requests
    }

    /// n, the number of reports per slot if all slots were equal.
    fn expected(&self) -> f64 {
        self.slots.iter().map(Vec::len).sum::<usize>() as f64 / self.slots.len() as f64
    }

    fn as_printed(&mut self) -> Vec<DelayRequest> {
        let n = self.expected();
        let excess = |r: usize| (r as f64 - n).max(0.0) as usize;
        let chosen: Vec<_> = (0..self.slots.len()).map(|i| (i, excess(self.slots[i].len()))).collect();
        let delay = self.slot;
        let chosen = chosen.into_iter().flat_map(|(i, excess)| self.choose(i, excess));
        chosen.map(|(sink, _)| DelayRequest { sink, delay }).collect()
    }

    fn placed(&mut self) -> Vec<DelayRequest> {
        let n = self.expected();
        let mut counts = self.counts();
        let mut requests = Vec::new();
        for from in 0..self.slots.len() {
            for (sink, within) in self.to_move(from, n) {
                counts[from] -= 1;
                let to = room_after(from, &counts, n);
                requests.push(DelayRequest { sink, delay: self.delay(from, within, to, counts[to], n) });
                counts[to] += 1;
            }
        }
        requests
    }

    /// The senders that leave a slot: all that a little jitter would move to the adjacent slot, and the excess,
    /// those nearest to a border first.
    fn to_move(&self, slot: usize, n: f64) -> Vec<(u64, Nanos)> {
        let middle = self.slot.get() / 2;
        let off = |sender: &(u64, Nanos)| sender.1.get().abs_diff(middle);
        let mut senders = self.slots[slot].clone();
        senders.sort_by_key(|sender| std::cmp::Reverse(off(sender)));
        let most = ((n * SLACK).floor() as usize).max(n.ceil() as usize);
        let excess = if senders.len() > most { senders.len() - n.ceil() as usize } else { 0 };
        let near = senders.iter().filter(|sender| off(sender) as f64 > middle as f64 * (1.0 - BORDER)).count();
        senders.truncate(excess.max(near));
        senders
    }

    /// The delay to the `place`-th of `n` places in the middle three fifths of the slot `to`.
    fn delay(&self, from: usize, within: Nanos, to: usize, place: usize, n: f64) -> Nanos {
        let slots = self.slots.len();
        let ahead = ((to + slots - from) % slots) as u64;
        let part = 0.2 + 0.6 * (place as f64 + 0.5) / n.max(1.0).ceil();
        let at = Nanos::from_f64(self.slot.as_f64() * part.min(0.8));
        let period = self.slot.saturating_mul(slots as u64);
        let delay = self.slot.saturating_mul(ahead) + at + period - within;
        Nanos::new(delay.get() % period.get())
    }

    /// Draws `count` senders of a slot at random.
    fn choose(&mut self, slot: usize, count: usize) -> Vec<(u64, Nanos)> {
        let mut senders = std::mem::take(&mut self.slots[slot]);
        let count = count.min(senders.len());
        for i in 0..count {
            let other = i + (self.random.draw() % (senders.len() - i) as u64) as usize;
            senders.swap(i, other);
        }
        let chosen = senders[..count].to_vec();
        self.slots[slot] = senders;
        chosen
    }
}

/// The next slot with fewer reports than its share; if there is none, one with less than a whole report above it;
/// if there is none either, the slot itself, which a report has just left.
fn room_after(from: usize, counts: &[usize], n: f64) -> usize {
    let below = |limit: f64| {
        let later = (1..counts.len()).map(|by| (from + by) % counts.len());
        later.into_iter().find(|slot| (counts[*slot] as f64) < limit)
    };
    below(n.floor()).or_else(|| below(n)).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{Rng, RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const SECOND: Nanos = Nanos::from_millis(1_000);

    struct Sinks {
        next: Vec<f64>,
        delays: Vec<f64>,
        jitter_ms: f64,
    }

    /// The largest slot of each of `periods` periods, as a multiple of the mean. With a `spread` of 0 all sinks
    /// begin at once.
    fn largest(rule: Rule, sinks: usize, spread: f64, jitter_ms: f64, periods: usize, seed: u64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut policy = Implosion::new(rule, SECOND, 10, seed, Instant::ZERO);
        let next = (0..sinks).map(|_| rng.random::<f64>() * spread * 1_000.0).collect();
        let mut all = Sinks { next, delays: vec![0.0; sinks], jitter_ms };
        (0..periods).map(|period| round(&mut policy, &mut all, period, &mut rng)).collect()
    }

    /// Simulates one period: a request reaches its sink 20 ms after it was made.
    fn round(policy: &mut Implosion, all: &mut Sinks, period: usize, rng: &mut impl Rng) -> f64 {
        let end = (period + 1) as f64 * 1_000.0;
        let mut sent: Vec<(f64, usize, f64)> = Vec::new();
        for sink in 0..all.next.len() {
            while all.next[sink] < end {
                let jitter = (rng.random::<f64>() + rng.random::<f64>() - 1.0) * all.jitter_ms;
                sent.push(((all.next[sink] + jitter).max(0.0), sink, all.next[sink]));
                all.next[sink] += 1_000.0;
            }
        }
        sent.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut slots = [0usize; 10];
        for (at, sink, _) in sent {
            slots[((at / 100.0) as usize).min(9 + 10 * period) % 10] += 1;
            let requests = policy.on_report(sink as u64, Instant::new((at * 1e6) as u64));
            for request in requests {
                all.delays[request.sink as usize] += request.delay.as_f64() / 1e6;
            }
        }
        all.next.iter_mut().zip(&mut all.delays).for_each(|(next, delay)| *next += std::mem::take(delay));
        let mean = slots.iter().sum::<usize>() as f64 / 10.0;
        *slots.iter().max().unwrap() as f64 / mean.max(1.0)
    }

    #[test]
    fn placed_reports_settle_within_a_dozen_periods_and_stay_there() {
        for (sinks, spread) in [(100, 1.0), (100, 0.0), (200, 1.0), (200, 0.0), (103, 1.0), (1_000, 0.0)] {
            for seed in 0..20 {
                let seen = largest(Rule::Placed, sinks, spread, 4.0, 100, seed);
                let worst = seen[12..].iter().copied().fold(0.0, f64::max);
                assert!(worst <= 1.3, "{sinks} sinks, spread {spread}, seed {seed}: {seen:?}");
            }
        }
    }

    #[test]
    fn as_printed_an_excess_moves_from_slot_to_slot_together() {
        let printed = largest(Rule::AsPrinted, 100, 0.0, 4.0, 12, 1);
        let placed = largest(Rule::Placed, 100, 0.0, 4.0, 12, 1);
        let first = |seen: &[f64]| seen.iter().position(|largest| *largest <= 1.3);
        assert!(first(&printed).is_none_or(|printed| printed > first(&placed).unwrap() + 3), "{printed:?} {placed:?}");
    }

    #[test]
    fn few_or_no_sinks_cause_no_request() {
        let mut policy = Implosion::new(Rule::Placed, SECOND, 10, 1, Instant::ZERO);
        for second in 0..5 {
            assert_eq!(policy.on_report(1, Instant::new(second * 1_000_000_000 + 50_000_000)), []);
        }
    }

    proptest! {
        #[test]
        fn no_sink_is_delayed_by_more_than_a_period_or_twice(seed in any::<u64>(), sinks in 1usize..300) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut policy = Implosion::new(Rule::Placed, SECOND, 10, seed, Instant::ZERO);
            let mut at: Vec<u64> = (0..sinks).map(|_| rng.random_range(0..1_000_000_000)).collect();
            at.sort_unstable();
            at.iter().enumerate().for_each(|(sink, at)| assert_eq!(policy.on_report(sink as u64, Instant::new(*at)), []));
            let requests = policy.on_report(0, Instant::new(1_000_000_000));
            let mut asked: Vec<_> = requests.iter().map(|request| request.sink).collect();
            asked.sort_unstable();
            asked.dedup();
            prop_assert_eq!(asked.len(), requests.len());
            prop_assert!(requests.iter().all(|request| request.delay > Nanos::ZERO && request.delay <= SECOND));
        }
    }
}
