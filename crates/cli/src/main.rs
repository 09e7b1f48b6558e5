//! The program `qfabric`: every command of Q-Fabric at a terminal.
//!
//! Approach: one file per command, each with its options and its `run`; [`args`] is the one definition that
//! gives parser, help, man pages and completions. Results go to stdout, everything else to stderr.
#![forbid(unsafe_code)]

mod args;
mod channel;
mod completions;
mod connect;
mod contract;
mod daemon;
mod demo;
mod doctor;
mod ecode;
mod exit;
mod group;
mod guard;
mod interrupt;
mod limits;
mod monitor;
mod net;
mod output;
mod policy;
mod probe;
mod profiles;
mod program;
mod restore;
mod run;
mod services;
mod sim;
mod status;
mod top;
mod trial;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = args::Cli::parse();
    match cli.command.run() {
        Ok(code) => code.into(),
        Err(failure) => failure.report(),
    }
}
