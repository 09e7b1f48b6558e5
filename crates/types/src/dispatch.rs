//! The rules of a dispatch table: length of a slot, CPU time that stays free, and the order of the groups.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::api::Problem;
use crate::{InvalidSpec, Nanos, Share};

/// The order in which groups get the slots of a dispatch table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DispatchOrder {
    /// Rate-monotonic: the group with the shortest period first (QualMan §3.2).
    #[serde(rename = "rm")]
    RateMonotonic,
    /// Earliest deadline first: admits every sum up to the bound.
    #[default]
    #[serde(rename = "edf")]
    EarliestDeadline,
}

impl fmt::Display for DispatchOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DispatchOrder::RateMonotonic => "rm",
            DispatchOrder::EarliestDeadline => "edf",
        })
    }
}

impl FromStr for DispatchOrder {
    type Err = InvalidSpec;

    fn from_str(text: &str) -> Result<Self, InvalidSpec> {
        match text {
            "rm" => Ok(DispatchOrder::RateMonotonic),
            "edf" => Ok(DispatchOrder::EarliestDeadline),
            _ => Err(InvalidSpec { what: "order", text: text.to_owned(), expected: "rm or edf" }),
        }
    }
}

/// The rules of the dispatch tables of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchRules {
    /// Length of a slot.
    pub slot: Nanos,
    /// Least part of each frame that no group gets, for time-sharing work.
    pub free: Share,
    pub order: DispatchOrder,
}

impl Default for DispatchRules {
    fn default() -> Self {
        let (slot, free) = (Nanos::from_millis(10), Share::from_ppm(100_000));
        DispatchRules { slot, free, order: DispatchOrder::EarliestDeadline }
    }
}

/// A rule is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidDispatchRules {
    Slot { slot: Nanos },
    Free { free: Share },
}

impl InvalidDispatchRules {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            Self::Slot { slot } => {
                let (least, most) = DispatchRules::SLOTS;
                (format!("slot {slot} is out of range"), format!("use {least} to {most}, such as 10ms"))
            }
            Self::Free { free } => {
                let (least, most) = DispatchRules::FREE;
                (format!("free minimum {free} is out of range"), format!("use {least} to {most}"))
            }
        };
        Problem::new("invalid_dispatch_rules", message, next_step)
    }
}

impl DispatchRules {
    /// Shortest and longest slot.
    pub const SLOTS: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::from_millis(100));
    /// Smallest and largest free minimum. With less than 5 %, the kernel's real-time throttling would stop groups
    /// (`kernel.sched_rt_runtime_us` is 95 % by default).
    pub const FREE: (Share, Share) = (Share::from_ppm(50_000), Share::from_ppm(900_000));

    /// Checks all values.
    ///
    /// # Errors
    /// [`InvalidDispatchRules`], with the value and the accepted range.
    pub fn check(&self) -> Result<(), InvalidDispatchRules> {
        let (slots, free) = (Self::SLOTS, Self::FREE);
        if self.slot < slots.0 || self.slot > slots.1 {
            return Err(InvalidDispatchRules::Slot { slot: self.slot });
        }
        if self.free < free.0 || self.free > free.1 {
            return Err(InvalidDispatchRules::Free { free: self.free });
        }
        Ok(())
    }

    /// The share of one CPU that groups may get together.
    pub fn capacity(&self) -> Share {
        Share::ONE.saturating_sub(self.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_out_of_range_are_refused_with_the_accepted_values() {
        let rules = DispatchRules::default();
        assert_eq!(rules.check(), Ok(()));
        assert_eq!(rules.capacity(), Share::from_ppm(900_000));
        let short = DispatchRules { slot: Nanos::from_micros(999), ..rules };
        assert!(short.check().unwrap_err().to_string().contains("use 1 ms to 100 ms"));
        let full = DispatchRules { free: Share::from_ppm(49_999), ..rules };
        assert!(full.check().unwrap_err().to_string().contains("0.05"));
    }

    #[test]
    fn a_printed_order_parses_to_itself() {
        for order in [DispatchOrder::RateMonotonic, DispatchOrder::EarliestDeadline] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        assert!("fifo".parse::<DispatchOrder>().unwrap_err().to_string().contains("rm or edf"));
    }
}
