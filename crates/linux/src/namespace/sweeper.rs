//! A process that ends all processes of some namespaces when this process drops it or ends for whatever reason.
//!
//! Problem: a program in a namespace may leave children behind, and a parent that is killed cannot end anything; a signal
//! at the death of the parent reaches only direct children. Approach: a forked child holds the namespaces and sleeps on
//! a pipe. When the pipe closes, it kills every process whose network namespace is one of them, until there is none:
//!
//! ```text
//!   pipe closed ──> /proc: processes of the namespaces? ──none──> exit
//!                        │        ^
//!                        └─ kill ─┘
//! ```
//! It uses only system calls, no lock and no allocation ([`crate::fork`]). A process is killed through a pidfd whose
//! identity was verified, so a reused number hits no other process. Its own parent is never in the namespaces: only
//! threads of it are, and `/proc/PID/ns` shows the first thread.

use std::ffi::CStr;
use std::io::{self, PipeWriter, pipe};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, fstat, open, openat, statat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Namespace;
use crate::fork;

/// Rounds after which the child gives up: processes that the kernel cannot end must not keep it.
const ROUNDS: u32 = 1_000;
const ROUND: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Ends the processes of two namespaces when it is dropped.
#[derive(Debug)]
pub struct Sweeper {
    pid: i32,
    pipe: Option<PipeWriter>,
}

impl Sweeper {
    pub fn new(namespaces: [&Namespace; 2]) -> io::Result<Sweeper> {
        let (reader, writer) = pipe()?;
        let [one, two] = namespaces.map(|namespace| namespace.file.as_raw_fd());
        let keep = [reader.as_raw_fd(), one, two];
        let pid = fork::copy_process(|| watch(keep))?;
        Ok(Sweeper { pid, pipe: Some(writer) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.pipe = None;
        fork::wait_for(self.pid);
    }
}

/// The life of the child.
fn watch(keep: [i32; 3]) -> ! {
    fork::detach(c"qf-sweeper", keep);
    // SAFETY: `detach` made these three descriptors, and the child never closes them.
    let [pipe, one, two] = [0, 1, 2].map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    while rustix::io::read(pipe, &mut [0u8; 1]) == Err(rustix::io::Errno::INTR) {}
    if let (Some(one), Some(two)) = (Identity::of(one), Identity::of(two)) {
        sweep([one, two]);
    }
    // SAFETY: ends the child without running code of the copied process.
    unsafe { libc::_exit(0) }
}

/// Device and inode of a namespace. They belong to no other namespace while a descriptor holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(namespace: BorrowedFd<'_>) -> Option<Identity> {
        fstat(namespace).ok().map(|found| Identity(found.st_dev, found.st_ino))
    }

    /// The network namespace of a process, given its folder in `/proc`. `None` for a zombie, and without the right to
    /// look.
    fn of_process(folder: BorrowedFd<'_>) -> Option<Identity> {
        let found = statat(folder, c"ns/net", AtFlags::empty()).ok()?;
        Some(Identity(found.st_dev, found.st_ino))
    }
}

fn sweep(namespaces: [Identity; 2]) {
    for _ in 0..ROUNDS {
        if kill_all(namespaces) == Some(0) {
            return;
        }
        let _ = rustix::thread::nanosleep(&ROUND);
    }
}

/// Kills every process of the namespaces; returns their number.
fn kill_all(namespaces: [Identity; 2]) -> Option<u32> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = open(c"/proc", flags, Mode::empty()).ok()?;
    let mut buffer = [MaybeUninit::uninit(); 4_096];
    let mut entries = RawDir::new(&proc, &mut buffer);
    let mut killed = 0;
    while let Some(entry) = entries.next() {
        let entry = entry.ok()?;
        let Some(pid) = number(entry.file_name()) else { continue };
        let Ok(folder) = openat(&proc, entry.file_name(), flags, Mode::empty()) else { continue };
        let is_inside = || Identity::of_process(folder.as_fd()).is_some_and(|found| namespaces.contains(&found));
        if is_inside() {
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            // The folder answers only while its process exists, so the pidfd is of the same process.
            if is_inside() {
                let _ = pidfd_send_signal(&process, Signal::KILL);
                killed += 1;
            }
        }
    }
    Some(killed)
}

fn number(name: &CStr) -> Option<Pid> {
    let bytes = name.to_bytes();
    let digits = bytes.iter().all(u8::is_ascii_digit) && (1..=9).contains(&bytes.len());
    let number = digits.then(|| bytes.iter().fold(0, |number, digit| 10 * number + i32::from(digit - b'0')))?;
    Pid::from_raw(number)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::namespace::may_make;
    use crate::testing::skip;
    use crate::threads;
    use qfabric_types::ThreadId;

    #[test]
    fn a_dropped_sweeper_ends_children_and_grandchildren_and_nothing_else() {
        if !may_make() {
            return skip("this test needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)");
        }
        let (one, two) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        let sweeper = Sweeper::new([&one, &two]).unwrap();
        let mut outside = Command::new("sleep").arg("600").spawn().unwrap();
        let mut inside = Command::new("sh");
        // The grandchild leaves the session; `exec` keeps the pid of the child.
        inside.args(["-c", "setsid sleep 600 & echo $!; exec sleep 601"]).stdout(Stdio::piped());
        two.enter_at_exec(&mut inside).unwrap();
        let mut child = inside.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let grandchild = ThreadId(line.trim().parse().unwrap());
        assert!(threads::start_time(grandchild).is_some());
        drop(sweeper);
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(threads::start_time(grandchild).is_none());
        assert_eq!(outside.try_wait().unwrap(), None, "a process of another namespace goes on");
        outside.kill().unwrap();
        outside.wait().unwrap();
    }

    #[test]
    fn only_names_of_processes_are_numbers() {
        assert_eq!(number(c"4711").map(|pid| pid.as_raw_nonzero().get()), Some(4711));
        for name in [c"self", c"", c"0", c"-1", c"99999999999"] {
            assert_eq!(number(name), None);
        }
    }
}
