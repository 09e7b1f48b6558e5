//! The pictures: intra-frame times, one panel for each stream and reservation, as Figures 12 to 14 of the paper.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use qfabric_demo::report::{INK, mesh, register_letters};

use crate::experiment::{Experiment, Reserved};
use crate::report::Report;

const PANEL: (u32, u32) = (420, 230);
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
        let rows = panels(report, experiment);
        if rows.is_empty() {
            continue;
        }
        let size = size(&rows);
        let path = |extension: &str| folder.join(format!("qualman-{}.{extension}", experiment.word()));
        let failed = |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", path("*").display());
        draw(&BitMapBackend::new(&path("png"), size).into_drawing_area(), &rows).map_err(|e| failed(&e))?;
        draw(&SVGBackend::new(&path("svg"), size).into_drawing_area(), &rows).map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// One row for each reservation, one column for each stream.
fn panels(report: &Report, experiment: Experiment) -> Vec<Vec<Panel<'_>>> {
    let row = |reserved: &Reserved| {
        let panel = |(at, plan): (usize, &crate::experiment::StreamPlan)| {
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
