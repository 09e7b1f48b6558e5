//! A small event-driven web server in one thread, with four ways to learn which sockets are ready.
//!
//! Problem: what an event mechanism is worth shows in a server that spends its time in it. Approach: one loop,
//! one table of sockets, one [`backend::Backend`] out of `select`, `poll`, `epoll` and the I/O event delivery
//! module of ECalls; everything else is the same code. Times are of the monotonic clock.
//! Source: ECalls article, §5.2–5.3 (there: `thttpd`).
#![forbid(unsafe_code)]

pub mod backend;
pub mod connection;
pub mod control;
pub mod http;
pub mod server;
pub mod site;
pub mod table;
pub mod work;
