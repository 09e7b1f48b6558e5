//! Inter-media synchronization: a follower (picture) keeps to its leader (sound) at one sink.
//!
//! ```text
//!   |skew| <= tolerance            > tolerance                       > jump
//!        Keep          ──────>  Speed, until it is          ──────>  Skip or Wait, at once
//!          ^                    a quarter of the tolerance
//!          └──────────────────────────┘
//! ```
//! Sound leads, because an ear hears a gap where an eye sees none. Lips within ±80 ms of the sound seem in step.
//! Source: Q-channels paper §3.3, which cites Ramanathan and Rangan 1993; the speeds are ours.

use qfabric_types::Nanos;

/// What is still in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// A skew up to this is not seen.
    pub tolerance: Nanos,
    /// Beyond this, running faster or slower would take too long.
    pub jump: Nanos,
    /// In what time a skew is to be worked off.
    pub horizon: Nanos,
    /// Fastest and slowest, in millionths off the normal speed.
    pub most_ppm: i32,
}

impl Default for Terms {
    fn default() -> Self {
        let ms = Nanos::from_millis;
        Terms { tolerance: ms(80), jump: ms(500), horizon: ms(5_000), most_ppm: 50_000 }
    }
}

/// What the follower does until it hears again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Plays at normal speed.
    Keep,
    /// Plays faster (positive) or slower by so many millionths.
    Speed(i32),
    /// Leaves out so much.
    Skip(Nanos),
    /// Stands still for so long.
    Wait(Nanos),
}

/// The policy at a sink.
#[derive(Clone, Debug, Default)]
pub struct InterMedia {
    terms: Terms,
    correcting: bool,
}

impl InterMedia {
    /// In step.
    pub fn new(terms: Terms) -> Self {
        InterMedia { terms, correcting: false }
    }

    /// How far both have played, in media time, at one moment.
    pub fn on_positions(&mut self, leader: Nanos, follower: Nanos) -> Correction {
        let ahead = follower > leader;
        let skew = if ahead { follower - leader } else { leader - follower };
        let Terms { tolerance, jump, horizon, most_ppm } = self.terms;
        if skew > jump {
            self.correcting = false;
            return if ahead { Correction::Wait(skew) } else { Correction::Skip(skew) };
        }
        let enough = if self.correcting { Nanos::new(tolerance.get() / 4) } else { tolerance };
        self.correcting = skew > enough;
        if !self.correcting {
            return Correction::Keep;
        }
        let ppm = (skew.as_f64() / horizon.as_f64() * 1e6).min(f64::from(most_ppm)) as i32;
        Correction::Speed(if ahead { -ppm } else { ppm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn what_nobody_sees_is_left_alone() {
        let mut sync = InterMedia::default();
        assert_eq!(sync.on_positions(MS(1_000), MS(1_080)), Correction::Keep);
        assert_eq!(sync.on_positions(MS(1_000), MS(920)), Correction::Keep);
    }

    #[test]
    fn a_correction_ends_well_inside_the_tolerance() {
        let mut sync = InterMedia::default();
        assert_eq!(sync.on_positions(MS(1_000), MS(900)), Correction::Speed(20_000));
        assert!(matches!(sync.on_positions(MS(2_000), MS(1_960)), Correction::Speed(_)));
        assert_eq!(sync.on_positions(MS(3_000), MS(2_985)), Correction::Keep);
    }

    #[test]
    fn far_away_it_jumps() {
        let mut sync = InterMedia::default();
        assert_eq!(sync.on_positions(MS(2_000), MS(1_000)), Correction::Skip(MS(1_000)));
        assert_eq!(sync.on_positions(MS(1_000), MS(2_000)), Correction::Wait(MS(1_000)));
    }

    proptest! {
        #[test]
        fn every_skew_is_worked_off(skew_ms in -3_000i64..3_000, clock_ppm in -200i32..200) {
            let mut sync = InterMedia::default();
            let (mut leader, mut follower) = (10e9, 10e9 + skew_ms as f64 * 1e6);
            for _ in 0..300 {
                let mut speed = 1.0 + f64::from(clock_ppm) * 1e-6;
                match sync.on_positions(Nanos::from_f64(leader), Nanos::from_f64(follower)) {
                    Correction::Keep => {}
                    Correction::Speed(ppm) => speed += f64::from(ppm) * 1e-6,
                    Correction::Skip(by) => follower += by.as_f64(),
                    Correction::Wait(by) => follower -= by.as_f64(),
                }
                leader += 1e8;
                follower += 1e8 * speed;
            }
            prop_assert!((leader - follower).abs() <= 81e6, "{}", leader - follower);
        }
    }
}
