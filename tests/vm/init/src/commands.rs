//! Runs one command: its output goes to the host as it comes, its orphans are collected, its process group ends
//! with it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use qfabric_vm_init::{Command, Frame, OUT, Stream};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use crate::Host;

/// How long an output may stay open after the command's end: something it started in a group of its own holds it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The exit code when a program cannot be started, as shells have it.
const NOT_STARTED: u8 = 127;

/// Runs it to its end.
pub fn run(host: &Host, command: &Command) -> u8 {
    let mut child = match start(command) {
        Ok(child) => child,
        Err(e) => {
            host.send(&Frame::Said(Stream::Err, format!("{}: {e}\n", command.argv.join(" ")).into_bytes()));
            return NOT_STARTED;
        }
    };
    let outputs = forward(host, &mut child);
    let code = wait_for(&child);
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    while outputs.recv_timeout(LAST_WORDS).is_ok() {}
    code
}

fn start(command: &Command) -> std::io::Result<Child> {
    let (program, rest) = command.argv.split_first().ok_or_else(|| std::io::Error::other("no command"))?;
    let mut process = std::process::Command::new(program);
    process.args(rest).current_dir(&command.folder).process_group(0);
    process.env_clear().envs([("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"), ("HOME", "/"), ("TMPDIR", "/tmp")]);
    process.envs(command.variables.iter().filter_map(|v| v.split_once('='))).env("QFABRIC_VM_OUT", OUT);
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// One thread per output; the receiver ends when both outputs have.
fn forward(host: &Host, child: &mut Child) -> Receiver<()> {
    let (tell, ended) = channel();
    if let Some(output) = child.stdout.take() {
        copy(host, Stream::Out, output, tell.clone());
    }
    if let Some(output) = child.stderr.take() {
        copy(host, Stream::Err, output, tell);
    }
    ended
}

fn copy(host: &Host, stream: Stream, mut from: impl Read + Send + 'static, tell: std::sync::mpsc::Sender<()>) {
    let host = host.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            host.send(&Frame::Said(stream, buffer[..length].to_vec()));
        }
        let _ = tell.send(());
    });
}

/// The first process inherits orphans: it waits for all, else they stay as zombies and a test that asks whether a
/// process is gone is told that it is not.
fn wait_for(child: &Child) -> u8 {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid().cast_unsigned() == child.id() => return code(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return NOT_STARTED,
        }
    }
}

fn code(status: WaitStatus) -> u8 {
    let signal = || status.terminating_signal().map_or(NOT_STARTED.into(), |signal| 128 + signal);
    u8::try_from(status.exit_status().unwrap_or_else(signal)).unwrap_or(u8::MAX)
}
