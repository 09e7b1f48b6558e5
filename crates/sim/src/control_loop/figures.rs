//! Figures 7 to 10 of AQuoSA as SVG pictures: the distributions of costs and scheduling errors, and the repetition
//! of costs. All curves of a chart share one scale.

use std::fmt::Write;

use super::{Job, JobResult, Options, Output};

/// Lags of the autocorrelation: more than two groups of 15 pictures.
const LAGS: usize = 40;
/// Errors beyond one period are counted in the outermost bins.
const WIDEST: f64 = 1.0;
/// Bins of the distribution of costs.
const COST_BINS: f64 = 80.0;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
const COLOURS: [&str; 8] = ["#2f6fab", "#b5651d", "#3f8f4f", "#7a4fa3", "#a33b4a", "#4a8f9c", "#8a7a20", "#6b7280"];
const STYLE: &str = "<style>.ground{fill:#fff}.text{fill:#222}.axis{stroke:#777}.grid{stroke:#e3e6e9}\
.band{fill:#3f8f4f;fill-opacity:.12}@media(prefers-color-scheme:dark){.ground{fill:#15181c}.text{fill:#d6dae0}\
.axis{stroke:#99a}.grid{stroke:#2c3138}}</style>";

#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// (x, y), ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// The contents of one chart.
struct Chart<'a> {
    title: &'a str,
    x_label: &'a str,
    y_label: &'a str,
    /// A highlighted interval of x.
    band: Option<(f64, f64)>,
    curves: &'a [Curve],
}

/// The probability mass of ε/T over the counted jobs, in bins of one server period (Figure 8).
pub fn error_distribution(name: &str, output: &Output, options: &Options) -> Curve {
    let period_ns = options.period.as_f64();
    let counted = output.jobs.iter().filter(|job| !job.warm_up);
    let errors = counted.map(|job: &JobResult| (job.error_ns / period_ns).clamp(-WIDEST, WIDEST));
    distribution(name, errors, options.server_period.as_f64() / period_ns)
}

/// The probability mass of c/T (Figure 7a).
pub fn cost_distribution(name: &str, trace: &[Job], period_ns: f64) -> Curve {
    let shares: Vec<f64> = trace.iter().map(|job| job.c_ns / period_ns).collect();
    let widest = shares.iter().copied().fold(0.0, f64::max);
    distribution(name, shares.into_iter(), (widest / COST_BINS).max(f64::MIN_POSITIVE))
}

/// Autocorrelation of the costs at lags from 0 (Figure 7b). It is 1 at lag 0. Empty if all costs are equal.
pub fn autocorrelation(name: &str, trace: &[Job]) -> Curve {
    let mean = trace.iter().map(|job| job.c_ns).sum::<f64>() / trace.len().max(1) as f64;
    let off: Vec<f64> = trace.iter().map(|job| job.c_ns - mean).collect();
    let at = |lag: usize| off.iter().zip(&off[lag..]).map(|(a, b)| a * b).sum::<f64>();
    let lags = LAGS.min(off.len().saturating_sub(1));
    let variance = at(0);
    let points = (0..=lags).filter(|_| variance > 0.0).map(|lag| (lag as f64, at(lag) / variance)).collect();
    Curve { name: name.to_owned(), points }
}

/// Fractions of `values` in bins of `width` around its multiples. Includes the empty bins between the outermost
/// ones.
fn distribution(name: &str, values: impl Iterator<Item = f64>, width: f64) -> Curve {
    let mut bins = std::collections::BTreeMap::<i64, u64>::new();
    values.for_each(|value| *bins.entry((value / width).round() as i64).or_default() += 1);
    let total = bins.values().sum::<u64>().max(1) as f64;
    let (first, last) = (bins.keys().next().copied(), bins.keys().last().copied());
    let mass = |bin: i64| bins.get(&bin).map_or(0.0, |&count| count as f64 / total);
    let range = first.zip(last).map(|(first, last)| first - 1..=last + 1);
    let points = range.into_iter().flatten().map(|bin| (bin as f64 * width, mass(bin))).collect();
    Curve { name: name.to_owned(), points }
}

