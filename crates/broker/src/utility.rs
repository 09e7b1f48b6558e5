//! Division by marginal utility: under overload, the applications of one user and one priority level that have
//! utility functions exchange what the weights gave them, so that their total utility is the highest.
//!
//! Others keep what they have: an application cannot gain a share from another user, however high the utility that it
//! claims. No guarantee is touched. Approach: take the steps with the largest gain per share first; this is optimal
//! because the steps of each application fall in gain per share. Source: thesis §2.1.

use qfabric_types::Share;

/// A step of an application's utility: `gain` for this share more, already weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtilityStep {
    pub share: Share,
    pub gain: u64,
}

impl UtilityStep {
    /// Whether this step gains more per share than the other.
    fn is_better(&self, other: &UtilityStep) -> bool {
        let rate = |one: &UtilityStep, other: &UtilityStep| u128::from(one.gain) * u128::from(other.share.ppm());
        rate(self, other) > rate(other, self)
    }
}

/// The preferences of an application: the share of its minima, and the steps above them, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub floor: Share,
    pub steps: Vec<UtilityStep>,
}

/// One application in the exchange. Shares in millionths of one CPU.
#[derive(Debug)]
pub(crate) struct Party<'s> {
    pub steps: &'s Steps,
    pub guaranteed: u64,
    pub wanted: u64,
    /// What the weights gave; replaced by the result.
    pub given: u64,
}

/// Exchanges the shares of all parties; their sum stays the same. Nothing changes if the sum does not suffice for the
/// guaranteed and minimum shares, or if nobody lacks anything.
pub(crate) fn exchange(parties: &mut [Party<'_>]) {
    let pool: u64 = parties.iter().map(|party| party.given).sum();
    let base = |party: &Party<'_>| {
        let floor = u64::from(party.steps.floor.ppm()).max(party.given.min(party.guaranteed));
        floor.min(party.wanted)
    };
    let sum: u64 = parties.iter().map(base).sum();
    if parties.len() < 2 || sum > pool || parties.iter().all(|party| party.given >= party.wanted) {
        return;
    }
    let mut left = pool - sum;
    parties.iter_mut().for_each(|party| party.given = base(party));
    let mut next: Vec<usize> = vec![0; parties.len()];
    while left > 0 {
        let Some(at) = best(parties, &next) else { break };
        let party = &mut parties[at];
        // The guaranteed share may cover a part of the steps already.
        let end = u64::from(party.steps.floor.ppm())
            + party.steps.steps[..=next[at]].iter().map(|step| u64::from(step.share.ppm())).sum::<u64>();
        let rise = end.min(party.wanted).saturating_sub(party.given).min(left);
        party.given += rise;
        left -= rise;
        next[at] += 1;
    }
    // Beyond the last steps nothing is gained; the rest goes to those that want it.
    for party in parties {
        let rise = left.min(party.wanted - party.given);
        party.given += rise;
        left -= rise;
    }
}

/// The party whose next step gains the most per share.
fn best(parties: &[Party<'_>], next: &[usize]) -> Option<usize> {
    let mut best: Option<(usize, &UtilityStep)> = None;
    for (at, (party, next)) in parties.iter().zip(next).enumerate() {
        let Some(step) = party.steps.steps.get(*next).filter(|_| party.given < party.wanted) else { continue };
        if best.is_none_or(|(_, other)| step.is_better(other)) {
            best = Some((at, step));
        }
    }
    best.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(floor: u32, steps: &[(u32, u64)]) -> Steps {
        let step = |(share, gain): &(u32, u64)| UtilityStep { share: Share::from_ppm(*share), gain: *gain };
        Steps { floor: Share::from_ppm(floor), steps: steps.iter().map(step).collect() }
    }

    fn given(parties: &[Party<'_>]) -> Vec<u64> {
        parties.iter().map(|party| party.given).collect()
    }

    #[test]
    fn the_steeper_utility_gets_the_share_and_the_other_keeps_its_minimum() {
        let (flat, steep) = (steps(100, &[(400, 10)]), steps(100, &[(200, 50), (200, 1)]));
        let party = |steps| Party { steps, guaranteed: 0, wanted: 500, given: 300 };
        let mut parties = [party(&flat), party(&steep)];
        exchange(&mut parties);
        assert_eq!(given(&parties), [300, 300], "after 200 at 50 the flat one gains more per share");
        let (flat, steep) = (steps(100, &[(400, 10)]), steps(100, &[(400, 50)]));
        let mut parties = [party(&flat), party(&steep)];
        exchange(&mut parties);
        assert_eq!(given(&parties), [100, 500]);
    }

    #[test]
    fn a_guarantee_is_kept_and_minima_that_do_not_fit_change_nothing() {
        let (flat, steep) = (steps(0, &[(500, 1)]), steps(0, &[(500, 50)]));
        let mut parties = [
            Party { steps: &flat, guaranteed: 200, wanted: 500, given: 250 },
            Party { steps: &steep, guaranteed: 0, wanted: 500, given: 250 },
        ];
        exchange(&mut parties);
        assert_eq!(given(&parties), [200, 300]);
        let high = steps(400, &[]);
        let party = |given| Party { steps: &high, guaranteed: 0, wanted: 500, given };
        let mut parties = [party(250), party(250)];
        exchange(&mut parties);
        assert_eq!(given(&parties), [250, 250]);
    }

    fn party_values() -> impl Strategy<Value = (Steps, u64, u64, u64)> {
        let all = prop::collection::vec((0u32..300, 0u64..100), 0..5);
        (0u32..200, all, 0u64..300, 0u64..1_000, 0u64..1_000).prop_map(|(floor, all, guaranteed, wanted, given)| {
            (steps(floor, &all), guaranteed, wanted, given.min(wanted))
        })
    }

    proptest! {
        #[test]
        fn the_sum_stays_and_nobody_gets_more_than_wanted_or_less_than_guaranteed(
            all in prop::collection::vec(party_values(), 0..6),
        ) {
            let mut parties = Vec::new();
            for (steps, guaranteed, wanted, given) in &all {
                parties.push(Party { steps, guaranteed: *guaranteed, wanted: *wanted, given: *given });
            }
            let before = given(&parties);
            exchange(&mut parties);
            prop_assert_eq!(before.iter().sum::<u64>(), given(&parties).iter().sum::<u64>());
            for (party, before) in parties.iter().zip(before) {
                prop_assert!(party.given <= party.wanted);
                prop_assert!(party.given >= before.min(party.guaranteed));
            }
        }
    }
}
