//! Every interface at once, for as long as one likes, while daemons and clients are killed: does work always go on, does
//! SIGTERM always end a daemon, is nothing left behind?
//!
//! ```text
//! cargo test -p qfabric-cli --test soak                                       # some 20 s: counts decide, no times
//! cargo test -p qfabric-cli --test soak -- --seconds 3600 --seed 7            # gaps and ends above 5 s fail, too
//! ```
//!
//! Two daemons that know each other run in a network namespace of their own, and a process for each client. It is soaked
//! in rounds: at the end of each, everything is stopped and the machine looked at; between two of them others of the
//! machine's live tests get their turn. One seed decides who is killed and what clients do; when they do it is the
//! machine's business. Needs root; elsewhere it says so and passes.
#![forbid(unsafe_code)]

mod client;
mod daemon;
mod kinds;
mod progress;
mod remains;
mod round;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use qfabric_linux::net::testing::own_network;
use qfabric_linux::testing::may_reserve;

use crate::round::Soak;

/// What the soak promises of gaps and of SIGTERM, where times are looked at at all.
const BOUND: Duration = Duration::from_secs(5);

/// A soak of every interface of the daemon.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Soak for so long, not counting what is between rounds; gaps in work and SIGTERMs above 5 s are failures then.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seconds of a round.
    #[arg(long, default_value_t = 60)]
    round: u64,
    /// Decides who is killed, and what clients do; a random one, which is printed, if left out.
    #[arg(long)]
    seed: Option<u64>,
    /// The mechanism of the first daemon: deadline, ext, auto.
    #[arg(long, env = "QFABRIC_SOAK_MECHANISM", default_value = "auto")]
    mechanism: String,
    /// The program under test.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_qfabric"))]
    program: PathBuf,
    /// Be a client: kind, folder of the daemon, folder of its peer, seed.
    #[arg(long, num_args = 4, hide = true)]
    client: Option<Vec<String>>,
    /// For test runners.
    #[arg(long, hide = true)]
    list: bool,
    /// Parts of names of tests: those of other tests ask for nothing here. Other options of test runners are ignored.
    #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
    names: Vec<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(client) = &options.client {
        return client::be(client, &options.program);
    }
    let others = options.names.iter().filter(|name| !name.starts_with('-'));
    let is_meant = others.clone().count() == 0 || others.clone().any(|name| "soak".contains(name.as_str()));
    if options.list || !is_meant {
        println!("soak: test");
        return ExitCode::SUCCESS;
    }
    if !may_reserve() || own_network().is_err() {
        return ExitCode::SUCCESS;
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|up| up.success()), "the loopback of an own network namespace cannot be had");
    match Soak::new(options).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failures) => {
            failures.iter().for_each(|failure| eprintln!("FAILED: {failure}"));
            ExitCode::FAILURE
        }
    }
}