/// Figure 8: the error distributions of several controllers over one trace, with the target interval.
pub fn errors_svg(curves: &[Curve], options: &Options) -> String {
    let chart = Chart {
        title: "Scheduling error by controller",
        x_label: "ε / T (fraction of the period; below 0: early)",
        y_label: "fraction of jobs",
        band: Some((-options.early, options.late)),
        curves,
    };
    svg(&[chart])
}

/// Figure 7: the distribution of the costs of several traces (a) and their autocorrelation (b).
pub fn traces_svg(costs: &[Curve], repeats: &[Curve]) -> String {
    let (x_label, y_label) = ("c / T (fraction of one CPU)", "fraction of jobs");
    let costs = Chart { title: "Computation times", x_label, y_label, band: None, curves: costs };
    let (x_label, y_label) = ("lag in jobs", "autocorrelation");
    let repeats = Chart { title: "Repetition of the costs", x_label, y_label, band: None, curves: repeats };
    svg(&[costs, repeats])
}

/// Figures 9 and 10: charts above each other over the same horizontal axis. Each has a title, a vertical axis and
/// curves.
pub fn sweep_svg(x_label: &str, charts: &[(&str, &str, Vec<Curve>)]) -> String {
    let charts: Vec<Chart> =
        charts.iter().map(|(title, y_label, curves)| Chart { title, x_label, y_label, band: None, curves }).collect();
    svg(&charts)
}

fn svg(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n{STYLE}\n<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n"
    );
    for (at, chart) in charts.iter().enumerate() {
        Drawing::new(chart, at as f64 * HEIGHT, &mut text).whole();
    }
    text + "</svg>\n"
}

struct Drawing<'a> {
    chart: &'a Chart<'a>,
    top: f64,
    x: (f64, f64),
    y: (f64, f64),
    text: &'a mut String,
}

impl<'a> Drawing<'a> {
    fn new(chart: &'a Chart<'a>, top: f64, text: &'a mut String) -> Self {
        let points = || chart.curves.iter().flat_map(|curve| &curve.points);
        let xs = || points().map(|point| point.0).chain(chart.band.into_iter().flat_map(|(low, high)| [low, high]));
        let x = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
        let y = (points().map(|point| point.1).fold(0.0, f64::min), points().map(|point| point.1).fold(0.0, f64::max));
        let some = |(low, high): (f64, f64)| if high > low { (low, high) } else { (0.0, 1.0) };
        Drawing { chart, top, x: some(x), y: some(y), text }
    }

    fn whole(mut self) {
        self.band();
        self.axes();
        for (at, curve) in self.chart.curves.iter().enumerate() {
            self.curve(at, curve);
        }
    }

    fn put(&mut self, line: std::fmt::Arguments) {
        self.text.write_fmt(line).and_then(|()| self.text.write_str("\n")).expect("writing to a String cannot fail");
    }

