//! What ThreadSanitizer has to be told of a lock that the kernel hands over.
//!
//! Where threads wait for a futex with priority inheritance, the kernel writes the next owner into the lock's word: the thread
//! that gave it back and the one that has it now share no atomic operation that ThreadSanitizer sees, so it takes each hand-over
//! for a race. Built with `--cfg qfabric_tsan`, every lock and unlock also passes an atomic word of the lock. Other builds have
//! none.

pub(crate) use imp::{Crossed, Edge};

#[cfg(qfabric_tsan)]
mod imp {
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The word.
    #[derive(Default)]
    pub(crate) struct Edge(AtomicU32);

    /// The lock is held.
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
        /// After this, what the last thread to pass had done is seen; and what this thread has done, by the next.
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

    /// Nothing.
    #[derive(Default)]
    pub(crate) struct Edge;

    /// Nothing, as long as the lock is held.
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
