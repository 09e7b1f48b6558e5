//! The law for the guaranteed share of one application's contract: from the error of its rate to an amount of CPU time.
//!
//! ```text
//!   cost = used / rate          wanted share = target · cost · (1 + headroom)         [CPUs] = [1/s] · [CPU s]
//! ```
//! The share grows at once if the rate is too low and the processor is the reason. It shrinks when less is wanted for
//! [`ShareTerms::calm`]: another rate is the target, events became cheaper, or no thread waits for the processor any
//! more. If no host reports the used time, the share grows by the error of the rate. A share that the host refuses is asked
//! for again after [`ShareTerms::calm`], and the law keeps to what was granted: a refusal does not wind it up. Source:
//! thesis §5.4, which moves a priority by one per report.

use qfabric_types::{Instant, Nanos};

/// Smoothing of the cost: the weight of the newest report.
const SMOOTHING: f64 = 0.5;
/// Largest change of the cost by one report, before smoothing, as a part of it.
const MOST_STEP: f64 = 0.2;
/// Time in which reports show the effect of a larger share.
pub(super) const EFFECT: Nanos = Nanos::from_millis(2_000);
/// First share if the cost is unknown, in CPUs.
const FIRST: f64 = 0.1;
/// A grant that differs by less is the share that was asked for: budgets are rounded, in CPUs.
const ROUNDING: f64 = 0.005;

/// Limits of [`ShareLaw`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareTerms {
    /// The share that the owner's contract guarantees without any decision, in CPUs. It is never cut, and is what remains
    /// when the rest is given back. 0 until the host tells it ([`ShareLaw::own`]).
    pub least: f64,
    /// Largest share, in CPUs.
    pub most: f64,
    /// The part above the predicted need.
    pub headroom: f64,
    /// The part of the target rate that may be missing.
    pub tolerance: f64,
    /// Pressure above this makes the processor the reason, 0 to 1.
    pub pressure: f64,
    /// Time for which less must be wanted before the share shrinks, and after which a refused share is asked for again.
    pub calm: Nanos,
}

impl Default for ShareTerms {
    /// 0 to 0.95 CPUs, 15 % above the need, 8 % of the rate, 20 % of the time, 5 s.
    fn default() -> Self {
        ShareTerms {
            least: 0.0,
            most: 0.95,
            headroom: 0.15,
            tolerance: 0.08,
            pressure: 0.2,
            calm: Nanos::from_millis(5_000),
        }
    }
}

/// The last report of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareFacts {
    /// The rate that its input allows, at most the wanted one, in events per second.
    pub target: f64,
    /// Its rate.
    pub rate: f64,
    /// CPU time that it used, in CPUs.
    pub used: Option<f64>,
    /// Pressure on its CPU, 0 to 1.
    pub pressure: Option<f64>,
}

/// The state of the law for one application.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareLaw {
    terms: ShareTerms,
    share: f64,
    /// CPU seconds per event.
    cost: Option<f64>,
    /// Since when less would suffice.
    low: Option<Instant>,
    /// Time of the last growth.
    grown: Option<Instant>,
    /// When the host granted less than was decided last.
    refused: Option<Instant>,
}

impl ShareLaw {
    pub fn new(terms: ShareTerms) -> ShareLaw {
        ShareLaw { terms, share: terms.least, cost: None, low: None, grown: None, refused: None }
    }

    /// The decided share, in CPUs.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// CPU seconds per event, if a report had both amounts.
    pub fn cost(&self) -> Option<f64> {
        self.cost
    }

    /// Whether there is no larger share: the limit is reached, or the host has refused one.
    pub fn is_saturated(&self) -> bool {
        self.share >= self.terms.most * 0.999 || self.refused.is_some()
    }

    /// The host tells what the contract guarantees without any decision, in CPUs.
    pub fn own(&mut self, share: f64) {
        self.terms.least = share;
    }

