//! The interface that each rival implements, and the clocks of the measurements.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The callback for an event that arrived.
pub(crate) type Each = Box<dyn FnMut(&[u8]) + Send>;
pub(crate) type Publish = Box<dyn FnMut(&[u8]) + Send>;

/// One end of a network. Topics: `ping` and `pong`, `events`, `bulk`, `stream`, whose events are never dropped, and
/// `control`, which has the highest priority that the rival offers.
pub(crate) trait Peer: Send + Sync {
    /// Calls `each` with every event that others publish.
    fn subscribe(&self, topic: &'static str, each: Each);
    /// Returns a function that publishes an event.
    fn publish(&self, topic: &'static str) -> Publish;
    /// Answers each `ping` with a `pong` of the same size, with as few steps as the rival allows.
    fn echo(&self);
    /// Waits until `sinks` other peers have subscribed to the topic.
    fn wait_for(&self, topic: &'static str, sinks: usize);
    /// Announces a subscription to the other side, if the rival does not do this by itself.
    fn here(&self, _topic: &'static str) {}
}

/// Nanoseconds of the clock that all processes of this machine share.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of this process in microseconds.
pub(crate) fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Waits until `so` is true; panics after a minute.
pub(crate) fn until(mut so: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the condition did not become true within a minute");
}
