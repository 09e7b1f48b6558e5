//! The pictures: intra-frame times, one panel for each stream and reservation, as Figures 12 to 14 of the paper.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::experiment::{Experiment, Reserved};
use crate::report::Report;

const PANEL: (u32, u32) = (420, 230);
const INK: RGBColor = RGBColor(51, 65, 85);
const GRID: RGBColor = RGBColor(226, 232, 240);
const LINE: RGBColor = RGBColor(13, 116, 206);
const BEYOND: RGBColor = RGBColor(220, 38, 38);

/// A panel: its caption, the period, and the times of one run.
struct Panel<'a> {
    caption: String,
    period_ms: f64,
    times: &'a [f64],
}

/// Writes `EXPERIMENT.png` and `.svg` into the folder, each with the first run of every reservation.
pub(crate) fn write(report: &Report, folder: &Path) -> Result<()> {
    qfabric_demo::report::register_letters();
    for experiment in report.experiments() {
        let rows = panels(report, experiment);
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
            Some(Panel { caption, period_ms: row.period_ms, times: &row.intra_frame_ms })
        };
        experiment.streams().iter().enumerate().filter_map(panel).collect::<Vec<_>>()
    };
    experiment.reservations().iter().map(row).filter(|row| !row.is_empty()).collect()
}

fn size(rows: &[Vec<Panel>]) -> (u32, u32) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(1).max(1) as u32;
    (PANEL.0 * columns, PANEL.1 * rows.len().max(1) as u32)
}

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// All panels share the vertical axis, so that reservations can be compared by eye.
fn draw<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, rows: &[Vec<Panel>]) -> Drawn<DB> {
    area.fill(&WHITE)?;
    let all = rows.iter().flatten();
    let top = all.flat_map(|panel| panel.times.iter().copied().chain([2.5 * panel.period_ms])).fold(100.0, f64::max);
    let places = area.split_evenly((rows.len().max(1), rows.iter().map(Vec::len).max().unwrap_or(1).max(1)));
    let columns = places.len() / rows.len().max(1);
    for (at, row) in rows.iter().enumerate() {
        for (column, panel) in row.iter().enumerate() {
            draw_panel(&places[at * columns + column], panel, top * 1.05)?;
        }
    }
    area.present()
}

fn draw_panel<DB: DrawingBackend>(place: &DrawingArea<DB, Shift>, panel: &Panel, top: f64) -> Drawn<DB> {
    let last = panel.times.len().max(1) as f64;
    let mut chart = ChartBuilder::on(place)
        .caption(&panel.caption, ("sans-serif", 15).into_font().color(&INK))
        .margin(8)
        .margin_right(16)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..last, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK.mix(0.5))
        .label_style(("sans-serif", 11).into_font().color(&INK))
        .x_labels(6)
        .y_labels(5)
        .axis_desc_style(("sans-serif", 11).into_font().color(&INK))
        .x_desc("frame")
        .y_desc("intra-frame time [ms]")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    let limit = 2.0 * panel.period_ms;
    chart.draw_series(DashedLineSeries::new([(0.0, limit), (last, limit)], 4, 4, BEYOND.stroke_width(1)))?;
    let line = panel.times.iter().enumerate().map(|(at, time)| (at as f64, *time));
    chart.draw_series(LineSeries::new(line, LINE.stroke_width(1)))?;
    let beyond = panel.times.iter().enumerate().filter(|(_, time)| **time > limit);
    chart.draw_series(beyond.map(|(at, time)| Circle::new((at as f64, *time), 2, BEYOND.filled()))).map(drop)
}
