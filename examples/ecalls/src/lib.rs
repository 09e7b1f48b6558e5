//! The four examples of 000 §3.2.5: handlers that preprocess and filter events in the kernel.
//!
//! | example | the handler in the kernel | then |
//! |---|---|---|
//! | [`requests`] | copies the requests that arrive at a port into shared memory | a signal informs the server |
//! | [`averages`] | averages 64 samples of a CPU | a signal carries the average |
//! | [`filter`] | examines arriving packets and discards those that do not matter | the others are in shared memory |
//! | [`accelerator`] | separates static requests from dynamic ones | static ones never reach the server's socket |
//!
//! Each example is a function that a test can call, and a command of the program in this package.

#![forbid(unsafe_code)]

pub mod accelerator;
pub mod averages;
pub mod filter;
pub mod requests;

use std::time::Duration;

use qfabric_client::ecalls::Event;

/// How long an example waits for an event that it expects.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// An unsigned number of `N` bytes (at most 8) at `offset`.
fn number<const N: usize>(event: &Event<'_>, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&event.data[offset..offset + N]);
    u64::from_le_bytes(bytes)
}
