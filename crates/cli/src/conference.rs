//! `qfabric conference`: runs the example application `qfabric-conference` in the place of this process.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::exit::{Failure, Outcome};

const EXAMPLES: &str = "\
Examples: qfabric conference serve film.mp4
          qfabric conference serve test --level h264:20:640x480
          qfabric conference join HOST --json
          qfabric conference level jpeg:30:352x288
          qfabric conference serve test --transport metp --tls ./tls
          qfabric conference join HOST --transport metp --tls ./tls

The program is qfabric-conference: `qfabric conference serve --help` lists its options. It is found beside this program, on \
the path, or by $QFABRIC_CONFERENCE.";

/// Sends the pictures of a film to other hosts over a channel, or receives those that another host sends.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// `serve FILE|test`, `join HOST` or `level LEVEL`, with their options
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    arguments: Vec<OsString>,
}

/// Does not return if the program was found.
pub(crate) fn run(args: Args) -> Outcome {
    let program =
        qfabric_demo::children::find_conference().map_err(|error| Failure::program(127, format!("{error:#}")))?;
    let error = Command::new(&program).args(args.arguments).exec();
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    Err(Failure::program(code, format!("{}: cannot be executed: {error}", program.display())))
}
