//! Rates and jitter of a run, from the times at which pictures were shown. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::RATE;
use super::scenes::{Adaptation, Scene};
use super::timeline::Timeline;

/// A rate of at least this fraction of the wanted one has recovered.
const RECOVERED: f64 = 0.95;
/// Seconds for which it has to last.
const LASTING: usize = 3;

/// A picture that was shown, as the client logs it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct ShownPicture {
    pub shown_ns: u64,
}

/// A second of the server, as it prints it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ServerSecond {
    pub at_ns: u64,
    pub generated: u32,
    pub level: String,
    pub level_changes: u32,
    pub worth: f64,
}

/// What a run looked like, second by second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Seconds since the begin, and pictures per second that the server generated.
    pub generated: Vec<(f64, f64)>,
    /// Pictures shown in each second.
    pub shown: Vec<u32>,
    /// Seconds since the begin of each shown picture, and how far its distance to the one before is from the period, in
    /// milliseconds.
    pub jitter_ms: Vec<(f64, f64)>,
    /// Seconds since the begin, and the level from there on.
    pub levels: Vec<(f64, String)>,
    /// Seconds since the begin, and what the level of the second before was worth.
    pub worth: Vec<(f64, f64)>,
    /// Changes of the level.
    pub level_changes: u32,
}

/// A client in a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConferenceRow {
    /// Letter of the scenario.
    pub scenario: String,
    /// What adapts.
    pub adaptation: Adaptation,
    /// Name of the client.
    pub client: String,
    /// Number of the run of this scenario, from 1.
    pub run: u32,
    /// 0 to 1: the mean over all seconds of the part of the wanted rate that was shown (at most 1) times what the level
    /// was worth (1 for the best level, 0.5 for the least one).
    pub utility: f64,
    /// Pictures shown per second.
    pub rate_mean: f64,
    /// 99th percentile of the jitter.
    pub jitter_p99_ms: f64,
    /// The longest recovery of all disturbances, in seconds; 0 if the rate was never lower. None: in one of them the rate did
    /// not come back.
    pub recovery_s: Option<f64>,
    /// One for each disturbance, in the order of time.
    pub recoveries: Vec<Recovery>,
    /// Changes of the level.
    pub quality_changes: u32,
}

/// What became of the rate in a disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recovery {
    /// `server`, `client`, `link`, or `pictures` for a strain of the whole run.
    pub strained: &'static str,
    /// Whether the rate was kept, came back, or did not.
    pub outcome: Outcome,
    /// From the begin of the disturbance until 95 % of the wanted rate were back for 3 s, before its end; 0 if the rate was never
    /// lower. None: it did not come back.
    pub seconds: Option<f64>,
}

/// Whether the rate of a disturbance was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The rate was never lower.
    Kept,
    /// It was lower, and came back.
    Recovered,
    /// It was lower until the end, or came back for less than 3 s.
    NotRecovered,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.outcome, self.seconds) {
            (Outcome::Recovered, Some(seconds)) => write!(f, "{} {seconds:.1} s", self.strained),
            (Outcome::Kept, _) => write!(f, "{} kept", self.strained),
            (Outcome::Recovered | Outcome::NotRecovered, _) => write!(f, "{} not", self.strained),
        }
    }
}

impl ConferenceRow {
    /// The longest recovery in seconds; infinite if the rate did not come back.
    pub(super) fn recovery(&self) -> f64 {
        self.recovery_s.unwrap_or(f64::INFINITY)
    }

