//! Tests of the real binary at a terminal: exit codes, JSON, error texts.

mod answer;
mod attach;
mod booked;
mod channels;
mod compatibility;
mod contracts;
mod demo;
mod ecode;
mod guard;
mod guide_dwcs;
mod harness;
mod lending;
mod live;
mod memory;
mod monitor;
mod net_links;
mod pages;
mod pipewire;
mod player;
mod policies;
mod policies_energy;
mod policies_together;
mod probe;
mod restore;
mod service;
mod sim_control;
mod sim_dwcs;
mod sim_energy;
mod sim_fabric;
mod trace;
#[path = "../../../timeline/tests/walker/mod.rs"]
mod walker;
