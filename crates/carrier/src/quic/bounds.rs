//! Which connection attempts are accepted: limits for each address and in total, a rate for each network, and proof of
//! the address under load.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use tls_listener::{Rates, network_of};

/// Connections and handshakes from one address. A session has two while its carrier is replaced.
pub(crate) const MOST_PER_ADDRESS: usize = 16;
/// Unfinished handshakes of one IPv6 network (/64): with its addresses, a host without a certificate could take all
/// places.
const MOST_HANDSHAKES_OF_NETWORK: usize = 64;
/// Connections and handshakes in total.
pub(crate) const MOST: usize = 128;
/// Above this number of handshakes a client has to prove its address first (RFC 9000 §8.1.2): forged addresses then cost
/// one packet each.
const HANDSHAKES_BEFORE_RETRY: usize = 8;
/// The account of all addresses that are not proved. A forged address must not use up the account of its real network.
/// No host has this address.
const NOT_PROVED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    /// The client has to prove its address.
    Retry,
    Refuse,
}

/// Counts of the connections of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(super) addresses: HashMap<IpAddr, usize>,
    /// Unfinished handshakes.
    pub(super) networks: HashMap<IpAddr, usize>,
    pub(super) handshakes: usize,
    pub(super) total: usize,
    /// The accounts of the handshakes that begin.
    rates: Rates,
    pub(crate) refused: u64,
}

impl Bounds {
    /// Judges an attempt. An accepted one counts in the account of its network or, if its address is not proved, in the
    /// common account of such addresses. While the common account is empty, a client has to prove its address, which
    /// takes one round trip.
    pub(crate) fn judge(&mut self, address: IpAddr, is_proved: bool, now: Instant) -> Verdict {
        let of_address = self.addresses.get(&address).copied().unwrap_or_default();
        let of_network = self.networks.get(&network_of(address)).copied().unwrap_or_default();
        let is_full = of_address >= MOST_PER_ADDRESS || of_network >= MOST_HANDSHAKES_OF_NETWORK;
        if is_full || self.total >= MOST {
            self.refused += 1;
            return Verdict::Refuse;
        }
        if !is_proved {
            let is_quiet = self.handshakes < HANDSHAKES_BEFORE_RETRY;
            return if is_quiet && self.rates.take(NOT_PROVED, now) { Verdict::Accept } else { Verdict::Retry };
        }
        if self.rates.take(network_of(address), now) {
            return Verdict::Accept;
        }
        self.refused += 1;
        Verdict::Refuse
    }

    /// A handshake begins.
    pub(crate) fn begin(&mut self, address: IpAddr) {
        *self.addresses.entry(address).or_default() += 1;
        *self.networks.entry(network_of(address)).or_default() += 1;
        self.handshakes += 1;
        self.total += 1;
    }

    /// A handshake ended, with a connection or without one.
    pub(crate) fn shaken(&mut self, address: IpAddr) {
        self.handshakes = self.handshakes.saturating_sub(1);
        subtract(&mut self.networks, network_of(address));
    }

    /// A connection, or an attempt at one, ended.
    pub(crate) fn end(&mut self, address: IpAddr) {
        self.total = self.total.saturating_sub(1);
        subtract(&mut self.addresses, address);
    }
}

/// Subtracts one from a count.
fn subtract(counts: &mut HashMap<IpAddr, usize>, of: IpAddr) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let (mut bounds, now) = (Bounds::default(), Instant::now());
        for _ in 0..MOST_PER_ADDRESS {
            assert_ne!(bounds.judge(address(1), true, now), Verdict::Refuse);
            bounds.begin(address(1));
            bounds.shaken(address(1));
        }
        assert_eq!(bounds.judge(address(1), true, now), Verdict::Refuse);
        assert_eq!(bounds.judge(address(2), true, now), Verdict::Accept);
        bounds.end(address(1));
        assert_eq!(bounds.judge(address(1), true, now), Verdict::Accept);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_cannot_take_all_handshakes() {
        let (mut bounds, now) = (Bounds::default(), Instant::now());
        let of_network =
            |network: usize, host: usize| -> IpAddr { format!("2001:db8:0:{network:x}::{host:x}").parse().unwrap() };
        let mut accepts = |network, host| {
            let is_accepted = bounds.judge(of_network(network, host), true, now) == Verdict::Accept;
            if is_accepted {
                bounds.begin(of_network(network, host));
            }
            is_accepted
        };
        assert_eq!((0..MOST).filter(|host| accepts(1, *host)).count(), MOST_HANDSHAKES_OF_NETWORK);
        assert!(accepts(2, 0));
        bounds.shaken(of_network(1, 0));
        assert_eq!(bounds.judge(of_network(1, 200), true, now), Verdict::Accept, "a connection is no handshake");
    }

    #[test]
    fn under_load_an_address_has_to_be_proved() {
        let (mut bounds, now) = (Bounds::default(), Instant::now());
        for last in 0..8 {
            assert_eq!(bounds.judge(address(last), false, now), Verdict::Accept);
            bounds.begin(address(last));
        }
        assert_eq!(bounds.judge(address(9), false, now), Verdict::Retry);
        assert_eq!(bounds.judge(address(9), true, now), Verdict::Accept);
        (0..8).for_each(|last| bounds.shaken(address(last)));
        assert_eq!(bounds.judge(address(9), false, now), Verdict::Accept);
    }

    #[test]
    fn above_its_rate_of_handshakes_a_network_is_refused_and_others_are_not() {
        let (mut bounds, begin) = (Bounds::default(), Instant::now());
        let mut accepted = |from, at| (0..1_000).filter(|_| bounds.judge(from, true, at) == Verdict::Accept).count();
        assert_eq!(accepted(address(1), begin), 512);
        assert_eq!(accepted(address(1), begin + Duration::from_secs(1)), 128);
        assert_eq!(accepted(address(2), begin + Duration::from_secs(1)), 512);
        assert_eq!(bounds.refused, 488 + 872 + 488);
    }

    #[test]
    fn forged_addresses_have_a_rate_of_their_own_and_keep_no_network_out() {
        let (mut bounds, now) = (Bounds::default(), Instant::now());
        let verdicts: Vec<_> = (0..1_000).map(|_| bounds.judge(address(1), false, now)).collect();
        assert!(verdicts[..512].iter().all(|verdict| *verdict == Verdict::Accept));
        assert!(verdicts[512..].iter().all(|verdict| *verdict == Verdict::Retry));
        assert_eq!(bounds.judge(address(2), false, now), Verdict::Retry, "another forged address");
        assert_eq!(bounds.judge(address(1), true, now), Verdict::Accept);
    }
}
