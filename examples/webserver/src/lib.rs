//! A small event-driven web server in one thread, which finds ready sockets in one of four ways.
//!
//! Problem: to compare event mechanisms, a server must differ in nothing else. Approach: one loop, one table of
//! sockets, and one [`backend::Backend`]: `select`, `poll`, `epoll`, or the I/O event delivery module of ECalls.
//! All other code is shared. Times are of the monotonic clock. Source: ECalls article, §5.2–5.3 (there: `thttpd`).
#![forbid(unsafe_code)]

pub mod backend;
pub mod connection;
pub mod control;
pub mod http;
pub mod server;
pub mod site;
pub mod table;
pub mod work;