    fn words(&mut self, x: f64, y: f64, anchor: &str, words: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.put(format_args!(
            "<text class=\"text\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        ));
    }

    fn place_x(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn place_y(&self, y: f64) -> f64 {
        self.top + HEIGHT - BOTTOM - (y - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn band(&mut self) {
        let Some((low, high)) = self.chart.band else { return };
        // A target interval of width 0 must stay visible.
        let (x, top) = (self.place_x(low), self.top + TOP);
        let (width, height) = ((self.place_x(high) - x).max(2.0), HEIGHT - TOP - BOTTOM);
        self.put(format_args!(
            "<rect class=\"band\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    fn axes(&mut self) {
        for part in 0..=5 {
            let part = f64::from(part) / 5.0;
            let (x, y) = (self.x.0 + part * (self.x.1 - self.x.0), self.y.0 + part * (self.y.1 - self.y.0));
            let (at_x, at_y, bottom) = (self.place_x(x), self.place_y(y), self.place_y(self.y.0));
            let right = self.place_x(self.x.1);
            self.put(format_args!(
                "<path class=\"grid\" d=\"M{LEFT} {at_y:.1}H{right:.1}M{at_x:.1} {bottom:.1}v5\" fill=\"none\"/>"
            ));
            self.words(LEFT - 6.0, at_y + 4.0, "end", &format!("{y:.2}"));
            self.words(at_x, bottom + 18.0, "middle", &format!("{x:.2}"));
        }
        let (left, bottom, right, top) = (LEFT, self.place_y(self.y.0), self.place_x(self.x.1), self.top);
        self.put(format_args!(
            "<path class=\"axis\" d=\"M{left} {:.1}V{bottom:.1}H{right:.1}\" fill=\"none\"/>",
            top + TOP
        ));
        let Chart { title, x_label, y_label, .. } = self.chart;
        self.words(LEFT, top + 18.0, "start", &format!("{title}: {y_label}"));
        self.words((left + right) / 2.0, bottom + 36.0, "middle", x_label);
    }

    fn curve(&mut self, at: usize, curve: &Curve) {
        let colour = COLOURS[at % COLOURS.len()];
        let points: Vec<String> =
            curve.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", self.place_x(x), self.place_y(y))).collect();
        let points = points.join(" ");
        self.put(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>"
        ));
        let (x, y) = (WIDTH - RIGHT + 12.0, self.top + TOP + 10.0 + 18.0 * at as f64);
        let end = x + 18.0;
        self.put(format_args!("<path d=\"M{x} {y:.1}H{end}\" stroke=\"{colour}\" stroke-width=\"3\"/>"));
        self.words(x + 24.0, y + 4.0, "start", &curve.name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    fn jobs(costs: &[f64]) -> Vec<Job> {
        costs.iter().map(|&c_ns| Job { c_ns, hint: None }).collect()
    }

    fn mass_at(curve: &Curve, x: f64) -> f64 {
        let near = |point: &&(f64, f64)| (point.0 - x).abs() < 1e-9;
        curve.points.iter().find(near).map_or(0.0, |point| point.1)
    }

    #[test]
    fn the_mass_of_errors_matches_the_jobs_and_sums_to_one() {
        let options = Options { fixed: Some(0.2), ..Options::default() };
        // 8 ms take 16 server periods: ε = 0. 4 ms take 8: ε = −T/2. 200 ms: beyond one period late.
        let output = run(&jobs(&[8e6, 8e6, 4e6, 200e6]), &options).unwrap();
        let curve = error_distribution("20 %", &output, &options);
        assert_eq!([mass_at(&curve, 0.0), mass_at(&curve, -0.5), mass_at(&curve, 1.0)], [0.5, 0.25, 0.25]);
        assert!((curve.points.iter().map(|point| point.1).sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_pattern_of_three_repeats_at_every_third_lag() {
        let curve = autocorrelation("x", &jobs(&[2e6, 1e6, 1e6].repeat(100)));
        let at = |lag: usize| curve.points[lag].1;
        assert_eq!((curve.points.len(), at(0)), (LAGS + 1, 1.0));
        for lag in [3, 12, 30] {
            assert!(at(lag) > 0.85 && at(lag - 1) < 0.0 && at(lag + 1) < 0.0, "lag {lag}: {}", at(lag));
        }
        assert_eq!(autocorrelation("constant", &jobs(&[1e6; 9])).points, []);
    }

    #[test]
    fn a_picture_names_its_curves_and_axes_and_shows_the_target() {
        let curve = Curve { name: "a<b".into(), points: vec![(-0.5, 0.25), (0.0, 0.75)] };
        let text = errors_svg(std::slice::from_ref(&curve), &Options::default());
        for part in ["a&lt;b", "ε / T", "class=\"band\"", "fraction of jobs", "prefers-color-scheme:dark"] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
        assert_eq!(text.matches("<polyline").count(), 1);
        let empty = Curve { points: vec![], ..curve.clone() };
        let both = traces_svg(&[curve], &[empty]);
        assert!(both.contains("lag in jobs") && !both.contains("NaN") && !both.contains("inf"), "{both}");
    }
}
