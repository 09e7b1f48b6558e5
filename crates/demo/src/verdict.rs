//! What the numbers say: ratios to rivals measured in the same run, against what was promised.

use serde::{Deserialize, Serialize};

use crate::rows::Row;

/// One claim and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The claim with the measured numbers, one sentence.
    pub text: String,
    /// Whether it was reached; none for a comparison without a promise.
    pub reached: Option<bool>,
}

/// Misses promised at most, one player under hogs.
const MISSES: f64 = 0.01;
/// Bandwidth over demand promised at most, one player under hogs.
const OVERHEAD: f64 = 1.15;
/// Misses over those of static GRUB promised at most, near capacity.
const MISSES_OF_RIVAL: f64 = 0.5;
/// Bandwidth over that of static GRUB promised at most, near capacity.
const BANDWIDTH_OF_RIVAL: f64 = 0.85;

/// All verdicts the rows allow.
pub fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let within = |scenario: &str| rows.iter().filter(|r| r.scenario == scenario).cloned().collect::<Vec<_>>();
    let (hogs, shift) = (within("hogs"), within("shift"));
    let mut verdicts: Vec<Verdict> = ours(&hogs).filter_map(under_hogs).collect();
    verdicts.extend(against_plain(&hogs));
    if let Some(rival) = shift.iter().find(|r| r.policy.starts_with("static") && r.policy.contains("GRUB")) {
        verdicts.extend(ours(&shift).filter_map(|row| near_capacity(row, rival)));
    }
    verdicts.extend([&hogs, &shift].into_iter().filter_map(|rows| hint_against_history(rows)));
    verdicts
}

fn ours(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.policy.starts_with("Q-Fabric"))
}

/// The promises are about Q-Fabric as it comes: the hint, on GRUB. Other predictors are there to compare.
fn promised(row: &Row, reached: bool) -> Option<bool> {
    (row.policy.contains("hint") && row.policy.contains("GRUB")).then_some(reached)
}

fn under_hogs(row: &Row) -> Option<Verdict> {
    let ratio = row.bandwidth_per_demand?;
    let text = format!(
        "{}, one player under {} hogs: {} of jobs missed at {ratio:.3}x the mean demand (promised: ≤ 1 % at ≤ {OVERHEAD}x)",
        row.policy,
        row.hogs,
        percent(row.miss_ratio),
    );
    Some(Verdict { text, reached: promised(row, row.miss_ratio <= MISSES && ratio <= OVERHEAD) })
}

fn against_plain(rows: &[Row]) -> Option<Verdict> {
    let plain = rows.iter().find(|row| row.policy == "plain")?;
    let best = ours(rows).min_by(|a, b| a.miss_ratio.total_cmp(&b.miss_ratio))?;
    let text = format!(
        "one player under {} hogs: the default scheduler missed {}, {} {}",
        plain.hogs,
        percent(plain.miss_ratio),
        best.policy,
        percent(best.miss_ratio),
    );
    Some(Verdict { text, reached: None })
}

fn near_capacity(row: &Row, rival: &Row) -> Option<Verdict> {
    let (reserved, total) = (row.total_bandwidth?, rival.total_bandwidth?);
    let bandwidth = reserved / total;
    let misses = ratio_of_misses(row, rival);
    let text = format!(
        "{}, {} players near capacity: {} missed against {} of static GRUB ({}; promised ≤ {MISSES_OF_RIVAL}x), \
         reserving {reserved:.2} CPUs against {total:.2} ({:+.0} %; promised ≤ −15 %)",
        row.policy,
        row.players,
        percent(row.miss_ratio),
        percent(rival.miss_ratio),
        misses.map_or("nothing to halve".into(), |m| format!("{m:.2}x")),
        (bandwidth - 1.0) * 100.0,
    );
    let few = misses.map_or(row.misses == 0, |m| m <= MISSES_OF_RIVAL);
    Some(Verdict { text, reached: promised(row, few && bandwidth <= BANDWIDTH_OF_RIVAL) })
}

/// Our misses over the rival's; none where the rival has none.
fn ratio_of_misses(row: &Row, rival: &Row) -> Option<f64> {
    (rival.misses > 0).then(|| row.miss_ratio / rival.miss_ratio)
}

/// The hint against the predictors that only know the past, all under reservations of one kind.
fn hint_against_history(rows: &[Row]) -> Option<Verdict> {
    let others = || ours(rows).filter(|row| !row.policy.contains("hint"));
    let best = others().max_by(|a, b| a.in_target.total_cmp(&b.in_target))?;
    let kind = best.policy.rsplit(' ').next()?;
    let hint = ours(rows).find(|row| row.policy.contains("hint") && row.policy.ends_with(kind))?;
    let text = format!(
        "{}, {kind} reservations: the hint keeps {} of jobs in target at {:.2}x the demand; the best of the others, {}, {} at {:.2}x",
        if hint.scenario == "hogs" { "one player" } else { "near capacity" },
        percent(hint.in_target),
        hint.bandwidth_per_demand?,
        best.policy,
        percent(best.in_target),
        best.bandwidth_per_demand?,
    );
    Some(Verdict { text, reached: None })
}

/// A fraction as people read it.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent == 0.0 || percent >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: &str, policy: &str, misses: u64, bandwidth: Option<f64>) -> Row {
        Row {
            scenario: scenario.into(),
            policy: policy.into(),
            jobs: 1_000,
            misses,
            miss_ratio: misses as f64 / 1_000.0,
            players: 6,
            hogs: 12,
            mean_bandwidth: bandwidth,
            bandwidth_per_demand: bandwidth.map(|b| b / 0.2),
            total_bandwidth: bandwidth.map(|b| b * 6.0),
            ..Row::default()
        }
    }

    fn reached(rows: &[Row], about: &str) -> Option<bool> {
        let all = verdicts(rows);
        all.iter().find(|v| v.text.starts_with(about)).unwrap_or_else(|| panic!("{about} not in {all:?}")).reached
    }

    #[test]
    fn few_misses_at_little_bandwidth_keep_the_promise() {
        let verdict = |misses, bandwidth| {
            reached(&[row("hogs", "Q-Fabric hint[24], GRUB", misses, Some(bandwidth))], "Q-Fabric hint")
        };
        assert_eq!([verdict(10, 0.23), verdict(11, 0.23), verdict(0, 0.24)], [Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn near_capacity_the_rival_is_static_grub() {
        let rows = |misses, bandwidth| {
            let ours = row("shift", "Q-Fabric hint[24], GRUB", misses, Some(bandwidth));
            [row("shift", "static equal shares, GRUB", 40, Some(0.3)), ours]
        };
        assert_eq!(reached(&rows(20, 0.254), "Q-Fabric hint"), Some(true));
        assert_eq!(reached(&rows(21, 0.2), "Q-Fabric hint"), Some(false));
        assert_eq!(reached(&rows(0, 0.26), "Q-Fabric hint"), Some(false));
    }

    #[test]
    fn predictors_of_the_paper_are_compared_and_promise_nothing() {
        let rows =
            [row("hogs", "Q-Fabric MA[12], hard", 90, Some(0.3)), row("hogs", "Q-Fabric hint[24], hard", 1, Some(0.2))];
        assert!(verdicts(&rows).iter().all(|verdict| verdict.reached.is_none()));
        assert_eq!(reached(&rows, "one player, hard reservations: the hint"), None);
    }

    #[test]
    fn nothing_is_claimed_of_what_was_not_run() {
        assert!(verdicts(&[row("shift", "nice -20", 3, None)]).is_empty());
        assert!(verdicts(&[]).is_empty());
    }
}
