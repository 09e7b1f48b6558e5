//! `qfabric contract upgrade`: decides on more for a partly satisfied contract.

use std::time::{Duration, Instant};

use qfabric_types::Nanos;
use qfabric_types::api::contracts::{JointId, UpgradeOffer};

use super::measure;
use crate::connect::{self, Daemon};
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Waits for a host to offer more for a partly satisfied contract, and accepts or declines it.
///
/// The contract must have been applied with --upgrades ask. A host offers capacity that became free, and holds it for
/// 3 s; without an answer the contract stays as it is. Ends with 3 if no host offers more in time.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric contract upgrade alpha:5f3c09a1d2e4b687 --accept --wait 600s")]
pub(super) struct Args {
    /// Identity of the contract: HOST:NUMBER of `qfabric contract ls`
    id: JointId,
    /// Longest time to wait for an offer
    #[arg(long, value_name = "TIME", default_value = "30s")]
    wait: Nanos,
    /// Accept the offer
    #[arg(long, conflicts_with = "decline", required_unless_present = "decline")]
    accept: bool,
    /// Decline the offer
    #[arg(long)]
    decline: bool,
    /// Print the offer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub(super) fn run(args: &Args) -> Outcome {
    let client = args.daemon.client()?;
    let end = Instant::now() + Duration::from_nanos(args.wait.get());
    let offer = loop {
        let left = end.saturating_duration_since(Instant::now());
        match client.next_offer(&args.id, left).map_err(connect::failure)? {
            Some(offer) => break offer,
            None if left.is_zero() => {
                let message = format!("no host offered more for contract {} within {}", args.id, args.wait);
                return Err(Failure::refused(format!("{message}\ntry: wait longer with --wait")));
            }
            None => {}
        }
    };
    client.answer_offer(&args.id, &offer, args.accept).map_err(connect::failure)?;
    match args.json {
        true => output::print_json(&offer)?,
        false => output::print(&text(&offer, args.accept))?,
    }
    Ok(Done(0))
}

fn text(offer: &UpgradeOffer, is_accepted: bool) -> String {
    let amounts = offer.resources.iter().map(|found| {
        let unit = found.resource.amount(0).unit();
        format!("{} of {} {}", measure(found.granted, unit), measure(found.asked, unit), found.resource)
    });
    let amounts: Vec<String> = amounts.collect();
    let decided = if is_accepted { "accepted" } else { "declined" };
    format!("{decided} the offer of host {}: {}\n", offer.host, amounts.join(", "))
}
