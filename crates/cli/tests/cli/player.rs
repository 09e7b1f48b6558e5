//! A program that requests a guarantee of 0.3 CPU from the daemon of a folder, and the status of that daemon.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use qfabric_client::Client;
use qfabric_types::Share;
use serde_json::Value;

use crate::answer::Answer;

/// The guarantee that the program requests.
pub(crate) const SHARE: Share = Share::from_ppm(300_000);

/// `qfabric run` of a program that requests a guarantee of [`SHARE`].
pub(crate) fn program(folder: &Path, options: &[&str], program: &[&str]) -> Command {
    let contract = "--class A --guaranteed 0.3 --max-bandwidth 0.3 --period 40ms".split(' ');
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
    command.env("XDG_DATA_HOME", folder).args(["run", "--quiet"]).args(contract).args(options);
    command.arg("--socket").arg(folder.join("qfabric.sock")).arg("--").args(program);
    command
}

/// Runs `true` under such a contract.
pub(crate) fn run(folder: &Path, options: &[&str]) -> Answer {
    Answer::of(&mut program(folder, options, &["true"]))
}

/// A program under such a contract; it ends when this value is dropped.
pub(crate) struct Player(Child);

impl Player {
    /// Starts the program and waits until it runs, that is, until it is admitted.
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Player {
        let mut command = program(folder, options, &["cat"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"it runs\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "it runs\n");
        Player(child)
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // `cat` ends when its input ends.
        let _ = self.0.wait();
    }
}

/// `qfabric status --json`.
pub(crate) fn status(folder: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
    Answer::of(command.args(["status", "--json", "--socket"]).arg(folder.join("qfabric.sock"))).json()
}

/// Number of applications under contract.
pub(crate) fn applications(folder: &Path) -> usize {
    status(folder)["applications"].as_array().unwrap().len()
}

/// Number of loans that the daemon keeps for other hosts.
pub(crate) fn keeps(folder: &Path) -> usize {
    // Not by the command, which takes seconds to start on a starving machine: loans end after their time.
    let client = Client::connect_to(folder.join("qfabric.sock")).unwrap().with_patience(Duration::from_secs(120));
    client.status().unwrap().loans.len()
}

/// The claim that a refusal names.
pub(crate) fn claim(refusal: &Answer) -> String {
    let rest = refusal.err.split_once("--claim ").unwrap_or_else(|| panic!("{refusal:?}")).1;
    rest.split(';').next().unwrap().to_owned()
}
