//! Offers of other hosts for applications that this host refused: the lender, the user, and the end of each offer.

use std::collections::BTreeMap;

use qfabric_types::api::LoanRate;
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes, Instant, Nanos, Share};

use crate::auth::Peer;

/// Largest number of offers of one user at the same time, with the requests that wait for one. So requests in a loop, or
/// on many connections at once, do not use up all other hosts.
const OF_ONE_USER: usize = 8;
/// An offer is returned again only if it stays valid for at least this time.
const OF_USE: Nanos = Nanos::from_millis(1_000);

/// What an application needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub share: Share,
    pub memory: Bytes,
    /// Zero: none.
    pub rate: BitRate,
}

/// The offers, and the requests that wait for one.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// By the number of the offer.
    offered: BTreeMap<u64, Offered>,
    /// For each user, the number of requests that wait for an offer.
    under_way: BTreeMap<u32, usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offered {
    pub giver: Name,
    pub peer: Peer,
    pub asked: Asked,
    /// The memory that the lender keeps: all that was asked, or none.
    pub memory: Bytes,
    /// The rate that the lender keeps: all that was asked, or none.
    pub rate: Option<LoanRate>,
    pub until: Instant,
}

impl Offers {
    pub(super) fn add(&mut self, number: u64, offered: Offered) {
        self.offered.insert(number, offered);
    }

    /// The earlier offer, if the same process asks for the same amounts again.
    pub(super) fn again(&self, peer: Peer, asked: Asked, now: Instant) -> Option<(u64, Offered)> {
        let same =
            |offered: &Offered| offered.peer == peer && offered.asked == asked && offered.until.since(now) >= OF_USE;
        self.offered.iter().find(|(_, offered)| same(offered)).map(|(number, offered)| (*number, offered.clone()))
    }

    /// Counts a request of user `uid` that waits for an offer, until [`Offers::end`]. `false`, and counts nothing, if the
    /// user has the largest number of offers and such requests. Expired offers are removed first.
    pub(super) fn begin(&mut self, uid: u32, now: Instant) -> bool {
        self.offered.retain(|_, offered| offered.until > now);
        let offers = self.offered.values().filter(|offered| offered.peer.owner.uid == uid).count();
        let under_way = self.under_way.entry(uid).or_default();
        let has_room = offers + *under_way < OF_ONE_USER;
        *under_way += usize::from(has_room);
        if *under_way == 0 {
            self.under_way.remove(&uid);
        }
        has_room
    }

    /// A request of user `uid` waits no longer: its offer was added, or there is none.
    pub(super) fn end(&mut self, uid: u32) {
        let Some(under_way) = self.under_way.get_mut(&uid) else { return };
        *under_way -= 1;
        if *under_way == 0 {
            self.under_way.remove(&uid);
        }
    }

    /// Removes the offers of a host that is gone; the next request asks other hosts.
    pub(super) fn gone(&mut self, giver: &Name) {
        self.offered.retain(|_, offered| offered.giver != *giver);
    }

    /// Removes an offer that an application has claimed: a further request of the process asks for more.
    pub(super) fn taken(&mut self, number: u64, giver: &Name) {
        if self.offered.get(&number).is_some_and(|offered| offered.giver == *giver) {
            self.offered.remove(&number);
        }
    }

