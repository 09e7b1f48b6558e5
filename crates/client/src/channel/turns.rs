//! Threads that wait on one connection. One of them, the leader, waits for the socket; the others wait until some thread
//! has read messages. Without this, a thread whose message was read by another one would sleep until its time is over.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use super::connection::{Inner, State, lost, timeout};
use crate::error::ClientError;

/// The threads that wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// A thread waits for the socket.
    has_leader: bool,
    followers: usize,
}

impl Inner {
    /// Reads messages until `look` finds something. None: not before `until`.
    ///
    /// While this thread is the only one that waits, and nobody waits for [`Inner::fd`], it reads one message at a time
    /// and looks before each: it makes no system call while there are messages, and the daemon need not wake it.
    pub(super) fn wait_until<T>(
        &self,
        until: Instant,
        mut look: impl FnMut(&mut State) -> Result<Option<T>, ClientError>,
    ) -> Result<Option<T>, ClientError> {
        self.own()?;
        let mut state = self.state();
        loop {
            let found = self.look_and_receive(&mut state, &mut look);
            self.remember(&mut state);
            match found? {
                Some(found) => return Ok(Some(found)),
                None if Instant::now() >= until => return Ok(None),
                None => state = self.rest(state, until)?,
            }
        }
    }

    fn look_and_receive<T>(
        &self,
        state: &mut State,
        look: &mut impl FnMut(&mut State) -> Result<Option<T>, ClientError>,
    ) -> Result<Option<T>, ClientError> {
        if state.is_watched || state.turns.has_leader || state.turns.followers > 0 {
            self.receive_all(state)?;
            return look(state);
        }
        loop {
            match look(state)? {
                None if self.receive_one(state)? => {}
                found => return Ok(found),
            }
        }
    }

    fn rest<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: Instant,
    ) -> Result<MutexGuard<'a, State>, ClientError> {
        if state.turns.has_leader {
            state.turns.followers += 1;
            let left = until.saturating_duration_since(Instant::now());
            let waited = self.sorted.wait_timeout(state, left);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.turns.followers -= 1;
            return Ok(state);
        }
        state.turns.has_leader = true;
        drop(state);
        let mut fds = [&self.socket, &self.kick].map(|fd| PollFd::new(fd, PollFlags::IN));
        let waited = poll(&mut fds, Some(&timeout(until)));
        let is_kicked = fds[1].revents().contains(PollFlags::IN);
        let mut state = self.state();
        state.turns.has_leader = false;
        if is_kicked {
            // If there is nothing to read, another thread has read it.
            let _ = rustix::io::read(&self.kick, &mut [0; 8]);
        }
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(state),
            Err(error) => {
                self.share(&state);
                Err(lost(&self.path, &error.to_string()))
            }
        }
    }

    /// This thread has read messages, which may be for others.
    pub(super) fn share(&self, state: &State) {
        if state.turns.has_leader {
            let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
        }
        if state.turns.followers > 0 {
            self.sorted.notify_all();
        }
    }
}
