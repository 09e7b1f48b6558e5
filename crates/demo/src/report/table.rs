//! Prints the tables and verdicts as text.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::Report;
use crate::cpu_use::CpuUse;
use crate::rows::Row;
use crate::verdict::percent;

/// The column headings.
pub(super) const COLUMNS: [&str; 15] = [
    "policy",
    "jobs",
    "misses",
    "95 % interval",
    "median of rounds (95 %)",
    "skipped",
    "in target",
    "mean ε",
    "σ ε",
    "mean Q/P",
    "σ Q/P",
    "demand",
    "Q/P : demand",
    "jitter p99",
    "CPU s",
];

/// The legend of the columns.
pub(super) const LEGEND: &str = "ε: finish time minus deadline, in % of the frame period, rounded up to the server period P \
    for all policies; Q/P: reserved bandwidth per player, mean over time (bandwidth that a player returns between \
    frames lowers it), σ of the bandwidth in force when frames begin; demand: bandwidth used; all in % of one CPU; \
    jitter: difference between frame interval and period; CPU s: seconds of CPU time of the players + the daemon's \
    control thread + the hogs in a round, mean, from the first counted job to the last deadline. Skipped frames count \
    as missed. The misses and their interval are those of all jobs together, the median is that of the rounds. With \
    GRUB a job that gets unused time ends early, outside the target, so compare misses and Q/P there. CPU times include steal unless the \
    kernel accounts for steal.";

/// The whole report as text.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    for (scenario, rows) in super::html::by_scenario(report) {
        write!(text, "{}\n{}\n\n", super::html::title(report, scenario), table(&rows)).expect("write to a String");
    }
    text += LEGEND;
    text += "\n\n";
    for line in circumstances(report) {
        writeln!(text, "{line}").expect("write to a String");
    }
    if !report.complete {
        let (done, planned) = (report.rounds.len(), report.planned);
        writeln!(text, "interrupted after {done} of {planned} rounds: there are no verdicts")
            .expect("write to a String");
    }
    text += "\n";
    for verdict in &report.verdicts {
        writeln!(text, "{} {}", verdict.mark(), verdict.sentence()).expect("write to a String");
    }
    for comparison in &report.comparisons {
        writeln!(text, "· {comparison}").expect("write to a String");
    }
    text
}

/// Clips, loads and disturbances, one sentence each.
pub(super) fn circumstances(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = report.clips.iter().map(super::ClipNote::sentence).collect();
    lines.extend(report.loads.iter().map(load_sentence));
    if !report.machine.mechanism.is_empty() {
        lines.push(format!("Q-Fabric's players run under the mechanism {}", report.machine.mechanism));
    }
    let disturbed = report.rounds.iter().filter(|round| round.disturbance.is_some()).count();
    let worst = report.rounds.iter().map(|round| round.around.mean_steal()).fold(0.0, f64::max);
    lines.push(format!(
        "{} rounds in random order (--seed {}), {disturbed} of them disturbed; steal {} in the mean and {} at most",
        report.rounds.len(),
        report.seed,
        percent(report.steal),
        percent(worst)
    ));
    lines.extend(report.missing.iter().map(|reason| format!("not played: {reason}")));
    if !report.left_out.is_empty() {
        lines.push(format!("omitted for lack of time: {}", report.left_out.join("; ")));
    }
    lines
}

fn load_sentence(load: &super::Load) -> String {
    let [short, long] = load.periods_ns.unwrap_or([load.period_ns; 2]).map(|ns| ns as f64 / 1e6);
    let [least, most] = load.demands.unwrap_or([load.demand; 2]);
    let range = |a: String, b: String| if a == b { a } else { format!("{a} to {b}") };
    format!(
        "{}: frame period {} ms, demand {} CPUs ({:.3} designed), calibrated beside the hogs and set again as the speed of the machine changes",
        load.scenario,
        range(format!("{short:.1}"), format!("{long:.1}")),
        range(format!("{least:.3}"), format!("{most:.3}")),
        load.designed
    )
}

