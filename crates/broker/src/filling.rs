//! Weighted water-filling under overlapping limits: computes the share that each application should hold if all
//! changes took effect at once. Shares in whole millionths of one CPU, rounded down.
//!
//! Approach: guaranteed parts come first. Then, level by level from the highest, the remaining capacity is poured
//! in proportion to the weights until a claim is full or a limit (host, level, user, group) is reached. A full
//! limit freezes the claims under it; the others go on rising. Each round either fills claims or closes a limit,
//! and visits every claim once. Source: AQuoSA 2009, §4.4, §5.3.2. Departure: AQuoSA does not specify how the
//! maxima of users act inside a level; here they are limits like any other (max-min fairness).

use crate::LEVELS;

/// Stands for an absent limit: larger than the sum of all claims.
pub(crate) const NO_LIMIT: u64 = u64::MAX >> 1;

/// The claim of one application. All shares in millionths of one CPU; `given` is the result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim {
    pub level: u8,
    pub weight: u32,
    /// Indices into [`Room::owners`] of the maxima of its user and its group; 0 if there is no maximum.
    pub user: usize,
    pub group: usize,
    pub guaranteed: u64,
    pub wanted: u64,
    pub given: u64,
    /// Still rising; scratch space of one level.
    pub open: bool,
}

impl Claim {
    fn rest(&self) -> u64 {
        self.wanted - self.given
    }
    fn take(&mut self, amount: u64, room: &mut Room) {
        self.given += amount;
        room.take(self, amount);
    }
}

/// Remaining room under each limit, in millionths of one CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    pub capacity: u64,
    pub levels: [u64; LEVELS],
    /// Remaining room of users and groups in one list; index 0 is [`NO_LIMIT`].
    pub owners: Vec<u64>,
    /// Sum of the weights of the open claims under each limit of `owners`; scratch space of one round.
    weights: Vec<u64>,
}

impl Room {
    /// Allocates for `owners` limits, so that later calls do not allocate.
    pub(crate) fn reserve(&mut self, owners: usize) {
        self.owners.reserve(owners.saturating_sub(self.owners.len()));
        self.weights.reserve(owners.saturating_sub(self.weights.len()));
    }

    fn take(&mut self, claim: &Claim, amount: u64) {
        self.capacity = self.capacity.saturating_sub(amount);
        let level = &mut self.levels[claim.level as usize];
        *level = level.saturating_sub(amount);
        for owner in [claim.user, claim.group] {
            self.owners[owner] = self.owners[owner].saturating_sub(amount);
        }
        self.owners[0] = NO_LIMIT;
    }
}

/// A water level: `num / den` millionths per unit of weight.
#[derive(Clone, Copy)]
struct Ratio {
    num: u64,
    den: u64,
}

impl Ratio {
    fn below(self, other: Ratio) -> bool {
        (self.num as u128 * other.den as u128) < (other.num as u128 * self.den as u128)
    }
    fn of(self, weight: u32) -> u64 {
        (weight as u128 * self.num as u128 / self.den.max(1) as u128) as u64
    }
}

/// The limit that closes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tight {
    Everything,
    Owner(usize),
}

/// Sets `given` of every claim. `room` comes in whole, and holds the remainder afterwards.
pub(crate) fn fill(claims: &mut [Claim], room: &mut Room) {
    give_guarantees(claims, room);
    for level in (0..LEVELS as u8).rev() {
        pour(claims, level, room);
    }
}

/// Gives each claim its guaranteed part, as far as the application wants it. If the capacity is smaller than the
/// sum of these parts, all are scaled down by the same factor.
fn give_guarantees(claims: &mut [Claim], room: &mut Room) {
    let base = |claim: &Claim| claim.wanted.min(claim.guaranteed);
    let (sum, capacity) = (claims.iter().map(base).sum::<u64>(), room.capacity);
    for claim in claims {
        claim.given = 0;
        let due = base(claim);
        let due = if sum > capacity { (due as u128 * capacity as u128 / sum as u128) as u64 } else { due };
        claim.take(due, room);
    }
}

fn pour(claims: &mut [Claim], level: u8, room: &mut Room) {
    for claim in claims.iter_mut() {
        claim.open = claim.level == level && claim.rest() > 0;
    }
    while let Some((tight, water)) = first_to_close(claims, level, room) {
        if !fill_the_small(claims, water, room) {
            close(claims, tight, water, room);
        }
    }
}

