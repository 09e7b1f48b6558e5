//! One group of the QoS tree: adds up the wants of its children and divides its grant among them.
//!
//! A parent sees the [`Want`]s of its children, but no nodes below them; a child sees its grant, but no siblings.
//! So a group works the same whether its children are values in this process or groups on other hosts, whose wants
//! arrive as events. Source: Q-channels paper §3.3, Figure 2. Departure: if the minima do not fit, the least
//! important child is stopped; the other children are never squeezed below a useful amount. The share of a stopped
//! child goes to the others.
//!
//! If all children of a group have registered what their ranges are worth ([`Worth`]), marginal utility decides among
//! children of equal importance: the child that gains least per amount is degraded first, and the child whose minimum
//! is worth least per amount stops first (thesis §2.1). Otherwise the rules below hold alone.

use std::collections::BTreeMap;

/// Tolerates floating-point errors: an amount that is too small by one part in 10⁹ still suffices.
pub(super) const ROUNDING: f64 = 1.0 - 1e-9;

/// The range of a resource that a child can use, in the unit of the resource (bits per second, frames per second,
/// CPUs).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Want {
    /// The child is stopped below this amount, because it cannot use less; usually equal to the floor.
    pub least: f64,
    /// Minimum.
    pub floor: f64,
    /// Maximum.
    pub ceiling: f64,
    /// The child with the greatest importance keeps its quality longest.
    pub importance: u32,
    /// Weight in the division of the amount above all floors, for [`Division::Weight`].
    pub weight: f64,
    /// The utility of the range, if it is registered.
    pub worth: Option<Worth>,
}

/// What a range is worth: the utility at its floor and at its ceiling, and on a line between them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    pub floor: f64,
    pub ceiling: f64,
}

impl std::ops::Add for Worth {
    type Output = Worth;

    fn add(self, other: Worth) -> Worth {
        Worth { floor: self.floor + other.floor, ceiling: self.ceiling + other.ceiling }
    }
}

impl Want {
    /// An empty range.
    pub const NOTHING: Want = Want { least: 0.0, floor: 0.0, ceiling: 0.0, importance: 0, weight: 1.0, worth: None };

    /// A range; the child is stopped below its minimum.
    pub fn range(floor: f64, ceiling: f64, importance: u32) -> Self {
        Want { least: floor, floor, ceiling: ceiling.max(floor), importance, ..Want::NOTHING }
    }

    /// The position of `amount` between floor (0) and ceiling (1); `None` if the child is stopped.
    pub fn quality(&self, amount: f64) -> Option<f64> {
        if amount < self.least * ROUNDING || (amount <= 0.0 && self.ceiling > 0.0) {
            return None;
        }
        let room = self.ceiling - self.floor;
        Some(if room > 0.0 { ((amount - self.floor) / room).clamp(0.0, 1.0) } else { 1.0 })
    }

    /// The same want if at most `most` is available; [`Want::NOTHING`] if that is too little to use.
    pub fn within(&self, most: f64) -> Want {
        match self.quality(most) {
            Some(_) => self.limited(self.floor.min(most), self.ceiling.min(most)),
            None => self.at_most(None),
        }
    }

    /// The same want, limited to `quality`.
    pub fn at_most(&self, quality: Option<f64>) -> Want {
        match quality {
            Some(quality) => self.limited(self.floor, self.floor + quality * (self.ceiling - self.floor)),
            None => Want { least: 0.0, ..self.limited(0.0, 0.0) },
        }
    }

    /// The same want with a smaller range, which is worth less.
    fn limited(&self, floor: f64, ceiling: f64) -> Want {
        let worth = self.worth.map(|_| Worth { floor: self.utility(floor), ceiling: self.utility(ceiling) });
        Want { floor, ceiling, worth, ..*self }
    }

    /// The utility of an amount: on a line from 0 to the floor, and from there to the ceiling. 0 without a registered
    /// worth.
    fn utility(&self, amount: f64) -> f64 {
        let Worth { floor, ceiling } = self.worth.unwrap_or_default();
        if amount < self.floor {
            return floor * amount / self.floor;
        }
        let room = self.ceiling - self.floor;
        let part = if room > 0.0 { ((amount - self.floor) / room).min(1.0) } else { 1.0 };
        floor + part * (ceiling - floor)
    }

