//! The table of ratios with their spread.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attacks::Attack;
use crate::ordinary::{Batch, Samples};

/// The results of one attack.
#[derive(Serialize)]
pub(crate) struct Row {
    limit: &'static str,
    about: &'static str,
    pub holds: String,
    operations: BTreeMap<String, Both>,
}

/// The values of one operation in each round, alone and beside the hostile user.
#[derive(Default, Serialize)]
pub(crate) struct Both {
    alone: Vec<Quantiles>,
    hostile: Vec<Quantiles>,
    failed_alone: usize,
    failed_hostile: usize,
}

#[derive(Clone, Copy, Serialize)]
struct Quantiles {
    p50_us: f64,
    p99_us: f64,
}

impl Row {
    pub(crate) fn new(attack: &Attack) -> Row {
        Row { limit: attack.name, about: attack.about, holds: String::new(), operations: BTreeMap::new() }
    }

    /// Adds the results of a round.
    pub(crate) fn add(&mut self, alone: Batch, hostile: Batch) {
        for (operation, samples) in alone {
            let both = self.operations.entry(operation).or_default();
            both.failed_alone += samples.failed;
            both.alone.extend(quantiles(samples));
        }
        for (operation, samples) in hostile {
            let both = self.operations.entry(operation).or_default();
            both.failed_hostile += samples.failed;
            both.hostile.extend(quantiles(samples));
        }
    }
}

/// Returns `None` if all operations failed.
fn quantiles(mut samples: Samples) -> Option<Quantiles> {
    samples.ns.sort_unstable();
    let at = |part: f64| {
        let place = (samples.ns.len() as f64 * part) as usize;
        samples.ns.get(place.min(samples.ns.len().checked_sub(1)?)).map(|ns| *ns as f64 / 1e3)
    };
    Some(Quantiles { p50_us: at(0.5)?, p99_us: at(0.99)? })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Both {
    /// Formats the medians over all rounds, alone and beside, and the least, median and largest ratio of a round.
    fn of(&self, pick: fn(&Quantiles) -> f64) -> String {
        let (alone, hostile) = (median(self.alone.iter().map(pick)), median(self.hostile.iter().map(pick)));
        let ratios = || self.alone.iter().zip(&self.hostile).map(|(alone, hostile)| pick(hostile) / pick(alone));
        let (least, most) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
        format!("{alone:>9.0} {hostile:>9.0} {:>6.2}x ({least:.2} to {most:.2})", median(ratios()))
    }
}

pub(crate) fn print(rows: &[Row], rounds: usize, samples: usize) {
    println!(
        "Medians of {rounds} rounds of {samples} of each operation, in µs: alone, beside one hostile user, ratio (spread)."
    );
    for row in rows {
        println!("\n{}: {}; held: {}", row.limit, row.about, row.holds);
        for (operation, both) in &row.operations {
            let failed = match (both.failed_alone, both.failed_hostile) {
                (0, 0) => String::new(),
                (alone, hostile) => format!("  failed: {alone} alone, {hostile} beside"),
            };
            println!("  {operation:28} p50 {:42} p99 {}{failed}", both.of(|q| q.p50_us), both.of(|q| q.p99_us));
        }
    }
}