    /// The recoveries in the order of time.
    pub(super) fn recoveries_text(&self) -> String {
        self.recoveries.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Whether both rows are of the same client, in runs of the same scenario with the same adaptation.
    pub(super) fn is_same_scenario(&self, other: &ConferenceRow) -> bool {
        let of = |row: &ConferenceRow| (row.scenario.clone(), row.adaptation, row.client.clone());
        of(self) == of(other)
    }
}

impl Series {
    /// From `begin` on, for `seconds`.
    pub(super) fn new(begin: u64, seconds: f64, shown: &[ShownPicture], server: &[ServerSecond]) -> Series {
        let since = |at: u64| (at as f64 - begin as f64) / 1e9;
        let within = |at: &f64| (0.0..seconds).contains(at);
        let mut series = Series { shown: vec![0; seconds.floor().max(1.0) as usize], ..Series::default() };
        for at in shown.iter().map(|picture| since(picture.shown_ns)).filter(within) {
            if let Some(count) = series.shown.get_mut(at as usize) {
                *count += 1;
            }
        }
        for pair in shown.windows(2) {
            let distance = pair[1].shown_ns.saturating_sub(pair[0].shown_ns) as f64 / 1e6;
            series.jitter_ms.push((since(pair[1].shown_ns), (distance - 1_000.0 / f64::from(RATE)).abs()));
        }
        series.jitter_ms.retain(|(at, _)| within(at));
        let rates = server.iter().map(|second| (since(second.at_ns), f64::from(second.generated) / 1e3));
        series.generated = rates.filter(|(at, _)| within(at)).collect();
        series.worth =
            server.iter().map(|second| (since(second.at_ns), second.worth)).filter(|(at, _)| within(at)).collect();
        for second in server.iter().filter(|second| within(&since(second.at_ns))) {
            if series.levels.last().is_none_or(|(_, level)| *level != second.level) {
                series.levels.push((since(second.at_ns), second.level.clone()));
            }
        }
        series.level_changes = server.last().map_or(0, |second| second.level_changes);
        series
    }

    /// The row of the client in the first run.
    pub(super) fn row(&self, scene: &Scene, timeline: &Timeline) -> ConferenceRow {
        let total: u32 = self.shown.iter().sum();
        let disturbed = timeline.disturbances(scene.strain).into_iter();
        let mut recoveries: Vec<Recovery> =
            disturbed.map(|one| self.recovery(one.place.name(), one.begin, one.end)).collect();
        if recoveries.is_empty() {
            recoveries.push(self.recovery("pictures", 0.0, timeline.seconds()));
        }
        let longest = |longest: f64, one: &Recovery| one.seconds.map(|seconds| longest.max(seconds));
        ConferenceRow {
            scenario: scene.name.to_owned(),
            adaptation: scene.adaptation,
            client: "client".into(),
            run: 1,
            utility: self.utility(),
            rate_mean: f64::from(total) / self.shown.len().max(1) as f64,
            jitter_p99_ms: self.jitter_p99(),
            recovery_s: recoveries.iter().try_fold(0.0, longest),
            recoveries,
            quality_changes: self.level_changes,
        }
    }

    fn utility(&self) -> f64 {
        let worth_at = |second: usize| {
            let known = self.worth.iter().find(|(at, _)| *at >= second as f64 + 1.0).or(self.worth.last());
            known.map_or(1.0, |(_, worth)| *worth)
        };
        let part = |shown: &u32| (f64::from(*shown) / f64::from(RATE)).min(1.0);
        let sum: f64 = self.shown.iter().enumerate().map(|(second, shown)| part(shown) * worth_at(second)).sum();
        sum / self.shown.len().max(1) as f64
    }

    fn jitter_p99(&self) -> f64 {
        let mut all: Vec<f64> = self.jitter_ms.iter().map(|(_, jitter)| *jitter).collect();
        all.sort_unstable_by(f64::total_cmp);
        let rank = (all.len() * 99).div_ceil(100);
        rank.checked_sub(1).and_then(|at| all.get(at)).copied().unwrap_or_default()
    }

