//! `qfabric generate`: generates man pages and shell completions from the definition of the command line.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{CommandFactory, Subcommand};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Generates man pages and shell completions.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric generate completions bash > /etc/bash_completion.d/qfabric")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Writes one man page for each command into a folder, which is created if it is missing.
    ///
    /// Ends with 1 if the folder cannot be written.
    #[command(after_help = "Example: qfabric generate man /usr/local/share/man/man1")]
    Man {
        /// Folder that receives the man pages
        folder: PathBuf,
    },
    /// Prints the completions for one shell to stdout.
    #[command(after_help = "Example: qfabric generate completions bash > /etc/bash_completion.d/qfabric")]
    Completions {
        /// Shell that reads the completions
        shell: Shell,
    },
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Man { folder } => write_pages(&folder).map_err(|error| {
            Failure::fault(format!("cannot write man pages into the folder {}: {error}", folder.display()))
        })?,
        Command::Completions { shell } => output::print(&completions(shell))?,
    }
    Ok(Done(0))
}

fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "qfabric", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Creates the folder if it does not exist.
fn write_pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}
