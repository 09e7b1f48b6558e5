//! Draws the plots: probability mass function of ε, ε over time, and budget and cost over time, with one panel per
//! policy.
//!
//! All panels of a figure have the same scale, so that policies can be compared by eye. The same code draws each
//! figure as PNG and as SVG. The font is embedded, so a machine without fonts draws the same picture. In the page,
//! colours are CSS variables ([`themed`]) that follow the light or dark mode of the reader.

use std::path::Path;
use std::sync::Once;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::{Report, RunPoints};

const FONT: &[u8] = include_bytes!("../../assets/plots.ttf");
const PANEL: (u32, u32) = (400, 240);
const COLUMNS: usize = 3;
pub(crate) const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Colour of text.
pub const INK: RGBColor = RGBColor(51, 65, 85);
pub(crate) const GRID: RGBColor = RGBColor(226, 232, 240);
pub(crate) const TARGET: RGBColor = RGBColor(209, 250, 229);
const MISS: RGBColor = RGBColor(220, 38, 38);
const COST: RGBColor = RGBColor(203, 213, 225);
pub(crate) const OURS: RGBColor = RGBColor(13, 116, 206);
const STATIC: RGBColor = RGBColor(217, 119, 6);
pub(crate) const OTHER: RGBColor = RGBColor(100, 116, 139);
const HELD: RGBColor = RGBColor(5, 150, 105);
/// Each colour with the CSS variable that replaces it in the page.
const VARIABLES: [(RGBColor, &str); 10] = [
    (PAPER, "--paper"),
    (INK, "--ink"),
    (GRID, "--grid"),
    (TARGET, "--target"),
    (MISS, "--miss"),
    (COST, "--cost"),
    (OURS, "--ours"),
    (STATIC, "--static"),
    (OTHER, "--other"),
    (HELD, "--held"),
];

/// The quantity that a figure shows for each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pmf,
    Error,
    Budget,
}

/// A figure with one panel per run.
pub(super) struct Figure<'a> {
    /// Caption below the figure.
    pub caption: &'static str,
    kind: Kind,
    runs: Vec<&'a RunPoints>,
}

/// The scale that all panels of a figure share.
struct Scale {
    /// Largest value of the vertical axis.
    top: f64,
    /// First and last job.
    jobs: (f64, f64),
}

impl Figure<'_> {
    fn scale(&self) -> Scale {
        let tops = |run: &&RunPoints| match self.kind {
            Kind::Pmf => gathered(&run.pmf).iter().map(|bar| bar.1).fold(0.05, f64::max),
            _ => run.first_player().iter().flat_map(|p| [p.cost, p.bandwidth]).flatten().fold(0.2, f64::max),
        };
        let jobs = self.runs.iter().map(|run| jobs(run));
        Scale {
            top: self.runs.iter().map(tops).fold(0.0, f64::max) * 1.08,
            jobs: jobs.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0.0, 1.0)),
        }
    }
    fn size(&self) -> (u32, u32) {
        let columns = self.runs.len().clamp(1, COLUMNS);
        let lines = self.runs.len().div_ceil(COLUMNS).max(1);
        (PANEL.0 * columns as u32, PANEL.1 * lines as u32)
    }
}

/// All figures of a report with their names, such as `hogs-pmf`.
pub(super) fn figures(report: &Report) -> Vec<(String, Figure<'_>)> {
    let mut figures = Vec::new();
    if !report.grid.is_empty() {
        return figures; // the grid has heat maps instead
    }
    for (scenario, _) in super::html::by_scenario(report) {
        for (name, kind, caption) in [
            (
                "pmf",
                Kind::Pmf,
                "Probability of each scheduling error ε (in T); shaded: the target interval. The last bar contains all \
                 errors of 1 T and more.",
            ),
            (
                "error",
                Kind::Error,
                "Scheduling error ε of the first player, job by job (in T, cut at 2 T); shaded: the target interval.",
            ),
            (
                "budget",
                Kind::Budget,
                "Bandwidth reserved by the first player (line) and cost of each frame (bars), in % of one CPU; red: \
                 missed deadlines; dashed: the load shift.",
            ),
        ] {
            let runs = report.runs.iter().filter(|run| run.scenario == scenario).collect();
            figures.push((format!("{scenario}-{name}"), Figure { caption, kind, runs }));
        }
    }
    figures
}

/// Replaces the colours of the SVG with variables that follow the page's light or dark mode.
pub(super) fn themed(svg: &str) -> String {
    VARIABLES.iter().fold(svg.to_owned(), |text, (colour, name)| {
        let hex = format!("\"#{:02X}{:02X}{:02X}\"", colour.0, colour.1, colour.2);
        text.replace(&hex, &format!("\"var({name})\""))
    })
}

