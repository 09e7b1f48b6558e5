//! Admission of groups on one CPU: `Σ C_i/T_i <= 1 − free` (004 §3.1), the schedulability test of the order, and the
//! limit of the frame.

use qfabric_types::api::Problem;
use qfabric_types::{DispatchOrder, DispatchRules, Nanos, Share};

use super::harmonise::{self, Offer};
use super::{Demand, GroupId, Slotted, Table};

/// Longest frame, in slots. Bounds the memory of a table (8 KiB) and the time to compute one.
pub const FRAME_LIMIT: u32 = 4_096;
/// Largest number of groups on one CPU.
pub const GROUP_LIMIT: usize = 64;

/// Why groups cannot share a CPU. A refusal changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum Refusal {
    NoService,
    PeriodBelowSlot {
        period: Nanos,
        slot: Nanos,
    },
    /// More slots of service than the period has.
    ServiceOverPeriod {
        service: Nanos,
        period: Nanos,
        slot: Nanos,
        service_slots: u64,
        period_slots: u64,
    },
    /// The sum in whole slots would exceed the bound.
    OverCommitted {
        asked: Share,
        free: Share,
        slot: Nanos,
    },
    /// The exact rate-monotonic test failed.
    NotSchedulable {
        group: GroupId,
        period: Nanos,
    },
    /// The least common multiple of the periods exceeds [`FRAME_LIMIT`].
    FrameTooLong {
        /// Slots after which the periods repeat; `None`: more than 2^64.
        frame: Option<u64>,
        slot: Nanos,
        offer: Option<Offer>,
    },
    TooManyGroups,
}

impl Refusal {
    /// The refusal with its next step, which names groups by their numbers.
    pub fn problem(&self) -> Problem {
        self.problem_for(&|group| format!("group {group}"))
    }

    /// Like [`Refusal::problem`]; `called` names a group.
    pub fn problem_for(&self, called: &dyn Fn(GroupId) -> String) -> Problem {
        Problem::new("no_slots", self.message(), self.next_step(called))
    }

    /// The cause, with the asked and the accepted values.
    fn message(&self) -> String {
        match self {
            Refusal::NoService => "a service of 0 ms needs no slot".to_owned(),
            Refusal::PeriodBelowSlot { period, slot } => {
                format!("the period {period} is shorter than a slot of {slot}")
            }
            Refusal::ServiceOverPeriod { service, period, slot, service_slots, period_slots } => format!(
                "service {service} in {period} is {service_slots} slots of {slot} in every {period_slots} whole slots"
            ),
            Refusal::OverCommitted { asked, free, slot } => {
                format!("{asked} in whole slots of {slot}, but {free} is free beside the free minimum of the CPU")
            }
            Refusal::NotSchedulable { period, .. } => {
                format!("under rate-monotonic order, a group with the period {period} would miss it")
            }
            Refusal::FrameTooLong { frame, slot, .. } => {
                let frame = frame.map_or("more than 2^64".to_owned(), |frame| frame.to_string());
                format!(
                    "the periods repeat after {frame} slots of {slot}, but a dispatch table has at most {FRAME_LIMIT}"
                )
            }
            Refusal::TooManyGroups => format!("{GROUP_LIMIT} groups share this CPU already, which is the limit"),
        }
    }

    fn next_step(&self, called: &dyn Fn(GroupId) -> String) -> String {
        let text = match self {
            Refusal::NoService => "ask for at least 1 ns",
            Refusal::PeriodBelowSlot { .. } => "use a longer period, or shorter slots (mechanism.slot)",
            Refusal::ServiceOverPeriod { .. } => {
                "ask for less service, a longer period, or shorter slots (mechanism.slot)"
            }
            Refusal::OverCommitted { .. } => "ask for less, or use shorter slots (mechanism.slot)",
            Refusal::NotSchedulable { .. } => "use mechanism.order = \"edf\", or periods that divide each other",
            Refusal::FrameTooLong { offer: Some(offer), slot, .. } => {
                return format!("these periods fit: {}", offer.text(*slot, called));
            }
            Refusal::FrameTooLong { offer: None, .. } => "use periods that divide each other",
            Refusal::TooManyGroups => "end one of them",
        };
        text.to_owned()
    }
}

