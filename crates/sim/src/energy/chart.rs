//! Draws a report as bars, without a library and without fonts, so that the picture is the same on every machine.

use std::fmt::Write;

use super::report::{Report, Row};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 56.0;
const LINE: f64 = 26.0;

/// Returns the report as SVG text: one bar of energy for each policy.
pub fn svg(report: &Report) -> String {
    let height = TOP + LINE * report.rows.len() as f64 + 28.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#334155\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"15\">{}</text>\n",
        escaped(&report.title)
    );
    let most = report.rows.iter().max_by(|a, b| a.energy.cmp_amount(b.energy)).map(|row| row.energy);
    for (number, row) in report.rows.iter().enumerate() {
        let part = most.map_or(0.0, |most| row.energy.ratio(most));
        draw(&mut text, TOP + LINE * number as f64, row, part);
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<text x=\"16\" y=\"{}\" fill=\"#64748b\">energy by the model {}, seed {}</text>\n</svg>",
        height - 10.0,
        escaped(&report.model.name),
        report.seed
    );
    text
}

fn draw(text: &mut String, top: f64, row: &Row, part: f64) {
    let (middle, width) = (top + 16.0, (part * (WIDTH - LEFT - RIGHT)).max(1.0));
    let end = LEFT + width + 8.0;
    let late = match row.misses + row.late {
        0 => String::new(),
        late => format!(", {late} late"),
    };
    let colour = if late.is_empty() { "#0d74ce" } else { "#d97706" };
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>\n\
         <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"18\" fill=\"{colour}\"/>\n\
         <text x=\"{end:.1}\" y=\"{middle:.1}\">{}, {:.1} %{late}</text>",
        LEFT - 8.0,
        escaped(&row.policy),
        top + 3.0,
        row.energy,
        100.0 * row.saving
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
