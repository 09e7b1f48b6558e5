//! The tables and verdicts as text.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::Report;
use crate::rows::Row;
use crate::verdict::{Verdict, percent};

/// The columns, each with the words a reader needs.
pub const COLUMNS: [&str; 11] = [
    "policy",
    "jobs",
    "misses",
    "in target",
    "mean ε",
    "σ ε",
    "mean Q/P",
    "σ Q/P",
    "demand",
    "Q/P : demand",
    "jitter p99",
];

/// What the columns mean.
pub const LEGEND: &str = "ε: virtual finishing time less deadline, in % of T = 40 ms, rounded up to the server \
    period P for all policies alike; Q/P: bandwidth reserved per player, demand: bandwidth used, both in % of \
    one CPU; jitter: distance of the \
    interval between frames from T. With GRUB a job that finds time left over ends early, outside the target: there \
    misses and Q/P count.";

/// Everything.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    for (scenario, rows) in super::html::by_scenario(report) {
        write!(text, "{}\n{}\n\n", super::html::title(report, scenario), table(&rows)).expect("a String takes all");
    }
    text += LEGEND;
    text += "\n\n";
    for clip in &report.clips {
        writeln!(text, "{}", clip.sentence()).expect("a String takes all");
    }
    if !report.complete {
        let (done, planned) = (report.rows.len(), report.planned);
        writeln!(text, "interrupted after {done} of {planned} runs: nothing is claimed").expect("a String takes all");
    }
    for verdict in &report.verdicts {
        writeln!(text, "{} {}", mark(verdict), verdict.text).expect("a String takes all");
    }
    text
}

/// How a verdict is marked.
pub fn mark(verdict: &Verdict) -> &'static str {
    match verdict.reached {
        Some(true) => "✔",
        Some(false) => "✘",
        None => "·",
    }
}

/// The cells of a row, in the order of [`COLUMNS`].
pub fn cells(row: &Row) -> [String; 11] {
    let optional = |value: Option<f64>, show: fn(f64) -> String| value.map_or("–".into(), show);
    let share: fn(f64) -> String = |x| format!("{:.1} %", x * 100.0);
    [
        row.policy.clone(),
        row.jobs.to_string(),
        format!("{} ({})", row.misses, percent(row.miss_ratio)),
        share(row.in_target),
        share(row.mean_error),
        share(row.sd_error),
        optional(row.mean_bandwidth, share),
        optional(row.sd_bandwidth, share),
        optional((row.unfinished < row.jobs).then_some(row.mean_demand), share),
        optional(row.bandwidth_per_demand, |x| format!("{x:.2}")),
        format!("{:.1} ms", row.jitter_p99_ns as f64 / 1e6),
    ]
}

fn table(rows: &[&Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(COLUMNS);
    for row in rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn every_number_has_its_unit_and_absence_is_shown() {
        let report = report();
        let plain = cells(&report.rows[0]);
        assert_eq!((plain[2].as_str(), plain[6].as_str(), plain[9].as_str()), ("5 (100 %)", "–", "–"));
        let ours = cells(&report.rows[2]);
        assert_eq!((ours[2].as_str(), ours[6].as_str()), ("0 (0 %)", "25.0 %"));
    }

    #[test]
    fn both_scenarios_and_all_verdicts_are_in_the_text() {
        let text = report().text();
        assert!(text.contains("static equal shares, GRUB") && text.contains("one player under"), "{text}");
        assert!(text.contains('✔') || text.contains('✘'), "{text}");
    }
}
