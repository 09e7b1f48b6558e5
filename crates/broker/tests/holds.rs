//! The book of joint contracts: all or nothing, within capacity and maxima, everything ends.

use std::collections::BTreeMap;

use proptest::prelude::*;
use qfabric_broker::{HoldBound, HoldError, HoldRefusal, HoldRequest, Holds, NotHeld};
use qfabric_types::api::contracts::JointId;
use qfabric_types::{Instant, Owner, Resource, Resources};

fn vector(cpu: u64, memory: u64, rate: u64) -> Resources {
    let mut vector = Resources::default();
    for (resource, units) in [("cpu", cpu), ("memory", memory), ("network eth0 out", rate)] {
        if units > 0 {
            vector.set_units(&resource.parse().unwrap(), units).unwrap();
        }
    }
    vector
}

fn id(number: u64) -> JointId {
    JointId { host: "alpha".parse().unwrap(), number }
}

fn request(number: u64, wanted: Resources, minimum: Resources) -> HoldRequest {
    HoldRequest { id: id(number), owner: owner(1000), wanted, minimum, until: at(10) }
}

fn owner(uid: u32) -> Owner {
    Owner { uid, gid: uid }
}

/// The shortage that a hold met.
fn short(holds: &mut Holds, request: HoldRequest) -> HoldRefusal {
    let Err(HoldError::Short(short)) = holds.hold(request) else { panic!("it fits") };
    *short
}

fn at(time: u64) -> Instant {
    Instant::new(time)
}

fn book() -> Holds {
    Holds::new(vector(100, 100, 100), BTreeMap::new())
}

#[test]
fn a_hold_takes_all_resources_or_none() {
    let mut holds = book();
    holds.hold(request(1, vector(10, 80, 10), vector(10, 80, 10))).unwrap();
    let short = short(&mut holds, request(2, vector(10, 50, 10), vector(10, 30, 10)));
    assert_eq!(short.resource, Resource::Memory);
    assert_eq!((short.asked.units(), short.free.units(), short.largest.units()), (50, 20, 20));
    assert!(short.is_transient, "the first entry is only held");
    assert_eq!(holds.free(), vector(90, 20, 90));
}

#[test]
fn a_shortage_that_only_commitments_cause_is_not_transient() {
    let mut holds = book();
    let all = vector(10, 80, 10);
    holds.hold(request(1, all.clone(), all.clone())).unwrap();
    holds.commit(&id(1), &all, at(20), at(1)).unwrap();
    assert!(!short(&mut holds, request(2, all.clone(), all)).is_transient);
}

#[test]
fn a_link_without_capacity_is_refused_by_its_name() {
    let mut wanted = vector(1, 0, 0);
    wanted.set_units(&"network eth9 in".parse().unwrap(), 5).unwrap();
    let short = short(&mut book(), request(1, wanted.clone(), wanted));
    let text = "network eth9 in: asked for 5 bit/s, at least 5 bit/s; 0 bit/s is free, and 0 bit/s would fit";
    assert_eq!(short.to_string(), text);
}

#[test]
fn the_maximum_of_a_user_limits_what_is_granted() {
    let mut holds = Holds::new(vector(100, 100, 100), BTreeMap::from([(1000, vector(30, 100, 100))]));
    assert_eq!(holds.hold(request(1, vector(50, 0, 0), vector(20, 0, 0))).unwrap(), vector(30, 0, 0));
    let short = short(&mut holds, request(2, vector(5, 0, 0), vector(5, 0, 0)));
    assert_eq!((short.free.units(), short.largest.units()), (70, 0));
    assert_eq!(short.bound, HoldBound::User { uid: 1000, cap: 30 });
    let other = HoldRequest { owner: owner(7), ..request(3, vector(70, 0, 0), vector(70, 0, 0)) };
    assert!(holds.hold(other).is_ok());
}

#[test]
fn an_expired_hold_cannot_be_committed() {
    let mut holds = book();
    holds.hold(request(1, vector(10, 0, 0), vector(10, 0, 0))).unwrap();
    assert_eq!(holds.commit(&id(1), &vector(10, 0, 0), at(20), at(10)), Err(NotHeld));
    assert_eq!(holds.expire(at(10)), [id(1)]);
    assert_eq!((holds.free(), holds.entries().len(), holds.expired()), (book().free(), 0, 1));
}

