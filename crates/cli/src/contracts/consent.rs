//! `qfabric contract consent`: answers for an application whose consent joint contracts of other hosts need.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use qfabric_client::{Client, ConsentHandle};
use qfabric_types::api::contracts::{ConsentInfo, ConsentPolicy, ConsentQuestion, ConsentRequest};

use crate::connect::{self, Daemon};
use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Time of one request for a question.
const WAIT: Duration = Duration::from_secs(30);

/// Answers for an application whose consent joint contracts of other hosts need.
///
/// --accept and --decline answer every contract, until --forget, or until the process of --while ends. COMMAND is run for
/// each contract, with the question as JSON on its standard input and the contract in QFABRIC_CONTRACT: it consents by
/// ending with 0 within 1.5 s. Ctrl-C ends the answers. Without a name, lists the applications for which you answer.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric contract consent player --accept
          qfabric contract consent player --accept --while 4711
          qfabric contract consent player -- ./decide
          qfabric contract consent player --forget
          qfabric contract consent")]
pub(super) struct Args {
    /// Name of the application
    name: Option<String>,
    /// Consent to every contract
    #[arg(long, requires = "name", conflicts_with_all = ["decline", "forget", "command"])]
    accept: bool,
    /// Consent to no contract
    #[arg(long, requires = "name", conflicts_with_all = ["forget", "command"])]
    decline: bool,
    /// Stop answering for this application
    #[arg(long, requires = "name", conflicts_with_all = ["command", "lease_pid"])]
    forget: bool,
    /// Answer until this process ends
    #[arg(long = "while", value_name = "PID", requires = "name", conflicts_with = "command")]
    lease_pid: Option<i32>,
    /// Print the list as JSON
    #[arg(long, conflicts_with = "name")]
    json: bool,
    #[command(flatten)]
    daemon: Daemon,
    /// Program that decides on each contract
    #[arg(last = true, value_name = "COMMAND", requires = "name")]
    command: Vec<OsString>,
}

pub(super) fn run(args: Args) -> Outcome {
    let client = args.daemon.client()?;
    let Some(name) = &args.name else { return list(&client, args.json) };
    if args.forget {
        client.end_consent(name).map_err(connect::failure)?;
        output::print(&format!("nobody answers for application {name} any more\n"))?;
        return Ok(Done(0));
    }
    let policy = match (args.accept, args.decline, args.command.as_slice()) {
        (true, ..) => ConsentPolicy::Accept,
        (_, true, _) => ConsentPolicy::Decline,
        (.., []) => {
            return Err(Failure::usage("no answer given\ntry: --accept, --decline, --forget, or a program after --"));
        }
        (.., command) => return decide(&client, name, command),
    };
    client.consent(name, ConsentRequest { policy, pid: args.lease_pid }).map_err(connect::failure)?;
    let answer = if args.accept { "consents to" } else { "declines" };
    output::print(&format!("application {name} {answer} every contract\n"))?;
    Ok(Done(0))
}

fn list(client: &Client, is_json: bool) -> Outcome {
    let consents = client.consents().map_err(connect::failure)?;
    match is_json {
        true => output::print_json(&consents)?,
        false => output::print(&listed(&consents))?,
    }
    Ok(Done(0))
}

fn listed(consents: &[ConsentInfo]) -> String {
    if consents.is_empty() {
        return "you answer for no application; begin with: qfabric contract consent NAME --accept\n".to_owned();
    }
    let mut table = output::new_table(["application", "user", "answer", "until process", "open questions"]);
    for found in consents {
        let answer = match found.policy {
            ConsentPolicy::Accept => "accept",
            ConsentPolicy::Decline => "decline",
            ConsentPolicy::Ask => "ask",
        };
        let process = found.pid.map_or_else(String::new, |pid| pid.to_string());
        let (name, user, open) = (found.application.to_string(), found.uid.to_string(), found.open.to_string());
        table.add_row([name, user, answer.to_owned(), process, open]);
    }
    format!("{}\n", table.trim_fmt())
}

/// Runs the program for each question, until this process ends.
fn decide(client: &Client, name: &str, command: &[OsString]) -> Outcome {
    let answers = ConsentHandle::begin(client, name).map_err(connect::failure)?;
    loop {
        let Some(question) = answers.next(WAIT).map_err(connect::failure)? else { continue };
        let accept = ask(command, &question)?;
        let (answer, contract) = (if accept { "consents to" } else { "declines" }, &question.contract);
        let text = match answers.answer(&question, accept) {
            Ok(()) => format!("application {name} {answer} contract {contract}\n"),
            Err(error) => format!("application {name} {answer} contract {contract}, but {error}\n"),
        };
        output::print(&text)?;
    }
}

/// Whether the program consents: it ends with 0.
fn ask(command: &[OsString], question: &ConsentQuestion) -> Result<bool, Failure> {
    let (program, arguments) = command.split_first().expect("checked by the caller");
    let mut child = Command::new(program);
    child.args(arguments).stdin(Stdio::piped()).env("QFABRIC_CONTRACT", question.contract.to_string());
    let cannot = |error: std::io::Error| Failure::program(126, format!("cannot run {}: {error}", program.display()));
    let mut child = child.spawn().map_err(cannot)?;
    if let Some(mut input) = child.stdin.take() {
        let text = serde_json::to_string(question).expect("plain values");
        // A program that does not read the question decides without it.
        let _ = input.write_all(text.as_bytes());
    }
    Ok(child.wait().map_err(cannot)?.success())
}
