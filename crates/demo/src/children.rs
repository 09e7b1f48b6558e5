//! The child processes of the demo. Each child ends when the demo ends, even if the demo is killed.
//!
//! A child is killed when its handle is dropped, and by the kernel (PR_SET_PDEATHSIG) if the demo itself is
//! killed. All children stay in the session of the demo: players and hogs share one autogroup and one cgroup, so
//! nice levels count between them as between the programs of one user.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::Timespec;

/// The user pressed Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// A flag that ends the demo at its next check.
#[derive(Clone, Debug, Default)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// A flag that nothing sets.
    pub fn never() -> Stop {
        Stop::default()
    }
    /// Fails with [`Interrupted`] if the flag is set.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }
}

/// A child process that is killed when this handle is dropped.
#[derive(Debug)]
pub struct ChildGuard(Child);

impl ChildGuard {
    pub fn new(child: Child) -> ChildGuard {
        ChildGuard(child)
    }
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }
    /// The process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
    /// Returns whether the child has ended successfully. If it failed, the error contains its standard error
    /// output.
    pub fn ended(&mut self, name: &str) -> Result<bool> {
        match self.0.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("{name} failed ({status}): {}", self.stderr_text()),
        }
    }
    /// Waits for the end of a child that has closed its output, and so will end.
    pub fn finish(mut self, name: &str) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "{name} failed ({status}): {}", self.stderr_text());
        Ok(())
    }
    fn stderr_text(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = self.0.stderr.take() {
            // If standard error cannot be read, the exit status must suffice.
            stderr.take(4_096).read_to_string(&mut text).ok();
        }
        text.trim().to_owned()
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both calls fail only if the child has already ended.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Finds the player: `$QFABRIC_PLAYER`, beside this program, or on the path.
pub fn find_player() -> Result<PathBuf> {
    find("qfabric-player", "QFABRIC_PLAYER")
}

/// Finds the conference: `$QFABRIC_CONFERENCE`, beside this program, or on the path.
pub fn find_conference() -> Result<PathBuf> {
    find("qfabric-conference", "QFABRIC_CONFERENCE")
}

/// Finds the program `qfabric`: `$QFABRIC`, beside this program, or on the path.
pub fn find_qfabric() -> Result<PathBuf> {
    find("qfabric", "QFABRIC")
}

fn find(name: &str, variable: &str) -> Result<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|exe| {
        let folder = exe.parent()?;
        [folder, folder.parent()?].map(|f| f.join(name)).into_iter().find(|p| p.is_file())
    });
    let on_path = || {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).map(|f| f.join(name)).find(|p| p.is_file())
    };
    named.or(beside).or_else(on_path).with_context(|| {
        let package = if name == "qfabric" { "qfabric-cli" } else { name };
        format!(
            "{name} was not found beside this program or on the path; build it with `cargo build --release -p {package}` \
             or set {variable}"
        )
    })
}

/// A command for the player in its own process group, so that Ctrl-C reaches only the demo, which ends its
/// children.
pub fn player_command(player: &Path) -> Command {
    let mut command = Command::new(player);
    command.arg("--die-with-parent").arg(std::process::id().to_string()).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts the command.
pub fn spawn(mut command: Command) -> Result<ChildGuard> {
    let program = command.get_program().to_owned();
    let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    Ok(ChildGuard::new(child))
}

/// Waits until the player has written `ready`, at most for `patience`.
pub fn wait_until_ready(player: &mut ChildGuard, patience: Duration) -> Result<()> {
    let id = player.id();
    let stdout = player.child().stdout.as_mut().context("the player's output is not piped")?;
    let limit = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    let heard = poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&limit)).unwrap_or(0);
    let mut line = [0; 6];
    if heard == 1 && stdout.read_exact(&mut line).is_ok() && &line == b"ready\n" {
        return Ok(());
    }
    if heard == 1 && player.ended("qfabric-player")? {
        bail!("player {id} ended before it started");
    }
    bail!("player {id} was not ready after {} s", patience.as_secs_f64())
}

/// Sends the start time to the player.
pub fn start_at(player: &mut ChildGuard, moment: qfabric_types::Instant) -> Result<()> {
    let stdin = player.child().stdin.as_mut().context("the player's input is not piped")?;
    writeln!(stdin, "{}", moment.get()).context("the player has ended")
}

/// Processes that use as much CPU time as they can get, in the session of the demo.
#[derive(Debug)]
pub struct Hogs(Vec<ChildGuard>);

impl Hogs {
    /// Starts `count` paused hogs.
    pub fn start(player: &Path, count: usize) -> Result<Hogs> {
        let one = || {
            let mut command = player_command(player);
            command.arg("--hog").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            spawn(command)
        };
        let hogs = Hogs((0..count).map(|_| one()).collect::<Result<_>>()?);
        hogs.pause();
        Ok(hogs)
    }
    /// Starts `count` paused hogs that run on one CPU only.
    pub fn start_on(player: &Path, count: usize, cpu: usize) -> Result<Hogs> {
        let one = || {
            let mut command = Command::new("taskset");
            command.arg("-c").arg(cpu.to_string()).arg(player);
            command.arg("--die-with-parent").arg(std::process::id().to_string()).arg("--hog").process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            spawn(command)
        };
        let hogs = Hogs((0..count).map(|_| one()).collect::<Result<_>>()?);
        hogs.pause();
        Ok(hogs)
    }
    /// Lets the hogs run.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }
    /// Stops the hogs.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }
    /// The process ids.
    pub fn ids(&self) -> Vec<u32> {
        self.0.iter().map(ChildGuard::id).collect()
    }
    fn signal(&self, signal: Signal) {
        for hog in &self.0 {
            if let Some(pid) = Pid::from_raw(hog.id() as i32) {
                // A signal to a hog that has ended fails, which is harmless.
                kill_process(pid, signal).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[test]
    fn a_dropped_child_is_killed() {
        let child = spawn(command("sleep", &["60"])).unwrap();
        let proc = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(proc.exists());
        drop(child);
        assert!(!proc.exists());
    }

    #[test]
    fn the_error_of_a_failed_child_contains_its_output() {
        let failing = command("sh", &["-c", "echo no such clip >&2; exit 3"]);
        let refusal = spawn(failing).unwrap().finish("player").unwrap_err().to_string();
        assert!(refusal.contains("no such clip") && refusal.contains('3'), "{refusal}");
    }

    #[test]
    fn waiting_for_a_silent_player_times_out() {
        let mut silent = spawn(command("sleep", &["60"])).unwrap();
        let refusal = wait_until_ready(&mut silent, Duration::from_millis(50)).unwrap_err();
        assert!(refusal.to_string().contains("not ready after 0.05 s"), "{refusal}");
    }

    #[test]
    fn a_set_stop_flag_interrupts() {
        let stop = Stop::never();
        assert!(stop.check().is_ok());
        stop.0.store(true, Ordering::Relaxed);
        assert!(stop.check().unwrap_err().is::<Interrupted>());
    }
}
