//! The program `qfabric`: all commands of Q-Fabric for a terminal.
//!
//! Approach: each command has a file with its options and a function `run`. [`args`] joins them to the definition from
//! which parser, help, man pages and completions come. Results go to stdout, all other output to stderr.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod channel;
mod completions;
mod conference;
mod connect;
mod contract;
mod contracts;
mod daemon;
mod demo;
mod doctor;
mod ecode;
mod energy;
mod exit;
mod group;
mod guard;
#[cfg(test)]
mod guide;
mod interrupt;
mod lab;
mod limits;
#[cfg(feature = "metp")]
mod metp;
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
mod trace;
mod trial;
mod web;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = args::Cli::parse();
    match cli.command.run() {
        Ok(code) => code.into(),
        Err(failure) => failure.report(),
    }
}
