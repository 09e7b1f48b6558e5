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
mod peer;
pub mod play;
pub mod stage;
pub mod tcp;
pub mod valve;

pub use peer::{Each, Peer, Publish, cpu_us, now_ns, until};

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