    /// Marginal utility: the gain per amount above the floor.
    fn gain(&self) -> f64 {
        let Worth { floor, ceiling } = self.worth.unwrap_or_default();
        self.weight * (ceiling - floor) / (self.ceiling - self.floor).max(f64::MIN_POSITIVE)
    }

    /// The worth of the floor per amount.
    fn density(&self) -> f64 {
        self.weight * self.worth.unwrap_or_default().floor / self.floor.max(f64::MIN_POSITIVE)
    }
}

/// The rule by which a group divides the amount above the floors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// The most important child up to its ceiling, then the next: roles of a stream.
    Importance,
    /// The same quality between floor and ceiling for all: connections of a role.
    Equal,
    /// In proportion to the weights: streams of a system.
    Weight,
    /// The same quality for all, and all are stopped if one has to be: sound and picture.
    Linked,
}

/// A node of the QoS tree, with its children's wants.
#[derive(Clone, Debug)]
pub struct Group {
    division: Division,
    children: BTreeMap<u64, Want>,
}

impl Group {
    pub fn new(division: Division) -> Self {
        Group { division, children: BTreeMap::new() }
    }

    pub fn division(&self) -> Division {
        self.division
    }

    /// Adds a child or changes its want.
    pub fn want(&mut self, child: u64, want: Want) {
        self.children.insert(child, want);
    }

    /// Removes a child.
    pub fn leave(&mut self, child: u64) {
        self.children.remove(&child);
    }

    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    pub fn children(&self) -> impl Iterator<Item = (u64, Want)> + '_ {
        self.children.iter().map(|(child, want)| (*child, *want))
    }

    /// The group's own want, for its parent: the sums of the children's ranges. The group is useful from the least
    /// amount of its most important child on. `own` supplies its importance and weight among its siblings.
    pub fn total(&self, own: Want) -> Want {
        let sum = |part: fn(&Want) -> f64| self.children.values().map(part).sum::<f64>();
        let (floor, ceiling) = (sum(|want| want.floor), sum(|want| want.ceiling));
        let first = self.in_order().first().map_or(0.0, |child| child.1.least);
        let least = if self.division == Division::Linked { floor } else { first };
        let worth = self.children.values().map(|want| want.worth).reduce(|a, b| Some(a? + b?)).flatten();
        Want { least, floor, ceiling, worth, ..own }
    }

    /// Divides `amount`. A child with 0 is stopped. The sum of the parts never exceeds `amount`.
    pub fn divide(&self, amount: f64) -> BTreeMap<u64, f64> {
        let order = self.in_order();
        let (mut grants, mut rest) = self.floors(&order, amount.max(0.0));
        let running: Vec<_> =
            order.iter().filter(|(child, want)| grants[child] >= want.floor && want.ceiling > want.floor).collect();
        let by_worth = self.has_worth() && matches!(self.division, Division::Equal | Division::Weight);
        let extras = if by_worth { by_gain(&running, rest) } else { extras(self.division, &running, rest) };
        for (child, extra) in extras {
            let extra = extra.min(rest);
            *grants.entry(child).or_default() += extra;
            rest -= extra;
        }
        grants
    }

    /// Whether all children that want something have registered what it is worth.
    fn has_worth(&self) -> bool {
        self.children.values().all(|want| want.worth.is_some() || want.ceiling <= 0.0)
    }

    /// The most important child first; among equals, the one whose floor is worth most, then the one with the lowest
    /// number.
    fn in_order(&self) -> Vec<(u64, Want)> {
        let has_worth = self.has_worth();
        let density = |want: &Want| if has_worth { want.density() } else { 0.0 };
        let mut order: Vec<_> = self.children().collect();
        order.sort_by(|(a, x), (b, y)| {
            let by_worth = || density(y).total_cmp(&density(x));
            y.importance.cmp(&x.importance).then_with(by_worth).then(a.cmp(b))
        });
        order
    }

    /// Gives floors in order until one does not fit. That child gets the rest if it can use the rest; the children
    /// after it get 0.
    fn floors(&self, order: &[(u64, Want)], amount: f64) -> (BTreeMap<u64, f64>, f64) {
        let mut grants: BTreeMap<u64, f64> = order.iter().map(|(child, _)| (*child, 0.0)).collect();
        let total: f64 = order.iter().map(|(_, want)| want.floor).sum();
        if self.division == Division::Linked && amount < total * ROUNDING {
            return (grants, 0.0);
        }
        let mut rest = amount;
        for (child, want) in order {
            let fits = rest >= want.floor * ROUNDING;
            if !fits && (rest < want.least * ROUNDING || rest <= 0.0) {
                break;
            }
            // A floor that is met except for rounding counts as met: later comparisons use the floor itself.
            grants.insert(*child, if fits { want.floor } else { rest });
            rest = (rest - want.floor).max(0.0);
            if !fits {
                break;
            }
        }
        (grants, rest)
    }
}

