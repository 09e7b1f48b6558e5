//! The report as one self-contained page, without scripts and links, and with embedded pictures.

use std::fmt::Write;

use anyhow::Result;

use super::{Report, plots, table};
use crate::rows::Row;
use crate::verdict::{State, Verdict, percent};

const STYLE: &str = include_str!("report.css");

const HEAT: &str = "Below 1 (green), Q-Fabric misses fewer jobs. 0.5 is added to the misses of both sides. Dashed: \
    disturbed cells, which count in no verdict. Empty: not played in this run.";
/// Number of verdicts at the top of the page; the others follow below the tables.
const HEADLINES: usize = 3;

/// Returns the page.
pub(super) fn page(report: &Report) -> Result<String> {
    let mut body = String::new();
    heading(&mut body, report);
    verdicts(&mut body, &report.verdicts[..report.verdicts.len().min(HEADLINES)]);
    lead(&mut body, report);
    for (_, svg) in report.heat_maps() {
        add(&mut body, format_args!("<figure>{}<figcaption>{HEAT}</figcaption></figure>", plots::themed(&svg)));
    }
    for (scenario, rows) in by_scenario(report) {
        section(&mut body, report, scenario, &rows)?;
    }
    further(&mut body, report);
    circumstances(&mut body, report);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n",
        escape(&title_line(report))
    ))
}

/// Version, date, kernel, CPUs and background load in one line.
pub(super) fn title_line(report: &Report) -> String {
    let Report { version, date, machine, .. } = report;
    let (kernel, cpus, processor) = (&machine.kernel, machine.cpus, &machine.processor);
    format!("Q-Fabric {version} demo, {date}, {kernel}, {cpus} x {processor}, {}", background(report))
}

/// The hogs, and the load that the demo did not start: means over the rounds.
fn background(report: &Report) -> String {
    let foreign: Vec<f64> = report.rounds.iter().map(|round| round.around.foreign).collect();
    format!(
        "{} CPU hogs, other processes use {} of the CPUs, steal {}",
        report.machine.hogs,
        percent(crate::rows::mean(&foreign)),
        percent(report.steal)
    )
}

/// The rows of each scenario that has rows, in order.
pub(super) fn by_scenario(report: &Report) -> Vec<(&str, Vec<&Row>)> {
    let mut scenarios: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &report.rows {
        match scenarios.iter_mut().find(|(name, _)| *name == row.scenario) {
            Some((_, rows)) => rows.push(row),
            None => scenarios.push((&row.scenario, vec![row])),
        }
    }
    scenarios
}

/// The full title of a scenario.
pub(super) fn title(report: &Report, scenario: &str) -> String {
    let row = report.rows.iter().find(|row| row.scenario == scenario);
    let (players, hogs) = row.map_or((0, 0), |row| (row.players, row.hogs));
    match scenario {
        cell if cell.starts_with("grid") => cell.to_owned(),
        "shift" => format!(
            "{players} players near capacity, load shift half-way, beside {hogs} CPU hogs (Q-Fabric: ρ = {})",
            crate::policy::RHO
        ),
        _ => format!("one player under {hogs} CPU hogs (Q-Fabric: ρ = {})", crate::policy::RHO),
    }
}

fn heading(body: &mut String, report: &Report) {
    add(body, format_args!("<h1>Q-Fabric {}: video under load</h1>", report.version));
    let Report { date, machine, .. } = report;
    let (kernel, cpus, processor) = (escape(&machine.kernel), machine.cpus, escape(&machine.processor));
    let background = background(report);
    add(body, format_args!("<p class=\"where\">{date} · {kernel} · {cpus} x {processor} · {background}</p>"));
    if !report.complete {
        let (done, planned) = (report.rounds.len(), report.planned);
        add(
            body,
            format_args!(
                "<p class=\"warning\">Interrupted after {done} of {planned} rounds: there are no verdicts.</p>"
            ),
        );
    }
}

