//! The time from an event on one CPU until a thread on another knows of it: the kernel's shared memory compared with
//! eventfd, signals, the BPF ring buffer and io_uring. The clock is read just before the call that causes the event,
//! and as soon as the other thread knows of it.
#![allow(unsafe_code)] // interfaces that no safe library offers: signalfd, signal handlers, io_uring

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::{IoUring, opcode, types};
use qfabric_ecode::Limits;
use qfabric_linux::ecalls::{DownMemory, EventRing, Install, Installed, Kernel, Step, UpMemory, signal_queue};
use qfabric_types::memory::{Geometry, Layout};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};

use super::{heading, micros, now, pin, quantile};

const ROUNDS: u64 = 3000;
/// Time between two events, long enough for a sleeping reader to sleep again.
const PAUSE_NS: u64 = 60_000;

static SENT: AtomicU64 = AtomicU64::new(0);
static KNOWN: AtomicU64 = AtomicU64::new(0);

pub(crate) fn run(kernel: &Kernel) {
    heading("From an event to a thread on another CPU", "       p50           p99");
    by_memory(kernel);
    by_ring(kernel);
    by_eventfd();
    by_signalfd();
    by_handler();
    by_uring();
}

/// Measures the time from `send`, which causes the event, until `wait` returns in the other thread.
fn measure(name: &str, mut send: impl FnMut(), mut wait: impl FnMut() + Send) {
    KNOWN.store(0, Ordering::Release);
    let mut samples = Vec::with_capacity(ROUNDS as usize);
    std::thread::scope(|scope| {
        let samples = &mut samples;
        scope.spawn(move || {
            pin(1);
            for round in 1..=ROUNDS {
                wait();
                samples.push(now().saturating_sub(SENT.load(Ordering::Acquire)));
                KNOWN.store(round, Ordering::Release);
            }
        });
        pin(0);
        for round in 1..=ROUNDS {
            spin_until(now() + PAUSE_NS);
            SENT.store(now(), Ordering::Release);
            send();
            while KNOWN.load(Ordering::Acquire) != round {
                std::hint::spin_loop();
            }
        }
    });
    let (p50, p99) = (quantile(&mut samples, 0.5), quantile(&mut samples, 0.99));
    println!("{name:<44} {} {}", micros(p50), micros(p99));
}

fn spin_until(moment: u64) {
    while now() < moment {
        std::hint::spin_loop();
    }
}

/// Installs a handler that delivers deferred values at the sender's next system call, so that the sender sets the time.
fn install(kernel: &Kernel, down: &DownMemory, step: Step) -> Installed {
    let options = BTreeMap::from([("when".to_owned(), "syscall".to_owned()), ("latest".to_owned(), "yes".to_owned())]);
    let (service, only_pid, steps) = ("app.deferred", Some(std::process::id() as i32), &[step][..]);
    let (options, limits, down) = (&options, Limits::default(), Some(down));
    let request = Install {
        service,
        options,
        only_pid,
        steps,
        limits,
        down,
        deadline: None,
        fault_passes: true,
        measured: false,
    };
    kernel.install(&request).expect("the handler is installed")
}

fn by_memory(kernel: &Kernel) {
    let bytes = kernel.service("app.deferred").expect("the service exists").format.size;
    let down = DownMemory::new().expect("memory for the attributes");
    let up = UpMemory::new(Geometry::new(Layout::Ring, 64, bytes).expect("the geometry is valid"))
        .expect("memory for the events");
    let _installed = install(kernel, &down, Step::Memory { memory: &up, position: None });
    let send = || {
        down.down().defer(1).expect("the queue has room");
        let _ = rustix::process::getppid();
    };
    let mut reader = up.reader();
    measure("memory_up, the reader runs (promise: 1 µs)", send, || {
        while reader.take(&mut []).is_none() {
            std::hint::spin_loop();
        }
    });
    let mut reader = up.reader();
    measure("memory_up, the reader sleeps", send, || {
        while reader.take(&mut []).is_none() {
            if reader.may_sleep() {
                wait_for(up.wake_fd());
                up.acknowledge().expect("the memory is mapped");
            }
        }
    });
}

fn wait_for(fd: BorrowedFd) {
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).expect("the descriptor is open");
}

