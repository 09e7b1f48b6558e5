//! Which connection attempts are accepted: limits for each address and in total, and proof of the address under load.

use std::collections::HashMap;
use std::net::IpAddr;

/// Connections and handshakes from one address. A session has two while its carrier is replaced.
pub(crate) const MOST_PER_ADDRESS: usize = 16;
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
    pub(super) handshakes: usize,
    pub(super) total: usize,
    pub(crate) refused: u64,
}

impl Bounds {
    pub(crate) fn judge(&mut self, address: IpAddr, is_proved: bool) -> Verdict {
        let of_address = self.addresses.get(&address).copied().unwrap_or_default();
        if of_address >= MOST_PER_ADDRESS || self.total >= MOST {
            self.refused += 1;
            return Verdict::Refuse;
        }
        if self.handshakes >= HANDSHAKES_BEFORE_RETRY && !is_proved { Verdict::Retry } else { Verdict::Accept }
    }

    /// A handshake begins.
    pub(crate) fn begin(&mut self, address: IpAddr) {
        *self.addresses.entry(address).or_default() += 1;
        self.handshakes += 1;
        self.total += 1;
    }

    /// A handshake ended, with a connection or without one.
    pub(crate) fn shaken(&mut self) {
        self.handshakes = self.handshakes.saturating_sub(1);
    }

    /// A connection, or an attempt at one, ended.
    pub(crate) fn end(&mut self, address: IpAddr) {
        self.total = self.total.saturating_sub(1);
        if let Some(count) = self.addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&address);
            }
        }
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
            bounds.shaken();
        }
        assert_eq!(bounds.judge(address(1), true), Verdict::Refuse);
        assert_eq!(bounds.judge(address(2), true), Verdict::Accept);
        bounds.end(address(1));
        assert_eq!(bounds.judge(address(1), true), Verdict::Accept);
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
        (0..8).for_each(|_| bounds.shaken());
        assert_eq!(bounds.judge(address(9), false), Verdict::Accept);
    }
}
