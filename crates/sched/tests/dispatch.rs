//! Dispatch tables: every admitted group gets its slots in every period, whatever joins, leaves and changes meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;
use qfabric_sched::dispatch::{Demand, GroupId, Move, Refusal, Runner, Standing, Table, admit, response_time};
use qfabric_types::{DispatchOrder, DispatchRules, Instant, Nanos, Share};

const SLOT: Nanos = Nanos::from_millis(10);

fn rules(order: DispatchOrder, free_percent: u32) -> DispatchRules {
    DispatchRules { slot: SLOT, free: Share::from_ppm(free_percent * 10_000), order }
}

fn demand(group: u64, service: u64, period: u64) -> Demand {
    Demand { group: GroupId(group), service: SLOT.saturating_mul(service), period: SLOT.saturating_mul(period) }
}

/// Service and period in slots; the periods repeat within the longest frame or not.
fn sets() -> impl Strategy<Value = Vec<Demand>> {
    let one = (1u64..=24).prop_flat_map(|period| (1..=period.div_ceil(3), Just(period)));
    let numbered = |terms: Vec<(u64, u64)>| {
        terms.into_iter().enumerate().map(|(at, (service, period))| demand(at as u64, service, period)).collect()
    };
    proptest::collection::vec(one, 1..8).prop_map(numbered)
}

fn orders() -> impl Strategy<Value = DispatchOrder> {
    prop_oneof![Just(DispatchOrder::RateMonotonic), Just(DispatchOrder::EarliestDeadline)]
}

fn assert_each_gets_its_slots(table: &Table) {
    for group in table.groups() {
        for begin in (0..table.frame()).step_by(group.period as usize) {
            let slots = begin..begin + group.period;
            let had = slots.filter(|&slot| table.owner(slot) == Some(group.group)).count();
            assert_eq!(had, group.service as usize, "group {} in the period from slot {begin}", group.group);
        }
    }
}

