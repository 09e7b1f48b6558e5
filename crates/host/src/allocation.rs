//! Rules under test for dividing the capacity while jobs compete. All are off by default; `docs/design/0021` has the
//! questions and the results. Loads are in millionths of one CPU.
//!
//! ```text
//!                       needs > 100 %                          mean of 24 jobs > 100 %
//!   giving back --------------------------> full    giving back ----------------------> hold
//!        ^---------- needs <= 95 % -----------'          ^--------- mean <= 95 % ---------'
//! ```
//! In `full`, the rules `floor` and `in-time` change what running applications request. In `hold`, every application
//! holds its share, as static GRUB does, and none gives back.

use std::fmt;
use std::str::FromStr;

use qfabric_types::{Nanos, Share};

use crate::app::LEAD;

/// A state of too much load begins above this percentage of the capacity …
const BEGINS_PERCENT: u64 = 100;
/// … and ends at or below this one.
const ENDS_PERCENT: u64 = 95;
/// Number of jobs over which the load of an application is averaged: two groups of pictures.
const JOBS: u64 = 24;

/// The rules for dividing the capacity while jobs compete that are under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Time before a release at which a resting thread takes back its bandwidth; one server period if that is shorter.
    pub lead: Nanos,
    /// While the needs exceed the capacity, no running application requests less than its share.
    pub floor: bool,
    /// While the needs exceed the capacity, an application whose next job cannot be in time requests no more than its
    /// share. The rest stays free, and GRUB lends it.
    pub in_time: bool,
    /// In overload, every application holds its share, and none gives back. `None`: this never happens.
    pub overload: Option<Measure>,
}

/// The measure of an overload: the sum of these values over all applications, each the mean of the last 24 jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Cost of a job divided by its period. Late jobs do not raise it.
    Costs,
    /// The request of the controller, which is larger when late jobs leave less time for the next one.
    Requests,
}

impl Allocation {
    /// The rules in force by default.
    pub const DEFAULT: Allocation = Allocation { lead: LEAD, floor: false, in_time: false, overload: None };
}

impl Default for Allocation {
    fn default() -> Self {
        Allocation::DEFAULT
    }
}

impl fmt::Display for Allocation {
    /// In the form that [`Allocation::from_str`] accepts; `default` without any rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.lead != LEAD {
            words.push(format!("lead={}us", self.lead.get() / 1_000));
        }
        if self.floor {
            words.push("floor".to_owned());
        }
        if self.in_time {
            words.push("in-time".to_owned());
        }
        match self.overload {
            Some(Measure::Costs) => words.push("overload=costs".to_owned()),
            Some(Measure::Requests) => words.push("overload=requests".to_owned()),
            None => (),
        }
        f.pad(&if words.is_empty() { "default".to_owned() } else { words.join(",") })
    }
}

/// A text names no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rule; use default, floor, in-time, overload=costs, overload=requests or lead=4ms")]
pub struct InvalidAllocation(String);

impl FromStr for Allocation {
    type Err = InvalidAllocation;

    /// Accepts rules separated by commas, such as `floor,lead=4ms`. Each changes one field of the default.
    fn from_str(text: &str) -> Result<Self, InvalidAllocation> {
        let mut rules = Allocation::DEFAULT;
        for word in text.split(',') {
            let refused = || InvalidAllocation(word.to_owned());
            match word.trim() {
                "default" => (),
                "floor" => rules.floor = true,
                "in-time" => rules.in_time = true,
                "overload=costs" => rules.overload = Some(Measure::Costs),
                "overload=requests" => rules.overload = Some(Measure::Requests),
                other => {
                    let lead = other.strip_prefix("lead=").ok_or_else(refused)?;
                    rules.lead = lead.parse().map_err(|_| refused())?;
                }
            }
        }
        Ok(rules)
    }
}

/// The present load of a host, as the rules see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// The needs of all jobs exceed the capacity, and a rule depends on that.
    pub full: bool,
    /// Every application holds its share.
    pub hold: bool,
}

