use proptest::prelude::*;
use qfabric_types::Direction;

use super::*;

const MEGABIT: u64 = 1_000_000;

fn mbit(rate: u64) -> BitRate {
    BitRate::new(rate * MEGABIT)
}

fn broker(limits: LinkLimits) -> LinkBroker {
    LinkBroker::new(LinkEnd { interface: "eth0".parse().unwrap(), direction: Direction::Out }, limits)
}

fn demand(uid: u32, least: u64, wanted: u64) -> LinkDemand {
    let owner = Owner { uid, gid: 100 + uid % 2 };
    LinkDemand { owner, name: format!("of {uid}"), least: mbit(least), wanted: mbit(wanted), until: None }
}

#[test]
fn a_refusal_names_the_asked_and_free_rates_the_holders_and_the_largest_rate_that_fits() {
    let mut link = broker(LinkLimits::of_link(mbit(100), Share::from_ppm(100_000)));
    assert_eq!(link.admit(0, demand(1, 60, 60)), Ok(mbit(60)));
    let refusal = link.admit(1, demand(2, 40, 40)).unwrap_err();
    assert_eq!((refusal.asked, refusal.free, refusal.code()), (mbit(40), mbit(30), "over_link"));
    let problem = refusal.problem();
    assert_eq!(
        problem.message,
        "eth0 out: asked for 40 Mbit/s, 30 Mbit/s of 90 Mbit/s is free; held by of 1 (stream 0 of user 1): 60 Mbit/s"
    );
    assert!(problem.next_step.starts_with("ask for at most 30 Mbit/s"), "{problem:?}");
    let shortage = problem.shortage.unwrap();
    assert_eq!((shortage.resource.to_string().as_str(), shortage.largest), ("network eth0 out", 30_000_000.0));
    assert_eq!(link.admit(1, demand(2, 30, 30)), Ok(mbit(30)));
}

#[test]
fn maxima_of_users_and_groups_bound_promises_and_exempt_users_have_none() {
    let mut limits = LinkLimits::of_capacity(mbit(100));
    (limits.default_user, limits.exempt) = (Some(mbit(20)), [0].into());
    (limits.users, limits.groups) = ([(7, mbit(50))].into(), [(101, mbit(60))].into());
    let mut link = broker(limits);
    assert_eq!(link.admit(0, demand(1, 25, 25)).unwrap_err().bound, LinkBound::User { uid: 1, cap: mbit(20) });
    assert_eq!(link.admit(0, demand(1, 20, 20)), Ok(mbit(20)));
    let group = link.admit(1, demand(7, 45, 45)).unwrap_err();
    assert_eq!((group.bound, group.free), (LinkBound::Group { gid: 101, cap: mbit(60) }, mbit(40)));
    assert_eq!(link.admit(1, demand(7, 30, 45)), Ok(mbit(40)));
    assert_eq!(link.admit(2, demand(0, 40, 40)), Ok(mbit(40)));
    assert_eq!(link.users(), [(0, mbit(40)), (1, mbit(20)), (7, mbit(40))].into());
}

#[test]
fn a_stream_counts_against_the_group_with_the_smallest_maximum() {
    let mut limits = LinkLimits::of_capacity(mbit(100));
    let owner = Owner { uid: 1, gid: 5 };
    assert_eq!(limits.counted(owner, &[5, 8, 9]), owner);
    limits.groups = [(8, mbit(20)), (9, mbit(10))].into();
    assert_eq!(limits.counted(owner, &[5, 8, 9]), Owner { uid: 1, gid: 9 });
}

#[test]
fn one_user_cannot_take_all_streams_of_a_link() {
    let limits = LinkLimits { streams_per_user: 2, exempt: [0].into(), ..LinkLimits::of_capacity(mbit(100)) };
    let mut link = broker(limits);
    for stream in 0..2 {
        link.admit(stream, demand(5, 1, 1)).unwrap();
    }
    let refusal = link.admit(2, demand(5, 1, 1)).unwrap_err();
    assert!(refusal.to_string().contains("user 5 has 2 streams") && refusal.problem().shortage.is_none());
    assert!(link.admit(2, demand(6, 1, 1)).is_ok());
    assert!((3..9).all(|stream| link.admit(stream, demand(0, 1, 1)).is_ok()));
}

#[test]
fn freed_rates_are_offered_to_partly_satisfied_streams_in_the_order_of_admission() {
    let mut link = broker(LinkLimits::of_capacity(mbit(100)));
    link.admit(9, demand(1, 70, 70)).unwrap();
    assert_eq!(link.admit(4, demand(2, 10, 40)), Ok(mbit(30)));
    assert!(link.admit(3, demand(3, 10, 20)).is_err() && link.offers().is_empty());
    assert_eq!(link.admit(3, demand(3, 0, 90)), Ok(BitRate::ZERO));
    link.release(9);
    let offer = |stream, granted, offered| LinkOffer { stream, granted: mbit(granted), offered: mbit(offered) };
    assert_eq!(link.offers(), [offer(4, 30, 40), offer(3, 0, 60)]);
    assert_eq!(link.want(4, mbit(10), mbit(40)), Ok(mbit(40)));
    assert_eq!(link.want(3, mbit(1), mbit(90)), Ok(mbit(60)));
    assert!(link.offers().is_empty() && link.free() == BitRate::ZERO);
}

