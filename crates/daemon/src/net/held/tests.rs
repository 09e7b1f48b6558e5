//! Held rates on a real interface.

use qfabric_types::api::net::{LinkRequest, StreamChange};

use super::super::site::{ROOT, Site, request, site, stream};
use super::*;

const USER: Owner = Owner { uid: 54_321, gid: 54_321 };

fn mbit(rate: u64) -> BitRate {
    BitRate::new(rate * 1_000_000)
}

fn end(direction: Direction) -> LinkEnd {
    LinkEnd { interface: "qf5".parse().unwrap(), direction }
}

/// A request of [`USER`] for this rate out of `end`, or for as much as is free, but at least `least`.
fn of_user<'a>(end: &'a LinkEnd, wanted: BitRate, least: BitRate, name: &'a str) -> HoldRequest<'a> {
    HoldRequest { owner: USER, groups: &[], end, wanted, least, name }
}

/// The refusal as the API shows it.
fn refused<T: std::fmt::Debug>(result: Result<T, RateRefusal>) -> Problem {
    match result.unwrap_err() {
        RateRefusal::Link { refusal, .. } => refusal.problem(),
        RateRefusal::Other(problem) => problem,
    }
}

#[test]
fn a_held_rate_counts_in_its_direction_until_it_is_released_or_the_link_closes() {
    let Some(Site { net, links, .. }) = &site() else { return };
    let (out, granted) = links.hold(of_user(&end(Direction::Out), mbit(6), mbit(2), "contract a:1")).unwrap();
    let (into, partly) = links.hold(of_user(&end(Direction::In), mbit(6), mbit(2), "contract a:1")).unwrap();
    assert_eq!((granted, partly), (mbit(6), mbit(4)));
    let over = net.begin(ROOT, "qf5", &stream(1, mbit(5))).unwrap_err();
    assert!(over.code == "over_link" && over.message.contains("contract a:1 (held rate"), "{over:?}");
    assert_eq!(refused(links.hold(of_user(&end(Direction::Out), mbit(3), mbit(3), "b"))).code, "user_cap");
    assert_eq!(refused(links.resize(into, mbit(5))).shortage.unwrap().largest, mbit(4).as_f64());
    links.resize(out, mbit(5)).unwrap();
    net.begin(ROOT, "qf5", &stream(1, mbit(5))).unwrap();
    let link = net.show("qf5").unwrap().link.unwrap();
    assert_eq!((link.free_bps, link.incoming.unwrap().promised_bps), (BitRate::ZERO, mbit(4)));
    assert_eq!((link.holders.len(), link.users_bps[&USER.uid]), (2, mbit(5)));
    links.release(into);
    assert_eq!((links.rate(into), links.rate(out)), (None, Some(mbit(5))));
    let lower = net.open_link(ROOT, "qf5", &LinkRequest { rate_bps: mbit(9), ..request() }).unwrap_err();
    assert!(lower.message.contains("10 Mbit/s are promised") && lower.message.contains("contract a:1"), "{lower:?}");
    net.close_link(ROOT, "qf5").unwrap();
    assert_eq!((links.rate(out), refused(links.resize(out, mbit(1))).code.as_str()), (None, "net_not_found"));
    links.release(out);
    assert_eq!(refused(links.hold(of_user(&end(Direction::Out), mbit(1), mbit(1), "c"))).code, "net_not_found");
}

#[test]
fn a_held_rate_counts_for_the_group_of_its_program_with_the_smallest_maximum() {
    let Some(Site { net, links, .. }) = &site() else { return };
    net.open_link(ROOT, "qf5", &LinkRequest { groups: [(44, mbit(3))].into(), ..request() }).unwrap();
    let out = end(Direction::Out);
    let hold = |groups: &[u32]| links.hold(HoldRequest { groups, ..of_user(&out, mbit(4), mbit(4), "contract of a") });
    assert_eq!(refused(hold(&[101, 44])).code, "group_cap");
    hold(&[101]).unwrap();
}

#[test]
fn a_stream_draws_from_the_held_rate_of_its_owner_and_ends_with_it() {
    let Some(Site { net, links, .. }) = &site() else { return };
    let (id, _) = links.hold(of_user(&end(Direction::Out), mbit(6), mbit(6), "contract a:1")).unwrap();
    let (into, _) = links.hold(of_user(&end(Direction::In), mbit(1), mbit(1), "contract a:1")).unwrap();
    let first = links.begin(ROOT, id, &stream(1, mbit(4))).unwrap();
    assert_eq!((first.promise.held_rate, first.promise.rate_bps), (Some(id), mbit(4)));
    let link = || net.show("qf5").unwrap().link.unwrap();
    assert_eq!((link().promised_bps, link().holders.len()), (mbit(6), 1));
    let over = links.begin(ROOT, id, &stream(2, mbit(3))).unwrap_err();
    assert!(over.message.contains(&format!("2 Mbit/s of held rate {id} is left")), "{over:?}");
    let larger = |rate| StreamChange { size: Some(stream(1, rate).size), ..StreamChange::default() };
    assert!(net.change(ROOT, "qf5", first.id, &larger(mbit(7))).is_err());
    assert_eq!(net.change(ROOT, "qf5", first.id, &larger(mbit(6))).unwrap().promise.rate_bps, mbit(6));
    assert!(refused(links.resize(id, mbit(5))).message.contains("draw 6 Mbit/s"));
    let other = Peer { pid: i32::MAX, owner: Owner { uid: 54_322, gid: 54_322 } };
    assert_eq!(links.begin(other, id, &stream(3, mbit(1))).unwrap_err().code, "not_yours");
    assert!(links.begin(ROOT, into, &stream(3, mbit(1))).unwrap_err().message.contains("receives"));
    let out = end(Direction::Out);
    let of_nobody = HoldRequest { owner: Owner::NOBODY, ..of_user(&out, mbit(1), mbit(1), "contract of a") };
    let (of_nobody, _) = links.hold(of_nobody).unwrap();
    // Everybody may draw, but only for the own packets: a mark may belong to other users.
    assert_eq!(links.begin(other, of_nobody, &stream(3, mbit(1))).unwrap_err().code, "net_not_permitted");
    links.release(of_nobody);
    net.end(ROOT, "qf5", first.id).unwrap();
    assert_eq!(link().promised_bps, mbit(6), "the rate stays held");
    links.begin(ROOT, id, &stream(1, mbit(4))).unwrap();
    links.release(id);
    let info = net.show("qf5").unwrap();
    assert_eq!((info.streams.len(), info.link.unwrap().promised_bps), (0, BitRate::ZERO));
}
