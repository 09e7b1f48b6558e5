//! The ladder of qualities: the native half of `Ladder`.

use pyo3::prelude::*;
use qfabric_client::ladder::{Dimension, Move, Reason, Terms};
use qfabric_client::{Instant, Ladder, Nanos};

use crate::ecalls::value_error;
use crate::errors::explained;

/// The rungs before and after a step, the kind of reason, and its text.
type Step = (usize, usize, &'static str, String);

/// The state of the ladder of one encoder. A pure calculation, without a daemon.
#[pyclass]
pub(crate) struct NativeLadder(Ladder);

/// A time that must not be negative or NaN.
pub(crate) fn time(what: &str, ms: f64) -> PyResult<Nanos> {
    match ms >= 0.0 {
        true => Ok(Nanos::from_f64(ms * 1e6)),
        false => Err(value_error(format!("{what} is {ms}; use milliseconds, 0 or more"))),
    }
}

fn instant(seconds: f64) -> PyResult<Instant> {
    time("now", 1e3 * seconds).map(|since| Instant::ZERO + since)
}

fn step(made: Move) -> Step {
    let kind = match made.reason {
        Reason::TooSlow { .. } => "too slow",
        Reason::Kept { .. } => "kept",
        Reason::Asked => "asked for",
    };
    (made.from, made.to, kind, made.reason.to_string())
}

#[pymethods]
impl NativeLadder {
    #[new]
    #[pyo3(signature = (dimensions, wanted, *, lower_below=None, kept_above=None, dwell_ms=None, calm_ms=None,
        probe_ms=None, after_failure_ms=None, most_wait_ms=None))]
    #[allow(clippy::too_many_arguments)] // Python's keyword arguments
    fn new(
        dimensions: Vec<(String, Vec<i64>)>,
        wanted: f64,
        lower_below: Option<f64>,
        kept_above: Option<f64>,
        dwell_ms: Option<f64>,
        calm_ms: Option<f64>,
        probe_ms: Option<f64>,
        after_failure_ms: Option<f64>,
        most_wait_ms: Option<f64>,
    ) -> PyResult<Self> {
        let usual = Terms::new(wanted);
        let or = |what: &str, given: Option<f64>, usual| given.map_or(Ok(usual), |ms| time(what, ms));
        let terms = Terms {
            wanted,
            lower_below: lower_below.unwrap_or(usual.lower_below),
            kept_above: kept_above.unwrap_or(usual.kept_above),
            dwell: or("dwell_ms", dwell_ms, usual.dwell)?,
            calm: or("calm_ms", calm_ms, usual.calm)?,
            probe: or("probe_ms", probe_ms, usual.probe)?,
            after_failure: or("after_failure_ms", after_failure_ms, usual.after_failure)?,
            most_wait: or("most_wait_ms", most_wait_ms, usual.most_wait)?,
        };
        let dimensions = dimensions.into_iter().map(|(name, levels)| Dimension { name, levels }).collect();
        let made = Ladder::new(dimensions, terms).map(NativeLadder);
        made.map_err(|error| explained(value_error(&error), &error.problem()))
    }

    fn on_rate(&mut self, achieved: f64, now: f64) -> PyResult<Option<Step>> {
        Ok(self.0.on_rate(achieved, instant(now)?).map(step))
    }

    fn relieve(&mut self, now: f64) -> PyResult<bool> {
        Ok(self.0.relieve(instant(now)?))
    }

    fn move_to(&mut self, rung: usize, now: f64) -> PyResult<Option<Step>> {
        Ok(self.0.move_to(rung, instant(now)?).map(step))
    }

    fn rung(&self) -> usize {
        self.0.rung()
    }

    fn lowest(&self) -> usize {
        self.0.lowest()
    }

    fn levels(&self) -> Vec<(String, i64)> {
        self.0.levels().map(|(name, level)| (name.to_owned(), level)).collect()
    }
}
