//! What is strained when: the paper's times, shortened.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use qfabric_client::clock;

use crate::children::Stop;

/// Length of the paper's runs, and its disturbances, in seconds. The text gives no end of the client's one.
pub(super) const PAPER: f64 = 420.0;
const AT_SERVER: (f64, f64) = (146.0, 250.0);
const AT_CLIENT: (f64, f64) = (330.0, 400.0);
/// A disturbance that is shorter is no disturbance of a rate that is counted per second.
const LEAST: f64 = 20.0;

/// What makes it hard to keep the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strain {
    /// Programs spin at the server, then at the client.
    Spinning,
    /// The link to the client is narrow.
    NarrowLink,
    /// Pictures whose coding costs more than a CPU has, from the beginning on.
    CostlyPictures,
}

impl Strain {
    /// In a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Strain::Spinning => "spinning programs",
            Strain::NarrowLink => "a narrow link",
            Strain::CostlyPictures => "costly pictures",
        }
    }
}

/// Where it is hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Programs spin at the server.
    Server,
    /// Programs spin at the client.
    Client,
    /// The link is narrow.
    Link,
}

impl Place {
    /// In a report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Server => "server",
            Place::Client => "client",
            Place::Link => "link",
        }
    }
}

/// A time in which something is strained, in seconds since the begin of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// What is strained.
    pub place: Place,
    /// Its begin.
    pub begin: f64,
    /// Its end.
    pub end: f64,
}

impl Disturbance {
    /// In a plot.
    pub(super) fn name(&self) -> &'static str {
        match self.place {
            Place::Server => "server disturbed",
            Place::Client => "client disturbed",
            Place::Link => "link limited to 14 kB/s",
        }
    }
}

/// A disturbance begins or ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Seconds since the begin of the run.
    pub at: f64,
    /// What is strained from now on, or is not any more.
    pub place: Place,
    /// It begins; else it ends.
    pub begins: bool,
}

/// The length of each run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    seconds: f64,
}

impl Timeline {
    /// The paper's times in a run of this length, 20 s at least.
    pub fn of(seconds: f64) -> Timeline {
        Timeline { seconds: seconds.max(LEAST) }
    }

    /// Length of the run.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// By how much it is shorter than the paper's.
    pub fn factor(&self) -> f64 {
        PAPER / self.seconds
    }

    /// The disturbances, in the order of time.
    pub fn disturbances(&self, strain: Strain) -> Vec<Disturbance> {
        let part = |place: Place, (begin, end): (f64, f64)| {
            let factor = self.factor();
            Disturbance { place, begin: begin / factor, end: end / factor }
        };
        match strain {
            Strain::Spinning => vec![part(Place::Server, AT_SERVER), part(Place::Client, AT_CLIENT)],
            Strain::NarrowLink => vec![part(Place::Link, (AT_SERVER.0, AT_CLIENT.1))],
            Strain::CostlyPictures => Vec::new(),
        }
    }

    /// What happens, in the order of time.
    pub fn steps(&self, strain: Strain) -> Vec<Step> {
        let both = |one: Disturbance| [(one.begin, true), (one.end, false)].map(|(at, begins)| (at, one.place, begins));
        let all = self.disturbances(strain).into_iter().flat_map(both);
        all.map(|(at, place, begins)| Step { at, place, begins }).collect()
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, factor) = (self.seconds, self.factor());
        let [server, client] = [AT_SERVER, AT_CLIENT].map(|(begin, end)| (begin / factor, end / factor));
        let length = match factor {
            1.0 => format!("each run has the paper's {PAPER} s"),
            _ => format!("the paper's {PAPER} s are shortened to {seconds:.0} s, by a factor of {factor:.1}"),
        };
        write!(
            f,
            "{length}: the server is disturbed from {:.1} to {:.1} s, the client from {:.1} to {:.1} s; in scenario e the link is \
             limited from {:.1} to {:.1} s",
            server.0, server.1, client.0, client.1, server.0, client.1
        )
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(super) fn now() -> u64 {
    clock::now().get()
}

/// Sleeps until `seconds` after `begin`, and reports each tenth of a second.
pub(super) fn sleep_until(begin: u64, seconds: f64, stop: &Stop, advance: &mut dyn FnMut(u64)) -> Result<()> {
    loop {
        stop.check()?;
        let passed = now().saturating_sub(begin) as f64 / 1e9;
        if passed >= seconds {
            return Ok(());
        }
        advance(passed as u64);
        std::thread::sleep(Duration::from_secs_f64((seconds - passed).min(0.1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_length_has_the_times_of_the_paper() {
        let timeline = Timeline::of(420.0);
        let times: Vec<_> =
            timeline.disturbances(Strain::Spinning).iter().map(|one| (one.place, one.begin, one.end)).collect();
        assert_eq!(times, [(Place::Server, 146.0, 250.0), (Place::Client, 330.0, 400.0)]);
        assert!(timeline.steps(Strain::Spinning).windows(2).all(|pair| pair[0].at < pair[1].at));
        assert!(timeline.to_string().starts_with("each run has the paper's 420 s"));
    }

    #[test]
    fn a_shortened_run_names_its_factor() {
        assert!(
            Timeline::of(42.0).to_string().contains("by a factor of 10.0: the server is disturbed from 14.6 to 25.0 s")
        );
        assert_eq!(Timeline::of(0.0).seconds(), LEAST);
    }
}
