//! The test cases 5.1 to 5.8 of RFC 8867 («Test Cases for Evaluating Congestion Control for Interactive Real-Time
//! Media», 2021), as links and flows. `qfabric lab` runs the user's commands over such a link, and `qfabric metp bench`
//! plays the flows.
//!
//! Common to all cases (§4.2): one-way propagation delay 50 ms, jitter of at most 30 ms from end to end, drop-tail queue
//! of 300 ms, no loss. A capacity is the reference capacity times a ratio that changes over time (Tables 1 to 4). The
//! rates count IP packets. Both directions have the capacity of the case, except in §5.3. The direction without media
//! gets the largest capacity of the case, because the RFC varies one path.
//!
//! Source of the numbers: the text of draft-ietf-rmcat-eval-test-03 (2016), which became the RFC; §5.5 names no capacity
//! there and has that of the authors' own test suite for ns-3. docs/design/0040-netlab.md says what was not compared.

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

/// A flow of media; times in seconds from the start of the test case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaFlow {
    pub direction: LinkDirection,
    /// Which address of the peer's end it goes to ([`LabSettings::paths`]).
    pub path: usize,
    pub begin: u64,
    pub end: u64,
    /// Nothing is sent between these times.
    pub pause: Option<(u64, u64)>,
}

impl fmt::Display for MediaFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MediaFlow { direction, path, begin, end, pause } = self;
        let direction = if *direction == LinkDirection::Up { "up" } else { "down" };
        write!(f, "{direction}, {begin} to {end} s")?;
        if *path > 0 {
            write!(f, ", path {path}")?;
        }
        match pause {
            Some((from, to)) => write!(f, ", pause {from} to {to} s"),
            None => Ok(()),
        }
    }
}

/// TCP beside media, with the kernel's usual congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpTraffic {
    /// One flow, as fast as it can (§5.6).
    Long,
    /// [`SHORT_TCP`] (§5.7).
    Short,
}

/// The short TCP flows of §5.7: each downloads files, with pauses between them.
#[derive(Clone, Debug)]
pub struct ShortTcp {
    pub flows: usize,
    /// Flows that begin with a download; the others begin with a pause.
    pub begin_at_once: usize,
    /// Sizes of the files in bytes, uniform.
    pub bytes: std::ops::RangeInclusive<u64>,
    /// Mean of the pauses in seconds, exponential.
    pub mean_pause: f64,
}

