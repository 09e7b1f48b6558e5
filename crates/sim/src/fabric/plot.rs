//! Curves and bars as SVG, without a library and without fonts: the same picture on every machine.

use std::fmt::Write;

use super::experiments::Curve;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
const RIGHT: f64 = 200.0;
const BOTTOM: f64 = 48.0;
const COLOURS: [&str; 6] = ["#0d74ce", "#d97706", "#16a34a", "#64748b", "#9333ea", "#dc2626"];

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// Above it.
    pub title: &'a str,
    /// Below the axis.
    pub across: &'a str,
    /// Beside the axis.
    pub up: &'a str,
    /// The curves.
    pub curves: &'a [Curve],
}

/// The chart as SVG text.
pub fn svg(chart: &Chart<'_>) -> String {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let across = nice(points().map(|point| point.0).fold(0.0, f64::max));
    let up = nice(points().map(|point| point.1).fold(0.0, f64::max));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#334155\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    label(&mut text, LEFT, 24.0, "start", &format!("<tspan font-size=\"15\">{}</tspan>", escaped(chart.title)));
    axes(&mut text, chart, (across, up));
    for (number, curve) in chart.curves.iter().enumerate() {
        draw(&mut text, number, curve, (across, up));
    }
    text + "</svg>\n"
}

fn x(value: f64, most: f64) -> f64 {
    LEFT + value / most * (WIDTH - LEFT - RIGHT)
}

fn y(value: f64, most: f64) -> f64 {
    HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM)
}

fn axes(text: &mut String, chart: &Chart<'_>, (across, up): (f64, f64)) {
    for step in 0..=5 {
        let part = f64::from(step) / 5.0;
        let (at_x, at_y) = (x(across * part, across), y(up * part, up));
        let (right, low) = (x(across, across), y(0.0, up));
        put(text, format_args!("<path d=\"M{LEFT} {at_y:.1}H{right:.1}\" stroke=\"#e2e8f0\"/>"));
        label(text, LEFT - 8.0, at_y + 4.0, "end", &number(up * part));
        label(text, at_x, low + 18.0, "middle", &number(across * part));
    }
    label(text, x(across / 2.0, across), HEIGHT - 10.0, "middle", &escaped(chart.across));
    let middle = y(up / 2.0, up);
    put(
        text,
        format_args!(
            "<text transform=\"translate(16 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped(chart.up)
        ),
    );
}

fn draw(text: &mut String, number: usize, curve: &Curve, (across, up): (f64, f64)) {
    let colour = COLOURS[number % COLOURS.len()];
    let mut path = String::new();
    for (at, value) in &curve.points {
        let letter = if path.is_empty() { 'M' } else { 'L' };
        // Writing to a string cannot fail.
        let _ = write!(path, "{letter}{:.1} {:.1}", x(*at, across), y(value.min(up), up));
    }
    put(text, format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>"));
    let (left, line) = (WIDTH - RIGHT + 14.0, TOP + 18.0 * number as f64);
    put(text, format_args!("<path d=\"M{left} {line}h18\" stroke=\"{colour}\" stroke-width=\"3\"/>"));
    label(text, left + 24.0, line + 4.0, "start", &escaped(&curve.name));
}

fn label(text: &mut String, x: f64, y: f64, anchor: &str, what: &str) {
    put(text, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>"));
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{line}");
}

/// The next of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten.
fn nice(most: f64) -> f64 {
    let power = 10f64.powf(most.max(1e-9).log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * power).find(|end| *end >= most * 0.999).unwrap_or(10.0 * power)
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_every_curve_and_no_loose_letters() {
        let curves = [Curve { name: "a < b".into(), points: vec![(0.0, 1.0), (7.0, 3.2)] }];
        let text = svg(&Chart { title: "t & u", across: "s", up: "fps", curves: &curves });
        assert!(text.contains("a &lt; b") && text.contains("t &amp; u") && text.matches("<path").count() >= 8);
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0.9, 7.0, 240.0, 64.0].map(nice), [1.0, 8.0, 250.0, 80.0]);
    }
}
