//! When which host is disturbed: the paper's times, shortened.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use qfabric_client::clock;

use crate::children::Stop;

/// Length of the paper's runs, and its disturbances, in seconds. The text gives no end of the client's one.
const PAPER: f64 = 420.0;
const AT_SERVER: (f64, f64) = (146.0, 250.0);
const AT_CLIENT: (f64, f64) = (330.0, 400.0);
/// A disturbance that is shorter is no disturbance of a rate that is counted per second.
const LEAST: f64 = 20.0;

/// The disturbances of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    seconds: f64,
}

/// Spinning programs begin or end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// Seconds since the begin of the run.
    pub at: f64,
    /// At the server; else at the client.
    pub at_server: bool,
    /// They begin; else they end.
    pub begins: bool,
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

    /// Begin and end of the server's disturbance, and of the client's, in seconds.
    pub fn disturbances(&self) -> [(f64, f64); 2] {
        [AT_SERVER, AT_CLIENT].map(|(begin, end)| (begin / self.factor(), end / self.factor()))
    }

    /// What happens, in the order of time.
    pub fn steps(&self) -> [Disturbance; 4] {
        let [server, client] = self.disturbances();
        [(server.0, true, true), (server.1, true, false), (client.0, false, true), (client.1, false, false)]
            .map(|(at, at_server, begins)| Disturbance { at, at_server, begins })
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [server, client] = self.disturbances();
        let (seconds, factor) = (self.seconds, self.factor());
        write!(
            f,
            "the paper's {PAPER} s are shortened to {seconds:.0} s, by a factor of {factor:.1}: the server is disturbed from \
             {:.1} to {:.1} s, the client from {:.1} to {:.1} s",
            server.0, server.1, client.0, client.1
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
        assert_eq!((timeline.factor(), timeline.disturbances()), (1.0, [(146.0, 250.0), (330.0, 400.0)]));
        assert!(timeline.steps().windows(2).all(|pair| pair[0].at < pair[1].at));
    }

    #[test]
    fn a_shortened_run_names_its_factor() {
        assert!(
            Timeline::of(42.0).to_string().contains("by a factor of 10.0: the server is disturbed from 14.6 to 25.0 s")
        );
        assert_eq!(Timeline::of(0.0).seconds(), LEAST);
    }
}