#[test]
fn a_refused_change_keeps_the_promise_and_an_uncarried_rest_is_free() {
    let mut link = broker(LinkLimits::of_capacity(mbit(100)));
    link.admit(0, demand(1, 50, 50)).unwrap();
    link.admit(1, demand(2, 40, 40)).unwrap();
    assert_eq!(link.want(1, mbit(51), mbit(51)).unwrap_err().free, mbit(50));
    assert_eq!(link.promise(1), Some((mbit(40), mbit(40))));
    link.settle(1, mbit(35));
    assert_eq!((link.free(), link.promise(1)), (mbit(15), Some((mbit(35), mbit(40)))));
    assert_eq!(link.offers().len(), 1);
    assert!(link.set_limits(LinkLimits::of_capacity(mbit(80))).is_err());
    assert_eq!(link.limits().capacity, mbit(100));
}

#[test]
fn a_lease_ends_at_its_time_unless_it_is_renewed() {
    let mut link = broker(LinkLimits::of_capacity(mbit(100)));
    let until = |stream, second: u64| LinkDemand { until: Some(Instant::new(second)), ..demand(stream, 1, 1) };
    link.admit(0, until(0, 10)).unwrap();
    link.admit(1, until(1, 20)).unwrap();
    link.admit(2, demand(2, 1, 1)).unwrap();
    assert_eq!(link.expired(Instant::new(9)).count(), 0);
    assert_eq!(link.expired(Instant::new(20)).collect::<Vec<_>>(), [0, 1]);
    link.renew(0, Some(Instant::new(30)));
    assert_eq!(link.expired(Instant::new(20)).collect::<Vec<_>>(), [1]);
    link.release(1);
    assert_eq!(link.expired(Instant::new(29)).count(), 0);
}

#[test]
fn a_held_rate_counts_like_a_stream_and_refusals_name_it() {
    let mut link = broker(LinkLimits { default_user: Some(mbit(70)), ..LinkLimits::of_capacity(mbit(100)) });
    assert_eq!(link.hold(7, demand(1, 60, 60)), Ok(mbit(60)));
    let over = link.admit(0, demand(2, 50, 50)).unwrap_err().problem();
    assert!(over.message.ends_with("held by of 1 (held rate 7 of user 1): 60 Mbit/s"), "{over:?}");
    assert!(over.next_step.contains("qfabric contract rm"), "{over:?}");
    assert_eq!(link.admit(0, demand(1, 20, 20)).unwrap_err().bound, LinkBound::User { uid: 1, cap: mbit(70) });
    assert_eq!(link.hold(8, demand(2, 10, 60)), Ok(mbit(40)));
    assert_eq!(link.resize(7, mbit(61)).unwrap_err().free, mbit(60));
    assert_eq!((link.resize(7, mbit(50)), link.resize(8, mbit(50)), link.free()), (Ok(()), Ok(()), BitRate::ZERO));
    let lower = link.set_limits(LinkLimits::of_capacity(mbit(99))).unwrap_err();
    assert!(lower.to_string().starts_with("eth0 out: 100 Mbit/s are promised, more than the 99 Mbit/s"), "{lower}");
    assert!(link.give_back(7).is_empty() && link.free() == mbit(50) && link.offers().is_empty());
}

#[test]
fn a_stream_that_draws_from_a_held_rate_is_not_counted_twice() {
    let mut link = broker(LinkLimits::of_capacity(mbit(100)));
    link.hold(7, demand(1, 60, 60)).unwrap();
    assert_eq!(link.draw(7, 0, demand(1, 40, 40)), Ok(mbit(40)));
    assert_eq!((link.promised(), link.users(), link.holders().len()), (mbit(60), [(1, mbit(60))].into(), 1));
    assert_eq!(link.draw(7, 1, demand(1, 10, 30)), Ok(mbit(20)));
    let over = link.draw(7, 2, demand(1, 1, 1)).unwrap_err();
    assert_eq!((over.bound, over.free), (LinkBound::Held(7), BitRate::ZERO));
    assert_eq!(link.resize(7, mbit(59)).unwrap_err().bound, LinkBound::Drawn { id: 7, drawn: mbit(60) });
    link.release(0);
    assert_eq!((link.promised(), link.drawn(7), link.drawn_from(1)), (mbit(60), mbit(20), Some(7)));
    let offer = LinkOffer { stream: 1, granted: mbit(20), offered: mbit(30) };
    assert_eq!((link.offers(), link.want(1, mbit(60), mbit(60))), (vec![offer], Ok(mbit(60))));
    assert!(link.draw(9, 2, demand(1, 1, 1)).is_err(), "rate 9 is not held");
    assert_eq!((link.give_back(7), link.promise(1), link.free()), (vec![1], None, mbit(100)));
}

