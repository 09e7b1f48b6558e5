//! Computes the capacity that may be promised, from the administrator's limit and, under `deadline`, the bandwidth
//! that the kernel has booked for no thread.

use qfabric_types::Share;

/// The capacity and its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bandwidth that the kernel admitted when the service started.
    free: Share,
    /// The administrator's limit.
    configured: Option<Share>,
    /// Bandwidth booked for no thread when the service started, which the probe at the start did not include. `None`:
    /// not measured yet; the first measurement then counts.
    lost_at_start: Option<Share>,
    /// True after the first measurement of the running service.
    has_looked: bool,
    /// Bandwidth booked for no thread now.
    lost: Share,
    /// Bandwidth of the service's own server, if the mechanism has servers.
    own: Share,
    /// The mechanism does its own accounting, so no bandwidth is ever booked for no thread.
    own_accounting: bool,
}

impl Room {
    /// From a probe of what the kernel admits, which does not include bandwidth lost before.
    pub(super) fn probed(free: Share) -> Room {
        Room { free, ..Room::default() }
    }

    /// `lost`: bandwidth that was booked for no thread at the time of the probe. What is lost between the probe and the
    /// first measurement then lowers the capacity.
    pub(super) fn with_lost(self, lost: Option<Share>) -> Room {
        Room { lost_at_start: lost, lost: lost.unwrap_or_default(), ..self }
    }

    /// At most `configured`. `ceiling` is the bandwidth for applications if none is lost.
    pub(super) fn under(ceiling: Share, configured: Share) -> Room {
        Room { free: ceiling, configured: Some(configured), lost_at_start: Some(Share::ZERO), ..Room::default() }
    }

    /// `lost` is booked for no thread already.
    pub(super) fn without(self, lost: Share) -> Room {
        Room { lost, ..self }
    }

    /// For a mechanism with its own accounting: `all` of its bandwidth, of which the service's own server has `own`.
    pub(super) fn of_servers(all: Share, configured: Option<Share>, own: Share) -> Room {
        Room { free: all, configured, own, own_accounting: true, ..Room::default() }
    }

    /// Records the bandwidth booked for no thread. Returns whether it changed, or is the first that is not zero.
    pub(super) fn lose(&mut self, lost: Share) -> bool {
        if self.own_accounting {
            return false;
        }
        self.lost_at_start.get_or_insert(lost);
        let is_first = !std::mem::replace(&mut self.has_looked, true) && lost != Share::ZERO;
        std::mem::replace(&mut self.lost, lost) != lost || is_first
    }

    pub(super) fn configure(&mut self, configured: Option<Share>) {
        self.configured = configured;
    }

    pub(super) fn configured(&self) -> Option<Share> {
        self.configured
    }

    /// The capacity that may be promised.
    pub(super) fn capacity(&self) -> Share {
        let all = u64::from(self.free.ppm()) + u64::from(self.lost_at_start.unwrap_or_default().ppm());
        let left = all.saturating_sub(u64::from(self.lost.ppm()));
        let free = Share::from_ppm(u32::try_from(left).unwrap_or(u32::MAX));
        self.configured.map_or(free, |configured| configured.min(free)).saturating_sub(self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ppm(ppm: u32) -> Share {
        Share::from_ppm(ppm)
    }

    #[test]
    fn bandwidth_lost_later_is_not_promised_until_it_is_repaired() {
        let mut room = Room::probed(ppm(1_700_000));
        assert!(!room.lose(Share::ZERO), "zero is no change");
        assert!(room.lose(ppm(62_500)));
        assert!(!room.lose(ppm(62_500)), "the same amount is no change");
        assert_eq!(room.capacity(), ppm(1_637_500));
        assert!(room.lose(Share::ZERO));
        assert_eq!(room.capacity(), ppm(1_700_000));
    }

    #[test]
    fn bandwidth_lost_before_the_start_is_added_when_it_is_repaired() {
        let mut room = Room::probed(ppm(1_600_000));
        room.lose(ppm(100_000));
        assert_eq!(room.capacity(), ppm(1_600_000));
        room.lose(Share::ZERO);
        assert_eq!(room.capacity(), ppm(1_700_000));
    }

    #[test]
    fn bandwidth_lost_between_the_start_and_the_first_look_is_not_promised() {
        let mut room = Room::probed(ppm(1_600_000)).with_lost(Some(ppm(100_000)));
        assert_eq!(room.capacity(), ppm(1_600_000));
        assert!(room.lose(ppm(150_000)));
        assert_eq!(room.capacity(), ppm(1_550_000));
        room.lose(Share::ZERO);
        assert_eq!(room.capacity(), ppm(1_700_000));
        let mut same = Room::probed(ppm(1_600_000)).with_lost(Some(ppm(100_000)));
        assert!(same.lose(ppm(100_000)), "the first look reports the loss");
        assert!(!same.lose(ppm(100_000)));
    }

    #[test]
    fn the_capacity_never_exceeds_the_administrators_limit() {
        let mut room = Room::under(ppm(1_700_000), ppm(500_000));
        assert_eq!(room.capacity(), ppm(500_000));
        room.lose(ppm(1_300_000));
        assert_eq!(room.capacity(), ppm(400_000));
        room.configure(None);
        room.lose(Share::ZERO);
        assert_eq!(room.capacity(), ppm(1_700_000));
    }

    #[test]
    fn bandwidth_lost_before_the_start_is_not_promised_under_a_limit_either() {
        let mut room = Room::under(ppm(1_700_000), ppm(1_600_000)).without(ppm(300_000));
        assert_eq!(room.capacity(), ppm(1_400_000));
        assert!(room.lose(ppm(300_000)), "the first look reports the loss");
        assert_eq!(room.capacity(), ppm(1_400_000));
        room.lose(Share::ZERO);
        assert_eq!(room.capacity(), ppm(1_600_000));
    }

    #[test]
    fn a_mechanism_with_its_own_accounting_loses_no_bandwidth_and_excludes_the_services_server() {
        let mut room = Room::of_servers(ppm(1_880_000), None, ppm(100_000));
        assert!(!room.lose(ppm(500_000)));
        assert_eq!(room.capacity(), ppm(1_780_000));
        room.configure(Some(ppm(1_000_000)));
        assert_eq!(room.capacity(), ppm(900_000));
    }
}
