//! The names of classes, predictors and choices of the law: `A`, `mma:3,12`, `left`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The class: the guarantee of a contract (AQuoSA §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Class {
    /// The target interval is invariant, is reached again within `h` jobs, and the error is zero for constant jobs.
    A,
    /// The target interval is reached again eventually.
    B,
    /// No guarantee; the remaining capacity is used as in class A.
    #[default]
    C,
}

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is unknown; use {expected}")]
pub struct InvalidSpec {
    /// The kind of name, such as `class`.
    pub what: &'static str,
    pub text: String,
    /// The known names.
    pub expected: &'static str,
}

impl FromStr for Class {
    type Err = InvalidSpec;
    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
        match text {
            "A" | "a" => Ok(Class::A),
            "B" | "b" => Ok(Class::B),
            "C" | "c" => Ok(Class::C),
            _ => Err(InvalidSpec { what: "class", text: text.to_owned(), expected: "A, B or C" }),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Class::A => "A",
            Class::B => "B",
            Class::C => "C",
        })
    }
}

/// The predictor of the interval `[h_k, H_k]` of the next computation time (AQuoSA §4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PredictorSpec {
    /// `ma:n`: moving average of the last `n` jobs.
    MovingAverage {
        /// Samples averaged.
        n: usize,
    },
    /// `mma:n,S`: `S` interleaved moving averages of `n` samples each.
    Interleaved {
        /// Samples per average.
        n: usize,
        /// Number of averages: the period of the sequence.
        lanes: usize,
    },
    /// `ol:n,N`: `n` taps found by least squares over `N` training jobs.
    LeastSquares {
        /// Taps.
        taps: usize,
        /// Training jobs.
        training: usize,
    },
    /// `pct:n,q`: the range from the (100−q)-th to the q-th percentile of the last `n` jobs.
    Percentile {
        n: usize,
        /// Percentile of the upper end, 50 to 100.
        percent: u8,
    },
    /// `hint:n`: regression of the last `n` jobs on their hints.
    Hint { n: usize },
}

/// Limit of the samples that a predictor keeps; bounds memory and the cost of one job.
const MAX_SAMPLES: usize = 4_096;
/// Limits of a least-squares problem, in taps and training jobs. It is solved on the control thread, once per task,
/// in about 2 ms at this size (measured by `cargo bench -p qfabric-control`, `train`).
const MAX_LEAST_SQUARES: (usize, usize) = (64, 512);
const PREDICTORS: &str = "ma:N, mma:N,S, ol:TAPS,TRAINING (at most 64,512), pct:N,PERCENT or hint:N, such as mma:3,12";

impl PredictorSpec {
    /// Number of jobs before the first prediction.
    pub const fn warm_up(self) -> usize {
        match self {
            PredictorSpec::MovingAverage { n } | PredictorSpec::Percentile { n, .. } | PredictorSpec::Hint { n } => n,
            PredictorSpec::Interleaved { n, lanes } => n * lanes,
            PredictorSpec::LeastSquares { training, .. } => training,
        }
    }
}

impl FromStr for PredictorSpec {
    type Err = InvalidSpec;

    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
        let refused = || InvalidSpec { what: "predictor", text: text.to_owned(), expected: PREDICTORS };
        let (name, numbers) = text.split_once(':').ok_or_else(refused)?;
        let numbers = numbers
            .split(',')
            .map(|n| n.trim().parse::<usize>().ok().filter(|n| (1..=MAX_SAMPLES).contains(n)))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(refused)?;
        match (name, numbers[..].as_ref()) {
            ("ma", &[n]) => Ok(PredictorSpec::MovingAverage { n }),
            ("mma", &[n, lanes]) if n * lanes <= MAX_SAMPLES => Ok(PredictorSpec::Interleaved { n, lanes }),
            ("ol", &[taps, training])
                if taps < training && taps <= MAX_LEAST_SQUARES.0 && training <= MAX_LEAST_SQUARES.1 =>
            {
                Ok(PredictorSpec::LeastSquares { taps, training })
            }
            ("pct", &[n, percent @ 50..=100]) => Ok(PredictorSpec::Percentile { n, percent: percent as u8 }),
            ("hint", &[n]) if n >= 2 => Ok(PredictorSpec::Hint { n }),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for PredictorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match *self {
            PredictorSpec::MovingAverage { n } => format!("ma:{n}"),
            PredictorSpec::Interleaved { n, lanes } => format!("mma:{n},{lanes}"),
            PredictorSpec::LeastSquares { taps, training } => format!("ol:{taps},{training}"),
            PredictorSpec::Percentile { n, percent } => format!("pct:{n},{percent}"),
            PredictorSpec::Hint { n } => format!("hint:{n}"),
        })
    }
}

impl Default for PredictorSpec {
    /// AQuoSA's predictor for the second video stream, with more samples for noisy machines.
    fn default() -> Self {
        PredictorSpec::MovingAverage { n: 12 }
    }
}

impl Serialize for PredictorSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PredictorSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The point of Theorem 2's interval that the law takes (AQuoSA §4.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// Left end: least bandwidth.
    #[default]
    Left,
    /// Mean of both ends: tolerates prediction errors of both signs best.
    Middle,
    /// Right end: tolerates jobs longer than predicted best.
    Right,
    /// Error zero in one step, if Fact 1 allows it.
    Zero,
    /// Least sum of the costs of bandwidth and of the uncertainty of the next error.
    Cost,
}

impl FromStr for Choice {
    type Err = InvalidSpec;
    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
        match text {
            "left" => Ok(Choice::Left),
            "middle" => Ok(Choice::Middle),
            "right" => Ok(Choice::Right),
            "zero" => Ok(Choice::Zero),
            "cost" => Ok(Choice::Cost),
            _ => Err(InvalidSpec {
                what: "choice",
                text: text.to_owned(),
                expected: "left, middle, right, zero or cost",
            }),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Choice::Left => "left",
            Choice::Middle => "middle",
            Choice::Right => "right",
            Choice::Zero => "zero",
            Choice::Cost => "cost",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_predictor_parses_to_itself() {
        for text in ["ma:12", "mma:3,12", "ol:36,60", "pct:64,95", "hint:24"] {
            assert_eq!(text.parse::<PredictorSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn unknown_predictors_are_refused_with_the_known_ones() {
        for text in [
            "",
            "ma",
            "ma:",
            "ma:0",
            "ma:99999",
            "mma:3",
            "mma:4000,4000",
            "ol:60,36",
            "ol:65,100",
            "ol:9,513",
            "pct:9,101",
            "kalman:3",
        ] {
            let refusal = text.parse::<PredictorSpec>().unwrap_err().to_string();
            assert!(refusal.contains("mma:3,12"), "{refusal}");
        }
    }
}
