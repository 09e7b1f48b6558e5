//! Panels side by side as SVG, and their numbers as CSV.

use std::fmt::Write;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

/// The demo's font: a machine without fonts draws the same picture.
const FONT: &[u8] = include_bytes!("../../../demo/assets/plots.ttf");
const PANEL: (u32, u32) = (560, 360);
const INK: RGBColor = RGBColor(51, 65, 85);
const GRID: RGBColor = RGBColor(226, 232, 240);
const COLOURS: [RGBColor; 6] = [
    RGBColor(13, 116, 206),
    RGBColor(5, 150, 105),
    RGBColor(217, 119, 6),
    RGBColor(100, 116, 139),
    RGBColor(124, 58, 237),
    RGBColor(220, 38, 38),
];

/// One line, or one bar of each group.
pub(crate) struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

pub(crate) struct Panel {
    title: String,
    across: String,
    up: String,
    /// Names of groups of bars; empty: lines.
    groups: Vec<String>,
    curves: Vec<Curve>,
}

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

impl Panel {
    pub(crate) fn lines(title: String, across: &str, up: &str, curves: Vec<Curve>) -> Panel {
        Panel { title, across: across.into(), up: up.into(), groups: vec![], curves }
    }

    pub(crate) fn bars(title: &str, groups: &[&str], up: &str, curves: Vec<Curve>) -> Panel {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Panel { title: title.into(), across: String::new(), up: up.into(), groups, curves }
    }

    fn most(&self, of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        self.curves.iter().flat_map(|curve| &curve.points).map(of).fold(0.0, f64::max)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Drawn<DB> {
        let (left, right) = match self.groups.len() {
            0 => (0.0, self.most(|point| point.0) * 1.02),
            groups => (-0.5, groups as f64 - 0.5),
        };
        let top = self.most(|point| point.1).max(1e-6) * 1.35;
        let letters = |size: u32| ("sans-serif", size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, letters(16))
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right, 0.0..top)?;
        let name = |at: &f64| self.groups.get(at.round() as usize).cloned().unwrap_or_default();
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT).bold_line_style(GRID).label_style(letters(12));
        mesh.x_desc(&self.across).y_desc(&self.up);
        if !self.groups.is_empty() {
            mesh.disable_x_mesh().x_labels(self.groups.len()).x_label_formatter(&name);
        }
        mesh.draw()?;
        for (number, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let drawn = if self.groups.is_empty() {
                chart
                    .draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            } else {
                let bar = |(at, value): &(f64, f64)| {
                    let width = 0.8 / self.curves.len() as f64;
                    let from = at - 0.4 + width * number as f64;
                    Rectangle::new([(from, 0.0), (from + width * 0.92, *value)], colour.filled())
                };
                chart.draw_series(curve.points.iter().map(bar))?
            };
            drawn
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(3)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(GRID)
            .label_font(letters(12))
            .draw()?;
        Ok(())
    }
}

/// All panels in a row.
pub(crate) fn svg(panels: &[Panel]) -> String {
    static LETTERS: Once = Once::new();
    LETTERS.call_once(|| drop(register_font("sans-serif", FontStyle::Normal, FONT)));
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (PANEL.0 * panels.len() as u32, PANEL.1)).into_drawing_area();
    area.fill(&WHITE).expect("text takes everything");
    for (panel, part) in panels.iter().zip(area.split_evenly((1, panels.len()))) {
        panel.draw(&part).expect("text takes everything");
    }
    area.present().expect("text takes everything");
    drop(area);
    text
}

/// A line for each point.
pub(crate) fn csv(panels: &[Panel]) -> String {
    let mut text = String::from("panel,curve,x,y\n");
    for panel in panels {
        for curve in &panel.curves {
            for (x, y) in &curve.points {
                let x = panel.groups.get(*x as usize).cloned().unwrap_or_else(|| x.to_string());
                // Writing to a string cannot fail.
                let _ = writeln!(text, "\"{}\",\"{}\",{x},{y:.3}", panel.title, curve.name);
            }
        }
    }
    text
}
