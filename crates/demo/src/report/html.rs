//! The report as one page that needs nothing but itself: no scripts, no links, pictures inside.

use std::fmt::Write;

use anyhow::Result;

use super::{Report, plots, table};
use crate::plan::Scenario;
use crate::rows::Row;

const STYLE: &str = include_str!("report.css");

/// The page.
pub fn page(report: &Report) -> Result<String> {
    let mut body = String::new();
    heading(&mut body, report);
    verdicts(&mut body, report);
    for (scenario, rows) in by_scenario(report) {
        section(&mut body, report, scenario, &rows)?;
    }
    circumstances(&mut body, report);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Q-Fabric: the main job, measured</title><style>{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n"
    ))
}

/// The rows of each scenario that has any, in order.
pub fn by_scenario(report: &Report) -> Vec<(&str, Vec<&Row>)> {
    let mut scenarios: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &report.rows {
        match scenarios.iter_mut().find(|(name, _)| *name == row.scenario) {
            Some((_, rows)) => rows.push(row),
            None => scenarios.push((&row.scenario, vec![row])),
        }
    }
    scenarios
}

/// What a scenario is called in full.
pub fn title(report: &Report, scenario: &str) -> String {
    let row = report.rows.iter().find(|row| row.scenario == scenario);
    let (players, hogs) = row.map_or((0, 0), |row| (row.players, row.hogs));
    match scenario {
        "shift" => format!(
            "{players} players near capacity, load shift half-way, {hogs} CPU hogs beside them (Q-Fabric: ρ = {})",
            Scenario::Shift.rho()
        ),
        _ => format!("one player under {hogs} CPU hogs (Q-Fabric: ρ = {})", Scenario::Hogs.rho()),
    }
}

fn heading(body: &mut String, report: &Report) {
    *body += "<h1>The main job, measured</h1><p class=\"lead\">Real video, decoded frame by frame at 25 frames a second \
        on a loaded machine: without and with Q-Fabric, side by side in one run.</p>";
    if !report.complete {
        let (done, planned) = (report.rows.len(), report.planned);
        add(
            body,
            format_args!("<p class=\"warning\">Interrupted after {done} of {planned} runs: nothing is claimed.</p>"),
        );
    }
}

fn verdicts(body: &mut String, report: &Report) {
    if report.verdicts.is_empty() {
        return;
    }
    *body += "<h2>What the numbers say</h2><ul class=\"verdicts\">";
    for verdict in &report.verdicts {
        let class = match verdict.reached {
            Some(true) => "yes",
            Some(false) => "no",
            None => "info",
        };
        add(body, format_args!("<li class=\"{class}\"><b>{}</b> {}</li>", table::mark(verdict), escape(&verdict.text)));
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
        if name.starts_with(scenario) {
            let svg = plots::svg(&figure)?;
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
    *body += "<h2>Where, and of what</h2><ul>";
    add(
        body,
        format_args!("<li>{} CPUs, {}; {}</li>", machine.cpus, escape(&machine.processor), escape(&machine.kernel)),
    );
    add(body, format_args!("<li>{} may be reserved here, probed before the first run</li>", machine.capacity));
    if !machine.enforcement.is_empty() {
        add(body, format_args!("<li>Enforcement of budgets: {}</li>", escape(&machine.enforcement)));
    }
    for clip in &report.clips {
        add(body, format_args!("<li>{}</li>", escape(&clip.sentence())));
    }
    let warm_up = report.rows.first().map_or(0, |row| row.warm_up);
    add(
        body,
        format_args!(
            "<li>The first {warm_up} jobs of each player warm up and count nowhere; a frame not decoded half a second after \
             the last deadline counts as missed, ending then</li><li>qfabric {}</li></ul>",
            report.version
        ),
    );
}

fn add(body: &mut String, text: std::fmt::Arguments) {
    body.write_fmt(text).expect("a String takes all");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