impl Load {
    /// The load after this one, if the applications need `needs` now and `mean` over their last jobs.
    pub(crate) fn next(self, rules: &Allocation, (needs, mean): (u64, u64), capacity: u64) -> Load {
        Load {
            full: (rules.floor || rules.in_time) && exceeds(self.full, needs, capacity),
            hold: rules.overload.is_some() && exceeds(self.hold, mean, capacity),
        }
    }
}

fn exceeds(before: bool, sum: u64, capacity: u64) -> bool {
    sum * 100 > capacity * if before { ENDS_PERCENT } else { BEGINS_PERCENT }
}

/// The mean of the last [`JOBS`] values: a plain mean at first, then an exponential one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mean {
    ppm: u64,
    values: u64,
}

impl Mean {
    pub(crate) const NONE: Mean = Mean { ppm: 0, values: 0 };

    pub(crate) fn add(&mut self, value: Share) {
        self.values = (self.values + 1).min(JOBS);
        self.ppm = (self.ppm * (self.values - 1) + u64::from(value.ppm())) / self.values;
    }

    /// In millionths of one CPU; 0 without values.
    pub(crate) fn ppm(self) -> u64 {
        self.ppm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Allocation =
        Allocation { lead: Nanos::from_millis(4), floor: true, in_time: true, overload: Some(Measure::Requests) };

    #[test]
    fn rules_are_read_in_the_form_in_which_they_are_shown() {
        let costs = Allocation { overload: Some(Measure::Costs), ..Allocation::DEFAULT };
        for rules in [Allocation::DEFAULT, ALL, costs] {
            assert_eq!(rules.to_string().parse::<Allocation>(), Ok(rules), "{rules}");
        }
        assert_eq!(ALL.to_string(), "lead=4000us,floor,in-time,overload=requests");
        let two = Allocation { in_time: false, overload: None, ..ALL };
        assert_eq!("lead=4ms, floor".parse::<Allocation>(), Ok(two));
    }

    #[test]
    fn a_word_that_is_no_rule_is_refused_with_its_text() {
        for text in ["", "flor", "lead=4", "overload", "overload=misses", "floor,,in-time"] {
            let refusal = text.parse::<Allocation>().unwrap_err().to_string();
            assert!(refusal.contains("overload=costs"), "{refusal}");
        }
        assert!("floor,flor".parse::<Allocation>().unwrap_err().to_string().starts_with("\"flor\" is no rule"));
    }

    #[test]
    fn a_load_above_the_capacity_lasts_until_95_percent() {
        let mut load = Load::default();
        let sums =
            [(1_000, false), (1_001, true), (990, true), (951, true), (950, false), (1_000, false), (1_100, true)];
        for (sum, expected) in sums {
            load = load.next(&ALL, (sum, sum), 1_000);
            assert_eq!(load, Load { full: expected, hold: expected }, "{sum}");
        }
    }

    #[test]
    fn the_mean_follows_a_change_within_its_number_of_jobs() {
        let mut mean = Mean::default();
        mean.add(Share::from_ppm(400_000));
        mean.add(Share::from_ppm(200_000));
        assert_eq!(mean.ppm(), 300_000);
        (0..500).for_each(|_| mean.add(Share::from_ppm(100_000)));
        assert!(mean.ppm().abs_diff(100_000) < 100, "{}", mean.ppm());
    }

    proptest! {
        #[test]
        fn without_rules_no_load_changes_anything(sums: Vec<(u32, u32)>, capacity: u32) {
            let mut load = Load::default();
            for (needs, mean) in sums {
                load = load.next(&Allocation::DEFAULT, (needs.into(), mean.into()), capacity.into());
                prop_assert_eq!(load, Load::default());
            }
        }

        #[test]
        fn the_mean_lies_between_the_extreme_values(values in prop::collection::vec(0u32..2_000_000, 1..200)) {
            let mut mean = Mean::default();
            values.iter().for_each(|ppm| mean.add(Share::from_ppm(*ppm)));
            let (least, most) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
            // Each addition rounds down.
            prop_assert!(mean.ppm() + JOBS >= u64::from(least) && mean.ppm() <= u64::from(most));
        }
    }
}
