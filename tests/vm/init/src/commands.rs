//! Runs one command. Its output goes to the host as it arrives, its orphans are collected, and its process group
//! ends together with it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use qfabric_vm_init::{Command, Frame, OUT, Stream};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use crate::Host;

/// How long an output may stay open after the command has ended. A program that the command started in another
/// process group can keep it open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);

/// The exit code if a program cannot be started, as in shells.
const NOT_STARTED: u8 = 127;

/// Runs a command until it ends. Returns its exit code.
pub(crate) fn run(host: &Host, command: &Command) -> u8 {
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
    while outputs.recv_timeout(OUTPUT_GRACE).is_ok() {}
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

/// Starts one thread per output. The receiver ends when both outputs have ended.
fn forward(host: &Host, child: &mut Child) -> Receiver<()> {
    let (ended_sender, ended) = channel();
    if let Some(output) = child.stdout.take() {
        copy(host, Stream::Out, output, ended_sender.clone());
    }
    if let Some(output) = child.stderr.take() {
        copy(host, Stream::Err, output, ended_sender);
    }
    ended
}

fn copy(host: &Host, stream: Stream, mut from: impl Read + Send + 'static, ended_sender: std::sync::mpsc::Sender<()>) {
    let host = host.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            host.send(&Frame::Said(stream, buffer[..length].to_vec()));
        }
        let _ = ended_sender.send(());
    });
}

/// Waits for the command. The first process inherits orphans and must wait for them too. Otherwise they stay as
/// zombies, and a test that checks whether a process is gone finds it alive.
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
