//! A handler of the application, and which thread is inside it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use crate::sync::{Mutex, lock};

/// A handler that one thread at a time calls. Once [`Slot::take_out`] has returned, no other thread is inside it, and none
/// will be: what the handler works on may be freed then.
pub(super) struct Slot<H> {
    /// Held while the handler runs.
    handler: Mutex<Option<H>>,
    inside: Mutex<Option<ThreadId>>,
    /// It was taken out from within; the end of the call takes it out.
    last: AtomicBool,
}

/// The handler runs; ends also when it panics.
struct Inside<'a>(&'a Mutex<Option<ThreadId>>);

impl<'a> Inside<'a> {
    fn enter(inside: &'a Mutex<Option<ThreadId>>) -> Self {
        *lock(inside) = Some(thread::current().id());
        Inside(inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *lock(self.0) = None;
    }
}

impl<H> Slot<H> {
    pub(super) fn new(handler: H) -> Self {
        Slot { handler: Mutex::new(Some(handler)), inside: Mutex::default(), last: AtomicBool::new(false) }
    }

    /// Whether the calling thread is inside the handler: it can neither call it again nor wait for its end.
    pub(super) fn is_inside(&self) -> bool {
        *lock(&self.inside) == Some(thread::current().id())
    }

    /// Calls the handler, unless it was taken out. Not for a thread that is inside it.
    pub(super) fn call(&self, act: impl FnOnce(&mut H)) {
        let mut handler = lock(&self.handler);
        if let Some(handler) = handler.as_mut() {
            let _inside = Inside::enter(&self.inside);
            act(handler);
        }
        let taken = if self.last.load(Ordering::Relaxed) { handler.take() } else { None };
        drop(handler);
        drop(taken); // user code, so without the lock
    }

    /// Takes the handler out and drops it; waits for a call in another thread to end. From within the handler it does not
    /// wait: that call is the last one.
    pub(super) fn take_out(&self) {
        if self.is_inside() {
            self.last.store(true, Ordering::Relaxed);
            return;
        }
        let taken = lock(&self.handler).take();
        drop(taken); // user code, so without the lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn taking_a_handler_out_waits_for_the_call_that_another_thread_is_in() {
        let slot = Slot::new(());
        let (inside, is_inside) = channel();
        let (go, may_go) = channel();
        let (log, order) = channel();
        let end = log.clone();
        thread::scope(|scope| {
            let slot = &slot;
            scope.spawn(move || {
                slot.call(|()| {
                    inside.send(()).unwrap();
                    may_go.recv().unwrap();
                    // Time for a taker that does not wait; the right one is not hurried.
                    thread::sleep(std::time::Duration::from_millis(20));
                    log.send("left").unwrap();
                });
            });
            is_inside.recv().unwrap();
            go.send(()).unwrap();
            slot.take_out();
            end.send("taken out").unwrap();
        });
        drop(end);
        assert_eq!(order.iter().collect::<Vec<_>>(), ["left", "taken out"]);
        slot.call(|()| panic!("there is no handler any more"));
    }

    #[test]
    fn a_handler_that_takes_itself_out_ends_its_call_and_is_not_called_again() {
        let slot = Slot::new(0);
        slot.call(|calls| {
            assert!(slot.is_inside());
            slot.take_out();
            *calls += 1;
        });
        assert!(!slot.is_inside());
        slot.call(|calls| panic!("called again after {calls}"));
    }

    #[test]
    fn a_handler_that_panics_is_left() {
        let slot = Slot::new(());
        let call = || slot.call(|()| panic!("the handler's own"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
        assert!(!slot.is_inside());
        slot.take_out();
    }
}