fn extras(division: Division, running: &[&(u64, Want)], rest: f64) -> Vec<(u64, f64)> {
    let room = |want: &Want| want.ceiling - want.floor;
    match division {
        Division::Importance => {
            let mut rest = rest;
            let mut take = |room: f64| {
                let taken = room.min(rest);
                rest -= taken;
                taken
            };
            running.iter().map(|(child, want)| (*child, take(room(want)))).collect()
        }
        Division::Equal | Division::Linked => {
            let total: f64 = running.iter().map(|(_, want)| room(want)).sum();
            let quality = if total > 0.0 { (rest / total).min(1.0) } else { 0.0 };
            running.iter().map(|(child, want)| (*child, quality * room(want))).collect()
        }
        Division::Weight => by_weight(running, rest),
    }
}

/// The child with the largest gain per amount up to its ceiling, then the next; the same quality for equal gains.
fn by_gain(running: &[&(u64, Want)], mut rest: f64) -> Vec<(u64, f64)> {
    let mut order = running.to_vec();
    order.sort_by(|a, b| b.1.gain().total_cmp(&a.1.gain()));
    let mut extra = Vec::new();
    for equals in order.chunk_by(|a, b| a.1.gain() == b.1.gain()) {
        let given = extras(Division::Equal, equals, rest);
        rest = (rest - given.iter().map(|(_, amount)| amount).sum::<f64>()).max(0.0);
        extra.extend(given);
    }
    extra
}

