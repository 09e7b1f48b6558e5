//! How much may be promised, as the administrator's word changes and, under `deadline`, what the kernel holds for nobody
//! comes and goes.

use qfabric_types::Share;

/// The capacity and what it is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// What the kernel admitted when the service started.
    free: Share,
    /// What the administrator allows at most.
    configured: Option<Share>,
    /// Booked for nobody when the room was first measured: the probe did not find that.
    lost_at_start: Option<Share>,
    /// Booked for nobody now.
    lost: Share,
    /// What the service's own threads hold of the rest, where they are servers among others.
    own: Share,
    /// Nothing is ever booked for nobody: the mechanism keeps its own books.
    keeps_books: bool,
}

impl Room {
    /// What the kernel admits; nothing that was lost before is in it.
    pub fn probed(free: Share) -> Room {
        Room { free, ..Room::default() }
    }

    /// `configured`, as long as that is there: `ceiling` is what there is for others when nothing is lost.
    pub fn under(ceiling: Share, configured: Share) -> Room {
        Room { free: ceiling, configured: Some(configured), lost_at_start: Some(Share::ZERO), ..Room::default() }
    }

    /// Of a mechanism that keeps its own books: `all` that it has, of which the service's own threads hold `own`.
    pub fn of_servers(all: Share, configured: Option<Share>, own: Share) -> Room {
        Room { free: all, configured, own, keeps_books: true, ..Room::default() }
    }

    /// So much is booked for nobody. Answers whether that is news.
    pub fn lose(&mut self, lost: Share) -> bool {
        if self.keeps_books {
            return false;
        }
        self.lost_at_start.get_or_insert(lost);
        std::mem::replace(&mut self.lost, lost) != lost
    }

    /// The administrator allows something else.
    pub fn configure(&mut self, configured: Option<Share>) {
        self.configured = configured;
    }

    /// What the administrator allows at most.
    pub fn configured(&self) -> Option<Share> {
        self.configured
    }

    /// What may be promised.
    pub fn capacity(&self) -> Share {
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
    fn what_is_lost_later_is_not_promised_and_comes_back_when_it_is_repaired() {
        let mut room = Room::probed(ppm(1_700_000));
        assert!(!room.lose(Share::ZERO), "nothing lost is no news");
        assert!(room.lose(ppm(62_500)));
        assert!(!room.lose(ppm(62_500)), "the same is no news");
        assert_eq!(room.capacity(), ppm(1_637_500));
        assert!(room.lose(Share::ZERO));
        assert_eq!(room.capacity(), ppm(1_700_000));
    }

    #[test]
    fn what_was_lost_before_the_start_was_not_probed_and_is_found_when_it_is_repaired() {
        let mut room = Room::probed(ppm(1_600_000));
        room.lose(ppm(100_000));
        assert_eq!(room.capacity(), ppm(1_600_000));
        room.lose(Share::ZERO);
        assert_eq!(room.capacity(), ppm(1_700_000));
    }

    #[test]
    fn nobody_is_promised_more_than_the_administrator_allows() {
        let mut room = Room::under(ppm(1_700_000), ppm(500_000));
        assert_eq!(room.capacity(), ppm(500_000));
        room.lose(ppm(1_300_000));
        assert_eq!(room.capacity(), ppm(400_000));
        room.configure(None);
        room.lose(Share::ZERO);
        assert_eq!(room.capacity(), ppm(1_700_000));
    }

    #[test]
    fn a_mechanism_with_books_of_its_own_loses_nothing_and_our_own_threads_are_not_for_others() {
        let mut room = Room::of_servers(ppm(1_880_000), None, ppm(100_000));
        assert!(!room.lose(ppm(500_000)));
        assert_eq!(room.capacity(), ppm(1_780_000));
        room.configure(Some(ppm(1_000_000)));
        assert_eq!(room.capacity(), ppm(900_000));
    }
}