/// The limit that would be full first if all open claims rose together; `None` if no claim is open.
fn first_to_close(claims: &[Claim], level: u8, room: &mut Room) -> Option<(Tight, Ratio)> {
    room.weights.clear();
    room.weights.resize(room.owners.len(), 0);
    let mut total = 0;
    for claim in claims.iter().filter(|claim| claim.open) {
        total += u64::from(claim.weight);
        room.weights[claim.user] += u64::from(claim.weight);
        room.weights[claim.group] += u64::from(claim.weight);
    }
    if total == 0 {
        return None;
    }
    let shared = room.capacity.min(room.levels[level as usize]);
    let mut tightest = (Tight::Everything, Ratio { num: shared, den: total });
    for (owner, (&num, &den)) in room.owners.iter().zip(&room.weights).enumerate().skip(1) {
        if den > 0 && (Ratio { num, den }).below(tightest.1) {
            tightest = (Tight::Owner(owner), Ratio { num, den });
        }
    }
    Some(tightest)
}

/// Fills the claims that are full before the water reaches `water`. Each takes no more than its part, so every
/// limit stays at least as wide for the other claims.
fn fill_the_small(claims: &mut [Claim], water: Ratio, room: &mut Room) -> bool {
    let mut any = false;
    for claim in claims.iter_mut().filter(|claim| claim.open) {
        if claim.rest() <= water.of(claim.weight) {
            claim.take(claim.rest(), room);
            claim.open = false;
            any = true;
        }
    }
    any
}

