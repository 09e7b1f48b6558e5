//! The plot of a run: frame rates above, jitter below, the disturbances shaded.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::measure::Series;
use super::scenes::{Published, Scene};
use super::{Disturbance, RATE, Timeline};
use crate::report::plots::{GRID, INK, OTHER, OURS, PAPER, TARGET, register_letters};

const SIZE: (u32, u32) = (900, 520);

type Area<DB> = DrawingArea<DB, Shift>;
type Failure<DB> = DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>;
type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The plot of a scenario.
pub(super) struct Plot<'a> {
    pub scene: &'a Scene,
    pub series: &'a Series,
    pub timeline: &'a Timeline,
}

impl Plot<'_> {
    /// Writes the plot as PNG.
    pub(super) fn png(&self, path: &Path) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", path.display());
        let area = BitMapBackend::new(path, SIZE).into_drawing_area();
        self.draw(&area).map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))
    }

    /// The plot as SVG text.
    pub(super) fn svg(&self) -> Result<String> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            self.draw(&area).map_err(|error| anyhow!("cannot draw: {error}"))?;
            area.present().map_err(|error| anyhow!("cannot draw: {error}"))?;
        }
        Ok(text)
    }

    fn draw<DB: DrawingBackend>(&self, area: &Area<DB>) -> Result<(), Failure<DB>> {
        register_letters();
        area.fill(&PAPER)?;
        let (upper, lower) = area.split_vertically(SIZE.1 / 2);
        self.rates(&upper)?;
        self.jitter(&lower)
    }

    fn rates<DB: DrawingBackend>(&self, panel: &Area<DB>) -> Result<(), Failure<DB>> {
        let series = self.series;
        let shown: Vec<(f64, f64)> =
            series.shown.iter().enumerate().map(|(second, count)| (second as f64 + 0.5, f64::from(*count))).collect();
        let top = shown.iter().chain(&series.generated).map(|(_, rate)| *rate).fold(f64::from(RATE), f64::max);
        let Scene { name, adaptation, .. } = self.scene;
        let title = format!(
            "Scenario {name} ({adaptation}): frames/s generated at the server (grey), shown at the client (blue), in \
             the paper (boxes)"
        );
        let mut chart = self.chart(panel, &title, "frames/s", top * 1.1)?;
        chart.draw_series(LineSeries::new(series.generated.iter().copied(), OTHER.stroke_width(1)))?;
        chart.draw_series(LineSeries::new(shown, OURS.stroke_width(2)))?;
        self.published(&mut chart, top * 1.1)
    }

    /// Draws a box for the rates of each time that the paper's text gives, in the times of this run.
    fn published<DB: DrawingBackend>(&self, chart: &mut Chart<'_, DB>, top: f64) -> Result<(), Failure<DB>> {
        let (published, factor) = (self.scene.published(), self.timeline.factor());
        let outline = |one: &Published| {
            let [begin, end] = [one.begin, one.end].map(|at| at / factor);
            Rectangle::new([(begin, one.least.min(top)), (end, one.most.min(top))], INK.stroke_width(1))
        };
        chart.draw_series(published.iter().map(outline))?;
        let font = |size: u32| ("sans-serif", size).into_font().color(&INK);
        let name = |one: &Published| {
            Text::new(format!(" the paper: {one}"), (one.begin / factor, one.most.min(top)), font(11))
        };
        chart.draw_series(published.iter().map(name)).map(drop)
    }

    fn jitter<DB: DrawingBackend>(&self, panel: &Area<DB>) -> Result<(), Failure<DB>> {
        let jitter = &self.series.jitter_ms;
        let top = jitter.iter().map(|(_, jitter)| *jitter).fold(10.0, f64::max);
        let title = "Difference between the distance of two pictures and the period, at the client";
        let mut chart = self.chart(panel, title, "jitter [ms]", top * 1.1)?;
        chart.draw_series(LineSeries::new(jitter.iter().copied(), OURS.stroke_width(1))).map(drop)
    }

    /// A chart over the run, with the disturbances shaded and named.
    fn chart<'p, DB: DrawingBackend>(
        &self,
        panel: &'p Area<DB>,
        title: &str,
        unit: &str,
        top: f64,
    ) -> Result<Chart<'p, DB>, Failure<DB>> {
        let font = |size: u32| ("sans-serif", size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(panel)
            .caption(title, font(15))
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..self.timeline.seconds(), 0.0..top)?;
        let disturbances = self.timeline.disturbances(self.scene.strain);
        let shade = |one: &Disturbance| Rectangle::new([(one.begin, 0.0), (one.end, top)], TARGET.filled());
        chart.draw_series(disturbances.iter().map(shade))?;
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT).bold_line_style(GRID).axis_style(INK.mix(0.5)).label_style(font(11));
        mesh.axis_desc_style(font(11)).x_desc("time [s]").y_desc(unit).draw()?;
        let name = |one: &Disturbance| Text::new(format!(" {}", one.name()), (one.begin, top * 0.98), font(11));
        chart.draw_series(disturbances.iter().map(name))?;
        Ok(chart)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::Adaptation;
    use super::super::timeline::Strain;
    use super::*;

    #[test]
    fn a_plot_names_its_axes_and_the_disturbances_even_without_pictures() {
        let timeline = Timeline::of(42.0);
        let scene = Scene { name: "b", adaptation: Adaptation::Application, strain: Strain::Spinning };
        let full = Series { shown: vec![20; 42], jitter_ms: vec![(1.0, 3.0), (2.0, 900.0)], ..Series::default() };
        for series in [Series::default(), full] {
            let text = Plot { scene: &scene, series: &series, timeline: &timeline }.svg().unwrap();
            let named = ["frames/s", "jitter [ms]", "server disturbed", "client disturbed", "time [s]", "Scenario b"];
            assert!(text.contains("the paper: 20"), "{text}");
            assert!(named.iter().all(|name| text.contains(name)), "{text}");
        }
    }
}
