//! Accepts connections in a thread that waits for other descriptors, too.
//!
//! If an accept fails, descriptors are used up and the next one would fail, too, but the socket stays readable: a thread
//! that waits for it would spin. Such a thread must not sleep either. Therefore it waits for the acceptor's descriptor,
//! which is not readable during a pause after a failure.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use qfabric_types::LogLimit;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{SocketFlags, accept_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Connections accepted per turn.
const PER_TURN: usize = 16;
/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) struct Acceptor {
    /// Readable if the listener is and there is no pause, or if a pause is over.
    ready: OwnedFd,
    listener: OwnedFd,
    /// Readable when the pause is over.
    timer: OwnedFd,
    /// The socket's name in the log.
    name: &'static str,
    pause: Duration,
    warnings: LogLimit,
}

impl Acceptor {
    /// `listener` is non-blocking.
    pub(crate) fn new(listener: OwnedFd, name: &'static str) -> io::Result<Acceptor> {
        Acceptor::pausing(listener, name, PAUSE)
    }

    fn pausing(listener: OwnedFd, name: &'static str, pause: Duration) -> io::Result<Acceptor> {
        let ready = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&ready, &timer, EventData::new_u64(0), EventFlags::IN)?;
        let acceptor = Acceptor { ready, listener, timer, name, pause, warnings: LogLimit::default() };
        acceptor.watch()?;
        Ok(acceptor)
    }

    /// Passes waiting connections to `take_in`.
    pub(crate) fn accept(&mut self, mut take_in: impl FnMut(OwnedFd)) {
        self.end_pause();
        for _ in 0..PER_TURN {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => take_in(socket),
                Err(rustix::io::Errno::WOULDBLOCK) => return,
                Err(error) => {
                    if self.warnings.is_due(Instant::now()) {
                        warn_of_failure(&io::Error::from(error), self.name);
                    }
                    return self.begin_pause();
                }
            }
        }
    }

    fn watch(&self) -> io::Result<()> {
        Ok(epoll::add(&self.ready, &self.listener, EventData::new_u64(1), EventFlags::IN)?)
    }

    fn begin_pause(&self) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let end = Timespec { tv_sec: self.pause.as_secs() as i64, tv_nsec: self.pause.subsec_nanos().into() };
        let once = Itimerspec { it_interval: zero, it_value: end };
        // Without a timer no pause would end.
        if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok() {
            // Fails only if the listener is not watched, which is the aim.
            let _ = epoll::delete(&self.ready, &self.listener);
        }
    }

    fn end_pause(&self) {
        // Reading fails if no pause is over.
        if rustix::io::read(&self.timer, &mut [0; 8]).is_ok() && self.watch().is_err() {
            self.begin_pause();
        }
    }
}

/// Warns of a failed accept of the named socket. There may be many in a second: see [`LogLimit`].
pub(crate) fn warn_of_failure(error: &io::Error, socket: &str) {
    tracing::warn!(
        %error,
        "cannot accept connections to {socket} for now, and tries again many times in a second; if no descriptor is \
         free, raise LimitNOFILE of the service"
    );
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

    const HOUR: Duration = Duration::from_secs(3_600);
    const PATIENCE: Duration = Duration::from_secs(120);

    fn is_ready(acceptor: &Acceptor, within: Duration) -> bool {
        let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        poll(&mut [PollFd::new(acceptor, PollFlags::IN)], Some(&within)).unwrap() > 0
    }

    /// A descriptor that is always readable and accepts nothing, like a listener without a free descriptor.
    fn failing(pause: Duration) -> Acceptor {
        let readable = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        Acceptor::pausing(readable, "test.sock", pause).unwrap()
    }

    #[test]
    fn after_a_failure_nothing_wakes_the_thread_until_the_pause_is_over() {
        let mut acceptor = failing(HOUR);
        assert!(is_ready(&acceptor, Duration::ZERO));
        acceptor.accept(|_| panic!("there is no connection"));
        assert!(!is_ready(&acceptor, Duration::ZERO), "the descriptor is still readable, but nobody waits for it");
    }

    #[test]
    fn after_each_pause_there_is_another_attempt() {
        let (mut acceptor, begun) = (failing(Duration::from_millis(1)), Instant::now());
        for _ in 0..3 {
            assert!(is_ready(&acceptor, PATIENCE));
            acceptor.accept(|_| panic!("there is no connection"));
        }
        assert!(!acceptor.warnings.is_due(begun), "the first failure was logged, and the next are not");
    }

    #[test]
    fn waiting_connections_are_accepted_in_turns_of_a_bounded_length() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("test.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut acceptor = Acceptor::new(listener.into(), "test.sock").unwrap();
        assert!(!is_ready(&acceptor, Duration::ZERO));
        let connect = |_| UnixStream::connect(folder.path().join("test.sock")).unwrap();
        let _connections: Vec<_> = (0..PER_TURN + 1).map(connect).collect();
        let mut accepted = Vec::new();
        acceptor.accept(|socket| accepted.push(socket));
        assert!(accepted.len() == PER_TURN && is_ready(&acceptor, Duration::ZERO));
        acceptor.accept(|socket| accepted.push(socket));
        assert!(accepted.len() == PER_TURN + 1 && !is_ready(&acceptor, Duration::ZERO));
    }
}
