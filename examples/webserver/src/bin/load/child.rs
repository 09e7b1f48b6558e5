//! Starts programs that end together with this program, whatever ends it, and that stay on their CPU.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to end after the request to terminate.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A running program. Dropping the value ends the program.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
}

/// A command that runs `program` on `cpu`. The program receives SIGTERM when this program ends.
pub(crate) fn command(program: &Path, cpu: usize) -> Command {
    let mut command = command_with_death_signal();
    command.args(["taskset", "-c", &cpu.to_string()]).arg(program);
    command
}

/// Like [`command`], but for any CPU: the daemon's control thread cannot keep its reservation on a subset of the
/// CPUs.
pub(crate) fn command_anywhere(program: &Path) -> Command {
    let mut command = command_with_death_signal();
    command.arg(program);
    command
}

fn command_with_death_signal() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).stdin(Stdio::null());
    command
}

impl Running {
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Running> {
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Running { child, name: name.to_owned() })
    }

    /// Starts a program and waits for a line of its output that starts with `beginning`.
    pub(crate) fn start_until(name: &str, command: &mut Command, beginning: &str) -> Result<Running> {
        let mut running = Running::start(name, command.stdout(Stdio::piped()))?;
        let mut lines = BufReader::new(running.child.stdout.take().context("its output is not piped")?);
        let mut line = String::new();
        while !line.starts_with(beginning) {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                bail!("{name} ended before it was ready");
            }
        }
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(running)
    }

    /// Sends SIGTERM; kills the program if it has not ended after [`STOP_TIMEOUT`].
    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(pid(&self.child)?, Signal::TERM)?;
        let until = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < until {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        bail!("{} did not end within {STOP_TIMEOUT:?} and was killed", self.name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

fn pid(child: &Child) -> Result<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process has no valid id")
}

/// Runs a program until it ends or `stop` returns true. Returns its output.
pub(crate) fn output(name: &str, command: &mut Command, stop: impl Fn() -> bool) -> Result<String> {
    let mut running = Running::start(name, command.stdout(Stdio::piped()).stderr(Stdio::null()))?;
    let mut out = running.child.stdout.take().context("its output is not piped")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let status = loop {
        if let Some(status) = running.child.try_wait()? {
            break status;
        }
        if stop() {
            bail!("interrupted");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = reader.join().expect("reading does not panic")?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(text)
}

/// Fails if a program is not installed, and names the Debian package that contains it.
pub(crate) fn require_program(program: &str, package: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    bail!("{program} is not in the path; on Debian: apt-get install {package}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_program_has_ended() {
        let running = Running::start("sleep", command(Path::new("sleep"), 0).arg("60")).unwrap();
        let pid = pid(&running.child).unwrap();
        drop(running);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn stopping_does_not_wait_for_the_program() {
        let result = output("sleep", command(Path::new("sleep"), 0).arg("60"), || true);
        assert!(result.unwrap_err().to_string().contains("interrupted"));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let refusal = require_program("no-such-program", "such-package").unwrap_err().to_string();
        assert!(refusal.contains("no-such-program") && refusal.contains("apt-get install such-package"));
    }
}
