//! t_o, the margin between the begin of a burst and the deadline of its first packet (000 §6.3, §6.3.1).

/// One step of the offset: 1 ms, as printed.
const STEP_NS: u64 = 1_000_000;
/// The offset never exceeds this; a medium that needs more carries no deadlines.
const MOST_NS: u64 = 100_000_000;
/// Packets in time, without a violation between them, after which the offset shrinks. The thesis says «consistently over
/// a period of time»; the number is ours.
const CALM_PACKETS: u32 = 100;

/// The offset t_o, in nanoseconds. Begins at 0, grows by 1 ms when a window is violated, and shrinks by 1 ms after 100
/// packets in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdaptiveOffset {
    ns: u64,
    calm: u32,
}

impl AdaptiveOffset {
    pub fn ns(&self) -> u64 {
        self.ns
    }

    pub fn on_time(&mut self) {
        self.calm += 1;
        if self.calm >= CALM_PACKETS {
            (self.ns, self.calm) = (self.ns.saturating_sub(STEP_NS), 0);
        }
    }

    /// A late packet beyond the losses that its window allows. A loss within the window changes nothing but the calm.
    pub fn on_violation(&mut self) {
        (self.ns, self.calm) = ((self.ns + STEP_NS).min(MOST_NS), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_follows_violations_and_calm() {
        let mut offset = AdaptiveOffset::default();
        (0..3).for_each(|_| offset.on_violation());
        assert_eq!(offset.ns(), 3 * STEP_NS);
        (0..CALM_PACKETS - 1).for_each(|_| offset.on_time());
        assert_eq!(offset.ns(), 3 * STEP_NS);
        offset.on_time();
        assert_eq!(offset.ns(), 2 * STEP_NS);
        (0..10 * CALM_PACKETS).for_each(|_| offset.on_time());
        assert_eq!(offset.ns(), 0);
        (0..1_000).for_each(|_| offset.on_violation());
        assert_eq!(offset.ns(), MOST_NS);
    }
}
