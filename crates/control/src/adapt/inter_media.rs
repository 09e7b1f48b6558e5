//! Inter-media synchronization: a follower (picture) keeps in step with its leader (sound) at one sink.
//!
//! ```text
//!   |skew| <= tolerance            > tolerance                       > jump
//!        Keep          ──────>  Speed, until it is          ──────>  Skip or Wait, at once
//!          ^                    a quarter of the tolerance
//!          └──────────────────────────┘
//! ```
//!
//! Sound leads, because an ear notices a gap that an eye does not. Lips within ±80 ms of the sound seem in step.
//! Source: Q-channels paper §3.3, which cites Ramanathan and Rangan 1993; the speeds are this project's own.

use qfabric_types::Nanos;

/// Tolerated skews and speeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// A skew up to this is not noticed.
    pub tolerance: Nanos,
    /// For a skew beyond this, a change of speed would take too long.
    pub jump: Nanos,
    /// Time in which a change of speed removes a skew.
    pub horizon: Nanos,
    /// Largest deviation from the normal speed, in millionths.
    pub most_ppm: i32,
}

impl Default for Terms {
    fn default() -> Self {
        let ms = Nanos::from_millis;
        Terms { tolerance: ms(80), jump: ms(500), horizon: ms(5_000), most_ppm: 50_000 }
    }
}

/// The follower's action until the next positions are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Play at normal speed.
    Keep,
    /// Play faster (positive) or slower by this many millionths.
    Speed(i32),
    /// Skip this part.
    Skip(Nanos),
    /// Pause for this time.
    Wait(Nanos),
}

#[derive(Clone, Debug, Default)]
pub struct InterMedia {
    terms: Terms,
    correcting: bool,
}

impl InterMedia {
    pub fn new(terms: Terms) -> Self {
        InterMedia { terms, correcting: false }
    }

    /// Takes the positions of both media, in media time, at one point in time.
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
    fn an_unnoticeable_skew_is_not_corrected() {
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
    fn a_large_skew_is_corrected_by_a_jump() {
        let mut sync = InterMedia::default();
        assert_eq!(sync.on_positions(MS(2_000), MS(1_000)), Correction::Skip(MS(1_000)));
        assert_eq!(sync.on_positions(MS(1_000), MS(2_000)), Correction::Wait(MS(1_000)));
    }

    proptest! {
        #[test]
        fn every_skew_is_removed(skew_ms in -3_000i64..3_000, clock_ppm in -200i32..200) {
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
