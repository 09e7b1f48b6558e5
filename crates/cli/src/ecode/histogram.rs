//! Histograms of a field of events, in steps of powers of two, for `qfabric ecode trace --histogram`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Groups with a histogram of their own; events of further ones are counted together.
const MOST_GROUPS: usize = 64;
/// Width of the longest bar.
const BAR: u64 = 40;

/// Histograms of one field, one for each value of another field.
#[derive(Debug, Default)]
pub(super) struct Histograms {
    field: String,
    by: Option<String>,
    groups: BTreeMap<String, Histogram>,
    /// Events of groups beyond the bound.
    others: u64,
}

/// Counts of whole numbers by powers of two: step n > 0 has 2ⁿ⁻¹ to 2ⁿ - 1, step -n the same below zero.
#[derive(Clone, Debug, Default)]
struct Histogram {
    steps: BTreeMap<i32, u64>,
    count: u64,
    sum: f64,
    range: Option<(i128, i128)>,
}

impl Histograms {
    pub(super) fn new(field: String, by: Option<String>) -> Histograms {
        Histograms { field, by, ..Histograms::default() }
    }

    /// Counts an event. `group` is its value of the second field, as text.
    pub(super) fn add(&mut self, value: i128, group: String) {
        let has_room = self.groups.len() < MOST_GROUPS;
        match self.groups.get_mut(&group) {
            Some(histogram) => histogram.add(value),
            None if has_room => self.groups.entry(group).or_default().add(value),
            None => self.others += 1,
        }
    }

    pub(super) fn text(&self) -> String {
        let title = |group: &str| match &self.by {
            Some(by) => format!("{} with {by}={group}", self.field),
            None => self.field.clone(),
        };
        let mut text: String =
            self.groups.iter().map(|(group, histogram)| histogram.text(&title(group)) + "\n").collect();
        if self.groups.is_empty() {
            text = "no event\n".to_owned();
        }
        if self.others > 0 {
            text += &format!("{} more events have other values; only {MOST_GROUPS} are shown\n", self.others);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let group = |(group, histogram): (&String, &Histogram)| {
            let mut json = histogram.json();
            if self.by.is_some() {
                json["group"] = group.clone().into();
            }
            json
        };
        let groups: Vec<Value> = self.groups.iter().map(group).collect();
        json!({ "field": self.field, "by": self.by, "histograms": groups, "other_events": self.others })
    }
}

impl Histogram {
    fn add(&mut self, value: i128) {
        *self.steps.entry(step(value)).or_default() += 1;
        self.count += 1;
        self.sum += value as f64;
        let (least, largest) = self.range.unwrap_or((value, value));
        self.range = Some((least.min(value), largest.max(value)));
    }

    /// All steps from the first to the last, with their counts.
    fn rows(&self) -> impl Iterator<Item = (i128, i128, u64)> {
        let (first, last) = self.steps.keys().next().zip(self.steps.keys().next_back()).unwrap_or((&1, &0));
        (*first..=*last).map(|step| {
            let (low, high) = bounds(step);
            (low, high, self.steps.get(&step).copied().unwrap_or(0))
        })
    }

    fn text(&self, title: &str) -> String {
        let (least, largest) = self.range.unwrap_or_default();
        let mean = self.sum / self.count.max(1) as f64;
        let mut text = format!("{title}: {} events, least {least}, mean {mean:.1}, largest {largest}\n", self.count);
        let rows: Vec<(String, u64)> =
            self.rows().map(|(low, high, count)| (format!("{low} to {high}"), count)).collect();
        let width = rows.iter().map(|(range, _)| range.len()).max().unwrap_or(0);
        let most = rows.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        for (range, count) in rows {
            let bar = "█".repeat((count.saturating_mul(BAR).div_ceil(most)) as usize);
            text += &format!("  {range:>width$}  {count:>8}  {bar}\n");
        }
        text
    }

    fn json(&self) -> Value {
        let (least, largest) = self.range.unwrap_or_default();
        let steps: Vec<Value> = self
            .rows()
            .map(|(low, high, count)| json!({ "low": number(low), "high": number(high), "count": count }))
            .collect();
        json!({ "count": self.count, "least": number(least), "largest": number(largest),
                "mean": self.sum / self.count.max(1) as f64, "steps": steps })
    }
}

/// The step of a value: 0 for 0.
fn step(value: i128) -> i32 {
    let bits = (i128::BITS - value.unsigned_abs().leading_zeros()) as i32;
    if value < 0 { -bits } else { bits }
}

/// The least and the largest value of a step.
fn bounds(step: i32) -> (i128, i128) {
    let power = |bits: u32| 1i128 << bits.min(126);
    let (low, high) = match step.unsigned_abs() {
        0 => return (0, 0),
        bits => (power(bits - 1), power(bits) - 1),
    };
    if step < 0 { (-high, -low) } else { (low, high) }
}

/// Fields have at most 64 bits, so every bound that is shown fits into a number or is rounded.
fn number(value: i128) -> Value {
    i64::try_from(value)
        .map(Value::from)
        .or_else(|_| u64::try_from(value).map(Value::from))
        .unwrap_or(json!(value as f64))
}

/// A number of an event as a whole number, rounded down; `None`: the field is no number.
pub(super) fn whole(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    whole.or_else(|| number.as_f64().map(|float| float.floor() as i128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_by_powers_of_two() {
        let mut all = Histograms::new("len".into(), None);
        for value in [0, 1, 2, 3, 3, 4, 1500, -1, -5] {
            all.add(value, String::new());
        }
        let steps = all.json()["histograms"][0]["steps"].clone();
        let row = |low: i64| {
            let found = steps.as_array().unwrap().iter().find(|row| row["low"] == low).unwrap();
            (found["high"].as_i64().unwrap(), found["count"].as_u64().unwrap())
        };
        assert_eq!([0, 1, 2, 4, 8, 1024].map(row), [(0, 1), (1, 1), (3, 3), (7, 1), (15, 0), (2047, 1)]);
        assert_eq!([-7, -1].map(row), [(-4, 1), (-1, 1)]);
        let text = all.text();
        assert!(text.contains("len: 9 events, least -5, mean 167.4, largest 1500"), "{text}");
        assert!(
            text.lines().any(|line| line.trim_start().starts_with("2 to 3 ") && line.ends_with(&"█".repeat(40))),
            "{text}"
        );
    }

    #[test]
    fn every_group_has_a_histogram_and_their_number_is_bounded() {
        let mut all = Histograms::new("len".into(), Some("pid".into()));
        for group in 0..100 {
            all.add(7, group.to_string());
        }
        assert!(all.text().contains("len with pid=0: 1 events") && all.text().contains("36 more events"));
        let json = all.json();
        assert_eq!((json["histograms"].as_array().unwrap().len(), json["other_events"].as_u64()), (64, Some(36)));
        assert_eq!(Histograms::new("len".into(), None).text(), "no event\n");
    }

    #[test]
    fn the_largest_values_have_a_step() {
        for value in [i128::from(u64::MAX), i128::from(i64::MIN), i128::from(i64::MAX), 1 << 100, i128::MIN] {
            let (low, high) = bounds(step(value));
            assert!(value == i128::MIN || (low..=high).contains(&value), "{value}");
        }
        assert_eq!(whole(&json!(2.9)), Some(2));
        assert_eq!((whole(&json!(u64::MAX)), whole(&json!([1]))), (Some(i128::from(u64::MAX)), None));
    }
}