    /// The host tells what it guarantees after the last decision, in CPUs.
    pub fn granted(&mut self, share: f64, now: Instant) {
        self.refused = (share < self.share - ROUNDING).then_some(now);
        self.share = share;
    }

    /// When a larger share was refused that is still wanted.
    pub(super) fn refused(&self) -> Option<Instant> {
        self.refused
    }

    /// Whether a larger share was refused, and it is too early to ask again.
    pub(super) fn is_refused(&self, now: Instant) -> bool {
        self.refused.is_some_and(|refused| now.since(refused) < self.terms.calm)
    }

    /// The share for a target rate, in CPUs; `None`: the cost is unknown.
    pub fn need(&self, target: f64) -> Option<f64> {
        Some(self.limited(target * self.cost? * (1.0 + self.terms.headroom)))
    }

    fn limited(&self, share: f64) -> f64 {
        share.clamp(self.terms.least.min(self.terms.most), self.terms.most)
    }

    /// Learns from a report. Returns the new share, if it changes by more than a fiftieth of a CPU.
    pub fn on_report(&mut self, facts: &ShareFacts, now: Instant) -> Option<f64> {
        self.learn(facts);
        let is_short = facts.rate < facts.target * (1.0 - self.terms.tolerance);
        let is_busy = facts.pressure.is_none_or(|pressure| pressure > self.terms.pressure);
        let wanted = match (is_short && is_busy, is_busy) {
            (true, _) => self.grown(facts),
            // While others wait for the processor, the contract is what keeps the rate.
            (false, true) => self.need(facts.target).map_or(self.share, |need| need.min(self.share)),
            (false, false) => self.terms.least,
        };
        if wanted > self.share + 0.02 {
            if self.grown.is_some_and(|grown| now.since(grown) < EFFECT) || self.is_refused(now) {
                return None;
            }
            (self.low, self.grown, self.share) = (None, Some(now), wanted);
            return Some(wanted);
        }
        // No more than is granted is wanted.
        self.refused = None;
        if wanted > self.share - 0.02 {
            self.low = None;
            return None;
        }
        let since = *self.low.get_or_insert(now);
        if now.since(since) < self.terms.calm {
            return None;
        }
        (self.low, self.share) = (None, wanted);
        Some(wanted)
    }

    /// Takes over a share that another part decided, such as one that was predicted.
    pub fn set(&mut self, share: f64) {
        (self.share, self.low) = (self.limited(share), None);
    }

    pub(super) fn learn(&mut self, facts: &ShareFacts) {
        let Some(used) = facts.used.filter(|used| used.is_finite() && *used > 0.0 && facts.rate >= 0.5) else { return };
        let cost = used / facts.rate;
        // Time and events of one report belong to different jobs while the rate changes: such a report is damped.
        let limited = |before: f64| cost.clamp(before * (1.0 - MOST_STEP), before * (1.0 + MOST_STEP));
        self.cost = Some(self.cost.map_or(cost, |before| before + SMOOTHING * (limited(before) - before)));
    }

    /// Forgets the cost: the events are of another kind now.
    pub(super) fn forget(&mut self) {
        self.cost = None;
    }

