//! Plots completed replies and response times over the offered load, with one line for each server.

use std::path::Path;
use std::sync::Once;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::options::Server;
use crate::run::{Report, Row};

/// The demo's font, so that a host without fonts draws the same picture.
const FONT: &[u8] = include_bytes!("../../../../../crates/demo/assets/plots.ttf");
const SIZE: (u32, u32) = (640, 320);
const INK: RGBColor = RGBColor(51, 65, 85);
const GRID: RGBColor = RGBColor(226, 232, 240);

pub(crate) fn write(folder: &Path, report: &Report) -> Result<()> {
    let share = |row: &Row| Some(100.0 * row.seen.replies / report.capacity_of(row.server));
    let pictures = [
        ("replies.svg", svg(report, "replies in time, % of capacity", &share)?),
        ("times.svg", svg(report, "response time of replies, ms (mean)", &response)?),
    ];
    for (name, text) in pictures {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn response(row: &Row) -> Option<f64> {
    row.seen.time(row.seen.response_ms)
}

fn svg(report: &Report, caption: &str, value: &dyn Fn(&Row) -> Option<f64>) -> Result<String> {
    static LETTERS: Once = Once::new();
    LETTERS.call_once(|| drop(register_font("sans-serif", FontStyle::Normal, FONT)));
    let mut text = String::new();
    draw(SVGBackend::with_string(&mut text, SIZE), report, caption, value).map_err(|e| anyhow!("cannot draw: {e}"))?;
    Ok(text)
}

fn draw<DB: DrawingBackend>(
    backend: DB,
    report: &Report,
    caption: &str,
    value: &dyn Fn(&Row) -> Option<f64>,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    let area = backend.into_drawing_area();
    area.fill(&WHITE)?;
    let right = report.rows.iter().map(|row| row.factor).fold(1.0, f64::max);
    let top = report.rows.iter().filter_map(value).fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(&area)
        .caption(caption, ("sans-serif", 16).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..right * 1.02, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .x_desc("offered load, multiples of the capacity")
        .draw()?;
    for server in servers(report) {
        let rows = report.rows.iter().filter(|row| row.server == server);
        let points: Vec<_> = rows.filter_map(|row| Some((row.factor, value(row)?))).collect();
        let style = colour(server).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?
            .label(server.label())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    let labels = ("sans-serif", 12).into_font().color(&INK);
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(GRID).label_font(labels).draw()?;
    area.present()
}

/// The servers in the order of the report.
fn servers(report: &Report) -> Vec<Server> {
    let mut servers: Vec<_> = report.rows.iter().map(|row| row.server).collect();
    servers.dedup();
    servers
}

fn colour(server: Server) -> RGBColor {
    match server {
        Server::Select => RGBColor(148, 163, 184),
        Server::Poll => RGBColor(217, 119, 6),
        Server::Epoll => RGBColor(5, 150, 105),
        Server::Ecalls => RGBColor(124, 58, 237),
        Server::EcallsControlled => RGBColor(13, 116, 206),
        Server::Nginx => RGBColor(220, 38, 38),
        Server::NginxGuard => RGBColor(13, 116, 206),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::report;

    #[test]
    fn both_pictures_name_every_server() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &report()).unwrap();
        for name in ["replies.svg", "times.svg"] {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(text.contains("select") && text.contains("nginx + guard"), "{name}");
        }
    }

    #[test]
    fn a_load_without_replies_has_no_point_in_the_picture_of_times() {
        let mut report = report();
        assert_eq!(response(&report.rows[1]), Some(120.0));
        report.rows[1].seen.replies = 0.0;
        assert_eq!(response(&report.rows[1]), None);
    }
}
