//! The rate of handshakes of each network: a first message (`ClientHello`) makes this host compute an answer. METP's
//! listener and the daemon's web page use it, too.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Handshakes that a network may begin at once: all hosts of a network begin together when its power returns.
const BURST: u32 = 512;
/// The time in which a network may begin one more: 128 in a second.
const INTERVAL: Duration = Duration::from_nanos(7_812_500);
/// Networks that are remembered.
const MOST_NETWORKS: usize = 4_096;

/// For each network, the time from which on its whole burst is available again (the generic cell rate algorithm).
#[derive(Debug)]
pub struct Rates {
    burst: u32,
    interval: Duration,
    full_at: HashMap<IpAddr, Instant>,
}

/// The rate of hosts: 512 handshakes at once, and 128 in a second.
impl Default for Rates {
    fn default() -> Rates {
        Rates::new(BURST, INTERVAL)
    }
}

impl Rates {
    /// Each network begins `burst` handshakes at once, and one more after each `interval`.
    pub fn new(burst: u32, interval: Duration) -> Rates {
        Rates { burst, interval, full_at: HashMap::new() }
    }

    /// Takes one handshake from the network's account; false if the account is empty.
    pub fn take(&mut self, network: IpAddr, now: Instant) -> bool {
        if self.full_at.len() >= MOST_NETWORKS && !self.full_at.contains_key(&network) {
            self.forget(now);
        }
        let full_at = self.full_at.get(&network).copied().unwrap_or(now).max(now) + self.interval;
        let is_covered = full_at <= now + self.interval * self.burst;
        if is_covered {
            self.full_at.insert(network, full_at);
        }
        is_covered
    }

    /// Forgets networks with a full account. If there are none, all accounts start again: a flood from thousands of
    /// networks must not close the port for others.
    fn forget(&mut self, now: Instant) {
        self.full_at.retain(|_, full_at| *full_at > now);
        if self.full_at.len() >= MOST_NETWORKS {
            self.full_at.clear();
        }
    }
}

/// The network of an address: a host may use all IPv6 addresses of its /64.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: usize) -> IpAddr {
        IpAddr::from(u32::try_from(number).unwrap().to_be_bytes())
    }

    #[test]
    fn a_network_begins_its_burst_at_once_and_then_its_rate_and_others_are_not_affected() {
        let (mut rates, begin) = (Rates::default(), Instant::now());
        let taken = |rates: &mut Rates, network, at| (0..1_000).filter(|_| rates.take(network, at)).count();
        assert_eq!(taken(&mut rates, v4(1), begin), 512);
        assert_eq!(taken(&mut rates, v4(1), begin + Duration::from_secs(1)), 128);
        assert_eq!(taken(&mut rates, v4(2), begin + Duration::from_secs(1)), 512);
        assert_eq!(taken(&mut rates, v4(1), begin + Duration::from_secs(60)), 512);
    }

    #[test]
    fn an_account_has_the_burst_and_the_interval_that_it_was_given() {
        let (mut rates, begin) = (Rates::new(3, Duration::from_secs(1)), Instant::now());
        let taken = |rates: &mut Rates, at| (0..10).filter(|_| rates.take(v4(1), at)).count();
        assert_eq!((taken(&mut rates, begin), taken(&mut rates, begin)), (3, 0));
        assert_eq!(taken(&mut rates, begin + Duration::from_secs(2)), 2);
        assert_eq!(taken(&mut rates, begin + Duration::from_secs(60)), 3);
    }

    #[test]
    fn a_bounded_number_of_networks_is_remembered_and_none_is_kept_out() {
        let (mut rates, begin) = (Rates::default(), Instant::now());
        for number in 0..3 * MOST_NETWORKS {
            assert!(rates.take(v4(number), begin));
            assert!(rates.full_at.len() <= MOST_NETWORKS);
        }
        assert!(rates.take(v4(0), begin + Duration::from_secs(60)));
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_network_and_mapped_ones_are_ipv4() {
        let network = |address: &str| network_of(address.parse().unwrap());
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::2"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_eq!(network("::ffff:192.0.2.1"), IpAddr::from([192, 0, 2, 1]));
    }
}
