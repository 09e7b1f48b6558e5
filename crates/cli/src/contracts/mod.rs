//! `qfabric contract`: contracts in the application's language, and joint contracts over resources and hosts.

mod apply;
mod consent;
mod explain;
mod list;
mod upgrade;

#[cfg(feature = "metp")]
pub(crate) use apply::leased_request;
#[cfg(feature = "metp")]
pub(crate) use explain::{invalid, read_profiles, read_stream};

use clap::Subcommand;
use qfabric_types::api::contracts::{JointContract, JointResource};

use crate::exit::Outcome;
use crate::output;

/// Translates streams in the application's language, and reserves what they need on all hosts together.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Explain(explain::Args),
    Apply(apply::Args),
    Ls(list::LsArgs),
    Show(list::ShowArgs),
    Rm(list::RmArgs),
    Upgrade(upgrade::Args),
    Consent(consent::Args),
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Explain(args) => explain::run(args),
        Command::Apply(args) => apply::run(args),
        Command::Ls(args) => list::ls(args),
        Command::Show(args) => list::show(args),
        Command::Rm(args) => list::rm(&args),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::Consent(args) => consent::run(args),
    }
}

/// A table of the asked and granted amounts, with a blank line before it.
fn table(contract: &JointContract) -> String {
    let mut table = output::new_table(["host", "resource", "asked", "granted"]);
    for found in &contract.resources {
        let JointResource { host, resource, asked, granted } = found;
        let unit = resource.amount(0).unit();
        let row = [host.to_string(), resource.to_string(), measure(*asked, unit), measure(*granted, unit)];
        table.add_row(row);
    }
    format!("\n{}\n", table.trim_fmt())
}

/// A number with at most three decimals; the unit 1 of ratios is not printed.
fn measure(value: f64, unit: &str) -> String {
    let digits = format!("{value:.3}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    if unit == "1" { digits.to_owned() } else { format!("{digits} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_printed_without_trailing_zeros() {
        assert_eq!(measure(40.0, "ms"), "40 ms");
        assert_eq!(measure(0.25, "1"), "0.25");
        assert_eq!(measure(33.333_333, "ms"), "33.333 ms");
    }

    #[test]
    fn a_contract_is_shown_with_all_its_amounts() {
        let resource = |resource: &str, asked, granted| JointResource {
            host: "alpha".parse().unwrap(),
            resource: resource.parse().unwrap(),
            asked,
            granted,
        };
        let resources = vec![resource("cpu", 0.5, 0.25), resource("network eth0 out", 1e6, 1e6)];
        let contract = JointContract { id: "alpha:1".parse().unwrap(), resources };
        let lines: Vec<String> = table(&contract).lines().map(|line| line.trim().to_owned()).collect();
        assert_eq!(lines[2], "alpha  cpu               0.5 CPU        0.25 CPU");
        assert_eq!(lines[3], "alpha  network eth0 out  1000000 bit/s  1000000 bit/s");
    }
}
