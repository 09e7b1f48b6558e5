//! Which connection attempts are accepted: limits for each address and in total, and proof of the address under load.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

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
    pub(crate) refused: u64,
}

impl Bounds {
    pub(crate) fn judge(&mut self, address: IpAddr, is_proved: bool) -> Verdict {
        let of_address = self.addresses.get(&address).copied().unwrap_or_default();
        let of_network = self.networks.get(&network_of(address)).copied().unwrap_or_default();
        let is_full = of_address >= MOST_PER_ADDRESS || of_network >= MOST_HANDSHAKES_OF_NETWORK;
        if is_full || self.total >= MOST {
            self.refused += 1;
            return Verdict::Refuse;
        }
        if self.handshakes >= HANDSHAKES_BEFORE_RETRY && !is_proved { Verdict::Retry } else { Verdict::Accept }
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

/// A host may use all IPv6 addresses of its network.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let mut bounds = Bounds::default();
        for _ in 0..MOST_PER_ADDRESS {
            assert_ne!(bounds.judge(address(1), true), Verdict::Refuse);
            bounds.begin(address(1));
            bounds.shaken(address(1));
        }
        assert_eq!(bounds.judge(address(1), true), Verdict::Refuse);
        assert_eq!(bounds.judge(address(2), true), Verdict::Accept);
        bounds.end(address(1));
        assert_eq!(bounds.judge(address(1), true), Verdict::Accept);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_cannot_take_all_handshakes() {
        let mut bounds = Bounds::default();
        let of_network =
            |network: usize, host: usize| -> IpAddr { format!("2001:db8:0:{network:x}::{host:x}").parse().unwrap() };
        let mut accepts = |network, host| {
            let is_accepted = bounds.judge(of_network(network, host), true) == Verdict::Accept;
            if is_accepted {
                bounds.begin(of_network(network, host));
            }
            is_accepted
        };
        assert_eq!((0..MOST).filter(|host| accepts(1, *host)).count(), MOST_HANDSHAKES_OF_NETWORK);
        assert!(accepts(2, 0));
        bounds.shaken(of_network(1, 0));
        assert_eq!(bounds.judge(of_network(1, 200), true), Verdict::Accept, "a connection is no handshake");
    }

    #[test]
    fn under_load_an_address_has_to_be_proved() {
        let mut bounds = Bounds::default();
        for last in 0..8 {
            assert_eq!(bounds.judge(address(last), false), Verdict::Accept);
            bounds.begin(address(last));
        }
        assert_eq!(bounds.judge(address(9), false), Verdict::Retry);
        assert_eq!(bounds.judge(address(9), true), Verdict::Accept);
        (0..8).for_each(|last| bounds.shaken(address(last)));
        assert_eq!(bounds.judge(address(9), false), Verdict::Accept);
    }
}
