//! Simulations with a virtual clock and one seed, no kernel.
//!
//! [`control_loop`] replays a trace through one controller, as the papers' formulas say; [`streams`] makes
//! traces with the statistics of the paper's; [`world`] runs many programs ([`video`]) over modelled CPUs and
//! reservations under a real host: controllers, supervisor and the order of settings are the daemon's own.
//! [`dwcs`] runs tasks with windows and events over one processor, tick by tick. [`fabric`] runs hundreds of hosts on a
//! made-up network, with the channels and managers that the daemon has.
#![forbid(unsafe_code)]

pub mod control_loop;
pub mod dwcs;
pub mod fabric;
pub mod grid;
pub mod streams;
pub mod video;
pub mod world;