    /// Removes an offer; returns the lender. None: this user has no such offer. Root may remove every offer.
    pub(super) fn give_back(&mut self, number: u64, peer: Peer) -> Option<Name> {
        self.offered.get(&number).filter(|offered| peer.may_touch(offered.peer.owner))?;
        self.offered.remove(&number).map(|offered| offered.giver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Owner;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(1_000 * seconds)
    }

    fn peer(pid: i32, uid: u32) -> Peer {
        Peer { pid, owner: Owner { uid, gid: uid } }
    }

    fn offered(peer: Peer, until: u64) -> Offered {
        let (giver, memory) = ("beta".parse().unwrap(), Bytes::ZERO);
        Offered { giver, peer, asked: asked(300_000), memory, rate: None, until: at(until) }
    }

    fn asked(ppm: u32) -> Asked {
        Asked { share: Share::from_ppm(ppm), memory: Bytes::ZERO, rate: BitRate::ZERO }
    }

    #[test]
    fn who_asks_in_a_loop_gets_one_offer_and_a_user_at_most_eight() {
        let mut offers = Offers::default();
        offers.add(7, offered(peer(1, 1_000), 30));
        let again = |pid, ppm, now| offers.again(peer(pid, 1_000), asked(ppm), at(now)).map(|found| found.0);
        assert_eq!([again(1, 300_000, 5), again(1, 200_000, 5), again(2, 300_000, 5)], [Some(7), None, None]);
        assert_eq!(again(1, 300_000, 30), None, "too late to be of use");
        let with_memory = Asked { memory: Bytes::from_mib(1), ..asked(300_000) };
        assert_eq!(offers.again(peer(1, 1_000), with_memory, at(5)), None, "memory was not asked for");
        let with_rate = Asked { rate: BitRate::new(1_000), ..asked(300_000) };
        assert_eq!(offers.again(peer(1, 1_000), with_rate, at(5)), None, "a rate was not asked for");
        (10..17).for_each(|number| offers.add(number, offered(peer(2, 1_000), 60)));
        assert!(!offers.begin(1_000, at(5)) && offers.begin(1_001, at(5)));
        assert!(offers.begin(1_000, at(31)), "the first is over");
    }

    #[test]
    fn requests_that_wait_for_an_offer_count_as_offers_of_their_user() {
        let mut offers = Offers::default();
        assert_eq!((0..32).filter(|_| offers.begin(1_000, at(5))).count(), OF_ONE_USER, "on 32 connections at once");
        assert!(offers.begin(1_001, at(5)), "another user");
        offers.add(7, offered(peer(1, 1_000), 30));
        offers.end(1_000);
        assert!(!offers.begin(1_000, at(6)), "the offer has the place of its request");
        offers.end(1_000);
        assert!(offers.begin(1_000, at(6)) && !offers.begin(1_000, at(6)), "one request got no offer");
        (0..OF_ONE_USER).for_each(|_| offers.end(1_000));
        offers.end(1_001);
        assert!(offers.under_way.is_empty());
    }

    #[test]
    fn what_a_host_offered_that_is_gone_is_not_offered_again() {
        let mut offers = Offers::default();
        offers.add(7, offered(peer(1, 1_000), 30));
        offers.gone(&"gamma".parse().unwrap());
        assert!(offers.again(peer(1, 1_000), asked(300_000), at(5)).is_some());
        offers.gone(&"beta".parse().unwrap());
        assert_eq!(offers.again(peer(1, 1_000), asked(300_000), at(5)), None);
        assert_eq!(offers.give_back(7, peer(1, 1_000)), None);
    }

    #[test]
    fn what_an_application_has_there_is_not_offered_again() {
        let mut offers = Offers::default();
        offers.add(7, offered(peer(1, 1_000), 30));
        offers.taken(7, &"gamma".parse().unwrap());
        assert!(offers.again(peer(1, 1_000), asked(300_000), at(5)).is_some(), "it is not that host's");
        offers.taken(7, &"beta".parse().unwrap());
        assert_eq!(offers.again(peer(1, 1_000), asked(300_000), at(5)), None);
    }

    #[test]
    fn an_offer_is_given_back_once_by_its_user_or_by_root() {
        let mut offers = Offers::default();
        offers.add(7, offered(peer(1, 1_000), 30));
        assert_eq!(offers.give_back(7, peer(2, 1_001)), None);
        assert!(offers.give_back(7, peer(2, 1_000)).is_some());
        assert_eq!(offers.give_back(7, peer(2, 1_000)), None);
        offers.add(8, offered(peer(1, 1_000), 30));
        assert!(offers.give_back(8, peer(9, 0)).is_some());
    }
}