#[test]
fn freed_capacity_upgrades_a_commitment_that_has_less_than_wanted() {
    let mut holds = book();
    holds.hold(request(1, vector(70, 0, 0), vector(70, 0, 0))).unwrap();
    assert_eq!(holds.hold(request(2, vector(60, 5, 0), vector(10, 5, 0))).unwrap(), vector(30, 5, 0));
    holds.commit(&id(2), &vector(30, 5, 0), at(20), at(1)).unwrap();
    assert_eq!(holds.grow(&id(2), at(15), at(2)), None, "nothing is free");
    holds.release(&id(1));
    assert_eq!(holds.grow(&id(2), at(15), at(2)), Some(vector(60, 5, 0)));
    assert_eq!(holds.commit(&id(2), &vector(30, 5, 0), at(21), at(3)), Ok(vector(30, 5, 0)), "a renewal");
    assert_eq!(holds.free(), vector(40, 95, 100), "the upgrade is still held");
    assert_eq!(holds.commit(&id(2), &vector(60, 5, 0), at(22), at(4)), Ok(vector(60, 5, 0)));
    assert_eq!(holds.committed(&id(2)), Some(&vector(60, 5, 0)));
}

#[test]
fn an_upgrade_that_is_not_accepted_ends_and_the_commitment_stays() {
    let mut holds = book();
    holds.hold(request(1, vector(70, 0, 0), vector(70, 0, 0))).unwrap();
    holds.hold(request(2, vector(60, 0, 0), vector(10, 0, 0))).unwrap();
    holds.commit(&id(2), &vector(30, 0, 0), at(30), at(1)).unwrap();
    holds.release(&id(1));
    holds.grow(&id(2), at(15), at(2)).unwrap();
    assert_eq!(holds.commit(&id(2), &vector(60, 0, 0), at(40), at(15)), Ok(vector(30, 0, 0)));
    assert_eq!(holds.free(), vector(70, 100, 100));
}

#[test]
fn a_shortage_is_transient_if_the_holds_that_count_under_its_bound_would_make_room() {
    let mut holds = Holds::new(vector(100, 100, 100), BTreeMap::from([(1000, vector(30, 100, 100))]));
    let cpu = |units| vector(units, 0, 0);
    let of = |uid, number, units| HoldRequest { owner: owner(uid), ..request(number, cpu(units), cpu(units)) };
    holds.hold(of(7, 1, 60)).unwrap();
    holds.hold(of(1000, 2, 20)).unwrap();
    assert!(short(&mut holds, of(1000, 3, 15)).is_transient, "the user's other hold may end");
    assert!(short(&mut holds, of(7, 3, 50)).is_transient, "the hold of any user may end");
    holds.commit(&id(2), &cpu(20), at(20), at(1)).unwrap();
    let capped = short(&mut holds, of(1000, 3, 15));
    assert!(!capped.is_transient, "the hold of another user does not count under the maximum");
    assert!(capped.to_string().contains("CPU would fit into the maximum of 0 CPU of user 1000; held by"), "{capped}");
}

#[test]
fn a_refusal_names_its_bound_and_what_it_stands_for() {
    let mut holds = book();
    let refusal = short(&mut holds, request(1, vector(0, 0, 101), vector(0, 0, 101)));
    let text = |bound| HoldRefusal { bound, ..refusal.clone() }.to_string();
    assert!(text(HoldBound::Free).ends_with("100 bit/s would fit"));
    let others = ", which counts the contracts of other hosts";
    let group = text(HoldBound::Group { gid: 65_534, cap: 7 });
    assert!(group.ends_with(&format!("fit into the maximum of 7 bit/s of group 65534{others}")), "{group}");
    let number = text(HoldBound::Number { uid: 65_534, most: 16 });
    assert!(
        number.ends_with(&format!("fit into the largest number (16) of amounts of user 65534{others}")),
        "{number}"
    );
}

#[test]
fn a_refusal_names_the_initiators_of_the_contracts_that_hold_the_rest_and_no_contract() {
    let mut holds = book();
    let rate = |units| vector(0, 0, units);
    let of = |host: &str, number, units| {
        let id = JointId { host: host.parse().unwrap(), number };
        HoldRequest { id, ..request(number, rate(units), rate(units)) }
    };
    for (host, number, units) in [("beta", 1, 20), ("alpha", 0x5f3c, 30), ("beta", 2, 25)] {
        holds.hold(of(host, number, units)).unwrap();
    }
    holds.hold(request(3, vector(5, 0, 0), vector(5, 0, 0))).unwrap();
    let refusal = short(&mut holds, of("gamma", 4, 26));
    let held: Vec<_> = refusal.holders.iter().map(|one| (one.initiator.as_str(), one.amount.units())).collect();
    assert_eq!(held, [("beta", 45), ("alpha", 30)], "the contract without a rate is not among them");
    let text = refusal.to_string();
    assert!(text.ends_with("; held by contracts of beta: 45 bit/s, contracts of alpha: 30 bit/s"), "{text}");
    let others = Some(refusal.resource.amount(7));
    let text = HoldRefusal { others, ..refusal }.to_string();
    assert!(text.ends_with("contracts of alpha: 30 bit/s, others on that host: 7 bit/s"), "{text}");
    (10..30).for_each(|number| drop(holds.hold(of(&format!("h{number}"), number, 1))));
    assert_eq!(short(&mut holds, of("gamma", 4, 26)).holders.len(), HoldRefusal::MOST_HOLDERS);
}

