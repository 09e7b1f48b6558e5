//! `qfabric contract ls`, `show` and `rm`: the joint contracts of this host.

use std::collections::BTreeSet;

use qfabric_types::api::contracts::{JointContract, JointId};
use qfabric_types::channel::Name;

use super::table;
use crate::connect::{self, Daemon};
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Lists the joint contracts in force that users of this host asked for.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric contract ls")]
pub(super) struct LsArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Shows a joint contract: the asked and granted amounts of all its hosts.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric contract show alpha:5f3c09a1d2e4b687")]
pub(super) struct ShowArgs {
    /// Identity of the contract: HOST:NUMBER of `qfabric contract ls`
    id: JointId,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Ends joint contracts on all their hosts.
///
/// Applications and streams that draw from a contract end with it. Only the user who applied the contract, and root,
/// may do this, on the host where it was applied. If one contract cannot be ended, the others are ended nevertheless.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric contract rm alpha:5f3c09a1d2e4b687")]
pub(super) struct RmArgs {
    /// Identities of the contracts: HOST:NUMBER of `qfabric contract ls`
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JointId>,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn ls(args: LsArgs) -> Outcome {
    let contracts = args.daemon.client()?.joint_contracts().map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&contracts)?,
        false => output::print(&listed(&contracts))?,
    }
    Ok(Done(0))
}

pub(super) fn show(args: ShowArgs) -> Outcome {
    let contract = args.daemon.client()?.joint_contract(&args.id).map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&contract)?,
        false => output::print(&format!("contract {}: {}\n{}", contract.id, state(&contract), table(&contract)))?,
    }
    Ok(Done(0))
}

/// Tries every contract. The last failure decides the exit code.
pub(super) fn rm(args: &RmArgs) -> Outcome {
    let client = args.daemon.client()?;
    let mut failed: Option<Failure> = None;
    for id in &args.ids {
        match client.end_joint_contract(id) {
            Ok(()) => output::print(&format!("contract {id} has ended\n"))?,
            Err(error) => {
                if let Some(earlier) = failed.replace(connect::failure(error)) {
                    // The exit code is that of the last failure.
                    let _ = earlier.report();
                }
            }
        }
    }
    failed.map_or(Ok(Done(0)), Err)
}

fn state(contract: &JointContract) -> &'static str {
    if contract.is_partial() { "in force, partly satisfied" } else { "in force" }
}

fn listed(contracts: &[JointContract]) -> String {
    if contracts.is_empty() {
        return "no joint contract is in force; make one: qfabric contract apply stream.toml\n".to_owned();
    }
    let mut table = output::new_table(["contract", "state", "resources", "hosts"]);
    for contract in contracts {
        let hosts: BTreeSet<&Name> = contract.resources.iter().map(|found| &found.host).collect();
        let hosts: Vec<&str> = hosts.into_iter().map(Name::as_str).collect();
        let amounts = contract.resources.len().to_string();
        table.add_row([contract.id.to_string(), state(contract).to_owned(), amounts, hosts.join(", ")]);
    }
    format!("{}\n", table.trim_fmt())
}
