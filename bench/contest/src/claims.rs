//! What was promised of the results, each a check that can fail.

use crate::regime::Competitor;
use crate::row::Row;

/// From the end of a stream's bound to what the viewer may see: the way through the interface and one wake-up, µs.
const GRACE_US: f64 = 1_000.0;
/// Θ + T of the stream with both, µs.
const BOUND_US: f64 = 55_000.0;
/// What players must reach of their frame rate.
const FRAMES: f64 = 0.98;
/// Fewer players than this leave the fair scheduler enough for all.
const CROWD: f64 = 15.0;

/// What does not hold, in words; empty: everything holds. Rows of experiments that were not run claim nothing.
pub fn broken(rows: &[Row]) -> Vec<String> {
    rows.iter()
        .filter_map(|row| Some(format!("{} of {}: {}", row.competitor.name(), row.setting, fault(row)?)))
        .collect()
}

fn fault(row: &Row) -> Option<String> {
    use Competitor::*;
    match (row.experiment.as_str(), row.competitor) {
        ("windows", Ext | ExtEvents | Deadline) => refusal(row).or_else(|| misses(row)),
        ("overload", Deadline) => row.refused.is_none().then(|| "took a set of more than one CPU".to_owned()),
        ("overload", Ext | ExtEvents) => refusal(row).or_else(|| violated(row)),
        ("rate" | "storm", Ext | ExtEvents) => refusal(row).or_else(|| slow(row)),
        ("rate", Default) if row.x >= CROWD => {
            (row.achieved() >= FRAMES).then(|| "reaches it too: the test separates nothing".to_owned())
        }
        ("packets", Dwcs) => violated(row),
        ("both", Together) => violated(row).or_else(|| misses(row)).or_else(|| old(row)),
        ("both", Neither) => (row.mean(|t| t.rate_in_time) > 0.5 * row.mean(|t| t.wanted))
            .then(|| "is in time as well: the test separates nothing".to_owned()),
        _ => None,
    }
}

fn refusal(row: &Row) -> Option<String> {
    row.refused.as_ref().map(|why| format!("refused: {why}"))
}

fn misses(row: &Row) -> Option<String> {
    let missed = row.sum(|task| task.missed);
    (missed > 0).then(|| format!("{missed} of {} periods missed", row.sum(|task| task.periods)))
}

/// As the tasks saw it, and as the scheduler counted.
fn violated(row: &Row) -> Option<String> {
    let (seen, counted) = (row.sum(|task| task.violations), row.counted.iter().map(|c| c.violations).sum::<u64>());
    (seen + counted > 0).then(|| format!("{seen} windows violated, the scheduler counted {counted}"))
}

fn slow(row: &Row) -> Option<String> {
    let achieved = row.achieved();
    (achieved < FRAMES).then(|| format!("{:.2} % of the frame rate, {} % wanted", 100.0 * achieved, 100.0 * FRAMES))
}

fn old(row: &Row) -> Option<String> {
    let oldest = row.max(|task| task.delay.max);
    (oldest > BOUND_US + GRACE_US).then(|| format!("a frame came after {oldest} µs, Θ + T is {BOUND_US} µs"))
}

#[cfg(test)]
mod tests {
    use qfabric_types::{ServerCounts, Window};

    use super::*;
    use crate::row::{Host, Task};
    use crate::trace::{Job, Trace};

    fn row(experiment: &str, competitor: Competitor, missed: u64) -> Row {
        let job =
            |period: u64| Job { period, release: period * 10, woke: period * 10, end: period * 10 + 5, complete: true };
        let trace = Trace { period: 10, phase: 0, periods: 10, jobs: (missed..10).map(job).collect(), cpu: 0 };
        Row {
            experiment: experiment.to_owned(),
            competitor,
            setting: "a test".to_owned(),
            x: 20.0,
            round: 0,
            refused: None,
            tasks: vec![Task::of(&trace, Window::new(1, 5).unwrap())],
            counted: vec![],
            others: 0.0,
            host: Host::default(),
        }
    }

    #[test]
    fn what_holds_is_not_told() {
        let fine =
            [row("windows", Competitor::Ext, 0), row("overload", Competitor::Ext, 1), row("rate", Competitor::Ext, 0)];
        assert_eq!(broken(&fine), Vec::<String>::new());
    }

    #[test]
    fn misses_violations_and_lost_frames_are_told() {
        assert_eq!(broken(&[row("windows", Competitor::Ext, 1)]), ["ext of a test: 1 of 10 periods missed"]);
        assert!(broken(&[row("overload", Competitor::Ext, 2)])[0].contains("1 windows violated"));
        assert!(broken(&[row("rate", Competitor::ExtEvents, 1)])[0].contains("90.00 %"));
    }

    #[test]
    fn what_only_the_scheduler_counted_is_told_too() {
        let mut row = row("packets", Competitor::Dwcs, 0);
        row.counted = vec![ServerCounts { violations: 3, ..ServerCounts::default() }];
        assert!(broken(&[row])[0].contains("counted 3"));
    }

    #[test]
    fn a_contest_that_everybody_wins_proves_nothing() {
        assert!(broken(&[row("rate", Competitor::Default, 0)])[0].contains("separates nothing"));
        assert_eq!(broken(&[row("rate", Competitor::Default, 5)]).len(), 0);
    }
}
