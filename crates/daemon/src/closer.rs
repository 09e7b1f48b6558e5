//! Closing what others sent.
//!
//! `close()` of a descriptor that another process sent may wait as long as that process likes: its file system is one of
//! its own (FUSE), or it is a TCP socket with a linger time. The same holds for a connection with messages that nobody read:
//! what came with them is closed with it. So none of it is closed by a thread that others wait for. Each user has a thread
//! of its own for that, as long as there is something to close: who blocks it, blocks nobody else.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::Builder;

use qfabric_sync::{Lock, rank};

/// Things of one user that may wait to be closed; who has more loses its connections.
pub(crate) const MOST: usize = 64;

/// By user, what waits to be closed while a thread closes what came before. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Closer(Arc<Lock<HashMap<u32, VecDeque<Thing>>, { rank::CLOSER }>>);

/// Closed when dropped.
type Thing = Box<dyn Send>;

impl Closer {
    /// Drops `thing`, which user `uid` sent, in another thread.
    pub fn close(&self, uid: u32, thing: impl Send + 'static) {
        if self.is_first(uid, Box::new(thing)) {
            let own = self.clone();
            let started = Builder::new().name("qf-close".to_owned()).spawn(move || own.work(uid));
            if started.is_err() {
                // No thread is to be had: then nobody is served for long anyway.
                self.work(uid);
            }
        }
    }

    /// Whether more waits to be closed than one user may have.
    pub fn is_full(&self, uid: u32) -> bool {
        self.0.with(|users| users.get(&uid).is_some_and(|waiting| waiting.len() > MOST))
    }

    /// Whether there is no thread for the user yet.
    fn is_first(&self, uid: u32, thing: Thing) -> bool {
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

    /// None: nothing waits any more, and the thread ends.
    fn next(&self, uid: u32) -> Option<Thing> {
        let mut users = self.0.lock();
        let next = users.get_mut(&uid).and_then(VecDeque::pop_front);
        if next.is_none() {
            users.remove(&uid);
        }
        next
    }
}

/// A descriptor whose other end a user holds. However it is dropped, the [`Closer`] closes it.
pub(crate) struct Foreign {
    fd: Option<OwnedFd>,
    uid: u32,
    closer: Closer,
}

impl Foreign {
    pub fn new(fd: OwnedFd, uid: u32, closer: &Closer) -> Foreign {
        Foreign { fd: Some(fd), uid, closer: closer.clone() }
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("taken when dropped").as_fd()
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

    /// Takes as long to drop as its other end lives, and says that it was begun.
    struct Slow(Sender<()>, Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.send(());
            let _ = self.1.recv();
        }
    }

    #[test]
    fn who_blocks_a_close_blocks_nobody_else_and_is_full_after_a_while() {
        let closer = Closer::default();
        let (begun, has_begun) = channel();
        let (end, ended) = channel();
        closer.close(7, Slow(begun, ended));
        has_begun.recv().unwrap();
        (0..=MOST).for_each(|_| closer.close(7, ()));
        assert!(closer.is_full(7) && !closer.is_full(8));
        let (other, has_other) = channel();
        let (never, at_once) = channel();
        drop(never);
        closer.close(8, Slow(other, at_once));
        has_other.recv().expect("another user's is closed meanwhile");
        drop(end);
        while closer.is_full(7) {
            std::thread::yield_now();
        }
    }
}
