//! Makes the hand-over of a lock by the kernel visible to ThreadSanitizer.
//!
//! If threads wait for a futex with priority inheritance, the kernel writes the next owner into the lock's word.
//! The thread that released the lock and the thread that holds it now share no atomic operation that
//! ThreadSanitizer sees, so it reports each hand-over as a race. In builds with `--cfg qfabric_tsan`, every lock
//! and unlock also changes an atomic word of the lock. Other builds have no such word.

pub(crate) use imp::{Crossed, Edge};

#[cfg(qfabric_tsan)]
mod imp {
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    pub(crate) struct Edge(AtomicU32);

    /// Exists while the lock is held.
    pub(crate) struct Crossed<'a>(&'a Edge);

    impl Edge {
        pub(crate) const fn new() -> Edge {
            Edge(AtomicU32::new(0))
        }

        pub(crate) fn cross(&self) -> Crossed<'_> {
            let crossed = Crossed(self);
            crossed.pass();
            crossed
        }
    }

    impl Crossed<'_> {
        /// Orders all changes that the previous thread made before its pass before the code that follows this pass.
        pub(crate) fn pass(&self) {
            self.0.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    impl Drop for Crossed<'_> {
        fn drop(&mut self) {
            self.pass();
        }
    }
}

#[cfg(not(qfabric_tsan))]
mod imp {
    use std::marker::PhantomData;

    /// Empty: see the module.
    #[derive(Default)]
    pub(crate) struct Edge;

    pub(crate) struct Crossed<'a>(PhantomData<&'a Edge>);

    impl Edge {
        pub(crate) const fn new() -> Edge {
            Edge
        }

        pub(crate) fn cross(&self) -> Crossed<'_> {
            Crossed(PhantomData)
        }
    }

    impl Crossed<'_> {
        pub(crate) fn pass(&self) {}
    }
}
