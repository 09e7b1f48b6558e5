//! A session that may end anywhere.

use std::ops::Deref;
use std::thread::{self, Builder};

use zenoh::Session;

/// Zenoh's session ends by blocking, and panics where that may not be: in a Tokio runtime of one thread, where whoever
/// holds the engine last may well be (a server's connection that ends with the server). So it ends in a plain thread.
pub(super) struct OwnSession(Option<Session>);

impl OwnSession {
    pub fn new(session: Session) -> OwnSession {
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
    /// Not waited for: the last holder may be a callback, in a thread that the session's end waits for.
    fn drop(&mut self) {
        let session = self.0.take();
        // Where no thread can be had, the session is dropped here after all.
        let _ = Builder::new().name("qf-end".into()).spawn(move || drop(session));
    }
}

/// Does something that blocks as Zenoh does, and waits for it. Where no thread can be had, nothing is said to the others:
/// they learn of it when the lease ends.
pub(super) fn in_a_plain_thread(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        if let Ok(thread) = Builder::new().name("qf-end".into()).spawn_scoped(scope, work) {
            let _ = thread.join();
        }
    });
}
