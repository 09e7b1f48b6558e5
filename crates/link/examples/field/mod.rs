//! What `rivals` and `figures` share: the parts that processes play, for Q-channels and for their rivals alike.
//!
//! A conductor ([`stage`]) starts this program again and again, with a part to play ([`play`]); a [`Peer`] is what each
//! rival needs to play it.
#![allow(dead_code, reason = "each example uses some of it")]

pub mod bare;
pub mod dear;
pub mod foreign;
pub mod nats;
pub mod ours;
pub mod play;
pub mod stage;
pub mod tcp;
pub mod valve;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What is called with an event that came.
pub type Each = Box<dyn FnMut(&[u8]) + Send>;
/// Publishes an event.
pub type Publish = Box<dyn FnMut(&[u8]) + Send>;

/// One end of a network. Topics: `ping` and `pong`, `events`, `bulk`, and `control`, which has what priority there is.
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

/// A peer. Number 0 is where the others call.
pub fn open(rival: &str, net: &str, number: usize) -> Box<dyn Peer> {
    match rival {
        "tcp" => Box::new(tcp::Tcp::open(net, number)),
        "zenoh" | "zenoh-1" => Box::new(bare::Bare::open(net, number)),
        "nats" => Box::new(nats::Nats::open(net)),
        "plain" | "link" => Box::new(ours::Ours::open(rival, net, number)),
        _ => panic!("nobody is called {rival}"),
    }
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
