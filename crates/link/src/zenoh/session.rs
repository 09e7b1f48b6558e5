//! A session of Zenoh that may be dropped in any thread.

use std::ops::Deref;
use std::thread::{self, Builder};

use zenoh::Session;

/// Closing a session of Zenoh blocks, and panics in a Tokio runtime of one thread. The last holder of the engine may be
/// in such a runtime, for example a server's connection that ends with the server. Therefore a plain thread closes the
/// session.
pub(super) struct OwnSession(Option<Session>);

impl OwnSession {
    pub(super) fn new(session: Session) -> OwnSession {
        OwnSession(Some(session))
    }
}

impl Deref for OwnSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.0.as_ref().expect("taken by drop alone")
    }
}

impl Drop for OwnSession {
    /// Do not wait for the thread: the last holder may be a callback, in a thread that closing the session waits for.
    fn drop(&mut self) {
        let session = self.0.take();
        // If no thread can be started, the session is dropped in this thread.
        let _ = Builder::new().name("qf-end".into()).spawn(move || drop(session));
    }
}

/// Runs work that blocks as Zenoh does in a plain thread, and waits for it. If no thread can be started, the work is
/// not done; other hosts see the end of this host when the lease expires.
pub(super) fn in_a_plain_thread(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        if let Ok(thread) = Builder::new().name("qf-end".into()).spawn_scoped(scope, work) {
            let _ = thread.join();
        }
    });
}
