//! The message to an application whose demand exceeds its grant. Source: AQuoSA 2009, §7: «to require the
//! application to lower its QoS level via a callback mechanism».

use serde::{Deserialize, Serialize};

use crate::Share;

/// The application requests more than the supervisor grants, and should lower its quality. Shares of one CPU, from
/// the last job that was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Overload {
    /// The share that its controller requested.
    pub wanted: Share,
    /// The share that the supervisor granted.
    pub granted: Share,
}

impl Overload {
    /// The granted part of the demand, below 1: the factor by which the application should reduce the cost of its
    /// jobs.
    pub fn part(self) -> f64 {
        self.granted.as_f64() / self.wanted.as_f64().max(f64::MIN_POSITIVE)
    }

    /// Both shares in one word of shared memory, so that a reader never sees values of two different overloads.
    pub fn word(overload: Option<Overload>) -> u64 {
        overload.map_or(0, |Overload { wanted, granted }| (u64::from(wanted.ppm()) << 32) | u64::from(granted.ppm()))
    }

    /// Decodes such a word; `None` if there is no overload or the word is invalid.
    pub fn of_word(word: u64) -> Option<Overload> {
        let [wanted, granted] = [(word >> 32) as u32, word as u32].map(Share::from_ppm);
        (wanted > granted).then_some(Overload { wanted, granted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_both_shares_or_no_overload() {
        let overload = Overload { wanted: Share::from_ppm(800_000), granted: Share::from_ppm(200_000) };
        assert_eq!(Overload::of_word(Overload::word(Some(overload))), Some(overload));
        assert_eq!((Overload::of_word(Overload::word(None)), overload.part()), (None, 0.25));
        assert_eq!(Overload::of_word(5), None, "an invalid word is no overload");
    }
}