fn close(claims: &mut [Claim], tight: Tight, water: Ratio, room: &mut Room) {
    for claim in claims.iter_mut().filter(|claim| claim.open) {
        let under = match tight {
            Tight::Everything => true,
            Tight::Owner(owner) => claim.user == owner || claim.group == owner,
        };
        if under {
            claim.take(water.of(claim.weight).min(claim.rest()), room);
            claim.open = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(level: u8, weight: u32, guaranteed: u64, wanted: u64) -> Claim {
        Claim { level, weight, guaranteed, wanted, ..Claim::default() }
    }

    fn room(capacity: u64) -> Room {
        Room { capacity, levels: [NO_LIMIT; LEVELS], owners: vec![NO_LIMIT], weights: Vec::new() }
    }

    fn given(mut claims: Vec<Claim>, mut room: Room) -> Vec<u64> {
        fill(&mut claims, &mut room);
        claims.iter().map(|c| c.given).collect()
    }

    #[test]
    fn guarantees_come_before_levels_and_levels_before_weights() {
        let claims = vec![claim(0, 1, 300, 400), claim(9, 1, 0, 500), claim(5, 1, 0, 400), claim(5, 3, 0, 400)];
        assert_eq!(given(claims, room(1_000)), [300, 500, 50, 150]);
    }

    #[test]
    fn unwanted_capacity_goes_to_the_other_claims_by_weight() {
        let claims = vec![claim(5, 2, 0, 100), claim(5, 1, 0, 900), claim(5, 2, 0, 900)];
        assert_eq!(given(claims, room(1_000)), [100, 300, 600]);
    }

    #[test]
    fn a_levels_maximum_leaves_room_below_it() {
        let mut room = room(1_000);
        room.levels[9] = 600;
        assert_eq!(given(vec![claim(9, 1, 0, 900), claim(0, 1, 0, 900)], room), [600, 400]);
    }

    #[test]
    fn a_users_maximum_binds_only_that_user() {
        let mut room = room(1_000);
        room.owners.push(200);
        let mut claims = vec![claim(5, 1, 0, 900), claim(5, 1, 0, 900), claim(5, 1, 0, 900)];
        (claims[0].user, claims[1].user) = (1, 1);
        assert_eq!(given(claims, room), [100, 100, 800]);
    }

    #[test]
    fn guarantees_above_the_capacity_shrink_together() {
        assert_eq!(given(vec![claim(0, 1, 600, 600), claim(9, 1, 200, 200)], room(400)), [300, 100]);
    }

    /// Gives out one millionth at a time to the unblocked claim with the smallest amount per weight.
    fn oracle(claims: &[Claim], room: &Room) -> Vec<u64> {
        let mut room = room.clone();
        let mut given: Vec<u64> = claims.iter().map(|c| c.wanted.min(c.guaranteed)).collect();
        for (claim, &amount) in claims.iter().zip(&given) {
            room.take(claim, amount);
        }
        let base = given.clone();
        for level in (0..LEVELS as u8).rev() {
            loop {
                let blocked = |c: &Claim| {
                    room.capacity == 0
                        || room.levels[c.level as usize] == 0
                        || room.owners[c.user] == 0
                        || room.owners[c.group] == 0
                };
                let next = (0..claims.len())
                    .filter(|&i| claims[i].level == level && given[i] < claims[i].wanted && !blocked(&claims[i]))
                    .min_by_key(|&i| ((given[i] - base[i] + 1) * 1_000_000 / u64::from(claims[i].weight), i));
                let Some(i) = next else { break };
                given[i] += 1;
                room.take(&claims[i], 1);
            }
        }
        given
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        (0u8..3, 1u32..6, 0usize..3, prop_oneof![Just(0usize), Just(3)], 0u64..60, 0u64..400).prop_map(
            |(level, weight, user, group, guaranteed, wanted)| Claim {
                level,
                weight,
                user,
                group,
                guaranteed,
                wanted,
                ..Claim::default()
            },
        )
    }

    fn any_case() -> impl Strategy<Value = (Vec<Claim>, Room)> {
        let owners = (120u64..500, 120u64..500, 240u64..600);
        (prop::collection::vec(any_claim(), 1..8), 500u64..1_500, 100u64..900, owners).prop_map(
            |(mut claims, capacity, level, (a, b, c))| {
                let mut room = room(capacity);
                room.levels[1] = level;
                room.owners.extend([a, b, c]);
                // Admission keeps the guarantees within the maxima of the owners, so this case does too.
                for claim in &mut claims {
                    claim.guaranteed = claim.guaranteed.min(15);
                }
                (claims, room)
            },
        )
    }

    proptest! {
        #[test]
        fn filling_agrees_with_handing_out_single_millionths((claims, room) in any_case()) {
            let expected = oracle(&claims, &room);
            let got = given(claims.clone(), room);
            for (i, (&got, &expected)) in got.iter().zip(&expected).enumerate() {
                // Both round. A rounded limit may leave a few millionths to a claim under another limit.
                let tolerance = 8 * claims.len() as u64;
                prop_assert!(got.abs_diff(expected) <= tolerance, "claim {i}: got {got}, expected {expected}");
            }
        }

        #[test]
        fn no_limit_is_ever_crossed((claims, limits) in any_case()) {
            let got = given(claims.clone(), limits.clone());
            let sum = |keep: &dyn Fn(&Claim) -> bool| -> u64 {
                claims.iter().zip(&got).filter(|(c, _)| keep(c)).map(|(_, g)| g).sum()
            };
            prop_assert!(sum(&|_| true) <= limits.capacity);
            for owner in 1..4 {
                prop_assert!(sum(&|c| c.user == owner || c.group == owner) <= limits.owners[owner]);
            }
            for (claim, &got) in claims.iter().zip(&got) {
                prop_assert!(got <= claim.wanted && got >= claim.wanted.min(claim.guaranteed));
            }
        }

        #[test]
        fn no_capacity_is_left_over_while_a_claim_could_use_it((claims, limits) in any_case()) {
            let mut filled = claims.clone();
            let mut left = limits;
            fill(&mut filled, &mut left);
            let slack = claims.len() as u64;
            for claim in filled.iter().filter(|c| c.rest() > slack) {
                let room = left.capacity.min(left.levels[claim.level as usize]);
                let room = room.min(left.owners[claim.user]).min(left.owners[claim.group]);
                prop_assert!(room <= slack, "{room} ppm are left, {} ppm are wanted", claim.rest());
            }
        }

        #[test]
        fn a_larger_weight_never_yields_less((claims, limits) in any_case(), at in 0usize..8) {
            let at = at % claims.len();
            let mut heavier = claims.clone();
            heavier[at].weight *= 2;
            let slack = claims.len() as u64;
            prop_assert!(given(heavier, limits.clone())[at] + slack >= given(claims, limits)[at]);
        }
    }
}
