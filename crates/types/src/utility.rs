//! Utility functions: what an application or its user gains from each level of a metric (thesis §2.1, Figure 5).

use serde::{Deserialize, Serialize};

use crate::Share;
use crate::api::Problem;

/// The metrics of an application and what each is worth; a part of its contract. U = w·Σ Uⱼ(qⱼ), where w is the
/// contract's weight. In a file, each metric is a table `[[metrics]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Utility {
    /// 1 to [`Utility::MOST_METRICS`] metrics.
    pub metrics: Vec<UtilityMetric>,
}

/// A metric with its QoS range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UtilityMetric {
    /// Such as `frame_rate`.
    pub name: String,
    /// Q(min): the least acceptable level, in the metric's own unit. A higher level is better.
    pub min: i64,
    /// Q(max): more has no value.
    pub max: i64,
    /// Distance between two levels.
    #[serde(default = "one")]
    pub step: i64,
    /// U: E-code with one function from the level to the utility, 0 to 1,000,000,000. It must not decrease.
    pub utility: String,
    /// E-code with one function from the level to the CPU time that it takes, in millionths of one CPU. It must not
    /// decrease.
    pub cpu: String,
}

fn one() -> i64 {
    1
}

impl Utility {
    /// Limit of the metrics of an application.
    pub const MOST_METRICS: usize = 4;
    /// Limit of the levels of a metric.
    pub const MOST_LEVELS: usize = 64;
    /// Limit of a text, in bytes.
    pub const MOST_TEXT: usize = 4_096;

    /// Checks names, ranges and lengths; the texts are compiled where the contract is admitted.
    ///
    /// # Errors
    /// [`InvalidUtility`], with the metric, the value and the accepted range.
    pub fn check(&self) -> Result<(), InvalidUtility> {
        if !(1..=Utility::MOST_METRICS).contains(&self.metrics.len()) {
            return Err(InvalidUtility::Metrics { found: self.metrics.len() });
        }
        self.metrics.iter().try_for_each(UtilityMetric::check)?;
        let repeated = |at: usize| self.metrics[..at].iter().any(|other| other.name == self.metrics[at].name);
        match (0..self.metrics.len()).find(|at| repeated(*at)) {
            Some(at) => Err(InvalidUtility::Repeated { name: self.metrics[at].name.clone() }),
            None => Ok(()),
        }
    }
}

impl UtilityMetric {
    /// The levels from the minimum to the maximum; the last step may be shorter. Empty if the range is.
    pub fn levels(&self) -> impl Iterator<Item = i64> {
        let (min, max, step) = (self.min, self.max, self.step.max(1));
        let next = move |level: &i64| (*level < max).then(|| level.saturating_add(step).min(max));
        std::iter::successors((min <= max).then_some(min), next)
    }

    fn check(&self) -> Result<(), InvalidUtility> {
        let name = self.name.clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if !(1..=32).contains(&name.len()) || !name.chars().all(is_plain) {
            return Err(InvalidUtility::Name { name });
        }
        if self.min > self.max {
            return Err(InvalidUtility::Range { name, min: self.min, max: self.max });
        }
        if self.step < 1 {
            return Err(InvalidUtility::Step { name, step: self.step });
        }
        let found = self.levels().take(Utility::MOST_LEVELS + 1).count();
        if found > Utility::MOST_LEVELS {
            return Err(InvalidUtility::Levels { name, min: self.min, max: self.max, step: self.step });
        }
        match [&self.utility, &self.cpu].into_iter().find(|text| text.len() > Utility::MOST_TEXT) {
            Some(text) => Err(InvalidUtility::Text { name, length: text.len() }),
            None => Ok(()),
        }
    }
}

/// A utility contains an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
#[allow(missing_docs)] // the messages explain the fields
pub enum InvalidUtility {
    Metrics { found: usize },
    Name { name: String },
    Repeated { name: String },
    Range { name: String, min: i64, max: i64 },
    Step { name: String, step: i64 },
    Levels { name: String, min: i64, max: i64, step: i64 },
    Text { name: String, length: usize },
}

impl InvalidUtility {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            Self::Metrics { found } => {
                (format!("the utility has {found} metrics"), format!("use 1 to {}", Utility::MOST_METRICS))
            }
            Self::Name { name } => (
                format!("metric {name:?} has an invalid name"),
                "use 1 to 32 letters, digits, `_`, `-` and `.`".to_owned(),
            ),
            Self::Repeated { name } => {
                (format!("metric {name} is named twice"), "give each metric one table".to_owned())
            }
            Self::Range { name, min, max } => {
                (format!("metric {name}: the minimum {min} is above the maximum {max}"), "exchange them".to_owned())
            }
            Self::Step { name, step } => (format!("metric {name}: step is {step}"), "use 1 or more".to_owned()),
            Self::Levels { name, min, max, step } => {
                let most = Utility::MOST_LEVELS;
                let message = format!("metric {name}: {min} to {max} in steps of {step} are more than {most} levels");
                (message, "use a longer step".to_owned())
            }
            Self::Text { name, length } => {
                (format!("metric {name}: a text of {length} bytes"), format!("use at most {}", Utility::MOST_TEXT))
            }
        };
        Problem::new("invalid_contract", message, next_step)
    }
}

/// The utility of an application at the share that it is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UtilityStatus {
    /// Σ Uⱼ at the levels below, without the weight; 0 if the grant does not suffice for the minima.
    pub utility: u64,
    /// Σ Uⱼ at the maximum of each metric.
    pub most: u64,
    /// The CPU time of the levels below.
    pub needs: Share,
    /// The best levels that the grant suffices for; the minima if it does not suffice for them.
    pub levels: Vec<MetricLevel>,
}

/// The level of a metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetricLevel {
    pub metric: String,
    /// In the metric's own unit.
    pub level: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(min: i64, max: i64, step: i64) -> UtilityMetric {
        let text = || "int f(int x) { return x; }".to_owned();
        UtilityMetric { name: "rate".to_owned(), min, max, step, utility: text(), cpu: text() }
    }

    #[test]
    fn levels_go_from_the_minimum_to_the_maximum() {
        let levels = |min, max, step| metric(min, max, step).levels().collect::<Vec<_>>();
        assert_eq!(levels(5, 25, 10), [5, 15, 25]);
        assert_eq!(levels(5, 24, 10), [5, 15, 24], "the last step is shorter");
        assert_eq!(levels(7, 7, 1), [7]);
        assert_eq!(levels(i64::MAX - 1, i64::MAX, 5), [i64::MAX - 1, i64::MAX]);
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_its_metric() {
        let refusal = |metrics: Vec<UtilityMetric>| Utility { metrics }.check().unwrap_err().to_string();
        assert!(refusal(Vec::new()).contains("0 metrics"));
        assert!(refusal(vec![metric(2, 1, 1)]).contains("the minimum 2 is above the maximum 1"));
        assert!(refusal(vec![metric(0, 9, 0)]).contains("step is 0"));
        assert!(refusal(vec![metric(i64::MIN, i64::MAX, 1)]).contains("more than 64 levels"));
        assert!(refusal(vec![metric(0, 1, 1), metric(0, 1, 1)]).contains("twice"));
        assert!(refusal(vec![UtilityMetric { name: "a\nb".to_owned(), ..metric(0, 1, 1) }]).contains("a\\nb"));
        assert!(refusal(vec![UtilityMetric { cpu: " ".repeat(5_000), ..metric(0, 1, 1) }]).contains("5000 bytes"));
        assert_eq!(Utility { metrics: vec![metric(0, 63, 1)] }.check(), Ok(()));
    }
}