/// Writes the figure as PNG.
pub(super) fn png(path: &Path, figure: &Figure) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", path.display());
    let area = BitMapBackend::new(path, figure.size()).into_drawing_area();
    draw(&area, figure).map_err(|e| failed(&e))?;
    area.present().map_err(|e| failed(&e))
}

/// Returns the figure as SVG text.
pub(super) fn svg(figure: &Figure) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, figure.size()).into_drawing_area();
        draw(&area, figure).map_err(|e| anyhow!("cannot draw: {e}"))?;
        area.present().map_err(|e| anyhow!("cannot draw: {e}"))?;
    }
    Ok(text)
}

/// Registers the embedded font once. A failed registration leaves the plots without text; registering the font again
/// would not help.
pub fn register_letters() {
    static LETTERS: Once = Once::new();
    LETTERS.call_once(|| drop(register_font("sans-serif", FontStyle::Normal, FONT)));
}

type Area<DB> = DrawingArea<DB, Shift>;
type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

fn draw<DB: DrawingBackend>(area: &Area<DB>, figure: &Figure) -> Drawn<DB> {
    register_letters();
    area.fill(&PAPER)?;
    let scale = figure.scale();
    let columns = figure.runs.len().clamp(1, COLUMNS);
    let panels = area.split_evenly((figure.runs.len().div_ceil(COLUMNS).max(1), columns));
    for (panel, run) in panels.iter().zip(&figure.runs) {
        match figure.kind {
            Kind::Pmf => pmf(panel, run, &scale)?,
            Kind::Error => error(panel, run, &scale)?,
            Kind::Budget => budget(panel, run, &scale)?,
        }
    }
    Ok(())
}

/// One colour per family of policies.
fn colour(policy: &str) -> RGBColor {
    match policy {
        p if p.starts_with("Q-Fabric") => OURS,
        p if p.starts_with("static") => STATIC,
        _ => OTHER,
    }
}

type Chart<'a, DB> =
    ChartContext<'a, DB, Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>>;

fn chart<'a, DB: DrawingBackend>(
    panel: &'a Area<DB>,
    run: &RunPoints,
    (x0, x1): (f64, f64),
    (y0, y1): (f64, f64),
) -> Result<Chart<'a, DB>, DrawingAreaErrorKind<DB::ErrorType>> {
    ChartBuilder::on(panel)
        .caption(&run.policy, ("sans-serif", 15).into_font().color(&INK))
        .margin(8)
        .margin_right(16)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(x0..x1, y0..y1)
}

/// Draws grid and axes: for each axis its description, and the text of a number on it.
pub fn mesh<DB: DrawingBackend>(
    chart: &mut Chart<'_, DB>,
    (x_unit, x): (&str, &dyn Fn(&f64) -> String),
    (y_unit, y): (&str, &dyn Fn(&f64) -> String),
) -> Drawn<DB> {
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK.mix(0.5))
        .label_style(("sans-serif", 11).into_font().color(&INK))
        .x_labels(6)
        .y_labels(5)
        .axis_desc_style(("sans-serif", 11).into_font().color(&INK))
        .x_desc(x_unit)
        .y_desc(y_unit)
        .x_label_formatter(x)
        .y_label_formatter(y)
        .draw()
}

fn pmf<DB: DrawingBackend>(panel: &Area<DB>, run: &RunPoints, scale: &Scale) -> Drawn<DB> {
    let bars = gathered(&run.pmf);
    let y = (0.0, scale.top);
    let mut chart = chart(panel, run, (-1.1, 1.15), y)?;
    let half = step(&run.pmf) * 0.4;
    shade(&mut chart, (run.target.0 - half, run.target.1 + half), y)?;
    let x_label = |x: &f64| if *x >= 1.0 { "≥1".into() } else { format!("{x:.1}") };
    mesh(&mut chart, ("ε [periods]", &x_label), ("jobs [%]", &|y| format!("{:.0}", y * 100.0)))?;
    let style = colour(&run.policy).filled();
    let bar = |&(x, p): &(f64, f64)| Rectangle::new([(x - half, 0.0), (x + half, p)], style);
    chart.draw_series(bars.iter().map(bar)).map(drop)
}

/// Gathers all errors of 1 T and more in one bar, and all errors of −1 T and less in another.
fn gathered(pmf: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut bars: Vec<(f64, f64)> = Vec::new();
    for &(error, p) in pmf {
        let x = error.clamp(-1.0, 1.0);
        match bars.last_mut() {
            Some(last) if last.0 == x => last.1 += p,
            _ => bars.push((x, p)),
        }
    }
    bars
}

/// The distance between neighbouring errors, from the closest two.
fn step(pmf: &[(f64, f64)]) -> f64 {
    let closest = pmf.windows(2).map(|w| w[1].0 - w[0].0).fold(f64::INFINITY, f64::min);
    if closest.is_finite() { closest.min(0.25) } else { 0.25 }
}

