//! The pictures: intra-frame times, one panel for each stream and reservation, as Figures 12 to 15 of the paper, and the
//! asked against the achieved bandwidth (Figure 10).

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use qfabric_demo::report::{INK, mesh, register_letters};
use qfabric_netlab::Spread;

use crate::experiment::{Experiment, Reserved, StreamPlan};
use crate::rates;
use crate::report::Report;

const PANEL: (u32, u32) = (420, 230);
/// Size of Figure 10.
const RATES: (u32, u32) = (480, 400);
const LINE: RGBColor = RGBColor(13, 116, 206);
const BEYOND: RGBColor = RGBColor(220, 38, 38);

/// Values above this number of limits are drawn at the upper edge, so that they do not flatten all others.
const CUT: f64 = 2.5;

/// A panel with the values of one run.
struct Panel<'a> {
    caption: String,
    /// Name of the vertical axis.
    axis: &'static str,
    /// Dashed lines: between them is what was promised.
    limits: (f64, f64),
    /// Frames that were due.
    frames: usize,
    values: &'a [f64],
}

/// Writes `qualman-EXPERIMENT.png` and `.svg` into the folder, each with the first run of every reservation.
pub(crate) fn write(report: &Report, folder: &Path) -> Result<()> {
    register_letters();
    for experiment in report.experiments() {
        let path = |extension: &str| folder.join(format!("qualman-{}.{extension}", experiment.word()));
        let failed = |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", path("*").display());
        let (png, svg) = (path("png"), path("svg"));
        if experiment.is_in_turn() {
            draw_rates(&BitMapBackend::new(&png, RATES).into_drawing_area(), report).map_err(|e| failed(&e))?;
            draw_rates(&SVGBackend::new(&svg, RATES).into_drawing_area(), report).map_err(|e| failed(&e))?;
            continue;
        }
        let rows = panels(report, experiment);
        if rows.is_empty() {
            continue;
        }
        let size = size(&rows);
        draw(&BitMapBackend::new(&png, size).into_drawing_area(), &rows).map_err(|e| failed(&e))?;
        draw(&SVGBackend::new(&svg, size).into_drawing_area(), &rows).map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// Figure 10: the median of the runs, with a bar from the least to the most, and the line of what is asked.
fn draw_rates<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, report: &Report) -> Drawn<DB> {
    area.fill(&WHITE)?;
    let most = Experiment::Rates.streams().iter().map(StreamPlan::asked_mbps).fold(0.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption("Bandwidth on a flooded link of 20 Mbit/s", ("sans-serif", 15).into_font().color(&INK))
        .margin(8)
        .margin_right(16)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..most, 0.0..most)?;
    let whole = |value: &f64| format!("{value:.0}");
    mesh(&mut chart, ("asked by the application [Mbit/s]", &whole), ("achieved [Mbit/s]", &whole))?;
    chart.draw_series(DashedLineSeries::new([(0.0, 0.0), (most, most)], 4, 4, INK.stroke_width(1)))?;
    for (reserved, color) in [(Reserved::Everything, LINE), (Reserved::Nothing, BEYOND)] {
        let points = rates::points(report, reserved);
        let medians = points.iter().map(|(asked, achieved)| (*asked, achieved.median));
        let line = chart.draw_series(LineSeries::new(medians.clone(), color.stroke_width(2)))?;
        line.label(format!("reserved: {}", reserved.title()))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        chart.draw_series(medians.map(|point| Circle::new(point, 3, color.filled())))?;
        let bar = |(asked, achieved): &(f64, Spread)| {
            PathElement::new([(*asked, achieved.least), (*asked, achieved.most)], color.stroke_width(1))
        };
        chart.draw_series(points.iter().map(bar))?;
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).label_font(("sans-serif", 12).into_font().color(&INK));
    labels.background_style(WHITE.mix(0.8)).draw()?;
    area.present()
}

/// One row for each reservation, one column for each stream.
fn panels(report: &Report, experiment: Experiment) -> Vec<Vec<Panel<'_>>> {
    let row = |reserved: &Reserved| {
        let panel = |(at, plan): (usize, &StreamPlan)| {
            let row = report.rows(experiment, *reserved, at).into_iter().next()?;
            let caption = format!("{}, reserved: {}", plan.title(), reserved.title());
            let (limits, frames) = ((0.0, 2.0 * row.period_ms), row.jitter.frames);
            Some(Panel { caption, axis: "intra-frame time [ms]", limits, frames, values: &row.intra_frame_ms })
        };
        let streams = experiment.streams().iter().enumerate().filter_map(panel);
        streams.chain(skew(report, experiment, *reserved)).collect::<Vec<_>>()
    };
    experiment.reservations().iter().map(row).filter(|row| !row.is_empty()).collect()
}

/// Figure 15.
fn skew(report: &Report, experiment: Experiment, reserved: Reserved) -> Option<Panel<'_>> {
    let skew = report.skews(experiment, reserved).into_iter().next()?;
    Some(Panel {
        caption: format!("Skew, reserved: {}", reserved.title()),
        axis: "sound ahead [ms]",
        limits: (-10.0, 10.0),
        frames: skew.samples + skew.missing,
        values: &skew.all_ms,
    })
}

fn size(rows: &[Vec<Panel>]) -> (u32, u32) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(1).max(1) as u32;
    (PANEL.0 * columns, PANEL.1 * rows.len().max(1) as u32)
}

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// Panels of one column share the vertical axis, so that reservations can be compared by eye.
fn draw<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, rows: &[Vec<Panel>]) -> Drawn<DB> {
    area.fill(&WHITE)?;
    let columns = rows.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let places = area.split_evenly((rows.len().max(1), columns));
    for column in 0..columns {
        let panels: Vec<(usize, &Panel)> =
            rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.get(column)?))).collect();
        let all = panels.iter().flat_map(|(_, panel)| panel.values.iter().copied().chain([1.25 * panel.limits.1]));
        let most = panels.iter().map(|(_, panel)| CUT * panel.limits.1).fold(0.0, f64::max);
        let top = (all.clone().fold(0.0, f64::max) * 1.05).min(most);
        let bottom = panels.iter().map(|(_, panel)| 1.25 * panel.limits.0).chain(all).fold(0.0, f64::min);
        for (at, panel) in &panels {
            draw_panel(&places[at * columns + column], panel, (bottom, top))?;
        }
    }
    area.present()
}

fn draw_panel<DB: DrawingBackend>(
    place: &DrawingArea<DB, Shift>,
    panel: &Panel,
    (bottom, top): (f64, f64),
) -> Drawn<DB> {
    let last = panel.frames.max(1) as f64;
    let mut chart = ChartBuilder::on(place)
        .caption(&panel.caption, ("sans-serif", 15).into_font().color(&INK))
        .margin(8)
        .margin_right(16)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..last, bottom..top)?;
    mesh(&mut chart, ("frame", &|x| format!("{x:.0}")), (panel.axis, &|y| format!("{y:.0}")))?;
    let (low, high) = panel.limits;
    for limit in [low, high] {
        chart.draw_series(DashedLineSeries::new([(0.0, limit), (last, limit)], 4, 4, BEYOND.stroke_width(1)))?;
    }
    let points = || panel.values.iter().enumerate().map(|(at, value)| (at as f64, value.min(top)));
    chart.draw_series(LineSeries::new(points(), LINE.stroke_width(1)))?;
    let beyond = points().filter(|(_, value)| !(low..=high).contains(value));
    chart.draw_series(beyond.map(|point| Circle::new(point, 2, BEYOND.filled()))).map(drop)
}
