//! The claims about the results. Each claim is a check that can fail.

use crate::regime::Competitor;
use crate::row::Row;

/// Accepted delay from the end of a stream's bound to the viewer: the path through the interface and one wake-up,
/// in µs.
const GRACE_US: f64 = 1_000.0;
/// Θ + T of the stream with both reservations, in µs.
const BOUND_US: f64 = 55_000.0;
/// The fraction of their frame rate that players must reach.
const FRAMES: f64 = 0.98;
/// With fewer players, fair scheduling suffices for all of them.
const CROWD: f64 = 15.0;

/// Describes each claim that does not hold. Empty if all hold. Experiments that were not run have no claims.
pub fn failed(rows: &[Row]) -> Vec<String> {
    rows.iter()
        .filter_map(|row| Some(format!("{} of {}: {}", row.competitor.name(), row.setting, failure(row)?)))
        .collect()
}

fn failure(row: &Row) -> Option<String> {
    use Competitor::*;
    match (row.experiment.as_str(), row.competitor) {
        ("windows", Ext | ExtEvents | Deadline) => refusal(row).or_else(|| misses(row)),
        ("overload", Deadline) => {
            row.refused.is_none().then(|| "admitted a set that needs more than one CPU".to_owned())
        }
        ("overload", Ext | ExtEvents) => refusal(row).or_else(|| violated(row)),
        ("rate" | "storm", Ext | ExtEvents) => refusal(row).or_else(|| slow(row)),
        ("rate", Default) if row.x >= CROWD => {
            (row.achieved() >= FRAMES).then(|| "reaches the rate, too: the test does not distinguish them".to_owned())
        }
        ("packets", Dwcs) => violated(row),
        ("both", Together) => violated(row).or_else(|| misses(row)).or_else(|| old(row)),
        ("both", Neither) => (row.mean(|t| t.rate_in_time) > 0.5 * row.mean(|t| t.wanted))
            .then(|| "is in time, too: the test does not distinguish them".to_owned()),
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

/// Violations in the traces of the tasks and in the counters of the scheduler.
fn violated(row: &Row) -> Option<String> {
    let (seen, counted) = (row.sum(|task| task.violations), row.counted.iter().map(|c| c.violations).sum::<u64>());
    (seen + counted > 0).then(|| format!("{seen} windows violated, the scheduler counted {counted}"))
}

fn slow(row: &Row) -> Option<String> {
    let achieved = row.achieved();
    (achieved < FRAMES).then(|| format!("{:.2} % of the frame rate, {} % required", 100.0 * achieved, 100.0 * FRAMES))
}

fn old(row: &Row) -> Option<String> {
    let oldest = row.max(|task| task.delay.max);
    (oldest > BOUND_US + GRACE_US).then(|| format!("a frame arrived after {oldest} µs, but Θ + T is {BOUND_US} µs"))
}

#[cfg(test)]
mod tests {
    use qfabric_types::{ServerCounts, Window};

    use super::*;
    use crate::row::{Host, Played, Task};
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
            played: Played::default(),
        }
    }

    #[test]
    fn claims_that_hold_are_not_reported() {
        let fine =
            [row("windows", Competitor::Ext, 0), row("overload", Competitor::Ext, 1), row("rate", Competitor::Ext, 0)];
        assert_eq!(failed(&fine), Vec::<String>::new());
    }

    #[test]
    fn misses_violations_and_lost_frames_are_reported() {
        assert_eq!(failed(&[row("windows", Competitor::Ext, 1)]), ["ext of a test: 1 of 10 periods missed"]);
        assert!(failed(&[row("overload", Competitor::Ext, 2)])[0].contains("1 windows violated"));
        assert!(failed(&[row("rate", Competitor::ExtEvents, 1)])[0].contains("90.00 %"));
    }

    #[test]
    fn violations_that_only_the_scheduler_counted_are_reported() {
        let mut row = row("packets", Competitor::Dwcs, 0);
        row.counted = vec![ServerCounts { violations: 3, ..ServerCounts::default() }];
        assert!(failed(&[row])[0].contains("counted 3"));
    }

    #[test]
    fn a_contest_without_a_loser_fails() {
        assert!(failed(&[row("rate", Competitor::Default, 0)])[0].contains("does not distinguish"));
        assert_eq!(failed(&[row("rate", Competitor::Default, 5)]).len(), 0);
    }
}
