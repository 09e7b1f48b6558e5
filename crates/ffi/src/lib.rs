//! Q-Fabric's client library for C: `libqfabric`, with `include/qfabric.h`.
//!
//! The library is a thin layer: each function checks its pointers, calls [`qfabric_client`], and turns an error into
//! a status and a text for the calling thread. It offers the interfaces of four papers: AQuoSA (Figure 6) as
//! `qf_init` to `qf_end`, QualMan (§6.4) as `qf_cpu_*`, `qf_mem_*`, `qf_joint_*`, `qf_consent_*`, `qf_stream_*`,
//! `qf_delays_*` and its transport METP as `qf_metp_*`, ECalls (003 §3) as `qf_ecalls_*` with its `struct ecalls`, and
//! Q-channels (000 §2.2, 001 §3) as `qf_channel*`.
#![allow(unsafe_code)] // this crate takes raw pointers from C
#![allow(non_camel_case_types)] // the names are C's
#![allow(unreachable_pub)] // C calls these functions, and the header is made of what is `pub`

mod channel;
mod consent;
mod contract;
mod cpu;
mod delays;
mod ecalls;
mod energy;
mod joint;
mod ladder;
mod limits;
mod mem;
mod metp;
mod metp_event;
mod metp_message;
mod metp_open;
mod offer;
mod overload;
mod own;
mod profiles;
mod service;
mod session;
mod sockets;
mod status;
mod stream;
mod suggest;
mod transcoders;