fn error<DB: DrawingBackend>(panel: &Area<DB>, run: &RunPoints, scale: &Scale) -> Drawn<DB> {
    let (x, y) = (scale.jobs, (-1.0, 2.0));
    let mut chart = chart(panel, run, x, y)?;
    let band = [(x.0, run.target.0), (x.1, run.target.1)];
    chart.draw_series([Rectangle::new(band, TARGET.filled())])?;
    mesh(&mut chart, ("job", &|x| format!("{x:.0}")), ("ε [periods]", &|y| format!("{y:.1}")))?;
    shift_line(&mut chart, run, y)?;
    let line = run.first_player().iter().map(|p| (p.k as f64, p.error.clamp(y.0, y.1)));
    chart.draw_series(LineSeries::new(line, colour(&run.policy).stroke_width(1))).map(drop)
}

fn budget<DB: DrawingBackend>(panel: &Area<DB>, run: &RunPoints, scale: &Scale) -> Drawn<DB> {
    let (x, y) = (scale.jobs, (0.0, scale.top));
    let mut chart = chart(panel, run, x, y)?;
    mesh(&mut chart, ("job", &|x| format!("{x:.0}")), ("one CPU [%]", &|y| format!("{:.0}", y * 100.0)))?;
    shift_line(&mut chart, run, y)?;
    let costs = run.first_player().iter().filter_map(|p| Some((p.k as f64, p.cost?)));
    chart.draw_series(costs.map(|(k, c)| Rectangle::new([(k - 0.4, 0.0), (k + 0.4, c)], COST.filled())))?;
    let granted = run.first_player().iter().filter_map(|p| Some((p.k as f64, p.bandwidth?)));
    let steps = granted.flat_map(|(k, b)| [(k - 0.5, b), (k + 0.5, b)]);
    chart.draw_series(LineSeries::new(steps, colour(&run.policy).stroke_width(1)))?;
    let missed = run.first_player().iter().filter(|p| p.missed);
    chart.draw_series(missed.map(|p| Circle::new((p.k as f64, y.1 * 0.97), 2, MISS.filled()))).map(drop)
}

fn jobs(run: &RunPoints) -> (f64, f64) {
    let first = run.first_player().first().map_or(0, |p| p.k) as f64;
    let last = run.first_player().last().map_or(1, |p| p.k) as f64;
    (first - 0.5, last.max(first) + 0.5)
}

fn shade<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, x: (f64, f64), y: (f64, f64)) -> Drawn<DB> {
    chart.draw_series([Rectangle::new([(x.0, y.0), (x.1, y.1)], TARGET.filled())]).map(drop)
}

fn shift_line<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, run: &RunPoints, y: (f64, f64)) -> Drawn<DB> {
    let Some(k) = run.shift_at else { return Ok(()) };
    let x = k as f64 - 0.5;
    chart.draw_series(DashedLineSeries::new([(x, y.0), (x, y.1)], 4, 4, INK.stroke_width(1))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn errors_beyond_one_period_are_gathered_in_one_bar() {
        assert_eq!(gathered(&[(-0.5, 0.25), (1.0, 0.25), (2.0, 0.25), (7.25, 0.25)]), [(-0.5, 0.25), (1.0, 0.75)]);
    }

    #[test]
    fn each_scenario_has_three_figures_with_a_panel_per_policy() {
        let report = report();
        let figures = figures(&report);
        let names: Vec<_> = figures.iter().map(|f| f.0.as_str()).collect();
        assert_eq!(names, ["hogs-pmf", "hogs-error", "hogs-budget", "shift-pmf", "shift-error", "shift-budget"]);
        assert_eq!(figures[0].1.size(), (1_200, 240));
        let text = svg(&figures[0].1).unwrap();
        assert!(
            ["plain", "Q-Fabric hint[24], hard", "jobs [%]"].iter().all(|policy| text.contains(policy)),
            "no captions"
        );
    }

    #[test]
    fn every_colour_of_the_page_follows_the_mode_of_the_reader() {
        let report = report();
        for (name, figure) in figures(&report) {
            let page = themed(&svg(&figure).unwrap());
            assert!(page.contains("var(--ink)") && !page.contains("=\"#"), "{name} keeps a fixed colour");
        }
    }

    #[test]
    fn the_panels_of_a_figure_share_one_scale() {
        let report = report();
        let (_, budgets) = figures(&report).remove(2);
        let dearest = budgets.runs.iter().flat_map(|run| run.first_player()).filter_map(|p| p.cost).fold(0.0, f64::max);
        assert!(budgets.scale().top > dearest && budgets.scale().jobs == (-0.5, 4.5));
    }

    #[test]
    fn a_run_without_jobs_is_drawn_empty() {
        let mut report = report();
        for run in &mut report.runs {
            (run.players, run.pmf) = (Vec::new(), Vec::new());
        }
        for (_, figure) in figures(&report) {
            svg(&figure).unwrap();
        }
    }
}
