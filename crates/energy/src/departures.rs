//! When each packet leaves, for a kernel that holds packets until a given time (`fq` with SO_TXTIME).
//!
//! A program hands over each packet as soon as it is ready, and does not wake up for the burst. The time is therefore
//! what is known at the ready time: if a later packet begins the burst earlier, the packets before it keep their times.

use qfabric_types::Window;

use crate::shaper::{Packet, QueueFull, Shaper};

/// The times at which the packets of one network card leave, as bursts. Times in nanoseconds.
///
/// ```
/// use qfabric_energy::{Departures, Packet};
/// use qfabric_types::Window;
///
/// let mut departures = Departures::new(&[Window::new(1, 10).unwrap()], 64);
/// let (ready, deadline, transmission) = (0, 40_000_000, 500_000);
/// let packet = Packet { id: 0, stream: Some(0), bytes: 1_000, ready, deadline, transmission, urgent: false };
/// assert_eq!(departures.plan(packet).unwrap(), 40_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct Departures {
    shaper: Shaper,
    /// The latest ready time so far.
    now: u64,
    /// End of the last transmission that was begun.
    free_at: u64,
}

impl Departures {
    /// For streams with these windows; at most `limit` packets wait, as for [`Shaper::new`].
    pub fn new(windows: &[Window], limit: usize) -> Departures {
        Departures { shaper: Shaper::new(windows, limit), now: 0, free_at: 0 }
    }

    /// A packet is ready; returns the time at which it leaves: the begin of its burst, or the end of the packet that is
    /// being sent. A ready time before that of an earlier packet counts as the latter. If the predicted transmissions do
    /// not fit before all deadlines, packets leave late.
    ///
    /// # Errors
    /// [`QueueFull`]: too many packets wait; this one was not taken.
    ///
    /// # Panics
    /// If its stream was not given to [`Departures::new`].
    pub fn plan(&mut self, packet: Packet) -> Result<u64, QueueFull> {
        self.now = self.now.max(packet.ready);
        self.advance();
        self.shaper.arrive(packet, self.now)?;
        Ok(self.shaper.next_wakeup().unwrap_or(self.now).max(self.free_at))
    }

    /// Lets the card send every packet that is due.
    fn advance(&mut self) {
        while let Some(wakeup) = self.shaper.next_wakeup() {
            let begin = wakeup.max(self.free_at);
            if begin > self.now {
                return;
            }
            if let Some(packet) = self.shaper.next(begin) {
                self.free_at = begin.saturating_add(packet.transmission);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn departures(limit: usize) -> Departures {
        Departures::new(&[Window::new(1, 10).unwrap(); 3], limit)
    }

    /// Times in milliseconds.
    fn packet(stream: usize, ready: u64, deadline: u64) -> Packet {
        let (ready, deadline) = (ready * MS, deadline * MS);
        Packet { id: ready, stream: Some(stream), bytes: 5_000, ready, deadline, transmission: 6 * MS, urgent: false }
    }

    #[test]
    fn packets_that_can_wait_leave_together_and_one_that_comes_meanwhile_joins_them() {
        let mut departures = departures(64);
        let mut plan = |stream, ready, deadline| departures.plan(packet(stream, ready, deadline)).unwrap() / MS;
        assert_eq!([plan(0, 4, 203), plan(1, 70, 270), plan(2, 137, 336)], [203, 203, 203]);
        assert_eq!(plan(0, 204, 403), 209, "the first packet is on the air until then");
    }

    #[test]
    fn an_urgent_packet_leaves_at_once() {
        let mut departures = departures(64);
        assert_eq!(departures.plan(packet(0, 4, 203)), Ok(203 * MS));
        assert_eq!(departures.plan(Packet { urgent: true, ..packet(1, 70, 270) }), Ok(70 * MS));
    }

    #[test]
    fn a_packet_beyond_the_limit_is_refused_until_the_burst_has_begun() {
        let mut departures = departures(1);
        assert_eq!(departures.plan(packet(0, 4, 203)), Ok(203 * MS));
        assert_eq!(departures.plan(packet(1, 70, 270)), Err(QueueFull { limit: 1 }));
        assert_eq!(departures.plan(packet(2, 230, 300)), Ok(300 * MS));
    }

    #[test]
    fn no_packet_of_three_streams_leaves_before_it_is_ready_or_late_and_the_card_wakes_up_less() {
        let (mut departures, mut times) = (departures(64), Vec::new());
        // Three streams of 5 packets in a second, a third of the period apart.
        for number in 0..150 {
            let ready = 4 + 200 * (number / 3) + 67 * (number % 3);
            let packet = packet((number % 3) as usize, ready, ready + 199);
            let departure = departures.plan(packet).unwrap();
            assert!((packet.ready..=packet.deadline).contains(&departure), "packet {number}: {departure}");
            times.push(departure);
        }
        times.sort_unstable();
        let wakeups = 1 + times.windows(2).filter(|pair| pair[1] - pair[0] > 20 * MS).count();
        assert!(5 * wakeups <= 2 * times.len(), "{wakeups} wake-ups of {}", times.len());
    }
}
