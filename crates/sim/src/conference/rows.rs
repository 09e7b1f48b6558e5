//! The results of a run: one row per client.

use std::cell::RefCell;
use std::rc::Rc;

use super::apps::Seen;
use super::{Adaptation, Options, Scenario, WANTED, ladder};
use crate::fabric::experiments::Curve;

/// Seconds at the beginning that count in no result.
const WARM_UP: u64 = 5;
/// A stream has recovered when this part of the wanted rate is shown.
const RECOVERED: f64 = 0.9;

/// The result of one client.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    pub scenario: Scenario,
    pub adaptation: Adaptation,
    /// Name of the client's host.
    pub client: String,
    /// Mean over time of the worth of the levels, times the part of the wanted rate that was shown; 0 to 1.
    pub utility: f64,
    /// Pictures shown per second.
    pub rate_mean: f64,
    /// 99th percentile of the difference between the distance of two shown pictures and the period, in ms.
    pub jitter_p99_ms: f64,
    /// Longest time from the beginning of a disturbance until nine tenths of the wanted rate are shown again, in seconds;
    /// absent: there was no disturbance; −1: not before the disturbance ended.
    pub recovery_s: Option<f64>,
    /// Changes of the levels in the whole run.
    pub quality_changes: usize,
}

/// The result of a run.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Run {
    pub rows: Vec<Row>,
    /// Virtual time in seconds and rung of each change of the levels.
    pub changes: Vec<(f64, usize)>,
    /// Pictures shown per second by the first clients, and the rung.
    #[serde(skip)]
    pub curves: Vec<Curve>,
}

/// Clients whose curves are kept.
const CURVES: usize = 5;

impl Run {
    pub(super) fn new(options: &Options, changes: &[(f64, usize)], seen: &[Rc<RefCell<Seen>>]) -> Run {
        let rows = seen.iter().enumerate().map(|(at, seen)| {
            let seen = seen.borrow();
            row(options, format!("client{}", at + 1), changes.len(), &seen.shown)
        });
        let rates = |(at, seen): (usize, &Rc<RefCell<Seen>>)| Curve {
            name: format!("client{}", at + 1),
            points: per_second(&seen.borrow().shown, options.seconds)
                .into_iter()
                .enumerate()
                .map(|(second, (rate, _))| (second as f64, rate))
                .collect(),
        };
        let curves = seen.iter().enumerate().take(CURVES).map(rates).collect();
        Run { rows: rows.collect(), changes: changes.to_vec(), curves }
    }

    /// The mean of the clients' utilities.
    pub fn utility(&self) -> f64 {
        self.rows.iter().map(|row| row.utility).sum::<f64>() / self.rows.len().max(1) as f64
    }
}

/// For each second: pictures shown, and the sum of the worth of their levels.
fn per_second(shown: &[(f64, usize)], seconds: u64) -> Vec<(f64, f64)> {
    let lowest = ladder().lowest() as f64;
    let mut all = vec![(0.0, 0.0); seconds as usize];
    for (at, rung) in shown {
        if let Some((rate, worth)) = all.get_mut(*at as usize) {
            *rate += 1.0;
            *worth += 1.0 - *rung as f64 / (2.0 * lowest);
        }
    }
    all
}

fn row(options: &Options, client: String, quality_changes: usize, shown: &[(f64, usize)]) -> Row {
    let seconds: Vec<(f64, f64)> = per_second(shown, options.seconds).split_off(WARM_UP.min(options.seconds) as usize);
    let count = seconds.len().max(1) as f64;
    let utility = |(rate, worth): &(f64, f64)| worth / WANTED.max(*rate);
    Row {
        scenario: options.scenario,
        adaptation: options.adaptation,
        client,
        utility: seconds.iter().map(utility).sum::<f64>() / count,
        rate_mean: seconds.iter().map(|(rate, _)| rate).sum::<f64>() / count,
        jitter_p99_ms: jitter_p99(shown),
        recovery_s: recovery(options, shown),
        quality_changes,
    }
}

fn jitter_p99(shown: &[(f64, usize)]) -> f64 {
    let late = |pair: &[(f64, usize)]| (pair[1].0 - pair[0].0 - 1.0 / WANTED).abs() * 1e3;
    let from = shown.iter().position(|(at, _)| *at >= WARM_UP as f64).unwrap_or(shown.len());
    let mut all: Vec<f64> = shown[from..].windows(2).map(late).collect();
    all.sort_by(f64::total_cmp);
    all.get((all.len() * 99 / 100).min(all.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// The beginning of the first second in which nine tenths of the pictures are shown, since each disturbance.
fn recovery(options: &Options, shown: &[(f64, usize)]) -> Option<f64> {
    let length = options.seconds as f64;
    let needed = (RECOVERED * WANTED) as usize;
    let one = |(_, from, to): &(_, f64, f64)| {
        let (from, to) = (from * length, to * length);
        let times: Vec<f64> = shown.iter().map(|(at, _)| *at).filter(|at| (from..to).contains(at)).collect();
        // The effect of the disturbance comes with the first late pictures.
        let begin = times.windows(2).position(|pair| pair[1] - pair[0] > 1.3 / WANTED);
        let Some(begin) = begin else { return if times.is_empty() { -1.0 } else { 0.0 } };
        let full = times[begin..].windows(needed).find(|window| window[needed - 1] - window[0] <= 1.0);
        full.map_or(-1.0, |window| window[0] - from)
    };
    let all: Vec<f64> = options.scenario.disturbances().iter().map(one).collect();
    if all.iter().any(|time| *time < 0.0) {
        return Some(-1.0);
    }
    all.into_iter().max_by(f64::total_cmp)
}
