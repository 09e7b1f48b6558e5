//! Soak test: uses every interface at once while daemons and clients are killed. It checks that work always
//! continues, that SIGTERM always ends a daemon, and that nothing is left behind.
//!
//! ```text
//! cargo test -p qfabric-cli --test soak                                       # some 20 s: counts decide, no times
//! cargo test -p qfabric-cli --test soak -- --seconds 3600 --seed 7            # gaps and ends above 5 s fail, too
//! ```
//!
//! Two daemons that know each other run in a network namespace, with one process for each client. The soak runs in
//! rounds: at the end of a round everything is stopped and the machine is checked; between two rounds other live
//! tests of the machine get their turn. A seed decides which processes are killed and what clients do; the times
//! depend on the machine. Needs root; without root it prints a note and passes.
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

/// Largest allowed gap in work, and largest time from SIGTERM to the end; only checked with `--seconds`.
const BOUND: Duration = Duration::from_secs(5);

/// A soak of every interface of the daemon.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Length of the soak in seconds, without the time between rounds; with this option, gaps in work and SIGTERMs
    /// above 5 s are failures.
    #[arg(long)]
    seconds: Option<u64>,
    /// Length of a round in seconds.
    #[arg(long, default_value_t = 60)]
    round: u64,
    /// Seed for the killed processes and the clients' work; without it, a random seed, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Mechanism of the first daemon: deadline, ext, auto.
    #[arg(long, env = "QFABRIC_SOAK_MECHANISM", default_value = "auto")]
    mechanism: String,
    /// Path of the program under test.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_qfabric"))]
    program: PathBuf,
    /// Run as a client: kind, folder of the daemon, folder of its peer, seed.
    #[arg(long, num_args = 4, hide = true)]
    client: Option<Vec<String>>,
    /// List the name of this test and exit; for test runners.
    #[arg(long, hide = true)]
    list: bool,
    /// Parts of test names; names of other tests select nothing here. Other options of test runners are ignored.
    #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
    names: Vec<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(client) = &options.client {
        return client::run(client, &options.program);
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
    assert!(up.is_ok_and(|up| up.success()), "cannot enable the loopback interface of the new network namespace");
    match Soak::new(options).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failures) => {
            failures.iter().for_each(|failure| eprintln!("FAILED: {failure}"));
            ExitCode::FAILURE
        }
    }
}