    /// The share with which a rate that is too low is tried next.
    pub(super) fn grown(&self, facts: &ShareFacts) -> f64 {
        // By the error, for a share that the cost does not explain.
        let error = (facts.target - facts.rate) / facts.target.max(1e-9);
        let by_error = self.limited(self.share.max(FIRST) * (1.0 + error));
        self.need(facts.target).filter(|need| *need > self.share + 0.02).unwrap_or(by_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Claim, Processor};

    /// One second of an application of 30 ms per event under 20 other programs; the rate.
    fn second(law: &mut ShareLaw, at: u64, others: f64, knows_cost: bool) -> f64 {
        let processor = Processor { others, ..Processor::IDLE };
        let share = processor.divide(&[Claim { reserved: law.share(), wants: 0.6 }])[0];
        let (rate, used) = (share / 0.03, knows_cost.then_some(share));
        let pressure = Some(if others > 0.0 { 1.0 } else { 0.0 });
        law.on_report(&ShareFacts { target: 20.0, rate, used, pressure }, Instant::new(at * 1_000_000_000));
        rate
    }

    #[test]
    fn the_contract_follows_the_cost_at_once_and_is_given_back_after_the_disturbance() {
        let mut law = ShareLaw::new(ShareTerms::default());
        assert!(second(&mut law, 0, 0.0, true) > 19.9 && law.share() == 0.0);
        assert!(second(&mut law, 1, 20.0, true) < 5.0);
        assert!((law.share() - 0.69).abs() < 0.01, "{law:?}");
        assert!(second(&mut law, 2, 20.0, true) > 19.9);
        (3..12).for_each(|at| _ = second(&mut law, at, 0.0, true));
        assert_eq!(law.share(), 0.0);
    }

    #[test]
    fn without_a_cost_the_error_of_the_rate_leads_to_the_share() {
        let mut law = ShareLaw::new(ShareTerms::default());
        let rates: Vec<f64> = (0..40).map(|at| second(&mut law, at, 20.0, false)).collect();
        assert!(rates[39] > 18.0 && law.share() < 0.7, "{rates:?} {law:?}");
    }

    /// A report of an application that is too slow on a busy processor, and needs 0.69 CPUs.
    const SHORT: ShareFacts = ShareFacts { target: 20.0, rate: 5.0, used: Some(0.15), pressure: Some(1.0) };

    fn second_at(at: u64) -> Instant {
        Instant::new(at * 1_000_000_000)
    }

    #[test]
    fn a_refused_share_does_not_wind_the_law_up_and_is_asked_for_again() {
        let mut law = ShareLaw::new(ShareTerms::default());
        let mut asked = Vec::new();
        for at in 0..12 {
            if let Some(share) = law.on_report(&SHORT, second_at(at)) {
                asked.push((at, (share * 100.0).round()));
                law.granted(0.0, second_at(at));
            }
            assert!(law.share() == 0.0 && law.is_saturated(), "{law:?}");
        }
        assert_eq!(asked, [(0, 69.0), (5, 69.0), (10, 69.0)]);
        let share = law.on_report(&SHORT, second_at(15)).unwrap();
        law.granted(share, second_at(15));
        assert!((law.share() - 0.69).abs() < 0.01 && !law.is_saturated(), "there is room now: {law:?}");
    }

    #[test]
    fn the_owners_share_is_neither_cut_nor_exceeded_when_the_rest_is_given_back() {
        let mut law = ShareLaw::new(ShareTerms::default());
        let need = ShareFacts { rate: 10.0, used: Some(0.15), ..SHORT };
        assert!(law.on_report(&need, second_at(0)).is_some_and(|share| share < 0.4));
        law.own(0.6);
        law.granted(0.6, second_at(0));
        let calm = ShareFacts { rate: 20.0, used: Some(0.3), ..SHORT };
        assert!((1..20).all(|at| law.on_report(&calm, second_at(at)).is_none()), "0.6 is more than it needs: {law:?}");
        let dear = ShareFacts { rate: 15.0, used: Some(0.6), ..SHORT };
        let raised = (20..25).find_map(|at| law.on_report(&dear, second_at(at))).unwrap();
        assert!(raised > 0.6);
        law.granted(raised, second_at(25));
        let free = ShareFacts { pressure: Some(0.0), ..calm };
        assert_eq!((26..40).find_map(|at| law.on_report(&free, second_at(at))), Some(0.6));
    }

    #[test]
    fn a_rate_that_is_low_without_pressure_changes_no_contract() {
        let mut law = ShareLaw::new(ShareTerms::default());
        let facts = ShareFacts { target: 20.0, rate: 8.0, used: Some(0.3), pressure: Some(0.05) };
        assert_eq!(law.on_report(&facts, Instant::ZERO), None);
    }
}
