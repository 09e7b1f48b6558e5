//! stub
use crate::exit::{Done, Outcome};
/// probe
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric probe")]
pub struct Args {}
/// x
pub fn run(_: Args) -> Outcome {
    Ok(Done(0))
}
