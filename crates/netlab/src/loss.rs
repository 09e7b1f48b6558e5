//! Loss of packets: independent (Bernoulli), or in bursts (Gilbert-Elliott).
//!
//! ```text
//!            p                        In the state good no packet is lost, in the state bad every packet.
//!   good ────────> bad                Mean loss p/(p + r), mean length of a burst 1/r.
//!        <────────
//!            r
//! ```
//! Each packet takes exactly one random number, so the pattern of losses depends only on the seed and on the packets'
//! order, never on time. The first packet is sent in the state good. A packet is lost according to the state before it
//! changes, as in Linux netem.

use std::fmt;
use std::str::FromStr;

use qfabric_types::{InvalidQuantity, RandomNumbers, Share};

/// The rule that decides which packets are lost on the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossModel {
    #[default]
    None,
    /// Each packet is lost with this probability.
    Random(Share),
    /// Losses in bursts: `p` is the probability of good → bad after a packet, `r` that of bad → good.
    GilbertElliott { p: Share, r: Share },
}

impl LossModel {
    /// The part of all packets that is lost in the long run.
    pub fn mean(self) -> f64 {
        match self {
            LossModel::None => 0.0,
            LossModel::Random(p) => p.as_f64(),
            LossModel::GilbertElliott { p, .. } if p == Share::ZERO => 0.0,
            LossModel::GilbertElliott { p, r } => p.as_f64() / (p.as_f64() + r.as_f64()),
        }
    }
}

impl fmt::Display for LossModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: &Share| share.percent().replace(' ', "");
        match self {
            LossModel::None => f.write_str("0%"),
            LossModel::Random(p) => f.write_str(&percent(p)),
            LossModel::GilbertElliott { p, r } => write!(f, "ge:{},{}", percent(p), percent(r)),
        }
    }
}

impl FromStr for LossModel {
    type Err = InvalidQuantity;

    /// Accepts `2%`, `0.02`, `0` and `ge:1%,30%`.
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        let refused = || InvalidQuantity {
            text: text.chars().take(40).collect(),
            expected: "a loss from 0% to 100%, such as 2%, or ge:P,R for bursts, such as ge:1%,30%",
        };
        let probability =
            |text: &str| text.trim().parse::<Share>().ok().filter(|share| *share <= Share::ONE).ok_or_else(refused);
        if let Some(bursts) = text.strip_prefix("ge:") {
            let (p, r) = bursts.split_once(',').ok_or_else(refused)?;
            return Ok(LossModel::GilbertElliott { p: probability(p)?, r: probability(r)? });
        }
        Ok(match probability(text)? {
            Share::ZERO => LossModel::None,
            p => LossModel::Random(p),
        })
    }
}

/// Decides packet by packet.
#[derive(Clone, Debug)]
pub struct LossSource {
    model: LossModel,
    numbers: RandomNumbers,
    is_bad: bool,
}

impl LossSource {
    pub fn new(model: LossModel, seed: u64) -> LossSource {
        LossSource { model, numbers: RandomNumbers::new(seed), is_bad: false }
    }

    /// Replaces the model; the random numbers and a burst go on.
    pub fn set(&mut self, model: LossModel) {
        self.is_bad &= matches!(model, LossModel::GilbertElliott { .. });
        self.model = model;
    }