fn lead(body: &mut String, report: &Report) {
    let room = report.machine.capacity;
    add(
        body,
        format_args!(
            "<p class=\"lead\">Real video, decoded frame by frame on a loaded machine, without and with Q-Fabric, in \
             short interleaved rounds of one run. A verdict needs a 95 % interval on one side of the bound, 600 jobs, \
             and undisturbed rounds. Bandwidth available for reservations: {room}.</p>"
        ),
    );
}

fn further(body: &mut String, report: &Report) {
    *body += "<h2>Further comparisons</h2>";
    verdicts(body, &report.verdicts[report.verdicts.len().min(HEADLINES)..]);
    *body += "<ul>";
    for comparison in &report.comparisons {
        add(body, format_args!("<li>{}</li>", escape(comparison)));
    }
    *body += "</ul>";
}

fn verdicts(body: &mut String, verdicts: &[Verdict]) {
    if verdicts.is_empty() {
        return;
    }
    *body += "<ul class=\"verdicts\">";
    for verdict in verdicts {
        let class = match verdict.state {
            State::Held => "yes",
            State::Missed => "no",
            State::Disturbed => "info",
        };
        add(body, format_args!("<li class=\"{class}\"><b>{}</b> {}</li>", verdict.mark(), escape(&verdict.sentence())));
    }
    *body += "</ul>";
}

fn section(body: &mut String, report: &Report, scenario: &str, rows: &[&Row]) -> Result<()> {
    let title = title(report, scenario);
    let capital: String = title.chars().take(1).flat_map(char::to_uppercase).chain(title.chars().skip(1)).collect();
    add(body, format_args!("<h2>{}</h2>", escape(&capital)));
    table(body, rows);
    add(body, format_args!("<p class=\"note\">{}</p>", escape(table::LEGEND)));
    for (name, figure) in plots::figures(report) {
        if report.grid.is_empty() && name.starts_with(scenario) {
            let svg = plots::themed(&plots::svg(&figure)?);
            add(body, format_args!("<figure>{svg}<figcaption>{}</figcaption></figure>", escape(figure.caption)));
        }
    }
    Ok(())
}

fn table(body: &mut String, rows: &[&Row]) {
    *body += "<div class=\"scroll\"><table><thead><tr>";
    for column in table::COLUMNS {
        add(body, format_args!("<th>{column}</th>"));
    }
    *body += "</tr></thead><tbody>";
    for row in rows {
        let class = if row.policy.starts_with("Q-Fabric") { "ours" } else { "" };
        add(body, format_args!("<tr class=\"{class}\">"));
        for cell in table::cells(row) {
            add(body, format_args!("<td>{}</td>", escape(&cell)));
        }
        *body += "</tr>";
    }
    *body += "</tbody></table></div>";
}

fn circumstances(body: &mut String, report: &Report) {
    let machine = &report.machine;
    *body += "<h2>Circumstances</h2><ul>";
    add(
        body,
        format_args!("<li>{} CPUs, {}; {}</li>", machine.cpus, escape(&machine.processor), escape(&machine.kernel)),
    );
    add(
        body,
        format_args!(
            "<li>Available for reservations: {}, probed before the first round, minus a margin</li>",
            machine.capacity
        ),
    );
    if !machine.enforcement.is_empty() {
        add(body, format_args!("<li>Enforcement of budgets: {}</li>", escape(&machine.enforcement)));
    }
    for line in table::circumstances(report) {
        add(body, format_args!("<li>{}</li>", escape(&line)));
    }
    let warm_up = report.rows.first().map_or(0, |row| row.warm_up);
    add(
        body,
        format_args!(
            "<li>The first {warm_up} jobs of each player are the warm-up and count in no statistic. A frame that is \
             not decoded half a second after the last deadline counts as missed and as ending at that time.</li>\
             <li>qfabric {}</li></ul>",
            report.version
        ),
    );
}

fn add(body: &mut String, text: std::fmt::Arguments) {
    body.write_fmt(text).expect("writing to a String cannot fail");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
