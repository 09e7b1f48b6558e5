//! Draws curves as SVG, without a library and without fonts, so that the picture is the same on every machine.

use std::fmt::Write;

use super::experiments::Curve;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
const RIGHT: f64 = 200.0;
const BOTTOM: f64 = 48.0;
const COLOURS: [&str; 6] = ["#0d74ce", "#d97706", "#16a34a", "#64748b", "#9333ea", "#dc2626"];

#[derive(Clone, Debug)]
pub struct Chart<'a> {
    pub title: &'a str,
    /// Label below the horizontal axis.
    pub across: &'a str,
    /// Label beside the vertical axis.
    pub up: &'a str,
    pub curves: &'a [Curve],
}

/// Returns the chart as SVG text.
pub fn svg(chart: &Chart<'_>) -> String {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let across = Axis::to(points().map(|point| point.0).fold(0.0, f64::max));
    let up = Axis::to(points().map(|point| point.1).fold(0.0, f64::max));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#334155\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    label(&mut text, LEFT, 24.0, "start", &format!("<tspan font-size=\"15\">{}</tspan>", escaped(chart.title)));
    axes(&mut text, chart, (across, up));
    for (number, curve) in chart.curves.iter().enumerate() {
        draw(&mut text, number, curve, (across.end(), up.end()));
    }
    text + "</svg>\n"
}

fn x(value: f64, most: f64) -> f64 {
    LEFT + value / most * (WIDTH - LEFT - RIGHT)
}

fn y(value: f64, most: f64) -> f64 {
    HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM)
}

fn axes(text: &mut String, chart: &Chart<'_>, (across, up): (Axis, Axis)) {
    let (right, low) = (x(1.0, 1.0), y(0.0, 1.0));
    for value in up.ticks() {
        let at = y(value, up.end());
        put(text, format_args!("<path d=\"M{LEFT} {at:.1}H{right:.1}\" stroke=\"#e2e8f0\"/>"));
        label(text, LEFT - 8.0, at + 4.0, "end", &number(value));
    }
    for value in across.ticks() {
        label(text, x(value, across.end()), low + 18.0, "middle", &number(value));
    }
    label(text, x(0.5, 1.0), HEIGHT - 10.0, "middle", &escaped(chart.across));
    let middle = y(0.5, 1.0);
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
        // Writing to a String cannot fail.
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

/// An axis that starts at 0 and has round steps.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    step: f64,
    steps: u32,
}

impl Axis {
    /// Chooses four to eight steps of 1, 2, 2.5 or 5 times a power of ten.
    fn to(most: f64) -> Axis {
        let most = most.max(1e-9);
        let power = 10f64.powf((most / 8.0).log10().floor());
        let fits = |step: &f64| most <= step * 8.0 * 1.001;
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|step| step * power).find(fits).unwrap_or(10.0 * power);
        Axis { step, steps: (most * 0.999 / step).ceil().max(1.0) as u32 }
    }

    fn end(self) -> f64 {
        self.step * f64::from(self.steps)
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        (0..=self.steps).map(move |tick| self.step * f64::from(tick))
    }
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
    fn a_chart_contains_every_curve_and_escapes_text() {
        let curves = [Curve { name: "a < b".into(), points: vec![(0.0, 1.0), (7.0, 3.2)] }];
        let text = svg(&Chart { title: "t & u", across: "s", up: "fps", curves: &curves });
        assert!(text.contains("a &lt; b") && text.contains("t &amp; u") && text.matches("<path").count() >= 8);
    }

    #[test]
    fn axes_have_round_steps() {
        let axis = |most| (Axis::to(most).step, Axis::to(most).steps);
        assert_eq!([axis(240.0), axis(64.0), axis(7.0)], [(50.0, 5), (10.0, 7), (1.0, 7)]);
        assert!((1..2_000).all(|most| (4..=8).contains(&Axis::to(f64::from(most)).steps)));
    }
}
