//! `qfabric contract explain`: prints the steps from a stream file to the amounts of resources.

use std::io::Read;
use std::path::{Path, PathBuf};

use qfabric_translate::{Explanation, Input, MAX_BYTES, Profiles, Step, Stream};
use qfabric_types::Nanos;
use qfabric_types::api::Problem;

use super::measure;
use crate::exit::{Advice, Done, Failure, Outcome};
use crate::{output, profiles};

/// Translates a stream file into amounts of resources, and prints each step with its formula.
///
/// Nothing is reserved, and no daemon is needed. Ends with 2 if the file is wrong; the message names line and column.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric contract explain stream.toml
          qfabric contract explain stream.toml --json
          qfabric contract explain - <stream.toml")]
pub(super) struct Args {
    /// Stream file; - is the standard input
    file: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Outcome {
    let name = args.file.display().to_string();
    let stream = read_stream(&args.file)?;
    let profiles = read_profiles(&stream).map_err(|failure| failure.context(&name))?;
    let explanation =
        qfabric_translate::explain(&stream, &profiles).map_err(|error| invalid(&error.problem()).context(&name))?;
    match args.json {
        true => output::print_json(&explanation)?,
        false => output::print(&text(&explanation))?,
    }
    Ok(Done(0))
}

/// Reads a stream file; `-` is the standard input.
pub(crate) fn read_stream(path: &Path) -> Result<Stream, Failure> {
    let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that a file that is too long is refused and not cut.
    let most = MAX_BYTES as u64 + 1;
    match path.as_os_str() == "-" {
        true => std::io::stdin().take(most).read_to_end(&mut bytes).map_err(unreadable)?,
        false => {
            std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(unreadable)?
        }
    };
    // A longer file may be cut within a character; the parser refuses its length.
    let text = String::from_utf8_lossy(&bytes);
    Stream::parse(&text).map_err(|error| invalid(&error.problem()).context(path.display()))
}

/// The mean of each profile that the stream names.
pub(crate) fn read_profiles(stream: &Stream) -> Result<Profiles, Failure> {
    let mean = |name: &str| match profiles::load(name)?.mean() {
        Nanos::ZERO => Err(Failure::usage(format!("the profile {name:?} has no jobs; make one with qfabric probe"))),
        mean => Ok((name.to_owned(), mean)),
    };
    stream.profiles().map(mean).collect()
}

/// An input file that makes no sense: message and next step, exit code 2.
pub(crate) fn invalid(problem: &Problem) -> Failure {
    Failure::usage(Advice(problem))
}

fn text(explanation: &Explanation) -> String {
    let mut steps = output::new_table(["step", "value", "formula", "with"]);
    for step in &explanation.steps {
        steps.add_row([step.name.clone(), measure(step.value, step.unit), step.formula.clone(), inputs(step)]);
    }
    let mut resources = output::new_table(["host", "resource", "amount"]);
    for found in &explanation.resources {
        let row = [found.host.to_string(), found.resource.to_string(), measure(found.amount, found.unit)];
        resources.add_row(row);
    }
    format!("{}\n\n{}\n", steps.trim_fmt(), resources.trim_fmt())
}

fn inputs(step: &Step) -> String {
    let shown = |input: &Input| format!("{} = {}", input.name, measure(input.value, input.unit));
    step.inputs.iter().map(shown).collect::<Vec<_>>().join(", ")
}