    /// Whether the next packet is lost.
    pub fn next_is_lost(&mut self) -> bool {
        let drawn = self.numbers.uniform();
        match self.model {
            LossModel::None => false,
            LossModel::Random(p) => drawn < p.as_f64(),
            LossModel::GilbertElliott { p, r } => {
                let is_lost = self.is_bad;
                let changes = drawn < if self.is_bad { r.as_f64() } else { p.as_f64() };
                self.is_bad ^= changes;
                is_lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(percent: u32) -> Share {
        Share::from_ppm(percent * 10_000)
    }

    fn pattern(model: LossModel, seed: u64, packets: usize) -> Vec<bool> {
        let mut source = LossSource::new(model, seed);
        (0..packets).map(|_| source.next_is_lost()).collect()
    }

    fn lost(pattern: &[bool]) -> f64 {
        pattern.iter().filter(|lost| **lost).count() as f64 / pattern.len() as f64
    }

    #[test]
    fn a_model_parses_to_itself_and_nonsense_is_refused_with_the_accepted_form() {
        for text in ["0%", "2%", "0.5%", "100%", "ge:1%,30%", "ge:0%,100%"] {
            assert_eq!(text.parse::<LossModel>().unwrap().to_string(), text);
        }
        assert_eq!("0.02".parse(), Ok(LossModel::Random(share(2))));
        for text in ["", "101%", "-1%", "ge:1%", "ge:1%,200%", "ge:1%,2%,3%", "NaN", "all"] {
            let refusal = text.parse::<LossModel>().unwrap_err().to_string();
            assert!(refusal.contains("ge:1%,30%"), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_seed_names_one_pattern() {
        let model = LossModel::GilbertElliott { p: share(1), r: share(30) };
        assert_eq!(pattern(model, 7, 10_000), pattern(model, 7, 10_000));
        assert_ne!(pattern(model, 7, 10_000), pattern(model, 8, 10_000));
        let first: Vec<_> =
            (0..2_000).filter(|at| pattern(LossModel::Random(share(2)), 1, 2_000)[*at]).take(5).collect();
        assert_eq!(first, [98, 160, 221, 265, 340], "the pattern of a seed is a promise to those who publish it");
    }

    #[test]
    fn losses_of_gilbert_elliott_come_in_bursts_of_mean_length_1_over_r() {
        let pattern = pattern(LossModel::GilbertElliott { p: share(1), r: share(30) }, 3, 1_000_000);
        let bursts = pattern.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let mean = lost(&pattern) * pattern.len() as f64 / bursts as f64;
        assert!((mean - 1.0 / 0.3).abs() < 0.1, "{mean}");
    }

    #[test]
    fn a_change_to_another_model_ends_a_burst() {
        let mut source = LossSource::new(LossModel::GilbertElliott { p: Share::ONE, r: Share::ZERO }, 1);
        assert_eq!([source.next_is_lost(), source.next_is_lost()], [false, true]);
        source.set(LossModel::None);
        assert!(!source.next_is_lost());
        source.set(LossModel::GilbertElliott { p: Share::ZERO, r: Share::ZERO });
        assert!(!source.next_is_lost());
    }

    proptest! {
        /// Standard error of the mean of n packets: sqrt(m(1−m)/n · (2 − p − r)/(p + r)) for correlated losses; six of
        /// them are allowed, plus one burst for the begin in the state good.
        #[test]
        fn the_stationary_loss_is_p_over_p_plus_r(p in 1u32..60, r in 5u32..=100, seed: u64) {
            let model = LossModel::GilbertElliott { p: share(p), r: share(r) };
            let (n, m) = (60_000, model.mean());
            let (p, r) = (f64::from(p) / 100.0, f64::from(r) / 100.0);
            let error = (m * (1.0 - m) / n as f64 * ((2.0 - p - r) / (p + r)).max(0.01)).sqrt();
            let found = lost(&pattern(model, seed, n));
            prop_assert!((found - m).abs() < 6.0 * error + 1.0 / (r * n as f64) + 1e-3, "{found} instead of {m}");
        }

        #[test]
        fn the_loss_of_independent_packets_is_p(p in 0u32..=100, seed: u64) {
            let (n, p) = (40_000, f64::from(p) / 100.0);
            let found = lost(&pattern(LossModel::Random(Share::from_f64(p)), seed, n));
            prop_assert!((found - p).abs() <= 6.0 * (p * (1.0 - p) / n as f64).sqrt(), "{found} instead of {p}");
        }
    }
}