#[test]
fn a_commitment_that_lost_a_link_is_not_held_any_more() {
    let mut holds = book();
    let all = vector(10, 10, 80);
    holds.hold(request(1, all.clone(), all.clone())).unwrap();
    holds.commit(&id(1), &all, at(20), at(1)).unwrap();
    holds.close(&"network eth0 out".parse().unwrap());
    assert_eq!(holds.free(), vector(90, 90, 100), "the link's rates are free at once");
    assert_eq!(holds.commit(&id(1), &all, at(30), at(2)), Err(NotHeld));
    holds.check();
    holds.release(&id(1));
    assert_eq!(holds.free(), vector(100, 100, 100));
}

#[derive(Clone, Debug)]
enum Step {
    Hold(u64, u32, Resources, Resources, u64),
    Commit(u64, Resources, u64),
    Grow(u64, u64),
    Release(u64),
    Close,
    Pass(u64),
}

fn vectors() -> impl Strategy<Value = Resources> {
    (0..60u64, 0..60u64, 0..60u64).prop_map(|(cpu, memory, rate)| vector(cpu, memory, rate))
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6u64, 0..3u32, vectors(), vectors(), 1..20u64).prop_map(|(id, uid, wanted, other, time)| {
            let minimum = wanted.least(&other);
            Step::Hold(id, uid, wanted, minimum, time)
        }),
        (0..6u64, vectors(), 1..20u64).prop_map(|(id, accepted, time)| Step::Commit(id, accepted, time)),
        (0..6u64, 1..20u64).prop_map(|(id, time)| Step::Grow(id, time)),
        (0..6u64).prop_map(Step::Release),
        Just(Step::Close),
        (1..10u64).prop_map(Step::Pass),
    ]
}

fn hold(holds: &mut Holds, request: HoldRequest) {
    let (before, wanted, minimum) = (holds.free(), request.wanted.clone(), request.minimum.clone());
    match holds.hold(request) {
        Ok(granted) => assert!(wanted.covers(&granted) && granted.covers(&minimum)),
        Err(HoldError::Short(short)) => {
            assert!(short.largest.units() < short.minimum.units(), "{short}");
            assert!(holds.free().covers(&before), "a refusal holds nothing");
        }
        Err(other) => panic!("{other}"),
    }
}

fn take(holds: &mut Holds, now: &mut u64, step: Step) {
    let after = |time| at(*now + time);
    match step {
        Step::Hold(number, uid, wanted, minimum, time) => {
            hold(holds, HoldRequest { id: id(number), owner: owner(uid), wanted, minimum, until: after(time) });
        }
        Step::Commit(number, accepted, time) => {
            let (until, before) = (after(time), holds.committed(&id(number)).cloned().unwrap_or_default());
            if let Ok(committed) = holds.commit(&id(number), &accepted, until, at(*now)) {
                assert!(committed.covers(&before), "a commitment never shrinks");
                assert!(accepted.covers(&committed.minus(&before)), "nothing is committed that was not accepted");
            }
        }
        Step::Grow(number, time) => {
            holds.grow(&id(number), after(time), at(*now));
        }
        Step::Release(number) => {
            holds.release(&id(number));
        }
        Step::Close => holds.close(&"network eth0 out".parse().unwrap()),
        Step::Pass(time) => {
            *now += time;
            holds.expire(at(*now));
            assert!(holds.entries().all(|(_, entry)| entry.until > at(*now)));
        }
    }
}

proptest! {
    #[test]
    fn any_history_stays_within_capacity_and_maxima_and_leaks_nothing(history in prop::collection::vec(steps(), 1..80)) {
        let empty = Holds::new(vector(100, 100, 100), BTreeMap::from([(1, vector(40, 40, 40))]));
        let (mut holds, mut now) = (empty.clone(), 0);
        for step in history {
            take(&mut holds, &mut now, step);
            holds.check();
        }
        holds.expire(at(now + 100));
        prop_assert_eq!(holds.free(), empty.free());
        prop_assert_eq!((holds.entries().len(), holds.next_wakeup(), holds.is_partial()), (0, None, false));
    }
}
