//! The processes the demo starts, each of which ends with it, however it ends.
//!
//! A child is killed when its handle is dropped, and by the kernel (PR_SET_PDEATHSIG) should the demo itself
//! be killed. All children stay in the demo's session: one group of the automatic grouping and one cgroup
//! for players and hogs, so that nice levels count between them as they do between programs of one user.

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

/// Somebody pressed Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// The flag that ends everything at the next look.
#[derive(Clone, Debug, Default)]
pub struct Stop(pub Arc<AtomicBool>);

impl Stop {
    /// One that is never raised.
    pub fn never() -> Stop {
        Stop::default()
    }
    /// Fails with [`Interrupted`] once it was raised.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }
}

/// A child that does not outlive its handle.
#[derive(Debug)]
pub struct Killed(Child);

impl Killed {
    /// Takes the child over.
    pub fn new(child: Child) -> Killed {
        Killed(child)
    }
    /// The child itself.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }
    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
    /// Whether it has ended well; an error with what it said where it has not.
    pub fn ended(&mut self, name: &str) -> Result<bool> {
        match self.0.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("{name} failed ({status}): {}", self.said()),
        }
    }
    /// Waits for an end that is certain to come, since its output was closed.
    pub fn finish(mut self, name: &str) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "{name} failed ({status}): {}", self.said());
        Ok(())
    }
    fn said(&mut self) -> String {
        let mut said = String::new();
        if let Some(stderr) = self.0.stderr.take() {
            // What cannot be read is not repeated; the exit status is already known.
            stderr.take(4_096).read_to_string(&mut said).ok();
        }
        said.trim().to_owned()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only for a child that is over already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Finds the player: `$QFABRIC_PLAYER`, beside this program, or on the path.
pub fn find_player() -> Result<PathBuf> {
    let named = std::env::var_os("QFABRIC_PLAYER").map(PathBuf::from);
    let beside = std::env::current_exe().ok().and_then(|exe| {
        let folder = exe.parent()?;
        [folder, folder.parent()?].map(|f| f.join("qfabric-player")).into_iter().find(|p| p.exists())
    });
    let on_path = || {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).map(|f| f.join("qfabric-player")).find(|p| p.exists())
    };
    named.or(beside).or_else(on_path).context(
        "qfabric-player was not found beside this program or on the path; \
         build it with `cargo build --release -p qfabric-player` or set QFABRIC_PLAYER",
    )
}

/// A command for the player, in a process group of its own: Ctrl-C reaches the demo, which ends its children.
pub fn player_command(player: &Path) -> Command {
    let mut command = Command::new(player);
    command.arg("--die-with-parent").arg(std::process::id().to_string()).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts it.
pub fn spawn(mut command: Command) -> Result<Killed> {
    let program = command.get_program().to_owned();
    let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    Ok(Killed::new(child))
}

/// Waits until the player has said `ready`, at most `patience`.
pub fn wait_until_ready(player: &mut Killed, patience: Duration) -> Result<()> {
    let id = player.id();
    let stdout = player.child().stdout.as_mut().context("the player's output is not piped")?;
    let limit = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    let heard = poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&limit)).unwrap_or(0);
    let mut said = [0; 6];
    if heard == 1 && stdout.read_exact(&mut said).is_ok() && &said == b"ready\n" {
        return Ok(());
    }
    if heard == 1 && player.ended("qfabric-player")? {
        bail!("player {id} ended before it started");
    }
    bail!("player {id} was not ready after {} s", patience.as_secs_f64())
}

/// Tells it when to start.
pub fn start_at(player: &mut Killed, moment: qfabric_types::Instant) -> Result<()> {
    let stdin = player.child().stdin.as_mut().context("the player's input is not piped")?;
    writeln!(stdin, "{}", moment.get()).context("the player is gone")
}

/// Processes that burn CPU time, in the demo's own session.
#[derive(Debug)]
pub struct Hogs(Vec<Killed>);

impl Hogs {
    /// Starts `count`, paused.
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
    /// Lets them burn.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }
    /// Lets them rest.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }
    /// Their numbers.
    pub fn ids(&self) -> Vec<u32> {
        self.0.iter().map(Killed::id).collect()
    }
    fn signal(&self, signal: Signal) {
        for hog in &self.0 {
            if let Some(pid) = Pid::from_raw(hog.id() as i32) {
                // A hog that is gone burns nothing, which is no reason to stop.
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
    fn a_dropped_child_is_gone() {
        let child = spawn(command("sleep", &["60"])).unwrap();
        let proc = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(proc.exists());
        drop(child);
        assert!(!proc.exists());
    }

    #[test]
    fn a_child_that_failed_is_quoted() {
        let failing = command("sh", &["-c", "echo no such clip >&2; exit 3"]);
        let refusal = spawn(failing).unwrap().finish("player").unwrap_err().to_string();
        assert!(refusal.contains("no such clip") && refusal.contains('3'), "{refusal}");
    }

    #[test]
    fn a_silent_player_is_not_waited_for_for_ever() {
        let mut silent = spawn(command("sleep", &["60"])).unwrap();
        let refusal = wait_until_ready(&mut silent, Duration::from_millis(50)).unwrap_err();
        assert!(refusal.to_string().contains("not ready after 0.05 s"), "{refusal}");
    }

    #[test]
    fn a_raised_stop_interrupts() {
        let stop = Stop::never();
        assert!(stop.check().is_ok());
        stop.0.store(true, Ordering::Relaxed);
        assert!(stop.check().unwrap_err().is::<Interrupted>());
    }
}
