//! Simulations with a virtual clock and a seed, without a kernel.
//!
//! - [`control_loop`] replays a trace through one controller, with the formulas of the paper.
//! - [`streams`] generates traces with the statistics of the paper's traces.
//! - [`world`] runs many programs ([`video`]) over modelled CPUs and reservations under a real host. Controllers,
//!   supervisor and the order of settings are those of the daemon.
//! - [`grid`] compares policies over many sets of conditions.
//! - [`dwcs`] runs tasks with windows and events on one processor, tick by tick.
//! - [`energy`] runs one device by a power model, with and without the techniques of the thesis.
//! - [`conference`] runs a video conference on hosts with processors and links, under the policies of the daemon.
//! - [`contracts`] makes contracts over several hosts on a bad network, and compares them with Banker's algorithm.
//! - [`fabric`] runs hundreds of hosts on a simulated network, with the channels and managers of the daemon.
#![forbid(unsafe_code)]

pub mod conference;
pub mod contracts;
pub mod control_loop;
pub mod dwcs;
pub mod energy;
pub mod fabric;
pub mod grid;
pub mod streams;
pub mod video;
pub mod world;
