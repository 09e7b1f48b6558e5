//! Adaptation between hosts: policies that decide amounts, rates and delays. One policy per file; each is a plain
//! value.
//!
//! ```text
//!   reports of sinks ──> capacity ──> multipoint ── rate of each stream
//!                                        │ roles divided by importance
//!   wants of children ──> group ─────────┘ grants to children       (four levels and links: tree)
//! ```
//! A policy takes an occurrence with its time and returns the changes to make. It does not access channels: a
//! controller (`qfabric_host::manager`) turns events into calls and results into events. Rates are events (frames)
//! per second, bandwidths bits per second, both `f64`; times are [`qfabric_types::Nanos`]. Source: Q-Fabric thesis
//! §4.5, §5.1.3; Q-channels paper §3.3, §4.2.

pub mod balance;
pub mod capacity;
pub mod group;
pub mod implosion;
pub mod inter_media;
pub mod inter_sink;
pub mod multipoint;
pub mod rate;
pub mod split;
pub mod tokens;
pub mod tree;