proptest! {
    #[test]
    fn each_admitted_group_gets_exactly_its_slots_and_the_minimum_stays_free(
        set in sets(), order in orders(), free in 0u32..60,
    ) {
        if let Ok(table) = admit(&rules(order, free), &set) {
            assert_each_gets_its_slots(&table);
            prop_assert!(table.free() * 100 >= table.frame() * free, "{} free of {}", table.free(), table.frame());
            prop_assert!(table.groups().iter().all(|g| table.frame().is_multiple_of(g.period)));
        }
    }

    #[test]
    fn edf_admits_every_set_within_the_bound_and_rate_monotonic_exactly_those_with_short_responses(set in sets()) {
        let edf = admit(&rules(DispatchOrder::EarliestDeadline, 0), &set);
        let groups: Vec<_> = set.iter().map(|demand| demand.slotted(SLOT).unwrap()).collect();
        let responds = (0..groups.len()).all(|at| response_time(&groups, at).is_some());
        match (edf, admit(&rules(DispatchOrder::RateMonotonic, 0), &set)) {
            (Ok(_), under_rm) => prop_assert_eq!(under_rm.is_ok(), responds),
            (Err(Refusal::OverCommitted { .. }), Err(Refusal::OverCommitted { .. })) => {}
            (Err(Refusal::FrameTooLong { .. }), Err(Refusal::FrameTooLong { .. })) => {}
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn offered_periods_are_never_longer_and_are_admitted(set in sets(), order in orders()) {
        let rules = rules(order, 10);
        let Err(Refusal::FrameTooLong { offer: Some(offer), .. }) = admit(&rules, &set) else { return Ok(()) };
        let shorter = |demand: &Demand| match offer.periods.iter().find(|(group, _)| *group == demand.group) {
            Some(&(_, period)) => Demand { period: SLOT.saturating_mul(period.into()), ..*demand },
            None => *demand,
        };
        let changed: Vec<Demand> = set.iter().map(shorter).collect();
        prop_assert!(changed.iter().zip(&set).all(|(new, old)| new.period <= old.period));
        prop_assert!(admit(&rules, &changed).is_ok(), "{:?}", offer);
    }

    #[test]
    fn only_a_job_that_was_released_in_the_present_period_gives_slots_back(
        phase_us in 0u64..80_000, service in 1u64..4, ends in 0u64..30,
    ) {
        let mut machine = Machine::new(rules(DispatchOrder::EarliestDeadline, 0));
        let begin = machine.now;
        machine.admit(demand(1, service, 4));
        machine.admit(demand(2, 1, 8));
        machine.run(1 + ends);
        let release = begin + Nanos::from_micros(phase_us);
        let _ = machine.runner.on_yield(GroupId(1), release, machine.used[&GroupId(1)]);
        let period = |moment: Instant| moment.since(begin).get() / SLOT.saturating_mul(4).get();
        let present = begin + SLOT.saturating_mul(ends);
        prop_assert_eq!(machine.runner.has_yielded(GroupId(1)), period(release) >= period(present));
    }

    #[test]
    fn a_change_at_any_slot_never_takes_a_promised_slot_from_a_survivor(
        order in orders(),
        steps in proptest::collection::vec((0u64..6, 0u64..5, 1u64..=4, 1u64..=5), 1..40),
    ) {
        let mut machine = Machine::new(rules(order, 10));
        for (wait, group, service, factor) in steps {
            machine.run(wait);
            match service {
                4 => machine.release(GroupId(group)),
                _ => machine.admit(demand(group, service, [2, 4, 6, 8, 12][factor as usize - 1])),
            }
        }
        machine.run(200);
    }
}

/// Runs a [`Runner`] slot by slot, with groups that always want to run.
struct Machine {
    runner: Runner,
    now: Instant,
    standings: BTreeMap<GroupId, Standing>,
    used: BTreeMap<GroupId, Nanos>,
}

impl Machine {
    fn new(rules: DispatchRules) -> Machine {
        let (standings, used) = (BTreeMap::new(), BTreeMap::new());
        Machine { runner: Runner::new(rules), now: Instant::new(1_000_000_000), standings, used }
    }

    fn admit(&mut self, demand: Demand) {
        let used = self.used.get(&demand.group).copied().unwrap_or_default();
        if self.runner.admit(demand, used, self.now).is_ok() {
            self.standings.entry(demand.group).or_insert(Standing::Demoted);
        }
    }

    fn release(&mut self, group: GroupId) {
        self.runner.release(group, self.now);
        self.standings.remove(&group);
    }

    fn running(&self) -> Vec<GroupId> {
        self.standings.iter().filter(|(_, s)| **s == Standing::Running).map(|(group, _)| *group).collect()
    }

    fn run(&mut self, slots: u64) {
        for _ in 0..slots {
            if self.runner.next_boundary().is_some_and(|at| at <= self.now) {
                let mut moves: Vec<Move> = Vec::new();
                let used = &self.used;
                let cpu = |group| used.get(&group).copied().unwrap_or_default();
                self.runner.on_boundary(self.now, cpu, &mut moves);
                self.standings.extend(moves.iter().map(|step| (step.group, step.to)));
            }
            let running = self.running();
            assert!(running.len() <= 1, "{running:?} in one slot");
            for group in running {
                *self.used.entry(group).or_default() += SLOT;
            }
            for (group, standing) in &self.standings {
                assert_eq!(self.runner.standing(*group), Some(*standing));
                let usage = self.runner.usage(*group, self.used.get(group).copied().unwrap_or_default());
                assert_eq!(usage.unwrap().missed, 0, "group {group} lacks slots of a period");
            }
            self.now = self.now + SLOT;
        }
    }
}

#[test]
fn a_group_that_leaves_in_the_middle_frees_its_slot_and_the_newcomer_borrows_it() {
    let mut machine = Machine::new(rules(DispatchOrder::EarliestDeadline, 0));
    [demand(1, 2, 4), demand(2, 2, 4)].into_iter().for_each(|demand| machine.admit(demand));
    machine.run(1);
    assert_eq!(machine.running(), [GroupId(1)]);
    machine.release(GroupId(2));
    machine.admit(demand(3, 1, 2));
    machine.run(1);
    assert_eq!(machine.running(), [GroupId(1)], "its promised second slot");
    machine.run(1);
    assert_eq!(machine.running(), [GroupId(3)], "a free slot is lent");
    machine.run(1 + 8);
    assert_eq!(machine.used[&GroupId(1)], SLOT.saturating_mul(2 + 4));
    assert_eq!(machine.used[&GroupId(3)], SLOT.saturating_mul(2 + 4));
}

#[test]
fn a_yield_gives_the_slots_of_this_period_back_and_the_next_period_has_them_again() {
    let mut machine = Machine::new(rules(DispatchOrder::EarliestDeadline, 0));
    machine.admit(demand(1, 2, 4));
    machine.run(1);
    let step = machine.runner.on_yield(GroupId(1), machine.now, SLOT);
    assert_eq!(step, Some(Move { group: GroupId(1), to: Standing::Waiting }));
    machine.standings.insert(GroupId(1), Standing::Waiting);
    machine.run(3);
    assert_eq!(machine.used[&GroupId(1)], SLOT, "the second slot is for others");
    machine.run(4);
    let usage = machine.runner.usage(GroupId(1), machine.used[&GroupId(1)]).unwrap();
    assert_eq!((usage.previous, usage.current), (SLOT, SLOT.saturating_mul(2)));
    assert_eq!((usage.underruns, usage.overruns, usage.served), (1, 0, 1));
}

#[test]
fn the_end_of_a_job_of_an_earlier_period_leaves_the_slots_to_the_next_job() {
    let mut machine = Machine::new(rules(DispatchOrder::EarliestDeadline, 0));
    machine.admit(demand(1, 2, 4));
    let release = machine.now;
    machine.run(5);
    assert_eq!(machine.running(), [GroupId(1)], "the second period has begun");
    assert_eq!(machine.runner.on_yield(GroupId(1), release, SLOT.saturating_mul(3)), None);
    machine.run(3);
    assert_eq!(machine.used[&GroupId(1)], SLOT.saturating_mul(4), "both slots of the second period");
}

#[test]
fn a_group_that_does_not_yield_is_demoted_until_its_next_period() {
    let mut machine = Machine::new(rules(DispatchOrder::EarliestDeadline, 0));
    machine.admit(demand(1, 1, 3));
    let mut seen = Vec::new();
    for _ in 0..6 {
        machine.run(1);
        seen.push(machine.standings[&GroupId(1)]);
    }
    use Standing::{Demoted, Running};
    assert_eq!(seen, [Running, Demoted, Demoted, Running, Demoted, Demoted]);
    machine.run(1);
    assert_eq!(machine.runner.usage(GroupId(1), SLOT).unwrap().overruns, 2);
}

#[test]
fn a_group_waits_between_its_slots_at_the_lowest_priority() {
    let mut machine = Machine::new(rules(DispatchOrder::RateMonotonic, 0));
    [demand(1, 1, 2), demand(2, 2, 4)].into_iter().for_each(|demand| machine.admit(demand));
    machine.run(1);
    assert_eq!(machine.standings[&GroupId(2)], Standing::Waiting);
    machine.run(2);
    assert_eq!(machine.standings[&GroupId(2)], Standing::Waiting, "one of its two slots is still to come");
}

#[test]
fn a_dispatcher_that_sleeps_over_slots_counts_the_periods_as_missed() {
    let mut machine = Machine::new(rules(DispatchOrder::EarliestDeadline, 0));
    [demand(1, 1, 2), demand(2, 1, 2)].into_iter().for_each(|demand| machine.admit(demand));
    machine.run(1);
    machine.now = machine.now + SLOT.saturating_mul(2);
    machine.runner.on_boundary(machine.now, |_| Nanos::ZERO, &mut Vec::new());
    let missed = |group| machine.runner.usage(GroupId(group), Nanos::ZERO).unwrap().missed;
    assert!(missed(1) + missed(2) >= 1, "{} and {}", missed(1), missed(2));
}