    /// Only whole seconds between the begin and the end count: after the end the rate comes back by itself.
    fn recovery(&self, strained: &'static str, begin: f64, end: f64) -> Recovery {
        let first = begin.ceil() as usize;
        let seconds = self.shown.get(first..(end.floor() as usize).min(self.shown.len())).unwrap_or_default();
        let low = |shown: &u32| f64::from(*shown) < RECOVERED * f64::from(RATE);
        let Some(dropped) = seconds.iter().position(low) else {
            return Recovery { strained, outcome: Outcome::Kept, seconds: Some(0.0) };
        };
        let lasts = |seconds: &[u32]| !seconds.iter().any(low);
        match seconds[dropped..].windows(LASTING).position(lasts) {
            Some(back) => {
                let seconds = Some((first + dropped + back) as f64 - begin);
                Recovery { strained, outcome: Outcome::Recovered, seconds }
            }
            None => Recovery { strained, outcome: Outcome::NotRecovered, seconds: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Strain;
    use super::*;

    const SCENE: Scene = Scene { name: "a", adaptation: Adaptation::None, strain: Strain::Spinning };

    fn second(at: u64, worth: f64) -> ServerSecond {
        let level = if worth < 1.0 { "jpeg:15:352x288" } else { "jpeg:75:352x288" }.to_owned();
        ServerSecond { at_ns: at * 1_000_000_000, generated: 20_000, level, level_changes: 2, worth }
    }

    fn pictures(times_ms: impl IntoIterator<Item = u64>) -> Vec<ShownPicture> {
        times_ms.into_iter().map(|ms| ShownPicture { shown_ns: ms * 1_000_000 }).collect()
    }

    #[test]
    fn an_even_run_has_the_wanted_rate_no_jitter_and_nothing_to_recover_from() {
        let server = [second(2, 1.0)];
        let series = Series::new(1_000_000_000, 30.0, &pictures((0..700).map(|number| 50 * number)), &server);
        let row = series.row(&SCENE, &Timeline::of(30.0));
        assert_eq!((row.rate_mean, row.utility), (20.0, 1.0));
        assert_eq!((row.rate_mean, row.jitter_p99_ms, row.recovery_s, row.quality_changes), (20.0, 0.0, Some(0.0), 2));
        assert_eq!(row.recoveries.iter().map(ToString::to_string).collect::<Vec<_>>(), ["server kept", "client kept"]);
        assert_eq!(series.generated, [(1.0, 20.0)]);
    }

    #[test]
    fn recovery_counts_from_the_begin_of_the_disturbance_until_the_rate_lasts() {
        // 42 s: the server is disturbed from 14.6 s on. Five pictures a second until 19 s, a second of 20, one of 5.
        let slow = |second: u64| (15..19).contains(&second) || second == 20;
        let times = (0..42).flat_map(|second| {
            let step = if slow(second) { 200 } else { 50 };
            (0..1_000 / step).map(move |number| 1_000 * second + step * number)
        });
        let row = Series::new(0, 42.0, &pictures(times), &[]).row(&SCENE, &Timeline::of(42.0));
        assert!((row.recovery_s.unwrap() - 6.4).abs() < 1e-9, "{row:?}");
        assert_eq!(row.jitter_p99_ms, 150.0);
    }

    #[test]
    fn each_disturbance_has_its_own_recovery_which_ends_with_it() {
        // 42 s: server from 14.6 to 25 s, client from 33 to 40 s.
        let row = |slow: &dyn Fn(u64) -> bool| {
            let times = (0..42).flat_map(|second| {
                let step = if slow(second) { 200 } else { 50 };
                (0..1_000 / step).map(move |number| 1_000 * second + step * number)
            });
            Series::new(0, 42.0, &pictures(times), &[]).row(&SCENE, &Timeline::of(42.0))
        };
        let text = |row: &ConferenceRow| row.recoveries.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let client = row(&|second| (34..36).contains(&second));
        assert_eq!((text(&client).as_str(), client.recovery_s), ("server kept, client 3.0 s", Some(3.0)));
        let until_the_end = row(&|second| (16..25).contains(&second));
        assert_eq!((text(&until_the_end).as_str(), until_the_end.recovery_s), ("server not, client kept", None));
    }

    #[test]
    fn a_run_without_pictures_has_a_row() {
        let row = Series::new(0, 42.0, &[], &[]).row(&SCENE, &Timeline::of(42.0));
        assert_eq!((row.rate_mean, row.utility, row.recovery_s), (0.0, 0.0, None));
    }

    #[test]
    fn utility_is_the_part_of_the_rate_times_the_worth_of_the_level() {
        // Ten seconds of the best level with half of the rate, ten of the least level with the whole rate.
        let times = (0..10).flat_map(|second| (0..10).map(move |number| 1_000 * second + 100 * number));
        let more = (10..20).flat_map(|second| (0..20).map(move |number| 1_000 * second + 50 * number));
        let server: Vec<_> = (1..=20).map(|at| second(at, if at <= 10 { 1.0 } else { 0.5 })).collect();
        let series = Series::new(0, 20.0, &pictures(times.chain(more)), &server);
        assert!((series.utility() - 0.5).abs() < 1e-9, "{}", series.utility());
        assert_eq!(series.levels.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1.0, 11.0]);
    }
}
