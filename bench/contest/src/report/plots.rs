//! Draws the figures: a quantity over the number of tasks with one line per competitor, or bars if there is only
//! one number of tasks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::regime::Competitor;
use crate::row::Row;

const FONT: &[u8] = include_bytes!("../../../../crates/demo/assets/plots.ttf");
const SIZE: (u32, u32) = (640, 360);
const INK: RGBColor = RGBColor(51, 65, 85);
const GRID: RGBColor = RGBColor(226, 232, 240);

/// The contents of a figure.
struct Figure {
    name: &'static str,
    experiment: &'static str,
    caption: &'static str,
    x: &'static str,
    y: &'static str,
    of: fn(&Row) -> f64,
}

const FIGURES: [Figure; 7] = [
    Figure {
        name: "rate",
        experiment: "rate",
        caption: "Frames shown, in % of the frames due (Figure 19)",
        x: "players",
        y: "%",
        of: |row| 100.0 * row.achieved(),
    },
    Figure {
        name: "in-time",
        experiment: "rate",
        caption: "Frames shown before the next frame was due",
        x: "players",
        y: "%",
        of: in_time,
    },
    Figure {
        name: "jitter",
        experiment: "rate",
        caption: "Jitter of the worst player, 99th percentile",
        x: "players",
        y: "ms",
        of: |row| row.max(|t| t.jitter.p99) / 1e3,
    },
    Figure {
        name: "delay",
        experiment: "delay",
        caption: "Run-queue delay, mean of all players (Figure 14)",
        x: "players",
        y: "ms",
        of: |row| row.mean(|t| t.delay.mean) / 1e3,
    },
    Figure {
        name: "windows",
        experiment: "windows",
        caption: "Windows of 1/5 violated",
        x: "tasks",
        y: "%",
        of: violated,
    },
    Figure {
        name: "packets",
        experiment: "packets",
        caption: "Frames whose packets came in time, against a flood",
        x: "streams",
        y: "%",
        of: in_time,
    },
    Figure {
        name: "both",
        experiment: "both",
        caption: "Frames not older than Θ + T = 55 ms at the viewer",
        x: "",
        y: "%",
        of: in_time,
    },
];

fn in_time(row: &Row) -> f64 {
    100.0 * row.mean(|t| t.rate_in_time) / row.mean(|t| t.wanted).max(f64::MIN_POSITIVE)
}

fn violated(row: &Row) -> f64 {
    100.0 * row.sum(|t| t.violations) as f64 / row.sum(|t| t.windows).max(1) as f64
}

/// Draws every figure for which rows exist, and returns the files.
pub fn write(rows: &[Row], folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let drawn = FIGURES.iter().filter(|figure| rows.iter().any(|row| row.experiment == figure.experiment));
    drawn.map(|figure| one(figure, rows, folder)).collect()
}

fn one(figure: &Figure, rows: &[Row], folder: &Path) -> Result<PathBuf> {
    let path = folder.join(format!("contest-{}.svg", figure.name));
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&area, figure, &lines(figure, rows)).map_err(|e| anyhow!("cannot draw {}: {e}", path.display()))?;
        area.present().map_err(|e| anyhow!("cannot draw {}: {e}", path.display()))?;
    }
    std::fs::write(&path, text)?;
    Ok(path)
}

/// The points of each competitor. A point that several rounds repeat is their mean.
type Lines = Vec<(Competitor, Vec<(f64, f64)>)>;