/// Admits all `demands` on one CPU; the last one is the new one. Returns the table of one frame.
///
/// # Errors
/// A [`Refusal`].
pub fn admit(rules: &DispatchRules, demands: &[Demand]) -> Result<Table, Refusal> {
    if demands.len() > GROUP_LIMIT {
        return Err(Refusal::TooManyGroups);
    }
    let groups = demands.iter().map(|d| d.slotted(rules.slot)).collect::<Result<Vec<_>, _>>()?;
    if surely_over(&groups, rules) {
        return Err(over_committed(&groups, rules));
    }
    let frame = match frame(&groups) {
        Some(frame) if frame <= u64::from(FRAME_LIMIT) => frame as u32,
        frame => {
            let offer = harmonise::offer(&groups, rules);
            return Err(Refusal::FrameTooLong { frame, slot: rules.slot, offer });
        }
    };
    if !leaves_free(&groups, frame, rules) {
        return Err(over_committed(&groups, rules));
    }
    if let Some(late) = late_group(&groups, rules.order) {
        let period = rules.slot.saturating_mul(late.period.into());
        return Err(Refusal::NotSchedulable { group: late.group, period });
    }
    Ok(Table::build(groups, frame, rules.order))
}

/// Least common multiple of the periods, in slots; 1 for no group; `None`: more than 2^64.
pub(super) fn frame(groups: &[Slotted]) -> Option<u64> {
    groups.iter().try_fold(1u64, |frame, group| lcm(frame, u64::from(group.period)))
}

pub(super) fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// True if the sum exceeds the bound even if each part is rounded down to millionths.
fn surely_over(groups: &[Slotted], rules: &DispatchRules) -> bool {
    let sum: u64 = groups.iter().map(|g| u64::from(g.service) * 1_000_000 / u64::from(g.period)).sum();
    sum > u64::from(rules.capacity().ppm())
}

/// `Σ C_i·(H/T_i) <= H·(1 − free)`, exact.
pub(super) fn leaves_free(groups: &[Slotted], frame: u32, rules: &DispatchRules) -> bool {
    let used: u64 = groups.iter().map(|g| u64::from(g.service) * u64::from(frame / g.period)).sum();
    used * 1_000_000 <= u64::from(frame) * u64::from(rules.capacity().ppm())
}

fn share(group: &Slotted) -> Share {
    Share::of_budget(Nanos::new(group.service.into()), Nanos::new(group.period.into()))
}

fn over_committed(groups: &[Slotted], rules: &DispatchRules) -> Refusal {
    let (last, others) = groups.split_last().expect("no group exceeds no bound");
    let free = rules.capacity().saturating_sub(others.iter().map(share).sum());
    Refusal::OverCommitted { asked: share(last), free, slot: rules.slot }
}

/// The first group that misses a deadline in `order`. EDF misses none if the sum is at most 1.
pub(super) fn late_group(groups: &[Slotted], order: DispatchOrder) -> Option<&Slotted> {
    let used: f64 = groups.iter().map(|g| f64::from(g.service) / f64::from(g.period)).sum();
    if order == DispatchOrder::EarliestDeadline || used <= liu_layland_bound(groups.len()) {
        return None;
    }
    (0..groups.len()).find(|&at| response_time(groups, at).is_none()).map(|at| &groups[at])
}

/// `n·(2^(1/n) − 1)`: rate-monotonic order keeps every set of `n` groups with at most this sum (Liu & Layland 1973).
/// Sufficient, not necessary.
pub fn liu_layland_bound(n: usize) -> f64 {
    let n = n.max(1) as f64;
    n * (2f64.powf(1.0 / n) - 1.0)
}

