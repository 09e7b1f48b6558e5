//! Child processes of the conductor, which answer by lines. They end when their input closes, so none outlives it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A process that is killed when this value is dropped.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    /// Bounded by the frames of a plan: a process prints no more than a few lines and one for each frame.
    lines: Receiver<String>,
    name: String,
}

impl Process {
    /// Starts a process, with pipes to its input and output.
    pub(crate) fn start(mut command: Command) -> Result<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let name = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (found, lines) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.map(|line| found.send(line)).take_while(Result::is_ok).for_each(drop);
        });
        Ok(Process { child, input, lines, name })
    }

    /// The next line; `None` after this time without one.
    fn line(&mut self, until: Instant) -> Result<Option<String>> {
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("{} ended too early: {}", self.name, self.child.wait()?),
        }
    }

    /// Waits for this line; false if it has not come in time.
    pub(crate) fn waits_for(&mut self, word: &str, within: Duration) -> Result<bool> {
        let until = Instant::now() + within;
        while let Some(line) = self.line(until)? {
            if line == word {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for this line; fails if it has not come in time.
    pub(crate) fn expect(&mut self, word: &str, within: Duration) -> Result<()> {
        let found = self.waits_for(word, within)?;
        if found { Ok(()) } else { bail!("{} did not print `{word}` within {within:?}", self.name) }
    }

    pub(crate) fn tell(&mut self, word: &str) -> Result<()> {
        writeln!(self.input, "{word}").with_context(|| format!("{} does not read", self.name))
    }

    /// Asks for the results: all lines up to `end`.
    pub(crate) fn results(&mut self, within: Duration) -> Result<Vec<String>> {
        self.tell("tell")?;
        let (until, mut lines) = (Instant::now() + within, Vec::new());
        while let Some(line) = self.line(until)? {
            if line == "end" {
                return Ok(lines);
            }
            lines.push(line);
        }
        bail!("{} gave no results within {within:?}", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    #[test]
    fn results_are_the_lines_before_the_end() {
        let mut process = shell("echo noise; echo ready; read word; echo $word 1; echo end");
        process.expect("ready", PATIENCE).unwrap();
        assert_eq!(process.results(PATIENCE).unwrap(), ["tell 1"]);
    }

    #[test]
    fn a_process_that_ends_too_early_is_named_with_its_exit_code() {
        let failure = shell("exit 3").expect("ready", PATIENCE).unwrap_err().to_string();
        assert!(failure.contains("exit 3") && failure.contains("exit status: 3"), "{failure}");
    }

    #[test]
    fn a_line_that_does_not_come_is_waited_for_no_longer_than_asked() {
        assert!(!shell("read word").waits_for("all", Duration::from_millis(10)).unwrap());
    }
}
