//! Child processes of the conductor: they end when their standard input closes, so no process outlives the conductor.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A process that is killed when this value is dropped.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process, with pipes to its input and output.
    pub(crate) fn start(command: &mut Command) -> Result<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Process { child, input, output: BufReader::new(output) })
    }

    /// Reads up to the next line that begins with `beginning`; returns the rest of that line.
    pub(crate) fn line(&mut self, beginning: &str) -> Result<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if let Some(rest) = line.strip_prefix(beginning) {
                return Ok(rest.trim().to_owned());
            }
            line.clear();
        }
        bail!("the process ended before it printed `{beginning}`: {}", self.child.wait()?)
    }

    /// The numbers of the next result.
    pub(crate) fn numbers<const N: usize>(&mut self) -> Result<[f64; N]> {
        let line = self.line("result ")?;
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>().context(line)?;
        numbers.try_into().map_err(|numbers| anyhow::anyhow!("expected {N} numbers, got {numbers:?}"))
    }

    /// Asks the process for a result.
    pub(crate) fn ask(&mut self) -> Result<()> {
        Ok(writeln!(self.input, "tell")?)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