/// The cells of a row in the order of [`COLUMNS`].
pub(super) fn cells(row: &Row) -> [String; 15] {
    let optional = |value: Option<f64>, show: fn(f64) -> String| value.map_or("–".into(), show);
    let share: fn(f64) -> String = |x| format!("{:.1} %", x * 100.0);
    [
        if row.disturbed { format!("{} (disturbed)", row.policy) } else { row.policy.clone() },
        row.jobs.to_string(),
        format!("{} ({})", row.misses, percent(row.miss_ratio)),
        format!("{} to {}", percent(row.misses_low), percent(row.misses_high)),
        median(row),
        row.skipped.to_string(),
        share(row.in_target),
        share(row.mean_error),
        share(row.sd_error),
        optional(row.mean_bandwidth, share),
        optional(row.sd_bandwidth, share),
        optional((row.unfinished < row.jobs).then_some(row.mean_demand), share),
        optional(row.bandwidth_per_demand, |x| format!("{x:.2}")),
        format!("{:.1} ms", row.jitter_p99_ns as f64 / 1e6),
        cpu_seconds(&row.cpu),
    ]
}

/// The CPU time of players, control thread and hogs; a dash for a round without a control thread, and for rounds that
/// were not measured.
fn cpu_seconds(cpu: &CpuUse) -> String {
    if cpu.cpu_window_seconds == 0.0 {
        return "–".into();
    }
    let control = cpu.control_cpu_seconds.map_or("–".into(), |seconds| format!("{seconds:.3}"));
    format!("{:.2} + {control} + {:.2}", cpu.players_cpu_seconds, cpu.hogs_cpu_seconds)
}

/// The median over the rounds of the fraction of jobs missed, with its 95 % interval.
fn median(row: &Row) -> String {
    let median = percent(row.miss_ratio_median);
    match (row.miss_ratio_median_low, row.miss_ratio_median_high) {
        (Some(low), Some(high)) => format!("{median} ({} to {})", percent(low), percent(high)),
        _ => format!("{median} (one round)"),
    }
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
    fn every_number_has_its_unit_and_missing_values_are_shown() {
        let report = report();
        let plain = cells(&report.rows[0]);
        assert_eq!((plain[2].as_str(), plain[9].as_str(), plain[12].as_str()), ("5 (100 %)", "–", "–"));
        let ours = cells(&report.rows[1]);
        assert_eq!((ours[2].as_str(), ours[9].as_str()), ("0 (0 %)", "25.0 %"));
    }

    #[test]
    fn a_median_has_its_interval() {
        let rounds = [1, 1, 3].map(|late: u64| {
            let ms: Vec<u64> = (0..100).map(|k| if k < late { 50 } else { 30 }).collect();
            crate::rows::tests::run(&ms, 100, 2.5)
        });
        let several = cells(&crate::rows::row(&rounds.iter().collect::<Vec<_>>()));
        assert_eq!((several[2].as_str(), several[4].as_str()), ("5 (1.7 %)", "1.0 % (1.0 % to 3.0 %)"));
        let one = cells(&crate::rows::row(&[&rounds[0]]));
        assert_eq!(one[4], "1.0 % (one round)");
    }

    #[test]
    fn the_cpu_time_of_a_round_is_shown_in_its_three_parts() {
        let cpu = CpuUse {
            players_cpu_seconds: 9.714,
            control_cpu_seconds: Some(0.1234),
            hogs_cpu_seconds: 0.5,
            cpu_window_seconds: 6.0,
        };
        let row = Row { cpu, ..Row::default() };
        assert_eq!(cells(&row)[14], "9.71 + 0.123 + 0.50");
        let rival = Row { cpu: CpuUse { control_cpu_seconds: None, ..cpu }, ..Row::default() };
        assert_eq!((cells(&rival)[14].as_str(), cells(&Row::default())[14].as_str()), ("9.71 + – + 0.50", "–"));
    }

    #[test]
    fn both_scenarios_and_all_verdicts_are_in_the_text() {
        let text = report().text();
        assert!(text.contains("static equal shares, GRUB") && text.contains("one player under"), "{text}");
        assert!(text.contains("600 are needed") && text.contains("against the default scheduler"), "{text}");
    }
}
