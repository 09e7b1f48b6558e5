//! Compares several controllers on one trace, as a table and as pictures: Table II and Figures 7 and 8 of AQuoSA.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use qfabric_sim::control_loop::figures::{self, Curve};
use qfabric_sim::control_loop::{self, Job, Options, Output, Summary};
use qfabric_types::{PredictorSpec, Share};
use serde::Serialize;

use crate::exit::Failure;
use crate::output;

/// A predictor under feedback, or a fixed bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Controller {
    Feedback(PredictorSpec),
    Fixed(Share),
}

impl FromStr for Controller {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match (text.parse(), text.parse()) {
            (Ok(predictor), _) => Ok(Controller::Feedback(predictor)),
            (_, Ok(share)) => Ok(Controller::Fixed(share)),
            (Err(why), _) => Err(format!("{why}, or a fixed bandwidth such as 25% or 0.25")),
        }
    }
}

impl Controller {
    /// Name in tables and legends.
    pub(super) fn name(self) -> String {
        match self {
            Controller::Feedback(predictor) => predictor.to_string(),
            Controller::Fixed(share) => format!("fixed {:.1} %", 100.0 * share.as_f64()),
        }
    }

    /// `options` with this controller instead of their own.
    fn options(self, options: &Options) -> Options {
        match self {
            Controller::Feedback(predictor) => Options { predictor, fixed: None, ..options.clone() },
            Controller::Fixed(share) => Options { fixed: Some(share.as_f64()), ..options.clone() },
        }
    }
}

#[derive(Serialize)]
pub(super) struct Row {
    pub controller: String,
    /// Row of Table II.
    pub summary: Summary,
    #[serde(skip)]
    errors: Curve,
}

impl Row {
    /// The row of a controller, with the data for its curve.
    pub(super) fn of(controller: Controller, output: &Output, options: &Options) -> Row {
        let controller = controller.name();
        let errors = figures::error_distribution(&controller, output, options);
        Row { controller, summary: output.summary.clone(), errors }
    }
}

pub(super) fn rivals(rivals: &[Controller], trace: &[Job], options: &Options) -> Result<Vec<Row>, Failure> {
    let row = |rival: &Controller| {
        let options = rival.options(options);
        let output = control_loop::run(trace, &options).map_err(Failure::usage)?;
        Ok(Row::of(*rival, &output, &options))
    };
    rivals.iter().map(row).collect()
}

/// Table II, in percent.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = output::new_table(["CONTROLLER", "IN TARGET", "ERROR / PERIOD", "BANDWIDTH", "BACK AFTER"]);
    for Row { controller, summary, .. } in rows {
        let spread = |mean: f64, sd: f64| format!("{:.2} ± {:.2} %", 100.0 * mean, 100.0 * sd);
        table.add_row([
            controller.clone(),
            format!("{:.2} %", 100.0 * summary.in_target),
            spread(summary.mean_error, summary.sd_error),
            spread(summary.mean_bandwidth, summary.sd_bandwidth),
            format!("{:.3} jobs", summary.recovery_jobs_mean),
        ]);
    }
    format!("{table}\n")
}

/// Writes Figure 8 to a file.
pub(super) fn draw_errors(path: &Path, rows: &[Row], options: &Options) -> Result<(), Failure> {
    let curves: Vec<Curve> = rows.iter().map(|row| row.errors.clone()).collect();
    write(path, figures::errors_svg(&curves, options))
}

/// Writes Figure 7 of one trace to a file.
pub(super) fn draw_trace(path: &Path, name: &str, trace: &[Job], options: &Options) -> Result<(), Failure> {
    let costs = figures::cost_distribution(name, trace, options.period.as_f64());
    write(path, figures::traces_svg(&[costs], &[figures::autocorrelation(name, trace)]))
}

fn write(path: &Path, text: String) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::fault(format!("cannot write {}: {error}", path.display())))
}

/// Fails if a picture cannot be written; called before the simulation.
pub(super) fn check_writable(paths: [&Option<PathBuf>; 2]) -> Result<(), Failure> {
    paths.into_iter().flatten().try_for_each(|path| output::check_writable(path))
}
