//! Shared by `rivals` and `figures`: the parts that processes play, for Q-channels and for their rivals alike.
//!
//! A conductor ([`stage`]) starts this program several times, each with a part to play ([`play`]). A [`Peer`] is the interface
//! that each rival implements for the parts.
#![allow(dead_code, reason = "each example uses some of it")]

pub(crate) mod bare;
pub(crate) mod combined;
pub(crate) mod dear;
pub(crate) mod foreign;
pub(crate) mod nats;
pub(crate) mod ours;
mod peer;
pub(crate) mod play;
pub(crate) mod stage;
pub(crate) mod tcp;
pub(crate) mod valve;

pub(crate) use peer::{Each, Peer, Publish, cpu_us, now_ns, until};

/// Opens a peer. The other peers connect to number 0.
pub(crate) fn open(rival: &str, net: &str, number: usize) -> Box<dyn Peer> {
    match rival {
        "tcp" => Box::new(tcp::Tcp::open(net, number)),
        "zenoh" | "zenoh-1" => Box::new(bare::Bare::open(net, number)),
        "nats" => Box::new(nats::Nats::open(net)),
        "plain" | "link" => Box::new(ours::Ours::open(rival, net, number)),
        _ => panic!("there is no rival {rival}"),
    }
}
