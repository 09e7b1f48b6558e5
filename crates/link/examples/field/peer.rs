//! What each rival needs to play its part, and what its parts measure with.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What is called with an event that came.
pub type Each = Box<dyn FnMut(&[u8]) + Send>;
/// Publishes an event.
pub type Publish = Box<dyn FnMut(&[u8]) + Send>;

/// One end of a network. Topics: `ping` and `pong`, `events`, `bulk`, `stream`, none of which is dropped, and `control`,
/// which has what priority there is.
pub trait Peer: Send + Sync {
    /// From now on `each` is called with what others publish.
    fn subscribe(&self, topic: &'static str, each: Each);
    /// A way to publish.
    fn publish(&self, topic: &'static str) -> Publish;
    /// Answers each `ping` with as many bytes of `pong`, as directly as it can be done.
    fn echo(&self);
    /// Waits until so many others have subscribed to the topic.
    fn wait_for(&self, topic: &'static str, sinks: usize);
    /// Tells the other side that this one has subscribed, where it does not see that by itself.
    fn here(&self, _topic: &'static str) {}
}

/// Nanoseconds of the clock that all processes of this machine share.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of this process, microseconds.
pub fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Waits until something is so; after a minute it is not going to be.
pub fn until(mut so: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("waited for a minute in vain");
}
