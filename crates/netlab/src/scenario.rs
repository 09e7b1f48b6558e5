//! The test cases 5.1 to 5.8 of RFC 8867 («Test Cases for Evaluating Congestion Control for Interactive Real-Time
//! Media», 2021), as links. The flows of each case are the user's commands; [`Scenario::flows`] says which.
//!
//! Common to all cases: one-way propagation delay 50 ms, jitter of at most 30 ms from end to end, drop-tail queue of
//! 300 ms, no loss. A capacity is the reference capacity times a ratio that changes over time. The rates count IP
//! packets. Both directions have the capacity of the case, except in 5.3. The direction without media gets the largest
//! capacity of the case, because the RFC varies one path.

use std::fmt;
use std::str::FromStr;

use qfabric_types::{BitRate, InvalidQuantity, Nanos};

use crate::schedule::Schedule;
use crate::settings::{LabSettings, LinkChange, LinkDirection, LinkRate, LinkSettings};

/// A test case of RFC 8867.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// 5.1 Variable available capacity with a single flow.
    VariableCapacity,
    /// 5.2 Variable available capacity with multiple flows.
    VariableCapacityManyFlows,
    /// 5.3 Congested feedback link with bidirectional media flows.
    CongestedFeedback,
    /// 5.4 Competing media flows with the same congestion control.
    CompetingFlows,
    /// 5.5 Round trip time fairness.
    RoundTripFairness,
    /// 5.6 Media flow competing with a long TCP flow.
    LongTcp,
    /// 5.7 Media flows competing with short TCP flows.
    ShortTcp,
    /// 5.8 Media pause and resume.
    PauseAndResume,
}

/// Seconds and capacity in kbit/s.
type Pattern = &'static [(u64, u64)];

impl Scenario {
    pub const ALL: [Scenario; 8] = [
        Scenario::VariableCapacity,
        Scenario::VariableCapacityManyFlows,
        Scenario::CongestedFeedback,
        Scenario::CompetingFlows,
        Scenario::RoundTripFairness,
        Scenario::LongTcp,
        Scenario::ShortTcp,
        Scenario::PauseAndResume,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Scenario::VariableCapacity => "rfc8867-5.1",
            Scenario::VariableCapacityManyFlows => "rfc8867-5.2",
            Scenario::CongestedFeedback => "rfc8867-5.3",
            Scenario::CompetingFlows => "rfc8867-5.4",
            Scenario::RoundTripFairness => "rfc8867-5.5",
            Scenario::LongTcp => "rfc8867-5.6",
            Scenario::ShortTcp => "rfc8867-5.7",
            Scenario::PauseAndResume => "rfc8867-5.8",
        }
    }

    /// The flows that the test case asks for.
    pub fn flows(self) -> &'static str {
        match self {
            Scenario::VariableCapacity => "one media flow up",
            Scenario::VariableCapacityManyFlows => "two media flows up",
            Scenario::CongestedFeedback => "one media flow up and one down",
            Scenario::CompetingFlows => "three media flows up, which start at 0, 20 and 40 s",
            Scenario::RoundTripFairness => "five media flows up, one to each address of $QFABRIC_LAB_PEERS, 10 s apart",
            Scenario::LongTcp => "one media flow and one long TCP flow up",
            Scenario::ShortTcp => {
                "two media flows up, and ten series of TCP downloads of 100 kB to 1 MB (uniform) with pauses of 10 s on \
                 average (exponential); two begin with a download, eight with a pause"
            }
            Scenario::PauseAndResume => "three media flows up, the first of which pauses from 40 s to 60 s",
        }
    }

    /// Length of the test case.
    pub fn length(self) -> Nanos {
        Nanos::from_millis(match self {
            Scenario::VariableCapacity | Scenario::CongestedFeedback => 100_000,
            Scenario::VariableCapacityManyFlows => 125_000,
            Scenario::CompetingFlows | Scenario::LongTcp | Scenario::PauseAndResume => 120_000,
            Scenario::RoundTripFairness | Scenario::ShortTcp => 300_000,
        })
    }

    /// Capacity over time, up and down.
    fn patterns(self) -> (Pattern, Pattern) {
        match self {
            Scenario::VariableCapacity => (&[(0, 1_000), (40, 2_500), (60, 600), (80, 1_000)], &[(0, 2_500)]),
            Scenario::VariableCapacityManyFlows => {
                (&[(0, 4_000), (25, 2_000), (50, 3_500), (75, 1_000), (100, 2_000)], &[(0, 4_000)])
            }
            Scenario::CongestedFeedback => {
                (&[(0, 2_000), (20, 1_000), (40, 500), (60, 2_000)], &[(0, 2_000), (35, 800), (70, 2_000)])
            }
            Scenario::CompetingFlows | Scenario::PauseAndResume => (&[(0, 3_500)], &[(0, 3_500)]),
            Scenario::RoundTripFairness => (&[(0, 4_000)], &[(0, 4_000)]),
            Scenario::LongTcp | Scenario::ShortTcp => (&[(0, 2_000)], &[(0, 2_000)]),
        }
    }

    /// The link of the test case.
    pub fn settings(self, seed: u64) -> LabSettings {
        let (delay, jitter) = (Nanos::from_millis(50), Nanos::from_millis(30));
        let link = LinkSettings { delay, jitter, ..LinkSettings::default() };
        let mut settings = LabSettings::symmetric(link, seed);
        let (up, down) = self.patterns();
        settings.up.rate = rate(up[0].1);
        settings.down.rate = rate(down[0].1);
        settings.schedule = schedule(up, down);
        if self == Scenario::RoundTripFairness {
            // One-way delays of 10, 25, 50, 100 and 150 ms.
            (settings.up.delay, settings.down.delay) = (Nanos::from_millis(10), Nanos::from_millis(10));
            settings.paths = [0, 15, 40, 90, 140].map(Nanos::from_millis).to_vec();
        }
        settings
    }
}

