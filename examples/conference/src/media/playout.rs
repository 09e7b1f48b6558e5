//! When a picture is shown: as long after the first one as it was captured after the first one. Pure.

use qfabric_types::{Instant, Nanos};

use crate::wire::FrameHeader;

/// A picture that is later than this begins the clock anew: the server paused, or a clock stepped. So does a picture that
/// would wait for more than twice the delay: the one that began the clock was late.
const LOST: Nanos = Nanos::from_millis(1_000);

/// The clock of one stream. Times of the server are only compared with each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Playout {
    delay: Nanos,
    anchor: Option<Anchor>,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    stream: u32,
    generated: Instant,
    shown: Instant,
}

impl Playout {
    /// `delay`: how long the first picture waits; it absorbs the jitter of the way.
    pub(super) fn new(delay: Nanos) -> Playout {
        Playout { delay, anchor: None }
    }

    /// When to show a picture that is decoded at `now`. A time that has passed: at once.
    pub(super) fn due(&mut self, header: &FrameHeader, now: Instant) -> Instant {
        let due = self.anchor.filter(|anchor| anchor.stream == header.stream).and_then(|anchor| {
            let later = header.generated.get().checked_sub(anchor.generated.get())?;
            anchor.shown.get().checked_add(later).map(Instant::new)
        });
        let near = |due: &Instant| *due <= now + self.delay + self.delay && now <= *due + LOST;
        due.filter(near).unwrap_or_else(|| {
            let shown = now + self.delay;
            self.anchor = Some(Anchor { stream: header.stream, generated: header.generated, shown });
            shown
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    fn header(stream: u32, generated: Instant) -> FrameHeader {
        let setting: Level = "jpeg:50:small".parse().unwrap();
        let (number, sent, bytes, part, parts, level) = (0, 0, 1, 0, 1, 0);
        FrameHeader { stream, number, sent, bytes, part, parts, setting, key: true, level, generated }
    }

    #[test]
    fn pictures_that_arrive_unevenly_are_shown_evenly() {
        let mut playout = Playout::new(Nanos::from_millis(100));
        for (generated, decoded) in [(5_000, 10), (5_050, 90), (5_100, 95), (5_150, 200)] {
            assert_eq!(playout.due(&header(1, at(generated)), at(decoded)), at(generated - 5_000 + 110));
        }
    }

    #[test]
    fn the_clock_begins_anew_after_a_pause_a_new_stream_and_an_impossible_time() {
        let mut playout = Playout::new(Nanos::from_millis(100));
        assert_eq!(playout.due(&header(1, at(1_000)), at(0)), at(100));
        assert_eq!(playout.due(&header(1, at(1_050)), at(3_000)), at(3_100), "late by more than a second");
        assert_eq!(playout.due(&header(2, at(7)), at(3_100)), at(3_200), "another stream");
        assert_eq!(playout.due(&header(2, Instant::new(u64::MAX)), at(3_300)), at(3_400), "far in the future");
        assert_eq!(playout.due(&header(2, at(3)), at(3_500)), at(3_600), "before the first one");
    }

    #[test]
    fn the_clock_of_a_late_picture_does_not_delay_those_after_it() {
        let mut playout = Playout::new(Nanos::from_millis(100));
        assert_eq!(playout.due(&header(1, at(0)), at(900)), at(1_000), "900 ms late");
        assert_eq!(playout.due(&header(1, at(1_000)), at(1_010)), at(1_110));
        assert_eq!(playout.due(&header(1, at(1_050)), at(1_060)), at(1_160));
    }
}
