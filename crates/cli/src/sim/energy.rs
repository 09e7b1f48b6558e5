//! `qfabric sim energy`: joules of one device by a power model, with and without each technique of the thesis.

use std::fs;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use comfy_table::CellAlignment;
use qfabric_sim::energy::{self, Report, SCENARIOS};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

const EXAMPLE: &str = "\
Examples: qfabric sim energy --scenario fig53 --model ipaq-h3870-orinoco
          qfabric sim energy --scenario fig73 --model pixel6-tensor --svg fig73.svg
          qfabric sim energy --scenario fig69 --model my-board.toml --json

A model is a TOML file, or a shipped name: ipaq-h3870-orinoco (the device of the thesis), pixel6-tensor, rk3399, \
wifi-generic-11n, x86-server. Every number of a model has a source, and is printed, derived or assumed; the second line \
counts them. All joules are modelled: time in each state times the power of that state. They are never measured.

saving     part of the energy of the first row
misses     jobs that were not done by their deadline, in the whole run
late       packets whose transmission began after their deadline, in the whole run
wakeups    changes of the card from doze to awake";

/// Computes the energy of one device under each policy of a figure of the thesis, by a power model.
///
/// Prints the whole ladder of techniques. Ends with 2 if the model is invalid.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Figure of chapters 6 and 7 to simulate
    #[arg(long, value_name = "FIGURE", value_parser = PossibleValuesParser::new(SCENARIOS.map(|(name, _)| name)))]
    scenario: String,
    /// Power model: a shipped name, or a TOML file of at most 256 KiB
    #[arg(long, value_name = "NAME|FILE", default_value = "ipaq-h3870-orinoco")]
    model: String,
    /// Seed of the phases of the streams; two runs with one seed print the same
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Draw the energy of each policy as a bar into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    args.svg.iter().try_for_each(|path| output::check_writable(path))?;
    let model = qfabric_daemon::read_model(&args.model).map_err(Failure::usage)?;
    let report = energy::simulate(&args.scenario, &model, args.seed)
        .ok_or_else(|| Failure::usage(format!("there is no scenario {}", args.scenario)))?
        .map_err(|error| Failure::usage(format!("model {} is too slow for {}: {error}", args.model, args.scenario)))?;
    if let Some(path) = &args.svg {
        let failed = |error| Failure::fault(format!("cannot write {}: {error}", path.display()));
        fs::write(path, energy::svg(&report)).map_err(failed)?;
    }
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(Done(0))
}

fn text(report: &Report) -> String {
    let mut table =
        output::new_table(["POLICY", "ENERGY", "SAVING", "UTILITY", "MISSES", "LATE", "WAKE-UPS", "AWAKE", "CLOCK"]);
    for row in &report.rows {
        table.add_row([
            row.policy.clone(),
            row.energy.to_string(),
            format!("{:.1} %", 100.0 * row.saving),
            format!("{:.0}", row.utility),
            row.misses.to_string(),
            row.late.to_string(),
            format!("{:.1}", row.wakeups),
            format!("{:.1} ms", row.awake_ms),
            format!("{:.0} MHz", row.mean_mhz),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    let tally = report.model.tally;
    format!(
        "{}\nmodel {}: {} numbers printed, {} derived, {} assumed; seed {}\n\n{table}\n",
        report.title, report.model.name, tally.printed, tally.derived, tally.assumed, report.seed
    )
}