/// The longest time, in slots, from the beginning of a period of group `at` to its last slot under rate-monotonic
/// order (Joseph & Pandya 1986: `R = C_i + Σ ⌈R/T_j⌉·C_j` over the groups before it). `None` if it exceeds the period.
/// Exact, because all groups begin together.
pub fn response_time(groups: &[Slotted], at: usize) -> Option<u32> {
    let own = &groups[at];
    let is_before = |&(other, group): &(usize, &Slotted)| (group.period, other) < (own.period, at);
    let others: Vec<&Slotted> = groups.iter().enumerate().filter(is_before).map(|(_, group)| group).collect();
    let mut response = u64::from(own.service);
    loop {
        let ahead: u64 = others.iter().map(|g| response.div_ceil(u64::from(g.period)) * u64::from(g.service)).sum();
        let next = u64::from(own.service) + ahead;
        if next > u64::from(own.period) {
            return None;
        }
        if next == response {
            return Some(next as u32);
        }
        response = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands(terms: &[(u64, u64)]) -> Vec<Demand> {
        let demand = |(group, &(service, period)): (usize, &(u64, u64))| Demand {
            group: GroupId(group as u64),
            service: Nanos::from_millis(service),
            period: Nanos::from_millis(period),
        };
        terms.iter().enumerate().map(demand).collect()
    }

    fn rules(free_ppm: u32, order: DispatchOrder) -> DispatchRules {
        DispatchRules { free: Share::from_ppm(free_ppm), order, ..DispatchRules::default() }
    }

    #[test]
    fn a_sum_at_the_bound_fits_and_one_slot_more_is_refused_with_both_numbers() {
        let rules = rules(250_000, DispatchOrder::EarliestDeadline);
        assert!(admit(&rules, &demands(&[(10, 20), (10, 40)])).is_ok());
        let refusal = admit(&rules, &demands(&[(10, 20), (10, 40), (10, 400)])).unwrap_err();
        let (asked, free) = (Share::from_ppm(25_000), Share::ZERO);
        assert_eq!(refusal, Refusal::OverCommitted { asked, free, slot: rules.slot });
    }

    #[test]
    fn thirds_of_which_no_millionths_exist_fill_the_bound_exactly() {
        let rules = DispatchRules { free: Share::ZERO, ..DispatchRules::default() };
        assert!(admit(&rules, &demands(&[(10, 30), (10, 30), (10, 30)])).is_ok());
    }

    #[test]
    fn rate_monotonic_order_refuses_a_set_that_edf_admits() {
        let set = demands(&[(20, 50), (40, 70)]);
        assert!(admit(&rules(0, DispatchOrder::EarliestDeadline), &set).is_ok());
        let refusal = admit(&rules(0, DispatchOrder::RateMonotonic), &set).unwrap_err();
        assert!(matches!(refusal, Refusal::NotSchedulable { period, .. } if period == Nanos::from_millis(70)));
        let Problem { code, message, next_step, .. } = refusal.problem();
        assert_eq!((code.as_str(), next_step.contains("edf")), ("no_slots", true), "{next_step}");
        assert_eq!(refusal.to_string(), format!("{message}; {next_step}"));
    }

    #[test]
    fn periods_that_divide_each_other_fill_a_cpu_under_rate_monotonic_order() {
        let set = demands(&[(10, 20), (10, 40), (20, 80)]);
        let groups: Vec<_> = set.iter().map(|d| d.slotted(Nanos::from_millis(10)).unwrap()).collect();
        assert!(liu_layland_bound(3) < 1.0);
        assert_eq!((0..3).map(|at| response_time(&groups, at)).collect::<Vec<_>>(), [Some(1), Some(2), Some(8)]);
        assert!(admit(&rules(0, DispatchOrder::RateMonotonic), &set).is_ok());
    }

    #[test]
    fn the_bound_of_liu_and_layland_falls_to_ln_2() {
        assert!((liu_layland_bound(2) - 0.828_427).abs() < 1e-6);
        assert!((liu_layland_bound(100_000) - std::f64::consts::LN_2).abs() < 1e-5);
    }

    #[test]
    fn too_many_groups_are_refused() {
        let many = demands(&vec![(10, 10_000); GROUP_LIMIT + 1]);
        assert_eq!(admit(&DispatchRules::default(), &many), Err(Refusal::TooManyGroups));
    }
}
