//! Closes descriptors and connections of other processes without blocking the service.
//!
//! `close()` of a descriptor that another process sent can block for as long as that process likes: the descriptor
//! may belong to a FUSE file system of that process, or be a TCP socket with a linger time. Closing a connection
//! with unread messages also closes the descriptors in these messages. So no thread that others wait for closes
//! them. Each user has a separate thread for this, as long as there is something to close; a user who blocks it
//! blocks no other user.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::Builder;

use qfabric_sync::{Lock, rank};

/// Items of one user that may wait to be closed. The daemon ends the connections of a user with more.
pub(crate) const MAX_WAITING: usize = 64;

/// For each user that has a closing thread: the items that wait for it. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Closer(Arc<Lock<HashMap<u32, VecDeque<Closable>>, { rank::CLOSER }>>);

type Closable = Box<dyn Send>;

impl Closer {
    /// Drops `thing`, which user `uid` sent, in another thread.
    pub(crate) fn close(&self, uid: u32, thing: impl Send + 'static) {
        if self.is_first(uid, Box::new(thing)) {
            let own = self.clone();
            let started = Builder::new().name("qf-close".to_owned()).spawn(move || own.work(uid));
            if started.is_err() {
                // No thread could be started. A service that cannot start threads fails soon anyway, so this one
                // closes.
                self.work(uid);
            }
        }
    }

    /// Whether the user has more than [`MAX_WAITING`] items waiting.
    pub(crate) fn is_full(&self, uid: u32) -> bool {
        self.0.with(|users| users.get(&uid).is_some_and(|waiting| waiting.len() > MAX_WAITING))
    }

    /// Queues `thing`. Returns true if the user has no closing thread yet.
    fn is_first(&self, uid: u32, thing: Closable) -> bool {
        let mut users = self.0.lock();
        let is_first = !users.contains_key(&uid);
        users.entry(uid).or_default().push_back(thing);
        is_first
    }

    fn work(&self, uid: u32) {
        while let Some(thing) = self.next(uid) {
            drop(thing);
        }
    }

    /// Returns `None` when the user's queue is empty: the closing thread ends.
    fn next(&self, uid: u32) -> Option<Closable> {
        let mut users = self.0.lock();
        let next = users.get_mut(&uid).and_then(VecDeque::pop_front);
        if next.is_none() {
            users.remove(&uid);
        }
        next
    }
}

/// A descriptor whose other end a user holds. Dropping it passes it to the [`Closer`].
pub(crate) struct Foreign {
    fd: Option<OwnedFd>,
    uid: u32,
    closer: Closer,
}

impl Foreign {
    pub(crate) fn new(fd: OwnedFd, uid: u32, closer: &Closer) -> Foreign {
        Foreign { fd: Some(fd), uid, closer: closer.clone() }
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("present until drop").as_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.closer.close(self.uid, fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Its drop reports on the first channel that it began, then blocks until the second channel is closed.
    struct Slow(Sender<()>, Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.send(());
            let _ = self.1.recv();
        }
    }

    #[test]
    fn a_blocked_close_blocks_no_other_user_and_fills_the_queue_of_its_user() {
        let closer = Closer::default();
        let (begun, has_begun) = channel();
        let (end, ended) = channel();
        closer.close(7, Slow(begun, ended));
        has_begun.recv().unwrap();
        (0..=MAX_WAITING).for_each(|_| closer.close(7, ()));
        assert!(closer.is_full(7) && !closer.is_full(8));
        let (other, has_other) = channel();
        let (never, at_once) = channel();
        drop(never);
        closer.close(8, Slow(other, at_once));
        has_other.recv().expect("the other user's item is closed meanwhile");
        drop(end);
        while closer.is_full(7) {
            std::thread::yield_now();
        }
    }
}
