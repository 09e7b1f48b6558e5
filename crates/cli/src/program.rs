//! Runs a program as a child process: holds it before its first instruction, starts it, passes signals on to it, and
//! waits for its end. Times in milliseconds.
//!
//! ```text
//! Waiting (exists, has its pid) ──go──> Running ──ended──> (zombie, keeps its pid) ──reap──> exit code
//! ```

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use qfabric_linux::launch::Held;
use qfabric_linux::signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::exit::{Done, Failure};

/// Signals that are passed on to the program.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// The signals of [`PASSED_ON`] that ask the program to end.
const ENDS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// A program that exists but has not run its first instruction. If it is dropped, it ends without having run.
pub(crate) struct Waiting {
    name: String,
    held: Held,
    relay: Relay,
}

/// A running program. If it is dropped before [`Running::reap`], it is killed, because no process would wait for it.
pub(crate) struct Running {
    child: Child,
    pidfd: Arc<OwnedFd>,
    relay: Relay,
}

impl Waiting {
    /// Starts `command` and holds it before its first instruction.
    ///
    /// # Errors
    /// Exit code 127 if the program is not found, 126 if it cannot be executed.
    pub(crate) fn start(command: &[OsString]) -> Result<Waiting, Failure> {
        let (name, command) = found(command)?;
        Waiting::start_command(name, command)
    }

    /// As [`Waiting::start`], for a program that [`found`] has found; `name` is for messages.
    pub(crate) fn start_command(name: String, command: Command) -> Result<Waiting, Failure> {
        let relay = Relay::start()?;
        let held = Held::spawn(command).map_err(|error| not_executed(&name, &error))?;
        Ok(Waiting { name, held, relay })
    }

    /// Process id, the same before and after the exec.
    pub(crate) fn pid(&self) -> i32 {
        self.held.pid()
    }

    /// Lets the child execute the program.
    pub(crate) fn go(self) -> Result<Running, Failure> {
        let Waiting { name, held, relay } = self;
        let child = held.go().map_err(|error| not_executed(&name, &error))?;
        let pidfd = Arc::new(pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from)?);
        relay.open_to(pidfd.clone());
        Ok(Running { child, pidfd, relay })
    }
}

impl Running {
    /// Waits up to `ms` milliseconds for the end of the program. Does not reap it, so its pid is not reused.
    pub(crate) fn ended_within(&self, ms: u32) -> Result<bool, Failure> {
        let until = Instant::now() + Duration::from_millis(ms.into());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            let timeout = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&*self.pidfd, PollFlags::IN)], Some(&timeout)) {
                Ok(ready) => return Ok(ready > 0),
                // A signal that is passed on does not shorten the wait.
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Failure::fault(io::Error::from(error))),
            }
        }
    }

    /// Whether a signal to this process, such as Ctrl-C, asked the program to end.
    pub(crate) fn was_asked_to_end(&self) -> bool {
        self.relay.asked_to_end.load(Ordering::Relaxed)
    }

    /// Reaps the program. Returns the exit code that a shell would report.
    pub(crate) fn reap(mut self) -> Result<Done, Failure> {
        Ok(Done(exit_code(self.child.wait()?)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if the program was reaped already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes the signals sent to this process on to the program, in a separate thread.
struct Relay {
    target: Arc<Mutex<Target>>,
    asked_to_end: Arc<AtomicBool>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// Receiver of the signals: until the program runs they are stored, then the program receives them.
enum Target {
    Keep(Vec<Signal>),
    Program(Arc<OwnedFd>),
}

impl Relay {
    fn start() -> io::Result<Relay> {
        // A hangup that this process ignores (`nohup`) stays ignored, here and in the program.
        let taken = PASSED_ON.into_iter().filter(|signal| *signal != SIGHUP || !signals::ignores_hangup());
        let mut received = SignalsInfo::<WithOrigin>::new(taken)?;
        let handle = received.handle();
        let target = Arc::new(Mutex::new(Target::Keep(Vec::new())));
        let (shared, asked_to_end) = (target.clone(), Arc::new(AtomicBool::new(false)));
        let asked = asked_to_end.clone();
        let thread = std::thread::spawn(move || {
            for origin in &mut received {
                asked.fetch_or(ENDS.contains(&origin.signal), Ordering::Relaxed);
                pass_on(&mut shared.lock().unwrap_or_else(PoisonError::into_inner), &origin);
            }
        });
        Ok(Relay { target, asked_to_end, handle, thread: Some(thread) })
    }

    /// Sends the stored signals to the program, and passes later signals on directly.
    fn open_to(&self, pidfd: Arc<OwnedFd>) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if let Target::Keep(kept) = std::mem::replace(&mut *target, Target::Program(pidfd.clone())) {
            kept.into_iter().for_each(|signal| send(&pidfd, signal));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // The thread only forwards signals and cannot panic, so its result carries no information.
            let _ = thread.join();
        }
    }
}

/// Passes a signal on, unless the program has received it already. Before the exec the program cannot take signals;
/// then all signals are stored, at most one for each kind.
fn pass_on(target: &mut Target, origin: &Origin) {
    let Some(signal) = Signal::from_named_raw(origin.signal) else { return };
    let is_for_us_alone = is_for_us_alone(origin.signal, origin.cause, leads_session());
    match target {
        Target::Keep(kept) if kept.len() < PASSED_ON.len() => kept.push(signal),
        Target::Keep(_) => {}
        Target::Program(pidfd) if is_for_us_alone => send(pidfd, signal),
        Target::Program(_) => {}
    }
}

/// The terminal sends Ctrl-C to its whole foreground group, so the program has received it, too. A terminal that closes
/// tells only the leader of its session, which this process is under `ssh -t HOST qfabric run …` and `xterm -e`.
fn is_for_us_alone(signal: i32, cause: Cause, leads_session: bool) -> bool {
    !matches!(cause, Cause::Kernel) || (signal == SIGHUP && leads_session)
}

/// Whether this process leads its session. Not by getsid: it answers 0 if the leader is outside of this PID namespace,
/// which is no process id for rustix. Without /proc: no.
fn leads_session() -> bool {
    std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| is_leader(&stat))
}

/// Whether the process with this content of its file `stat` leads its session. The name, in parentheses, may have any
/// characters; state, parent, group and session follow.
fn is_leader(stat: &str) -> bool {
    let session = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(3));
    session.is_some() && session == stat.split_ascii_whitespace().next()
}

fn send(pidfd: &OwnedFd, signal: Signal) {
    // Fails if the program has ended already.
    let _ = pidfd_send_signal(pidfd, signal);
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.saturating_add(signal as u8),
        (None, None) => 1,
    }
}

