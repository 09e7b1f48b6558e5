//! What an application is told while it asks for more than it is granted. Source: AQuoSA 2009, §7: «to require the
//! application to lower its QoS level via a callback mechanism».

use serde::{Deserialize, Serialize};

use crate::Share;

/// The requests of an application exceed what the supervisor grants it: it should lower its quality. Shares of one CPU, of
/// the last job that was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Overload {
    /// What its controller asked for.
    pub wanted: Share,
    /// What it was granted.
    pub granted: Share,
}

impl Overload {
    /// The part of its demand that is granted, below 1: what jobs should cost, relative to what they cost now.
    pub fn part(self) -> f64 {
        self.granted.as_f64() / self.wanted.as_f64().max(f64::MIN_POSITIVE)
    }

    /// As one word of shared memory, so that no reader ever sees one half of two.
    pub fn word(overload: Option<Overload>) -> u64 {
        overload.map_or(0, |Overload { wanted, granted }| (u64::from(wanted.ppm()) << 32) | u64::from(granted.ppm()))
    }

    /// What such a word says; none where it makes no sense.
    pub fn of_word(word: u64) -> Option<Overload> {
        let [wanted, granted] = [(word >> 32) as u32, word as u32].map(Share::from_ppm);
        (wanted > granted).then_some(Overload { wanted, granted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_both_shares_or_that_there_is_no_overload() {
        let overload = Overload { wanted: Share::from_ppm(800_000), granted: Share::from_ppm(200_000) };
        assert_eq!(Overload::of_word(Overload::word(Some(overload))), Some(overload));
        assert_eq!((Overload::of_word(Overload::word(None)), overload.part()), (None, 0.25));
        assert_eq!(Overload::of_word(5), None, "what makes no sense is none");
    }
}
