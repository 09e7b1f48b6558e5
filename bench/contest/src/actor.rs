//! Processes that take part: started early, scheduled by the conductor, begun together, and asked afterwards.
//!
//! ```text
//!  conductor                    child
//!   spawn, its order (JSON) ->   prepares
//!                           <-   "ready <address>"
//!   schedules it by pid
//!   the start               ->   runs its role
//!                           <-   its trace (JSON), over
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

/// What a child is told first.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// What it does.
    pub role: Role,
    /// How fast this host works.
    pub work: Work,
}

/// A process that takes part. Dropping it ends it.
#[derive(Debug)]
pub struct Actor {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where it listens for frames.
    pub address: Option<SocketAddr>,
}

impl Actor {
    /// Starts a child of this program in its role and waits until it is ready.
    pub fn spawn(role: &Role, work: Work) -> Result<Actor> {
        Actor::spawn_in(&[], role, work)
    }

    /// The same, started by another command, which must turn into it (such as `ip netns exec NAME`).
    pub fn spawn_in(starter: &[&str], role: &Role, work: Work) -> Result<Actor> {
        let program = std::env::current_exe().context("where is this program")?;
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

    /// Its only thread.
    pub fn thread(&self) -> ThreadId {
        ThreadId(self.child.id() as i32)
    }

    /// Names the common start.
    pub fn begin(&mut self, start: Instant) -> Result<()> {
        writeln!(self.orders, "{}", start.get())?;
        self.orders.flush().context("a child is gone before the start")
    }

    /// CPU time so far; zero once it is over.
    pub fn cpu(&self) -> Nanos {
        clock::process_cpu(self.child.id() as i32).unwrap_or_default()
    }

    /// Waits until it is over; what it saw.
    pub fn finish(mut self) -> Result<Trace> {
        let mut text = String::new();
        self.answers.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("a child failed ({status}): {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("a child's answer: {text:?}"))
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
        _ => bail!("a child did not get ready: {line:?}"),
    }
}

/// The child's side of the conversation: what `qfabric-contest child` does.
pub fn child() -> Result<()> {
    let mut input = std::io::stdin().lock();
    let order: Order = serde_json::from_str(&line(&mut input)?).context("the order")?;
    let (role, address) = order.role.prepare()?;
    println!("ready {}", address.map_or("-".to_owned(), |a| a.to_string()));
    let start = Instant::new(line(&mut input)?.trim().parse().context("the start")?);
    let trace = role.run(order.work, start)?;
    println!("{}", serde_json::to_string(&trace)?);
    Ok(())
}

fn line(input: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        bail!("whoever started this child is gone");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_says_nothing_of_being_ready_is_an_error() {
        assert_eq!(ready(&mut &b"ready -\n"[..]).unwrap(), None);
        assert_eq!(ready(&mut &b"ready 127.0.0.1:9\n"[..]).unwrap().unwrap().port(), 9);
        assert!(ready(&mut &b""[..]).is_err());
    }
}