fn lines(figure: &Figure, rows: &[Row]) -> Lines {
    let mut points: Vec<(Competitor, BTreeMap<u64, Vec<f64>>)> = Vec::new();
    for row in rows.iter().filter(|row| row.experiment == figure.experiment && row.refused.is_none()) {
        let known = points.iter().position(|(competitor, _)| *competitor == row.competitor);
        let at = known.unwrap_or_else(|| {
            points.push((row.competitor, BTreeMap::new()));
            points.len() - 1
        });
        points[at].1.entry(row.x as u64).or_default().push((figure.of)(row));
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let line = |points: BTreeMap<u64, Vec<f64>>| points.iter().map(|(x, values)| (*x as f64, mean(values))).collect();
    points.into_iter().map(|(competitor, points)| (competitor, line(points))).collect()
}

type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

fn draw<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, figure: &Figure, lines: &Lines) -> Drawn<DB> {
    static LETTERS: Once = Once::new();
    // A failed registration leaves the plots without text. Registering the font again would not help.
    LETTERS.call_once(|| drop(register_font("sans-serif", FontStyle::Normal, FONT)));
    area.fill(&WHITE)?;
    let is_line = lines.iter().any(|(_, points)| points.len() > 1);
    let top = lines.iter().flat_map(|(_, points)| points).fold(0.0, |top: f64, (_, y)| top.max(*y));
    let y = 0.0..if figure.y == "%" { 105.0 } else { (top * 1.1).max(0.1) };
    if is_line { curves(area, figure, lines, y) } else { bars(area, figure, lines, y) }
}

fn curves<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &Figure,
    lines: &Lines,
    y: std::ops::Range<f64>,
) -> Drawn<DB> {
    let end = lines.iter().flat_map(|(_, points)| points).fold(1.0, |end: f64, (x, _)| end.max(*x));
    let mut chart = ChartBuilder::on(area)
        .caption(figure.caption, ("sans-serif", 17).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..end * 1.03, y)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT).bold_line_style(GRID).axis_style(INK).x_desc(figure.x).y_desc(figure.y);
    mesh.x_label_formatter(&|x| format!("{x:.0}")).label_style(("sans-serif", 13).into_font().color(&INK)).draw()?;
    for (i, (competitor, points)) in lines.iter().enumerate() {
        // Lines drawn first are wider, so that lines on top of each other are all visible.
        let (ink, width) = (colour(*competitor), 2 * (lines.len() - i) as u32);
        let series =
            chart.draw_series(LineSeries::new(points.iter().copied(), ink.stroke_width(width)).point_size(3))?;
        series
            .label(competitor.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], ink.stroke_width(2)));
    }
    let mut labels = chart.configure_series_labels();
    labels.border_style(GRID).background_style(WHITE.mix(0.85)).position(SeriesLabelPosition::MiddleMiddle);
    labels.label_font(("sans-serif", 13).into_font().color(&INK)).draw()
}

fn bars<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    figure: &Figure,
    lines: &Lines,
    y: std::ops::Range<f64>,
) -> Drawn<DB> {
    let names: Vec<_> = lines.iter().map(|(competitor, _)| competitor.name()).collect();
    let mut chart = ChartBuilder::on(area)
        .caption(figure.caption, ("sans-serif", 17).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..lines.len().max(1) as f64, y)?;
    let name = |x: &f64| {
        if x.fract() == 0.5 { names.get(*x as usize).copied().unwrap_or("").to_owned() } else { String::new() }
    };
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).bold_line_style(GRID).axis_style(INK).y_desc(figure.y);
    mesh.x_labels(2 * names.len() + 1).x_label_formatter(&name);
    mesh.label_style(("sans-serif", 13).into_font().color(&INK)).draw()?;
    for (i, (competitor, points)) in lines.iter().enumerate() {
        let (left, height) = (i as f64 + 0.25, points.first().map_or(0.0, |point| point.1));
        let corners = [(left, 0.0), (left + 0.5, height)];
        chart.draw_series([Rectangle::new(corners, colour(*competitor).filled())])?;
    }
    Ok(())
}

/// Q-Fabric's competitors are blue, rivals have other colours.
fn colour(competitor: Competitor) -> RGBColor {
    use Competitor::*;
    match competitor {
        ExtEvents | Together | Dwcs => RGBColor(13, 116, 206),
        Ext | PacketsOnly => RGBColor(94, 177, 239),
        Deadline | Htb | CpuOnly => RGBColor(217, 119, 6),
        Rr | Fq => RGBColor(22, 163, 74),
        Default | Fifo | Neither => RGBColor(100, 116, 139),
    }
}