/// The failure for a program that could not be started, with the exit codes of a shell.
fn not_executed(program: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::program(127, format!("{program}: not found; give its path or check $PATH")),
        _ => Failure::program(126, format!("{program}: cannot be executed: {error}")),
    }
}

/// The name and the command of a program that exists and may be executed. Fails as [`Waiting::start`].
pub(crate) fn found(command: &[OsString]) -> Result<(String, Command), Failure> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| Failure::usage("no program given; name one after --"))?;
    let name = program.to_string_lossy().into_owned();
    find(program).map_err(|error| not_executed(&name, &error))?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok((name, command))
}

/// Finds `program` as a shell does, so that a misspelt name is reported before the daemon is asked for a reservation.
fn find(program: &OsStr) -> io::Result<()> {
    if program.to_string_lossy().contains('/') {
        return executable(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for folder in std::env::split_paths(&path) {
        match executable(&folder.join(program)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn executable(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::siginfo::Sent;

    use super::*;

    #[test]
    fn only_signals_that_the_program_has_not_received_are_passed_on() {
        let user = Cause::Sent(Sent::User);
        assert!([SIGINT, SIGHUP, SIGTERM].into_iter().all(|signal| is_for_us_alone(signal, user, false)));
        assert!(!is_for_us_alone(SIGINT, Cause::Kernel, true), "Ctrl-C reaches the whole foreground group");
        assert!(!is_for_us_alone(SIGHUP, Cause::Kernel, false), "the whole group is told");
        assert!(is_for_us_alone(SIGHUP, Cause::Kernel, true), "a closed terminal tells its leader alone");
    }

    #[test]
    fn a_leader_has_the_number_of_its_session() {
        assert!(is_leader("7 (a) b) S 1 7 7 34816 7 4194304\n"));
        assert!(!is_leader("8 (qfabric) S 7 8 7 34816 8 4194304\n"));
        assert!(!is_leader("8 (qfabric) S 0 0 0 0 -1 4194304\n"), "the leader is outside of the PID namespace");
        assert!(!is_leader("") && !is_leader("8 (qfabric) S 7"));
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
    }

    #[test]
    fn a_program_is_found_as_in_a_shell() {
        let kind = |program| find(OsStr::new(program)).map_err(|error| error.kind());
        assert_eq!(kind("sh"), Ok(()));
        assert_eq!(kind("/etc"), Err(io::ErrorKind::IsADirectory));
        assert_eq!(kind("no-such-program"), Err(io::ErrorKind::NotFound));
        assert_eq!(kind("/etc/passwd"), Err(io::ErrorKind::PermissionDenied));
    }
}
