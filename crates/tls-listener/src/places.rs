//! The places for unfinished handshakes.

use std::collections::VecDeque;
use std::net::IpAddr;

/// Unfinished handshakes of one listener.
const MOST: usize = 512;
/// Of these, unfinished handshakes of one IPv4 address or one IPv6 network (/64).
const MOST_OF_ONE: usize = 64;

/// The unfinished handshakes of one listener, the oldest first.
#[derive(Debug)]
pub(crate) struct Places<T> {
    next: u64,
    taken: VecDeque<Place<T>>,
}

#[derive(Debug)]
struct Place<T> {
    number: u64,
    network: IpAddr,
    handshake: T,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { next: 0, taken: VecDeque::new() }
    }
}

impl<T> Places<T> {
    /// Takes a place. Returns its number, and the handshake that has to end for it: without a free place the oldest one
    /// of the same network if it has all of its places, else the oldest one of all. A host that answers needs a place
    /// for a few milliseconds, so the oldest handshakes are those of hosts that do not answer.
    pub(crate) fn enter(&mut self, network: IpAddr, handshake: T) -> (u64, Option<T>) {
        let mut own = self.taken.iter().enumerate().filter(|(_, place)| place.network == network).map(|(at, _)| at);
        let oldest = own.next();
        let leaves = match oldest {
            Some(_) if own.count() + 1 >= MOST_OF_ONE => oldest,
            _ => (self.taken.len() >= MOST).then_some(0),
        };
        let ends = leaves.and_then(|at| self.taken.remove(at)).map(|place| place.handshake);
        let number = self.next;
        self.next += 1;
        self.taken.push_back(Place { number, network, handshake });
        (number, ends)
    }

    /// Gives back the place of a handshake that has ended, if it has not given it up already.
    pub(crate) fn leave(&mut self, number: u64) {
        if let Ok(at) = self.taken.binary_search_by_key(&number, |place| place.number) {
            self.taken.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(last: usize) -> IpAddr {
        IpAddr::from([192, 0, 2, u8::try_from(last).unwrap()])
    }

    #[test]
    fn beyond_its_places_a_network_loses_its_oldest_handshake_and_others_keep_theirs() {
        let mut places = Places::default();
        assert_eq!(places.enter(v4(1), 0), (0, None));
        for at in 1..=MOST_OF_ONE {
            assert_eq!(places.enter(v4(2), at).1, None);
        }
        assert_eq!(places.enter(v4(2), 1_000).1, Some(1));
        assert_eq!(places.enter(v4(2), 1_001).1, Some(2));
        assert_eq!(places.enter(v4(1), 1_002).1, None);
    }

    #[test]
    fn beyond_all_places_the_oldest_handshake_ends() {
        let mut places = Places::default();
        for at in 0..MOST {
            assert_eq!(places.enter(v4(at / MOST_OF_ONE), at).1, None);
        }
        assert_eq!(places.enter(v4(200), 1_000).1, Some(0));
    }

    #[test]
    fn an_ended_handshake_leaves_its_place_and_one_that_gave_it_up_leaves_none() {
        let mut places = Places::default();
        for at in 0..=MOST_OF_ONE {
            places.enter(v4(1), at);
        }
        places.leave(0); // has given its place up
        assert_eq!(places.enter(v4(1), 1_000).1, Some(1));
        places.leave(2);
        assert_eq!(places.enter(v4(1), 1_001).1, None);
    }
}
