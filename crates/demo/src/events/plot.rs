//! The plots: mean response times on the left, timeouts on the right, a bar for each row.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::EventsRow;
use crate::clips::write_whole;
use crate::report::plots::{GRID, INK, OURS, PAPER, register_letters};

const SIZE: (u32, u32) = (1_000, 320);

type Area<DB> = DrawingArea<DB, Shift>;
type Failure<DB> = DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>;

/// Writes `events-EXPERIMENT.png` and `.svg` into a folder.
pub(super) fn write(folder: &Path, experiment: &str, rows: &[&EventsRow]) -> Result<()> {
    let path = folder.join(format!("events-{experiment}.png"));
    let failed = |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", path.display());
    {
        let area = BitMapBackend::new(&path, SIZE).into_drawing_area();
        draw(&area, rows).map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&area, rows).map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    write_whole(&path.with_extension("svg"), text.as_bytes())
}

fn draw<DB: DrawingBackend>(area: &Area<DB>, rows: &[&EventsRow]) -> Result<(), Failure<DB>> {
    register_letters();
    area.fill(&PAPER)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    let times = rows.iter().map(|row| (row.label(), row.response_ms.unwrap_or(0.0))).collect::<Vec<_>>();
    let timeouts = rows.iter().map(|row| (row.label(), row.timeouts as f64)).collect::<Vec<_>>();
    panel(&left, "Mean response time of answered requests", "ms", &times)?;
    panel(&right, "Requests given up after 1 s", "requests", &timeouts)
}

fn panel<DB: DrawingBackend>(
    area: &Area<DB>,
    title: &str,
    unit: &str,
    bars: &[(String, f64)],
) -> Result<(), Failure<DB>> {
    let top = bars.iter().map(|(_, value)| *value).fold(1.0, f64::max) * 1.15;
    let font = |size: u32| ("sans-serif", size).into_font().color(&INK);
    let mut chart = ChartBuilder::on(area)
        .caption(title, font(15))
        .margin(8)
        .x_label_area_size(8)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..bars.len() as f64, 0.0..top)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().disable_x_axis().light_line_style(TRANSPARENT).bold_line_style(GRID);
    mesh.axis_style(INK.mix(0.5)).label_style(font(11)).axis_desc_style(font(11)).y_desc(unit).draw()?;
    let places = || bars.iter().enumerate().map(|(number, (name, value))| (number as f64, name, *value));
    chart.draw_series(
        places().map(|(at, _, value)| Rectangle::new([(at + 0.2, 0.0), (at + 0.8, value)], OURS.filled())),
    )?;
    let name = |(at, name, value): (f64, &String, f64)| {
        Text::new(format!("{name}: {value:.0}"), (at + 0.05, value + top * 0.06), font(11))
    };
    chart.draw_series(places().map(name)).map(drop)
}
