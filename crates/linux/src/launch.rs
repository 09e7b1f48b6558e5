//! Starts a program that waits, before its first instruction, until it is covered by a reservation.
//!
//! The child forks as usual. Immediately before its exec it writes its process id into one pipe and waits for a byte
//! from another pipe. If that pipe closes without a byte, because the parent died, the child exits. `spawn` returns
//! only after the exec has succeeded or failed, so it runs in a separate thread, which ends with it.
#![allow(unsafe_code)] // code between fork and exec

use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;

/// A child that has a process id but has not executed the program yet. Dropping it kills the child.
#[derive(Debug)]
pub struct Held {
    pid: i32,
    gate: Option<PipeWriter>,
    spawning: Option<JoinHandle<io::Result<Child>>>,
}

impl Held {
    /// Starts `command` and holds it before its exec.
    pub fn spawn(mut command: Command) -> io::Result<Held> {
        let ((mut pid_reader, pid_writer), (gate_reader, gate)) = (pipe()?, pipe()?);
        hold_before_exec(&mut command, pid_writer, gate_reader, gate.as_raw_fd());
        let spawning = std::thread::Builder::new().name("qf-launch".into()).spawn(move || command.spawn())?;
        let mut number = [0; 4];
        match pid_reader.read_exact(&mut number) {
            Ok(()) => Ok(Held { pid: i32::from_ne_bytes(number), gate: Some(gate), spawning: Some(spawning) }),
            Err(e) => Err(join(spawning).err().unwrap_or(e)), // the fork failed
        }
    }

    /// Process id; the program keeps it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the child execute the program. Returns the error of the exec, such as a missing program or permission.
    pub fn go(mut self) -> io::Result<Child> {
        if let Some(mut gate) = self.gate.take() {
            gate.write_all(b"!")?;
        }
        self.spawning.take().map_or_else(|| Err(io::ErrorKind::Other.into()), join)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(spawning) = self.spawning.take() else { return };
        // The child has not been waited for, so its id cannot belong to another process.
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        if let Ok(mut child) = join(spawning) {
            let _ = child.wait();
        }
    }
}

fn hold_before_exec(command: &mut Command, mut pid_writer: PipeWriter, mut gate_reader: PipeReader, gate: RawFd) {
    let hold = move || {
        // SAFETY: this is the child's own copy, which the child does not use. If it stayed open, the child would not
        // notice the end of the parent.
        unsafe { libc::close(gate) };
        pid_writer.write_all(&(std::process::id() as i32).to_ne_bytes())?;
        if gate_reader.read_exact(&mut [0]).is_err() {
            // SAFETY: ends the child without running any other code. The parent has died, so no process reads an error.
            unsafe { libc::_exit(127) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec `hold` only closes, writes and reads descriptors. It allocates nothing and takes no
    // lock that another thread might have held.
    unsafe { command.pre_exec(hold) };
}

fn join(spawning: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    spawning.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads;
    use qfabric_types::ThreadId;

    #[test]
    fn a_held_child_exists_but_has_not_executed_the_program() {
        let mut command = Command::new("sleep");
        command.arg("30");
        let held = Held::spawn(command).unwrap();
        let pid = held.pid();
        assert_ne!(threads::name(ThreadId(pid)).as_deref(), Some("sleep"));
        let mut child = held.go().unwrap();
        assert_eq!((child.id() as i32, threads::name(ThreadId(pid)).as_deref()), (pid, Some("sleep")));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_missing_program_is_an_error_of_go() {
        let error = Held::spawn(Command::new("/no/such/program")).unwrap().go().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_dropped_child_never_runs() {
        let file = tempfile::tempdir().unwrap();
        let proof = file.path().join("it-ran");
        let mut command = Command::new("touch");
        command.arg(&proof);
        let held = Held::spawn(command).unwrap();
        let pid = held.pid();
        drop(held);
        assert!(!proof.exists() && threads::start_time(ThreadId(pid)).is_none());
    }
}
