//! Offers shorter periods with which the frame fits, if the demanded periods repeat too late.
//!
//! A shorter period with the same service gives a group at least its share, so an offered period is never longer than
//! the demanded one. The first choice changes only the new group; the second one may change every group.

use qfabric_types::{DispatchRules, Nanos};

use super::admission::{FRAME_LIMIT, frame, late_group, leaves_free};
use super::{GroupId, Slotted};

/// Periods that fit. Groups that are not listed keep their periods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Group and offered period in slots.
    pub periods: Vec<(GroupId, u32)>,
}

impl Offer {
    /// The offered periods as times, such as `70 ms for group 3`; `called` names a group.
    pub fn text(&self, slot: Nanos, called: &dyn Fn(GroupId) -> String) -> String {
        let one = |&(group, period): &(GroupId, u32)| {
            format!("{} for {}", slot.saturating_mul(u64::from(period)), called(group))
        };
        self.periods.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// The nearest shorter periods with which `groups` fit; the last group is the new one. `None` if there are none.
pub(super) fn offer(groups: &[Slotted], rules: &DispatchRules) -> Option<Offer> {
    offer_to_last(groups, rules).or_else(|| offer_to_all(groups, rules))
}

fn offer_to_last(groups: &[Slotted], rules: &DispatchRules) -> Option<Offer> {
    let (last, others) = groups.split_last()?;
    let mut changed = others.to_vec();
    changed.push(*last);
    let fits = |&period: &u32| {
        changed[others.len()].period = period;
        fit(&changed, rules)
    };
    let period = (last.service..=last.period.min(FRAME_LIMIT)).rev().find(fits)?;
    Some(Offer { periods: vec![(last.group, period)] })
}

/// Among all frames up to the limit, the one with the smallest sum `Σ C_i/T_i`, where each T_i is the largest divisor
/// of the frame that does not exceed the demanded period.
fn offer_to_all(groups: &[Slotted], rules: &DispatchRules) -> Option<Offer> {
    let candidates = (1..=FRAME_LIMIT).filter_map(|frame| within(groups, frame)).filter(|set| fit(set, rules));
    let used = |set: &Vec<Slotted>| set.iter().map(|g| f64::from(g.service) / f64::from(g.period)).sum::<f64>();
    let best = candidates.min_by(|a, b| used(a).total_cmp(&used(b)))?;
    let changed = groups.iter().zip(&best).filter(|(old, new)| old.period != new.period);
    Some(Offer { periods: changed.map(|(_, new)| (new.group, new.period)).collect() })
}

/// The groups with periods that divide `frame`; `None` if a group has no such period.
fn within(groups: &[Slotted], frame: u32) -> Option<Vec<Slotted>> {
    let divisors: Vec<u32> = (1..=frame).filter(|part| frame.is_multiple_of(*part)).collect();
    let shorten = |group: &Slotted| {
        let period = *divisors.iter().rev().find(|part| **part <= group.period)?;
        (period >= group.service).then_some(Slotted { period, ..*group })
    };
    groups.iter().map(shorten).collect()
}

fn fit(groups: &[Slotted], rules: &DispatchRules) -> bool {
    let Some(frame) = frame(groups).filter(|frame| *frame <= u64::from(FRAME_LIMIT)) else { return false };
    leaves_free(groups, frame as u32, rules) && late_group(groups, rules.order).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::{Demand, Refusal, admit};

    fn offered(periods_ms: &[u64]) -> Option<Offer> {
        let demand = |(at, ms): (usize, &u64)| Demand {
            group: GroupId(at as u64),
            service: Nanos::from_millis(10),
            period: Nanos::from_millis(*ms),
        };
        let demands: Vec<Demand> = periods_ms.iter().enumerate().map(demand).collect();
        match admit(&DispatchRules::default(), &demands) {
            Err(Refusal::FrameTooLong { offer, .. }) => offer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_new_group_is_offered_the_nearest_shorter_period_that_fits() {
        // 61·67 = 4,087 slots fit; 61·67·71 do not. 67 slots do.
        assert_eq!(offered(&[610, 670, 710]), Some(Offer { periods: vec![(GroupId(2), 67)] }));
        let text = offered(&[610, 670, 710]).unwrap().text(Nanos::from_millis(10), &|group| format!("group {group}"));
        assert_eq!(text, "670 ms for group 2");
    }

    #[test]
    fn a_period_that_alone_exceeds_the_limit_is_offered_the_limit() {
        let demand = Demand { group: GroupId(7), service: Nanos::from_millis(1), period: Nanos::from_millis(5_000) };
        let rules = DispatchRules { slot: Nanos::from_millis(1), ..DispatchRules::default() };
        let refusal = admit(&rules, &[demand]).unwrap_err();
        let Refusal::FrameTooLong { frame, offer, .. } = &refusal else { panic!("{refusal}") };
        assert_eq!((*frame, offer.as_ref().unwrap().periods.clone()), (Some(5_000), vec![(GroupId(7), FRAME_LIMIT)]));
        assert!(refusal.to_string().contains("these periods fit: 4.096 s for group 7"), "{refusal}");
    }

    #[test]
    fn all_periods_change_if_changing_the_new_one_does_not_help() {
        let group = |id, service, period| Slotted { group: GroupId(id), service, period };
        let rules = DispatchRules { free: qfabric_types::Share::from_ppm(50_000), ..DispatchRules::default() };
        // 4,093 is prime: beside it, the new group could have only 1 slot as its period.
        let groups = [group(1, 1_000, 4_093), group(2, 600, 1_000)];
        let offer = offer(&groups, &rules).unwrap();
        let changed: Vec<Slotted> = groups
            .iter()
            .map(|g| {
                let period =
                    offer.periods.iter().find(|(id, _)| *id == g.group).map_or(g.period, |(_, period)| *period);
                Slotted { period, ..*g }
            })
            .collect();
        assert!(fit(&changed, &rules), "{offer:?}");
        assert!(changed.iter().zip(&groups).all(|(new, old)| new.period <= old.period));
        assert_eq!(changed.iter().map(|g| g.period).collect::<Vec<_>>(), [4_000, 1_000]);
    }
}