fn by_ring(kernel: &Kernel) {
    let down = DownMemory::new().expect("memory for the attributes");
    let ring = EventRing::new(1 << 16).expect("memory for the ring");
    let _installed = install(kernel, &down, Step::Tail { ring: &ring, id: 1, user: None });
    let epoll = epoll_of(ring.fd());
    let send = || {
        down.down().defer(1).expect("the queue has room");
        let _ = rustix::process::getppid();
    };
    measure("BPF ring buffer, epoll", send, || {
        while ring.drain(1, &mut |_| ()) == 0 {
            wait_epoll(&epoll);
        }
    });
}

fn epoll_of(fd: BorrowedFd) -> OwnedFd {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).expect("epoll accepts the descriptor");
    epoll
}

fn wait_epoll(epoll: &OwnedFd) {
    let mut events = [std::mem::MaybeUninit::<epoll::Event>::uninit(); 1];
    epoll::wait(epoll, &mut events, None).expect("the epoll is open");
}

fn new_eventfd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")
}

fn write_one(fd: &OwnedFd) {
    rustix::io::write(fd, &1u64.to_ne_bytes()).expect("the eventfd is open");
}

fn by_eventfd() {
    let event = new_eventfd();
    let epoll = epoll_of(event.as_fd());
    measure(
        "eventfd, epoll",
        || write_one(&event),
        || {
            wait_epoll(&epoll);
            rustix::io::read(&event, &mut [0; 8]).expect("the eventfd is open");
        },
    );
}

fn own_pidfd() -> OwnedFd {
    let own = rustix::process::getpid();
    rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).expect("a pidfd of this process")
}

/// Changes the signal mask of this thread, which threads it starts inherit. Returns the set with the signal.
fn block(signo: i32, how: i32) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` fills the set before it is used; the calls read and write only it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signo);
        libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut());
        set.assume_init()
    }
}

fn by_signalfd() {
    let signo = libc::SIGRTMIN() + 2;
    let set = block(signo, libc::SIG_BLOCK);
    // SAFETY: the set is live; the call returns a new descriptor or -1.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
    if fd < 0 {
        return println!("{:<44}  refused: {}", "signalfd, epoll", std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let (epoll, own) = (epoll_of(fd.as_fd()), own_pidfd());
    measure(
        "signalfd, epoll",
        || signal_queue(own.as_fd(), signo, 1).expect("the signal is queued"),
        || {
            wait_epoll(&epoll);
            rustix::io::read(&fd, &mut [0; 128]).expect("the signalfd is open");
        },
    );
}

static SIGNALLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: i32) {
    SIGNALLED.fetch_add(1, Ordering::Release);
}

/// Only the other thread unblocks the signal, and waits for it in the kernel.
fn by_handler() {
    let signo = libc::SIGRTMIN() + 3;
    // SAFETY: the handler does nothing but an atomic addition.
    unsafe { libc::signal(signo, handler as extern "C" fn(i32) as libc::sighandler_t) };
    let blocked = block(signo, libc::SIG_BLOCK);
    let own = own_pidfd();
    let mut seen = 0;
    measure(
        "real-time signal, handler",
        || signal_queue(own.as_fd(), signo, 1).expect("the signal is queued"),
        move || {
            let mut open = blocked;
            // SAFETY: both sets are live. The signal is blocked until `sigsuspend` unblocks it, so none is missed.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
                libc::sigdelset(&raw mut open, signo);
                while SIGNALLED.load(Ordering::Acquire) == seen {
                    libc::sigsuspend(&raw const open);
                }
            }
            seen += 1;
        },
    );
}

/// The other thread waits in the ring for a read of an eventfd.
fn by_uring() {
    const NAME: &str = "io_uring, read of an eventfd";
    let mut ring = match IoUring::new(8) {
        Ok(ring) => ring,
        Err(error) => return println!("{NAME:<44}  refused: {error}"),
    };
    let event = new_eventfd();
    let fd = event.as_raw_fd();
    let mut buffer = [0u8; 8];
    measure(
        NAME,
        || write_one(&event),
        move || {
            let read = opcode::Read::new(types::Fd(fd), buffer.as_mut_ptr(), 8).build();
            // SAFETY: `buffer` and the descriptor live until the completion below is taken.
            unsafe { ring.submission().push(&read).expect("the ring has room") };
            ring.submit_and_wait(1).expect("the ring accepts the request");
            ring.completion().next().expect("the awaited completion");
        },
    );
}
