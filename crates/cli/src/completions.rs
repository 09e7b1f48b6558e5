//! `qfabric generate`: man pages and shell completions from the definition of the command line.

use std::path::PathBuf;

use clap::{CommandFactory, Subcommand};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Man pages and shell completions, made from the same definition as the help.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric generate completions bash > /etc/bash_completion.d/qfabric")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// One man page per command, into a folder that exists.
    #[command(after_help = "Example: qfabric generate man /usr/local/share/man/man1")]
    Man {
        /// The folder.
        folder: PathBuf,
    },
    /// The completions for one shell, to stdout.
    #[command(after_help = "Example: qfabric generate completions bash > /etc/bash_completion.d/qfabric")]
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    match args.what {
        What::Man { folder } => clap_mangen::generate_to(Cli::command(), &folder)
            .map_err(|error| Failure::fault(format!("cannot write man pages into {}: {error}", folder.display())))?,
        What::Completions { shell } => output::print(&completions(shell))?,
    }
    Ok(Done(0))
}

fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "qfabric", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
