//! Programs started here end with this program, however it ends, and stay on their CPU.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to end once it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// A running program; dropping it ends it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
}

/// `program` on that CPU, asked to end when this program dies.
pub fn command(program: &Path, cpu: usize) -> Command {
    let mut command = tied();
    command.args(["taskset", "-c", &cpu.to_string()]).arg(program);
    command
}

/// The same on any CPU: the daemon's control thread cannot hold its reservation on a subset of the CPUs.
pub fn command_anywhere(program: &Path) -> Command {
    let mut command = tied();
    command.arg(program);
    command
}

fn tied() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).stdin(Stdio::null());
    command
}

impl Running {
    /// Starts it.
    pub fn start(name: &str, command: &mut Command) -> Result<Running> {
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Running { child, name: name.to_owned() })
    }

    /// Starts it and waits for a line of its output that begins so.
    pub fn start_until(name: &str, command: &mut Command, beginning: &str) -> Result<Running> {
        let mut running = Running::start(name, command.stdout(Stdio::piped()))?;
        let mut lines = BufReader::new(running.child.stdout.take().context("its output was taken")?);
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

    /// Asks it to end, insists after a while.
    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(pid(&self.child)?, Signal::TERM)?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()?;
        bail!("{} did not end within {PATIENCE:?} and was killed", self.name)
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
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process without a number")
}

/// Runs a program to its end, or until `stop`; what it printed.
pub fn output(name: &str, command: &mut Command, stop: impl Fn() -> bool) -> Result<String> {
    let mut running = Running::start(name, command.stdout(Stdio::piped()).stderr(Stdio::null()))?;
    let mut out = running.child.stdout.take().context("its output was taken")?;
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

/// Refuses where a program is missing, with the package that brings it.
pub fn need(program: &str, package: &str) -> Result<()> {
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
    fn a_program_that_is_stopped_does_not_hold_us_up() {
        let result = output("sleep", command(Path::new("sleep"), 0).arg("60"), || true);
        assert!(result.unwrap_err().to_string().contains("interrupted"));
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let refusal = need("no-such-program", "such-package").unwrap_err().to_string();
        assert!(refusal.contains("no-such-program") && refusal.contains("apt-get install such-package"));
    }
}
