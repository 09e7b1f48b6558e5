//! stub
use crate::exit::{Done, Outcome};
/// demo
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric demo")]
pub struct Args {}
/// x
pub fn run(_: Args) -> Outcome {
    Ok(Done(0))
}
