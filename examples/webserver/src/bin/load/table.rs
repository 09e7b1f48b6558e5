//! Prints the report as a table, with remarks about runs that the generator limited.

use comfy_table::{CellAlignment, Table, presets};

use crate::options::Server;
use crate::run::{Report, Row};

const HEAD: [&str; 9] =
    ["server", "load", "offered/s", "replies/s", "of capacity", "given up", "response ms", "median ms", "max ms"];

/// The table, with one row per point.
pub(crate) fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(HEAD);
    table.add_rows(report.rows.iter().map(|row| cells(report, row)));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n{table}\n{}", head(report), remarks(report))
}

/// Replies per second for the small page, also in percent of the best server.
pub(crate) fn busy(rows: &[(Server, f64)]) -> String {
    let best = rows.iter().fold(f64::MIN_POSITIVE, |best, row| best.max(row.1));
    let line = |(server, replies): &(Server, f64)| {
        format!("{:<20} {replies:>9.0} replies/s {:>5.0} %\n", server.label(), 100.0 * replies / best)
    };
    rows.iter().map(line).collect()
}

fn head(report: &Report) -> String {
    let capacity = |name: &str, value: f64| match value {
        0.0 => String::new(),
        value => format!("{name} completes {value:.0} requests/s when never idle. "),
    };
    format!(
        "{}{}A request costs {:.1} ms; {} idle connections; each load for {} s, given up after {} s.\n",
        capacity("The example server", report.capacity),
        capacity("nginx", report.nginx_capacity),
        report.work_ms,
        report.idle,
        report.seconds,
        report.timeout
    )
}

fn cells(report: &Report, row: &Row) -> [String; 9] {
    let seen = &row.seen;
    let time = |ms: f64| seen.time(ms).map_or_else(|| "–".to_owned(), |ms| format!("{ms:.0}"));
    [
        row.server.label().to_owned(),
        format!("{}x", row.factor),
        format!("{:.0}", seen.offered),
        format!("{:.0}", seen.replies),
        format!("{:.0} %", 100.0 * seen.replies / report.capacity_of(row.server)),
        format!("{:.0} %", 100.0 * seen.given_up),
        time(seen.response_ms),
        time(seen.median_ms),
        time(seen.max_ms),
    ]
}

/// Remarks about runs in which the generator, not the server, was the bottleneck.
fn remarks(report: &Report) -> String {
    report.rows.iter().filter_map(|row| remark(report, row)).collect()
}

fn remark(report: &Report, row: &Row) -> Option<String> {
    let intended = row.factor * report.capacity_of(row.server);
    let (what, advice) =
        (format!("{} at {}x", row.server.label(), row.factor), "lower --factors, or increase the cost with --work");
    if row.seen.not_begun > 0.001 {
        let share = 100.0 * row.seen.not_begun;
        return Some(format!("{what}: httperf could not begin {share:.1} % of the connections; {advice}\n"));
    }
    let slow = row.seen.offered < 0.95 * intended;
    slow.then(|| format!("{what}: httperf offered {:.0} of {intended:.0} per second; {advice}\n", row.seen.offered))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::generators::HttperfResult;
    use crate::options::Server;

    pub(crate) fn report() -> Report {
        let capacity_of = |server: Server| if server.is_nginx() { 100.0 } else { 200.0 };
        let row = |server: Server, factor, replies| Row {
            server,
            factor,
            seen: HttperfResult {
                offered: factor * capacity_of(server),
                replies,
                response_ms: 120.0,
                ..HttperfResult::default()
            },
            spread: (replies, replies),
        };
        Report {
            capacity: 200.0,
            nginx_capacity: 100.0,
            work_ms: 5.0,
            idle: 0,
            seconds: 8.0,
            timeout: 1.0,
            rows: vec![
                row(Server::Select, 1.0, 190.0),
                row(Server::Select, 3.0, 20.0),
                row(Server::NginxGuard, 3.0, 95.0),
            ],
        }
    }

    #[test]
    fn each_point_is_a_row_with_its_share_of_the_capacity() {
        let text = table(&report());
        assert!(text.contains("10 %") && text.contains("nginx + guard") && text.contains("95 %"), "{text}");
    }

    #[test]
    fn a_load_without_replies_has_no_times() {
        let mut report = report();
        report.rows[1].seen = HttperfResult { offered: 600.0, ..HttperfResult::default() };
        let text = table(&report);
        let line = text.lines().find(|line| line.contains("3x")).unwrap();
        assert_eq!(line.matches('–').count(), 3, "{text}");
    }

    #[test]
    fn a_remark_names_a_run_that_the_generator_limited() {
        let mut report = report();
        assert!(!table(&report).contains("httperf"), "{}", table(&report));
        report.rows[1].seen.offered = 500.0;
        assert!(table(&report).contains("select at 3x: httperf offered 500 of 600 per second"));
        report.rows[1].seen.not_begun = 0.2;
        assert!(table(&report).contains("select at 3x: httperf could not begin 20.0 %"));
    }
}