pub const SHORT_TCP: ShortTcp = ShortTcp { flows: 10, begin_at_once: 2, bytes: 100_000..=1_000_000, mean_pause: 10.0 };

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

    /// The media flows of the test case (the media timelines of §5). In the RFC, each has video of 150 kbit/s to 1.5 Mbit/s
    /// and audio of 20 kbit/s (§4.3).
    pub fn media(self) -> Vec<MediaFlow> {
        let up = |begin, end| MediaFlow { direction: LinkDirection::Up, path: 0, begin, end, pause: None };
        match self {
            Scenario::VariableCapacity => vec![up(0, 99)],
            Scenario::VariableCapacityManyFlows => vec![up(0, 125); 2],
            Scenario::CongestedFeedback => {
                vec![up(0, 99), MediaFlow { direction: LinkDirection::Down, ..up(0, 99) }]
            }
            Scenario::CompetingFlows => [0, 20, 40].map(|begin| up(begin, 119)).to_vec(),
            Scenario::RoundTripFairness => (0..5).map(|path| MediaFlow { path, ..up(10 * path as u64, 299) }).collect(),
            Scenario::LongTcp => vec![up(5, 119)],
            Scenario::ShortTcp => vec![up(5, 299); 2],
            Scenario::PauseAndResume => {
                vec![up(0, 119), MediaFlow { pause: Some((40, 60)), ..up(0, 119) }, up(0, 119)]
            }
        }
    }

    /// The TCP traffic up beside the media, from the start of the test case to its end.
    pub fn tcp(self) -> Option<TcpTraffic> {
        match self {
            Scenario::LongTcp => Some(TcpTraffic::Long),
            Scenario::ShortTcp => Some(TcpTraffic::Short),
            _ => None,
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

/// Before the number of the test case.
const PREFIX: &str = "rfc8867-";

impl FromStr for Scenario {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Scenario, InvalidQuantity> {
        let is_named =
            |scenario: &Scenario| scenario.name() == text || scenario.name().strip_prefix(PREFIX) == Some(text);
        let known = Scenario::ALL.into_iter().find(is_named);
        known.ok_or_else(|| InvalidQuantity {
            text: text.chars().take(40).collect(),
            expected: "a test case of RFC 8867: rfc8867-5.1 to rfc8867-5.8, or 5.1 to 5.8",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::LossModel;
    use crate::settings::QueueLimit;

    #[test]
    fn every_test_case_is_a_valid_link_and_ends_after_its_last_change() {
        for scenario in Scenario::ALL {
            let settings = scenario.settings(1);
            assert_eq!(settings.check(), Ok(()), "{scenario}");
            assert!(settings.schedule.length() < scenario.length());
            for name in [scenario.name(), &scenario.name()[PREFIX.len()..]] {
                assert_eq!(name.parse(), Ok(scenario));
            }
            let (paths, length) = (settings.paths.len(), scenario.length().get() / 1_000_000_000);
            assert!(
                scenario.media().iter().all(|flow| flow.begin < flow.end && flow.end <= length && flow.path < paths)
            );
        }
        assert!("rfc8867-5.9".parse::<Scenario>().unwrap_err().to_string().contains("rfc8867-5.1"));
    }

    /// A direction's capacity in kbit/s over time, as `SECONDS:CAPACITY`.
    fn capacity(settings: &LabSettings, direction: LinkDirection) -> String {
        let first = if direction == LinkDirection::Up { &settings.up.rate } else { &settings.down.rate };
        let steps = settings.schedule.steps.iter().filter(|step| step.directions.contains(&direction));
        let later = steps.filter_map(|step| Some((step.at.get() / 1_000_000_000, step.change.rate.as_ref()?)));
        let kbps = |rate: &LinkRate| match rate {
            LinkRate::Constant(rate) => rate.get() / 1_000,
            other => panic!("{other:?} is no capacity of the RFC"),
        };
        let all = std::iter::once((0, first)).chain(later);
        all.map(|(at, rate)| format!("{at}:{}", kbps(rate))).collect::<Vec<_>>().join(" ")
    }

    /// Tables 1 to 4, times the reference capacity, and the attributes of §4.2 and §5.1 to §5.8, from the source that
    /// the head of this file names.
    #[test]
    fn the_links_have_the_capacities_delays_and_queues_of_their_source() {
        let expected = [
            ("5.1", "0:1000 40:2500 60:600 80:1000", "0:2500"),
            ("5.2", "0:4000 25:2000 50:3500 75:1000 100:2000", "0:4000"),
            ("5.3", "0:2000 20:1000 40:500 60:2000", "0:2000 35:800 70:2000"),
            ("5.4", "0:3500", "0:3500"),
            ("5.5", "0:4000", "0:4000"),
            ("5.6", "0:2000", "0:2000"),
            ("5.7", "0:2000", "0:2000"),
            ("5.8", "0:3500", "0:3500"),
        ];
        for (number, up, down) in expected {
            let scenario: Scenario = number.parse().unwrap();
            let settings = scenario.settings(1);
            let capacities = [LinkDirection::Up, LinkDirection::Down].map(|one| capacity(&settings, one));
            assert_eq!(capacities, [up, down], "{scenario}");
            // Of §5.5, the shortest of the five paths.
            let delay = if scenario == Scenario::RoundTripFairness { 10 } else { 50 };
            let [delay, jitter, queue] = [delay, 30, 300].map(Nanos::from_millis);
            for link in [&settings.up, &settings.down] {
                let (rate, loss) = (link.rate.clone(), LossModel::None);
                assert_eq!(
                    *link,
                    LinkSettings { rate, queue: QueueLimit::Time(queue), delay, jitter, loss },
                    "{scenario}"
                );
            }
        }
    }

    #[test]
    fn the_flows_have_the_timelines_of_the_rfc() {
        let flows = |scenario: Scenario| scenario.media().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(flows(Scenario::CongestedFeedback), ["up, 0 to 99 s", "down, 0 to 99 s"]);
        assert_eq!(flows(Scenario::CompetingFlows), ["up, 0 to 119 s", "up, 20 to 119 s", "up, 40 to 119 s"]);
        assert_eq!(flows(Scenario::RoundTripFairness)[4], "up, 40 to 299 s, path 4");
        let paused = ["up, 0 to 119 s", "up, 0 to 119 s, pause 40 to 60 s", "up, 0 to 119 s"];
        assert_eq!(flows(Scenario::PauseAndResume), paused);
        assert_eq!(
            (flows(Scenario::LongTcp), Scenario::LongTcp.tcp()),
            (vec!["up, 5 to 119 s".into()], Some(TcpTraffic::Long))
        );
        assert_eq!((flows(Scenario::ShortTcp).len(), Scenario::ShortTcp.tcp()), (2, Some(TcpTraffic::Short)));
    }

    #[test]
    fn a_shortened_case_has_all_changes_sooner() {
        let mut settings = Scenario::VariableCapacity.settings(1);
        settings.schedule.shorten(10);
        let at: Vec<_> = settings.schedule.steps.iter().map(|step| step.at.to_string()).collect();
        assert_eq!(at, ["4 s", "6 s", "8 s"]);
    }

    #[test]
    fn the_paths_of_5_5_have_five_delays() {
        let settings = Scenario::RoundTripFairness.settings(1);
        let delays: Vec<_> = settings.paths.iter().map(|extra| (settings.up.delay + *extra).to_string()).collect();
        assert_eq!(delays, ["10 ms", "25 ms", "50 ms", "100 ms", "150 ms"]);
    }
}
