//! The processes of a contest. The conductor starts them early, schedules them, gives them a common start, and
//! reads their traces at the end.
//!
//! ```text
//!  conductor                    child
//!   spawns it, sends an order (JSON) -> prepares
//!                                    <- "ready <address>"
//!   schedules it by its pid
//!   sends the start time             -> runs its role
//!                                    <- its trace (JSON), then ends
//! ```

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use qfabric_linux::clock;
use qfabric_types::{Instant, Nanos, ThreadId};
use serde::{Deserialize, Serialize};

use crate::role::Role;
use crate::trace::Trace;
use crate::work::Work;

/// The first message to a child.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub role: Role,
    /// The calibrated speed of this host.
    pub work: Work,
}

/// A process of the contest. Dropping the value ends the process.
#[derive(Debug)]
pub struct Actor {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The address at which the process receives frames.
    pub address: Option<SocketAddr>,
}

impl Actor {
    /// Starts a child of this program in its role and waits until the child is ready.
    pub fn spawn(role: &Role, work: Work) -> Result<Actor> {
        Actor::spawn_in(&[], role, work)
    }

    /// Like [`Actor::spawn`], but starts the child through another command, which must execute it (such as `ip
    /// netns exec NAME`).
    pub fn spawn_in(starter: &[&str], role: &Role, work: Work) -> Result<Actor> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut words = starter.iter().map(OsString::from).chain([program.into_os_string(), "child".into()]);
        let mut command = Command::new(words.next().expect("at least the program"));
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a child")?;
        let mut orders = child.stdin.take().expect("piped");
        let mut answers = BufReader::new(child.stdout.take().expect("piped"));
        writeln!(orders, "{}", serde_json::to_string(&Order { role: role.clone(), work })?)?;
        let address = ready(&mut answers)?;
        Ok(Actor { child, orders, answers, address })
    }

    /// The only thread of the process.
    pub fn thread(&self) -> ThreadId {
        ThreadId(self.child.id() as i32)
    }

    /// Sends the common start time.
    pub fn begin(&mut self, start: Instant) -> Result<()> {
        writeln!(self.orders, "{}", start.get())?;
        self.orders.flush().context("a child ended before the start")
    }

    /// CPU time so far; 0 after the process has ended.
    pub fn cpu(&self) -> Nanos {
        clock::process_cpu(self.child.id() as i32).unwrap_or_default()
    }

    /// Waits until the process ends and returns its trace.
    pub fn finish(mut self) -> Result<Trace> {
        let mut text = String::new();
        self.answers.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("a child failed ({status}): {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("cannot parse the trace of a child: {text:?}"))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ready(answers: &mut impl BufRead) -> Result<Option<SocketAddr>> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    match line.trim().split_once(' ') {
        Some(("ready", "-")) => Ok(None),
        Some(("ready", address)) => Ok(Some(address.parse()?)),
        _ => bail!("expected \"ready\" from a child, got {line:?}"),
    }
}

/// The child's side of the protocol: `qfabric-contest child`.
pub fn child() -> Result<()> {
    let mut input = std::io::stdin().lock();
    let order: Order = serde_json::from_str(&line(&mut input)?).context("cannot parse the order")?;
    let (role, address) = order.role.prepare()?;
    println!("ready {}", address.map_or("-".to_owned(), |a| a.to_string()));
    let start = Instant::new(line(&mut input)?.trim().parse().context("cannot parse the start time")?);
    let trace = role.run(order.work, start)?;
    println!("{}", serde_json::to_string(&trace)?);
    Ok(())
}

fn line(input: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        bail!("the process that started this child has ended");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_does_not_report_ready_is_an_error() {
        assert_eq!(ready(&mut &b"ready -\n"[..]).unwrap(), None);
        assert_eq!(ready(&mut &b"ready 127.0.0.1:9\n"[..]).unwrap().unwrap().port(), 9);
        assert!(ready(&mut &b""[..]).is_err());
    }
}
