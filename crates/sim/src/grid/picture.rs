//! Draws a heat map as SVG: one row per policy, one column per cell, misses as colour and number. It uses no
//! library and no fonts, so that the picture is the same on every machine, and is readable in light and dark mode.

use std::fmt::Write;

use super::{Cell, Outcome};

const LEFT: f64 = 230.0;
const TOP: f64 = 250.0;
const WIDTH: f64 = 34.0;
const HEIGHT: f64 = 22.0;

const STYLE: &str = "<style>text{fill:#334155}.n{font-size:10px;text-anchor:middle}svg{background:#fff}\
    @media(prefers-color-scheme:dark){text{fill:#cbd5e1}svg{background:#0f172a}.n.d{fill:#0f172a}}</style>\n";

/// The heat map of these outcomes, in their order.
pub fn svg(title: &str, outcomes: &[Outcome]) -> String {
    let (mut cells, mut rows): (Vec<Cell>, Vec<&str>) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        if !cells.contains(&outcome.cell) {
            cells.push(outcome.cell);
        }
        if !rows.contains(&outcome.row.as_str()) {
            rows.push(&outcome.row);
        }
    }
    let (width, height) = (LEFT + WIDTH * cells.len() as f64 + 20.0, TOP + HEIGHT * rows.len() as f64 + 30.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n{STYLE}<text x=\"16\" y=\"26\" font-size=\"16\">{title}</text>\n\
         <text x=\"16\" y=\"46\">Misses in % of the jobs: late, skipped or never ended. Columns: load, players, pattern, \
         phases, stolen time.</text>\n"
    );
    for (column, cell) in cells.iter().enumerate() {
        heading(&mut text, column, cell);
    }
    for (line, row) in rows.iter().enumerate() {
        let y = TOP + HEIGHT * (line as f64 + 0.7);
        put(&mut text, format_args!("<text x=\"{}\" y=\"{y:.0}\" text-anchor=\"end\">{row}</text>\n", LEFT - 8.0));
    }
    for outcome in outcomes {
        let column = cells.iter().position(|cell| *cell == outcome.cell).unwrap_or_default();
        let line = rows.iter().position(|row| *row == outcome.row).unwrap_or_default();
        square(&mut text, column, line, outcome);
    }
    text + "</svg>\n"
}

fn heading(text: &mut String, column: usize, cell: &Cell) {
    let (x, y) = (LEFT + WIDTH * (column as f64 + 0.65), TOP - 6.0);
    let label = format!("{:.0} %: {}", 100.0 * cell.load, cell.label());
    put(
        text,
        format_args!(
            "<text x=\"{x:.0}\" y=\"{y}\" font-size=\"10\" transform=\"rotate(-60 {x:.0} {y})\">{label}</text>\n"
        ),
    );
}

/// Draws one square, from yellow without misses to red at 60 % and more. All squares have the same scale.
fn square(text: &mut String, column: usize, line: usize, outcome: &Outcome) {
    let (x, y) = (LEFT + WIDTH * column as f64, TOP + HEIGHT * line as f64);
    let heat = (outcome.misses / 0.6).clamp(0.0, 1.0).sqrt();
    let mix = |cool: f64, hot: f64| (cool + (hot - cool) * heat).round();
    let colour = format!("rgb({},{},{})", mix(254.0, 220.0), mix(249.0, 60.0), mix(220.0, 50.0));
    let percent = 100.0 * outcome.misses;
    let number = if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") };
    put(
        text,
        format_args!(
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{:.0}\" height=\"{:.0}\" fill=\"{colour}\"/><text class=\"n d\" \
             x=\"{:.0}\" y=\"{:.0}\">{number}</text>\n",
            WIDTH - 1.0,
            HEIGHT - 1.0,
            x + WIDTH / 2.0,
            y + HEIGHT * 0.68
        ),
    );
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a String cannot fail");
}
