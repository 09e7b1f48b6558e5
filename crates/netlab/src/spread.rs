//! One number over the repeated runs of an experiment.

use serde::Serialize;

/// Median, least and most of one number over all runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// `None` without a value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Some(Spread { median, least, most })
    }

    /// `MEDIAN (LEAST to MOST)`, or one number if all are shown in the same way.
    pub fn text(&self, show: impl Fn(f64) -> String) -> String {
        let [median, least, most] = [self.median, self.least, self.most].map(show);
        if least == most { median } else { format!("{median} ({least} to {most})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_all_runs_and_names_least_and_most() {
        let spread = Spread::of([3.0, 100.5, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 3.0, least: 2.0, most: 100.5 });
        assert_eq!(spread.text(|value| format!("{value:.1}")), "3.0 (2.0 to 100.5)");
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([2.0, 2.1]).unwrap().text(|value| format!("{value:.0}")), "2");
        assert_eq!(Spread::of([]), None);
    }
}
