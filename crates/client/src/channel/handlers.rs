//! Closures that applications gave for the events of their sinks. They are called and dropped with no lock held: what a
//! closure holds may call the connection again when it is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use qfabric_types::channel_wire::Event;

use super::slot::Slot;
use crate::sync::lock;

/// Called for each event of a sink.
pub(super) type Handler = Box<dyn FnMut(&Event<'_>) + Send>;

type Shared = Arc<Slot<Handler>>;

/// By the sink's number.
#[derive(Default)]
pub(super) struct Handlers(Mutex<BTreeMap<u32, Shared>>);

impl Handlers {
    pub(super) fn set(&self, sink: u32, handler: Handler) {
        let before = self.all().insert(sink, Arc::new(Slot::new(handler)));
        if let Some(before) = before {
            before.take_out();
        }
    }

    /// Once this returns, the sink's handler is not called any more; see [`Slot::take_out`].
    pub(super) fn remove(&self, sink: u32) {
        let before = self.all().remove(&sink);
        if let Some(before) = before {
            before.take_out();
        }
    }

    /// What `find` finds for a sink that has a handler, with the handler; not for one that the calling thread is inside.
    pub(super) fn first<T>(
        &self,
        find: impl FnOnce(&dyn Fn(u32) -> bool) -> Option<(u32, T)>,
    ) -> Option<(Shared, (u32, T))> {
        let all = self.all();
        let (sink, found) = find(&|sink| all.get(&sink).is_some_and(|slot| !slot.is_inside()))?;
        Some((all.get(&sink)?.clone(), (sink, found)))
    }

    /// What `find` finds for a sink that has a handler.
    pub(super) fn find<T>(&self, find: impl FnOnce(&dyn Fn(u32) -> bool) -> Option<T>) -> Option<T> {
        let all = self.all();
        find(&|sink| all.contains_key(&sink))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u32, Shared>> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets another handler when it is dropped.
    struct Again(Arc<Handlers>);

    impl Drop for Again {
        fn drop(&mut self) {
            self.0.set(2, Box::new(|_| {}));
        }
    }

    fn again(handlers: &Arc<Handlers>) -> Handler {
        let again = Again(handlers.clone());
        Box::new(move |_| _ = &again)
    }

    #[test]
    fn what_a_handler_holds_may_use_the_connection_when_it_is_dropped() {
        for end in [|handlers: &Handlers| handlers.remove(1), |handlers: &Handlers| handlers.set(1, Box::new(|_| {}))] {
            let handlers = Arc::new(Handlers::default());
            handlers.set(1, again(&handlers));
            end(&handlers);
            assert!(handlers.all().contains_key(&2));
        }
    }
}