fn rate(kbps: u64) -> LinkRate {
    LinkRate::Constant(BitRate::new(kbps * 1_000))
}

fn schedule(up: Pattern, down: Pattern) -> Schedule {
    let of = |direction, pattern: Pattern| pattern[1..].iter().map(move |(at, kbps)| (*at, direction, *kbps));
    let mut steps: Vec<_> = of(LinkDirection::Up, up).chain(of(LinkDirection::Down, down)).collect();
    steps.sort_by_key(|(at, ..)| *at);
    let mut schedule = Schedule::default();
    for (at, direction, kbps) in steps {
        let change = LinkChange { rate: Some(rate(kbps)), ..LinkChange::default() };
        schedule.push(Nanos::from_millis(at * 1_000), &[direction], change);
    }
    schedule
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scenario {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Scenario, InvalidQuantity> {
        let known = Scenario::ALL.into_iter().find(|scenario| scenario.name() == text);
        known.ok_or_else(|| InvalidQuantity {
            text: text.chars().take(40).collect(),
            expected: "a test case of RFC 8867: rfc8867-5.1 to rfc8867-5.8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_case_is_a_valid_link_and_ends_after_its_last_change() {
        for scenario in Scenario::ALL {
            let settings = scenario.settings(1);
            assert_eq!(settings.check(), Ok(()), "{scenario}");
            assert!(settings.schedule.length() < scenario.length());
            assert_eq!(scenario.name().parse(), Ok(scenario));
        }
        assert!("rfc8867-5.9".parse::<Scenario>().unwrap_err().to_string().contains("rfc8867-5.1"));
    }

    #[test]
    fn the_capacity_of_5_1_follows_the_table_of_the_rfc() {
        let settings = Scenario::VariableCapacity.settings(1);
        assert_eq!((settings.up.rate.clone(), settings.up.delay), (rate(1_000), Nanos::from_millis(50)));
        let steps =
            settings.schedule.steps.iter().map(|step| (step.at.get() / 1_000_000_000, step.change.rate.clone()));
        let expected = [(40, 2_500), (60, 600), (80, 1_000)].map(|(at, kbps)| (at, Some(rate(kbps))));
        assert_eq!(steps.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_paths_of_5_5_have_five_delays() {
        let settings = Scenario::RoundTripFairness.settings(1);
        let delays: Vec<_> = settings.paths.iter().map(|extra| (settings.up.delay + *extra).to_string()).collect();
        assert_eq!(delays, ["10 ms", "25 ms", "50 ms", "100 ms", "150 ms"]);
    }
}
