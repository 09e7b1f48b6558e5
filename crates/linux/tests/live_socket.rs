//! Tests of the I/O module: activity bits of sockets, sleeping readers, and the rights to bind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qfabric_linux::ecalls::{Kernel, SocketModule, bind_socket, bind_socket_as};
use rustix::event::{PollFd, PollFlags, poll};

/// The kernel, if this process may install programs in it. Otherwise prints to standard error that the test is skipped.
fn kernel() -> Option<Kernel> {
    Kernel::open().map_err(qfabric_linux::testing::skip).ok()
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn readable(fd: BorrowedFd, ms: i64) -> bool {
    let patience = rustix::time::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&patience)).unwrap() == 1
}

/// Only ends a test that hangs: no step takes this long, not even with eight hogs per core.
const PATIENCE: Duration = Duration::from_secs(120);

fn within(time: Duration, happened: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < time {
        if happened() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn data_of_a_socket_of_interest_sets_its_bit_and_wakes_a_sleeping_reader() {
    let Some(kernel) = kernel() else { return };
    let module = SocketModule::open(&kernel).unwrap();
    let (mut client, server) = pair();
    bind_socket(module.bind_fd(), server.as_fd()).unwrap();
    let fd = server.as_raw_fd() as u32;
    client.write_all(b"x").unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert!(!module.page().any_active(fd), "no interest is set");
    assert!(module.page().set_interest(fd, true) && module.page().may_sleep(fd));
    client.write_all(b"x").unwrap();
    assert!(readable(module.wake_fd(), 120_000));
    let mut active = Vec::new();
    assert_eq!(module.page().for_each_active(fd, |fd| active.push(fd)), 1);
    assert_eq!((active, module.page().ready_flag()), (vec![fd], 1));
    module.page().set_interest(fd, false);
    client.write_all(b"x").unwrap();
    assert!(!within(Duration::from_secs(1), || module.page().any_active(fd)), "the interest was cleared");
}

#[test]
fn the_end_of_a_connection_and_a_connection_to_accept_are_activity() {
    let Some(kernel) = kernel() else { return };
    let module = SocketModule::open(&kernel).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, server) = pair();
    for (socket, fd) in [(listener.as_fd(), listener.as_raw_fd()), (server.as_fd(), server.as_raw_fd())] {
        bind_socket(module.bind_fd(), socket).unwrap();
        module.page().set_interest(fd as u32, true);
    }
    let active = |fd: i32| module.page().take_active(fd as usize / 64) >> (fd % 64) & 1 == 1;
    let _connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(within(PATIENCE, || active(listener.as_raw_fd())));
    drop(client);
    assert!(within(PATIENCE, || active(server.as_raw_fd())));
}

/// A reader sleeps whenever the module allows it, and a writer writes at its own pace. If a wake-up were lost, both
/// would wait for ever.
#[test]
fn no_wake_up_is_lost() {
    const MESSAGES: u64 = 20_000;
    let Some(kernel) = kernel() else { return };
    let module = SocketModule::open(&kernel).unwrap();
    let (mut client, mut server) = pair();
    server.set_nonblocking(true).unwrap();
    bind_socket(module.bind_fd(), server.as_fd()).unwrap();
    let fd = server.as_raw_fd() as u32;
    module.page().set_interest(fd, true);
    let (read, slept) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while read.load(Ordering::Acquire) < MESSAGES {
                module.page().for_each_active(fd, |_| {
                    let mut buffer = [0; 64];
                    while let Ok(bytes) = server.read(&mut buffer) {
                        read.fetch_add(bytes as u64, Ordering::Release);
                    }
                });
                let done = read.load(Ordering::Acquire) == MESSAGES;
                if !done && module.page().may_sleep(fd) {
                    slept.fetch_add(1, Ordering::Relaxed);
                    assert!(readable(module.wake_fd(), 120_000), "after {read:?} bytes");
                    module.acknowledge().unwrap();
                }
            }
        });
        for message in 0..MESSAGES {
            client.write_all(b"x").unwrap();
            // Sometimes wait for the reader, so that writes also happen just as it goes to sleep.
            while message % 3 == 0 && read.load(Ordering::Acquire) <= message {
                std::hint::spin_loop();
                if message % 2 == 0 {
                    std::thread::yield_now();
                }
            }
        }
    });
    assert!(slept.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_descriptor_may_stand_for_another_number_below_the_limit() {
    let Some(kernel) = kernel() else { return };
    let module = SocketModule::open(&kernel).unwrap();
    let (mut client, server) = pair();
    bind_socket_as(module.bind_fd(), server.as_fd(), 40_000).unwrap();
    module.page().set_interest(40_000, true);
    client.write_all(b"x").unwrap();
    assert!(within(PATIENCE, || module.page().any_active(40_000)));
    let refusal = bind_socket_as(module.bind_fd(), server.as_fd(), 65_536).unwrap_err();
    assert!(refusal.to_string().contains("below 65536"), "{refusal}");
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(bind_socket(module.bind_fd(), file.as_fd()).is_err(), "a file that is not a socket");
    assert!(bind_socket(module.page_fd(), server.as_fd()).is_err(), "a map that is not the socket map");
}

/// The descriptor of the map is sufficient: no capability is needed, even if `unprivileged_bpf_disabled` is set.
#[test]
#[allow(unsafe_code)] // drops privileges in a child
fn the_holder_of_the_descriptor_may_bind_without_capabilities() {
    let Some(kernel) = kernel() else { return };
    let module = SocketModule::open(&kernel).unwrap();
    let (_client, server) = pair();
    // SAFETY: fork in a test; the child makes system calls only, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: takes only numbers; drops root and with it all capabilities.
        let dropped =
            unsafe { libc::setresgid(65_534, 65_534, 65_534) == 0 && libc::setresuid(65_534, 65_534, 65_534) == 0 };
        let bound = dropped && bind_socket(module.bind_fd(), server.as_fd()).is_ok();
        // SAFETY: ends the child without running the parent's exit handlers and destructors.
        unsafe { libc::_exit(if bound { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the status is live, and the child is of this process.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 7);
}
