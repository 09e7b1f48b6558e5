//! The command at the other end of the link.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_netlab::{Lab, LabEnd};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::exit::Failure;
use crate::output;

/// Longest wait for the peer's first socket.
const START: Duration = Duration::from_secs(1);
/// Time from SIGTERM to SIGKILL.
const END: Duration = Duration::from_secs(1);
const CHECK: Duration = Duration::from_millis(5);

pub(super) struct Peer {
    child: Child,
}

impl Peer {
    /// Starts a shell command, and waits until it has a socket, has ended, or [`START`] has passed. The command is in a
    /// process group of its own, so that Ctrl-C ends the program first.
    pub(super) fn start(lab: &Lab, command: &str) -> Result<Peer, Failure> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).process_group(0);
        let mut peer = Peer { child: lab.command_peer(shell)?.spawn()? };
        let begin = Instant::now();
        while begin.elapsed() < START && !lab.inside(LabEnd::Peer, has_socket)?? && !peer.has_ended()? {
            std::thread::sleep(CHECK);
        }
        Ok(peer)
    }

    fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Asks the peer to end. What is left of it ends with the lab.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        if let Some(status) = self.child.try_wait()?.filter(|status| !status.success()) {
            output::note(format_args!("qfabric: the peer ended before the program: {status}"));
            return Ok(());
        }
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::TERM); // it may have ended
        }
        let begin = Instant::now();
        while begin.elapsed() < END && !self.has_ended()? {
            std::thread::sleep(CHECK);
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a TCP socket listens in this network namespace, or a UDP socket has a port.
fn has_socket() -> io::Result<bool> {
    let read = |name: &str| match std::fs::read_to_string(format!("/proc/thread-self/net/{name}")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()), // without IPv6
        text => text,
    };
    let tcp = [read("tcp")?, read("tcp6")?];
    let udp = [read("udp")?, read("udp6")?];
    Ok(tcp.iter().any(|text| listens(text)) || udp.iter().any(|text| text.lines().nth(1).is_some()))
}

/// Whether a line of `/proc/net/tcp` has the state LISTEN.
fn listens(text: &str) -> bool {
    text.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some("0A"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listening_socket_counts() {
        let title = "  sl  local_address rem_address   st tx_queue\n";
        let line = |state| format!("{title}   0: 0100007F:1F90 00000000:0000 {state} 00000000:00000000\n");
        assert!(listens(&line("0A")) && !listens(&line("01")) && !listens(title) && !listens(""));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(has_socket().unwrap());
        drop(listener);
    }
}