/// Water filling: the unused part of a child at its ceiling goes to the others.
fn by_weight(running: &[&(u64, Want)], rest: f64) -> Vec<(u64, f64)> {
    let per_weight = |want: &Want| (want.ceiling - want.floor) / want.weight.max(f64::MIN_POSITIVE);
    let mut open: Vec<_> = running.to_vec();
    open.sort_by(|a, b| per_weight(&a.1).total_cmp(&per_weight(&b.1)));
    let mut weights: f64 = open.iter().map(|(_, want)| want.weight).sum();
    let mut rest = rest;
    let mut fill = |want: &Want| {
        let part = if weights > 0.0 { rest * want.weight / weights } else { 0.0 };
        let taken = part.min(want.ceiling - want.floor);
        (rest, weights) = (rest - taken, weights - want.weight);
        taken
    };
    open.into_iter().map(|(child, want)| (*child, fill(want))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Three roles: high 20–25, medium 15–20, low 10–15.
    fn roles(least: bool) -> Group {
        let mut group = Group::new(Division::Importance);
        for (role, floor) in [(3, 20.0), (2, 15.0), (1, 10.0)] {
            let want = Want::range(floor, floor + 5.0, role);
            group.want(role.into(), Want { least: if least { 0.0 } else { floor }, ..want });
        }
        group
    }

    fn high_medium_low(group: &Group, amount: f64) -> [f64; 3] {
        let grants = group.divide(amount);
        [grants[&3], grants[&2], grants[&1]]
    }

    #[test]
    fn low_is_degraded_first_then_medium_then_high() {
        let group = roles(false);
        assert_eq!(high_medium_low(&group, 70.0), [25.0, 20.0, 15.0]);
        assert_eq!(high_medium_low(&group, 57.0), [25.0, 20.0, 12.0]);
        assert_eq!(high_medium_low(&group, 52.0), [25.0, 17.0, 10.0]);
        assert_eq!(high_medium_low(&group, 46.0), [21.0, 15.0, 10.0]);
    }

    #[test]
    fn below_the_minima_low_stops_first_then_medium_then_high() {
        let group = roles(false);
        assert_eq!(high_medium_low(&group, 44.0), [25.0, 19.0, 0.0]);
        assert_eq!(high_medium_low(&group, 34.0), [25.0, 0.0, 0.0]);
        assert_eq!(high_medium_low(&group, 19.0), [0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_child_that_can_use_any_amount_shrinks_instead_of_stopping() {
        let group = roles(true);
        assert_eq!(high_medium_low(&group, 38.0), [20.0, 15.0, 3.0]);
        assert_eq!(high_medium_low(&group, 28.0), [20.0, 8.0, 0.0]);
        assert_eq!(high_medium_low(&group, 7.0), [7.0, 0.0, 0.0]);
    }

    #[test]
    fn linked_children_stop_together() {
        let mut group = Group::new(Division::Linked);
        group.want(1, Want::range(10.0, 20.0, 1));
        group.want(2, Want::range(1.0, 2.0, 2));
        assert_eq!(group.divide(10.9), BTreeMap::from([(1, 0.0), (2, 0.0)]));
        assert_eq!(group.divide(16.5), BTreeMap::from([(1, 15.0), (2, 1.5)]));
    }

    #[test]
    fn the_unused_part_of_a_child_goes_to_the_others_by_weight() {
        let mut group = Group::new(Division::Weight);
        group.want(1, Want { weight: 3.0, ..Want::range(0.0, 10.0, 1) });
        group.want(2, Want { weight: 1.0, ..Want::range(0.0, 100.0, 1) });
        assert_eq!(group.divide(20.0), BTreeMap::from([(1, 10.0), (2, 10.0)]));
    }

    fn division() -> impl Strategy<Value = Division> {
        prop_oneof![Just(Division::Importance), Just(Division::Equal), Just(Division::Weight), Just(Division::Linked)]
    }

    fn want() -> impl Strategy<Value = Want> {
        (0.0f64..1.0, 0.0f64..50.0, 0.0f64..50.0, 0u32..4, 0.1f64..5.0).prop_map(
            |(least, floor, room, importance, weight)| {
                let least = floor * least;
                Want { least, floor, ceiling: floor + room, importance, weight, worth: None }
            },
        )
    }

    /// Two or three children of equal importance with registered worth, and what is there for them.
    fn worthy() -> impl Strategy<Value = (Vec<Want>, f64)> {
        let want = (0u32..5, 1u32..9, 0u32..20, 0u32..20).prop_map(|(floor, room, at_floor, gain)| {
            let worth = Worth { floor: at_floor.into(), ceiling: f64::from(at_floor + gain) };
            let want = Want::range(floor.into(), f64::from(floor + room), 1);
            Want { worth: Some(worth), ..want }
        });
        (proptest::collection::vec(want, 2..4), 0u32..20).prop_map(|(wants, more)| (wants, more.into()))
    }

    fn group_of(division: Division, wants: &[Want]) -> Group {
        let mut group = Group::new(division);
        wants.iter().enumerate().for_each(|(i, want)| group.want(i as u64, *want));
        group
    }

    fn utility(wants: &[Want], grants: &BTreeMap<u64, f64>) -> f64 {
        let of = |(i, want): (usize, &Want)| want.weight * want.utility(grants[&(i as u64)]);
        wants.iter().enumerate().map(of).sum()
    }

    /// The best utility of whole units above the floors, by trying all divisions.
    fn best_of_all(wants: &[Want], amount: f64) -> f64 {
        let Some((first, rest)) = wants.split_first() else { return 0.0 };
        let floors: f64 = rest.iter().map(|want| want.floor).sum();
        let most = first.ceiling.min(amount - floors);
        let parts = (0..).map(|unit| first.floor + f64::from(unit)).take_while(|part| *part <= most + 1e-9);
        parts.map(|part| first.weight * first.utility(part) + best_of_all(rest, amount - part)).fold(0.0, f64::max)
    }

    #[test]
    fn who_gains_least_per_amount_is_degraded_first_and_without_a_table_all_are_equal() {
        let worth = |floor, ceiling| Some(Worth { floor, ceiling });
        let mut wants = [Want::range(10.0, 20.0, 1); 3];
        (wants[0].worth, wants[1].worth, wants[2].worth) = (worth(9.0, 10.0), worth(5.0, 50.0), worth(7.0, 27.0));
        let grants =
            |wants: &[Want], amount| group_of(Division::Equal, wants).divide(amount).into_values().collect::<Vec<_>>();
        assert_eq!(grants(&wants, 45.0), [10.0, 20.0, 15.0]);
        assert_eq!(grants(&wants, 25.0), [10.0, 0.0, 10.0 + 5.0], "the minimum of the second is worth least");
        wants[0].worth = None;
        assert_eq!(grants(&wants, 45.0), [15.0, 15.0, 15.0], "one has no table");
        assert_eq!(grants(&wants, 25.0), [12.5, 12.5, 0.0]);
    }

    #[test]
    fn equal_tables_have_equal_quality_and_importance_comes_first() {
        let worth = Some(Worth { floor: 1.0, ceiling: 2.0 });
        let equals = [Want { worth, ..Want::range(10.0, 20.0, 1) }; 2];
        assert_eq!(group_of(Division::Equal, &equals).divide(30.0), BTreeMap::from([(0, 15.0), (1, 15.0)]));
        let precious = Want { worth: Some(Worth { floor: 99.0, ceiling: 999.0 }), ..Want::range(10.0, 20.0, 0) };
        let roles = group_of(Division::Importance, &[precious, equals[0]]);
        assert_eq!(roles.divide(25.0), BTreeMap::from([(0, 10.0), (1, 15.0)]));
    }

    proptest! {
        /// Where the minima fit, no other division has a higher utility.
        #[test]
        fn registered_tables_are_divided_as_by_trying_all((wants, more) in worthy(), weighted in any::<bool>()) {
            let mut wants = wants;
            if weighted {
                wants[0].weight = 3.0;
            }
            let division = if weighted { Division::Weight } else { Division::Equal };
            let amount = wants.iter().map(|want| want.floor).sum::<f64>() + more;
            let found = utility(&wants, &group_of(division, &wants).divide(amount));
            prop_assert!(found >= best_of_all(&wants, amount) - 1e-6);
        }

        #[test]
        fn no_child_exceeds_its_ceiling_and_the_sum_does_not_exceed_the_amount(
            division in division(), wants in proptest::collection::vec(want(), 0..12), amount in 0.0f64..600.0
        ) {
            let mut group = Group::new(division);
            wants.iter().enumerate().for_each(|(i, want)| group.want(i as u64, *want));
            let grants = group.divide(amount);
            prop_assert!(grants.values().sum::<f64>() <= amount * (1.0 + 1e-6) + 1e-6);
            for (child, want) in group.children() {
                let grant = grants[&child];
                prop_assert!(grant <= want.ceiling + 1e-6 && grant >= 0.0);
                prop_assert!(grant == 0.0 || grant >= want.least * ROUNDING);
            }
        }

        #[test]
        fn a_more_important_child_never_stops_before_a_less_important_one(
            wants in proptest::collection::vec(want(), 2..12), amount in 0.0f64..600.0
        ) {
            let mut group = Group::new(Division::Importance);
            wants.iter().enumerate().for_each(|(i, want)| group.want(i as u64, *want));
            let grants = group.divide(amount);
            let stopped = |i: usize| grants[&(i as u64)] < wants[i].least * ROUNDING;
            for (i, j) in (0..wants.len()).flat_map(|i| (0..wants.len()).map(move |j| (i, j))) {
                if wants[i].importance > wants[j].importance && stopped(i) {
                    prop_assert!(grants[&(j as u64)] == 0.0);
                }
            }
        }

        #[test]
        fn all_floors_are_met_if_they_fit(
            division in division(), wants in proptest::collection::vec(want(), 1..12), more in 0.0f64..100.0
        ) {
            let mut group = Group::new(division);
            wants.iter().enumerate().for_each(|(i, want)| group.want(i as u64, *want));
            let grants = group.divide(wants.iter().map(|want| want.floor).sum::<f64>() + more);
            prop_assert!(group.children().all(|(child, want)| grants[&child] >= want.floor * ROUNDING));
        }
    }
}