#[derive(Clone, Debug)]
enum Step {
    Admit(StreamId, u32, u64, u64),
    Want(StreamId, u64, u64),
    Settle(StreamId, u64),
    Release(StreamId),
    Hold(HeldRateId, u32, u64, u64),
    Draw(HeldRateId, StreamId, u64, u64),
    Resize(HeldRateId, u64),
    GiveBack(HeldRateId),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..12, 0u32..4, 0u64..40, 0u64..60).prop_map(|(s, uid, least, wanted)| Step::Admit(s, uid, least, wanted)),
        2 => (0u32..12, 0u64..40, 0u64..60).prop_map(|(s, least, wanted)| Step::Want(s, least, wanted)),
        1 => (0u32..12, 0u64..40).prop_map(|(s, carried)| Step::Settle(s, carried)),
        2 => (0u32..12).prop_map(Step::Release),
        3 => (0u64..4, 0u32..4, 0u64..40, 0u64..60).prop_map(|(h, uid, least, wanted)| Step::Hold(h, uid, least, wanted)),
        4 => (0u64..4, 0u32..12, 0u64..20, 0u64..40).prop_map(|(h, s, least, wanted)| Step::Draw(h, s, least, wanted)),
        2 => (0u64..4, 0u64..60).prop_map(|(h, rate)| Step::Resize(h, rate)),
        1 => (0u64..4).prop_map(Step::GiveBack),
    ]
}

fn any_limits() -> impl Strategy<Value = LinkLimits> {
    (20u64..150, prop::option::of(5u64..80), prop::option::of(5u64..90), 1u32..6).prop_map(
        |(capacity, user, group, streams)| LinkLimits {
            default_user: user.map(mbit),
            groups: group.map(|cap| (100, mbit(cap))).into_iter().collect(),
            streams_per_user: streams,
            exempt: [0].into(),
            ..LinkLimits::of_capacity(mbit(capacity))
        },
    )
}

/// Applies a step; a refusal must change nothing, and its largest rate must fit.
fn apply(link: &mut LinkBroker, step: Step) {
    let before = link.holders();
    let refused = match step {
        Step::Admit(stream, ..) if link.promise(stream).is_some() => None,
        Step::Admit(stream, uid, least, wanted) => {
            let refused = link.admit(stream, demand(uid, least, wanted)).err();
            let fits = |refusal: &LinkRefusal| {
                let fitting = LinkDemand { least: refusal.free, wanted: refusal.free, ..demand(uid, 0, 0) };
                matches!(refusal.bound, LinkBound::Streams { .. }) || link.clone().admit(stream, fitting).is_ok()
            };
            assert!(refused.iter().all(fits), "{refused:?}");
            refused
        }
        Step::Draw(_, stream, ..) if link.promise(stream).is_some() => None,
        Step::Draw(from, stream, least, wanted) => link.draw(from, stream, demand(0, least, wanted)).err(),
        Step::Hold(id, ..) if link.held(id).is_some() => None,
        Step::Hold(id, uid, least, wanted) => link.hold(id, demand(uid, least, wanted)).err(),
        Step::Resize(id, rate) => link.resize(id, mbit(rate)).err(),
        Step::GiveBack(id) => {
            link.give_back(id);
            None
        }
        Step::Want(stream, least, wanted) => link.want(stream, mbit(least), mbit(wanted)).err(),
        Step::Settle(stream, carried) => {
            link.settle(stream, mbit(carried));
            None
        }
        Step::Release(stream) => {
            link.release(stream);
            None
        }
    };
    assert!(refused.is_none_or(|refusal| link.holders() == before && refusal.asked >= refusal.free));
}

fn check_bounds(link: &LinkBroker) {
    let limits = link.limits();
    assert!(link.promised() <= limits.capacity);
    for (uid, promised) in link.users() {
        assert!(limits.user_cap(uid).is_none_or(|cap| promised <= cap), "user {uid}");
    }
    for id in link.all_held() {
        assert!(link.drawn(id) <= link.held(id).unwrap().0, "rate {id}");
    }
    for (gid, promised) in link.sums(None, |owner| owner.gid) {
        assert!(limits.group_cap(gid).is_none_or(|cap| promised <= cap), "group {gid}");
    }
}

proptest! {
    #[test]
    fn promises_never_exceed_the_link_or_a_maximum_and_all_offers_can_be_accepted(
        limits in any_limits(),
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let mut link = broker(limits);
        for step in steps {
            apply(&mut link, step);
            check_bounds(&link);
            let mut accepting = link.clone();
            for offer in link.offers() {
                prop_assert!(offer.offered > offer.granted);
                let (_, wanted) = accepting.promise(offer.stream).unwrap();
                prop_assert_eq!(accepting.want(offer.stream, offer.granted, wanted), Ok(offer.offered));
            }
            check_bounds(&accepting);
            prop_assert!(accepting.offers().is_empty());
        }
        (0..4).for_each(|id| drop(link.give_back(id)));
        (0..12).for_each(|stream| link.release(stream));
        prop_assert_eq!(link.free(), link.limits().capacity);
    }
}
