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

use qfabric_linux::sched_attr::SchedAttr;
use qfabric_sync::{Lock, rank};
use qfabric_types::ThreadId;

use crate::ending::contain;

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
            let started = Builder::new().name("qf-close".to_owned()).spawn(move || {
                be_ordinary();
                own.work(uid);
            });
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
            // After a panic the user's other items are still closed; otherwise they would fill the queue for ever.
            if let Err(message) = contain(|| drop(thing)) {
                tracing::error!(uid, message, "closing a descriptor of a user panicked; please report this");
            }
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

/// Gives the calling thread the ordinary policy at nice 0. It inherits that of the thread that started it, which may be
/// a real-time policy; closing a user's objects must not run before the work of others.
fn be_ordinary() {
    if let Err(error) = SchedAttr::fair(0).give(ThreadId(0)) {
        tracing::debug!(%error, "a closing thread keeps the policy of the thread that started it");
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

/// One more descriptor of a connection, and the connection's place. [`LastClose::end`] closes the descriptor after all
/// others: with them go unread messages, which may hold descriptors of the client.
pub(crate) struct LastClose<P> {
    fd: OwnedFd,
    place: P,
    uid: u32,
    closer: Closer,
}

impl<P: Send + 'static> LastClose<P> {
    pub(crate) fn of(socket: impl AsFd, place: P, uid: u32, closer: &Closer) -> std::io::Result<LastClose<P>> {
        let fd = socket.as_fd().try_clone_to_owned()?;
        Ok(LastClose { fd, place, uid, closer: closer.clone() })
    }

    /// Frees the place when the connection is closed. So a user whose connections take long to close is refused.
    pub(crate) fn end(self) {
        let LastClose { fd, place, uid, closer } = self;
        closer.close(uid, (fd, place));
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
pub(crate) mod testing {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// A connected socket with unread data, whose last close blocks as long as the other end exists; and this end.
    pub(crate) fn slow_to_close() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 1 << 16]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&near, Some(Duration::from_secs(3_600))).unwrap();
        (near, far)
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

    /// Its drop sends the scheduling of the closing thread.
    struct Reports(Sender<SchedAttr>);

    impl Drop for Reports {
        fn drop(&mut self) {
            let _ = self.0.send(SchedAttr::of(ThreadId(0)).unwrap());
        }
    }

    #[test]
    fn a_closing_thread_never_inherits_a_priority() {
        let (to, report) = channel();
        let starter = std::thread::spawn(move || {
            let given = SchedAttr::fifo(1).give(ThreadId(0));
            Closer::default().close(7, Reports(to));
            given
        });
        if starter.join().unwrap().is_err() {
            return qfabric_linux::testing::skip("only root can start a thread with a real-time policy");
        }
        let closers = report.recv().unwrap();
        assert_eq!((closers.policy.is_real_time(), closers.nice), (false, 0));
    }

    #[test]
    fn a_panic_while_closing_leaves_no_item_behind() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("while it is closed");
            }
        }
        let closer = Closer::default();
        let (begun, has_begun) = channel();
        let (never, at_once) = channel();
        drop(never);
        closer.close(7, Panics);
        closer.close(7, Slow(begun, at_once));
        has_begun.recv().expect("the next item is closed");
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
